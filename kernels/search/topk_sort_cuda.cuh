/* topk_sort_cuda.cuh -- a warp's 32 best places in registers, one a lane, best first: for joining lists that are made.
 *
 * The order (score, then smaller index; empty places last) is total, as topk_list_cuda.cuh's, so the result is one whatever
 * order places come in. Where most candidates are refused, a list there is cheaper: it looks at its last place only. */
#pragma once
#include "kernels/cuda/cuda.cuh"

struct sorted_place { /* empty: -inf, -1 */
    float score;
    int32_t index;
};

static __device__ __forceinline__ bool sorted_ahead(sorted_place a, sorted_place b) {
    return a.score > b.score || (a.score == b.score && (uint32_t)a.index < (uint32_t)b.index);
}

static __device__ __forceinline__ sorted_place sorted_from(sorted_place p, int lane) {
    return {__shfl_sync(~0u, p.score, lane), __shfl_sync(~0u, p.index, lane)};
}

/* The better of a lane's place and that of lane ^ stride, or the other one. */
static __device__ __forceinline__ sorted_place sorted_exchange(sorted_place mine, int stride, bool better) {
    sorted_place other = sorted_from(mine, (int)(threadIdx.x % 32) ^ stride);
    return sorted_ahead(other, mine) == better ? other : mine;
}

/* Any 32 places in order: Batcher's bitonic network. */
static __device__ __forceinline__ sorted_place sorted_of(sorted_place p) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int size = 2; size <= 32; size *= 2)
#pragma unroll
        for (int stride = size / 2; stride; stride /= 2)
            p = sorted_exchange(p, stride, !(lane & size) == !(lane & stride));
    return p;
}

/* The best 32 of two that are in order. */
static __device__ __forceinline__ sorted_place sorted_merge(sorted_place a, sorted_place b) {
    int lane = threadIdx.x % 32;
    b = sorted_from(b, 31 - lane);
    a = sorted_ahead(b, a) ? b : a;
#pragma unroll
    for (int stride = 16; stride; stride /= 2)
        a = sorted_exchange(a, stride, !(lane & stride));
    return a;
}

/* The best 32 of places first, first + step, ... below n (of 32 places each time), as get(i) gives them. */
template <typename F> static __device__ __forceinline__ sorted_place sorted_best(int first, int step, int n, F get) {
    sorted_place best = {-INFINITY, -1};
    for (int base = first; base < n; base += step) {
        int i = base + (int)(threadIdx.x % 32);
        sorted_place p = {-INFINITY, -1};
        if (i < n) p = get(i);
        best = sorted_merge(best, sorted_of(p));
    }
    return best;
}
