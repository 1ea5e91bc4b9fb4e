/* memory_knn.h -- kNN-LM (Khandelwal 2020): for each query the m nearest of all tokens of a store, exactly. A reference
 * for what a chunk store can give, not a method of serving: the store is encoded and read once for all queries.
 *
 * An entry is a token of a chunk: its key is the key state of the chunk read with nothing before it, its value the
 * token that follows in the document. Queries are added first, then one pass over the store in blocks of chunks finds
 * the nearest entries of all; of the store only a block lies in memory, of a query its state, m distances and values.
 * Distances are |s|^2 + |k|^2 - 2 s.k in float32, as in kernels/memory/token_memory.h; equal ones keep the order of the
 * store. The same bits with any number of threads. One thread at a time. */
#pragma once
#include "session/engine.h"

enum { MEMORY_KNN_ENTRIES = 1024 };
struct memory_knn_config {
    struct engine *engine;               /* with a store; borrowed until memory_knn_free */
    int key_layer;                       /* as in struct decoder_output */
    int m;                               /* entries of a query; to TOPK_SAMPLE_MAX (kernels/search/topk.h) */
    int64_t block;                       /* chunks at a time; 0: a number that suits the device */
};
struct memory_knn;
enum status memory_knn_create(struct memory_knn **out, const struct memory_knn_config *config);
void memory_knn_free(struct memory_knn *k);               /* NULL is fine */

/* Queries: key states [n, d] in memory of the device, of the decoder's type. document: whose chunks are no entries of
 * theirs; -1: none. Before memory_knn_search. */
enum status memory_knn_add(struct memory_knn *k, struct mat states, int64_t document);
/* STATUS_INTERRUPTED: a stop was requested. */
enum status memory_knn_search(struct memory_knn *k, const struct progress *progress);
bool memory_knn_searched(const struct memory_knn *k);     /* false also for NULL */

/* [n, m], nearest first; distance +infinity and value -1 where there are fewer. */
struct memory_nearest { const float *distance; const int32_t *value; int m; };
/* Of the next n queries, in the order in which they were added. */
struct memory_nearest memory_knn_next(struct memory_knn *k, int64_t n);
