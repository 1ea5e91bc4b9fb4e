/* topk_sample_cuda.cuh -- training's sampling among landmarks: the best k by score, or by score + Gumbel noise.
 *
 *   cuBLASLt    a tile of scores [queries, columns] that stays in the L2 cache
 *   block       a query: 8 warps scan its row of the tile, each with a list sorted by key; warp 0 merges the lists
 *
 * Many landmarks (a corpus) are processed in tiles of columns; a query's list is kept in the outputs from tile to tile.
 * k above TOPK_LIST_MAX is found in rounds, each worse than the last of the round before; the products are computed
 * again in each.
 *
 * Bound by arithmetic, 2 n E d a round, by the tile's traffic through the L2 cache, and by two logarithms a pair for
 * the noise. Best measured (H100, bf16, d 768): 1040 queries among 1040 landmarks 0.06 ms (docs/kernels/search.md). */
#pragma once
#include "kernels/search/topk_list_cuda.cuh"
extern "C" {
#include "kernels/linear/blas_cuda_internal.h"
#include "kernels/search/noise_internal.h"
}

enum {
    SAMPLE_WARPS = 8,
    SAMPLE_THREADS = 32 * SAMPLE_WARPS,
    SAMPLE_SCORES = 8 << 20,
    SAMPLE_COLUMNS = 32768,
    SAMPLE_ROWS = 128
};

struct topk_sample_task {
    topk_rows rows;
    int64_t first_query;
    topk_out out;         /* score holds keys until the last tile is done */
    bool gumbel;
    uint64_t seed;
};

static __device__ __forceinline__ bool topk_sample_disjoint(const topk_rows &rows, int64_t query, int32_t e) {
    if (!rows.document_of) return true;
    int2 of = ((const int2 *)rows.document_of)[e], barred = ((const int2 *)rows.document_barred)[query];
    return of.x < 0 || of.x > barred.y || of.y < barred.x;
}

struct topk_sample_ranges {
    int own_begin, own_end, sequence_end, other_begin, other_end;
    __device__ topk_sample_ranges(const topk_rows &rows, int64_t query)
        : own_begin(rows.own_begin[query]), own_end(rows.own_end[query]), sequence_end(0), other_begin(0),
          other_end(0) {
        if (!rows.other_begin) return;
        sequence_end = rows.sequence_end[query];
        other_begin = rows.other_begin[query];
        other_end = rows.other_end[query];
    }
    __device__ __forceinline__ bool own(int e) const { return own_begin <= e && e < own_end; }
    __device__ __forceinline__ bool other(int e) const {
        return other_begin <= e && e < other_end && !(own_begin <= e && e < sequence_end);
    }
    __device__ int begin() const {
        int a = own_begin < own_end ? own_begin : INT32_MAX, b = other_begin < other_end ? other_begin : INT32_MAX;
        return a < b ? a : b;
    }
    __device__ int end() const {
        int a = own_begin < own_end ? own_end : 0, b = other_begin < other_end ? other_end : 0;
        return a > b ? a : b;
    }
};

/* scores [queries, columns]: of landmarks base .. base+columns-1, `stride` apart. */
static __global__ void __launch_bounds__(SAMPLE_THREADS)
    topk_sample_kernel(topk_sample_task t, const float *scores, int64_t stride, int base, int columns) {
    __shared__ float keys[SAMPLE_WARPS][TOPK_LIST_MAX];
    __shared__ int32_t indexes[SAMPLE_WARPS][TOPK_LIST_MAX];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, k = t.out.k;
    int64_t query = t.first_query + blockIdx.x, at = query * t.out.all + t.out.first;
    const float *row = scores + blockIdx.x * stride;
    topk_sample_ranges ranges(t.rows, query);
    uint64_t noise = noise_row(t.seed, (uint64_t)query);
    topk_below below = t.out.bound(query);
    topk_list l = {keys[warp], indexes[warp]};
    topk_list_clear(l, k);
    /* Candidates that are worse than the last slot after the earlier tiles can be skipped. */
    float last = t.out.score[at + k - 1];
    if (warp == 0 && lane < k) {
        l.score[lane] = t.out.score[at + lane];
        l.index[lane] = (int32_t)t.out.index[at + lane];
    }
    __syncwarp();
    int from = ranges.begin() - base, to = ranges.end() - base;
    from = from < 0 ? 0 : from / SAMPLE_THREADS * SAMPLE_THREADS;
    to = to < columns ? to : columns;
    for (int i = from; i < to; i += SAMPLE_THREADS) {
        int c = i + (int)threadIdx.x, e = base + c;
        bool own = c < to && ranges.own(e), mine = own || (c < to && ranges.other(e));
        float key = -INFINITY;
        if (mine) {
            key = row[c];
            if (t.gumbel) key += noise_gumbel(noise, (uint64_t)e);
            mine = key >= last && below.allows(key, e) && (own || topk_sample_disjoint(t.rows, query, e));
        }
        if (!__any_sync(~0u, mine)) continue;
        topk_list_offer_lanes(l, k, mine, key, e);
        last = fmaxf(last, l.score[k - 1]);
    }
    __syncthreads();
    if (warp) return;
    for (int w = 1; w < SAMPLE_WARPS; w++) {
        float key = lane < k ? keys[w][lane] : -INFINITY;
        int32_t e = lane < k ? indexes[w][lane] : -1;
        topk_list_offer_lanes(l, k, e >= 0 && key >= l.score[k - 1], key, e);
    }
    if (lane < k) {
        t.out.score[at + lane] = l.score[lane];
        t.out.index[at + lane] = l.index[lane];
    }
}

struct topk_sample_shape {
    int64_t slots;
    int k;
    int64_t d;
    bool gumbel;
};

/* Replaces keys by scores, if noise was added: one warp for each slot. */
template <typename T>
static __global__ void __launch_bounds__(SAMPLE_THREADS)
    topk_sample_scores(float *score, int32_t *slot, const int64_t *index, rows<const T> queries,
                       rows<const T> landmarks, topk_sample_shape shape) {
    int64_t slots = shape.slots, d = shape.d;
    int k = shape.k;
    bool gumbel = shape.gumbel;
    int64_t at = (int64_t)blockIdx.x * SAMPLE_WARPS + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    if (at >= slots) return;
    int64_t e = index[at];
    if (slot && lane == 0) slot[at] = (int32_t)e;
    if (e < 0 || !gumbel) return;
    float sum = 0.0f;
    for (int64_t i = lane; i < d; i += 32)
        sum += to_float(queries[at / k][i]) * to_float(landmarks[e][i]);
    sum = warp_sum(sum) / sqrtf((float)d);
    if (lane == 0) score[at] = sum;
}

template <typename T>
static void topk_sample_finish(struct device *dev, float *score, int32_t *slot, const int64_t *index,
                               struct mat queries, struct mat landmarks, int k, bool gumbel) {
    int64_t slots = queries.rows * k;
    launch(dev, "topk.sample", topk_sample_scores<T>, (unsigned)blocks_for(slots, SAMPLE_WARPS), SAMPLE_THREADS, 0,
           score, slot, index, rows<const T>{(const T *)queries.data, queries.stride},
           rows<const T>{(const T *)landmarks.data, landmarks.stride},
           topk_sample_shape{slots, k, queries.cols, gumbel});
}

static void topk_sample_round(struct device *dev, topk_sample_task t, struct mat queries, struct mat landmarks) {
    const char *op = "topk.sample";
    int64_t columns = landmarks.rows <= SAMPLE_COLUMNS ? blocks_for(landmarks.rows, 16) * 16 : SAMPLE_COLUMNS / 4;
    int64_t tile = SAMPLE_SCORES / columns / SAMPLE_ROWS * SAMPLE_ROWS;
    if (tile < SAMPLE_ROWS) tile = SAMPLE_ROWS;
    if (tile > queries.rows) tile = queries.rows;
    float *scores = (float *)device_cuda_scratch(dev, (size_t)(tile * columns) * sizeof(float));
    for (int64_t first = 0; first < queries.rows; first += tile) {
        int64_t n = queries.rows - first < tile ? queries.rows - first : tile;
        t.first_query = first;
        for (int64_t base = 0; base < landmarks.rows; base += columns) {
            int64_t m = landmarks.rows - base < columns ? landmarks.rows - base : columns;
            struct mat y = {scores, DTYPE_F32, n, m, columns};
            blas_cuda_product(dev, op, {.y = y, .a = mat_rows(queries, first, n), .b = mat_rows(landmarks, base, m),
                                        .b_transposed = true, .scale = 1.0f / sqrtf((float)queries.cols)});
            launch(dev, op, topk_sample_kernel, (unsigned)n, SAMPLE_THREADS, 0, t, scores, columns, (int)base, (int)m);
        }
    }
}

/* Samples among slots that were found before: one warp for each row, in rounds as above. */
static __global__ void __launch_bounds__(SAMPLE_THREADS)
    topk_subsample_kernel(int64_t *index, const int64_t *from_index, const float *from_score, int64_t n, int from,
                          int k, uint64_t seed) {
    __shared__ float keys[SAMPLE_WARPS][TOPK_LIST_MAX];
    __shared__ int32_t indexes[SAMPLE_WARPS][TOPK_LIST_MAX];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int64_t row = (int64_t)blockIdx.x * SAMPLE_WARPS + warp;
    if (row >= n) return;
    topk_list l = {keys[warp], indexes[warp]};
    topk_below below = {INFINITY, -1};
    uint64_t noise = noise_row(seed, (uint64_t)row);
    for (int first = 0; first < k; first += TOPK_LIST_MAX) {
        int n_slots = k - first < TOPK_LIST_MAX ? k - first : TOPK_LIST_MAX;
        topk_list_clear(l, n_slots);
        for (int i = 0; i < from; i += 32) {
            int64_t e = i + lane < from ? from_index[row * from + i + lane] : -1;
            float key = e < 0 ? -INFINITY : from_score[row * from + i + lane] + noise_gumbel(noise, (uint64_t)e);
            topk_list_offer_lanes(l, n_slots, e >= 0 && below.allows(key, (int32_t)e), key, (int32_t)e);
        }
        if (lane < n_slots) index[row * k + first + lane] = l.index[lane];
        int32_t last = l.index[n_slots - 1];
        below = {l.score[n_slots - 1], last < 0 ? INT32_MAX : last};
        __syncwarp();
    }
}

static __global__ void __launch_bounds__(SAMPLE_THREADS)
    topk_gather_kernel(int32_t *out, const int32_t *table, int64_t table_rows, int64_t cols, const int64_t *index,
                       int64_t n) {
    int64_t i = (int64_t)blockIdx.x * SAMPLE_THREADS + threadIdx.x;
    if (i >= n * cols) return;
    int64_t row = index[i / cols];
    out[i] = table[(row < 0 ? table_rows - 1 : row) * cols + i % cols];
}
