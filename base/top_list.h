/* top_list.h -- the best k of a stream of scored ids: a heap whose first entry is the worst one kept.
 *
 * The order is total (larger score first, equal scores by smaller id). So the best k do not depend on the order of the
 * offers, and lists of several threads can be merged by offering the entries of one to another. A NaN score is never
 * kept.
 *
 * An id is at least 0. Empty slots have id -1 and score -infinity, and come last. A list of empty slots is a valid
 * heap, so a list needs no count. The caller owns the memory: id [k], score [k]. */
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

struct top_list {
    int64_t *id;
    float *score;
    int k;                               /* at least 1 */
};

static inline void top_list_clear(struct top_list l) {
    for (int i = 0; i < l.k; i++) {
        l.id[i] = -1;
        l.score[i] = -INFINITY;
    }
}

/* As an unsigned number, the id of an empty slot is the largest, so at equal scores it is the worst. */
static inline bool top_list_better(float score, int64_t id, float than, int64_t than_id) {
    return score > than || (score == than && (uint64_t)id < (uint64_t)than_id);
}

/* Rejects most candidates of a scan by one comparison with the worst entry. */
static inline bool top_list_admits(struct top_list l, float score, int64_t id) {
    return top_list_better(score, id, l.score[0], l.id[0]);
}

/* Puts an entry into the first slot of a heap of n and moves it below all worse entries. */
static inline void top_list_sink(struct top_list l, int n, float score, int64_t id) {
    int at = 0;
    for (int child = 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && top_list_better(l.score[child], l.id[child], l.score[child + 1], l.id[child + 1])) child++;
        if (!top_list_better(score, id, l.score[child], l.id[child])) break;
        l.score[at] = l.score[child];
        l.id[at] = l.id[child];
        at = child;
    }
    l.score[at] = score;
    l.id[at] = id;
}

static inline void top_list_offer(struct top_list l, float score, int64_t id) {
    if (top_list_admits(l, score, id)) top_list_sink(l, l.k, score, id);
}

/* Sorts the list: best first, empty slots last. It is then no longer a heap, and accepts no more offers. */
static inline void top_list_sort(struct top_list l) {
    for (int n = l.k - 1; n > 0; n--) {
        float score = l.score[n];
        int64_t id = l.id[n];
        l.score[n] = l.score[0];
        l.id[n] = l.id[0];
        top_list_sink(l, n, score, id);
    }
}
