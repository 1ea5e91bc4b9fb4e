/* corpus_pool.h -- the training corpus as a retrieval index while training (training-keys.md, pool corpus).
 *
 * Holds on the device the ids of every chunk, their documents, and a landmark for each. corpus_pool_refresh computes
 * the landmarks with the current encoder; between two refreshes they are stale. Search is exact. The step encodes
 * and scores the chunks found with the current encoder, so stale landmarks change the candidates, but not the
 * weights. */
#pragma once
#include "encoder/encoder_train.h"
#include "model/model_config.h"
#include "kernels/search/topk.h"

/* With noise, so many times more chunks are searched than returned; the maximum of `candidates`. */
enum { CORPUS_POOL_NOISE = 4, CORPUS_POOL_CANDIDATES_MAX = TOPK_SAMPLE_MAX / CORPUS_POOL_NOISE };
struct corpus_pool;
struct corpus_pool_config {
    enum dtype type;                 /* of the landmarks */
    const int32_t *ids;              /* [chunks, chunk] real ids, -1 after the end of a short chunk */
    const int32_t (*documents)[2];   /* [chunks][2] */
    int64_t chunks, max_queries;     /* max_queries: of one search, at least 1 */
    int candidates;                  /* chunks returned for a query: 1 to CORPUS_POOL_CANDIDATES_MAX */
};
/* Copies ids and documents to the device: both may be freed afterwards. */
enum status corpus_pool_create(struct corpus_pool **out, struct device *dev, const struct model_config *model,
                               const struct corpus_pool_config *config);
void corpus_pool_free(struct corpus_pool *p);             /* NULL is fine */
size_t corpus_pool_bytes(const struct corpus_pool *p);    /* of device memory held */
/* Encodes every chunk with `encoder`, whose activations it overwrites: between steps only. */
void corpus_pool_refresh(struct corpus_pool *p, struct encoder_train *encoder);
/* queries [n, d], barred [n][2] (device): the `candidates` best chunks of each that share no document with barred;
 * with `gumbel` noise on the score of the CORPUS_POOL_NOISE * candidates best. Writes ids [n*candidates, S],
 * landmarks included, and their documents; memory of the device. Where too few are allowed: pads, with the documents
 * 0 .. INT32_MAX, which are barred for every query. */
void corpus_pool_search(struct corpus_pool *p, int32_t *ids, int32_t (*documents)[2], struct mat queries,
                        const int32_t (*barred)[2], bool gumbel, uint64_t seed);
