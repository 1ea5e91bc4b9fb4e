/* state_gate.h -- the fixed gate of a recurrent state (model.md §10.1): y = g * c + (1 - g) * z, g = sigmoid(b).
 *
 * c, z, y [n, d]; b [1, d]: one gate for each column, whatever the row. y may be c or z. A GPU has no twin of this op:
 * its table has NULL here, and towers that need the op refuse such a device. */
#pragma once
#include "kernels/device/device.h"

struct state_gate_gradients { struct mat dc, dz, db; };

struct state_gate_ops {
    void (*forward)(struct device *dev, struct mat y, struct mat c, struct mat z, struct mat b);
    /* dc, dz are overwritten; dc may be dy. db [1, d] float32 is added to; rows are summed in their order. */
    void (*backward)(struct device *dev, const struct state_gate_gradients *to, struct mat dy, struct mat c,
                     struct mat z, struct mat b);
};
extern const struct state_gate_ops state_gate_cpu;
