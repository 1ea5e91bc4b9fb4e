/* topk_sort_cuda.cuh -- a warp's 32 best in registers, one in each lane, best first: to merge complete lists.
 *
 * The order is that of topk_list_cuda.cuh, empty slots last. If most candidates are rejected, the list there is
 * cheaper, since it compares a candidate with its last slot only. */
#pragma once
#include "kernels/cuda/cuda.cuh"

struct sorted_slot { /* empty: -inf, -1 */
    float score;
    int32_t index;
};

static __device__ __forceinline__ bool sorted_ahead(sorted_slot a, sorted_slot b) {
    return a.score > b.score || (a.score == b.score && (uint32_t)a.index < (uint32_t)b.index);
}

static __device__ __forceinline__ sorted_slot sorted_shuffle(sorted_slot p, int lane) {
    return {__shfl_sync(~0u, p.score, lane), __shfl_sync(~0u, p.index, lane)};
}

/* The better of a lane's slot and that of lane ^ stride, or the worse one. */
static __device__ __forceinline__ sorted_slot sorted_exchange(sorted_slot mine, int stride, bool better) {
    sorted_slot other = sorted_shuffle(mine, (int)(threadIdx.x % 32) ^ stride);
    return sorted_ahead(other, mine) == better ? other : mine;
}

/* Sorts 32 slots: Batcher's bitonic network. */
static __device__ __forceinline__ sorted_slot sorted_of(sorted_slot p) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int size = 2; size <= 32; size *= 2)
#pragma unroll
        for (int stride = size / 2; stride; stride /= 2)
            p = sorted_exchange(p, stride, !(lane & size) == !(lane & stride));
    return p;
}

/* The best 32 of two that are sorted. */
static __device__ __forceinline__ sorted_slot sorted_merge(sorted_slot a, sorted_slot b) {
    int lane = threadIdx.x % 32;
    b = sorted_shuffle(b, 31 - lane);
    a = sorted_ahead(b, a) ? b : a;
#pragma unroll
    for (int stride = 16; stride; stride /= 2)
        a = sorted_exchange(a, stride, !(lane & stride));
    return a;
}

/* The best 32 of get(i), for the 32 indexes from each of first, first + step, ... below n. */
template <typename F> static __device__ __forceinline__ sorted_slot sorted_best(int first, int step, int n, F get) {
    sorted_slot best = {-INFINITY, -1};
    for (int base = first; base < n; base += step) {
        int i = base + (int)(threadIdx.x % 32);
        sorted_slot p = {-INFINITY, -1};
        if (i < n) p = get(i);
        best = sorted_merge(best, sorted_of(p));
    }
    return best;
}
