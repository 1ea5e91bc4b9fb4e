/* retriever.h -- the interface by which the decoder retrieves neighbours for its queries.
 *
 * The decoder calls append for each chunk that is complete, in order, then retrieve for each group. A retriever
 * belongs to one running text. indexer/retrieve/retriever.c makes one from a store, an encoder and the running text's
 * own past.
 *
 * Large matrices stay on the device: hidden, queries and the pool are its memory, hidden and pool in the weights'
 * type, queries in float32 (a store's search downloads them). ids and the rows of struct neighbours are memory of
 * this process. */
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
    const int32_t *slot;                 /* [n*k] in the pool; -1: empty */
    const float *weight;                 /* [n*k] softmax over the row's scores; 0 where empty */
    const float *score;                  /* [n*k] -inf where empty */
    const int64_t *id;                   /* [n*k] chunk number in its source; -1 */
    const int8_t *source;                /* [n*k] enum neighbour_source */
};

struct retriever {
    /* Chunks first .. first+n-1 of the running text: ids [n, chunk]; hidden [n*S, d] is the last lower layer's
     * output, data NULL where the model's encoder reads tokens. */
    enum status (*append)(struct retriever *r, int64_t first, const int32_t *ids, struct mat hidden, int64_t n);
    /* queries [n, d]: lmk_norms[g] (and lmk_q_proj[g]) applied, of chunks first .. first+n-1, all of which were
     * appended. Query t must see own chunks strictly before t only. */
    enum status (*retrieve)(struct retriever *r, struct neighbours *out, int group, int64_t first, struct mat queries,
                 int64_t n);
    /* Called while the device has no work before the next id: the retriever may issue some work that it needs later.
     * NULL: none. */
    void (*idle)(struct retriever *r);
    void (*free)(struct retriever *r);
    int64_t max_queries;                 /* of one retrieve call: the decoder limits its passes to it */
};
