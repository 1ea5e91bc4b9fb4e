/* hybrid_hits.h -- merges the hits of two searches, e.g. by tokens and by landmarks. One query a call.
 * STATUS_NO_MEMORY is the only failure.
 *
 * The weighted sum takes three steps: hybrid_candidates, both scores of every candidate (lexical_score; exact scores of
 * landmarks), hybrid_weighted. Reciprocal ranks need no scores and one call, hybrid_reciprocal_rank. */
#pragma once
#include "store/store.h"

/* Writes ids[n_a + n_b]: the chunks of both lists, ascending, each once, without the -1 at the ends of the lists.
 * Returns their number. */
int64_t hybrid_candidates(int64_t *ids, const struct store_hit *a, int64_t n_a, const struct store_hit *b, int64_t n_b);

/* Writes hits[k], the best by a[i] + weight * b[i]; ties by smaller id; -1 in the remaining slots. A NaN sum is left
 * out. `ids` must ascend. */
enum status hybrid_weighted(struct store_hit *hits, int k, const int64_t *ids, const float *a, const float *b,
                            int64_t n, float weight);

/* Writes hits[k], the best by 1 / (constant + rank in a) + weight / (constant + rank in b). Ranks start at 1; a list
 * that lacks the chunk adds 0 (Cormack et al. 2009, with the constant 60). Lists are best first, and a chunk occurs at
 * most once in a list. */
enum status hybrid_reciprocal_rank(struct store_hit *hits, int k, const struct store_hit *a, int64_t n_a,
                                   const struct store_hit *b, int64_t n_b, float weight, float constant);
