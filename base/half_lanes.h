/* half_lanes.h -- 8 fp16 numbers to float at once, inline: for loops that read rows as they are stored. */
#pragma once
#include "base/half.h"
#if defined(__F16C__)
#include <immintrin.h>
#endif

typedef float half_lanes __attribute__((vector_size(32)));

static inline half_lanes half_lanes_from_f16(const uint16_t *p) {
#if defined(__F16C__)
    return (half_lanes)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
#else
    half_lanes x;
    for (int i = 0; i < 8; i++) x[i] = half_from_f16(p[i]);
    return x;
#endif
}
