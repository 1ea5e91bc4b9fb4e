/* bert_cpu.c -- LayerNorm with a summand before it, bias, GELU, and means over rows. A task is a range of rows (of
 * results for mean). LayerNorm takes three passes over a row, which stays in the first-level cache. Bound by memory,
 * GELU by arithmetic. */
#include "kernels/pointwise/bert.h"
#include "kernels/pointwise/simd_internal.h"
#include <assert.h>
#include <math.h>

struct bert_task {
    struct mat y, x, residual;
    const float *bias; /* NULL: none */
    struct bert_norm norm;
};

/* y = x + residual + bias; the sum of y. */
static float bert_sum_row(const struct bert_task *t, float *y, int64_t row) {
    const float *x = mat_row(t->x, row), *add = t->residual.data ? mat_row(t->residual, row) : NULL;
    int64_t d = t->x.cols, i = 0;
    float rest = 0.0f;
    vf sum = {0};
    for (; i + LANES <= d; i += LANES) {
        vf v = v_load(x + i);
        if (add) v += v_load(add + i);
        if (t->bias) v += v_load(t->bias + i);
        v_store(y + i, v);
        sum += v;
    }
    for (; i < d; i++) {
        y[i] = x[i] + (add ? add[i] : 0.0f) + (t->bias ? t->bias[i] : 0.0f);
        rest += y[i];
    }
    return v_sum(sum) + rest;
}

static void bert_norm_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct bert_task *t = context;
    const float *w = t->norm.w.data, *b = t->norm.b.data;
    int64_t d = t->x.cols, whole = d / LANES * LANES;
    (void)worker;
    for (int64_t row = begin; row < end; row++) {
        float *y = mat_row(t->y, row), mean = bert_sum_row(t, y, row) / (float)d, rest = 0.0f;
        vf squares = {0};
        for (int64_t i = 0; i < whole; i += LANES) {
            vf v = v_load(y + i) - mean;
            squares += v * v;
        }
        for (int64_t i = whole; i < d; i++)
            rest += (y[i] - mean) * (y[i] - mean);
        float scale = 1.0f / sqrtf((v_sum(squares) + rest) / (float)d + t->norm.eps);
        for (int64_t i = 0; i < whole; i += LANES)
            v_store(y + i, (v_load(y + i) - mean) * scale * v_load(w + i) + v_load(b + i));
        for (int64_t i = whole; i < d; i++)
            y[i] = (y[i] - mean) * scale * w[i] + b[i];
    }
}

static void bert_layer_norm(struct device *dev, struct mat y, struct mat x, struct mat residual, struct mat bias,
                            struct bert_norm norm) {
    assert(y.rows == x.rows && y.cols == x.cols && x.cols > 0 && norm.w.cols == x.cols && norm.b.cols == x.cols);
    assert(!residual.data || (residual.rows == x.rows && residual.cols == x.cols));
    assert(!bias.data || bias.cols == x.cols);
    struct bert_task t = {y, x, residual, bias.data, norm};
    threads_for(dev->threads, x.rows, 1 + 16384 / x.cols, bert_norm_rows, &t);
}

static void bert_bias_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct bert_task *t = context;
    (void)worker;
    for (int64_t row = begin; row < end; row++)
        (void)bert_sum_row(t, mat_row(t->y, row), row);
}

static void bert_add_bias(struct device *dev, struct mat y, struct mat x, struct mat bias) {
    assert(y.rows == x.rows && y.cols == x.cols && x.cols > 0 && bias.cols == x.cols && bias.data);
    struct bert_task t = {.y = y, .x = x, .bias = bias.data};
    threads_for(dev->threads, x.rows, 1 + 16384 / x.cols, bert_bias_rows, &t);
}

/* z Phi(z). With a = |z| / sqrt(2), erfc(a) is approximated within 1.5e-7 (Abramowitz and Stegun, 7.1.26). For negative
 * z the result is z erfc(a) / 2 directly: 1 + erf would lose its digits there. */
SIMD vf bert_gelu_lanes(vf z) {
    const float p = 0.3275911f, a1 = 0.254829592f, a2 = -0.284496736f, a3 = 1.421413741f, a4 = -1.453152027f,
                a5 = 1.061405429f;
    vf a = v_max(z, -z) * 0.70710678118654752f;
    vf t = 1.0f / (1.0f + p * a);
    vf half = 0.5f * ((((a5 * t + a4) * t + a3) * t + a2) * t + a1) * t * v_exp(-a * a);
    return z * v_select(z < 0.0f, half, 1.0f - half);
}

static void bert_gelu_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct bert_task *t = context;
    int64_t d = t->x.cols;
    (void)worker;
    for (int64_t row = begin; row < end; row++) {
        const float *x = mat_row(t->x, row);
        float *y = mat_row(t->y, row);
        int64_t i = 0;
        for (; i + LANES <= d; i += LANES)
            v_store(y + i, bert_gelu_lanes(v_load(x + i) + v_load(t->bias + i)));
        if (i < d)
            v_store_part(y + i, bert_gelu_lanes(v_load_part(x + i, d - i) + v_load_part(t->bias + i, d - i)), d - i);
    }
}

static void bert_gelu(struct device *dev, struct mat y, struct mat x, struct mat bias) {
    assert(y.rows == x.rows && y.cols == x.cols && x.cols > 0 && bias.cols == x.cols && bias.data);
    struct bert_task t = {.y = y, .x = x, .bias = bias.data};
    threads_for(dev->threads, x.rows, 1 + 4096 / x.cols, bert_gelu_rows, &t);
}

struct bert_mean_task {
    struct mat y, x;
    const int64_t *begin;
    bool unit;
};

static void bert_mean_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct bert_mean_task *t = context;
    int64_t d = t->x.cols;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        float *y = mat_row(t->y, i), count = (float)(t->begin[i + 1] - t->begin[i]);
        int64_t c = 0;
        for (; c + LANES <= d; c += LANES) {
            vf sum = {0};
            for (int64_t row = t->begin[i]; row < t->begin[i + 1]; row++)
                sum += v_load(mat_row(t->x, row) + c);
            v_store(y + c, sum / count);
        }
        for (; c < d; c++) {
            float sum = 0.0f;
            for (int64_t row = t->begin[i]; row < t->begin[i + 1]; row++)
                sum += mat_row(t->x, row)[c];
            y[c] = sum / count;
        }
        float square = t->unit ? v_dot(y, y, d) : 0.0f;
        for (c = 0; c < d && square > 0.0f; c++)
            y[c] /= sqrtf(square);
    }
}

static void bert_mean(struct device *dev, struct mat y, struct mat x, const int64_t *begin, bool unit) {
    assert(y.cols == x.cols && x.cols > 0 && y.type == DTYPE_F32);
    struct bert_mean_task t = {y, x, begin, unit};
    threads_for(dev->threads, y.rows, 1, bert_mean_rows, &t);
}

const struct bert_ops bert_cpu = {
    .layer_norm = bert_layer_norm, .add_bias = bert_add_bias, .gelu = bert_gelu, .mean = bert_mean};
