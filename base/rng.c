/* rng.c -- Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011). */
#include "base/rng.h"
#include <math.h>

void rng_philox(uint32_t out[4], uint64_t seed, uint64_t stream, uint64_t counter) {
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint32_t x0 = (uint32_t)counter, x1 = (uint32_t)(counter >> 32), x2 = (uint32_t)stream,
             x3 = (uint32_t)(stream >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * x0, b = (uint64_t)0xCD9E8D57u * x2;
        uint32_t y0 = (uint32_t)(b >> 32) ^ x1 ^ k0, y2 = (uint32_t)(a >> 32) ^ x3 ^ k1;
        x1 = (uint32_t)b;
        x3 = (uint32_t)a;
        x0 = y0;
        x2 = y2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = x0;
    out[1] = x1;
    out[2] = x2;
    out[3] = x3;
}

struct rng rng_make(uint64_t seed, uint64_t stream) {
    return (struct rng){seed, stream, 0};
}

/* The counter counts 32-bit words, four of which are one block. */
uint32_t rng_u32(struct rng *rng) {
    uint32_t block[4];
    rng_philox(block, rng->seed, rng->stream, rng->counter / 4);
    return block[rng->counter++ % 4];
}

uint64_t rng_u64(struct rng *rng) {
    uint64_t high = rng_u32(rng);
    return high << 32 | rng_u32(rng);
}

uint64_t rng_below(struct rng *rng, uint64_t n) {
    uint64_t threshold = (0 - n) % n; /* values under it would make the modulo uneven */
    for (;;) {
        uint64_t r = rng_u64(rng);
        if (r >= threshold) return r % n;
    }
}

float rng_uniform(struct rng *rng) {
    return (float)(rng_u32(rng) >> 8) * 0x1p-24f;
}

float rng_normal(struct rng *rng) {
    double u = 1.0 - (double)(rng_u32(rng) >> 8) * 0x1p-24, v = (double)(rng_u32(rng) >> 8) * 0x1p-24;
    return (float)(sqrt(-2.0 * log(u)) * cos(2.0 * 3.14159265358979323846 * v));
}
