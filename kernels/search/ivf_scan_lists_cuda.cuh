/* ivf_scan_lists_cuda.cuh -- the rows of the lists that are visited, scored.
 *
 * scan_lists: the pieces are dealt to all warps in equal stretches; a warp reads its rows once, whoever visits them, and keeps a
 * list of the best for each query. join_lists: the blocks' lists into one, a block a query. */
#pragma once
#include "kernels/search/ivf_scan_rows_cuda.cuh"

/* What a block of scan_lists keeps beside queries and lists. */
struct scan_block {
    topk_below below[IVF_SCAN_QUERIES];
    int32_t hole[IVF_SCAN_QUERIES][2];
};

/* The visited list that holds a piece. */
static __device__ int list_of_piece(const int32_t *piece, int visited, int wanted) {
    int low = 0, high = visited;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (piece[middle] <= wanted) low = middle;
        else high = middle;
    }
    return low;
}

/* A warp's stretch of pieces. */
template <int UNITS>
static __device__ void scan_stretch(const ivf_scan_task &t, const float4 *queries, rows<const __half> from, const scan_block &own,
                                    topk_list lists) {
    const ivf_scan_plan &p = t.plan;
    int visited = p.counts[0], lane = threadIdx.x % 32, k = t.out.k, warps = gridDim.x * IVF_SCAN_WARPS;
    int64_t pieces = p.counts[1], warp = blockIdx.x * IVF_SCAN_WARPS + threadIdx.x / 32;
    int piece = (int)(pieces * warp / warps), end = (int)(pieces * (warp + 1) / warps), next = 0, row = 0, last = 0;
    uint32_t who = 0;
    int at = piece < end ? list_of_piece(p.piece, visited, piece) - 1 : 0;
    for (bool fresh = true; piece < end; piece++, row += IVF_SCAN_GROUP) {
        if (fresh || piece == next) {
            at++;
            int list = p.list[at];
            who = p.who[at];
            next = p.piece[at + 1];
            row = t.begin[list] + (piece - p.piece[at]) * IVF_SCAN_GROUP;
            last = t.begin[list + 1] - 1;
            fresh = false;
        }
        uint4 raw[IVF_SCAN_GROUP][UNITS];
        group_load(raw, from, row, last, t.d);
        int mine = row + lane / 8;
        for (uint32_t left = who; left; left &= left - 1) {
            int q = __ffs(left) - 1;
            float score = group_dots(raw, queries + q * UNITS * 64) * t.scale;
            topk_list l = {lists.score + q * k, lists.index + q * k};
            bool good = lane % 8 == 0 && mine <= last && score >= l.score[k - 1];
            if (!__any_sync(~0u, good)) continue;
            int32_t id = good ? t.id[mine] : -1;
            good = good && (id < own.hole[q][0] || id >= own.hole[q][1]) && own.below[q].allows(score, id);
            list_offer_lanes(l, k, good, score, id);
        }
    }
}

template <int UNITS>
static __global__ void __launch_bounds__(IVF_SCAN_THREADS, 1)
    scan_lists(ivf_scan_task t, rows<const float> queries, rows<const __half> from) {
    extern __shared__ float4 shared[];
    __shared__ scan_block own;
    int warp = threadIdx.x / 32, k = t.out.k, places = IVF_SCAN_WARPS * t.queries * k;
    float *scores = (float *)(shared + t.queries * UNITS * 64);
    int32_t *ids = (int32_t *)(scores + places);
    queries_in<UNITS>(shared, queries, NULL, t.queries, t.d);
    for (int i = threadIdx.x; i < places; i += IVF_SCAN_THREADS) {
        scores[i] = -INFINITY;
        ids[i] = -1;
    }
    if ((int)threadIdx.x < t.queries) {
        own.below[threadIdx.x] = t.out.bound(t.first_query + threadIdx.x);
        hole_in(own.hole[threadIdx.x], t.hole, t.first_query + threadIdx.x);
    }
    launch_next();
    __syncthreads();
    launch_wait(); /* for the plan; bounds, of earlier rounds, were there before */
    scan_stretch<UNITS>(t, shared, from, own, {scores + warp * t.queries * k, ids + warp * t.queries * k});
    __syncthreads();
    list_join(t.block_score, t.block_id, scores, ids, t.queries, k, IVF_SCAN_WARPS);
}

/* The blocks' lists of one query: each warp takes a share, then the first joins the warps'. */
static __global__ void __launch_bounds__(32 * JOIN_WARPS) join_lists(ivf_scan_task t, int blocks) {
    __shared__ sorted_place part[32 * JOIN_WARPS];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, q = blockIdx.x, k = t.out.k;
    launch_wait();
    part[threadIdx.x] = sorted_best(warp * 32, 32 * JOIN_WARPS, blocks * k, [&](int i) {
        int64_t at = ((int64_t)(i / k) * t.queries + q) * k + i % k;
        return sorted_place{t.block_score[at], t.block_id[at]};
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
