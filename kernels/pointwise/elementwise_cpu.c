/* elementwise_cpu.c -- a copy, add, SwiGLU and its gradient, rows into slots. Bound by memory. */
#include "base/half.h"
#include "kernels/pointwise/elementwise.h"
#include "kernels/pointwise/simd_internal.h"
#include <assert.h>
#include <string.h>

struct elementwise_task {
    struct mat y, a, b;
};

static void convert_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct elementwise_task *t = context;
    (void)worker;
    for (int64_t row = begin; row < end; row++)
        memmove(mat_row(t->y, row), mat_row(t->a, row), (size_t)t->y.cols * sizeof(float));
}

static void halve_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct elementwise_task *t = context;
    (void)worker;
    for (int64_t row = begin; row < end; row++)
        half_to_f16_row((uint16_t *)t->y.data + row * t->y.stride, mat_row(t->a, row), (size_t)t->y.cols);
}

static void round_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct elementwise_task *t = context;
    (void)worker;
    for (int64_t row = begin; row < end; row++)
        half_to_bf16_row((uint16_t *)t->y.data + row * t->y.stride, mat_row(t->a, row), (size_t)t->y.cols);
}

static void add_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct elementwise_task *t = context;
    (void)worker;
    for (int64_t row = begin; row < end; row++) {
        const float *a = mat_row(t->a, row), *b = mat_row(t->b, row);
        float *y = mat_row(t->y, row);
        int64_t i = 0;
        for (; i + LANES <= t->y.cols; i += LANES)
            v_store(y + i, v_load(a + i) + v_load(b + i));
        for (; i < t->y.cols; i++)
            y[i] = a[i] + b[i];
    }
}

SIMD vf swiglu_lanes(vf gate, vf up) {
    return gate / (1.0f + v_exp(-gate)) * up;
}

static void swiglu_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct elementwise_task *t = context;
    (void)worker;
    for (int64_t row = begin; row < end; row++) {
        const float *gate = mat_row(t->a, row), *up = mat_row(t->b, row);
        float *y = mat_row(t->y, row);
        int64_t i = 0, n = t->y.cols;
        for (; i + LANES <= n; i += LANES)
            v_store(y + i, swiglu_lanes(v_load(gate + i), v_load(up + i)));
        if (i < n) v_store_part(y + i, swiglu_lanes(v_load_part(gate + i, n - i), v_load_part(up + i, n - i)), n - i);
    }
}

struct swiglu_backward_task {
    struct mat dgate, dup, dy, gate, up;
};

/* d silu(g)/dg = s (1 + g (1 - s)) with s = sigmoid(g). Both inputs are read before either output is written. */
SIMD void swiglu_backward_lanes(vf *dgate, vf *dup, vf dy, vf gate, vf up) {
    vf s = 1.0f / (1.0f + v_exp(-gate));
    *dgate = dy * up * s * (1.0f + gate * (1.0f - s));
    *dup = dy * gate * s;
}

static void swiglu_backward_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct swiglu_backward_task *t = context;
    (void)worker;
    for (int64_t row = begin; row < end; row++) {
        const float *dy = mat_row(t->dy, row), *gate = mat_row(t->gate, row), *up = mat_row(t->up, row);
        float *dgate = mat_row(t->dgate, row), *dup = mat_row(t->dup, row);
        int64_t i = 0, n = t->dy.cols;
        vf g, u;
        for (; i + LANES <= n; i += LANES) {
            swiglu_backward_lanes(&g, &u, v_load(dy + i), v_load(gate + i), v_load(up + i));
            v_store(dgate + i, g);
            v_store(dup + i, u);
        }
        if (i == n) continue;
        swiglu_backward_lanes(&g, &u, v_load_part(dy + i, n - i), v_load_part(gate + i, n - i),
                              v_load_part(up + i, n - i));
        v_store_part(dgate + i, g, n - i);
        v_store_part(dup + i, u, n - i);
    }
}

static void elementwise_for_rows(struct device *dev, struct mat y, struct mat a, struct mat b, threads_body *rows) {
    assert(a.rows == y.rows && b.rows == y.rows && a.cols == y.cols && b.cols == y.cols && y.cols > 0);
    struct elementwise_task t = {y, a, b};
    threads_for(dev->threads, y.rows, 1 + 16384 / y.cols, rows, &t);
}

static void elementwise_convert(struct device *dev, struct mat y, struct mat x) {
    assert(x.type == DTYPE_F32 && (y.type == DTYPE_F32 || y.type == DTYPE_BF16 || y.type == DTYPE_F16));
    elementwise_for_rows(dev, y, x, x,
                         y.type == DTYPE_BF16  ? round_rows
                         : y.type == DTYPE_F16 ? halve_rows
                                               : convert_rows);
}
static void elementwise_add(struct device *dev, struct mat y, struct mat a, struct mat b) {
    elementwise_for_rows(dev, y, a, b, add_rows);
}
static void elementwise_swiglu(struct device *dev, struct mat y, struct mat gate, struct mat up) {
    elementwise_for_rows(dev, y, gate, up, swiglu_rows);
}

static void elementwise_swiglu_backward(struct device *dev, struct mat dgate, struct mat dup, struct mat dy,
                                        struct mat gate, struct mat up) {
    assert(gate.rows == dy.rows && up.rows == dy.rows && dgate.rows == dy.rows && dup.rows == dy.rows);
    assert(gate.cols == dy.cols && up.cols == dy.cols && dgate.cols == dy.cols && dup.cols == dy.cols && dy.cols > 0);
    struct swiglu_backward_task t = {dgate, dup, dy, gate, up};
    threads_for(dev->threads, dy.rows, 1 + 16384 / dy.cols, swiglu_backward_rows, &t);
}

struct slots_task {
    struct mat pool, x;
    struct elementwise_slots s;
};

static void write_slots_chunks(void *context, int64_t begin, int64_t end, int worker) {
    const struct slots_task *t = context;
    (void)worker;
    for (int64_t c = begin; c < end; c++) {
        int64_t slot = t->s.slot ? t->s.slot[c] : c;
        for (int64_t r = 0; r < t->s.slot_rows; r++) {
            float *to = mat_row(t->pool, slot * t->s.slot_rows + r);
            if (r < t->s.live)
                memcpy(to, mat_row(t->x, c * t->s.positions + r), (size_t)t->x.cols * sizeof *to);
            else
                memset(to, 0, (size_t)t->x.cols * sizeof *to);
        }
    }
}

static void elementwise_write_slots(struct device *dev, struct mat pool, struct mat x, struct elementwise_slots slots) {
    assert(pool.cols == x.cols && slots.chunks * slots.positions <= x.rows);
    assert(slots.live <= slots.positions && slots.live <= slots.slot_rows);
    struct slots_task t = {pool, x, slots};
    threads_for(dev->threads, slots.chunks, 1, write_slots_chunks, &t);
}

const struct elementwise_ops elementwise_cpu = {.convert = elementwise_convert,
                                                .add = elementwise_add,
                                                .swiglu = elementwise_swiglu,
                                                .swiglu_backward = elementwise_swiglu_backward,
                                                .write_slots = elementwise_write_slots};
