/* best_keys_cuda.cuh -- the best k of keys, of which no two are equal, by a block of threads: a threshold is found
 * digit by digit, 11 bits in each pass, from the top. Up to SPARE more keys than wanted may reach it, so one or two
 * passes are enough most of the time. 0 is no key. */
#pragma once
#include "kernels/cuda/cuda.cuh"

enum {
    BEST_K_MAX = 1024, BEST_SPARE = 64,
    BEST_DIGIT = 11, BEST_BINS = 1 << BEST_DIGIT,
};

struct best_select {
    uint32_t bins[BEST_BINS], of_warp[32];
    uint32_t digit, at_least, in_digit, count;
};

/* Inclusive sums over the threads of a block; every thread calls. */
template <int THREADS> static __device__ uint32_t best_prefix(uint32_t x, uint32_t *of_warp) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        uint32_t before = __shfl_up_sync(~0u, x, offset);
        if (lane >= offset) x += before;
    }
    __syncthreads();
    if (lane == 31) of_warp[warp] = x;
    __syncthreads();
    uint32_t sum = lane < THREADS / 32 ? of_warp[lane] : 0;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        uint32_t before = __shfl_up_sync(~0u, sum, offset);
        if (lane >= offset) sum += before;
    }
    uint32_t all_before = __shfl_sync(~0u, sum, warp ? warp - 1 : 0);
    return x + (warp ? all_before : 0);
}

/* A key above 0 such that at least `wanted` keys are not below it and, unless there are fewer than `wanted`, at most
 * wanted + SPARE. each(f) calls f(key) for the keys of this thread; keys of 0 do not count, others are unique and have
 * BITS bits. All threads call it and get the result. */
template <int THREADS, int BITS, typename EACH_KEY>
static __device__ uint64_t best_threshold(best_select *s, uint32_t wanted, EACH_KEY each) {
    constexpr int OWN = BEST_BINS / THREADS; /* bins of a thread */
    static_assert(BEST_BINS % THREADS == 0 && BITS <= 64);
    uint64_t prefix = 0;
    uint32_t above = 0; /* keys whose first digits are greater than the prefix */
    int shift = BITS;
    do { /* in the last pass at_least is `wanted`, since keys are unique */
        int next = shift > BEST_DIGIT ? shift - BEST_DIGIT : 0;
        uint32_t digits = (1u << (shift - next)) - 1;
        __syncthreads();
        for (int i = threadIdx.x; i < BEST_BINS; i += THREADS)
            s->bins[i] = 0;
        if (threadIdx.x == 0) s->at_least = 0;
        __syncthreads();
        each([&](uint64_t key) {
            bool same = (BITS == 64 && shift == 64) || key >> shift == prefix;
            if (key && same) atomicAdd(&s->bins[(uint32_t)(key >> next) & digits], 1u);
        });
        __syncthreads();
        /* the first thread has the bins of the greatest digits */
        int high = BEST_BINS - 1 - OWN * (int)threadIdx.x;
        uint32_t in_own = 0;
        for (int i = 0; i < OWN; i++)
            in_own += s->bins[high - i];
        uint32_t until = above + best_prefix<THREADS>(in_own, s->of_warp), before = until - in_own;
        if (before < wanted && until >= wanted) { /* at most one thread */
            int i = 0;
            while (before + s->bins[high - i] < wanted)
                before += s->bins[high - i++];
            s->digit = (uint32_t)(high - i);
            s->in_digit = s->bins[high - i];
            s->at_least = before + s->in_digit;
        }
        __syncthreads();
        if (s->at_least == 0) return 1; /* fewer than wanted: all */
        prefix = prefix << (shift - next) | s->digit;
        above = s->at_least - s->in_digit;
        shift = next;
    } while (s->at_least > wanted + BEST_SPARE);
    uint64_t least = prefix << shift;
    return least ? least : 1;
}

/* Gathers the keys that reach the threshold of the best k of from[n]: in `best` [k + SPARE], in no order. Returns their
 * number. All threads call it. */
template <int THREADS, int BITS>
static __device__ int best_gather(best_select *s, uint64_t *best, const uint64_t *from, int n, int k) {
    auto each = [&](auto f) {
#pragma unroll 4
        for (int i = threadIdx.x; i < n; i += THREADS)
            f(from[i]);
    };
    uint64_t least = best_threshold<THREADS, BITS>(s, (uint32_t)k, each);
    if (threadIdx.x == 0) s->count = 0;
    __syncthreads();
    each([&](uint64_t key) {
        if (key >= least) best[atomicAdd(&s->count, 1u)] = key;
    });
    __syncthreads();
    return (int)s->count;
}

/* Calls out(rank, key) for the best k of n unique keys. A key's rank is the number of greater ones. */
template <int THREADS, typename OUT>
static __device__ void best_ranks(const uint64_t *best, int n, int k, OUT out) {
    for (int i = threadIdx.x; i < n; i += THREADS) {
        uint64_t key = best[i];
        int rank = 0;
#pragma unroll 8
        for (int j = 0; j < n; j++)
            rank += best[j] > key;
        if (rank < k) out(rank, key);
    }
}
