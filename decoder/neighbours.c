/* neighbours.c -- the best k of the union, and the softmax over them. */
#include "decoder/neighbours.h"
#include <math.h>
#include <stdbool.h>

static bool is_none(const struct neighbour_candidate *c) {
    return c->id < 0 || !(c->score > -INFINITY);
}

static bool is_better(const struct neighbour_candidate *a, const struct neighbour_candidate *b) {
    if (is_none(a) || is_none(b)) return !is_none(a) && is_none(b);
    if (a->score != b->score) return a->score > b->score;
    if (a->source != b->source) return a->source < b->source;
    return a->id < b->id;
}

void neighbours_choose(const struct neighbour_row *row, int k, struct neighbour_candidate *candidates, int64_t n) {
    /* Selection, place by place: k is about 8 and n a few times that. */
    double sum = 0;
    for (int place = 0; place < k; place++) {
        int64_t best = place;
        for (int64_t i = place + 1; i < n; i++)
            if (is_better(&candidates[i], &candidates[best])) best = i;
        if (place >= n || is_none(&candidates[best])) {
            row->id[place] = -1;
            row->score[place] = -INFINITY;
            row->weight[place] = 0;
            row->source[place] = NEIGHBOUR_NONE;
            n = place; /* nothing better comes behind */
            continue;
        }
        struct neighbour_candidate chosen = candidates[best];
        candidates[best] = candidates[place];
        row->id[place] = chosen.id;
        row->score[place] = chosen.score;
        row->source[place] = chosen.source;
        row->weight[place] = expf(chosen.score - row->score[0]);
        sum += (double)row->weight[place];
    }
    for (int place = 0; place < k && row->id[place] >= 0; place++)
        row->weight[place] = (float)((double)row->weight[place] / sum);
}
