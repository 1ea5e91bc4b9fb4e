/* ref_hybrid.h -- a merge of small integers, whose products and sums are exact in any order: the right results are
 * known to the last bit, ties included. And the query of a text's last states in float64. */
#pragma once
#include "base/rng.h"
#include "kernels/lexical/hybrid.h"
#include "tests/test.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { HYBRID_CASE_WEIGHT = 4 };
struct hybrid_case {
    int64_t n, d, chunks, rows;          /* d: a power of 4 */
    int words, landmarks;
    float *queries, *data;
    int32_t *row_of;                     /* a permutation; a fifth of the chunks have no row */
    int64_t *chunk[2];                   /* of the words, of the landmarks */
    float *bm25[2];
};

/* Different chunks, below twice the number that have a row; some slots at the end are empty. */
static inline void hybrid_case_list(struct hybrid_case *c, struct rng *rng, int list, int n, int64_t q) {
    const int filled = n - (int)rng_below(rng, (uint64_t)(n / 4 + 1));
    for (int i = 0; i < n; i++) {
        int64_t *to = c->chunk[list] + q * n + i;
        bool again = true;
        while (again) {
            *to = (int64_t)rng_below(rng, (uint64_t)(2 * c->chunks));
            again = false;
            for (int j = 1; j <= i; j++) again = again || to[-j] == *to;
        }
    }
    for (int i = filled; i < n; i++) c->chunk[list][q * n + i] = -1;
}

static inline struct hybrid_case hybrid_case_make(struct rng *rng, int64_t n, int64_t d, int64_t chunks, int words,
                                                  int landmarks) {
    struct hybrid_case c = {.n = n, .d = d, .chunks = chunks, .rows = chunks, .words = words, .landmarks = landmarks};
    float *of_chunk = malloc((size_t)(2 * chunks) * sizeof *of_chunk);
    c.queries = malloc((size_t)(n * d) * sizeof(float)), c.data = malloc((size_t)(chunks * d) * sizeof(float));
    c.row_of = malloc((size_t)chunks * sizeof *c.row_of);
    for (int64_t i = 0; i < n * d; i++) c.queries[i] = (float)((int64_t)rng_below(rng, 5) - 2);
    for (int64_t i = 0; i < chunks * d; i++) c.data[i] = (float)((int64_t)rng_below(rng, 5) - 2);
    for (int64_t i = 0; i < chunks; i++) c.row_of[i] = (int32_t)(i * 7 % 5 == 2 ? -1 : chunks - 1 - i);
    for (int list = 0; list < 2; list++) {
        const int of = list ? landmarks : words;
        c.chunk[list] = malloc((size_t)(n * of + 1) * sizeof(int64_t));
        c.bm25[list] = malloc((size_t)(n * of + 1) * sizeof(float));
        for (int64_t q = 0; q < n; q++) {
            for (int64_t i = 0; i < 2 * chunks; i++) of_chunk[i] = (float)rng_below(rng, 9) / 2; /* many ties */
            hybrid_case_list(&c, rng, list, of, q);
            for (int i = 0; i < of; i++) {
                const int64_t chunk = c.chunk[list][q * of + i];
                c.bm25[list][q * of + i] = chunk >= 0 ? of_chunk[chunk] : -INFINITY;
            }
        }
    }
    for (int64_t q = 0; q < n; q++) /* a chunk of both lists has one score */
        for (int i = 0; i < landmarks; i++)
            for (int j = 0; j < words; j++)
                if (c.chunk[0][q * words + j] == c.chunk[1][q * landmarks + i])
                    c.bm25[1][q * landmarks + i] = c.bm25[0][q * words + j];
    free(of_chunk);
    return c;
}
static inline void hybrid_case_free(struct hybrid_case *c) {
    free(c->queries), free(c->data), free(c->row_of);
    for (int list = 0; list < 2; list++) free(c->chunk[list]), free(c->bm25[list]);
}

struct hybrid_ranked { double sum, product; float bm25; int64_t chunk; };
static inline int hybrid_rank(const void *a, const void *b) {
    const struct hybrid_ranked *x = a, *y = b;
    if (x->sum != y->sum) return x->sum > y->sum ? -1 : 1;
    return x->chunk < y->chunk ? -1 : x->chunk > y->chunk;
}

/* Checks that index, score, products [n * k] are what the header promises. mapped: row_of was given. */
static inline void hybrid_case_check(const struct hybrid_case *c, const int64_t *index, const float *score,
                                     const float *products, bool mapped, int k) {
    struct hybrid_ranked *all = malloc((size_t)(c->words + c->landmarks) * sizeof *all);
    for (int64_t q = 0; q < c->n; q++) {
        int n = 0;
        for (int i = 0; i < c->words + c->landmarks; i++) {
            const int list = i >= c->words, of = list ? c->landmarks : c->words, at = list ? i - c->words : i;
            const int64_t chunk = c->chunk[list][q * of + at];
            double product = 0;
            bool seen = chunk < 0;
            for (int j = 0; j < n; j++) seen = seen || all[j].chunk == chunk;
            if (seen) continue;
            const int64_t row = chunk >= c->chunks ? -1 : mapped ? c->row_of[chunk] : chunk;
            for (int64_t j = 0; j < c->d && row >= 0; j++)
                product += (double)c->queries[q * c->d + j] * (double)c->data[row * c->d + j];
            const float bm25 = c->bm25[list][q * of + at];
            const double score_of = row < 0 ? -INFINITY : product / sqrt((double)c->d);
            all[n++] = (struct hybrid_ranked){(double)bm25 + HYBRID_CASE_WEIGHT * score_of, score_of, bm25, chunk};
        }
        qsort(all, (size_t)n, sizeof *all, hybrid_rank);
        for (int i = 0; i < k; i++) {
            CHECK_EQ(index[q * k + i], i < n ? all[i].chunk : -1);
            CHECK(score[q * k + i] == (i < n ? all[i].bm25 : -INFINITY));
            CHECK((double)products[q * k + i] == (i < n ? all[i].product : -INFINITY));
        }
    }
    free(all);
}

/* The query of rows first .. first+n-1 of a ring. */
static inline void hybrid_query_ref(double *out, const float *ring, int64_t rows, int64_t d, int64_t first, int64_t n,
                                    const double *centre) {
    double square = 0;
    for (int64_t j = 0; j < d; j++) {
        out[j] = 0;
        for (int64_t i = 0; i < n; i++) out[j] += (double)ring[(first + i) % rows * d + j] / (double)n;
        if (n > 0) out[j] -= centre[j];
        square += out[j] * out[j];
    }
    for (int64_t j = 0; j < d && square > 0; j++) out[j] /= sqrt(square);
}
