/* ref_attend_backward_loops.h -- the loops of ref_attend_backward.h for one type: included once with double, once with
 * float. */
#include "tests/ref/ref_attend_backward.h"
#include <math.h>
#include <stdlib.h>

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define REF(name) JOIN(PREFIX, name)

static REAL dot(const float *a, const float *b, int64_t n) {
    REAL sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (REAL)a[i] * (REAL)b[i];
    return sum;
}

static REAL log_sum(const REAL *scores, int64_t count, bool null) {
    REAL top = null ? 0 : -INFINITY, sum;
    for (int64_t j = 0; j < count; j++) top = scores[j] > top ? scores[j] : top;
    sum = null ? (REAL)exp(-top) : 0;
    for (int64_t j = 0; j < count; j++) sum += (REAL)exp(scores[j] - top);
    return top + (REAL)log(sum);
}

/* `count` rows of k and v, `stride` apart (those of dk and dv too), and the null key, if the softmax has one. */
struct key_rows { const float *k, *v; int64_t stride, count; int dim; bool null; };

/* One query's softmax over the keys, its result times `weight`: adds to dq, dk, dv; overwrites scores. Returns dout .
 * (the result before the weight). */
static REAL row_backward(REAL *dq, REAL *dk, REAL *dv, REAL *scores, const float *dout, const float *q,
                         struct key_rows keys, REAL weight) {
    const float *k = keys.k, *v = keys.v;
    int64_t stride = keys.stride, count = keys.count;
    int dim = keys.dim;
    bool null = keys.null;
    REAL lse = log_sum(scores, count, null), delta = 0, scale = 1 / (REAL)sqrt(dim);
    for (int64_t j = 0; j < count; j++) {
        scores[j] = (REAL)exp(scores[j] - lse);
        delta += scores[j] * dot(dout, v + j * stride, dim);
    }
    for (int64_t j = 0; j < count; j++) {
        REAL slope = weight * scores[j] * (dot(dout, v + j * stride, dim) - delta) * scale;
        for (int t = 0; t < dim; t++) {
            dq[t] += slope * (REAL)k[j * stride + t];
            dk[j * stride + t] += slope * (REAL)q[t];
            dv[j * stride + t] += weight * scores[j] * (REAL)dout[t];
        }
    }
    return delta;
}

static int64_t window_scores(REAL *scores, const float *q, const float *k, int64_t i, int h, struct ref_attention s) {
    int64_t d = (int64_t)s.heads * s.dim, low = i > s.window ? i - s.window : 0;
    REAL slope = (REAL)pow(2.0, -8.0 * (h + 1) / s.heads);
    for (int64_t j = low; j <= i; j++)
        scores[j - low] =
            dot(q + i * d + h * s.dim, k + j * d + h * s.dim, s.dim) / (REAL)sqrt(s.dim) - slope * (REAL)(i - j);
    return low;
}

void REF(attention_lse)(REAL *lse, const float *q, const float *k, struct ref_attention s) {
    REAL *scores = malloc((size_t)(s.window + 1) * sizeof *scores);
    for (int64_t i = 0; i < s.n; i++)
        for (int h = 0; h < s.heads; h++) {
            int64_t low = window_scores(scores, q, k, i, h, s);
            lse[i * s.heads + h] = log_sum(scores, i - low + 1, false);
        }
    free(scores);
}

void REF(attention_backward)(REAL *dq, REAL *dk, REAL *dv, const float *dout, const float *q, const float *k,
                             const float *v, struct ref_attention s) {
    int64_t d = (int64_t)s.heads * s.dim;
    REAL *scores = malloc((size_t)(s.window + 1) * sizeof *scores);
    for (int64_t i = 0; i < s.n * d; i++) dq[i] = dk[i] = dv[i] = 0;
    for (int64_t i = 0; i < s.n; i++)
        for (int h = 0; h < s.heads; h++) {
            int64_t low = window_scores(scores, q, k, i, h, s), at = i * d + h * s.dim, from = low * d + h * s.dim;
            row_backward(dq + at, dk + from, dv + from, scores, dout + at, q + at,
                         (struct key_rows){k + from, v + from, d, i - low + 1, s.dim, false}, 1);
        }
    free(scores);
}

void REF(chunk_attention_backward)(REAL *dq, REAL *dk, REAL *dv, const float *dout, const float *q, const float *k,
                                   const float *v, struct ref_chunk_attention s) {
    int64_t d = (int64_t)s.heads * s.dim, S = s.positions;
    REAL *scores = malloc((size_t)S * sizeof *scores);
    for (int64_t i = 0; i < s.chunks * S * d; i++) dq[i] = dk[i] = dv[i] = 0;
    for (int64_t r = 0; r < s.chunks * S; r++)
        for (int h = 0; h < s.heads; h++) {
            int64_t at = r * d + h * s.dim, from = r / S * S * d + h * s.dim;
            for (int64_t j = 0; j < S; j++) scores[j] = dot(q + at, k + from + j * d, s.dim) / (REAL)sqrt(s.dim);
            row_backward(dq + at, dk + from, dv + from, scores, dout + at, q + at,
                         (struct key_rows){k + from, v + from, d, S, s.dim, false}, 1);
        }
    free(scores);
}

void REF(gca_backward)(REAL *dq, REAL *dk, REAL *dv, REAL *dweight, const float *dout, const float *q, const float *k,
                       const float *v, struct ref_gca s) {
    int64_t d = (int64_t)s.heads * s.dim;
    REAL *scores = malloc((size_t)s.live_rows * sizeof *scores);
    for (int64_t i = 0; i < s.n * d; i++) dq[i] = 0;
    for (int result = 0; result < s.blocks * s.k; result++) {
        dweight[result] = 0;
        for (int64_t r = s.row_begin[result / s.k]; r < s.row_begin[result / s.k + 1] && s.slot[result] >= 0; r++)
            for (int h = 0; h < s.heads; h++) {
                int64_t at = r * d + h * s.dim, from = (int64_t)s.slot[result] * s.slot_rows * d + h * s.dim;
                for (int64_t j = 0; j < s.live_rows; j++)
                    scores[j] = dot(q + at, k + from + j * d, s.dim) / (REAL)sqrt(s.dim);
                struct key_rows keys = {k + from, v + from, d, s.live_rows, s.dim, s.off_by_one};
                dweight[result] += row_backward(dq + at, dk + from, dv + from, scores, dout + at, q + at, keys,
                                                (REAL)s.weight[result]);
            }
    }
    free(scores);
}
