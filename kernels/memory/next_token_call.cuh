/* next_token_call.cuh -- arguments of the two kernels of next_token, and what the first leaves for the second. */
#pragma once
#include "kernels/decode_step/logit_share.cuh"
#include "kernels/memory/token_memory_cuda.cuh"
extern "C" {
#include "kernels/memory/next_token.h"
}

enum { NEXT_BLOCKS_MAX = 512, READ_BLOCKS_MAX = 112 };
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
enum { MIX_FEATURES = 2 + 3 * MEMORY_SIDES }; /* those that need the logits */
static_assert((int)MIX_FEATURES <= 32 && (int)MEMORY_GATE_HIDDEN == 16 && (int)MEMORY_SIDES == 2, "lanes of a warp");
struct mix_gate { /* the gate's parameters that remain, as float32 */
    float mean[MIX_FEATURES], by[MIX_FEATURES]; /* by: 1 / deviation */
    float w1[MIX_FEATURES][MEMORY_GATE_HIDDEN], w2[MEMORY_SIDES][MEMORY_GATE_HIDDEN], b2[MEMORY_SIDES];
};

/* What blocks give each other: words of 8 bytes in the device's counters, which are 0 between ops. A word is written
 * and read at once, and is not 0 when it is there, so it is its own signal: an exchange costs one access, not a flag, a
 * fence and the data. Values are stored plus 1; none has all bits set. */
enum { NEXT_TALLY_WORDS = 7, NEXT_FOUND_WORDS = sizeof(next_found) / 8 };
static_assert(sizeof(next_found) % 8 == 0 && (int)MEMORY_SIDES == 2, "whole words");
struct next_exchange {
    unsigned mixed, none; /* blocks of the mixing kernel that wait no more */
    unsigned long long found[NEXT_FOUND_WORDS];
    struct {
        unsigned long long near, tally[NEXT_TALLY_WORDS];
    } of[READ_BLOCKS_MAX]; /* of the reading kernel's blocks */
};
static_assert(sizeof(next_exchange) <= DEVICE_CUDA_COUNTERS * sizeof(unsigned), "counters");

template <typename T> struct next_side {
    memory_view v;
    memory_sources<T> in;
    packed_keys packed; /* of slots; code NULL: they are numbers */
    memory_marks marks;
    const memory_marks *found; /* NULL: `marks` */
    float *w, *p;
    int columns; /* 0: not read */
    int tiles;   /* that the reading kernel makes of them */
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
    mix_gate *mix; /* the reading kernel makes it for the mixing kernel */
    unsigned long long *sums[MEMORY_SIDES]; /* [V] */
    next_side<T> side[MEMORY_SIDES];
    int vocab, state_d, d, columns; /* d: of keys */
    int tile;                       /* entries of a tile: READ_TILE, or READ_CODES if a side has codes */
    int entries;                    /* of a block's tiles, with those that are none */
    int stages;         /* rounds of keys in shared memory; 0: none, keys are read at once */
    int first_stages;   /* that are filled before the state is there */
    int project_strips; /* strips of the projection in shared memory until then */
    int stage_bytes;    /* of a warp's stages */
    int readers, ids;               /* blocks of the reading kernel; ids of a block of the mixing kernel */
    bool tiles;                     /* keys, and rows of the projection, are multiplied on the tensor cores */
};

/* Memory that an earlier kernel may have written while this one already ran is read past the L1 cache. */
template <typename X> static __device__ __forceinline__ X next_load(const X *from) {
    return __ldcg(from);
}
/* ---- between blocks ---- */

static __device__ __forceinline__ void next_fence() {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}
/* One thread: waits until the count is `at` or more. A block barrier follows. */
static __device__ __forceinline__ void next_poll(const unsigned *count, unsigned at) {
    unsigned x;
    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(count) : "memory");
    } while ((int)(x - at) < 0);
}
static __device__ __forceinline__ void next_give(unsigned long long *to, unsigned long long x) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(x + 1) : "memory");
}
static __device__ __forceinline__ unsigned long long next_take(const unsigned long long *from) {
    unsigned long long x;
    do {
        asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(x) : "l"(from) : "memory");
    } while (x == 0);
    return x - 1;
}
/* Features that need the logits are the first two and these of each side (memory_side_features). */
enum { NEXT_OF_TOP = 5, NEXT_LM_OF_TOP = 6, NEXT_SAME = 7 };
static __device__ __forceinline__ bool next_needs_logits(int feature) {
    const int of_side = (feature - 3) % MEMORY_SIDE_FEATURES;
    return feature < 2 || (feature > 2 && of_side >= NEXT_OF_TOP && of_side <= NEXT_SAME);
}
