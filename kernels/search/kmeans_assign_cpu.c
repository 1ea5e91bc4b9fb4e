/* kmeans_assign_cpu.c -- the steps of k-means beside the assignment: a task is a range of columns (sums, in the order
 * of points) or of rows (all else). Bound by memory. */
#include "kernels/device/device_internal.h"
#include "kernels/pointwise/simd_internal.h"
#include "kernels/search/kmeans_assign.h"
#include <assert.h>
#include <math.h>

enum { COLUMNS = 4 * LANES, ROWS = 64 };
static const float apart = 1.0f / 1024;

struct kmeans_sums_task {
    struct mat sums, points;
    const int64_t *list;
};

static void kmeans_assign_add(float *to, const float *from, int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        v_store(to + i, v_load(to + i) + v_load(from + i));
    for (; i < n; i++)
        to[i] += from[i];
}

static void kmeans_sums_columns(void *context, int64_t begin, int64_t end, int worker) {
    const struct kmeans_sums_task *t = context;
    (void)worker;
    int64_t first = begin * COLUMNS, last = end * COLUMNS < t->sums.cols ? end * COLUMNS : t->sums.cols;
    for (int64_t l = 0; l < t->sums.rows; l++)
        memset(mat_row(t->sums, l) + first, 0, (size_t)(last - first) * sizeof(float));
    for (int64_t i = 0; i < t->points.rows; i++)
        if (t->list[i] >= 0)
            kmeans_assign_add(mat_row(t->sums, t->list[i]) + first, mat_row(t->points, i) + first, last - first);
}

static void kmeans_sums(struct device *dev, struct mat sums, int32_t *counts, struct mat points, const int64_t *list) {
    assert(sums.cols == points.cols && sums.type == DTYPE_F32 && points.type == DTYPE_F32);
    memset(counts, 0, (size_t)sums.rows * sizeof *counts);
    for (int64_t i = 0; i < points.rows; i++) {
        assert(list[i] < sums.rows);
        if (list[i] >= 0) counts[list[i]]++;
    }
    struct kmeans_sums_task t = {sums, points, list};
    threads_for(dev->threads, (sums.cols + COLUMNS - 1) / COLUMNS, 1, kmeans_sums_columns, &t);
}

static void kmeans_split(struct device *dev, struct mat rows, const int32_t (*pairs)[2], int64_t n) {
    (void)dev;
    for (int64_t p = 0; p < n; p++) {
        float *empty = mat_row(rows, pairs[p][0]), *full = mat_row(rows, pairs[p][1]);
        for (int64_t i = 0; i < rows.cols; i++) {
            float more = i % 2 ? 1.0f - apart : 1.0f + apart, x = full[i];
            empty[i] = x * more;
            full[i] = x * (2.0f - more);
        }
    }
}

struct kmeans_rows_task {
    struct mat to, from;
    const int64_t *row;
};

static void kmeans_unit_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct kmeans_rows_task *t = context;
    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        const float *x = mat_row(t->from, r);
        float *out = mat_row(t->to, r), square = v_dot(x, x, t->from.cols);
        float factor = square > 0.0f ? 1.0f / sqrtf(square) : 0.0f;
        for (int64_t i = 0; i < t->from.cols; i++)
            out[i] = x[i] * factor;
    }
}

static void kmeans_unit(struct device *dev, struct mat out, struct mat x) {
    assert(out.rows == x.rows && out.cols == x.cols && out.type == DTYPE_F32 && x.type == DTYPE_F32);
    struct kmeans_rows_task t = {out, x, NULL};
    threads_for(dev->threads, x.rows, ROWS, kmeans_unit_rows, &t);
}

static void kmeans_scatter_range(void *context, int64_t begin, int64_t end, int worker) {
    const struct kmeans_rows_task *t = context;
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        memcpy(mat_row(t->to, t->row[i]), mat_row(t->from, i), (size_t)t->from.cols * sizeof(float));
}

static void kmeans_scatter_rows(struct device *dev, struct mat to, struct mat from, const int64_t *row) {
    assert(to.cols == from.cols && to.type == DTYPE_F32 && from.type == DTYPE_F32);
    struct kmeans_rows_task t = {to, from, row};
    threads_for(dev->threads, from.rows, ROWS, kmeans_scatter_range, &t);
}

const struct kmeans_assign_ops kmeans_assign_cpu = {
    .sums = kmeans_sums, .split = kmeans_split, .unit = kmeans_unit, .scatter_rows = kmeans_scatter_rows};
