/* kmeans.c -- see kmeans.h. The device computes everything that touches points or centroids; the host draws random
 * numbers and keeps counts. */
#include "kernels/search/kmeans.h"
#include "base/memory.h"
#include "base/rng.h"
#include "kernels/device/device_pair.h"
#include "kernels/ops.h"
#include <assert.h>

enum { STREAM_START, STREAM_SPLIT, ASSIGN_ROWS = 1 << 16 };

struct kmeans {
    struct device *dev;
    struct mat centroids, points, rounded; /* rounded: centroids as points are compared with them */
    uint64_t seed;
    int64_t *list, *visible;   /* [n], [ASSIGN_ROWS] of the device */
    float *score;              /* [ASSIGN_ROWS] of the device */
    struct device_pair counts; /* int32 [lists] */
    struct device_stage pairs; /* int32 [lists][2] */
    int64_t *start;            /* [n], memory of this process */
};

void kmeans_assign(struct device *dev, int64_t *list, float *score, struct mat points, struct mat centroids,
                   const int64_t *visible) {
    dev->ops->topk->forward(dev, list, score, points, centroids, visible, 1);
}

/* Draws `take` of n points at random, which get the numbers 0, 1, ...; all others get -1. */
static enum status kmeans_draw(int64_t *list, int64_t n, int64_t take, uint64_t seed) {
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

static enum status kmeans_allocate(struct kmeans *f) {
    size_t n = (size_t)f->points.rows, lists = (size_t)f->centroids.rows;
    struct device *dev = f->dev;
    TRY(device_allocate(dev, &f->list, n));
    TRY(device_allocate(dev, &f->visible, ASSIGN_ROWS));
    TRY(device_allocate(dev, &f->score, ASSIGN_ROWS));
    TRY(memory_allocate(&f->start, n > ASSIGN_ROWS ? n : ASSIGN_ROWS));
    TRY(device_pair_allocate(dev, &f->counts, lists * sizeof(int32_t)));
    TRY(device_stage_reserve(dev, &f->pairs, lists * sizeof(int32_t[2])));
    f->rounded = mat_dense(NULL, f->points.type, f->centroids.rows, f->centroids.cols);
    return device_allocate(dev, &f->rounded.data,
                           lists * (size_t)f->centroids.cols * (size_t)dtype_bytes(f->points.type));
}

static void kmeans_release(struct kmeans *f) {
    device_release(f->dev, f->list);
    device_release(f->dev, f->visible);
    device_release(f->dev, f->score);
    device_pair_release(f->dev, &f->counts);
    device_stage_release(f->dev, &f->pairs);
    device_release(f->dev, f->rounded.data);
    memory_free(f->start);
}

static void kmeans_sum(struct kmeans *f) {
    f->dev->ops->kmeans_assign->sums(f->dev, f->centroids, f->counts.device, f->points, f->list);
    device_pair_download(f->dev, &f->counts, (size_t)f->centroids.rows * sizeof(int32_t));
}

/* A list without points takes half of another one, which is drawn with a probability that grows with its size. */
static void kmeans_split_empty(struct kmeans *f, struct rng *rng) {
    int64_t lists = f->centroids.rows, n = 0;
    int32_t largest = 0, *counts = f->counts.host, (*pairs)[2] = f->pairs.host;
    for (int64_t l = 0; l < lists; l++)
        largest = counts[l] > largest ? counts[l] : largest;
    for (int64_t l = 0; l < lists && largest > 1; l++) {
        if (counts[l] > 0) continue;
        int64_t full;
        do
            full = (int64_t)rng_below(rng, (uint64_t)lists);
        while ((int32_t)rng_below(rng, (uint64_t)largest - 1) >= counts[full] - 1);
        pairs[n][0] = (int32_t)l;
        pairs[n++][1] = (int32_t)full;
        counts[l] = counts[full] / 2;
        counts[full] -= counts[l];
        if (counts[full] + counts[l] < largest) continue;
        largest = 0; /* that list was the largest: finds the next one, so that every list that can be split is found */
        for (int64_t i = 0; i < lists; i++)
            largest = counts[i] > largest ? counts[i] : largest;
    }
    device_stage_upload(f->dev, &f->pairs, (size_t)n * sizeof *pairs);
    f->dev->ops->kmeans_assign->split(f->dev, f->centroids, device_stage_device(f->dev, &f->pairs), n);
}

/* The first centroids are points. */
static enum status kmeans_begin(struct kmeans *f) {
    int64_t n = f->points.rows, lists = f->centroids.rows;
    TRY(kmeans_draw(f->start, n, lists, f->seed));
    device_upload(f->dev, f->list, f->start, (size_t)n * sizeof *f->list);
    kmeans_sum(f);
    for (int64_t i = 0; i < ASSIGN_ROWS; i++)
        f->start[i] = lists;
    device_upload(f->dev, f->visible, f->start, ASSIGN_ROWS * sizeof *f->visible);
    return device_sync(f->dev);
}

/* Assigns each point to a centroid once. */
static enum status kmeans_assign_all(struct kmeans *f, const struct kmeans_config *config, int iteration,
                                     int iterations) {
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

static enum status kmeans_iterate(struct kmeans *f, const struct kmeans_config *config) {
    struct rng rng = rng_make(f->seed, STREAM_SPLIT);
    int iterations = config->iterations > 0 ? config->iterations : KMEANS_ITERATIONS;
    for (int i = 0; i < iterations; i++) {
        f->dev->ops->kmeans_assign->unit(f->dev, f->rounded, f->centroids);
        TRY(kmeans_assign_all(f, config, i, iterations));
        kmeans_sum(f);
        TRY(device_sync(f->dev));
        kmeans_split_empty(f, &rng);
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
    struct kmeans f = {.dev = dev, .centroids = centroids, .points = points, .seed = config->seed};
    enum status s;
    TRY_GOTO(s, kmeans_allocate(&f), out);
    TRY_GOTO(s, kmeans_begin(&f), out);
    s = kmeans_iterate(&f, config);
out:
    kmeans_release(&f);
    return s;
}
