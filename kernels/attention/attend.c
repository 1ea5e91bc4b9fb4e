/* attend.c -- one tile of queries against runs of keys; attend_internal.h has the layout and its reason.
 *
 * The two products run in blocks of 4 keys (or 4 output columns) by up to AT_ONCE vectors of queries: 16 accumulators
 * in registers, or 8 if the target has 16 registers. Each scalar of K or V is broadcast from memory. Bound by
 * arithmetic. */
#include "base/half.h"
#include "kernels/attention/attend_internal.h"
#include "kernels/pointwise/simd_internal.h"
#include <assert.h>
#include <math.h>

enum {
    BLOCK = 4,
    PREFETCH_KEYS = 6,
    PREFETCH_WINDOW = 16,
    AT_ONCE = LANES == 16 ? 4 : 2,
    AT_ONCE_ODD = AT_ONCE > 3 ? 3 * LANES : 0, /* rows of three vectors, which one block holds */
    VECTORS_MAX = ATTEND_ROWS / LANES
};

/* ---- tiles of LANES rows become columns ---- */

#if defined(__AVX512F__)
SIMD vf low_halves(vf a, vf b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
SIMD vf high_halves(vf a, vf b) {
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
#elif defined(__AVX__)
SIMD vf low_halves(vf a, vf b) {
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
SIMD vf high_halves(vf a, vf b) {
    return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
#else
SIMD vf low_halves(vf a, vf b) {
    return __builtin_shufflevector(a, b, 0, 4, 1, 5);
}
SIMD vf high_halves(vf a, vf b) {
    return __builtin_shufflevector(a, b, 2, 6, 3, 7);
}
#endif

/* Each round interleaves row i with row i + LANES / 2; log2(LANES) rounds exchange rows and columns. */
SIMD void transpose_tile(vf row[LANES]) {
    for (int round = 1; round < LANES; round *= 2) {
        vf next[LANES];
        for (int i = 0; i < LANES / 2; i++) {
            next[2 * i] = low_halves(row[i], row[i + LANES / 2]);
            next[2 * i + 1] = high_halves(row[i], row[i + LANES / 2]);
        }
        memcpy(row, next, sizeof next);
    }
}

/* columns[t][r] = q[r][t] for all rows, and 0 up to the width. */
static void attend_load_columns(float *columns, const struct attend *a) {
    for (int r = 0; r < a->width; r += LANES) {
        const int rows = a->rows - r < LANES ? a->rows - r : LANES;
        const float *q = a->q + r * a->q_stride;
        int t = 0;
        for (; t + LANES <= a->dim; t += LANES) {
            vf tile[LANES];
            for (int i = 0; i < LANES; i++)
                tile[i] = i < rows ? v_load(q + i * a->q_stride + t) : (vf){0};
            transpose_tile(tile);
            for (int i = 0; i < LANES; i++)
                v_store(columns + (int64_t)(t + i) * a->width + r, tile[i]);
        }
        for (; t < a->dim; t++)
            for (int i = 0; i < LANES; i++)
                columns[(int64_t)t * a->width + r + i] = i < rows ? q[i * a->q_stride + t] : 0.0f;
    }
}

static void attend_store_columns(float *o, int64_t stride, const struct attend *a) {
    for (int r = 0; r < a->rows; r += LANES) {
        const int rows = a->rows - r < LANES ? a->rows - r : LANES;
        int t = 0;
        for (; t + LANES <= a->dim; t += LANES) {
            vf tile[LANES];
            for (int i = 0; i < LANES; i++)
                tile[i] = v_load(a->total + (int64_t)(t + i) * a->width + r);
            transpose_tile(tile);
            for (int i = 0; i < rows; i++)
                v_store(o + (r + i) * stride + t, tile[i]);
        }
        for (; t < a->dim; t++)
            for (int i = 0; i < rows; i++)
                o[(r + i) * stride + t] = a->total[(int64_t)t * a->width + r + i];
    }
}

/* ---- a tile of queries ---- */

void attend_begin(struct attend *a, void *scratch, const float *q, int64_t stride, int rows, int dim) {
    assert(rows >= 1 && rows <= ATTEND_ROWS && dim >= 1 && dim <= ATTEND_DIM_MAX);
    float *memory = scratch;
    int64_t plane = (int64_t)dim * ATTEND_ROWS;
    int vectors = rows <= ATTEND_SINGLE_ROWS ? 0
                  : rows <= LANES            ? 1
                  : rows <= 2 * LANES        ? 2
                  : rows <= AT_ONCE_ODD      ? 3
                  : rows <= 4 * LANES        ? 4
                                             : VECTORS_MAX;
    *a = (struct attend){.rows = rows,
                         .dim = dim,
                         .width = vectors * LANES,
                         .scale = 1.0f / sqrtf((float)dim),
                         .q = q,
                         .q_stride = stride};
    a->top = memory;
    a->sum = a->top + ATTEND_ROWS;
    a->scores = a->sum + ATTEND_ROWS;
    a->queries = a->scores + (int64_t)ATTEND_KEYS * ATTEND_ROWS;
    a->out = a->queries + plane;
    a->total = a->out + plane;
    int64_t live = a->width ? (int64_t)dim * a->width : (int64_t)rows * dim;
    memset(a->total, 0, (size_t)live * sizeof(float));
    if (a->width) attend_load_columns(a->queries, a);
}

void attend_softmax(struct attend *a, bool null_key) {
    int64_t live = a->width ? (int64_t)a->dim * a->width : (int64_t)a->rows * a->dim;
    memset(a->out, 0, (size_t)live * sizeof(float));
    for (int r = 0; r < ATTEND_ROWS; r++) {
        a->top[r] = null_key ? 0.0f : -INFINITY;
        a->sum[r] = null_key ? 1.0f : 0.0f;
    }
}

/* A window is causal: a key after a query is not read. Vectors before attend_first of a key do not see it, and a vector
 * sees only the first attend_seen of n keys. Their scores are neither computed nor read. */
SIMD int attend_first(const struct attend_bias *bias, int j) {
    const int64_t hidden = bias ? j - bias->distance : 0;
    return hidden < LANES ? 0 : (int)(hidden / LANES);
}

SIMD int attend_seen(const struct attend_bias *bias, int v, int n) {
    const int64_t seen = bias ? bias->distance + (int64_t)(v + 1) * LANES : n;
    return seen < 0 ? 0 : seen < n ? (int)seen : n;
}

/* scores[j] = scale * sum_t keys[j][t] * queries[t], for `block` keys and the vectors first .. first+some-1. */
SIMD void attend_score_part(struct attend *a, const float *keys, int64_t stride, int block, int vectors, int first,
                            int some, float *scores) {
    vf sum[BLOCK][AT_ONCE] = {0};
    for (int t = 0; t < a->dim; t++) {
        vf column[AT_ONCE];
        for (int v = 0; v < some; v++)
            column[v] = v_load(a->queries + ((int64_t)t * vectors + first + v) * LANES);
        for (int r = 0; r < block; r++)
            for (int v = 0; v < some; v++)
                sum[r][v] += keys[r * stride + t] * column[v];
    }
    for (int r = 0; r < block; r++)
        for (int v = 0; v < some; v++)
            v_store(scores + ((int64_t)r * vectors + first + v) * LANES, sum[r][v] * a->scale);
}

/* The same for 1 .. AT_ONCE vectors, which few keys of a causal window have. */
static void attend_score_some(struct attend *a, const float *keys, int64_t stride, int vectors, int first, int some,
                              float *scores) {
    if (some == AT_ONCE)
        attend_score_part(a, keys, stride, BLOCK, vectors, first, AT_ONCE, scores);
    else if (some == 1)
        attend_score_part(a, keys, stride, BLOCK, vectors, first, 1, scores);
    else if (some == 2)
        attend_score_part(a, keys, stride, BLOCK, vectors, first, 2, scores);
    else
        attend_score_part(a, keys, stride, BLOCK, vectors, first, AT_ONCE > 3 ? 3 : 1, scores);
}

/* seen: the first vector that sees the first of the keys. */
SIMD void attend_score_block(struct attend *a, const float *keys, int64_t stride, int j, int block, int vectors,
                             int seen) {
    const int some = vectors < AT_ONCE ? vectors : AT_ONCE;
    for (int first = 0; first < vectors; first += some) {
        const int begin = seen > first ? seen : first;
        float *scores = a->scores + (int64_t)j * vectors * LANES;
        if (begin >= first + some) continue;
        if (begin == first || block < BLOCK)
            attend_score_part(a, keys + j * stride, stride, block, vectors, first, some, scores);
        else
            attend_score_some(a, keys + j * stride, stride, vectors, begin, first + some - begin, scores);
    }
}

/* out[t] += sum_j values[j][t] * scores[j], for `block` columns t of `out` and the vectors first .. first+some-1, the
 * first of `weights` (scores) and `out`. */
SIMD void attend_value_part(float *out, const float *weights, const float *values, int64_t stride, int n, int block,
                            int vectors, int some) {
    vf sum[BLOCK][AT_ONCE];
    for (int r = 0; r < block; r++)
        for (int v = 0; v < some; v++)
            sum[r][v] = v_load(out + ((int64_t)r * vectors + v) * LANES);
    for (int j = 0; j < n; j++) {
        vf weight[AT_ONCE];
        for (int v = 0; v < some; v++)
            weight[v] = v_load(weights + ((int64_t)j * vectors + v) * LANES);
        for (int r = 0; r < block; r++)
            for (int v = 0; v < some; v++)
                sum[r][v] += values[j * stride + r] * weight[v];
    }
    for (int r = 0; r < block; r++)
        for (int v = 0; v < some; v++)
            v_store(out + ((int64_t)r * vectors + v) * LANES, sum[r][v]);
}

static void attend_value_some(float *out, const float *weights, const float *values, int64_t stride, int n, int vectors,
                              int some) {
    if (some == AT_ONCE)
        attend_value_part(out, weights, values, stride, n, BLOCK, vectors, AT_ONCE);
    else if (some == 1)
        attend_value_part(out, weights, values, stride, n, BLOCK, vectors, 1);
    else if (some == 2)
        attend_value_part(out, weights, values, stride, n, BLOCK, vectors, 2);
    else
        attend_value_part(out, weights, values, stride, n, BLOCK, vectors, AT_ONCE > 3 ? 3 : 1);
}

/* The keys that all vectors see, then those that all but the first see, and so on: other scores are 0. */
SIMD void attend_value_block(struct attend *a, const struct attend_bias *bias, const float *values, int64_t stride,
                             int n, int t, int block, int vectors) {
    const int some = vectors < AT_ONCE ? vectors : AT_ONCE;
    for (int first = 0; first < vectors; first += some) {
        float *out = a->out + ((int64_t)t * vectors + first) * LANES;
        const float *weights = a->scores + first * LANES;
        const int all = block == BLOCK ? attend_seen(bias, first, n) : n;
        if (all > 0) attend_value_part(out, weights, values + t, stride, all, block, vectors, some);
        for (int v = 1, from = all, to; v < some && from < n; v++, from = to) {
            to = attend_seen(bias, first + v, n);
            if (to > from)
                attend_value_some(out + v * LANES, weights + ((int64_t)from * vectors + v) * LANES,
                                  values + from * stride + t, stride, to - from, vectors, some - v);
        }
    }
}

SIMD void attend_bias_lanes(struct attend *a, int n, const struct attend_bias *bias, int vectors) {
    vf lane;
    for (int i = 0; i < LANES; i++)
        lane[i] = (float)i;
    float window = (float)bias->window;
    bool edge = bias->distance - (n - 1) < 0 || bias->distance + a->width - 1 > bias->window;
    for (int j = 0; j < n; j++)
        for (int v = attend_first(bias, j); v < vectors; v++) {
            float *at = a->scores + ((int64_t)j * vectors + v) * LANES;
            vf distance = lane + (float)(bias->distance - j + v * LANES);
            vf score = v_load(at) - distance * bias->slope;
            if (edge) score = v_select((distance < 0.0f) | (distance > window), v_set(-INFINITY), score);
            v_store(at, score);
        }
}

/* Scores become exp(score - top); out and sum are rescaled to a higher top. A query that has read no key yet keeps top
 * -inf, and subtracts 0 instead (-inf - -inf is NaN). */
SIMD void attend_softmax_lanes(struct attend *a, int n, const struct attend_bias *bias, int vectors) {
    for (int v = 0; v < vectors; v++) {
        const int seen = attend_seen(bias, v, n);
        vf old = v_load(a->top + v * LANES), top = old, sum = {0};
        for (int j = 0; j < seen; j++)
            top = v_max(top, v_load(a->scores + ((int64_t)j * vectors + v) * LANES));
        vf base = v_select(top == -INFINITY, (vf){0}, top);
        for (int j = 0; j < seen; j++) {
            float *at = a->scores + ((int64_t)j * vectors + v) * LANES;
            vf weight = v_exp(v_load(at) - base);
            sum += weight;
            v_store(at, weight);
        }
        for (int j = seen; j < n; j++)
            v_store(a->scores + ((int64_t)j * vectors + v) * LANES, (vf){0});
        vf shrink = v_exp(old - base);
        v_store(a->sum + v * LANES, v_load(a->sum + v * LANES) * shrink + sum);
        v_store(a->top + v * LANES, top);
        /* before the first key the outputs are 0 */
        for (int t = 0; t < a->dim && v_largest(old) > -INFINITY; t++) {
            float *at = a->out + ((int64_t)t * vectors + v) * LANES;
            v_store(at, v_load(at) * shrink);
        }
    }
}

SIMD void attend_keys_lanes(struct attend *a, const float *keys, int64_t key_stride, const float *values,
                            int64_t value_stride, int n, const struct attend_bias *bias, int vectors) {
    int j = 0, t = 0;
    for (; j + BLOCK <= n; j += BLOCK)
        attend_score_block(a, keys, key_stride, j, BLOCK, vectors, attend_first(bias, j));
    for (; j < n; j++)
        attend_score_block(a, keys, key_stride, j, 1, vectors, attend_first(bias, j));
    if (bias) attend_bias_lanes(a, n, bias, vectors);
    attend_softmax_lanes(a, n, bias, vectors);
    for (; t + BLOCK <= a->dim; t += BLOCK)
        attend_value_block(a, bias, values, value_stride, n, t, BLOCK, vectors);
    for (; t < a->dim; t++)
        attend_value_block(a, bias, values, value_stride, n, t, 1, vectors);
}

/* LANES numbers at element `at`, float32 or bf16. */
SIMD vf attend_load(const void *p, int64_t at, bool bf16) {
    return bf16 ? v_load_bf16((const uint16_t *)p + at) : v_load((const float *)p + at);
}
SIMD vf attend_load_part(const void *p, int64_t at, int64_t n, bool bf16) {
    return bf16 ? v_load_bf16_part((const uint16_t *)p + at, n) : v_load_part((const float *)p + at, n);
}

/* out[t..] += sum_j weight[j] * values[j][t..], 4 vectors of columns at a time, then one, then the rest. */
SIMD void attend_value_row(float *out, const float *weight, const void *values, int64_t at, int64_t stride, int n,
                           int dim, bool bf16) {
    int t = 0;
    for (; t + 4 * LANES <= dim; t += 4 * LANES) {
        vf s0 = v_load(out + t), s1 = v_load(out + t + LANES), s2 = v_load(out + t + 2 * LANES),
           s3 = v_load(out + t + 3 * LANES);
        for (int j = 0; j < n; j++) {
            const int64_t row = at + j * stride + t;
            s0 += weight[j] * attend_load(values, row, bf16);
            s1 += weight[j] * attend_load(values, row + LANES, bf16);
            s2 += weight[j] * attend_load(values, row + 2 * LANES, bf16);
            s3 += weight[j] * attend_load(values, row + 3 * LANES, bf16);
        }
        v_store(out + t, s0);
        v_store(out + t + LANES, s1);
        v_store(out + t + 2 * LANES, s2);
        v_store(out + t + 3 * LANES, s3);
    }
    for (; t < dim; t += LANES) {
        int64_t part = dim - t < LANES ? dim - t : LANES;
        vf sum = v_load_part(out + t, part);
        for (int j = 0; j < n; j++)
            sum += weight[j] * attend_load_part(values, at + j * stride + t, part, bf16);
        v_store_part(out + t, sum, part);
    }
}

/* q . key, with the order of sums of v_dot. */
SIMD float attend_dot(const float *q, const void *key, int64_t at, int n, bool bf16) {
    vf s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    int i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        s0 += v_load(q + i) * attend_load(key, at + i, bf16);
        s1 += v_load(q + i + LANES) * attend_load(key, at + i + LANES, bf16);
        s2 += v_load(q + i + 2 * LANES) * attend_load(key, at + i + 2 * LANES, bf16);
        s3 += v_load(q + i + 3 * LANES) * attend_load(key, at + i + 3 * LANES, bf16);
    }
    for (; i + LANES <= n; i += LANES)
        s0 += v_load(q + i) * attend_load(key, at + i, bf16);
    if (i < n) s1 += v_load_part(q + i, n - i) * attend_load_part(key, at + i, n - i, bf16);
    return v_sum((s0 + s1) + (s2 + s3));
}

/* Prefetches a head's columns of a later row. Rows are a whole hidden size apart, which hardware prefetchers do not
 * follow; and in decoding K and V are not in the cache, because each token reads all weights in between. In a window
 * another run follows, so the prefetch may pass the end of a run; in a chunk it may not. */
SIMD void attend_prefetch_row(const void *rows, int64_t at, int dim, bool bf16) {
    const int64_t size = bf16 ? 2 : 4;
    for (int64_t byte = 0; byte < dim * size; byte += LANES * 4)
        __builtin_prefetch((const char *)rows + at * size + byte, 0, 3);
}

/* Scores of the run's keys become exp(score - top), and their values are added to the row. */
SIMD void attend_row_values(struct attend *a, int row, const void *values, int64_t at, int64_t stride, int n,
                            bool bf16) {
    float *score = a->scores + (int64_t)row * ATTEND_KEYS, *out = a->out + (int64_t)row * a->dim;
    vf highest = v_set(a->top[row]);
    for (int j = 0; j < ATTEND_KEYS; j += LANES)
        highest = v_max(highest, v_load(score + j));
    float top = v_largest(highest), base = top == -INFINITY ? 0.0f : top;
    vf sum = {0};
    for (int j = 0; j < ATTEND_KEYS; j += LANES) {
        vf weight = v_exp(v_load(score + j) - base);
        sum += weight;
        v_store(score + j, weight);
    }
    float shrink = v_exp(v_set(a->top[row] - base))[0];
    a->sum[row] = a->sum[row] * shrink + v_sum(sum);
    a->top[row] = top;
    for (int t = 0; t < a->dim && shrink != 1.0f; t++)
        out[t] *= shrink;
    attend_value_row(out, score, values, at, stride, n, a->dim, bf16);
}

/* One row of `heads` adjacent heads: a key's columns of all heads are read together. */
SIMD void attend_row_heads(struct attend *a, int heads, int row, struct attend_run run, bool bf16) {
    const int dim = a->dim, n = run.n;
    const struct attend_bias *bias = run.bias;
    const int ahead = bias ? PREFETCH_WINDOW : PREFETCH_KEYS;
    for (int h = 0; h < heads; h++)
        for (int j = 0; j < ATTEND_KEYS; j++)
            a[h].scores[(int64_t)row * ATTEND_KEYS + j] = -INFINITY;
    for (int j = 0; j < n; j++) {
        if (bias || j + ahead < n) attend_prefetch_row(run.keys, (j + ahead) * run.key_stride, heads * dim, bf16);
        attend_prefetch_row(run.values, j * run.value_stride, heads * dim, bf16);
        const int64_t distance = bias ? bias->distance + row - j : 0;
        if (bias && (distance < 0 || distance > bias->window)) continue;
        for (int h = 0; h < heads; h++) {
            const float *q = a[h].q + row * a[h].q_stride;
            a[h].scores[(int64_t)row * ATTEND_KEYS + j] =
                attend_dot(q, run.keys, j * run.key_stride + h * dim, dim, bf16) * a[h].scale -
                (bias ? bias[h].slope * (float)distance : 0.0f);
        }
    }
    for (int h = 0; h < heads; h++)
        attend_row_values(&a[h], row, run.values, h * dim, run.value_stride, n, bf16);
}

void attend_keys_heads(struct attend *a, int heads, struct attend_run run) {
    assert(run.n >= 1 && run.n <= ATTEND_KEYS && a->width == 0);
    for (int row = 0; row < a->rows; row++)
        if (run.bf16)
            attend_row_heads(a, heads, row, run, true);
        else
            attend_row_heads(a, heads, row, run, false);
}

void attend_keys(struct attend *a, const float *keys, int64_t key_stride, const float *values, int64_t value_stride,
                 int n, const struct attend_bias *bias) {
    assert(n >= 1 && n <= ATTEND_KEYS);
    switch (a->width / LANES) {
    case 0:
        attend_keys_heads(a, 1, (struct attend_run){keys, values, key_stride, value_stride, n, false, bias});
        break;
    case 1:
        attend_keys_lanes(a, keys, key_stride, values, value_stride, n, bias, 1);
        break;
    case 2:
        attend_keys_lanes(a, keys, key_stride, values, value_stride, n, bias, 2);
        break;
    case 3:
        attend_keys_lanes(a, keys, key_stride, values, value_stride, n, bias, AT_ONCE_ODD > 0 ? 3 : VECTORS_MAX);
        break;
    case 4:
        attend_keys_lanes(a, keys, key_stride, values, value_stride, n, bias, 4);
        break;
    default:
        attend_keys_lanes(a, keys, key_stride, values, value_stride, n, bias, VECTORS_MAX);
        break;
    }
}

void attend_keys_bf16(struct attend *a, float *wide, struct attend_run run) {
    const uint16_t *keys = run.keys, *values = run.values;
    float *wide_values = wide + (int64_t)ATTEND_KEYS * a->dim;
    for (int j = 0; j < run.n; j++) {
        half_from_bf16_row(wide + (int64_t)j * a->dim, keys + j * run.key_stride, (size_t)a->dim);
        half_from_bf16_row(wide_values + (int64_t)j * a->dim, values + j * run.value_stride, (size_t)a->dim);
    }
    attend_keys(a, wide, a->dim, wide_values, a->dim, run.n, run.bias);
}

void attend_add(struct attend *a, float weight) {
    float factor[ATTEND_ROWS];
    for (int r = 0; r < ATTEND_ROWS; r++)
        factor[r] = a->sum[r] == 0.0f ? 0.0f : weight / a->sum[r];
    if (!a->width) {
        for (int r = 0; r < a->rows; r++)
            for (int t = 0; t < a->dim; t++)
                a->total[(int64_t)r * a->dim + t] += factor[r] * a->out[(int64_t)r * a->dim + t];
        return;
    }
    for (int t = 0; t < a->dim; t++)
        for (int r = 0; r < a->width; r += LANES) {
            int64_t at = (int64_t)t * a->width + r;
            v_store(a->total + at, v_load(a->total + at) + v_load(factor + r) * v_load(a->out + at));
        }
}

void attend_mix(struct attend *a, const float *keep, const float *weight) {
    float factor[ATTEND_ROWS];
    for (int r = 0; r < ATTEND_ROWS; r++)
        factor[r] = a->sum[r] == 0.0f ? 0.0f : weight[r] / a->sum[r];
    for (int r = 0; r < a->rows && !a->width; r++)
        for (int64_t t = (int64_t)r * a->dim; t < (int64_t)(r + 1) * a->dim; t++)
            a->total[t] = keep[r] * a->total[t] + factor[r] * a->out[t];
    for (int64_t t = 0; t < a->dim; t++)
        for (int r = 0; r < a->width; r += LANES) {
            int64_t at = t * a->width + r;
            v_store(a->total + at, v_load(keep + r) * v_load(a->total + at) + v_load(factor + r) * v_load(a->out + at));
        }
}

void attend_keep(const struct attend *a, struct mat lse, int64_t row, int64_t head) {
    for (int r = 0; r < a->rows && lse.data; r++)
        mat_row(lse, row + r)[head] = a->sum[r] == 0.0f ? -INFINITY : a->top[r] + logf(a->sum[r]);
}

void attend_store(const struct attend *a, float *o, int64_t stride) {
    if (a->width) {
        attend_store_columns(o, stride, a);
        return;
    }
    for (int r = 0; r < a->rows; r++)
        memcpy(o + r * stride, a->total + (int64_t)r * a->dim, (size_t)a->dim * sizeof *o);
}
