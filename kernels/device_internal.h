/* device_internal.h -- what the CPU twins find behind a device: scratch memory of each worker, taken once. */
#pragma once
#include "kernels/device.h"

/* Scratch of one worker. Ops cut their work so that this is enough whatever the shapes: nothing is allocated by an op.
 * Pages that no op touches cost nothing. */
enum { DEVICE_SCRATCH_BYTES = 2 << 20 };

/* Cosines and sines of rope for the last shape asked for: they change once in a program's life. */
enum { DEVICE_ROPE_MAX = 1 << 14 };      /* period * dh/2 pairs that are kept */
struct device_rope { int period, half; float theta; float *cosine, *sine; };

struct device_cpu {
    int workers;                         /* of this device: 1 for a worker's own */
    unsigned char *scratch;              /* worker w's begins at w * DEVICE_SCRATCH_BYTES; 64-byte aligned */
    struct device_rope rope;
    struct device *serial;               /* [workers] what device_worker gives; NULL in those themselves */
};

static inline struct device_cpu *device_cpu(struct device *dev) { return dev->state; }
static inline void *device_scratch(struct device *dev, int worker) {
    return device_cpu(dev)->scratch + (size_t)worker * DEVICE_SCRATCH_BYTES;
}
