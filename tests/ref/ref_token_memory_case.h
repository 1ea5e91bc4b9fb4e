/* ref_token_memory_case.h -- random memories for the tests of both twins, with the results of the oracle and of the
 * naive loop: blocks of uneven size, rows outside of blocks, shared and missing slots, entries without a value, equal
 * keys. */
#pragma once
#include "base/rng.h"
#include "tests/ref/ref_token_memory.h"
#include "tests/test.h"

enum { CASE_WORDS = 5, CASE_STATS = 5 };

struct memory_shape {
    int64_t n, d;
    int slots, slot_rows, blocks, k;
    int64_t length, first, ring;
    int limit;
    float tau;
};
struct memory_case {
    struct ref_token_memory m;
    struct memory_shape shape;
    int64_t slot_keys, past_keys;        /* rows */
    float *states, *slot_key, *past_key, *dlog_p, *dlse, *gate, *log_lm;
    int32_t *slot_value, *past_value, *target, *slot;
    int64_t *row_begin;
    int block_rows;
    double *stats, *w, *dstates, *dslots, *dpast, dtau;
    float *naive_stats, *naive_w, *naive_dstates, *naive_dslots, *naive_dpast, naive_dtau;
};

static inline void *case_zeros(int64_t n, size_t size) { return calloc((size_t)n + 1, size); }
static inline float *case_normals(struct rng *rng, int64_t n, float (*round)(float)) {
    float *a = case_zeros(n, sizeof *a);
    for (int64_t i = 0; i < n; i++) a[i] = round(rng_normal(rng));
    return a;
}
static inline int32_t *case_words(struct rng *rng, int64_t n) {
    int32_t *a = case_zeros(n, sizeof *a);
    for (int64_t i = 0; i < n; i++) a[i] = (int32_t)rng_below(rng, CASE_WORDS + 1) - 1;
    return a;
}

/* `round`: to the storage type of states and keys. */
static inline struct memory_case memory_case_make(struct rng *rng, struct memory_shape s, float (*round)(float)) {
    struct memory_case c = {.shape = s, .slot_keys = (int64_t)s.slots * s.slot_rows};
    c.past_keys = s.limit ? s.n / s.length * s.ring : 0;
    c.states = case_normals(rng, s.n * s.d, round), c.slot_key = case_normals(rng, c.slot_keys * s.d, round);
    c.past_key = case_normals(rng, c.past_keys * s.d, round);
    c.slot_value = case_words(rng, c.slot_keys), c.past_value = case_words(rng, c.past_keys);
    c.target = case_words(rng, s.n), c.row_begin = case_zeros(s.blocks + 1, sizeof *c.row_begin);
    c.slot = case_zeros((int64_t)s.blocks * s.k, sizeof *c.slot);
    /* Blocks: from about row n/16 to 15n/16, unevenly spaced; there may be only one. */
    for (int b = 0; b <= s.blocks; b++) {
        int64_t even = s.blocks > 1 ? s.n / 16 + (s.n - s.n / 8) * b / s.blocks : s.n * b;
        int64_t shift = b > 0 && b < s.blocks ? (int64_t)rng_below(rng, 3) : 0;
        c.row_begin[b] = even + shift > s.n ? s.n : even + shift;
        if (b && c.row_begin[b] < c.row_begin[b - 1]) c.row_begin[b] = c.row_begin[b - 1];
        if (b && c.row_begin[b] - c.row_begin[b - 1] > c.block_rows)
            c.block_rows = (int)(c.row_begin[b] - c.row_begin[b - 1]);
    }
    for (int i = 0; i < s.blocks * s.k; i++) c.slot[i] = i % 7 == 3 ? -1 : (int32_t)rng_below(rng, (uint64_t)s.slots);
    for (int64_t r = 0; r < c.slot_keys && r < s.n; r += 5)
        memcpy(c.slot_key + r * s.d, c.states + r * s.d, (size_t)s.d * sizeof *c.states);       /* distance 0 */
    for (int64_t r = 3; r < c.past_keys; r += 4)
        memcpy(c.past_key + r * s.d, c.past_key + (r - 3) * s.d, (size_t)s.d * sizeof *c.past_key);
    c.dlog_p = case_zeros(s.n, 4), c.dlse = case_zeros(s.n, 4), c.gate = case_zeros(s.n, 4),
    c.log_lm = case_zeros(s.n, 4);
    for (int64_t r = 0; r < s.n; r++) {
        c.dlog_p[r] = rng_normal(rng), c.dlse[r] = r % 3 ? rng_normal(rng) : 0.0f;
        c.gate[r] = 2.0f * rng_normal(rng), c.log_lm[r] = -fabsf(3.0f * rng_normal(rng));
    }
    return c;
}

/* Call it after changes of the arrays, before the oracle's results are read. */
static inline void memory_case_solve(struct memory_case *c) {
    struct memory_shape s = c->shape;
    c->m = (struct ref_token_memory){s.n,           s.d,       c->states,    c->slot_key, c->past_key, c->slot_value,
                                     c->past_value, c->target, c->row_begin, c->slot,     s.slot_rows, s.blocks,
                                     s.k,           s.length,  s.first,      s.ring,      s.limit,     s.tau};
    int64_t columns = s.n * ref_token_memory_columns(&c->m);
    c->stats = case_zeros(CASE_STATS * s.n, 8), c->naive_stats = case_zeros(CASE_STATS * s.n, 4);
    c->w = case_zeros(columns, 8), c->naive_w = case_zeros(columns, 4);
    c->dstates = case_zeros(s.n * s.d, 8), c->naive_dstates = case_zeros(s.n * s.d, 4);
    c->dslots = case_zeros(c->slot_keys * s.d, 8), c->naive_dslots = case_zeros(c->slot_keys * s.d, 4);
    c->dpast = case_zeros(c->past_keys * s.d, 8), c->naive_dpast = case_zeros(c->past_keys * s.d, 4);
    ref_token_memory(c->stats, c->w, &c->m);
    naive_token_memory(c->naive_stats, c->naive_w, &c->m);
    ref_token_memory_backward(c->dstates, c->dslots, c->dpast, &c->dtau, c->dlog_p, c->dlse, 0, &c->m);
    naive_token_memory_backward(c->naive_dstates, c->naive_dslots, c->naive_dpast, &c->naive_dtau, c->dlog_p, c->dlse,
                                0, &c->m);
}

static inline void memory_case_free(struct memory_case *c) {
    free(c->states), free(c->slot_key), free(c->past_key), free(c->dlog_p), free(c->dlse), free(c->gate),
        free(c->log_lm);
    free(c->slot_value), free(c->past_value), free(c->target), free(c->slot), free(c->row_begin);
    free(c->stats), free(c->w), free(c->dstates), free(c->dslots), free(c->dpast);
    free(c->naive_stats), free(c->naive_w), free(c->naive_dstates), free(c->naive_dslots), free(c->naive_dpast);
}
