/* elementwise_cpu.c -- add and SwiGLU. Bound by memory. */
#include "kernels/elementwise.h"
#include "kernels/simd_internal.h"
#include <assert.h>

struct task {
    struct mat y, a, b;
};

static void add_body(void *context, int64_t begin, int64_t end, int worker) {
    const struct task *t = context;
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

static void swiglu_body(void *context, int64_t begin, int64_t end, int worker) {
    const struct task *t = context;
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

static void run(struct device *dev, struct mat y, struct mat a, struct mat b, threads_body *body) {
    assert(a.rows == y.rows && b.rows == y.rows && a.cols == y.cols && b.cols == y.cols && y.cols > 0);
    struct task t = {y, a, b};
    threads_for(dev->threads, y.rows, 1 + 16384 / y.cols, body, &t);
}

static void add(struct device *dev, struct mat y, struct mat a, struct mat b) {
    run(dev, y, a, b, add_body);
}
static void swiglu(struct device *dev, struct mat y, struct mat gate, struct mat up) {
    run(dev, y, gate, up, swiglu_body);
}

const struct elementwise_ops elementwise_cpu = {.add = add, .swiglu = swiglu};
