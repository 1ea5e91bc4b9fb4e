/* hybrid.h -- merges the hits of two searches, e.g. by tokens and by landmarks. Pure functions, one query.
 *
 * Weighted: hybrid_candidates, then both scores of every candidate (lexical_score; exact scores of landmarks), then
 * hybrid_weighted. Reciprocal rank needs no scores: hybrid_reciprocal_rank alone. */
#pragma once
#include "store/store.h"

/* ids[n_a + n_b], rising, each once: the chunks of both lists without the -1 at their ends. Returns how many. */
int64_t hybrid_candidates(int64_t *ids, const struct store_hit *a, int64_t n_a, const struct store_hit *b, int64_t n_b);

/* hits[k]: the best by a[i] + weight * b[i], ties by smaller id, the rest -1. A NaN sum is left out. ids rise. */
void hybrid_weighted(struct store_hit *hits, int k, const int64_t *ids, const float *a, const float *b, int64_t n,
                     float weight);

/* hits[k]: the best by 1 / (constant + rank in a) + weight / (constant + rank in b), rank from 1, 0 where a list lacks
 * the chunk (Cormack et al. 2009: constant 60). Lists are best first; no chunk is twice in one. */
void hybrid_reciprocal_rank(struct store_hit *hits, int k, const struct store_hit *a, int64_t n_a,
                            const struct store_hit *b, int64_t n_b, float weight, float constant);
