/* kmeans_assign.h -- the ops of k-means besides topk, which assigns points to centroids (kernels/search/kmeans.h has
 * the loop), and the scatter that puts rows into their lists. All are deterministic: sums run in the order of
 * points. */
#pragma once
#include "kernels/device/device.h"

struct kmeans_assign_ops {
    /* sums [lists, d] float32, overwritten: the sum of each list's points; counts [lists]: how many there are. points
     * [n, d] of any type of the device; list[i] is the list of point i, below 0: in none. */
    void (*sums)(struct device *dev, struct mat sums, int32_t *counts, struct mat points, const int64_t *list);
    /* One after the other, for pairs {empty, full}: row `empty` becomes row `full` times 1 + 1/1024 at even columns and
     * 1 - 1/1024 at odd ones, and row `full` is multiplied by 1 - 1/1024 and 1 + 1/1024. */
    void (*split)(struct device *dev, struct mat rows, const int32_t (*pairs)[2], int64_t n);
    /* out [n, d], of any type of the device: the rows of x (float32) at length 1; rows of length 0 stay 0. */
    void (*unit)(struct device *dev, struct mat out, struct mat x);
    /* to[row[i]] = from[i]: dense matrices of one type; the rows are distinct. */
    void (*scatter_rows)(struct device *dev, struct mat to, struct mat from, const int64_t *row);
};
extern const struct kmeans_assign_ops kmeans_assign_cpu;
