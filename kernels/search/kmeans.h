/* kmeans.h -- centroids of points under the inner product: spherical k-means, made of ops.
 *
 * A point belongs to the centroid with which its product is greatest. A centroid is the sum of its points at length 1,
 * so that longer points count more. The first centroids are points drawn at random. A list without points takes half of
 * a list that has many, drawn with a probability that grows with its size. Of more than KMEANS_POINTS_MAX points a
 * centroid, every second (third, ...) takes part. The same points, seed and device give the same bits. */
#pragma once
#include "kernels/device/device.h"
#include <stdbool.h>

enum { KMEANS_POINTS_MAX = 256, KMEANS_ITERATIONS = 10 };

struct kmeans_config {
    int iterations;                      /* 0: KMEANS_ITERATIONS */
    uint64_t seed;
    /* Called between blocks of points; true: STATUS_INTERRUPTED. NULL: never */
    bool (*stop)(void *context);
    /* Before each block: points assigned so far, of the total of all iterations; `iteration` from 1. NULL: not
     * reported */
    void (*report)(void *context, int iteration, int iterations, int64_t done, int64_t total);
    void *context;
};
/* centroids [lists, d] float32, dense; points [n, d], n >= lists, float32 or fp16 (GPU only; then points are compared
 * with centroids that are rounded to fp16). Both are memory of the device. Allocates for the call 4 bytes for each
 * number of the centroids and 12 bytes a point. */
enum status kmeans_fit(struct device *dev, struct mat centroids, struct mat points, const struct kmeans_config *config);
/* list[i] = the centroid of point i. `visible` [n]: the number of centroids, in each; score [n]: scratch. All memory of
 * the device. */
void kmeans_assign(struct device *dev, int64_t *list, float *score, struct mat points, struct mat centroids,
                   const int64_t *visible);
