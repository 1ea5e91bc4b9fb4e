/* ivf_scan_best_cuda.cuh -- scores the rows of the selected lists for one query, and finds more than 32 results in one
 * pass.
 *
 * ivf_best_kernel: all warps get equal stretches of pieces, as in ivf_scan_lists_cuda.cuh. A row whose key reaches the
 * block's threshold is appended to the block's keys in shared memory. After ROUND rows the block's warps wait for each
 * other; if the keys might not fit the next round, the best k and at most SPARE more remain, and raise the threshold.
 * ivf_best_merge: one block finds the best of all blocks, and writes the results.
 *
 * A key is the score's ordered bits << 32 | ~id: keys are unique, greater is better, and of equal scores the smaller id
 * is. Bound by memory: 2 d bytes a row. */
#pragma once
#include "kernels/search/best_keys_cuda.cuh"
#include "kernels/search/ivf_scan_lists_cuda.cuh"
#include "kernels/search/ivf_select_lists_cuda.cuh"

enum {
    IVF_BEST_ROUND_PIECES = 64,          /* of a warp */
    IVF_BEST_ROUND = IVF_BEST_ROUND_PIECES * IVF_SCAN_GROUP * IVF_SCAN_WARPS,
    IVF_BEST_KEYS = 12 * IVF_SCAN_THREADS,
    IVF_BEST_MERGE_THREADS = 1024,
    IVF_BEST_BITS = 64,
};
static_assert((int)IVF_BEST_KEYS >= (int)IVF_BEST_ROUND + (int)BEST_K_MAX + (int)BEST_SPARE);

struct ivf_best_block {
    uint64_t keys[IVF_BEST_KEYS], least;
    uint32_t count;
    int32_t hole[2];
    best_select select;
};

static __device__ __forceinline__ uint64_t ivf_best_key(float score, int32_t id) {
    return (uint64_t)ordered_bits(score + 0.0f) << 32 | (uint32_t)~id; /* + 0: -0 equals 0 */
}
static __device__ __forceinline__ float ivf_best_score(uint64_t key) {
    uint32_t bits = (uint32_t)(key >> 32);
    return __uint_as_float(bits & 0x80000000u ? bits & 0x7fffffffu : ~bits);
}

/* A round of a warp's stretch. */
template <int UNITS>
static __device__ __forceinline__ void ivf_best_round(const ivf_scan_task &t, ivf_stretch &s, ivf_best_block &own,
                                                      const float4 *query, rows<const __half> from) {
    int lane = threadIdx.x % 32, until = min(s.end, s.piece + (int)IVF_BEST_ROUND_PIECES);
    uint64_t least = own.least;
    for (; s.piece < until; s.step()) {
        s.enter(t);
        uint4 raw[IVF_SCAN_GROUP][UNITS];
        ivf_load_rows(raw, from, s.row, s.last, t.d);
        int mine = s.row + lane / 8;
        bool there = lane % 8 == 0 && mine <= s.last;
        int32_t id = there ? __ldg(t.id + mine) : -1; /* with the row: a later read would be waited for */
        float score = ivf_row_dots(raw, query) * t.scale;
        uint64_t key = ivf_best_key(score, id);
        bool good = there && key >= least && score == score && (id < own.hole[0] || id >= own.hole[1]);
        unsigned who = __ballot_sync(~0u, good);
        if (!who) continue;
        uint32_t first = lane == 0 ? atomicAdd(&own.count, (uint32_t)__popc(who)) : 0;
        first = __shfl_sync(~0u, first, 0);
        if (good) own.keys[first + __popc(who & ((1u << lane) - 1))] = key;
    }
}

/* Keeps the best k keys and at most SPARE more. All threads call it. */
static __device__ void ivf_best_prune(ivf_best_block &own, int k) {
    constexpr int EACH = IVF_BEST_KEYS / IVF_SCAN_THREADS;
    uint64_t key[EACH];
    uint32_t n = own.count;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        uint32_t at = i * IVF_SCAN_THREADS + threadIdx.x;
        key[i] = at < n ? own.keys[at] : 0;
    }
    uint64_t least = best_threshold<IVF_SCAN_THREADS, IVF_BEST_BITS>(&own.select, (uint32_t)k, [&](auto f) {
#pragma unroll
        for (int i = 0; i < EACH; i++)
            f(key[i]);
    });
    __syncthreads();
    if (threadIdx.x == 0) own.count = 0, own.least = least;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (key[i] >= least) own.keys[atomicAdd(&own.count, 1u)] = key[i];
    __syncthreads();
}

/* keys [blocks, slots], 0 in free slots. */
template <int UNITS>
static __global__ void __launch_bounds__(IVF_SCAN_THREADS, 1)
    ivf_best_kernel(ivf_scan_task t, rows<const float> queries, rows<const __half> from, uint64_t *keys, int slots) {
    extern __shared__ float4 shared[];
    ivf_best_block &own = *(ivf_best_block *)(shared + UNITS * 64);
    ivf_load_queries<UNITS>(shared, queries, NULL, 1, t.d);
    if (threadIdx.x == 0) {
        own.count = 0, own.least = 1;
        ivf_load_hole(own.hole, t.hole, t.first_query);
    }
    launch_next();
    __syncthreads();
    launch_wait(); /* for the plan */
    ivf_stretch s(t);
    int longest = t.plan.counts[1] / (int)(gridDim.x * IVF_SCAN_WARPS) + 1;
    for (int done = 0; done < longest; done += IVF_BEST_ROUND_PIECES) {
        ivf_best_round<UNITS>(t, s, own, shared, from);
        __syncthreads();
        bool last = done + (int)IVF_BEST_ROUND_PIECES >= longest;
        if (own.count > (last ? (uint32_t)slots : (uint32_t)(IVF_BEST_KEYS - IVF_BEST_ROUND)))
            ivf_best_prune(own, t.out.k);
        else __syncthreads(); /* the count has been read */
    }
    keys += (int64_t)blockIdx.x * slots;
    for (int i = threadIdx.x; i < slots; i += IVF_SCAN_THREADS)
        keys[i] = i < (int)own.count ? own.keys[i] : 0;
}

static __global__ void __launch_bounds__(IVF_BEST_MERGE_THREADS, 1)
    ivf_best_merge(ivf_scan_task t, const uint64_t *keys, int n) {
    __shared__ best_select select;
    __shared__ uint64_t best[(int)BEST_K_MAX + (int)BEST_SPARE];
    launch_wait();
    int found = best_gather<IVF_BEST_MERGE_THREADS, IVF_BEST_BITS>(&select, best, keys, n, t.out.k);
    int64_t at = t.first_query * t.out.all;
    best_ranks<IVF_BEST_MERGE_THREADS>(best, found, t.out.k, [&](int rank, uint64_t key) {
        t.out.index[at + rank] = (int32_t)~(uint32_t)key;
        t.out.score[at + rank] = ivf_best_score(key);
    });
    for (int i = found + (int)threadIdx.x; i < t.out.k; i += IVF_BEST_MERGE_THREADS) {
        t.out.index[at + i] = -1;
        t.out.score[at + i] = -INFINITY;
    }
}
