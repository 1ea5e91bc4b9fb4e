/* packed_keys.h -- keys of a token memory in 8 bits a number, as a store keeps them (docs/token-memory.md).
 *
 *   key_j = scale code_j     scale = max over j of |key_j| / 127, code_j in -127 .. 127
 *
 * An error of a number is at most scale / 2, and the rounding of the keys' type. Codes, scales and keys have the same
 * bits on every device: quotients and products are float32, rounded to nearest even, as are codes. Bound: memory. */
#pragma once
#include "kernels/device/device.h"

/* n rows of m numbers, of the host or of a device. */
struct packed_keys {
    const int8_t *code;                  /* [n, m] */
    const float *scale;                  /* [n] */
};

struct packed_keys_ops {
    /* code [n, m] and scale [n] of keys [n, m] of any type. A row of zeros has scale 0 and codes 0. A row with a
     * number that is not finite has scale NaN and codes 0: all its numbers are NaN when it is unpacked. */
    void (*pack)(struct device *dev, int8_t *code, float *scale, struct mat keys);
    /* Row r of code [n, m] becomes row to[r] of keys [.., m], rounded to their type, and its squared norm
     * square[to[r]], with the bits of token_memory_ops.squares. to[r] < 0: skipped. The others differ. */
    void (*unpack)(struct device *dev, struct mat keys, float *square, const int8_t *code, const float *scale,
                   const int32_t *to, int64_t n);
};
extern const struct packed_keys_ops packed_keys_cpu;
