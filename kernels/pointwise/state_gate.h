/* state_gate.h -- the fixed gate of a recurrent state (model.md §10.1): y = g * c + (1 - g) * z, g = sigmoid(b).
 *
 * c, y [n, d] float32: the state, which is carried through a text. z [n, d], b [1, d] of one type, float32 or (a GPU)
 * bf16: one gate for each column, whatever the row. y may be c, or z where the types are equal. */
#pragma once
#include "kernels/device/device.h"

struct state_gate_gradients { struct mat dc, dz, db; };

struct state_gate_ops {
    void (*forward)(struct device *dev, struct mat y, struct mat c, struct mat z, struct mat b);
    /* dy, dc float32; dz of z's type. dc, dz are overwritten; dc may be dy. db [1, d] float32 is added to. The result
     * has the same bits each time. */
    void (*backward)(struct device *dev, const struct state_gate_gradients *to, struct mat dy, struct mat c,
                     struct mat z, struct mat b);
};
extern const struct state_gate_ops state_gate_cpu;
