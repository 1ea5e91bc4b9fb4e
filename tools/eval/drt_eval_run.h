/* drt_eval_run.h -- what a run of drt-eval ppl holds: drt_eval_run.c (documents) and drt_eval_window.c (windows). */
#pragma once
#include "tools/eval/drt_eval.h"
#include "tools/eval/drt_eval_tokens.h"
#include "tools/memory/memory_samples.h"

struct eval_run {
    struct eval_result *result;
    struct engine *engine;
    const struct eval_engines *engines;
    struct memory_window *memory; /* NULL: no mode reads one */
    struct memory_read reads_of[MEMORY_READS], reads[MEMORY_READS]; /* what is wanted of each; those that are read */
    int read_at[MEMORY_READS];                                      /* index into reads */
    struct retriever *memory_gca;                                   /* what GCA reads under it; NULL: nothing */
    struct memory_samples *samples;                                 /* NULL: mix */
    bool runs;                                                      /* classes of tokens are wanted */
    const struct eval_options *options;
    const struct progress *progress;
    struct retriever *retriever[EVAL_MODES];
    struct tokenizer_scratch *scratch, *decoding; /* ids being scored must survive decoding */
    int32_t *targets;
    float *nll;
    int32_t *ids;
    size_t ids_capacity; /* of token inputs, which come unsigned */
    int64_t read;        /* tokens of the current document up to its last scored one */
    int64_t stored;      /* the current document's id in the store, to be left out; -1: none, or it may be found */
};

/* drt_eval_memory.c. Which memories a mode mixes: the kind of configuration, and for each side the read that it takes
 * (-1: none; random chunks and the oracle's are mixed as found ones would be). */
enum memory_kind eval_kind_of(int mode);
int eval_read_of(int mode, int side);
/* The memories that the modes need; one window in all modes that read a memory. */
enum status eval_memory_prepare(struct eval_run *r);
enum status eval_memory_score(struct eval_run *r, struct eval_document *d, const int32_t *ids, int64_t n,
                              int64_t first, int64_t token); /* token: number of the first scored one */

/* Scores the document's windows in all modes, tokens_left > 0: up to so many tokens. A stop request ends it between two
 * windows, so what was scored was scored in every mode. */
enum status eval_score_document(struct eval_run *r, struct eval_document *d, const int32_t *ids, int64_t n,
                                int64_t tokens_left);
