/* norm_cpu.c -- RMSNorm, a row at a time: two passes over a row that stays in the first-level cache. */
#include "kernels/norm.h"
#include "kernels/simd_internal.h"
#include <assert.h>
#include <math.h>

struct task {
    struct mat y, rstd, x;
    const float *w;
    float eps;
};

static void body(void *context, int64_t begin, int64_t end, int worker) {
    const struct task *t = context;
    (void)worker;
    for (int64_t row = begin; row < end; row++) {
        const float *x = mat_row(t->x, row);
        float *y = mat_row(t->y, row);
        int64_t d = t->x.cols, i = 0;
        float rstd = 1.0f / sqrtf(v_dot(x, x, d) / (float)d + t->eps);
        for (; i + LANES <= d; i += LANES)
            v_store(y + i, v_load(x + i) * rstd * v_load(t->w + i));
        for (; i < d; i++)
            y[i] = x[i] * rstd * t->w[i];
        if (t->rstd.data) *mat_row(t->rstd, row) = rstd;
    }
}

static void forward(struct device *dev, struct mat y, struct mat rstd, struct mat x, struct mat w, float eps) {
    assert(y.rows == x.rows && y.cols == x.cols && w.rows == 1 && w.cols == x.cols && x.cols > 0);
    assert(!rstd.data || (rstd.rows == x.rows && rstd.cols == 1));
    struct task t = {y, rstd, x, w.data, eps};
    threads_for(dev->threads, x.rows, 1 + 16384 / x.cols, body, &t);
}

const struct norm_ops norm_cpu = {.forward = forward};
