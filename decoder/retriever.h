/* retriever.h -- the interface by which the decoder retrieves neighbours for its queries.
 *
 * The decoder calls append for each complete chunk, in order, then retrieve for each group. A retriever belongs to one
 * running text. indexer/retrieve/retriever.c makes one from a store, an encoder and the running text's own past.
 *
 * hidden, queries and the pool are device memory. hidden and the pool have the weights' type; queries are float32 (a
 * store's search downloads them). ids and the rows of struct neighbours are memory of this process. */
#pragma once
#include "base/status.h"
#include "kernels/attention/gca.h"
#include <stdint.h>

enum neighbour_source { NEIGHBOUR_NONE = -1, NEIGHBOUR_OWN_PAST = 0, NEIGHBOUR_CORPUS = 1 };

/* Row i: the neighbours that the query of chunk first+i found, best first. They are borrowed from the retriever. They
 * stay valid during the next call for the same group, until the second call for it begins. */
struct neighbours {
    struct gca_pool pool;
    int64_t n;
    int k;
    const int32_t *slot;                 /* [n*k] in the pool; -1: empty */
    const float *weight;                 /* [n*k] softmax over the row's scores; 0: an empty slot */
    const float *score;                  /* [n*k] -inf: an empty slot */
    const int64_t *id;                   /* [n*k] chunk number in its source; -1: an empty slot */
    /* [n*k] ids of chunk `id` that are before the neighbour's first id: not 0 if the neighbour extends into the next
     * chunk. NULL: all 0 */
    const int16_t *offset;
    const int8_t *source;                /* [n*k] enum neighbour_source */
};

struct retriever {
    /* Adds chunks first .. first+n-1 of the running text: ids [n, chunk]; hidden [n*S, d] is the last lower layer's
     * output (data NULL if the model's encoder reads tokens). */
    enum status (*append)(struct retriever *r, int64_t first, const int32_t *ids, struct mat hidden, int64_t n);
    /* Retrieves for queries [n, d], after lmk_norms[g] (and lmk_q_proj[g]), of chunks first .. first+n-1, which must
     * all have been appended. Query t must find only own chunks before t. */
    enum status (*retrieve)(struct retriever *r, struct neighbours *out, int group, int64_t first, struct mat queries,
                 int64_t n);
    /* Called while the device has no work before the next id. The retriever may then issue work whose result it needs
     * later. NULL: nothing to issue. */
    void (*idle)(struct retriever *r);
    void (*free)(struct retriever *r);
    int64_t max_queries;                 /* of one retrieve call; the decoder limits its passes to it */
};
