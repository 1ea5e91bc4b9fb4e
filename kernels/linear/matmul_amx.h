/* matmul_amx.h -- the CPU twin's products of many rows on a processor with AMX: tiles of bf16 with float32 sums, at
 * float32's accuracy. The build has matmul_amx.c, or matmul_noamx.c, which never opens; no other file tests for AMX.
 *
 * A float32 number is exactly the sum of three bf16 numbers: the first 8, the next 8 and the last 8 bits of its
 * significand. So x w is at most nine products of bf16 numbers, each exact in float32. If w is a bf16 number itself
 * (models are saved so) there are three. Otherwise the six largest are taken; the others are below 2^-20 of |x w|. A
 * sum is rounded less often than in a loop of float32, because 32 products at a time are added to it. Numbers below
 * 2^-126, and parts of numbers below it, count as zero (an absolute error of 2^-125 |w|, 2^-125 |x|). A sum with an
 * infinity or NaN among its terms is an infinity or NaN, though not always the same one.
 *
 * The bits of a row of y do not depend on the other rows, the columns and the threads of the call. */
#pragma once
#include "kernels/device/device.h"

struct matmul_amx {
    /* Whether the processor and the system let this process use tiles; requests them from the system. */
    bool (*open)(void);
    /* As the ops of struct matmul_ops (matmul.h); any `packed` of at least 4 bytes' alignment. packed_elements: for any
     * w. */
    int64_t (*packed_elements)(int64_t out, int64_t in);
    void (*pack)(float *packed, struct mat w);
    void (*forward_packed)(struct device *dev, struct mat y, struct mat x, const float *packed, bool accumulate);
    /* With x and w rounded to bf16: one product instead of three or six. Only where matmul_bf16.open is true. */
    void (*pack_rounded)(float *packed, struct mat w);
    void (*forward_rounded)(struct device *dev, struct mat y, struct mat x, const float *packed, bool accumulate);
    void (*forward)(struct device *dev, struct mat y, struct mat x, struct mat w, bool accumulate);
};
extern const struct matmul_amx matmul_amx;
