/* half_lanes.h -- converts 8 fp16 numbers to float, inline, for loops that read rows as stored. */
#pragma once
#include "base/half.h"
#if defined(__F16C__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#include <string.h>
#endif

typedef float half_lanes __attribute__((vector_size(32)));

static inline half_lanes half_lanes_from_f16(const uint16_t *p) {
#if defined(__F16C__)
    return (half_lanes)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
#elif defined(__aarch64__)               /* every such processor converts; arithmetic in fp16 is optional */
    float32x4_t half[2];
    for (int i = 0; i < 2; i++) half[i] = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i)));
    half_lanes x;
    memcpy(&x, half, sizeof x);
    return x;
#else
    half_lanes x;
    for (int i = 0; i < 8; i++) x[i] = half_from_f16(p[i]);
    return x;
#endif
}
