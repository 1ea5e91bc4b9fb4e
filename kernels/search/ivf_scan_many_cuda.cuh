/* ivf_scan_many_cuda.cuh -- scores the rows of selected lists for more queries than fit shared memory: list by list, so
 * that a row is read once for all queries that scan it.
 *
 * Mapping: blocks draw pieces of up to MANY_ROWS rows of a list. The queries that scan the list are copied to shared
 * memory, and a warp multiplies four rows with four queries at a time. A piece's results are merged into each query's
 * list in device memory under a lock. The list's last slot, read when a piece begins, excludes most rows early.
 *
 * Bound by arithmetic if many queries scan a list: 2 d operations a row and query. Best measured (H200, 20M x 768,
 * 256 of 16,384 lists): 1024 queries 24.7 ms (docs/kernels/search.md). The order is total and lists are sets: the same
 * bits in whatever order pieces end. Scores have the bits of ivf_scan_lists_cuda.cuh, whose sums run in the same
 * order. */
#pragma once
#include "kernels/search/ivf_scan_rows_cuda.cuh"

enum { MANY_QUERIES = 1024, MANY_WARPS = 8, MANY_THREADS = 32 * MANY_WARPS, MANY_ROWS = 512, MANY_AT_ONCE = 4 };

struct ivf_many_lists { /* of the pass's queries, TOPK_LIST_MAX slots each, sorted */
    float *score;
    int32_t *id, *lock;
};

struct ivf_many_block {
    topk_below below[IVF_SCAN_QUERIES];
    int32_t hole[IVF_SCAN_QUERIES][2];
    float bound[IVF_SCAN_QUERIES];
    int query[IVF_SCAN_QUERIES], piece;
};

static __global__ void __launch_bounds__(MANY_THREADS) ivf_many_clear(ivf_many_lists all, int slots) {
    int i = blockIdx.x * MANY_THREADS + threadIdx.x;
    if (i >= slots) return;
    all.score[i] = -INFINITY;
    all.id[i] = -1;
    if (i % TOPK_LIST_MAX == 0) all.lock[i / TOPK_LIST_MAX] = 0;
}

static __global__ void __launch_bounds__(MANY_THREADS) ivf_many_out(ivf_scan_task t, ivf_many_lists all) {
    int i = blockIdx.x * MANY_THREADS + threadIdx.x, q = i / t.out.k, slot = i % t.out.k;
    if (q >= t.queries) return;
    int64_t at = (t.first_query + q) * t.out.all + t.out.first + slot;
    t.out.score[at] = all.score[q * TOPK_LIST_MAX + slot];
    t.out.index[at] = all.id[q * TOPK_LIST_MAX + slot];
}

/* Products of four rows with four queries: a lane gets row lane / 8, query lane / 2 % 4. */
template <int UNITS>
static __device__ __forceinline__ float ivf_many_dots(const uint4 (&raw)[IVF_SCAN_GROUP][UNITS],
                                                      const float4 *queries) {
    int lane = threadIdx.x % 32;
    float sum[MANY_AT_ONCE][IVF_SCAN_GROUP] = {}, keep[MANY_AT_ONCE];
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        float4 a[MANY_AT_ONCE], b[MANY_AT_ONCE];
#pragma unroll
        for (int i = 0; i < MANY_AT_ONCE; i++) {
            a[i] = queries[(i * UNITS + u) * 64 + lane];
            b[i] = queries[(i * UNITS + u) * 64 + 32 + lane];
        }
#pragma unroll
        for (int g = 0; g < IVF_SCAN_GROUP; g++) {
            eight_floats r(raw[g][u]);
#pragma unroll
            for (int i = 0; i < MANY_AT_ONCE; i++)
                sum[i][g] += r.dot(a[i], b[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < MANY_AT_ONCE; i++)
        keep[i] = ivf_reduce_rows(sum[i]);
    bool upper = lane & 4, odd = lane & 2;
    float keep0 = upper ? keep[2] : keep[0], keep1 = upper ? keep[3] : keep[1];
    keep0 += __shfl_xor_sync(~0u, upper ? keep[0] : keep[2], 4);
    keep1 += __shfl_xor_sync(~0u, upper ? keep[1] : keep[3], 4);
    float one = odd ? keep1 : keep0;
    one += __shfl_xor_sync(~0u, odd ? keep0 : keep1, 2);
    return one + __shfl_xor_sync(~0u, one, 1);
}

/* A warp's rows of a piece, with `visitors` queries. lists: [visitors, k] of this warp. */
template <int UNITS>
static __device__ __forceinline__ void ivf_many_rows(const ivf_scan_task &t, const float4 *queries,
                                                     rows<const __half> from, const ivf_many_block &own,
                                                     topk_list lists, int begin, int end, int visitors) {
    int lane = threadIdx.x % 32, k = t.out.k;
    for (int row = begin + (int)threadIdx.x / 32 * IVF_SCAN_GROUP; row < end; row += MANY_WARPS * IVF_SCAN_GROUP) {
        uint4 raw[IVF_SCAN_GROUP][UNITS];
        ivf_load_rows(raw, from, row, end - 1, t.d);
        int mine = row + lane / 8;
        for (int first = 0; first < visitors; first += MANY_AT_ONCE) {
            float score = ivf_many_dots<UNITS>(raw, queries + first * UNITS * 64) * t.scale;
            int v = first + lane / 2 % 4;
            bool good = lane % 2 == 0 && mine < end && v < visitors && score >= own.bound[v] &&
                        score >= lists.score[v * k + k - 1];
            if (!__any_sync(~0u, good)) continue;
            int32_t id = good ? t.id[mine] : -1;
            good = good && (id < own.hole[v][0] || id >= own.hole[v][1]) && own.below[v].allows(score, id);
            topk_list_offer_lanes(lists, k, good, v, score, id);
        }
    }
}

/* One warp merges a query's results into the list in device memory, which other blocks change at the same time. */
static __device__ void ivf_many_merge(ivf_many_lists all, int query, sorted_slot found, int k) {
    int lane = threadIdx.x % 32;
    float *score = all.score + query * TOPK_LIST_MAX;
    int32_t *id = all.id + query * TOPK_LIST_MAX;
    if (lane == 0)
        while (atomicCAS(&all.lock[query], 0, 1))
            __nanosleep(100);
    __syncwarp();
    __threadfence();
    sorted_slot best = {-INFINITY, -1};
    if (lane < k) best = {__ldcg(score + lane), __ldcg(id + lane)};
    best = sorted_merge(best, found);
    if (lane < k) {
        __stcg(score + lane, best.score);
        __stcg(id + lane, best.index);
    }
    __threadfence();
    __syncwarp();
    if (lane == 0) atomicExch(&all.lock[query], 0);
}

/* Rows begin .. end-1 of a list, for some of the queries that scan it. */
struct ivf_many_share {
    const uint16_t *visitor; /* the queries */
    int visitors, begin, end;
};

/* A piece, for up to `most` queries: scores and ids [MANY_WARPS, most, k] in shared memory. */
template <int UNITS>
static __device__ __forceinline__ void ivf_many_piece(const ivf_scan_task &t, ivf_many_lists all, ivf_many_block &own,
                                                      float4 *shared, rows<const float> queries,
                                                      rows<const __half> from, ivf_many_share share, int most) {
    const uint16_t *visitor = share.visitor;
    int visitors = share.visitors, begin = share.begin, end = share.end;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, k = t.out.k;
    float *scores = (float *)(shared + most * UNITS * 64);
    int32_t *ids = (int32_t *)(scores + MANY_WARPS * most * k);
    if ((int)threadIdx.x < visitors) {
        int q = visitor[threadIdx.x];
        own.query[threadIdx.x] = q;
        own.bound[threadIdx.x] = __ldcg(all.score + q * TOPK_LIST_MAX + k - 1);
        own.below[threadIdx.x] = t.out.bound(t.first_query + q);
        ivf_load_hole(own.hole[threadIdx.x], t.hole, t.first_query + q);
    }
    for (int i = threadIdx.x; i < MANY_WARPS * most * k; i += MANY_THREADS) {
        scores[i] = -INFINITY;
        ids[i] = -1;
    }
    __syncthreads();
    ivf_load_queries<UNITS>(shared, queries, own.query, visitors, t.d);
    __syncthreads();
    ivf_many_rows<UNITS>(t, shared, from, own, {scores + warp * most * k, ids + warp * most * k}, begin, end, visitors);
    __syncthreads();
    for (int v = warp; v < visitors; v += MANY_WARPS) {
        if (!__any_sync(~0u, lane < MANY_WARPS && ids[(lane * most + v) * k] >= 0)) continue;
        sorted_slot found = sorted_best(0, 32, MANY_WARPS * k, [&](int i) {
            int at = (i / k * most + v) * k + i % k;
            return sorted_slot{scores[at], ids[at]};
        });
        ivf_many_merge(all, own.query[v], found, k);
    }
    __syncthreads();
}

template <int UNITS>
static __global__ void __launch_bounds__(MANY_THREADS, 2)
    ivf_scan_many_kernel(ivf_scan_task t, ivf_many_lists all, rows<const float> queries, rows<const __half> from,
                         int most) {
    extern __shared__ float4 shared[];
    __shared__ ivf_many_block own;
    const ivf_scan_plan &p = t.plan;
    for (;;) {
        if (threadIdx.x == 0) own.piece = atomicAdd(&p.counts[1], 1);
        __syncthreads();
        int piece = own.piece;
        if (piece >= p.counts[0]) return;
        int list = p.list[piece], begin = t.begin[list] + p.piece[piece] * MANY_ROWS, end = t.begin[list + 1];
        int visitors = (int)p.mask[list];
        if (end > begin + MANY_ROWS) end = begin + MANY_ROWS;
        for (int first = 0; first < visitors; first += most)
            ivf_many_piece<UNITS>(t, all, own, shared, queries, from,
                                  {p.visitor + (int64_t)list * t.queries + first,
                                   visitors - first < most ? visitors - first : most, begin, end},
                                  most);
    }
}
