/* retriever.h -- all that the decoder knows of retrieval: "give me neighbours for these queries".
 *
 * The decoder calls append for each chunk that is complete, in order, then retrieve for each group. A retriever
 * belongs to one running text. indexer/ makes one from store + encoder + the running text's own past; train/ will
 * make one from the current batch.
 *
 * What is large stays on the device: hidden, queries and the pool are its memory, hidden and pool in the weights' type,
 * queries in float32 (a store's search downloads them). ids and the rows of struct neighbours are memory of this process. */
#pragma once
#include "base/status.h"
#include "kernels/attention/gca.h"
#include <stdint.h>

enum neighbour_source { NEIGHBOUR_NONE = -1, NEIGHBOUR_SELF = 0, NEIGHBOUR_CORPUS = 1 };

/* Row i: the neighbours that the query of chunk first+i found, best first. Borrowed from the retriever: rows of a call
 * stay valid during the next call of the same group and until the one after that begins. */
struct neighbours {
    struct gca_pool pool;
    int64_t n;
    int k;
    const int32_t *slot;                 /* [n*k] in the pool; -1: empty place */
    const float *weight;                 /* [n*k] softmax over the row's scores; 0 at empty places */
    const float *score;                  /* [n*k] -inf at empty places */
    const int64_t *id;                   /* [n*k] chunk number in its source; -1 */
    const int8_t *source;                /* [n*k] enum neighbour_source */
};

struct retriever {
    /* Chunks first .. first+n-1 of the running text: ids [n, chunk]; hidden [n*S, d] is the last lower layer's output, data
     * NULL where the model's encoder reads tokens. */
    enum status (*append)(struct retriever *r, int64_t first, const int32_t *ids, struct mat hidden, int64_t n);
    /* queries [n, d]: lmk_norms[g] (and lmk_q_proj[g]) applied, of chunks first .. first+n-1, all of them appended.
     * Query t must see own chunks strictly before t only. */
    enum status (*retrieve)(struct retriever *r, struct neighbours *out, int group, int64_t first, struct mat queries, int64_t n);
    /* While the device would have nothing to do before this process has an id for it: time for a little work that is needed
     * later. NULL: none. */
    void (*idle)(struct retriever *r);
    void (*free)(struct retriever *r);
    int64_t max_queries;                 /* of one retrieve call: the decoder cuts its passes so */
};
