/* corpus_rows.h -- landmarks of a corpus that is not stored, for benchmarks: each row is a function of its number. Rows
 * are near the directions of `clusters` clusters of very different size, like landmarks of real text. */
#pragma once
#include "kernels/device/device.h"

struct corpus_rows {
    int64_t clusters;
    float noise;
    uint64_t seed;
};
/* Rows first .. first + to.rows - 1, dense: fp16 or float32 memory of the device. */
enum status corpus_rows_fill(const struct corpus_rows *c, struct device *dev, struct mat to, int64_t first);
