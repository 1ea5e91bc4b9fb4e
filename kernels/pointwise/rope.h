/* rope.h -- rotary positions, half-split (GPT-NeoX) rotation, in place (model.md §3.2).
 *
 * x [n, h*dh]; row r has position r % period; angle of pair t in [0, dh/2): position * theta^(-2t/dh);
 * rot(x) = x cos + [-x2, x1] sin. */
#pragma once
#include "kernels/device/device.h"

struct rope_ops {
    void (*forward)(struct device *dev, struct mat x, int heads, int period, float theta);
    /* The inverse rotation, in place: a rotation's gradient. */
    void (*backward)(struct device *dev, struct mat dx, int heads, int period, float theta);
};
extern const struct rope_ops rope_cpu;
