/* half.c -- converts single values by bit operations. For rows it uses the compiler's conversions if the build
 * has F16C or NEON. */
#include "base/half_lanes.h"
#include <string.h>

static uint32_t bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}
static float float_of(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}

float half_from_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, fraction = h & 0x3ff;
    if (exponent == 31) return float_of(sign | 0x7f800000u | fraction << 13);
    if (exponent != 0) return float_of(sign | (exponent + 112) << 23 | fraction << 13);
    float value = (float)fraction * 0x1p-24f; /* exact: subnormal of fp16 */
    return sign ? -value : value;
}

uint16_t half_to_f16(float f) {
    uint32_t u = bits_of(f), sign = (u >> 16) & 0x8000, magnitude = u & 0x7fffffff;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00); /* 65520 and above round to infinity */
    if (magnitude < 0x38800000u) {                                  /* below 2^-14: subnormal, units of 2^-24 */
        float scaled = float_of(magnitude) * 0x1p24f;
        uint32_t whole = (uint32_t)scaled;
        float rest = scaled - (float)whole;
        if (rest > 0.5f || (rest == 0.5f && (whole & 1))) whole++;
        return (uint16_t)(sign | whole);
    }
    uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
    return (uint16_t)(sign | ((rounded >> 13) - (112u << 10)));
}

float half_from_bf16(uint16_t bits) {
    return float_of((uint32_t)bits << 16);
}

uint16_t half_to_bf16(float f) {
    uint32_t u = bits_of(f);
    if ((u & 0x7fffffff) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

#if defined(__F16C__)

void half_from_f16_row(float *out, const uint16_t *in, size_t n) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, (__m256)half_lanes_from_f16(in + i));
    for (; i < n; i++)
        out[i] = half_from_f16(in[i]);
}

void half_to_f16_row(uint16_t *out, const float *in, size_t n) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(out + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    for (; i < n; i++)
        out[i] = half_to_f16(in[i]);
}

#elif defined(__aarch64__)

void half_from_f16_row(float *out, const uint16_t *in, size_t n) {
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        vst1q_f32(out + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(in + i))));
    for (; i < n; i++)
        out[i] = half_from_f16(in[i]);
}

void half_to_f16_row(uint16_t *out, const float *in, size_t n) {
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        vst1_u16(out + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(in + i))));
    for (; i < n; i++)
        out[i] = half_to_f16(in[i]);
}

#else

void half_from_f16_row(float *out, const uint16_t *in, size_t n) {
    for (size_t i = 0; i < n; i++)
        out[i] = half_from_f16(in[i]);
}

void half_to_f16_row(uint16_t *out, const float *in, size_t n) {
    for (size_t i = 0; i < n; i++)
        out[i] = half_to_f16(in[i]);
}

#endif

void half_from_bf16_row(float *out, const uint16_t *in, size_t n) {
    for (size_t i = 0; i < n; i++)
        out[i] = half_from_bf16(in[i]);
}

void half_to_bf16_row(uint16_t *out, const float *in, size_t n) {
    for (size_t i = 0; i < n; i++)
        out[i] = half_to_bf16(in[i]);
}
