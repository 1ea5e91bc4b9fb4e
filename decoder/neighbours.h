/* neighbours.h -- from candidates of several sources to one row of struct neighbours (model.md §4.5, §8.3).
 *
 * Every retriever selects with this function: the best k of the union by score; at equal scores the text's own past
 * before the corpus, then the smaller id; weights are one softmax over the selected scores. */
#pragma once
#include "decoder/retriever.h"

struct neighbour_candidate { float score; int8_t source; int64_t id; };   /* id < 0 or score -inf: none */

/* Fills one row of k neighbours, best first; id -1, score -inf, NEIGHBOUR_NONE and weight 0 where no candidate is left.
 * `candidates` is reordered. A candidate whose score is NaN is ignored. */
struct neighbour_row { int64_t *id; float *score, *weight; int8_t *source; };
void neighbours_select(const struct neighbour_row *row, int k, struct neighbour_candidate *candidates, int64_t n);
