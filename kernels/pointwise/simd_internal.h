/* simd_internal.h -- LANES floats at a time in GCC's vector types, as many as a register of the target holds. GCC 12
 * keeps wider vectors in memory and cuts some of their operations into single floats: with 16 floats on AVX2 attention
 * took 64 times as long. Everything is inlined, so the ABI of vector arguments never matters (hence the pragma). */
#pragma once
#include <stdint.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif
#pragma GCC diagnostic ignored "-Wpsabi"

/* SIMD_ROWS by SIMD_VECTORS sums fit in registers, for loops that keep a block of them: there are 32 registers of 16
 * floats (AVX-512) or 4 (NEON), or 16 of 8 (or less). SIMD_SUMS: 16 sums, or 8, fit together with their operands. */
#if defined(__AVX512F__)
enum { LANES = 16, SIMD_ROWS = 8, SIMD_VECTORS = 2, SIMD_SUMS = 16 };
#elif defined(__AVX__)
enum { LANES = 8, SIMD_ROWS = 6, SIMD_VECTORS = 2, SIMD_SUMS = 8 };
#elif defined(__aarch64__)
enum { LANES = 4, SIMD_ROWS = 8, SIMD_VECTORS = 2, SIMD_SUMS = 16 };
#else
enum { LANES = 4, SIMD_ROWS = 6, SIMD_VECTORS = 2, SIMD_SUMS = 8 };
#endif
typedef float vf __attribute__((vector_size(LANES * 4)));
typedef int32_t vi __attribute__((vector_size(LANES * 4)));
typedef float vf_unaligned __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
#define SIMD static inline __attribute__((always_inline, unused))

SIMD vf v_load(const float *p) { return *(const vf_unaligned *)p; }
SIMD void v_store(float *p, vf x) { *(vf_unaligned *)p = x; }
/* LANES bf16 numbers: the upper halves of floats. GCC 12 would convert halves of a vector one after the other. */
SIMD vf v_load_bf16(const uint16_t *p) {
#if defined(__AVX512F__)
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p)), 16);
#elif defined(__AVX2__)
    return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)), 16);
#endif
    typedef uint16_t half_lanes __attribute__((vector_size(LANES * 2), aligned(2), may_alias));
    return (vf)(__builtin_convertvector(*(const half_lanes *)p, vi) << 16);
}
SIMD vf v_set(float x) { return x - (vf){0}; }              /* x - 0 is x for every x, -0 and NaN too */

/* The first n < LANES floats; the rest is zero. */
SIMD vf v_load_part(const float *p, int64_t n) {
    vf x = {0};
    memcpy(&x, p, (size_t)n * sizeof(float));
    return x;
}
SIMD vf v_load_bf16_part(const uint16_t *p, int64_t n) {
    uint16_t x[LANES] = {0};
    memcpy(x, p, (size_t)n * sizeof *p);
    return v_load_bf16(x);
}
SIMD void v_store_part(float *p, vf x, int64_t n) { memcpy(p, &x, (size_t)n * sizeof(float)); }

SIMD vf v_select(vi mask, vf yes, vf no) { return (vf)((mask & (vi)yes) | (~mask & (vi)no)); }
/* The greater number of each lane; NaN in b is kept. */
SIMD vf v_max(vf a, vf b) { return v_select(a > b, a, b); }
SIMD vf v_min(vf a, vf b) { return v_select(a < b, a, b); }

typedef float v_four __attribute__((vector_size(16)));
typedef float v_eight __attribute__((vector_size(32)));
SIMD float v_sum_four(v_four x) { return (x[0] + x[2]) + (x[1] + x[3]); }
SIMD float v_sum_eight(v_eight x) {
    return v_sum_four(__builtin_shufflevector(x, x, 0, 1, 2, 3) + __builtin_shufflevector(x, x, 4, 5, 6, 7));
}
SIMD float v_sum(vf x) {
#if defined(__AVX512F__)
    return v_sum_eight(__builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
                       __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15));
#elif defined(__AVX__)
    return v_sum_eight(x);
#else
    return v_sum_four(x);
#endif
}
SIMD float v_largest(vf x) {
    float best = x[0];
    for (int i = 1; i < LANES; i++) best = x[i] > best ? x[i] : best;
    return best;
}

/* e^x within 2 ulp; 0 below -87.3 (where float loses its precision anyway), NaN stays NaN. x = n ln 2 + r with
 * |r| <= ln 2 / 2, e^r by its minimax polynomial (Cephes expf), times 2^n put together from its exponent bits. */
SIMD vf v_exp(vf x) {
    const float lowest = -87.3f, highest = 88.3762626647949f, shift = 12582912.0f;   /* 1.5 * 2^23 rounds to integer */
    vf clamped = v_min(v_set(highest), v_max(v_set(lowest), x));
    vf shifted = clamped * 1.44269504088896341f + shift;
    vf n = shifted - shift;
    vf r = clamped - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    vf p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    vi power = (vi)shifted << 23;        /* n sits in the low bits of `shifted` */
    vf y = (vf)((vi)p + power);
    return v_select(x < lowest, (vf){0}, y);
}

/* Sum of a[i] * b[i]: four chains, so that the adds do not wait for each other. */
SIMD float v_dot(const float *a, const float *b, int64_t n) {
    vf s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        s0 += v_load(a + i) * v_load(b + i);
        s1 += v_load(a + i + LANES) * v_load(b + i + LANES);
        s2 += v_load(a + i + 2 * LANES) * v_load(b + i + 2 * LANES);
        s3 += v_load(a + i + 3 * LANES) * v_load(b + i + 3 * LANES);
    }
    for (; i + LANES <= n; i += LANES) s0 += v_load(a + i) * v_load(b + i);
    if (i < n) s1 += v_load_part(a + i, n - i) * v_load_part(b + i, n - i);
    return v_sum((s0 + s1) + (s2 + s3));
}
