/* neighbours.h -- selects neighbours from the candidates of several sources (model.md §4.5, §8.3).
 *
 * Every retriever uses this function. It selects the best k of all candidates by score; at equal scores, the text's own
 * past comes before the corpus, then the smaller id, then the smaller offset. The weights are one softmax over the
 * selected scores. */
#pragma once
#include "decoder/retriever.h"

/* id < 0 or score -inf: no candidate; offset: as in decoder/retriever.h */
struct neighbour_candidate { float score; int8_t source; int64_t id; int16_t offset; };

/* Fills one row of k neighbours, best first. Slots without a candidate get id -1, score -inf, NEIGHBOUR_NONE and weight
 * 0. `candidates` is reordered. A candidate whose score is NaN is ignored. */
struct neighbour_row { int64_t *id; float *score, *weight; int8_t *source; int16_t *offset; }; /* offset: or NULL */
void neighbours_select(const struct neighbour_row *row, int k, struct neighbour_candidate *candidates, int64_t n);
