/* memory_window.h -- one window of text read with token memories: what the model and each memory give to its tokens.
 *
 * The trunk reads the window once, without retrieval; its key states are the queries and the own past. A search is made
 * at the first scored token and each `every` tokens after it, with the text before that token alone. */
#pragma once
#include "indexer/memory_source.h"
#include "tools/memory/memory_options.h"

/* One memory with one temperature; results of each scored token. */
struct memory_read {
    bool past, found, drawn;             /* own past; chunks that a search finds; random chunks */
    float tau;
    float *log_p, *lse, *nearest, *squares;   /* [context] */
    double seconds;                      /* all that this read needs, the trunk included */
};
struct memory_window_config {
    struct engine *engine;
    const struct memory_config *memory;
    const struct lexical *lexical;
    int64_t context;
    uint64_t seed;                       /* of random chunks */
};
struct memory_window;
/* Borrows what config names until memory_window_free. reads [n_reads] get their arrays here, and are borrowed. */
enum status memory_window_create(struct memory_window **out, const struct memory_window_config *config,
                                 struct memory_read *reads, int n_reads);
void memory_window_free(struct memory_window *w);         /* also frees the arrays of the reads; NULL is fine */

/* What the model gives to each scored token: log p of the token; entropy and log of the largest probability before
 * it. */
struct memory_lm { const float *log_p, *entropy, *largest; };
/* Tokens first .. n-1 of ids [n], n <= context, are scored; results lie from index 0 on. document: of the store,
 * whose chunks are not to be found; -1: none. */
enum status memory_window_run(struct memory_window *w, struct memory_lm *out, const int32_t *ids, int64_t n,
                              int64_t first,
                              int64_t document);
/* Features of token i (from `first` on) for the gate of a read. */
void memory_window_features(float features[MEMORY_FEATURES], const struct memory_lm *lm, const struct memory_read *read,
                            int64_t i);
struct memory_source_stats memory_window_stats(const struct memory_window *w);
