/* elementwise.h -- conversion, y = a + b, SwiGLU: y = silu(gate) * up (model.md §2.2), and rows of chunks into slots.
 * All [n, cols]; y may be an input. */
#pragma once
#include "kernels/device/device.h"

/* Chunk c goes into slot[c] (in device memory; NULL: into slot c). The slots are distinct. */
struct elementwise_slots { const int32_t *slot; int64_t chunks; int positions, slot_rows, live; };

struct elementwise_ops {
    /* y = x in y's type: float32 and bf16 in any pair, and float32 x in fp16 (the CPU: of float32 x alone). */
    void (*convert)(struct device *dev, struct mat y, struct mat x);
    void (*add)(struct device *dev, struct mat y, struct mat a, struct mat b);
    void (*swiglu)(struct device *dev, struct mat y, struct mat gate, struct mat up);
    /* dgate, dup are overwritten; they may be gate and up. */
    void (*swiglu_backward)(struct device *dev, struct mat dgate, struct mat dup, struct mat dy, struct mat gate,
                            struct mat up);
    /* Row c * positions + r of x becomes row slot[c] * slot_rows + r of pool for r < live; rows live .. slot_rows-1
     * become zero. */
    void (*write_slots)(struct device *dev, struct mat pool, struct mat x, struct elementwise_slots slots);
};
extern const struct elementwise_ops elementwise_cpu;
