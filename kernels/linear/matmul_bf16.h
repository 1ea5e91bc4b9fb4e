/* matmul_bf16.h -- the CPU twin's rounded products (matmul.h) on a processor with AVX512_BF16: x and w rounded to bf16,
 * sums in float32. The build has matmul_bf16.c, or matmul_nobf16.c, which never opens; no other file tests for it.
 *
 * Numbers below 2^-126 count as zero. A finite number above the largest of bf16 (3.39e38) rounds to an infinity. Two
 * terms of a sum are added by one instruction, in the order of `in`.
 *
 * The bits of a row of y do not depend on the other rows, the columns and the threads of the call. */
#pragma once
#include "kernels/device/device.h"

struct matmul_bf16 {
    bool (*open)(void);                  /* whether the processor has the instructions */
    /* As the ops of struct matmul_ops (matmul.h); `packed` aligned to 4 bytes. */
    int64_t (*packed_elements)(int64_t out, int64_t in);
    void (*pack)(float *packed, struct mat w);
    void (*forward_packed)(struct device *dev, struct mat y, struct mat x, const float *packed, bool accumulate);
};
extern const struct matmul_bf16 matmul_bf16;
/* The same bits from the same packed weights by fused multiply-adds. open: whether that is faster on this processor. */
extern const struct matmul_bf16 matmul_bf16_fused;
/* The same bits in plain C, on any processor: many times slower (matmul_bf16_plain.c). */
extern const struct matmul_bf16 matmul_bf16_plain;
