/* kmeans.h -- centroids of points under the inner product: spherical k-means, from ops.
 *
 * A point belongs to the centroid with which its product is greatest; a centroid is the sum of its points at length 1, so
 * that long points weigh more. It begins with points drawn at random; a list without points takes half of one that has
 * many, drawn by size. Of more than KMEANS_POINTS_MAX points a centroid, every second or third and so on takes part. The same
 * points, seed and device give the same bits. */
#pragma once
#include "kernels/device/device.h"
#include <stdbool.h>

enum { KMEANS_POINTS_MAX = 256, KMEANS_ITERATIONS = 10 };

struct kmeans_config {
    int iterations;                      /* 0: KMEANS_ITERATIONS */
    uint64_t seed;
    /* Asked between blocks of points; true: STATUS_INTERRUPTED. NULL: never */
    bool (*stop)(void *context);
    /* Before each block: points assigned of all that will be, in all iterations; `iteration` from 1. NULL: not reported */
    void (*report)(void *context, int iteration, int iterations, int64_t done, int64_t total);
    void *context;
};
/* centroids [lists, d] float32, dense, points [n, d], n >= lists; float32 or fp16 (not on the CPU), and then centroids are
 * rounded to fp16 for assigning. Memory of the device; takes more of it for the call: 4 bytes a number of centroids and 12 bytes
 * a point. */
enum status kmeans_fit(struct device *dev, struct mat centroids, struct mat points, const struct kmeans_config *config);
/* list[i]: the centroid of point i. `visible`: [n] times the number of centroids; score [n]: scratch. Memory of the device. */
void kmeans_assign(struct device *dev, int64_t *list, float *score, struct mat points, struct mat centroids, const int64_t *visible);
