/* corpus_pool.h -- the training corpus as a retrieval index during training (training-keys.md, pool corpus).
 *
 * The device holds every chunk's ids, its documents and its landmark. corpus_pool_refresh computes the landmarks with
 * the current encoder; until the next refresh they become stale. Search is exact. The training step encodes and scores
 * the chunks that it finds with the current encoder, so stale landmarks change which chunks are candidates, but not
 * their weights. One thread at a time. */
#pragma once
#include "encoder/encoder_train.h"
#include "model/model_config.h"
#include "kernels/search/topk.h"

/* CORPUS_POOL_NOISE: with noise, the search returns this many times `candidates` chunks before noise is added. */
enum { CORPUS_POOL_NOISE = 4, CORPUS_POOL_CANDIDATES_MAX = TOPK_SAMPLE_MAX / CORPUS_POOL_NOISE };
struct corpus_pool;
struct corpus_pool_config {
    enum dtype type;                 /* of the landmarks */
    const int32_t *ids;              /* [chunks, chunk] real ids; -1 follows the last id of a short chunk */
    const int32_t (*documents)[2];   /* [chunks][2] */
    int64_t chunks, max_queries;     /* max_queries: of one search, at least 1 */
    int candidates;                  /* chunks returned for a query: 1 to CORPUS_POOL_CANDIDATES_MAX */
};
/* Copies ids and documents to the device; the caller may free both afterwards. */
enum status corpus_pool_create(struct corpus_pool **out, struct device *dev, const struct model_config *model,
                               const struct corpus_pool_config *config);
void corpus_pool_free(struct corpus_pool *p);             /* NULL is fine */
size_t corpus_pool_bytes(const struct corpus_pool *p);    /* of device memory held */
/* Encodes every chunk with `encoder` and overwrites the encoder's activations, so it must be called between steps. */
void corpus_pool_refresh(struct corpus_pool *p, struct encoder_train *encoder);
/* For each of queries [n, d] finds the `candidates` best chunks that share no document with its range barred [n][2].
 * With `gumbel` noise is added to the scores of the CORPUS_POOL_NOISE * candidates best. Writes ids [n*candidates, S],
 * with landmarks, and their documents. All arrays are device memory. If too few chunks are allowed, the rest are pads
 * with the documents 0 .. INT32_MAX, which are barred for every query. */
void corpus_pool_search(struct corpus_pool *p, int32_t *ids, int32_t (*documents)[2], struct mat queries,
                        const int32_t (*barred)[2], bool gumbel, uint64_t seed);
