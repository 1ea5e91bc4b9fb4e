/* attend_backward.c -- one tile of queries against one tile of keys: see attend_backward_internal.h.
 *
 * Scores are computed again from q and k, and their softmax from the log sum exp that forward stored, so no matrix of
 * queries by keys is kept. A task computes all tiles of its keys one after another: sums have a fixed order. */
#include "kernels/attention/attend_backward_internal.h"
#include "kernels/attention/attention.h"
#include "kernels/device/device_internal.h"
#include "kernels/linear/blas_cpu.h"
#include "kernels/pointwise/simd_internal.h"
#include <math.h>

/* y = a b^T, and y += factor a^T b. */
static void attend_multiply(struct mat y, struct mat a, struct mat b) {
    blas_cpu_product((struct blas_product){.y = y, .a = a, .b = b, .b_transposed = true, .scale = 1.0f});
}
static void attend_add_transposed(struct mat y, struct mat a, struct mat b, float factor) {
    blas_cpu_product(
        (struct blas_product){.y = y, .a = a, .b = b, .a_transposed = true, .scale = factor, .keep = 1.0f});
}

static void attend_weight_row(float *score, int keys, float scale, float lse) {
    int j = 0;
    for (; j + LANES <= keys; j += LANES)
        v_store(score + j, v_exp(v_load(score + j) * scale - lse));
    if (j < keys) v_store_part(score + j, v_exp(v_load_part(score + j, keys - j) * scale - lse), keys - j);
}

static void attend_biased_row(float *score, int keys, float scale, float lse, const struct attend_bias *bias,
                              int64_t distance) {
    for (int j = 0; j < keys; j++, distance--)
        score[j] =
            distance < 0 || distance > bias->window ? -INFINITY : score[j] * scale - bias->slope * (float)distance;
    attend_weight_row(score, keys, 1.0f, lse);
}

void attend_grad_weights(const struct attend_grad *g, int64_t query, int rows, int64_t key, int keys, const float *lse,
                         int64_t lse_stride, const struct attend_bias *bias) {
    float scale = 1.0f / sqrtf((float)g->q.cols);
    attend_multiply(mat_f32(g->p, rows, keys), mat_rows(g->q, query, rows), mat_rows(g->k, key, keys));
    attend_multiply(mat_f32(g->dp, rows, keys), mat_rows(g->dout, query, rows), mat_rows(g->v, key, keys));
    for (int r = 0; r < rows; r++) {
        float *score = g->p + (int64_t)r * keys, own = lse[r * lse_stride];
        if (bias)
            attend_biased_row(score, keys, scale, own, bias, bias->distance + r);
        else
            attend_weight_row(score, keys, scale, own);
    }
}

void attend_grad_scores(const struct attend_grad *g, int rows, int keys, const float *delta, float factor) {
    float scale = factor / sqrtf((float)g->q.cols);
    for (int r = 0; r < rows; r++) {
        float *dp = g->dp + (int64_t)r * keys, *p = g->p + (int64_t)r * keys;
        int j = 0;
        for (; j + LANES <= keys; j += LANES)
            v_store(dp + j, v_load(p + j) * (v_load(dp + j) - delta[r]) * scale);
        for (; j < keys; j++)
            dp[j] = p[j] * (dp[j] - delta[r]) * scale;
    }
}

void attend_grad_queries(const struct attend_grad *g, int64_t query, int rows, int64_t key, int keys) {
    blas_cpu_product((struct blas_product){.y = mat_rows(g->dq, query, rows),
                                           .a = mat_f32(g->dp, rows, keys),
                                           .b = mat_rows(g->k, key, keys),
                                           .scale = 1.0f,
                                           .keep = 1.0f});
}

void attend_grad_keys(const struct attend_grad *g, int64_t query, int rows, int64_t key, int keys, float factor) {
    attend_add_transposed(mat_rows(g->dk, key, keys), mat_f32(g->dp, rows, keys), mat_rows(g->q, query, rows), 1.0f);
    attend_add_transposed(mat_rows(g->dv, key, keys), mat_f32(g->p, rows, keys), mat_rows(g->dout, query, rows),
                          factor);
}

static void attend_clear_rows(struct mat m, int64_t first, int64_t n) {
    for (int64_t row = first; row < first + n; row++)
        memset(mat_row(m, row), 0, (size_t)m.cols * sizeof(float));
}

/* Queries first .. first+n-1 over the keys of the same rows, in tiles. */
static void attend_grad_rows(struct attend_grad *g, void *scratch, struct mat out, const float *lse, int64_t lse_stride,
                             int64_t first, int64_t n, const struct attend_bias *bias) {
    float delta[ATTEND_ROWS];
    g->p = scratch;
    g->dp = g->p + ATTEND_ROWS * ATTEND_KEYS;
    attend_clear_rows(g->dq, first, n);
    attend_clear_rows(g->dk, first, n);
    attend_clear_rows(g->dv, first, n);
    for (int64_t row = 0; row < n; row += ATTEND_ROWS) {
        int rows = (int)(n - row < ATTEND_ROWS ? n - row : ATTEND_ROWS);
        for (int r = 0; r < rows; r++)
            delta[r] = v_dot(mat_row(out, first + row + r), mat_row(g->dout, first + row + r), out.cols);
        int64_t low = bias && row > bias->window ? row - bias->window : 0, high = bias ? row + rows : n;
        for (int64_t key = low / ATTEND_KEYS * ATTEND_KEYS; key < high; key += ATTEND_KEYS) {
            int keys = (int)(high - key < ATTEND_KEYS ? high - key : ATTEND_KEYS);
            struct attend_bias at_key = bias ? *bias : (struct attend_bias){0};
            at_key.distance = row - key;
            attend_grad_weights(g, first + row, rows, first + key, keys, lse + (first + row) * lse_stride, lse_stride,
                                bias ? &at_key : NULL);
            attend_grad_scores(g, rows, keys, delta, 1.0f);
            attend_grad_queries(g, first + row, rows, first + key, keys);
            attend_grad_keys(g, first + row, rows, first + key, keys, 1.0f);
        }
    }
}

/* A task is one head of one sequence. */
static void attend_gradients_body(void *context, int64_t begin, int64_t end, int worker) {
    const struct attend_gradients *t = context;
    int64_t dim = t->q.cols / t->heads;
    for (int64_t i = begin; i < end; i++) {
        int head = (int)(i % t->heads);
        int64_t column = head * dim;
        struct attend_bias bias = {.window = t->window, .slope = attention_alibi_slope(head, t->heads)};
        struct attend_grad g = {.q = mat_cols(t->q, column, dim),
                                .k = mat_cols(t->k, column, dim),
                                .v = mat_cols(t->v, column, dim),
                                .dout = mat_cols(t->dout, column, dim),
                                .dq = mat_cols(t->dq, column, dim),
                                .dk = mat_cols(t->dk, column, dim),
                                .dv = mat_cols(t->dv, column, dim)};
        attend_grad_rows(&g, device_scratch(t->dev, worker), mat_cols(t->out, column, dim), mat_row(t->lse, 0) + head,
                         t->lse.stride, i / t->heads * t->length, t->length, t->window < 0 ? NULL : &bias);
    }
}

void attend_gradients(const struct attend_gradients *all) {
    threads_for(all->dev->threads, all->q.rows / all->length * all->heads, 1, attend_gradients_body, (void *)all);
}
