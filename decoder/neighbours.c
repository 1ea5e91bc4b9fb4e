/* neighbours.c -- selects the best k of all candidates, and computes the softmax over them. */
#include "decoder/neighbours.h"
#include <math.h>
#include <stdbool.h>

static bool neighbours_is_none(const struct neighbour_candidate *c) {
    return c->id < 0 || !(c->score > -INFINITY);
}

static bool neighbours_is_better(const struct neighbour_candidate *a, const struct neighbour_candidate *b) {
    if (neighbours_is_none(a) || neighbours_is_none(b)) return !neighbours_is_none(a) && neighbours_is_none(b);
    if (a->score != b->score) return a->score > b->score;
    if (a->source != b->source) return a->source < b->source;
    return a->id != b->id ? a->id < b->id : a->offset < b->offset;
}

void neighbours_select(const struct neighbour_row *row, int k, struct neighbour_candidate *candidates, int64_t n) {
    /* Selection sort of the first k; k is about 8 and n a few times that. */
    double sum = 0;
    for (int rank = 0; rank < k; rank++) {
        int64_t best = rank;
        for (int64_t i = rank + 1; i < n; i++)
            if (neighbours_is_better(&candidates[i], &candidates[best])) best = i;
        if (rank >= n || neighbours_is_none(&candidates[best])) {
            row->id[rank] = -1;
            row->score[rank] = -INFINITY;
            row->weight[rank] = 0;
            row->source[rank] = NEIGHBOUR_NONE;
            if (row->offset) row->offset[rank] = 0;
            n = rank; /* no candidate is left */
            continue;
        }
        struct neighbour_candidate selected = candidates[best];
        candidates[best] = candidates[rank];
        row->id[rank] = selected.id;
        row->score[rank] = selected.score;
        row->source[rank] = selected.source;
        if (row->offset) row->offset[rank] = selected.offset;
        row->weight[rank] = expf(selected.score - row->score[0]);
        sum += (double)row->weight[rank];
    }
    for (int rank = 0; rank < k && row->id[rank] >= 0; rank++)
        row->weight[rank] = (float)((double)row->weight[rank] / sum);
}
