/* pick_rule.h -- the arithmetic of a pick, the same on every device: weights are integers, and each random number is
 * computed from the seed, the number of the pick and the number of the draw.
 *
 *   x     logits after the penalty; banned ids and NaN are not there
 *   unit  2^29 exp((x - top) / temperature), rounded down: an integer
 *   1. K: the top_k ids of the greatest x, equal ones by id. goal: the part top_p of the sum of K's units, rounded up.
 *   2. R: the ids of K whose unit is at least 2^29 min_p, and not 0
 *   3. An id is drawn from R: units are intervals side by side, in the order of ids. Before it: the ids of R of greater
 *      x, and of equal x and smaller id. If their units are less than the goal (or top_p is 1), it is the pick. If not,
 *      R becomes those before it, and step 3 repeats.
 *
 * So an id of the smallest set of best ids whose share reaches top_p keeps its share of that set. Floating-point
 * operations are single IEEE additions and multiplications: compile C with -ffp-contract=off. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define PICK_FUNCTION static __host__ __device__ __forceinline__
#else
#define PICK_FUNCTION static inline
#endif

enum { PICK_UNIT_BITS = 29 };

struct pick_rule {
    float scale;                         /* log2(e) / temperature, at most FLT_MAX; 0: greedy */
    float penalty;                       /* 1: none */
    int64_t repeat_last;                 /* ids that the penalty reads */
    int64_t n_seen;                      /* ids of the text so far */
    int64_t top_k;                       /* 0: off */
    uint64_t share;                      /* top_p in units of 2^-32; 2^32: off */
    uint32_t least;                      /* min_p in units of 2^-29; at least 1 */
    uint64_t seed, number;               /* number: picks before this one */
};

#ifdef __CUDA_ARCH__
static __device__ __forceinline__ float pick_add(float a, float b) { return __fadd_rn(a, b); }
static __device__ __forceinline__ float pick_multiply(float a, float b) { return __fmul_rn(a, b); }
static __device__ __forceinline__ float pick_divide(float a, float b) { return __fdiv_rn(a, b); }
#else
PICK_FUNCTION float pick_add(float a, float b) { return a + b; }
PICK_FUNCTION float pick_multiply(float a, float b) { return a * b; }
PICK_FUNCTION float pick_divide(float a, float b) { return a / b; }
#endif

PICK_FUNCTION float pick_penalise(float x, float by) { return x > 0 ? pick_divide(x, by) : pick_multiply(x, by); }

/* 2^(t + bits) for -126 <= t <= 0: t = n + f with |f| <= 1/2; 2^f is a polynomial with 2^0 = 1 whose relative error is
 * at most 9.2e-8; n + bits is added to its exponent. The same operations as in decoder/logits/logit_scan.c. */
PICK_FUNCTION float pick_power(float t, int bits) {
    const float shift = 12582912.0F + (float)bits; /* 1.5 * 2^23 rounds to integer */
    const float shifted = pick_add(t, shift), f = pick_add(t, -pick_add(shifted, -shift));
    const float square = pick_multiply(f, f);
    const float high = pick_add(pick_multiply(f, 1.326472032815218e-3F), 9.671512991189957e-3F),
                middle = pick_add(pick_multiply(f, 5.550733953714371e-2F), 2.402224242687225e-1F),
                low = pick_add(pick_multiply(f, 6.931470036506653e-1F), 1.0F);
    float p = pick_add(pick_multiply(pick_add(pick_multiply(high, square), middle), square), low);
    uint32_t bits_of, bits_shifted;
    memcpy(&bits_of, &p, 4);
    memcpy(&bits_shifted, &shifted, 4);
    bits_of += bits_shifted << 23;
    memcpy(&p, &bits_of, 4);
    return p;
}

/* The unit of logit x; 0 for NaN. top is finite. */
PICK_FUNCTION uint32_t pick_unit(float x, float top, float scale) {
    const float t = pick_multiply(pick_add(x, -top), scale);
    return t >= -30.0F ? (uint32_t)(int32_t)pick_power(t, PICK_UNIT_BITS) : 0;
}

/* A weight exp(x - top) for log-probabilities, in units of 2^-40. */
PICK_FUNCTION uint64_t pick_fine_unit(float x, float top) {
    const float t = pick_multiply(pick_add(x, -top), 1.4426950408889634F);
    return t >= -41.0F ? (uint64_t)pick_multiply(pick_power(t, 0), 1099511627776.0F) : 0;
}

/* Bits of a number, in its order. Both zeros are 0x80000000, -infinity is 0x007FFFFF, +infinity 0xFF800000. */
PICK_FUNCTION uint32_t pick_order(float x) {
    const float plain = pick_add(x, 0.0F);
    uint32_t bits;
    memcpy(&bits, &plain, 4);
    return bits & 0x80000000U ? ~bits : bits | 0x80000000U;
}
#define PICK_ORDER_INFINITE 0x007FFFFFU  /* of -infinity */

/* The sum that ids before a pick must stay below: at least 1. total < 2^53. */
PICK_FUNCTION uint64_t pick_goal(uint64_t total, uint64_t share) {
    const uint64_t goal = (total >> 32) * share + (((total & 0xFFFFFFFFU) * share + 0xFFFFFFFFU) >> 32);
    return goal > 0 ? goal : 1;
}

/* The upper 64 bits of a product: r / 2^64 of total. */
PICK_FUNCTION uint64_t pick_part(uint64_t r, uint64_t total) {
    const uint64_t rh = r >> 32, rl = r & 0xFFFFFFFFU, th = total >> 32, tl = total & 0xFFFFFFFFU;
    const uint64_t middle = rh * tl + (rl * tl >> 32), other = rl * th + (middle & 0xFFFFFFFFU);
    return rh * th + (middle >> 32) + (other >> 32);
}

/* The random number of a draw: as rng_philox of base/rng.h with stream `number` and counter `draw`, two words. */
PICK_FUNCTION uint64_t pick_random(uint64_t seed, uint64_t number, uint64_t draw) {
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint32_t x0 = (uint32_t)draw, x1 = (uint32_t)(draw >> 32), x2 = (uint32_t)number, x3 = (uint32_t)(number >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53U * x0, b = (uint64_t)0xCD9E8D57U * x2;
        const uint32_t y0 = (uint32_t)(b >> 32) ^ x1 ^ k0, y2 = (uint32_t)(a >> 32) ^ x3 ^ k1;
        x1 = (uint32_t)b, x3 = (uint32_t)a, x0 = y0, x2 = y2;
        k0 += 0x9E3779B9U, k1 += 0xBB67AE85U;
    }
    return (uint64_t)x0 << 32 | x1;
}

/* Of n equally likely ids (top is infinite) how many, the first ones, are drawn from: the index drawn is
 * pick_part(random, that). */
PICK_FUNCTION uint64_t pick_equals(uint64_t n, const struct pick_rule *rule) {
    if (rule->top_k > 0 && (uint64_t)rule->top_k < n) n = (uint64_t)rule->top_k;
    return rule->scale == 0 ? 1 : pick_goal(n, rule->share);
}
