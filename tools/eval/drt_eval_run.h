/* drt_eval_run.h -- the state of a run of drt-eval ppl: drt_eval_run.c (documents) and drt_eval_window.c (windows). */
#pragma once
#include "tools/eval/drt_eval.h"
#include "tools/eval/drt_eval_tokens.h"
#include "tools/memory/memory_samples.h"

struct eval_run {
    struct eval_result *result;
    struct engine *engine;
    const struct eval_engines *engines;
    struct memory_window *memory; /* NULL: no mode reads one */
    struct memory_read reads_of[MEMORY_READS], reads[MEMORY_READS]; /* settings of each memory; those that are read */
    int read_at[MEMORY_READS];                                      /* index into reads */
    struct retriever *memory_gca;                                   /* for GCA under the memory; NULL: no GCA */
    struct memory_samples *samples;                                 /* NULL: memories are mixed, not sampled */
    bool runs;                                                      /* whether classes of tokens are wanted */
    const struct eval_options *options;
    const struct progress *progress;
    struct progress in_window;           /* for the token memories: reports as eval_step does */
    struct retriever *retriever[EVAL_MODES];
    struct tokenizer_scratch *scratch, *decoding; /* separate, so that decoding does not overwrite the scored ids */
    int32_t *targets;
    float *nll;
    int32_t *ids;
    size_t ids_capacity;                 /* capacity for ids of token files, which are unsigned */
    int64_t done;        /* scored tokens of the current document */
    int64_t read;        /* tokens of the current document up to the last one that was scored */
    /* id of the current document in the store, which is excluded; -1: not in the store, or not excluded */
    int64_t stored;
};

/* drt_eval_memory.c. The memories that a mode mixes: the kind of configuration, and the read of each side (-1: none).
 * Random chunks and those of the oracle are mixed like found ones. */
enum memory_kind eval_kind_of(int mode);
int eval_read_of(int mode, int side);
/* Makes the memories that the modes need. All modes with a memory use one window. */
enum status eval_memory_prepare(struct eval_run *r);
enum status eval_memory_score(struct eval_run *r, struct eval_document *d, const int32_t *ids, int64_t n,
                              int64_t first, int64_t token); /* token: number of the first scored token */

/* drt_eval_overlap.c. Finds a document with these ids in the store; -1: there is none. The hash of a document is that
 * of its text, or of its ids if it came from a token file: the store may have it in the other form. */
struct document;
enum status eval_find_stored(int64_t *stored, struct eval_run *r, const struct document *document, const int32_t *ids,
                             size_t n);

/* Reports the scored tokens of the current file. detail: what is computed of the next window; NULL: nothing. */
void eval_step(const struct eval_run *r, const char *detail);
struct progress eval_window_progress(struct eval_run *r); /* whose steps are details of eval_step */

/* Fails with the reason for which no document was scored. */
enum status eval_nothing_scored(const struct eval_options *o);
/* Returns the number of tokens of a document of n that eval_score_document scores. */
int64_t eval_scored_tokens(const struct eval_options *o, int64_t n, int64_t tokens_left);
/* Scores the document's windows in all modes, at most tokens_left tokens if it is > 0. A stop request drops the current
 * window, so every scored token has a loss in every mode. */
enum status eval_score_document(struct eval_run *r, struct eval_document *d, const int32_t *ids, int64_t n,
                                int64_t tokens_left);
