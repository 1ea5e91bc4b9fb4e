/* kmeans.c -- see kmeans.h. The device does all that touches points or centroids; this process draws, and keeps counts.
 */
#include "kernels/search/kmeans.h"
#include "base/memory.h"
#include "base/rng.h"
#include "kernels/ops.h"
#include <assert.h>

enum { STREAM_START, STREAM_SPLIT, ASSIGN_ROWS = 1 << 16 };

struct fit {
    struct device *dev;
    struct mat centroids, points, rounded; /* rounded: what points are compared with; centroids themselves in float32 */
    uint64_t seed;
    int64_t *list, *visible; /* [n], [ASSIGN_ROWS] of the device */
    float *score;            /* [ASSIGN_ROWS] of the device */
    void *counts_room, *pairs_room;
    int64_t *start;      /* [n], this process's from here on */
    int32_t *counts;     /* [lists] */
    int32_t (*pairs)[2]; /* [lists] */
};

void kmeans_assign(struct device *dev, int64_t *list, float *score, struct mat points, struct mat centroids,
                   const int64_t *visible) {
    dev->ops->topk->forward(dev, list, score, points, centroids, visible, 1);
}

/* Of n points `take`, drawn at random, get the numbers 0, 1, ...; all others -1. */
static enum status draw(int64_t *list, int64_t n, int64_t take, uint64_t seed) {
    int64_t *order;
    struct rng rng = rng_make(seed, STREAM_START);
    TRY(memory_allocate(&order, (size_t)n));
    for (int64_t i = 0; i < n; i++) {
        order[i] = i;
        list[i] = -1;
    }
    for (int64_t i = 0; i < take; i++) {
        int64_t other = i + (int64_t)rng_below(&rng, (uint64_t)(n - i)), mine = order[other];
        order[other] = order[i];
        list[mine] = i;
    }
    memory_free(order);
    return STATUS_OK;
}

static enum status allocate(struct fit *f) {
    size_t n = (size_t)f->points.rows, lists = (size_t)f->centroids.rows;
    struct device *dev = f->dev;
    TRY(device_allocate(dev, &f->list, n));
    TRY(device_allocate(dev, &f->visible, ASSIGN_ROWS));
    TRY(device_allocate(dev, &f->score, ASSIGN_ROWS));
    TRY(memory_allocate(&f->start, n > ASSIGN_ROWS ? n : ASSIGN_ROWS));
    TRY(memory_allocate(&f->counts, lists));
    TRY(memory_allocate(&f->pairs, lists));
    TRY(device_room(dev, &f->counts_room, lists * sizeof *f->counts));
    TRY(device_room(dev, &f->pairs_room, lists * sizeof *f->pairs));
    f->rounded = mat_dense(NULL, f->points.type, f->centroids.rows, f->centroids.cols);
    return device_allocate(dev, &f->rounded.data,
                           lists * (size_t)f->centroids.cols * (size_t)dtype_bytes(f->points.type));
}

static void release(struct fit *f) {
    device_release(f->dev, f->list);
    device_release(f->dev, f->visible);
    device_release(f->dev, f->score);
    device_release(f->dev, f->counts_room);
    device_release(f->dev, f->pairs_room);
    device_release(f->dev, f->rounded.data);
    memory_free(f->start);
    memory_free(f->counts);
    memory_free(f->pairs);
}

static void sum(struct fit *f) {
    int32_t *counts = device_side(f->dev, f->counts, f->counts_room);
    f->dev->ops->kmeans_assign->sums(f->dev, f->centroids, counts, f->points, f->list);
    device_download(f->dev, f->counts, counts, (size_t)f->centroids.rows * sizeof *counts);
}

/* Lists without points take half of others, which are drawn with a chance that grows with their size. */
static void split_empty(struct fit *f, struct rng *rng) {
    int64_t lists = f->centroids.rows, n = 0;
    int32_t largest = 0;
    for (int64_t l = 0; l < lists; l++)
        largest = f->counts[l] > largest ? f->counts[l] : largest;
    for (int64_t l = 0; l < lists && largest > 1; l++) {
        if (f->counts[l] > 0) continue;
        int64_t full;
        do
            full = (int64_t)rng_below(rng, (uint64_t)lists);
        while ((int32_t)rng_below(rng, (uint64_t)largest - 1) >= f->counts[full] - 1);
        f->pairs[n][0] = (int32_t)l;
        f->pairs[n++][1] = (int32_t)full;
        f->counts[l] = f->counts[full] / 2;
        f->counts[full] -= f->counts[l];
        if (f->counts[full] + f->counts[l] < largest) continue;
        largest = 0; /* it was the largest: lists that can give are never missed */
        for (int64_t i = 0; i < lists; i++)
            largest = f->counts[i] > largest ? f->counts[i] : largest;
    }
    int32_t(*there)[2] = device_side(f->dev, f->pairs, f->pairs_room);
    device_upload(f->dev, there, f->pairs, (size_t)n * sizeof *there);
    f->dev->ops->kmeans_assign->split(f->dev, f->centroids, (const int32_t(*)[2])there, n);
}

/* The first centroids are points themselves. */
static enum status begin(struct fit *f) {
    int64_t n = f->points.rows, lists = f->centroids.rows;
    TRY(draw(f->start, n, lists, f->seed));
    device_upload(f->dev, f->list, f->start, (size_t)n * sizeof *f->list);
    sum(f);
    for (int64_t i = 0; i < ASSIGN_ROWS; i++)
        f->start[i] = lists;
    device_upload(f->dev, f->visible, f->start, ASSIGN_ROWS * sizeof *f->visible);
    return device_sync(f->dev);
}

/* Each point's centroid, once. */
static enum status assign(struct fit *f, const struct kmeans_config *config, int iteration, int iterations) {
    int64_t rows = f->points.rows;
    for (int64_t at = 0; at < rows; at += ASSIGN_ROWS) {
        int64_t n = rows - at < ASSIGN_ROWS ? rows - at : ASSIGN_ROWS;
        if (config->stop && config->stop(config->context)) return fail(STATUS_INTERRUPTED, "k-means was stopped");
        if (config->report)
            config->report(config->context, iteration + 1, iterations, iteration * rows + at, iterations * rows);
        kmeans_assign(f->dev, f->list + at, f->score, mat_rows(f->points, at, n), f->rounded, f->visible);
    }
    return STATUS_OK;
}

static enum status iterate(struct fit *f, const struct kmeans_config *config) {
    struct rng rng = rng_make(f->seed, STREAM_SPLIT);
    int iterations = config->iterations > 0 ? config->iterations : KMEANS_ITERATIONS;
    for (int i = 0; i < iterations; i++) {
        f->dev->ops->kmeans_assign->unit(f->dev, f->rounded, f->centroids);
        TRY(assign(f, config, i, iterations));
        sum(f);
        TRY(device_sync(f->dev));
        split_empty(f, &rng);
    }
    f->dev->ops->kmeans_assign->unit(f->dev, f->centroids, f->centroids);
    return device_sync(f->dev);
}

enum status kmeans_fit(struct device *dev, struct mat centroids, struct mat points,
                       const struct kmeans_config *config) {
    assert(centroids.type == DTYPE_F32 && centroids.stride == centroids.cols && centroids.rows >= 1);
    assert(points.rows >= centroids.rows && points.cols == centroids.cols);
    int64_t most = centroids.rows * KMEANS_POINTS_MAX, step = (points.rows + most - 1) / most;
    points.rows /= step;
    points.stride *= step;
    struct fit f = {.dev = dev, .centroids = centroids, .points = points, .seed = config->seed};
    enum status s = allocate(&f);
    if (s == STATUS_OK) s = begin(&f);
    if (s == STATUS_OK) s = iterate(&f, config);
    release(&f);
    return s;
}
