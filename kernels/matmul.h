/* matmul.h -- y = x w^T (+ y): the Linear layer without bias (model.md, notation).
 *
 * y [n, out], x [n, in], w [out, in]. y may not overlap x or w. Sums run in float32. */
#pragma once
#include "kernels/device.h"
#include <stdbool.h>

struct matmul_ops {
    void (*forward)(struct device *dev, struct mat y, struct mat x, struct mat w, bool accumulate);
};
extern const struct matmul_ops matmul_cpu;
