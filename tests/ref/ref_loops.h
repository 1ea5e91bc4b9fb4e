/* ref_loops.h -- the loops of ref.h for one type: included once with double, once with float. */
#include "tests/ref/ref.h"
#include <math.h>
#include <stdlib.h>

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define REF(name) JOIN(PREFIX, name)

void REF(matmul)(REAL *y, const float *x, const float *w, int64_t n, int64_t out, int64_t in, const float *add) {
    for (int64_t r = 0; r < n; r++)
        for (int64_t o = 0; o < out; o++) {
            REAL sum = 0;
            for (int64_t i = 0; i < in; i++) sum += (REAL)x[r * in + i] * (REAL)w[o * in + i];
            y[r * out + o] = sum + (add ? (REAL)add[r * out + o] : 0);
        }
}

void REF(norm)(REAL *y, REAL *rstd, const float *x, const float *w, int64_t n, int64_t d, float eps) {
    for (int64_t r = 0; r < n; r++) {
        REAL sum = 0;
        for (int64_t i = 0; i < d; i++) sum += (REAL)x[r * d + i] * (REAL)x[r * d + i];
        rstd[r] = (REAL)(1 / sqrt(sum / (REAL)d + (REAL)eps));
        for (int64_t i = 0; i < d; i++) y[r * d + i] = (REAL)x[r * d + i] * rstd[r] * (REAL)w[i];
    }
}

/* The angle is taken in double for both: its error would be the table's, not the op's. */
void REF(rope)(REAL *y, const float *x, int64_t n, int heads, int dim, int period, float theta) {
    for (int64_t r = 0; r < n; r++)
        for (int h = 0; h < heads; h++)
            for (int t = 0; t < dim / 2; t++) {
                double angle = (double)(r % period) * pow((double)theta, -2.0 * t / dim);
                int64_t at = (r * heads + h) * dim + t;
                REAL a = (REAL)x[at], b = (REAL)x[at + dim / 2], c = (REAL)cos(angle), s = (REAL)sin(angle);
                y[at] = a * c - b * s;
                y[at + dim / 2] = b * c + a * s;
            }
}

/* o = softmax(scores) values over `count` keys; null: one more key of score 0, value 0. Returns log sum exp. */
static REAL softmax_row(REAL *o, const REAL *scores, const float *values, int64_t stride, int64_t count, int dim, bool null) {
    REAL top = null ? 0 : -INFINITY, sum;
    for (int64_t j = 0; j < count; j++) top = scores[j] > top ? scores[j] : top;
    sum = null ? (REAL)exp(-top) : 0;
    for (int t = 0; t < dim; t++) o[t] = 0;
    for (int64_t j = 0; j < count; j++) {
        REAL weight = (REAL)exp(scores[j] - top);
        sum += weight;
        for (int t = 0; t < dim; t++) o[t] += weight * (REAL)values[j * stride + t];
    }
    for (int t = 0; t < dim; t++) o[t] /= sum;
    return top + (REAL)log(sum);
}

static REAL dot(const float *a, const float *b, int64_t n) {
    REAL sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (REAL)a[i] * (REAL)b[i];
    return sum;
}

/* k, v: [first + n, heads*dim], row p is position p. */
void REF(attention)(REAL *o, const float *q, const float *k, const float *v, struct ref_attention s) {
    int64_t d = (int64_t)s.heads * s.dim;
    REAL *scores = malloc((size_t)(s.window + 1) * sizeof *scores);
    for (int64_t r = 0; r < s.n; r++)
        for (int h = 0; h < s.heads; h++) {
            int64_t i = s.first + r, low = i > s.window ? i - s.window : 0;
            REAL slope = (REAL)pow(2.0, -8.0 * (h + 1) / s.heads);
            for (int64_t j = low; j <= i; j++)
                scores[j - low] = dot(q + r * d + h * s.dim, k + j * d + h * s.dim, s.dim) / (REAL)sqrt(s.dim) - slope * (REAL)(i - j);
            softmax_row(o + r * d + h * s.dim, scores, v + low * d + h * s.dim, d, i - low + 1, s.dim, false);
        }
    free(scores);
}

void REF(chunk_attention)(REAL *o, const float *q, const float *k, const float *v, struct ref_chunk_attention s) {
    int64_t d = (int64_t)s.heads * s.dim, S = s.positions;
    REAL *scores = malloc((size_t)S * sizeof *scores);
    for (int64_t r = 0; r < s.chunks * S; r++)
        for (int h = 0; h < s.heads; h++) {
            int64_t begin = r / S * S * d + h * s.dim;
            for (int64_t j = 0; j < S; j++) scores[j] = dot(q + r * d + h * s.dim, k + begin + j * d, s.dim) / (REAL)sqrt(s.dim);
            softmax_row(o + r * d + h * s.dim, scores, v + begin, d, S, s.dim, false);
        }
    free(scores);
}

/* part [k*n, heads*dim] and lse [k*n, heads] are filled for all rows; o combines them. */
void REF(gca)(REAL *o, REAL *part, REAL *lse, const float *q, const float *k, const float *v, struct ref_gca s) {
    int64_t d = (int64_t)s.heads * s.dim;
    REAL *scores = malloc((size_t)s.live_rows * sizeof *scores);
    for (int64_t i = 0; i < s.n * d; i++) o[i] = 0;
    for (int64_t i = 0; i < s.k * s.n * d; i++) part[i] = 0;
    for (int64_t i = 0; i < s.k * s.n * s.heads; i++) lse[i] = -INFINITY;
    for (int b = 0; b < s.blocks; b++)
        for (int64_t r = s.row_begin[b]; r < s.row_begin[b + 1]; r++)
            for (int h = 0; h < s.heads; h++) {
                REAL top = -INFINITY, sum = 0;
                for (int i = 0; i < s.k; i++) {
                    int32_t slot = s.slot[b * s.k + i];
                    if (slot < 0) continue;
                    int64_t row = i * s.n + r, begin = (int64_t)slot * s.slot_rows * d + h * s.dim;
                    for (int64_t j = 0; j < s.live_rows; j++) scores[j] = dot(q + r * d + h * s.dim, k + begin + j * d, s.dim) / (REAL)sqrt(s.dim);
                    lse[row * s.heads + h] = softmax_row(part + row * d + h * s.dim, scores, v + begin, d, s.live_rows, s.dim, s.off_by_one);
                    top = lse[row * s.heads + h] > top ? lse[row * s.heads + h] : top;
                }
                for (int i = 0; i < s.k; i++) sum += s.slot[b * s.k + i] < 0 ? 0 : (REAL)exp(lse[(i * s.n + r) * s.heads + h] - top);
                for (int i = 0; i < s.k; i++) {
                    if (s.slot[b * s.k + i] < 0) continue;
                    REAL weight = s.weight ? (REAL)s.weight[b * s.k + i] : (REAL)exp(lse[(i * s.n + r) * s.heads + h] - top) / sum;
                    for (int t = 0; t < s.dim; t++) o[r * d + h * s.dim + t] += weight * part[(i * s.n + r) * d + h * s.dim + t];
                }
            }
    free(scores);
}

void REF(add)(REAL *y, const float *a, const float *b, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = (REAL)a[i] + (REAL)b[i];
}

void REF(swiglu)(REAL *y, const float *gate, const float *up, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = (REAL)gate[i] / (1 + (REAL)exp(-(REAL)gate[i])) * (REAL)up[i];
}

void REF(loss)(REAL *nll, const float *x, const float *table, const int32_t *targets, int64_t n, int64_t d, int64_t words) {
    REAL *logits = malloc((size_t)words * sizeof *logits);
    for (int64_t r = 0; r < n; r++) {
        REAL top = -INFINITY, sum = 0;
        for (int64_t w = 0; w < words; w++) logits[w] = dot(x + r * d, table + w * d, d);
        for (int64_t w = 0; w < words; w++) top = logits[w] > top ? logits[w] : top;
        for (int64_t w = 0; w < words; w++) sum += (REAL)exp(logits[w] - top);
        nll[r] = targets[r] < 0 ? 0 : top + (REAL)log(sum) - logits[targets[r]];
    }
    free(logits);
}

void REF(scores)(REAL *s, const float *q, const float *l, int64_t n, int64_t e, int64_t d) {
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < e; i++) s[r * e + i] = dot(q + r * d, l + i * d, d) / (REAL)sqrt((REAL)d);
}
