/* landmark_backward.c -- gradients of Landmark Attention on a CPU: a task is one head of one sequence, and computes its
 * tiles of queries and blocks of keys one after another, so sums have a fixed order. Scores are computed again.
 *
 * With W = exp(far - lse), Q the softmax inside a block, e = sum_j Q_j dout.v_j and delta = dout.o:
 *   d far = W (e - delta)      d in_j = W Q_j (dout.v_j - e)      dv_j += W Q_j dout
 * The own block's tokens are those of plain attention with the same lse and delta. */
#include "kernels/attention/attend_backward_internal.h"
#include "kernels/device/device_internal.h"
#include "kernels/landmark/landmark_internal.h"
#include "kernels/linear/blas_cpu.h"
#include <assert.h>
#include <limits.h>

struct landmark_gradients {
    struct device *dev;
    struct mat dq, dk, dv, dout, o, lse, q, k, v;
    int64_t length;
    struct landmark_shape shape;
};

/* One head of one sequence; rows of the views count from the sequence's first. */
struct landmark_back {
    struct attend_grad g;
    struct mat o, lse; /* this head's columns; lse [length, 1] */
    float delta[ATTEND_ROWS], slope;
    int block, window;
};

static void landmark_clear(struct mat m) {
    for (int64_t row = 0; row < m.rows; row++)
        memset(mat_row(m, row), 0, (size_t)m.cols * sizeof(float));
}

static void landmark_add(float *y, const float *x, float factor, int64_t n) {
    for (int64_t t = 0; t < n; t++)
        y[t] += factor * x[t];
}

/* Scores of one row become softmax times W; returns e. */
static float landmark_weights_row(float *p, const float *dp, const struct landmark_back *b, float scale, float far) {
    float top = -INFINITY, sum = 0.0f, e = 0.0f;
    for (int j = 0; j < b->block; j++) {
        p[j] = p[j] * scale - b->slope * (float)(b->block - j);
        top = p[j] > top ? p[j] : top;
    }
    for (int j = 0; j < b->block; j++)
        sum += p[j] = expf(p[j] - top);
    for (int j = 0; j < b->block; j++) {
        p[j] /= sum;
        e += p[j] * dp[j];
        p[j] *= far;
    }
    return e;
}

/* Queries query .. query + rows - 1 and the earlier block whose first key is `key`. */
static void landmark_far_backward(struct landmark_back *b, int64_t query, int rows, int64_t key) {
    struct attend_grad *g = &b->g;
    float e[ATTEND_ROWS], scale = 1.0f / sqrtf((float)g->q.cols);
    int64_t landmark = key + b->block, dim = g->q.cols;
    struct mat q = mat_rows(g->q, query, rows), dout = mat_rows(g->dout, query, rows);
    blas_cpu_product((struct blas_product){.y = mat_f32(g->p, rows, b->block),
                                           .a = q,
                                           .b = mat_rows(g->k, key, b->block),
                                           .b_transposed = true,
                                           .scale = 1.0f});
    blas_cpu_product((struct blas_product){.y = mat_f32(g->dp, rows, b->block),
                                           .a = dout,
                                           .b = mat_rows(g->v, key, b->block),
                                           .b_transposed = true,
                                           .scale = 1.0f});
    for (int r = 0; r < rows; r++) {
        float far =
            landmark_far(mat_row(q, r), mat_row(g->k, landmark), (int)dim, query + r - landmark, b->window, b->slope);
        float weight = expf(far - mat_row(b->lse, query + r)[0]);
        int64_t at = (int64_t)r * b->block;
        e[r] = landmark_weights_row(g->p + at, g->dp + at, b, scale, weight);
        float dfar = weight * (e[r] - b->delta[r]) * scale;
        landmark_add(mat_row(g->dq, query + r), mat_row(g->k, landmark), dfar, dim);
        landmark_add(mat_row(g->dk, landmark), mat_row(q, r), dfar, dim);
    }
    attend_grad_scores(g, rows, b->block, e, 1.0f);
    attend_grad_queries(g, query, rows, key, b->block);
    attend_grad_keys(g, query, rows, key, b->block, 1.0f);
}

static void landmark_own_backward(struct landmark_back *b, int64_t query, int rows, int64_t key) {
    int64_t n = query + rows - key;
    int keys = (int)(n < b->block ? n : b->block);
    struct attend_bias bias = {.distance = query - key, .window = INT_MAX, .slope = b->slope};
    attend_grad_weights(&b->g, query, rows, key, keys, mat_row(b->lse, query), b->lse.stride, &bias);
    attend_grad_scores(&b->g, rows, keys, b->delta, 1.0f);
    attend_grad_queries(&b->g, query, rows, key, keys);
    attend_grad_keys(&b->g, query, rows, key, keys, 1.0f);
}

static void landmark_sequence_backward(struct landmark_back *b, int64_t length) {
    const int size = b->block + 1;
    landmark_clear(b->g.dq), landmark_clear(b->g.dk), landmark_clear(b->g.dv);
    for (int64_t begin = 0; begin < length; begin += size)
        for (int64_t query = begin; query < begin + size; query += ATTEND_ROWS) {
            int rows = (int)(begin + size - query < ATTEND_ROWS ? begin + size - query : ATTEND_ROWS);
            for (int r = 0; r < rows; r++)
                b->delta[r] = v_dot(mat_row(b->o, query + r), mat_row(b->g.dout, query + r), b->o.cols);
            landmark_own_backward(b, query, rows, begin);
            for (int64_t key = 0; key < begin; key += size)
                landmark_far_backward(b, query, rows, key);
        }
}

static void landmark_gradients_body(void *context, int64_t begin, int64_t end, int worker) {
    const struct landmark_gradients *t = context;
    int64_t heads = t->shape.heads, dim = t->q.cols / heads;
    for (int64_t i = begin; i < end; i++) {
        int head = (int)(i % heads);
        int64_t column = head * dim, first = i / heads * t->length, n = t->length;
        float *scratch = device_scratch(t->dev, worker);
        struct landmark_back b = {.g = {.q = mat_cols(mat_rows(t->q, first, n), column, dim),
                                        .k = mat_cols(mat_rows(t->k, first, n), column, dim),
                                        .v = mat_cols(mat_rows(t->v, first, n), column, dim),
                                        .dout = mat_cols(mat_rows(t->dout, first, n), column, dim),
                                        .dq = mat_cols(mat_rows(t->dq, first, n), column, dim),
                                        .dk = mat_cols(mat_rows(t->dk, first, n), column, dim),
                                        .dv = mat_cols(mat_rows(t->dv, first, n), column, dim),
                                        .p = scratch,
                                        .dp = scratch + ATTEND_ROWS * ATTEND_KEYS},
                                  .o = mat_cols(mat_rows(t->o, first, n), column, dim),
                                  .lse = mat_cols(mat_rows(t->lse, first, n), head, 1),
                                  .slope = attention_alibi_slope(head, (int)heads),
                                  .block = t->shape.block,
                                  .window = t->shape.window};
        landmark_sequence_backward(&b, n);
    }
}

void landmark_attention_backward(struct device *dev, struct mat dq, struct mat dk, struct mat dv, struct mat dout,
                                 struct mat o, struct mat lse, const struct landmark_sequences *in) {
    struct mat q = in->q;
    assert(in->shape.heads > 0 && q.cols % in->shape.heads == 0 && in->length % (in->shape.block + 1) == 0);
    assert(in->shape.block <= LANDMARK_BLOCK_MAX && (int)LANDMARK_BLOCK_MAX <= (int)ATTEND_KEYS);
    assert(q.rows % in->length == 0 && lse.data && lse.rows == q.rows && lse.cols == in->shape.heads);
    assert(o.rows == q.rows && dout.rows == q.rows && dq.rows == q.rows && dk.rows == q.rows && dv.rows == q.rows);
    struct landmark_gradients t = {dev, dq, dk, dv, dout, o, lse, q, in->k, in->v, in->length, in->shape};
    threads_for(dev->threads, q.rows / in->length * in->shape.heads, 1, landmark_gradients_body, &t);
}
