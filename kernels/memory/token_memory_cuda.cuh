/* token_memory_cuda.cuh -- shared by the kernels of token memories: views of the memory, parts of a softmax, and the
 * gradient of an entry's score. */
#pragma once
#include "kernels/cuda/cuda.cuh"

#define MEMORY_LOG2E 1.44269504088896340736f

struct memory_view {
    const int32_t *slot_value, *slot, *entries, *past_value, *target; /* entries NULL: all rows of a slot */
    const float *slot_square, *past_square, *state_square, *tau;
    const int64_t *row_begin;
    int slot_rows, slot_step, blocks, k, block_rows, limit, d;
    int64_t n, length, first, ring;
};

/* Weights of some of a row's entries, relative to the nearest of them: e = exp((near - distance) / tau). */
struct memory_part {
    float near, sum, squares;      /* of e, e^2 */
    float target_near, target_sum; /* over entries whose value is the target */
};
static __device__ __forceinline__ memory_part memory_part_none() {
    return {INFINITY, 0.0f, 0.0f, INFINITY, 0.0f};
}
/* to_log2: log2(e) / tau. */
static __device__ __forceinline__ float memory_factor(float near, float of_part, float to_log2) {
    return of_part == near ? 1.0f : power2((near - of_part) * to_log2);
}
static __device__ __forceinline__ memory_part memory_join(const memory_part &a, const memory_part &b, float to_log2) {
    memory_part c;
    c.near = fminf(a.near, b.near), c.target_near = fminf(a.target_near, b.target_near);
    float fa = memory_factor(c.near, a.near, to_log2), fb = memory_factor(c.near, b.near, to_log2);
    c.sum = a.sum * fa + b.sum * fb;
    c.squares = a.squares * (fa * fa) + b.squares * (fb * fb);
    c.target_sum = a.target_sum * memory_factor(c.target_near, a.target_near, to_log2) +
                   b.target_sum * memory_factor(c.target_near, b.target_near, to_log2);
    return c;
}
/* Ignored entries have the distance +infinity. NaN does not change `near`; it reaches the sum. */
static __device__ __forceinline__ void memory_absorb(memory_part &p, float distance, bool hit, float to_log2) {
    if (distance < p.near) {
        float shrink = power2((distance - p.near) * to_log2);
        p.sum *= shrink, p.squares *= shrink * shrink, p.near = distance;
    }
    float e = distance == INFINITY ? 0.0f : power2((p.near - distance) * to_log2);
    if (isnan(distance)) e = distance;
    p.sum += e, p.squares += e * e;
    if (!hit || !(distance < INFINITY)) return;
    if (distance < p.target_near)
        p.target_sum *= power2((distance - p.target_near) * to_log2), p.target_near = distance;
    p.target_sum += power2((p.target_near - distance) * to_log2);
}

static __device__ __forceinline__ float memory_distance(float own, float square, float dot) {
    float x = own + square - 2.0f * dot;
    return x < 0.0f ? 0.0f : x; /* NaN stays */
}

/* The values of a row that backward needs. */
struct memory_row {
    float near, base, log2_p, all, of_p, to_log2; /* base = log2 of the largest weight */
    int32_t target;
};
static __device__ __forceinline__ memory_row memory_row_of(const memory_view &v, const token_memory_stats &s,
                                                           const float *dlog_p, const float *dlse, int64_t row) {
    memory_row r;
    float log_p = s.log_p[row];
    r.of_p = log_p == -INFINITY ? 0.0f : dlog_p[row];
    r.all = dlse[row] - r.of_p;
    r.near = s.nearest[row], r.base = log2f(s.largest[row]), r.log2_p = log_p * MEMORY_LOG2E;
    r.to_log2 = MEMORY_LOG2E / *v.tau;
    r.target = v.target[row];
    return r;
}
/* d loss / d z of an entry. */
static __device__ __forceinline__ float memory_gradient_of(const memory_row &r, float distance, int32_t value) {
    if (distance == INFINITY) return 0.0f;
    float exponent = fmaf(r.near - distance, r.to_log2, r.base), u = r.all * power2(exponent);
    if (value == r.target && r.of_p != 0.0f) u += r.of_p * power2(exponent - r.log2_p);
    return u;
}

/* The block that contains `row`, or -1. */
static __device__ __forceinline__ int memory_block_of(const memory_view &v, int64_t row) {
    if (v.k == 0 || v.blocks == 0 || row < v.row_begin[0] || row >= v.row_begin[v.blocks]) return -1;
    int low = 0, high = v.blocks;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (v.row_begin[middle] <= row) low = middle;
        else high = middle;
    }
    return low;
}
static __device__ __forceinline__ int64_t memory_slot_columns(const memory_view &v) {
    return (int64_t)v.k * v.slot_rows;
}
static __host__ __device__ __forceinline__ int64_t memory_columns(const memory_view &v) {
    return (int64_t)v.k * v.slot_rows + v.limit;
}

/* An entry as a row sees it: key < 0: none. */
struct memory_entry {
    int64_t key;
    int32_t value;
    bool past;
};
static __device__ __forceinline__ memory_entry memory_entry_at(const memory_view &v, int64_t row, int block,
                                                               int64_t column) {
    int64_t slots = memory_slot_columns(v);
    memory_entry e = {-1, -1, column >= slots};
    if (e.past) {
        int64_t p = v.first + row % v.length - 1 - (column - slots);
        if (p < 0) return e;
        e.key = row / v.length * v.ring + p % v.ring;
        e.value = v.past_value[e.key];
    } else {
        const int64_t i = (int64_t)block * v.k + column / v.slot_rows, in = column % v.slot_rows;
        int32_t slot = block < 0 ? -1 : v.slot[i];
        if (slot < 0 || (v.entries && in >= v.entries[i])) return e;
        e.key = (int64_t)slot * v.slot_step + in;
        e.value = v.slot_value[e.key];
    }
    if (e.value < 0) e.key = -1;
    return e;
}

/* States and keys, of one type. */
template <typename T> struct memory_sources {
    rows<const T> states, slots, past;
    bool vectors; /* keys are read eight numbers at a time */
    __device__ const T *key(const memory_entry &e) const { return e.past ? past[e.key] : slots[e.key]; }
};
static __device__ __forceinline__ float memory_square(const memory_view &v, const memory_entry &e) {
    return e.past ? v.past_square[e.key] : v.slot_square[e.key];
}

/* ---- from the arguments of an op ---- */

static inline memory_view memory_view_of(struct mat states, const struct token_memory *m, const int32_t *target) {
    const struct memory_slots &slots = m->slots;
    const struct memory_past &past = m->past;
    assert(slots.k >= 0 && past.limit >= 0 && states.rows < INT32_MAX);
    assert(slots.k == 0 || (slots.keys.cols == states.cols && slots.keys.type == states.type && slots.slot_rows >= 1));
    assert(past.limit == 0 || (past.keys.cols == states.cols && past.keys.type == states.type && past.length >= 1));
    assert(past.limit == 0 || (states.rows % past.length == 0 && (past.first + past.length <= past.ring ||
                                                                  past.limit + past.length <= past.ring)));
    assert(!slots.packed.code || (past.limit == 0 && slots.slot_step >= 1));
    memory_view v = {};
    v.slot_value = slots.value, v.slot = slots.slot, v.slot_square = slots.square, v.row_begin = slots.row_begin;
    v.slot_rows = slots.slot_rows, v.blocks = slots.blocks, v.k = slots.k, v.block_rows = slots.block_rows;
    v.slot_step = slots.packed.code ? slots.slot_step : slots.slot_rows;
    v.entries = slots.packed.code ? slots.entries : NULL;
    v.past_value = past.value, v.past_square = past.square;
    v.length = past.length, v.first = past.first, v.ring = past.ring, v.limit = past.limit;
    v.tau = m->tau, v.target = target, v.n = states.rows, v.d = (int)states.cols;
    return v;
}

template <typename T> static memory_sources<T> memory_sources_of(struct mat states, const struct token_memory *m) {
    bool slots = m->slots.k == 0 || vectors_fit(m->slots.keys), past = m->past.limit == 0 || vectors_fit(m->past.keys);
    return {{(const T *)states.data, states.stride},
            {(const T *)m->slots.keys.data, m->slots.keys.stride},
            {(const T *)m->past.keys.data, m->past.keys.stride},
            slots && past && vectors_fit(states)};
}
