/* corpus_pool.h -- the training corpus as something to retrieve from while training (training.md, POOL_CORPUS).
 *
 * Holds, on the device, the ids of every chunk, the documents they belong to, and a landmark for each, made anew by
 * refresh with the encoder as it then is: stale by at most `refresh` steps. Search is exact. Chunks found are encoded
 * afresh by the step, and scored afresh: staleness costs candidates, never a weight. */
#pragma once
#include "encoder/encoder_train.h"
#include "model/model_config.h"
#include "kernels/search/topk.h"

/* With noise so many times as many chunks are searched as are wanted; how many may be wanted. */
enum { CORPUS_POOL_NOISE = 4, CORPUS_POOL_CANDIDATES_MAX = TOPK_SAMPLE_MAX / CORPUS_POOL_NOISE };
struct corpus_pool;
/* ids [chunks, chunk] real ids (-1 behind the end of a short chunk), documents [chunks][2]; both copied to the device. */
enum status corpus_pool_create(struct corpus_pool **out, struct device *dev, const struct model_config *config, enum dtype type,
                               const int32_t *ids, const int32_t (*documents)[2], int64_t chunks, int64_t max_queries, int candidates);
void corpus_pool_free(struct corpus_pool *p);             /* NULL is fine */
size_t corpus_pool_bytes(const struct corpus_pool *p);    /* of device memory held */
/* Encodes every chunk with `encoder`, whose activations it overwrites: between steps only. */
void corpus_pool_refresh(struct corpus_pool *p, struct encoder_train *encoder);
/* queries [n, d], barred [n][2] (device): the `candidates` best chunks of each that share no document with barred; with
 * `gumbel` noise on the score of the CORPUS_POOL_NOISE * candidates best. Writes ids [n*candidates, S] with the landmark in place, and
 * their documents; memory of the device. Where too few are allowed: pads, of the documents 0 .. INT32_MAX, which no query
 * of any document may choose. */
void corpus_pool_search(struct corpus_pool *p, int32_t *ids, int32_t (*documents)[2], struct mat queries,
                        const int32_t (*barred)[2], bool gumbel, uint64_t seed);
