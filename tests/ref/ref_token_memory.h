/* ref_token_memory.h -- the oracle of kernels/memory/token_memory.h: every row against every entry, by the header's
 * equations. */
#pragma once
#include <stdint.h>

/* All arrays dense, float32; limit 0: no past, k 0: no slots. */
struct ref_token_memory {
    int64_t n, d;
    const float *states;
    const float *slot_keys, *past_keys;
    const int32_t *slot_value, *past_value, *target;
    const int64_t *row_begin;
    const int32_t *slot;
    int slot_rows, blocks, k;
    int64_t length, first, ring;
    int limit;
    float tau;
};
static inline int64_t ref_token_memory_columns(const struct ref_token_memory *m) {
    return (int64_t)m->k * m->slot_rows + m->limit;
}

/* w [n, columns] as token_memory_ops.weights. stats: log_p, lse, nearest, squares, largest, n numbers each. backward
 * adds to dstates, dslots, dpast and dtau; sizes 1: sums of the absolute terms instead, to which rounding errors are
 * proportional. */
#define REF_TOKEN_MEMORY_DECLARE(prefix, real) \
    void prefix##_token_memory(real *stats, real *w, const struct ref_token_memory *m); \
    void prefix##_token_memory_backward(real *dstates, real *dslots, real *dpast, real *dtau, const float *dlog_p, \
                                        const float *dlse, int sizes, const struct ref_token_memory *m); \
    real prefix##_token_memory_mix(real *dgate, real *dlog_lm, real *dlog_p, float log_lm, float log_p, float gate);

REF_TOKEN_MEMORY_DECLARE(ref, double)
REF_TOKEN_MEMORY_DECLARE(naive, float)

/* The key row of a column of a row, in slot_keys (*past 0) or past_keys (*past 1); -1: none, or its value is below
 * 0. */
static inline int64_t ref_token_memory_key(const struct ref_token_memory *m, int64_t row, int64_t column, int *past) {
    int64_t slots = (int64_t)m->k * m->slot_rows;
    *past = column >= slots;
    if (*past) {
        int64_t p = m->first + row % m->length - 1 - (column - slots), at = row / m->length * m->ring + p % m->ring;
        return p < 0 || m->past_value[at] < 0 ? -1 : at;
    }
    for (int64_t b = 0; b < m->blocks; b++) {
        if (row < m->row_begin[b] || row >= m->row_begin[b + 1]) continue;
        int64_t slot = m->slot[b * m->k + column / m->slot_rows], at = slot * m->slot_rows + column % m->slot_rows;
        return slot < 0 || m->slot_value[at] < 0 ? -1 : at;
    }
    return -1;
}
