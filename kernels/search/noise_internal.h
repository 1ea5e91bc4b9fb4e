/* noise_internal.h -- Gumbel noise of a pair (row, landmark): a counter's hash, so that both twins and every order of
 * work draw the same numbers. Included from C and from CUDA. */
#pragma once
#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define NOISE static __host__ __device__ __forceinline__
#else
#define NOISE static inline
#endif

/* SplitMix64's finalizer (Stafford's variant 13): every bit of the result depends on every bit of x. */
NOISE uint64_t noise_mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}
/* Made once for a row. */
NOISE uint64_t noise_row(uint64_t seed, uint64_t row) {
    return noise_mix(noise_mix(seed + 0x9e3779b97f4a7c15u) + row * 0x9e3779b97f4a7c15u);
}

/* u = (23 bits + 1/2) / 2^23 lies strictly between 0 and 1 and is exact in float, so both logarithms are finite:
 * the noise is in -2.8 .. 16.7. */
NOISE float noise_gumbel(uint64_t row, uint64_t landmark) {
    uint64_t bits = noise_mix(row + landmark * 0xd1342543de82ef95u) >> 41;
    float u = ((float)(uint32_t)bits + 0.5f) * 0x1p-23f;
    return -logf(-logf(u));
}
