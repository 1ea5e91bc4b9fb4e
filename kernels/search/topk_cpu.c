/* topk_cpu.c -- the best k landmarks of each query.
 *
 * The order (score, then smaller index) is total, so the best k are one set whoever finds them, and lists of several
 * threads can be merged. Many queries: a task is a block of queries against all landmarks, scores by OpenBLAS in
 * blocks. Few: reading the landmarks is the cost, so a task is a range of landmarks, with lists of the worker's own. */
#include "kernels/device/device_internal.h"
#include "kernels/linear/blas_cpu_internal.h"
#include "kernels/pointwise/simd_internal.h"
#include "kernels/search/noise_internal.h"
#include "kernels/search/topk.h"
#include "kernels/search/topk_list_internal.h"
#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { FEW_QUERIES = 8, QUERIES = 32, LANDMARKS = 512, RANGE = 2048 };

struct task {
    struct device *dev;
    struct mat queries, landmarks;
    const int64_t *visible;
    struct topk_list out;
    int k;
    float scale;
};

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* [queries, LANDMARKS] */
static void score_tile(float *scores, struct mat queries, struct mat landmarks, float scale) {
    struct mat tile = mat_cols(mat_f32(scores, queries.rows, LANDMARKS), 0, landmarks.rows);
    blas_cpu_product(
        (struct blas_product){.y = tile, .a = queries, .b = landmarks, .b_transposed = true, .scale = scale});
}

static void many_block(const struct task *t, float *scores, int64_t first, int64_t n) {
    int64_t seen = 0;
    for (int64_t q = first; q < first + n; q++)
        seen = t->visible[q] > seen ? t->visible[q] : seen;
    for (int64_t base = 0; base < seen; base += LANDMARKS) {
        int64_t m = smaller(seen - base, LANDMARKS);
        score_tile(scores, mat_rows(t->queries, first, n), mat_rows(t->landmarks, base, m), t->scale);
        for (int64_t q = 0; q < n; q++) {
            struct topk_list l = list_at(t->out, (first + q) * t->k);
            int64_t live = smaller(t->visible[first + q] - base, m);
            for (int64_t i = 0; i < live; i++)
                list_offer(l, t->k, scores[q * LANDMARKS + i], base + i);
        }
    }
}

static void many_body(void *context, int64_t begin, int64_t end, int worker) {
    const struct task *t = context;
    for (int64_t i = begin; i < end; i++)
        many_block(t, device_scratch(t->dev, worker), i * QUERIES, smaller(t->queries.rows - i * QUERIES, QUERIES));
}

/* A worker's lists for the queries in hand. */
static struct topk_list worker_lists(const struct task *t, int worker) {
    int64_t places = t->queries.rows * t->k;
    int64_t *index = device_scratch(t->dev, worker);
    return (struct topk_list){index, (float *)(void *)(index + places)};
}

static void few_body(void *context, int64_t begin, int64_t end, int worker) {
    const struct task *t = context;
    struct topk_list lists = worker_lists(t, worker);
    for (int64_t i = begin; i < end; i++) {
        const float *landmark = mat_row(t->landmarks, i);
        for (int64_t q = 0; q < t->queries.rows; q++) {
            if (i >= t->visible[q]) continue;
            float score = v_dot(mat_row(t->queries, q), landmark, t->queries.cols) * t->scale;
            list_offer(list_at(lists, q * t->k), t->k, score, i);
        }
    }
}

static void few(struct task *t) {
    int workers = device_cpu(t->dev)->workers;
    int64_t seen = 0, places = t->queries.rows * t->k;
    for (int64_t q = 0; q < t->queries.rows; q++)
        seen = t->visible[q] > seen ? t->visible[q] : seen;
    for (int w = 0; w < workers; w++)
        list_clear(worker_lists(t, w), places);
    threads_for(t->dev->threads, seen, RANGE, few_body, t);
    for (int w = 0; w < workers; w++) {
        struct topk_list found = worker_lists(t, w);
        for (int64_t i = 0; i < places; i++)
            if (found.index[i] >= 0) list_offer(list_at(t->out, i / t->k * t->k), t->k, found.score[i], found.index[i]);
    }
}

static void forward(struct device *dev, int64_t *index, float *score, struct mat queries, struct mat landmarks,
                    const int64_t *visible, int k) {
    assert(k >= 1 && k <= TOPK_PLACES_MAX && (landmarks.rows == 0 || queries.cols == landmarks.cols));
    for (int64_t q = 0; q < queries.rows; q++)
        assert(visible[q] >= 0 && visible[q] <= landmarks.rows);
    struct task t = {dev, queries, landmarks, visible, {index, score}, k, 1.0f / sqrtf((float)queries.cols)};
    list_clear(t.out, queries.rows * k);
    size_t list_bytes = (size_t)queries.rows * (size_t)k * (sizeof(int64_t) + sizeof(float));
    if (queries.rows <= FEW_QUERIES && list_bytes <= DEVICE_SCRATCH_BYTES)
        few(&t);
    else
        threads_for(dev->threads, (queries.rows + QUERIES - 1) / QUERIES, 1, many_body, &t);
}

/* Training's choice: as `many`, with the rows' own ranges, and lists sorted by key. */
struct choose_task {
    struct device *dev;
    struct mat queries, landmarks;
    struct topk_rows rows;
    int64_t *index;
    int32_t *slot;
    float *score, scale;
    int k;
    bool gumbel;
    uint64_t seed;
};

static bool allowed(const struct topk_rows *rows, int64_t r, int64_t e) {
    if (rows->own_begin[r] <= e && e < rows->own_end[r]) return true;
    if (!rows->other_begin || e < rows->other_begin[r] || e >= rows->other_end[r]) return false;
    if (rows->own_begin[r] <= e && e < rows->sequence_end[r]) return false;
    if (!rows->document_of) return true;
    const int32_t *of = rows->document_of[e], *barred = rows->document_barred[r];
    return of[0] < 0 || of[0] > barred[1] || of[1] < barred[0];
}

/* What rows first .. first+n-1 may see at most. */
static void choose_range(const struct choose_task *t, int64_t first, int64_t n, int64_t *begin, int64_t *end) {
    const struct topk_rows *rows = &t->rows;
    *begin = t->landmarks.rows;
    *end = 0;
    for (int64_t r = first; r < first + n; r++) {
        if (rows->own_begin[r] < rows->own_end[r]) {
            *begin = smaller(*begin, rows->own_begin[r]);
            *end = -smaller(-*end, -rows->own_end[r]);
        }
        if (rows->other_begin && rows->other_begin[r] < rows->other_end[r]) {
            *begin = smaller(*begin, rows->other_begin[r]);
            *end = -smaller(-*end, -rows->other_end[r]);
        }
    }
    assert(*begin >= 0 && *end <= t->landmarks.rows);
}

static void choose_tile(const struct choose_task *t, struct topk_list keys, const float *scores, int64_t first,
                        int64_t n, int64_t base, int64_t columns) {
    for (int64_t q = 0; q < n; q++) {
        uint64_t noise = noise_row(t->seed, (uint64_t)(first + q));
        for (int64_t i = 0; i < columns; i++) {
            if (!allowed(&t->rows, first + q, base + i)) continue;
            float key = scores[q * LANDMARKS + i] + (t->gumbel ? noise_gumbel(noise, (uint64_t)(base + i)) : 0.0f);
            list_offer(list_at(keys, q * t->k), t->k, key, base + i);
        }
    }
}

static void choose_block(const struct choose_task *t, float *scores, int64_t first, int64_t n) {
    struct topk_list keys = {t->index + first * t->k, scores + QUERIES * LANDMARKS};
    int64_t begin, end;
    choose_range(t, first, n, &begin, &end);
    list_clear(keys, n * t->k);
    for (int64_t base = begin; base < end; base += LANDMARKS) {
        int64_t m = smaller(end - base, LANDMARKS);
        score_tile(scores, mat_rows(t->queries, first, n), mat_rows(t->landmarks, base, m), t->scale);
        choose_tile(t, keys, scores, first, n, base, m);
    }
    for (int64_t i = 0; i < n * t->k; i++) {
        int64_t e = keys.index[i], row = first + i / t->k;
        t->score[first * t->k + i] =
            e < 0 || !t->gumbel ? keys.score[i]
                                : t->scale * v_dot(mat_row(t->queries, row), mat_row(t->landmarks, e), t->queries.cols);
        if (t->slot) t->slot[first * t->k + i] = (int32_t)e;
    }
}

static void choose_body(void *context, int64_t begin, int64_t end, int worker) {
    const struct choose_task *t = context;
    for (int64_t i = begin; i < end; i++)
        choose_block(t, device_scratch(t->dev, worker), i * QUERIES, smaller(t->queries.rows - i * QUERIES, QUERIES));
}

static void choose(struct device *dev, int64_t *index, int32_t *slot, float *score, struct mat queries,
                   struct mat landmarks, struct topk_rows rows, int k, bool gumbel, uint64_t seed) {
    static_assert((size_t)QUERIES * (TOPK_CHOOSE_MAX + LANDMARKS) * sizeof(float) <= DEVICE_SCRATCH_BYTES);
    assert(k >= 1 && k <= TOPK_CHOOSE_MAX);
    assert((landmarks.rows == 0 || queries.cols == landmarks.cols) && landmarks.rows <= INT32_MAX);
    struct choose_task t = {dev, queries, landmarks, rows, index, slot, score, 1.0f / sqrtf((float)queries.cols),
                            k,   gumbel,  seed};
    threads_for(dev->threads, (queries.rows + QUERIES - 1) / QUERIES, 1, choose_body, &t);
}

static void thin(struct device *dev, int64_t *index, const int64_t *from_index, const float *from_score, int64_t n,
                 int from, int k, uint64_t seed) {
    float *key = device_scratch(dev, 0);
    assert(k >= 1 && k <= from && k <= TOPK_CHOOSE_MAX);
    for (int64_t row = 0; row < n; row++) {
        struct topk_list l = {index + row * k, key};
        uint64_t noise = noise_row(seed, (uint64_t)row);
        list_clear(l, k);
        for (int64_t i = row * from; i < (row + 1) * from; i++)
            if (from_index[i] >= 0)
                list_offer(l, k, from_score[i] + noise_gumbel(noise, (uint64_t)from_index[i]), from_index[i]);
    }
}

static void take(struct device *dev, int32_t *out, const int32_t *table, int64_t rows, int64_t cols,
                 const int64_t *index, int64_t n) {
    (void)dev;
    for (int64_t i = 0; i < n; i++) {
        assert(index[i] < rows);
        int64_t row = index[i] < 0 ? rows - 1 : index[i];
        memcpy(out + i * cols, table + row * cols, (size_t)cols * sizeof *out);
    }
}

struct weigh_task {
    float *weight;
    const float *score;
    int k;
};

static void weigh_body(void *context, int64_t begin, int64_t end, int worker) {
    const struct weigh_task *t = context;
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

static void weigh(struct device *dev, float *weight, const float *score, int64_t n, int k) {
    assert(k >= 1);
    struct weigh_task t = {weight, score, k};
    threads_for(dev->threads, n, 1 + 4096 / k, weigh_body, &t);
}

struct backward_task {
    struct mat dqueries, dlandmarks, queries, landmarks;
    const float *dweight, *weight;
    const int64_t *index;
    int k;
    float scale;
};

/* to[begin..end) += factor * from[begin..end) */
static void add_scaled(float *to, const float *from, float factor, int64_t begin, int64_t end) {
    for (; begin + LANES <= end; begin += LANES)
        v_store(to + begin, v_load(to + begin) + factor * v_load(from + begin));
    for (; begin < end; begin++)
        to[begin] += factor * from[begin];
}

/* A task owns a range of columns, of queries and landmarks alike, and goes through all rows in order; what it costs to
 * make a row's dscore again is little beside its columns. */
enum { COLUMNS = 4 * LANES };

static void backward_body(void *context, int64_t begin, int64_t end, int worker) {
    const struct backward_task *t = context;
    (void)worker;
    int64_t first = begin * COLUMNS, last = smaller(end * COLUMNS, t->queries.cols);
    for (int64_t row = 0; row < t->queries.rows; row++) {
        const float *weight = t->weight + row * t->k, *dweight = t->dweight + row * t->k;
        float mean = 0.0f;
        for (int i = 0; i < t->k; i++)
            mean += weight[i] == 0.0f ? 0.0f : weight[i] * dweight[i];
        for (int i = 0; i < t->k; i++) {
            int64_t index = t->index[row * t->k + i];
            if (index < 0 || weight[i] == 0.0f) continue;
            assert(index < t->landmarks.rows);
            float dscore = weight[i] * (dweight[i] - mean) * t->scale;
            add_scaled(mat_row(t->dqueries, row), mat_row(t->landmarks, index), dscore, first, last);
            add_scaled(mat_row(t->dlandmarks, index), mat_row(t->queries, row), dscore, first, last);
        }
    }
}

static void backward(struct device *dev, struct mat dqueries, struct mat dlandmarks, const float *dweight,
                     const float *weight, const int64_t *index, struct mat queries, struct mat landmarks, int k) {
    assert(k >= 1 && dqueries.rows == queries.rows && dqueries.cols == queries.cols && queries.cols > 0);
    assert(dlandmarks.rows == landmarks.rows && (landmarks.rows == 0 || landmarks.cols == queries.cols));
    struct backward_task t = {
        dqueries, dlandmarks, queries, landmarks, dweight, weight, index, k, 1.0f / sqrtf((float)queries.cols)};
    threads_for(dev->threads, (queries.cols + COLUMNS - 1) / COLUMNS, 1, backward_body, &t);
}

const struct topk_ops topk_cpu = {.forward = forward,
                                  .sample = choose,
                                  .subsample = thin,
                                  .gather = take,
                                  .softmax_weights = weigh,
                                  .backward = backward};
