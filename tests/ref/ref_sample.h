/* ref_sample.h -- the oracle of training's sampling (topk.h): which landmarks are allowed, the noise in double, and
 * whether a sample is right: in order, only allowed landmarks, no clearly better one missing. For the tests of both
 * twins. */
#pragma once
#include "kernels/search/topk.h"
#include "tests/test.h"
#include <math.h>

static inline uint64_t ref_mix(uint64_t x) {
    x ^= x >> 30, x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27, x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}
static inline double ref_gumbel(uint64_t seed, int64_t row, int64_t e) {
    uint64_t of_row = ref_mix(ref_mix(seed + 0x9e3779b97f4a7c15u) + (uint64_t)row * 0x9e3779b97f4a7c15u);
    uint64_t bits = ref_mix(of_row + (uint64_t)e * 0xd1342543de82ef95u) >> 41;
    return -log(-log(((double)bits + 0.5) / 8388608.0));
}

static inline bool ref_allowed(const struct topk_rows *t, int64_t r, int64_t e) {
    bool own = e >= t->own_begin[r] && e < t->own_end[r];
    if (own || !t->other_begin) return own;
    bool other = e >= t->other_begin[r] && e < t->other_end[r] && !(e >= t->own_begin[r] && e < t->sequence_end[r]);
    if (!other || !t->document_of || t->document_of[e][0] < 0) return other;
    for (int32_t document = t->document_of[e][0]; document <= t->document_of[e][1]; document++)
        if (document >= t->document_barred[r][0] && document <= t->document_barred[r][1]) return false;
    return true;
}

/* The request, and the oracle's scores [n, e]. */
struct sample_check {
    const double *scores;
    int64_t n, e;
    int k;
    const struct topk_rows *rows;
    bool gumbel;
    uint64_t seed;
    double tolerance;                    /* tolerance of a score; that of a key is 1e-5 larger */
};

/* `score` NULL: checks the indexes alone. */
static inline void check_sample(const int64_t *index, const int32_t *slot, const float *score, struct sample_check c) {
    const double *scores = c.scores, tolerance = c.tolerance;
    const struct topk_rows *rows = c.rows;
    int64_t n = c.n, e = c.e;
    int k = c.k;
    bool gumbel = c.gumbel;
    uint64_t seed = c.seed;
    double *key = malloc((size_t)(e + 1) * sizeof *key), key_tolerance = tolerance + (gumbel ? 1e-5 : 0.0);
    for (int64_t r = 0; r < n; r++, index += k) {
        int64_t wanted = 0;
        for (int64_t i = 0; i < e; i++) {
            bool may = ref_allowed(rows, r, i);
            key[i] = may ? scores[r * e + i] + (gumbel ? ref_gumbel(seed, r, i) : 0.0) : -INFINITY;
            wanted += may;
        }
        wanted = wanted < k ? wanted : k;
        for (int64_t i = 0; i < k; i++) {
            if (slot) CHECK_EQ(slot[r * k + i], index[i]);
            if (i >= wanted) CHECK_EQ(index[i], -1);
            if (i >= wanted && score) CHECK(score[r * k + i] == -INFINITY);
            if (i >= wanted) continue;
            CHECK(index[i] >= 0 && index[i] < e && ref_allowed(rows, r, index[i]));
            for (int64_t j = 0; j < i; j++) CHECK(index[j] != index[i]);
            if (score) CHECK(fabs((double)score[r * k + i] - scores[r * e + index[i]]) <= tolerance);
            if (i) CHECK(key[index[i - 1]] >= key[index[i]] - 2.0 * key_tolerance);
            if (i && !gumbel && score && score[r * k + i] == score[r * k + i - 1]) CHECK(index[i - 1] < index[i]);
        }
        for (int64_t i = 0; i < e && wanted == k; i++) {
            bool taken = false;
            for (int j = 0; j < k; j++) taken |= index[j] == i;
            CHECK(taken || key[i] <= key[index[k - 1]] + 2.0 * key_tolerance);
        }
    }
    free(key);
}

static inline void check_subsample(const int64_t *out, const int64_t *index, const float *score, int64_t n,
                                   int from, int k, uint64_t seed) {
    for (int64_t r = 0; r < n; r++, out += k, index += from, score += from) {
        double last = INFINITY;
        int live = 0, found = 0;
        for (int i = 0; i < from; i++) live += index[i] >= 0;
        for (int i = 0; i < k; i++) {
            double key = NAN;
            for (int j = 0; j < from; j++)
                if (out[i] >= 0 && index[j] == out[i]) key = (double)score[j] + ref_gumbel(seed, r, index[j]);
            CHECK(out[i] < 0 ? i >= live : key <= last + 2e-5);
            if (out[i] < 0) continue;
            last = key, found++;
        }
        CHECK_EQ(found, live < k ? live : k);
        for (int j = 0; j < from; j++) {
            bool taken = false;
            for (int i = 0; i < k; i++) taken |= out[i] == index[j];
            CHECK(taken || (double)score[j] + ref_gumbel(seed, r, index[j]) <= last + 2e-5);
        }
    }
}
