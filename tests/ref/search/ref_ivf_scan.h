/* ref_ivf_scan.h -- an inverted file of small integers, whose products are exact in any storage type and order of sums:
 * the right results are then known to the last bit, ties included. For the tests of both twins. */
#pragma once
#include "base/rng.h"
#include "tests/test.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

struct ivf_scan_case {
    int64_t lists, rows, d, n;
    float *centroids, *data, *queries;
    int32_t *begin, *id;
    int64_t (*hole)[2];
};

static inline float *ivf_scan_numbers(struct rng *rng, int64_t n) {
    float *a = malloc((size_t)(n + 1) * sizeof *a);
    for (int64_t i = 0; i < n; i++) a[i] = (float)((int64_t)rng_below(rng, 7) - 3);
    return a;
}

/* A third of the lists are empty; ids are a permutation of all rows. */
static inline struct ivf_scan_case ivf_scan_case_make(struct rng *rng, int64_t lists, int64_t rows, int64_t d,
                                                      int64_t n) {
    struct ivf_scan_case c = {.lists = lists, .rows = rows, .d = d, .n = n};
    c.centroids = ivf_scan_numbers(rng, lists * d), c.data = ivf_scan_numbers(rng, rows * d);
    c.queries = ivf_scan_numbers(rng, n * d);
    c.begin = calloc((size_t)lists + 1, sizeof *c.begin), c.id = malloc((size_t)(rows + 1) * sizeof *c.id);
    c.hole = malloc((size_t)n * sizeof *c.hole);
    for (int64_t r = 0; r < rows; r++) {
        int64_t l = (int64_t)rng_below(rng, (uint64_t)lists);
        c.begin[(l % 3 == 1 && lists > 2 ? l - 1 : l) + 1]++;
        c.id[r] = (int32_t)r;
    }
    for (int64_t l = 0; l < lists; l++) c.begin[l + 1] += c.begin[l];
    for (int64_t r = rows - 1; r > 0; r--) {
        int64_t other = (int64_t)rng_below(rng, (uint64_t)r + 1);
        int32_t mine = c.id[r];
        c.id[r] = c.id[other], c.id[other] = mine;
    }
    for (int64_t q = 0; q < n; q++) {
        c.hole[q][0] = (int64_t)rng_below(rng, (uint64_t)rows + 1);
        c.hole[q][1] = q % 3 ? c.hole[q][0] + (int64_t)rng_below(rng, (uint64_t)rows + 1) : q % 2 ? rows * 4 : 0;
    }
    return c;
}
static inline void ivf_scan_case_free(struct ivf_scan_case *c) {
    free(c->centroids), free(c->data), free(c->queries), free(c->begin), free(c->id), free(c->hole);
}

static inline float ivf_scan_product(const float *a, const float *b, int64_t d) {
    float sum = 0;
    for (int64_t i = 0; i < d; i++) sum += a[i] * b[i];
    return sum;
}

struct ivf_scan_ranked { float score; int64_t list; };
static inline int ivf_scan_rank(const void *a, const void *b) {
    const struct ivf_scan_ranked *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->list < y->list ? -1 : x->list > y->list;
}

/* Checks that index, score [n * k] are what the header promises. */
static inline void ivf_scan_case_check(const struct ivf_scan_case *c, const int64_t *index, const float *score,
                                       bool holes, int nprobe, int k) {
    float *of_list = malloc((size_t)c->lists * sizeof *of_list), *of_id = malloc((size_t)(c->rows + 1) * sizeof *of_id);
    bool *taken = malloc((size_t)c->rows + 1);
    struct ivf_scan_ranked *order = malloc((size_t)c->lists * sizeof *order);
    for (int64_t q = 0; q < c->n; q++) {
        const float *query = c->queries + q * c->d, scale = 1.0f / sqrtf((float)c->d);
        for (int64_t i = 0; i < c->rows; i++) of_id[i] = -INFINITY, taken[i] = true;
        for (int64_t l = 0; l < c->lists; l++)
            of_list[l] = c->begin[l] == c->begin[l + 1] ? -INFINITY
                                                        : ivf_scan_product(query, c->centroids + l * c->d, c->d);
        for (int64_t l = 0; l < c->lists; l++) order[l] = (struct ivf_scan_ranked){of_list[l], l};
        qsort(order, (size_t)c->lists, sizeof *order, ivf_scan_rank);
        for (int64_t i = 0; i < nprobe && i < c->lists && order[i].score > -INFINITY; i++) {
            int64_t list = order[i].list;
            for (int64_t r = c->begin[list]; r < c->begin[list + 1]; r++) {
                int64_t id = c->id[r];
                if (holes && id >= c->hole[q][0] && id < c->hole[q][1]) continue;
                of_id[id] = ivf_scan_product(query, c->data + r * c->d, c->d) * scale;
                taken[id] = false;
            }
        }
        for (int64_t i = q * k; i < (q + 1) * k; i++) {
            int64_t best = -1;
            for (int64_t id = 0; id < c->rows; id++)
                if (!taken[id] && (best < 0 || of_id[id] > of_id[best])) best = id;
            CHECK_EQ(index[i], best);
            CHECK(score[i] == (best < 0 ? -INFINITY : of_id[best]));
            if (best >= 0) taken[best] = true;
        }
    }
    free(of_list), free(of_id), free(taken), free(order);
}
