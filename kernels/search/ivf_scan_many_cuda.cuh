/* ivf_scan_many_cuda.cuh -- the rows of visited lists for more queries than shared memory holds: list by list, so that a row is read
 * once for all that visit it.
 *
 * scan_many: blocks draw pieces of at most MANY_ROWS rows of a list; the queries that visit it come to shared memory, and a warp
 * multiplies four rows with four of them at a time. What a piece finds goes to each query's list in device memory, under a lock;
 * that list's last place, as it stands when a piece begins, keeps most rows from being looked at twice. Where lists meet many
 * queries it is bound by arithmetic: 2 d operations a row and visitor.
 *
 * The order is total and lists are sets, so the result is the same bits whoever comes first; and a score those of
 * ivf_scan_lists_cuda.cuh, whose sums are made in the same order. */
#pragma once
#include "kernels/search/ivf_scan_rows_cuda.cuh"

enum { MANY_QUERIES = 1024, MANY_WARPS = 8, MANY_THREADS = 32 * MANY_WARPS, MANY_ROWS = 512, MANY_AT_ONCE = 4 };

struct many_lists { /* of the pass' queries, LIST_MAX places each, in order */
    float *score;
    int32_t *id, *lock;
};

struct many_block {
    topk_below below[IVF_SCAN_QUERIES];
    int32_t hole[IVF_SCAN_QUERIES][2];
    float bound[IVF_SCAN_QUERIES];
    int query[IVF_SCAN_QUERIES], piece;
};

static __global__ void __launch_bounds__(MANY_THREADS) many_clear(many_lists all, int places) {
    int i = blockIdx.x * MANY_THREADS + threadIdx.x;
    if (i >= places) return;
    all.score[i] = -INFINITY;
    all.id[i] = -1;
    if (i % LIST_MAX == 0) all.lock[i / LIST_MAX] = 0;
}

static __global__ void __launch_bounds__(MANY_THREADS) many_out(ivf_scan_task t, many_lists all) {
    int i = blockIdx.x * MANY_THREADS + threadIdx.x, q = i / t.out.k, place = i % t.out.k;
    if (q >= t.queries) return;
    int64_t at = (t.first_query + q) * t.out.all + t.out.first + place;
    t.out.score[at] = all.score[q * LIST_MAX + place];
    t.out.index[at] = all.id[q * LIST_MAX + place];
}

/* Four rows' products with four queries: a lane gets row lane / 8, query lane / 2 % 4. */
template <int UNITS>
static __device__ __forceinline__ float many_dots(const uint4 (&raw)[IVF_SCAN_GROUP][UNITS], const float4 *queries) {
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
        keep[i] = group_rows(sum[i]);
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
static __device__ __forceinline__ void many_rows(const ivf_scan_task &t, const float4 *queries, rows<const __half> from,
                                                 const many_block &own, topk_list lists, int begin, int end, int visitors) {
    int lane = threadIdx.x % 32, k = t.out.k;
    for (int row = begin + (int)threadIdx.x / 32 * IVF_SCAN_GROUP; row < end; row += MANY_WARPS * IVF_SCAN_GROUP) {
        uint4 raw[IVF_SCAN_GROUP][UNITS];
        group_load(raw, from, row, end - 1, t.d);
        int mine = row + lane / 8;
        for (int first = 0; first < visitors; first += MANY_AT_ONCE) {
            float score = many_dots<UNITS>(raw, queries + first * UNITS * 64) * t.scale;
            int v = first + lane / 2 % 4;
            bool good = lane % 2 == 0 && mine < end && v < visitors && score >= own.bound[v] && score >= lists.score[v * k + k - 1];
            if (!__any_sync(~0u, good)) continue;
            int32_t id = good ? t.id[mine] : -1;
            good = good && (id < own.hole[v][0] || id >= own.hole[v][1]) && own.below[v].allows(score, id);
            list_offer_lanes(lists, k, good, v, score, id);
        }
    }
}

/* One warp brings a query's places to the list in device memory, which other blocks change meanwhile. */
static __device__ void many_merge(many_lists all, int query, sorted_place found, int k) {
    int lane = threadIdx.x % 32;
    float *score = all.score + query * LIST_MAX;
    int32_t *id = all.id + query * LIST_MAX;
    if (lane == 0)
        while (atomicCAS(&all.lock[query], 0, 1))
            __nanosleep(100);
    __syncwarp();
    __threadfence();
    sorted_place best = {-INFINITY, -1};
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

/* A piece with up to `most` of the queries that visit its list: scores and ids [MANY_WARPS, most, k] in shared memory. */
template <int UNITS>
static __device__ __forceinline__ void many_piece(const ivf_scan_task &t, many_lists all, many_block &own, float4 *shared,
                                                  rows<const float> queries, rows<const __half> from, const uint16_t *visitor,
                                                  int visitors, int most, int begin, int end) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, k = t.out.k;
    float *scores = (float *)(shared + most * UNITS * 64);
    int32_t *ids = (int32_t *)(scores + MANY_WARPS * most * k);
    if ((int)threadIdx.x < visitors) {
        int q = visitor[threadIdx.x];
        own.query[threadIdx.x] = q;
        own.bound[threadIdx.x] = __ldcg(all.score + q * LIST_MAX + k - 1);
        own.below[threadIdx.x] = t.out.bound(t.first_query + q);
        hole_in(own.hole[threadIdx.x], t.hole, t.first_query + q);
    }
    for (int i = threadIdx.x; i < MANY_WARPS * most * k; i += MANY_THREADS) {
        scores[i] = -INFINITY;
        ids[i] = -1;
    }
    __syncthreads();
    queries_in<UNITS>(shared, queries, own.query, visitors, t.d);
    __syncthreads();
    many_rows<UNITS>(t, shared, from, own, {scores + warp * most * k, ids + warp * most * k}, begin, end, visitors);
    __syncthreads();
    for (int v = warp; v < visitors; v += MANY_WARPS) {
        if (!__any_sync(~0u, lane < MANY_WARPS && ids[(lane * most + v) * k] >= 0)) continue;
        sorted_place found = sorted_best(0, 32, MANY_WARPS * k, [&](int i) {
            int at = (i / k * most + v) * k + i % k;
            return sorted_place{scores[at], ids[at]};
        });
        many_merge(all, own.query[v], found, k);
    }
    __syncthreads();
}

template <int UNITS>
static __global__ void __launch_bounds__(MANY_THREADS, 2)
    scan_many(ivf_scan_task t, many_lists all, rows<const float> queries, rows<const __half> from, int most) {
    extern __shared__ float4 shared[];
    __shared__ many_block own;
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
            many_piece<UNITS>(t, all, own, shared, queries, from, p.visitor + (int64_t)list * t.queries + first,
                              visitors - first < most ? visitors - first : most, most, begin, end);
    }
}
