/* memory_knn.h -- kNN-LM (Khandelwal 2020): the exact m nearest of all tokens of a store, for each query. It is a
 * reference for the gain of a chunk store, and not for serving: the store is encoded and read once for all queries.
 *
 * An entry is a token of a chunk. Its key is the key state when the chunk is read without text before it. Its value is
 * the next token of the document. Queries are added first. Then one pass over the store, in blocks of chunks, finds the
 * nearest entries of all queries. Memory has one block of the store, and for each query its state, m distances and m
 * values. Distances are |s|^2 + |k|^2 - 2 s.k in float32, as in kernels/memory/token_memory.h; equal ones are in the
 * order of the store. Any number of threads gives the same bits. For one thread at a time. */
#pragma once
#include "session/engine.h"

enum { MEMORY_KNN_ENTRIES = 1024 };
struct memory_knn_config {
    struct engine *engine;               /* with a store; borrowed until memory_knn_free */
    int key_layer;                       /* as in struct decoder_output */
    int m;                               /* entries of a query; at most TOPK_SAMPLE_MAX (kernels/search/topk.h) */
    int64_t block;                       /* chunks at a time; 0: a default for the device */
};
struct memory_knn;
enum status memory_knn_create(struct memory_knn **out, const struct memory_knn_config *config);
void memory_knn_free(struct memory_knn *k);               /* NULL is fine */

/* Adds queries: key states [n, d] in device memory, of the decoder's type. document: its chunks are not entries for
 * them; -1: none. Call it before memory_knn_search. */
enum status memory_knn_add(struct memory_knn *k, struct mat states, int64_t document);
/* STATUS_INTERRUPTED: a stop was requested. */
enum status memory_knn_search(struct memory_knn *k, const struct progress *progress);
bool memory_knn_searched(const struct memory_knn *k);     /* false also for NULL */

/* [n, m], nearest first; distance +infinity and value -1 if there are fewer. */
struct memory_nearest { const float *distance; const int32_t *value; int m; };
/* Returns the entries of the next n queries, in the order in which they were added. */
struct memory_nearest memory_knn_next(struct memory_knn *k, int64_t n);
