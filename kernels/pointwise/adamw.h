/* adamw.h -- the update of a block of parameters, and the norm that clips its gradient.
 *
 * Decoupled weight decay, bias-corrected moments (Loshchilov and Hutter, 2019), g scaled by the clip:
 *   m = b1 m + (1-b1) g,  v = b2 v + (1-b2) g^2,
 *   p -= lr (m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps) + decay p)
 * Arrays are memory of the device. */
#pragma once
#include "kernels/device/device.h"

struct adamw_step { float lr, beta1, beta2, eps, decay; int64_t step; /* from 1 */ };
/* p, m, v: float32 [n]. copy takes p in the storage type of the device (bf16); data NULL where not wanted. */
struct adamw_state { float *p, *m, *v; struct mat copy; };

struct adamw_ops {
    /* *sum_of_squares (float32) = sum g[i]^2: one fixed order, the same bits each time. */
    void (*norm)(struct device *dev, float *sum_of_squares, const float *gradient, int64_t n);
    /* The gradient is multiplied by min(1, clip / sqrt(*sum_of_squares)); clip 0: used as it is. Nothing is updated
     * where *sum_of_squares is given and not finite: a broken gradient must not reach the weights. */
    void (*update)(struct device *dev, struct adamw_state state, const float *gradient, int64_t n,
                   const float *sum_of_squares, float clip, struct adamw_step how);
};
extern const struct adamw_ops adamw_cpu;
