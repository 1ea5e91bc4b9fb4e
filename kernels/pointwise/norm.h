/* norm.h -- RMSNorm over rows: y[r] = x[r] * rstd[r] * w,  rstd[r] = 1/sqrt(mean(x[r]^2) + eps)  (model.md §Notation)
 *
 * x, y [n, d]; w [1, d]; rstd [n, 1] kept for backward, data NULL where not wanted. y may be x. */
#pragma once
#include "kernels/device/device.h"
#include <stdbool.h>

struct norm_ops {
    void (*forward)(struct device *dev, struct mat y, struct mat rstd, struct mat x, struct mat w, float eps);
    /* dx is overwritten (or added to, when `accumulate`) and may be dy; dw [1, d] float32 is added to. */
    void (*backward)(struct device *dev, struct mat dx, struct mat dw, struct mat dy, struct mat x, struct mat w,
                     struct mat rstd, bool accumulate);
};
extern const struct norm_ops norm_cpu;
