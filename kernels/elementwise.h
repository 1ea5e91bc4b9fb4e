/* elementwise.h -- conversion, y = a + b, and SwiGLU: y = silu(gate) * up (model.md §2.2). All [n, cols]; y may be an input. */
#pragma once
#include "kernels/device.h"

struct elementwise_ops {
    /* y = x in y's type: float32 and bf16 in any pair (the CPU: float32 alone, a copy). */
    void (*convert)(struct device *dev, struct mat y, struct mat x);
    void (*add)(struct device *dev, struct mat y, struct mat a, struct mat b);
    void (*swiglu)(struct device *dev, struct mat y, struct mat gate, struct mat up);
    /* dgate, dup are overwritten; they may be gate and up. */
    void (*swiglu_backward)(struct device *dev, struct mat dgate, struct mat dup, struct mat dy, struct mat gate, struct mat up);
};
extern const struct elementwise_ops elementwise_cpu;
