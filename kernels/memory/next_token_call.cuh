/* next_token_call.cuh -- arguments of the two kernels of next_token, and what the first leaves for the second. */
#pragma once
#include "kernels/decode_step/logit_share.cuh"
#include "kernels/memory/token_memory_cuda.cuh"
extern "C" {
#include "kernels/memory/next_token.h"
}

enum { NEXT_BLOCKS_MAX = 512, NEXT_COLUMNS_MAX = 1 << 18 };
static_assert((int)MEMORY_FEATURES <= 32, "a lane for each feature");
/* Exponentials are added as integers in these units, so that the order does not matter: they are at most 1, and the sum
 * of 2^18 fits into 63 bits. One below 2^-46 of the nearest entry's adds nothing. */
#define NEXT_UNIT 0x1p45f

/* Of some tokens: a side's greatest sum, the first of equal ones. */
struct next_best {
    unsigned long long sum[MEMORY_SIDES];
    int token[MEMORY_SIDES];
};
struct next_sums { /* of the exponentials of a side, and of their squares */
    unsigned long long all[MEMORY_SIDES], squares[MEMORY_SIDES];
    unsigned long long lost[MEMORY_SIDES]; /* above 0: some exponential is NaN */
};
struct next_tally { /* of a block */
    next_best best;
    next_sums sums;
};
struct next_near { /* of a block: the least distances */
    float of[MEMORY_SIDES];
};
/* Of both memories, as far as the logits are not needed. */
struct next_found {
    double by[MEMORY_SIDES];           /* p of a token is its sum, times this */
    memory_evidence of[MEMORY_SIDES];  /* without of_top and lm_of_top */
    int best[MEMORY_SIDES];            /* the likeliest token */
    float hidden[MEMORY_GATE_HIDDEN];  /* of the gate's units: the sum over the features that need no logits */
};
/* Results that blocks exchange, in the device's scratch. */
struct next_exchange {
    next_tally tally[NEXT_BLOCKS_MAX];
    next_found found;
};
/* The device's counters, 0 between ops: blocks that have written `tally`; 1: `found` is complete; blocks of the mixing
 * kernel that wait no more; then each block's least distances, two words, which are not 0 when they are there
 * (next_near_words). */
enum { NEXT_COUNT_TALLY, NEXT_COUNT_FOUND, NEXT_COUNT_MIX, NEXT_COUNT_NEAR = 4 };
enum { NEXT_COUNTS = NEXT_COUNT_NEAR + 2 * NEXT_BLOCKS_MAX };
static_assert((int)NEXT_COUNTS <= (int)DEVICE_CUDA_COUNTERS && (int)MEMORY_SIDES == 2, "words of a block");

template <typename T> struct next_side {
    memory_view v;
    memory_sources<T> in;
    memory_marks marks;
    float *w, *p;
    int columns; /* 0: not read */
    bool read;   /* its gate may open */
};
template <typename T> struct next_call {
    const memory_gate *gate;
    const float *logits;
    const T *state, *projection; /* projection NULL: the state is the key */
    float *log_p;
    double *g;
    next_token_append append;
    /* struct decode_step_result; NULL: the decode step has ended */
    const uint32_t *ready, *done;
    uint32_t at, done_at;
    const logit_share *shares; /* of the logits */
    int n_shares;
    next_exchange *exchange;
    unsigned *counts;
    unsigned long long *sums[MEMORY_SIDES]; /* [V] */
    next_side<T> side[MEMORY_SIDES];
    int vocab, state_d, d, columns; /* d: of keys */
    int entries;                    /* of a block, with the last ones that are none: a multiple of READ_ROUND */
    int stages;                     /* rounds of keys in shared memory; 0: none, keys are read at once */
    int readers;                    /* blocks of the reading kernel */
    bool tiles, project_tiles;      /* keys, and rows of the projection, are multiplied on the tensor cores */
};

/* Memory that an earlier kernel may have written while this one already ran is read past the L1 cache. */
template <typename X> static __device__ __forceinline__ X next_load(const X *from) {
    return __ldcg(from);
}
/* The same for a struct of whole words of 8 bytes. */
template <typename X> static __device__ __forceinline__ X next_load_struct(const X *from) {
    static_assert(sizeof(X) % 8 == 0, "whole words");
    unsigned long long words[sizeof(X) / 8];
#pragma unroll
    for (int i = 0; i < (int)(sizeof(X) / 8); i++)
        words[i] = __ldcg((const unsigned long long *)from + i);
    X x;
    memcpy(&x, words, sizeof x);
    return x;
}
static __device__ __forceinline__ unsigned next_acquire(const unsigned *from) {
    unsigned x;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
    return x;
}
/* One thread: waits until the count is `at` or more. A block barrier follows. */
static __device__ __forceinline__ void next_poll(const unsigned *count, unsigned at) {
    while ((int)(next_acquire(count) - at) < 0)
        ;
    __threadfence();
}
/* Adds 1 to a count after all that this block has written; returns the count before. One thread, after a block barrier.
 * What the others wrote before they added is visible then. */
static __device__ __forceinline__ unsigned next_arrive(unsigned *count) {
    unsigned before;
    __threadfence();
    asm volatile("atom.add.release.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(count) : "memory");
    __threadfence();
    return before;
}
template <typename X> static __device__ __forceinline__ X next_shuffle(const X &x, int offset) {
    enum { WORDS = sizeof(X) / sizeof(int) };
    static_assert(sizeof(X) % sizeof(int) == 0, "whole words");
    int from[WORDS], to[WORDS];
    memcpy(from, &x, sizeof x);
#pragma unroll
    for (int i = 0; i < WORDS; i++)
        to[i] = __shfl_xor_sync(~0u, from[i], offset);
    X y;
    memcpy(&y, to, sizeof y);
    return y;
}
/* Over a warp, in a fixed order; every lane gets the result. */
template <typename X> static __device__ __forceinline__ X next_warp(X x) {
#pragma unroll
    for (int offset = 16; offset; offset /= 2)
        x = next_join(x, next_shuffle(x, offset));
    return x;
}

/* Features that need the logits are the first two and these of each side (memory_side_features). */
enum { NEXT_OF_TOP = 5, NEXT_LM_OF_TOP = 6, NEXT_SAME = 7 };
static __device__ __forceinline__ bool next_needs_logits(int feature) {
    const int of_side = (feature - 3) % MEMORY_SIDE_FEATURES;
    return feature < 2 || (feature > 2 && of_side >= NEXT_OF_TOP && of_side <= NEXT_SAME);
}
