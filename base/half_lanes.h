/* half_lanes.h -- converts 8 fp16 numbers, or 8 signed bytes, to float. Inline functions for loops that
 * read stored rows. */
#pragma once
#include "base/half.h"
#if defined(__F16C__) || defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#include <string.h>
#endif

typedef float half_lanes __attribute__((vector_size(32)));

static inline half_lanes half_lanes_from_f16(const uint16_t *p) {
#if defined(__F16C__)
    return (half_lanes)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
#elif defined(__aarch64__)               /* all such processors convert fp16; fp16 arithmetic is optional */
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

static inline half_lanes half_lanes_from_i8(const int8_t *p) {
#if defined(__AVX2__)
    return (half_lanes)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
#elif defined(__aarch64__)
    int16x8_t wide = vmovl_s8(vld1_s8(p));
    float32x4_t half[2] = {vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(wide)))};
    half_lanes x;
    memcpy(&x, half, sizeof x);
    return x;
#else
    half_lanes x = {0};
    for (int i = 0; i < 8; i++) x[i] = p[i];
    return x;
#endif
}
