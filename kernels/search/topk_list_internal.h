/* topk_list_internal.h -- the CPU's sorted list of the best places so far, as topk_list_cuda.cuh is a warp's.
 *
 * The order (score, then smaller index) is total, so the best are one set in whatever order they come. */
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* k places, best first; empty ones -1, -inf. */
struct topk_list { int64_t *index; float *score; };

static inline void list_clear(struct topk_list l, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        l.index[i] = -1;
        l.score[i] = -INFINITY;
    }
}

static inline struct topk_list list_at(struct topk_list l, int64_t place) {
    return (struct topk_list){l.index + place, l.score + place};
}

static inline bool list_better(float score, int64_t index, float than, int64_t than_index) {
    return score > than || (score == than && (than_index < 0 || index < than_index));
}

/* Insertion into a sorted list: most candidates stop at the first comparison, with the last place. */
static inline void list_offer(struct topk_list l, int k, float score, int64_t index) {
    if (!list_better(score, index, l.score[k - 1], l.index[k - 1])) return;
    int place = k - 1;
    for (; place > 0 && list_better(score, index, l.score[place - 1], l.index[place - 1]); place--) {
        l.score[place] = l.score[place - 1];
        l.index[place] = l.index[place - 1];
    }
    l.score[place] = score;
    l.index[place] = index;
}
