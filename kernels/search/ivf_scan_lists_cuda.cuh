/* ivf_scan_lists_cuda.cuh -- scores the rows of the selected lists, for up to 32 queries.
 *
 * ivf_scan_lists_kernel: all warps get equal stretches of pieces (4 rows each). A warp reads its rows once for all
 * queries that scan them, and keeps a list of the best for each query. ivf_join_lists: merges the blocks' lists, a
 * block a query. Bound by memory: 2 d bytes a row. Best measured: 4.0 TB/s (H200, 16 queries;
 * docs/kernels/search.md). */
#pragma once
#include "kernels/search/ivf_scan_rows_cuda.cuh"

/* Shared memory of a block besides queries and lists. */
struct ivf_lists_block {
    topk_below below[IVF_SCAN_QUERIES];
    int32_t hole[IVF_SCAN_QUERIES][2];
};

/* The selected list that contains a piece. */
static __device__ int ivf_list_of_piece(const int32_t *piece, int visited, int wanted) {
    int low = 0, high = visited;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (piece[middle] <= wanted) low = middle;
        else high = middle;
    }
    return low;
}

/* A warp's stretch of pieces: the current piece has rows `row` .. row+3, of a list whose last row is `last`. */
struct ivf_stretch {
    int piece, end, next, at, row, last;

    __device__ __forceinline__ explicit ivf_stretch(const ivf_scan_task &t) {
        const ivf_scan_plan &p = t.plan;
        int visited = p.counts[0], warps = gridDim.x * IVF_SCAN_WARPS;
        int64_t pieces = p.counts[1], warp = blockIdx.x * IVF_SCAN_WARPS + threadIdx.x / 32;
        piece = (int)(pieces * warp / warps), end = (int)(pieces * (warp + 1) / warps), row = 0, last = 0;
        at = piece < end ? ivf_list_of_piece(p.piece, visited, piece) - 1 : 0;
        next = piece;
    }
    /* Whether the current piece is the first of the stretch or of its list. */
    __device__ __forceinline__ bool enter(const ivf_scan_task &t) {
        if (piece != next) return false;
        const ivf_scan_plan &p = t.plan;
        int list = p.list[++at];
        next = p.piece[at + 1];
        row = t.begin[list] + (piece - p.piece[at]) * IVF_SCAN_GROUP;
        last = t.begin[list + 1] - 1;
        return true;
    }
    __device__ __forceinline__ void step() { piece++, row += IVF_SCAN_GROUP; }
};

template <int UNITS>
static __device__ void ivf_scan_stretch(const ivf_scan_task &t, const float4 *queries, rows<const __half> from,
                                        const ivf_lists_block &own, topk_list lists) {
    int lane = threadIdx.x % 32, k = t.out.k;
    uint32_t who = 0;
    for (ivf_stretch s(t); s.piece < s.end; s.step()) {
        if (s.enter(t)) who = t.plan.who[s.at];
        uint4 raw[IVF_SCAN_GROUP][UNITS];
        ivf_load_rows(raw, from, s.row, s.last, t.d);
        int mine = s.row + lane / 8;
        for (uint32_t left = who; left; left &= left - 1) {
            int q = __ffs(left) - 1;
            float score = ivf_row_dots(raw, queries + q * UNITS * 64) * t.scale;
            topk_list l = {lists.score + q * k, lists.index + q * k};
            bool good = lane % 8 == 0 && mine <= s.last && score >= l.score[k - 1];
            if (!__any_sync(~0u, good)) continue;
            int32_t id = good ? t.id[mine] : -1;
            good = good && (id < own.hole[q][0] || id >= own.hole[q][1]) && own.below[q].allows(score, id);
            topk_list_offer_lanes(l, k, good, score, id);
        }
    }
}

template <int UNITS>
static __global__ void __launch_bounds__(IVF_SCAN_THREADS, 1)
    ivf_scan_lists_kernel(ivf_scan_task t, rows<const float> queries, rows<const __half> from) {
    extern __shared__ float4 shared[];
    __shared__ ivf_lists_block own;
    int warp = threadIdx.x / 32, k = t.out.k, slots = IVF_SCAN_WARPS * t.queries * k;
    float *scores = (float *)(shared + t.queries * UNITS * 64);
    int32_t *ids = (int32_t *)(scores + slots);
    ivf_load_queries<UNITS>(shared, queries, NULL, t.queries, t.d);
    for (int i = threadIdx.x; i < slots; i += IVF_SCAN_THREADS) {
        scores[i] = -INFINITY;
        ids[i] = -1;
    }
    if ((int)threadIdx.x < t.queries) {
        own.below[threadIdx.x] = t.out.bound(t.first_query + threadIdx.x);
        ivf_load_hole(own.hole[threadIdx.x], t.hole, t.first_query + threadIdx.x);
    }
    launch_next();
    __syncthreads();
    launch_wait(); /* waits for the plan; the bounds, of earlier rounds, are already there */
    ivf_scan_stretch<UNITS>(t, shared, from, own, {scores + warp * t.queries * k, ids + warp * t.queries * k});
    __syncthreads();
    topk_list_join(t.block_score, t.block_id, scores, ids, t.queries, k, IVF_SCAN_WARPS);
}

/* Merges the blocks' lists of one query: each warp merges a share, then the first warp the results of all. */
static __global__ void __launch_bounds__(32 * JOIN_WARPS) ivf_join_lists(ivf_scan_task t, int blocks) {
    __shared__ sorted_slot part[32 * JOIN_WARPS];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, q = blockIdx.x, k = t.out.k;
    launch_wait();
    part[threadIdx.x] = sorted_best(warp * 32, 32 * JOIN_WARPS, blocks * k, [&](int i) {
        int64_t at = ((int64_t)(i / k) * t.queries + q) * k + i % k;
        return sorted_slot{t.block_score[at], t.block_id[at]};
    });
    for (int half = JOIN_WARPS / 2; half; half /= 2) {
        __syncthreads();
        if (warp < half) part[threadIdx.x] = sorted_merge(part[threadIdx.x], part[threadIdx.x + 32 * half]);
    }
    if (warp > 0 || lane >= k) return;
    int64_t at = (t.first_query + q) * t.out.all + t.out.first + lane;
    t.out.score[at] = part[lane].score;
    t.out.index[at] = part[lane].index;
}
