/* norm_cpu.c -- RMSNorm. A task is a range of rows: two passes over a row, which stays in the first-level cache. dw: a
 * task is a range of columns. Bound by memory. */
#include "kernels/pointwise/norm.h"
#include "kernels/pointwise/simd_internal.h"
#include <assert.h>
#include <math.h>

struct norm_task {
    struct mat y, rstd, x;
    const float *w;
    float eps;
};

static void norm_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct norm_task *t = context;
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

static void norm_forward(struct device *dev, struct mat y, struct mat rstd, struct mat x, struct mat w, float eps) {
    assert(y.rows == x.rows && y.cols == x.cols && w.rows == 1 && w.cols == x.cols && x.cols > 0);
    assert(!rstd.data || (rstd.rows == x.rows && rstd.cols == 1));
    struct norm_task t = {y, rstd, x, w.data, eps};
    threads_for(dev->threads, x.rows, 1 + 16384 / x.cols, norm_rows, &t);
}

struct norm_backward_task {
    struct mat dx, dy, x, rstd;
    float *dw;
    const float *w;
    bool accumulate;
};

/* A task has COLUMNS columns of dw and adds all rows in order, GROUP of them at a time, so that a sum over a hundred
 * thousand rows stays precise. */
enum { COLUMNS = 4 * LANES, GROUP = 256 };

static void norm_weight_group(const struct norm_backward_task *t, int64_t first, int64_t last, int64_t column,
                              int64_t cols) {
    vf sum[COLUMNS / LANES] = {0};
    for (int64_t row = first; row < last; row++) {
        const float *dy = mat_row(t->dy, row) + column, *x = mat_row(t->x, row) + column, rstd = *mat_row(t->rstd, row);
        int v = 0;
        for (; (v + 1) * LANES <= cols; v++)
            sum[v] += v_load(dy + v * LANES) * (v_load(x + v * LANES) * rstd);
        int64_t rest = cols - v * LANES;
        if (rest > 0) sum[v] += v_load_part(dy + v * LANES, rest) * (v_load_part(x + v * LANES, rest) * rstd);
    }
    for (int64_t i = 0; i < cols; i++)
        t->dw[column + i] += sum[i / LANES][i % LANES];
}

static void norm_weight_columns(void *context, int64_t begin, int64_t end, int worker) {
    const struct norm_backward_task *t = context;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        int64_t column = i * COLUMNS, cols = t->x.cols - column < COLUMNS ? t->x.cols - column : COLUMNS;
        for (int64_t row = 0; row < t->x.rows; row += GROUP)
            norm_weight_group(t, row, row + GROUP < t->x.rows ? row + GROUP : t->x.rows, column, cols);
    }
}

/* dx = rstd (dy w - xhat mean(dy w xhat)), xhat = x rstd. */
static void norm_input_row(const struct norm_backward_task *t, int64_t row) {
    const float *dy = mat_row(t->dy, row), *x = mat_row(t->x, row), *w = t->w;
    float *dx = mat_row(t->dx, row), rstd = *mat_row(t->rstd, row), rest = 0.0f;
    int64_t d = t->x.cols, i = 0;
    vf sum = {0};
    for (; i + LANES <= d; i += LANES)
        sum += v_load(dy + i) * v_load(w + i) * v_load(x + i);
    for (; i < d; i++)
        rest += dy[i] * w[i] * x[i];
    float slope = (v_sum(sum) + rest) / (float)d * rstd * rstd;
    for (i = 0; i + LANES <= d; i += LANES) {
        vf value = rstd * (v_load(dy + i) * v_load(w + i) - slope * v_load(x + i));
        v_store(dx + i, t->accumulate ? v_load(dx + i) + value : value);
    }
    for (; i < d; i++) {
        float value = rstd * (dy[i] * w[i] - slope * x[i]);
        dx[i] = t->accumulate ? dx[i] + value : value;
    }
}

static void norm_input_rows(void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    for (int64_t row = begin; row < end; row++)
        norm_input_row(context, row);
}

/* dw first: dx may be dy. */
static void norm_backward(struct device *dev, struct mat dx, struct mat dw, struct mat dy, struct mat x, struct mat w,
                          struct mat rstd, bool accumulate) {
    assert(dx.rows == x.rows && dy.rows == x.rows && rstd.rows == x.rows && rstd.cols == 1 && x.cols > 0);
    assert(dx.cols == x.cols && dy.cols == x.cols && dw.cols == x.cols && w.cols == x.cols && rstd.data);
    struct norm_backward_task t = {dx, dy, x, rstd, dw.data, w.data, accumulate};
    threads_for(dev->threads, (x.cols + COLUMNS - 1) / COLUMNS, 1, norm_weight_columns, &t);
    threads_for(dev->threads, x.rows, 1 + 16384 / x.cols, norm_input_rows, &t);
}

const struct norm_ops norm_cpu = {.forward = norm_forward, .backward = norm_backward};
