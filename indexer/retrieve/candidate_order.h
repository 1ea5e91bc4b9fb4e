/* candidate_order.h -- orders the chunks that a search found by a trained weighted sum of features
 * (kernels/lexical/candidate_features.h; docs/token-memory.md, "Order of the candidates").
 *
 * For one thread at a time, as the view is. */
#pragma once
#include "decoder/memory_config.h"
#include "kernels/lexical/candidates.h"
#include "store/lexical/lexical.h"
#include "store/store.h"

enum { CANDIDATE_SAMPLE = 1 << 17 };
/* Makes the idf of each id (indexer/landmarks/word_counts.h), counted in about CANDIDATE_SAMPLE chunks of the store. So
 * it is the same with every kind of search and every index. */
enum status candidate_idf_make(float **out, struct store_view *view);

struct candidate_order;
/* `view`, `idf` and `threads` are borrowed until candidate_order_free, `order` is copied. cosine_of: the first numbers
 * of a landmark of which CANDIDATE_COSINE is made; the others are a sketch (indexer/landmarks/state_landmarks.h). */
enum status candidate_order_create(struct candidate_order **out, struct store_view *view,
                                   const struct order_weights *order, const float *idf, int cosine_of,
                                   struct threads *threads);
void candidate_order_free(struct candidate_order *o);     /* NULL is fine */
/* What a device needs to order chunks (kernels/lexical/candidates.h), with idf in memory of this process. Valid until
 * candidate_order_free. */
struct candidate_terms candidate_order_terms(const struct candidate_order *o);
/* Takes the query, whose ids may change afterwards. vector [dim]: of its search by landmarks, copied; NULL: none. */
void candidate_order_query(struct candidate_order *o, const struct lexical_query *tokens, const float *vector);
/* Orders the hits [n] of the query, best first; of equal sums the first one stays first. Scores stay with their
 * chunks. Hits of chunk -1 stay last. */
enum status candidate_order_sort(struct candidate_order *o, struct store_hit *hits, int n);
/* Writes their features [n][CANDIDATE_FEATURES] instead. Those of chunk -1 are 0. */
enum status candidate_order_features(struct candidate_order *o, float *features, const struct store_hit *hits, int n);
