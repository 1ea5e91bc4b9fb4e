/* vectors_graph_internal.h -- inserts centroids into a graph of FAISS (HNSW) by several threads, with a result that
 * does not depend on them.
 *
 * FAISS's threads insert while others do, so its graph differs from run to run. Here a batch of nodes is searched in
 * the graph of all nodes before, at the same time. Then each node before that got new links takes them in the order of
 * the batch. A batch is a sixteenth of the nodes before it, so a node lacks few of its neighbours as candidates. Links
 * are chosen by FAISS's functions, as it does. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
/* A loop over [0, n) by several threads: calls body for disjoint ranges, with worker in [0, workers). */
struct vectors_loop {
    void (*run)(void *pool, int64_t n, void (*body)(void *context, int64_t begin, int64_t end, int worker),
                void *context);
    void *pool;
    int workers;
};
/* Adds rows to the empty graph `quantizer`, a FAISS index. Returns false if it is not an empty graph over float32 rows;
 * nothing is done then. *failed: FAISS failed (no memory); the graph is useless. */
bool vectors_graph_add(void *quantizer, const float *rows, int64_t n, const struct vectors_loop *loop, bool *failed);
#ifdef __cplusplus
}
#endif
