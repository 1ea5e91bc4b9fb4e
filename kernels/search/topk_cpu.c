/* topk_cpu.c -- the best k landmarks of each query, sampling among them, softmax weights and their gradients.
 *
 *                        landmarks
 *               +-----------+-----------+---
 *   32 queries  | product   | product   |       more than FEW_QUERIES: a task is a block of queries; OpenBLAS makes a
 *               | 32 x 512  | 32 x 512  |       tile of scores in the worker's scratch, whose rows go to the lists
 *               +-----------+-----------+---
 *   few queries | task      | task      |       a task is a range of landmarks; each worker keeps lists of its own,
 *               |   2048    |   2048    |       which are merged at the end (base/top_list.h: the order is total)
 *
 * Bound by arithmetic (2 n E d) for many queries, by reading the landmarks once (4 E d bytes) for few. Measured rates:
 * docs/kernels/search.md. */
#include "base/minmax.h"
#include "base/top_list.h"
#include "kernels/device/device_internal.h"
#include "kernels/linear/blas_cpu.h"
#include "kernels/pointwise/simd_internal.h"
#include "kernels/search/noise_internal.h"
#include "kernels/search/topk.h"
#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { FEW_QUERIES = 8, QUERIES = 32, LANDMARKS = 512, RANGE = 2048 };

struct topk_task {
    struct device *dev;
    struct mat queries, landmarks;
    const int64_t *visible;
    int64_t *index;
    float *score;
    int k;
    float scale;
};

/* List i of consecutive lists. */
static struct top_list list_at(int64_t *index, float *score, int64_t i, int k) {
    return (struct top_list){index + i * k, score + i * k, k};
}

/* [queries, LANDMARKS] */
static void score_tile(float *scores, struct mat queries, struct mat landmarks, float scale) {
    struct mat tile = mat_cols(mat_f32(scores, queries.rows, LANDMARKS), 0, landmarks.rows);
    blas_cpu_product(
        (struct blas_product){.y = tile, .a = queries, .b = landmarks, .b_transposed = true, .scale = scale});
}

static void topk_block(const struct topk_task *t, float *scores, int64_t first, int64_t n) {
    int64_t seen = 0;
    for (int64_t q = first; q < first + n; q++)
        seen = t->visible[q] > seen ? t->visible[q] : seen;
    for (int64_t q = first; q < first + n; q++)
        top_list_clear(list_at(t->index, t->score, q, t->k));
    for (int64_t base = 0; base < seen; base += LANDMARKS) {
        int64_t m = min_i64(seen - base, LANDMARKS);
        score_tile(scores, mat_rows(t->queries, first, n), mat_rows(t->landmarks, base, m), t->scale);
        for (int64_t q = 0; q < n; q++) {
            struct top_list l = list_at(t->index, t->score, first + q, t->k);
            int64_t live = min_i64(t->visible[first + q] - base, m);
            for (int64_t i = 0; i < live; i++)
                top_list_offer(l, scores[q * LANDMARKS + i], base + i);
        }
    }
    for (int64_t q = first; q < first + n; q++)
        top_list_sort(list_at(t->index, t->score, q, t->k));
}

static void topk_blocks(void *context, int64_t begin, int64_t end, int worker) {
    const struct topk_task *t = context;
    for (int64_t i = begin; i < end; i++)
        topk_block(t, device_scratch(t->dev, worker), i * QUERIES, min_i64(t->queries.rows - i * QUERIES, QUERIES));
}

/* A worker's own list of query q, in its scratch. */
static struct top_list worker_list(const struct topk_task *t, int worker, int64_t q) {
    int64_t *index = device_scratch(t->dev, worker);
    return list_at(index, (float *)(void *)(index + t->queries.rows * t->k), q, t->k);
}

static void topk_range(void *context, int64_t begin, int64_t end, int worker) {
    const struct topk_task *t = context;
    for (int64_t i = begin; i < end; i++) {
        const float *landmark = mat_row(t->landmarks, i);
        for (int64_t q = 0; q < t->queries.rows; q++) {
            if (i >= t->visible[q]) continue;
            float score = v_dot(mat_row(t->queries, q), landmark, t->queries.cols) * t->scale;
            top_list_offer(worker_list(t, worker, q), score, i);
        }
    }
}

static void topk_few(struct topk_task *t) {
    int workers = device_cpu(t->dev)->workers;
    int64_t seen = 0;
    for (int64_t q = 0; q < t->queries.rows; q++) {
        seen = t->visible[q] > seen ? t->visible[q] : seen;
        for (int w = 0; w < workers; w++)
            top_list_clear(worker_list(t, w, q));
    }
    threads_for(t->dev->threads, seen, RANGE, topk_range, t);
    for (int64_t q = 0; q < t->queries.rows; q++) {
        struct top_list out = list_at(t->index, t->score, q, t->k);
        top_list_clear(out);
        for (int w = 0; w < workers; w++) {
            struct top_list found = worker_list(t, w, q);
            for (int i = 0; i < t->k; i++)
                if (found.id[i] >= 0) top_list_offer(out, found.score[i], found.id[i]);
        }
        top_list_sort(out);
    }
}

static void topk_forward(struct device *dev, int64_t *index, float *score, struct mat queries, struct mat landmarks,
                         const int64_t *visible, int k) {
    assert(k >= 1 && k <= TOPK_MAX && (landmarks.rows == 0 || queries.cols == landmarks.cols));
    for (int64_t q = 0; q < queries.rows; q++)
        assert(visible[q] >= 0 && visible[q] <= landmarks.rows);
    struct topk_task t = {dev, queries, landmarks, visible, index, score, k, 1.0f / sqrtf((float)queries.cols)};
    size_t list_bytes = (size_t)queries.rows * (size_t)k * (sizeof(int64_t) + sizeof(float));
    if (queries.rows <= FEW_QUERIES && list_bytes <= DEVICE_SCRATCH_BYTES)
        topk_few(&t);
    else
        threads_for(dev->threads, (queries.rows + QUERIES - 1) / QUERIES, 1, topk_blocks, &t);
}

/* Sampling: as topk_block, with the rows' own ranges, and lists sorted by key. */
struct sample_task {
    struct device *dev;
    struct topk_sampling in;
    int64_t *index;
    int32_t *slot;
    float *score, scale;
};

static bool sample_allowed(const struct topk_rows *rows, int64_t r, int64_t e) {
    if (rows->own_begin[r] <= e && e < rows->own_end[r]) return true;
    if (!rows->other_begin || e < rows->other_begin[r] || e >= rows->other_end[r]) return false;
    if (rows->own_begin[r] <= e && e < rows->sequence_end[r]) return false;
    if (!rows->document_of) return true;
    const int32_t *of = rows->document_of[e], *barred = rows->document_barred[r];
    return of[0] < 0 || of[0] > barred[1] || of[1] < barred[0];
}

/* The landmarks that any of rows first .. first+n-1 may sample. */
static void sample_range(const struct sample_task *t, int64_t first, int64_t n, int64_t *begin, int64_t *end) {
    const struct topk_rows *rows = &t->in.rows;
    *begin = t->in.landmarks.rows;
    *end = 0;
    for (int64_t r = first; r < first + n; r++) {
        if (rows->own_begin[r] < rows->own_end[r]) {
            *begin = min_i64(*begin, rows->own_begin[r]);
            *end = -min_i64(-*end, -rows->own_end[r]);
        }
        if (rows->other_begin && rows->other_begin[r] < rows->other_end[r]) {
            *begin = min_i64(*begin, rows->other_begin[r]);
            *end = -min_i64(-*end, -rows->other_end[r]);
        }
    }
    assert(*begin >= 0 && *end <= t->in.landmarks.rows);
}

static void sample_tile(const struct sample_task *t, struct top_list keys, const float *scores, int64_t row,
                        int64_t base, int64_t columns) {
    uint64_t noise = noise_row(t->in.seed, (uint64_t)row);
    for (int64_t i = 0; i < columns; i++) {
        if (!sample_allowed(&t->in.rows, row, base + i)) continue;
        top_list_offer(keys, scores[i] + (t->in.gumbel ? noise_gumbel(noise, (uint64_t)(base + i)) : 0.0f), base + i);
    }
}

/* Lists are sorted by key in the scratch, after the scores; the scores of the results then replace the keys. */
static void sample_block(const struct sample_task *t, float *scores, int64_t first, int64_t n) {
    float *keys = scores + QUERIES * LANDMARKS;
    int64_t *index = t->index + first * t->in.k, begin, end;
    int k = t->in.k;
    sample_range(t, first, n, &begin, &end);
    for (int64_t q = 0; q < n; q++)
        top_list_clear(list_at(index, keys, q, k));
    for (int64_t base = begin; base < end; base += LANDMARKS) {
        int64_t m = min_i64(end - base, LANDMARKS);
        score_tile(scores, mat_rows(t->in.queries, first, n), mat_rows(t->in.landmarks, base, m), t->scale);
        for (int64_t q = 0; q < n; q++)
            sample_tile(t, list_at(index, keys, q, k), scores + q * LANDMARKS, first + q, base, m);
    }
    for (int64_t q = 0; q < n; q++)
        top_list_sort(list_at(index, keys, q, k));
    for (int64_t i = 0; i < n * k; i++) {
        const float *query = mat_row(t->in.queries, first + i / k);
        bool noisy = index[i] >= 0 && t->in.gumbel;
        t->score[first * k + i] =
            noisy ? t->scale * v_dot(query, mat_row(t->in.landmarks, index[i]), t->in.queries.cols) : keys[i];
        if (t->slot) t->slot[first * k + i] = (int32_t)index[i];
    }
}

static void sample_blocks(void *context, int64_t begin, int64_t end, int worker) {
    const struct sample_task *t = context;
    int64_t rows = t->in.queries.rows;
    for (int64_t i = begin; i < end; i++)
        sample_block(t, device_scratch(t->dev, worker), i * QUERIES, min_i64(rows - i * QUERIES, QUERIES));
}

static void topk_sample(struct device *dev, int64_t *index, int32_t *slot, float *score,
                        const struct topk_sampling *in) {
    static_assert((size_t)QUERIES * (TOPK_SAMPLE_MAX + LANDMARKS) * sizeof(float) <= DEVICE_SCRATCH_BYTES);
    assert(in->k >= 1 && in->k <= TOPK_SAMPLE_MAX);
    assert((in->landmarks.rows == 0 || in->queries.cols == in->landmarks.cols) && in->landmarks.rows <= INT32_MAX);
    struct sample_task t = {dev, *in, index, slot, score, 1.0f / sqrtf((float)in->queries.cols)};
    threads_for(dev->threads, (in->queries.rows + QUERIES - 1) / QUERIES, 1, sample_blocks, &t);
}

static void topk_subsample(struct device *dev, int64_t *index, const int64_t *from_index, const float *from_score,
                           int64_t n, int from, int k, uint64_t seed) {
    float *key = device_scratch(dev, 0);
    assert(k >= 1 && k <= from && k <= TOPK_SAMPLE_MAX);
    for (int64_t row = 0; row < n; row++) {
        struct top_list l = {index + row * k, key, k};
        uint64_t noise = noise_row(seed, (uint64_t)row);
        top_list_clear(l);
        for (int64_t i = row * from; i < (row + 1) * from; i++)
            if (from_index[i] >= 0)
                top_list_offer(l, from_score[i] + noise_gumbel(noise, (uint64_t)from_index[i]), from_index[i]);
        top_list_sort(l);
    }
}

static void topk_gather(struct device *dev, int32_t *out, const int32_t *table, int64_t rows, int64_t cols,
                        const int64_t *index, int64_t n) {
    (void)dev;
    for (int64_t i = 0; i < n; i++) {
        assert(index[i] < rows);
        int64_t row = index[i] < 0 ? rows - 1 : index[i];
        memcpy(out + i * cols, table + row * cols, (size_t)cols * sizeof *out);
    }
}

struct weights_task {
    float *weight;
    const float *score;
    int k;
};

static void softmax_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct weights_task *t = context;
    (void)worker;
    for (int64_t row = begin; row < end; row++) {
        const float *score = t->score + row * t->k;
        float *weight = t->weight + row * t->k, top = -INFINITY, sum = 0.0f;
        for (int i = 0; i < t->k; i++)
            top = fmaxf(top, score[i]);
        for (int i = 0; i < t->k; i++) {
            weight[i] = top == -INFINITY ? 0.0f : expf(score[i] - top);
            sum += weight[i];
        }
        for (int i = 0; i < t->k && sum > 0.0f; i++)
            weight[i] /= sum;
    }
}

static void topk_softmax_weights(struct device *dev, float *weight, const float *score, int64_t n, int k) {
    assert(k >= 1);
    struct weights_task t = {weight, score, k};
    threads_for(dev->threads, n, 1 + 4096 / k, softmax_rows, &t);
}

/* to[begin..end) += factor * from[begin..end) */
static void add_scaled(float *to, const float *from, float factor, int64_t begin, int64_t end) {
    for (; begin + LANES <= end; begin += LANES)
        v_store(to + begin, v_load(to + begin) + factor * v_load(from + begin));
    for (; begin < end; begin++)
        to[begin] += factor * from[begin];
}

/* A task has a range of columns of both queries and landmarks, and takes all rows in order. Each task computes a row's
 * dscore again, which costs little compared with its columns. */
enum { COLUMNS = 4 * LANES };

struct backward_task {
    struct mat dqueries, dlandmarks, queries, landmarks;
    const float *dweight;
    struct topk_weights found;
    float scale;
};

static void backward_columns(void *context, int64_t begin, int64_t end, int worker) {
    const struct backward_task *t = context;
    (void)worker;
    int64_t first = begin * COLUMNS, last = min_i64(end * COLUMNS, t->queries.cols);
    int k = t->found.k;
    for (int64_t row = 0; row < t->queries.rows; row++) {
        const float *weight = t->found.weight + row * k, *dweight = t->dweight + row * k;
        float mean = 0.0f;
        for (int i = 0; i < k; i++)
            mean += weight[i] == 0.0f ? 0.0f : weight[i] * dweight[i];
        for (int i = 0; i < k; i++) {
            int64_t index = t->found.index[row * k + i];
            if (index < 0 || weight[i] == 0.0f) continue;
            assert(index < t->landmarks.rows);
            float dscore = weight[i] * (dweight[i] - mean) * t->scale;
            add_scaled(mat_row(t->dqueries, row), mat_row(t->landmarks, index), dscore, first, last);
            add_scaled(mat_row(t->dlandmarks, index), mat_row(t->queries, row), dscore, first, last);
        }
    }
}

static void topk_backward(struct device *dev, struct mat dqueries, struct mat dlandmarks, const float *dweight,
                          struct topk_weights found, struct mat queries, struct mat landmarks) {
    assert(found.k >= 1 && dqueries.rows == queries.rows && dqueries.cols == queries.cols && queries.cols > 0);
    assert(dlandmarks.rows == landmarks.rows && (landmarks.rows == 0 || landmarks.cols == queries.cols));
    float scale = 1.0f / sqrtf((float)queries.cols);
    struct backward_task t = {dqueries, dlandmarks, queries, landmarks, dweight, found, scale};
    threads_for(dev->threads, (queries.cols + COLUMNS - 1) / COLUMNS, 1, backward_columns, &t);
}

const struct topk_ops topk_cpu = {.forward = topk_forward,
                                  .sample = topk_sample,
                                  .subsample = topk_subsample,
                                  .gather = topk_gather,
                                  .softmax_weights = topk_softmax_weights,
                                  .backward = topk_backward};
