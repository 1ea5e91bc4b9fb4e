/* topk_cuda.cu -- landmark scores and the best k of them; softmax weights of the results, and their gradients.
 *
 * Four paths, by number of queries and types (docs/kernels/search.md has their measurements):
 *
 *   float32 landmarks, up to 4 queries            topk_rows_cuda.cuh     a warp scores a landmark
 *   16-bit landmarks, up to 64 queries            topk_stream_cuda.cuh   one pass on tensor cores, mma
 *   16-bit landmarks on Hopper, more than 16      topk_tiles_cuda.cuh    wgmma; scores never leave the registers
 *   all else                                      here                   cuBLASLt into a tile of scores, then a scan
 *
 * In the path of this file the tile stays in the L2 cache, and one warp for each query compares it with the last slot
 * of the query's list. Bound by arithmetic, 2 n E d, and by the tile's traffic, 4 n E bytes in each direction. Best
 * measured: 2.2 times the roofline's time for 1024 queries on an H100.
 *
 * Queries of a wider type than the landmarks are split in two parts (topk_split_cuda.cuh), so that tensor cores lose
 * nothing of a float32 query. For k up to TOPK_LIST_MAX the results are scored once more in float32. */
#include "kernels/cuda/scatter_cuda.cuh"
#include "kernels/search/topk_sample_cuda.cuh"
#include "kernels/search/topk_rows_cuda.cuh"
#include "kernels/search/topk_stream_cuda.cuh"
#include "kernels/search/topk_tiles_cuda.cuh"
extern "C" {
#include "kernels/linear/blas_cuda_internal.h"
}

enum { THREADS = 256, SCAN_WARPS = 4, TILE_SCORES = 8 << 20, TILE_MIN = 1024, TILE_MAX = 16384, JOIN_WARPS = 4 };

static __global__ void __launch_bounds__(THREADS) topk_clear(int64_t *index, float *score, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n) return;
    index[i] = -1;
    score[i] = -INFINITY;
}

/* Merges the blocks' lists of one query: one warp. lists [blocks, queries, k]. */
static __global__ void __launch_bounds__(32 * JOIN_WARPS)
    topk_join_blocks(topk_out out, const float *scores, const int32_t *indexes, int blocks, int queries,
                     int first_query) {
    __shared__ float score[JOIN_WARPS][TOPK_LIST_MAX];
    __shared__ int32_t index[JOIN_WARPS][TOPK_LIST_MAX];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, q = blockIdx.x * JOIN_WARPS + warp, k = out.k;
    if (q >= queries) return;
    topk_list l = {score[warp], index[warp]};
    topk_list_clear(l, k);
    for (int base = 0; base < blocks * k; base += 32) {
        int i = base + lane;
        int64_t at = ((int64_t)(i / k) * queries + q) * k + i % k;
        float s = i < blocks * k ? scores[at] : -INFINITY;
        int32_t which = i < blocks * k ? indexes[at] : -1;
        topk_list_offer_lanes(l, k, which >= 0 && s >= l.score[k - 1], s, which);
    }
    if (lane < k) {
        int64_t at = (int64_t)(first_query + q) * out.all + out.first + lane;
        out.score[at] = l.score[lane];
        out.index[at] = l.index[lane];
    }
}

/* One round of topk_stream_cuda.cuh: as many queries a pass as shared memory holds. */
template <typename T, typename Q>
static void topk_stream_round(struct device *dev, topk_out out, struct mat queries, struct mat landmarks,
                              const int64_t *visible) {
    int parts = sizeof(Q) > sizeof(T) ? 2 : 1;
    int group = topk_stream_queries(dev, queries.cols, out.k, parts);
    for (int64_t first = 0; first < queries.rows; first += group) {
        int n = (int)(queries.rows - first < group ? queries.rows - first : group);
        topk_stream_lists lists =
            topk_stream_search<T, Q>(dev, out, mat_rows(queries, first, n), landmarks, visible + first, first, parts);
        launch(dev, "topk.forward", topk_join_blocks, (unsigned)blocks_for(n, JOIN_WARPS), 32 * JOIN_WARPS, 0, out,
               lists.score, lists.index, lists.blocks, n, (int)first);
    }
}

/* A tile of sums [n, columns] of landmarks base .. base+columns-1. Queries of two parts: those of the second part
 * follow `second` floats later, else 0. */
struct topk_tile {
    const float *scores, *factors; /* factors [n]: from sums to scores */
    int64_t second;
    int stride, columns;
    int32_t base;
    const int64_t *visible;
    int64_t n;
};

/* One warp for each query. */
static __global__ void __launch_bounds__(32 * SCAN_WARPS)
    topk_scan_tile(topk_out out, topk_tile t) {
    __shared__ float score[SCAN_WARPS][TOPK_LIST_MAX];
    __shared__ int32_t index[SCAN_WARPS][TOPK_LIST_MAX];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, k = out.k;
    int64_t query = (int64_t)blockIdx.x * SCAN_WARPS + warp;
    if (query >= t.n) return;
    int32_t base = t.base;
    int64_t second = t.second, sees = t.visible[query] - base, at = query * out.all + out.first;
    int live = sees < t.columns ? (int)sees : t.columns;
    if (live <= 0) return;
    topk_below below = out.bound(query);
    topk_list l = {score[warp], index[warp]};
    if (lane < k) {
        l.score[lane] = out.score[at + lane];
        l.index[lane] = (int32_t)out.index[at + lane];
    }
    __syncwarp();
    float last = l.score[k - 1], factor = t.factors[query];
    const float *row = t.scores + query * t.stride;
    bool changed = false;
    for (int i = 0; i < live; i += 512) {
        float s[4][4];
#pragma unroll
        for (int v = 0; v < 4; v++) {
            int c = i + v * 128 + lane * 4;
            float4 x = c < live ? *(const float4 *)(row + c) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (second && c < live) {
                float4 y = *(const float4 *)(row + second + c);
                x = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
            }
            s[v][0] = x.x * factor, s[v][1] = x.y * factor, s[v][2] = x.z * factor, s[v][3] = x.w * factor;
        }
        bool any = false;
#pragma unroll
        for (int j = 0; j < 16; j++)
            any |= s[j / 4][j % 4] >= last;
        if (!__any_sync(~0u, any)) continue;
#pragma unroll
        for (int j = 0; j < 16; j++) {
            int c = i + j / 4 * 128 + lane * 4 + j % 4;
            bool mine = c < live && s[j / 4][j % 4] >= last && below.allows(s[j / 4][j % 4], base + c);
            topk_list_offer_lanes(l, k, mine, s[j / 4][j % 4], base + c);
        }
        last = l.score[k - 1];
        changed = true;
    }
    if (changed && lane < k) {
        out.score[at + lane] = l.score[lane];
        out.index[at + lane] = l.index[lane];
    }
}

static int64_t topk_tile_columns(int64_t rows_all, int64_t landmarks) {
    int64_t columns = TILE_SCORES / rows_all / TILE_MIN * TILE_MIN;
    if (columns < TILE_MIN) columns = TILE_MIN;
    if (columns > TILE_MAX) columns = TILE_MAX;
    int64_t enough = blocks_for(landmarks, 4) * 4;
    return columns < enough ? columns : enough;
}

/* The parts of a block of queries, the factors from sums to scores, and the rest of the scratch. */
template <typename T> struct topk_query_parts {
    struct mat parts; /* [n or 2n, d] */
    float *factor;    /* [n] */
    int32_t *reach;   /* [n + 1], all 0 */
    void *rest;
};

/* How many queries at a time, at most `most`: their parts take up to half of the scratch. */
template <typename T, typename Q> static int64_t topk_queries_at_once(struct device *dev, int64_t most, int64_t d) {
    int64_t bytes = d * (int64_t)sizeof(T) * (sizeof(Q) > sizeof(T) ? 2 : 1),
            fit = (int64_t)device_cuda_scratch_bytes(dev) / 2 / bytes;
    return fit < most ? fit : most;
}

template <typename T, typename Q>
static topk_query_parts<T> topk_split(struct device *dev, struct mat queries, size_t rest_bytes) {
    constexpr int PARTS = sizeof(Q) > sizeof(T) ? 2 : 1;
    int64_t n = queries.rows, d = queries.cols;
    size_t part_bytes = ((size_t)(PARTS * n * d) * sizeof(T) + 255) / 256 * 256;
    size_t factor_bytes = ((size_t)(n + 1) * sizeof(float) + 255) / 256 * 256;
    unsigned char *scratch = (unsigned char *)device_cuda_scratch(dev, part_bytes + 2 * factor_bytes + rest_bytes);
    topk_query_parts<T> q = {mat_dense(scratch, dtype_of<T>(), PARTS * n, d), (float *)(void *)(scratch + part_bytes),
                        (int32_t *)(void *)(scratch + part_bytes + factor_bytes),
                        scratch + part_bytes + 2 * factor_bytes};
    launch(dev, "topk.forward", split_queries<T, Q, PARTS>, (unsigned)blocks_for(n, SPLIT_WARPS), SPLIT_THREADS, 0,
           (T *)q.parts.data, q.factor, q.reach, rows<const Q>{(const Q *)queries.data, queries.stride}, n, d,
           1.0f / sqrtf((float)d));
    return q;
}

/* One round by cuBLASLt: queries in blocks whose tile of scores fits. */
template <typename T, typename Q>
static void topk_product_round(struct device *dev, topk_out out, struct mat queries, struct mat landmarks,
                               const int64_t *visible) {
    enum { BLOCK = TILE_SCORES / TILE_MIN };
    bool two = sizeof(Q) > sizeof(T);
    int64_t block = topk_queries_at_once<T, Q>(dev, two ? BLOCK / 2 : BLOCK, queries.cols);
    for (int64_t first = 0; first < queries.rows; first += block) {
        int64_t n = queries.rows - first < block ? queries.rows - first : block, all = two ? 2 * n : n;
        int64_t columns = topk_tile_columns(all, landmarks.rows);
        topk_query_parts<T> q = topk_split<T, Q>(dev, mat_rows(queries, first, n), (size_t)(all * columns) * 4);
        topk_out block_out = out;
        block_out.index += first * out.all;
        block_out.score += first * out.all;
        for (int64_t base = 0; base < landmarks.rows; base += columns) {
            int64_t m = landmarks.rows - base < columns ? landmarks.rows - base : columns;
            struct mat tile = {q.rest, DTYPE_F32, all, m, columns};
            blas_cuda_product(dev, "topk.forward", {.y = tile, .a = q.parts, .b = mat_rows(landmarks, base, m),
                                                    .b_transposed = true, .scale = 1.0f});
            launch(dev, "topk.forward", topk_scan_tile, (unsigned)blocks_for(n, SCAN_WARPS), 32 * SCAN_WARPS, 0,
                   block_out,
                   topk_tile{(const float *)q.rest, q.factor, two ? n * columns : 0, (int)columns, (int)m,
                             (int32_t)base, visible + first, n});
        }
    }
}

/* One round of topk_tiles_cuda.cuh. */
template <typename T, typename Q>
static void topk_tiles_round(struct device *dev, topk_out out, struct mat queries, struct mat landmarks,
                             const int64_t *visible) {
    int64_t block = topk_queries_at_once<T, Q>(dev, topk_tiles_queries(dev), queries.cols);
    for (int64_t first = 0; first < queries.rows; first += block) {
        int64_t n = queries.rows - first < block ? queries.rows - first : block;
        topk_tiles_task t = {out, visible + first, NULL, NULL, NULL, NULL, landmarks.rows, n, 0, 0, (int)queries.cols};
        t.out.index += first * out.all;
        t.out.score += first * out.all;
        topk_tiles_plan(dev, &t);
        size_t slots = (size_t)(t.parts * n * out.k);
        topk_query_parts<T> q = topk_split<T, Q>(dev, mat_rows(queries, first, n), 8 * slots);
        t.factor = q.factor, t.reach = q.reach;
        t.score = (float *)q.rest;
        t.index = (int32_t *)(void *)(t.score + slots);
        if (!topk_tiles_search<T, (sizeof(Q) > sizeof(T) ? 2 : 1)>(dev, t, q.parts, landmarks)) {
            device_cuda_fault(dev, "topk.forward", "no tensor map of the landmarks");
            return;
        }
        launch(dev, "topk.forward", topk_join_blocks, (unsigned)blocks_for(n, JOIN_WARPS), 32 * JOIN_WARPS, 0, t.out,
               t.score, t.index, t.parts, (int)n, 0);
    }
}

template <typename T, typename Q>
static void topk_round(struct device *dev, topk_out out, struct mat queries, struct mat landmarks,
                       const int64_t *visible) {
    if constexpr (sizeof(T) == 2) {
        /* All rounds take the same path, because a round begins exactly where the round before ended. */
        int k = out.all < TOPK_LIST_MAX ? out.all : TOPK_LIST_MAX;
        bool hopper = topk_tiles_fit(dev, landmarks);
        int64_t most = hopper ? STREAM_COLUMNS / 4 : STREAM_COLUMNS;
        if (queries.rows <= most && topk_stream_fits(dev, queries, landmarks, k)) {
            topk_stream_round<T, Q>(dev, out, queries, landmarks, visible);
            return;
        }
        if (hopper) {
            topk_tiles_round<T, Q>(dev, out, queries, landmarks, visible);
            return;
        }
    }
    topk_product_round<T, Q>(dev, out, queries, landmarks, visible);
}

/* Results scored once more in float32, and sorted by these scores: tensor cores truncate the sums of a float32 query,
 * by some 2^-19. One block for each query, one warp for each slot. */
template <typename T>
static __global__ void __launch_bounds__(32 * SCAN_WARPS)
    topk_rescore_kernel(int64_t *index, float *score, rows<const float> queries, rows<const T> landmarks, int64_t d,
                        int k, float scale) {
    __shared__ sorted_slot slot[TOPK_LIST_MAX];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const float *query = queries[blockIdx.x];
    index += (int64_t)blockIdx.x * k;
    score += (int64_t)blockIdx.x * k;
    for (int i = warp; i < TOPK_LIST_MAX; i += SCAN_WARPS) {
        int32_t which = i < k ? (int32_t)index[i] : -1;
        float sum = 0.0f;
        for (int64_t j = lane; which >= 0 && j < d; j += 32)
            sum += query[j] * to_float(landmarks[which][j]);
        sum = warp_sum(sum) * scale;
        if (lane == 0) slot[i] = {which >= 0 ? sum : -INFINITY, which};
    }
    __syncthreads();
    if (warp > 0) return;
    sorted_slot p = sorted_of(slot[lane]);
    if (lane >= k) return;
    index[lane] = p.index;
    score[lane] = p.score;
}

template <typename T>
static void topk_rescore(struct device *dev, int64_t *index, float *score, struct mat queries, struct mat landmarks,
                         int k) {
    launch(dev, "topk.forward", topk_rescore_kernel<T>, (unsigned)queries.rows, 32 * SCAN_WARPS, 0, index, score,
           rows<const float>{(const float *)queries.data, queries.stride},
           rows<const T>{(const T *)landmarks.data, landmarks.stride}, queries.cols, k,
           1.0f / sqrtf((float)queries.cols));
}

/* One round of topk_rows_cuda.cuh. */
static void topk_rows_round(struct device *dev, topk_out out, struct mat queries, struct mat landmarks,
                            const int64_t *visible) {
    topk_rows_task t = {out, visible, NULL, NULL, 0, 0, 0.0f};
    int blocks = topk_rows_search(dev, &t, queries, landmarks), n = (int)queries.rows;
    if (blocks > 1)
        launch(dev, "topk.forward", topk_join_blocks, (unsigned)blocks_for(n, JOIN_WARPS), 32 * JOIN_WARPS, 0, out,
               t.score, t.index, blocks, n, 0);
}

static void topk_forward(struct device *dev, int64_t *index, float *score, struct mat queries, struct mat landmarks,
                    const int64_t *visible, int k) {
    assert(k >= 1 && k <= TOPK_MAX && (landmarks.rows == 0 || queries.cols == landmarks.cols));
    assert(landmarks.rows < INT32_MAX - TILE_MAX && (queries.type != DTYPE_F16 || landmarks.type == DTYPE_F16));
    int64_t slots = queries.rows * k;
    bool wide = queries.type == DTYPE_F32, by_rows = landmarks.rows > 0 && topk_rows_fit(queries, landmarks);
    if (!by_rows) /* topk_rows writes every slot */
        launch(dev, "topk.forward", topk_clear, (unsigned)blocks_for(slots, THREADS), THREADS, 0, index, score, slots);
    if (queries.rows == 0 || landmarks.rows == 0) return;
    for (int first = 0; first < k; first += TOPK_LIST_MAX) {
        topk_out out = {index, score, k, first, k - first < TOPK_LIST_MAX ? k - first : TOPK_LIST_MAX};
        auto round = by_rows                        ? topk_rows_round
                     : queries.type == DTYPE_F16     ? topk_round<__half, __half>
                     : landmarks.type == DTYPE_F32  ? (wide ? topk_round<float, float> : topk_round<float, bf16>)
                     : landmarks.type == DTYPE_BF16 ? (wide ? topk_round<bf16, float> : topk_round<bf16, bf16>)
                                                    : (wide ? topk_round<__half, float> : topk_round<__half, bf16>);
        round(dev, out, queries, landmarks, visible);
    }
    if (wide && landmarks.type != DTYPE_F32 && k <= TOPK_LIST_MAX)
        (landmarks.type == DTYPE_F16 ? topk_rescore<__half> : topk_rescore<bf16>)(dev, index, score, queries, landmarks,
                                                                                  k);
}

static void topk_sample(struct device *dev, int64_t *index, int32_t *slot, float *score,
                        const struct topk_sampling *sampling) {
    struct mat queries = sampling->queries, landmarks = sampling->landmarks;
    int k = sampling->k;
    assert(k >= 1 && k <= TOPK_SAMPLE_MAX && (landmarks.rows == 0 || queries.cols == landmarks.cols));
    assert(landmarks.rows < INT32_MAX - SAMPLE_COLUMNS && queries.type == landmarks.type && queries.type != DTYPE_F16);
    int64_t slots = queries.rows * k;
    launch(dev, "topk.sample", topk_clear, (unsigned)blocks_for(slots, THREADS), THREADS, 0, index, score, slots);
    for (int first = 0; first < k && queries.rows && landmarks.rows; first += TOPK_LIST_MAX) {
        topk_out out = {index, score, k, first, k - first < TOPK_LIST_MAX ? k - first : TOPK_LIST_MAX};
        topk_sample_round(dev, {sampling->rows, 0, out, sampling->gumbel, sampling->seed}, queries, landmarks);
    }
    auto finish = queries.type == DTYPE_F32 ? topk_sample_finish<float> : topk_sample_finish<bf16>;
    if (slot || sampling->gumbel) finish(dev, score, slot, index, queries, landmarks, k, sampling->gumbel);
}

static void topk_subsample(struct device *dev, int64_t *index, const int64_t *from_index, const float *from_score,
                           int64_t n, int from, int k, uint64_t seed) {
    assert(k >= 1 && k <= from && k <= TOPK_SAMPLE_MAX);
    launch(dev, "topk.subsample", topk_subsample_kernel, (unsigned)blocks_for(n, SAMPLE_WARPS), SAMPLE_THREADS, 0,
           index, from_index, from_score, n, from, k, seed);
}

static void topk_gather(struct device *dev, int32_t *out, const int32_t *table, int64_t rows, int64_t cols,
                        const int64_t *index, int64_t n) {
    launch(dev, "topk.gather", topk_gather_kernel, (unsigned)blocks_for(n * cols, SAMPLE_THREADS), SAMPLE_THREADS, 0,
           out, table, rows, cols, index, n);
}

/* One thread for each row. */
static __global__ void __launch_bounds__(THREADS)
    topk_softmax_kernel(float *weight, const float *score, int64_t n, int k) {
    int64_t row = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (row >= n) return;
    float top = -INFINITY, sum = 0.0f;
    for (int i = 0; i < k; i++)
        top = fmaxf(top, score[row * k + i]);
    for (int i = 0; i < k && top > -INFINITY; i++)
        sum += expf(score[row * k + i] - top);
    for (int i = 0; i < k; i++)
        weight[row * k + i] = top > -INFINITY ? expf(score[row * k + i] - top) / sum : 0.0f;
}

static void topk_softmax_weights(struct device *dev, float *weight, const float *score, int64_t n, int k) {
    launch(dev, "topk.softmax_weights", topk_softmax_kernel, (unsigned)blocks_for(n, THREADS), THREADS, 0, weight,
           score, n, k);
}

struct topk_found {
    const float *weight;
    const int64_t *index;
    int64_t n;
    int k;
};

/* dscore = w (dw - sum w dw), and the keys of the scatter: empty slots are left out. One thread for each row. */
static __global__ void __launch_bounds__(THREADS)
    topk_backward_scores(float *dscore, uint32_t *key, int32_t *position, const float *dweight, topk_found found,
                         uint32_t keys) {
    const float *weight = found.weight;
    const int64_t *index = found.index;
    int64_t n = found.n;
    int k = found.k;
    int64_t row = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (row >= n) return;
    float sum = 0.0f;
    for (int i = 0; i < k; i++)
        sum += weight[row * k + i] * dweight[row * k + i];
    for (int i = 0; i < k; i++) {
        int64_t at = row * k + i;
        bool live = index[at] >= 0 && weight[at] != 0.0f; /* weight 0 by underflow: the gradient is also 0 */
        dscore[at] = live ? weight[at] * (dweight[at] - sum) : 0.0f;
        key[at] = live ? (uint32_t)index[at] : keys;
        position[at] = (int32_t)at;
    }
}

/* dqueries[row] += scale sum_j dscore_j landmark_j: one block for each row. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    topk_backward_queries(rows<float> dqueries, const float *dscore, const int64_t *index, rows<const T> landmarks,
                          int64_t d, int k, float scale) {
    int64_t row = blockIdx.x;
    for (int64_t i = threadIdx.x; i < d; i += THREADS) {
        float sum = 0.0f;
        for (int j = 0; j < k; j++)
            if (index[row * k + j] >= 0) sum += dscore[row * k + j] * to_float(landmarks[index[row * k + j]][i]);
        dqueries[row][i] += scale * sum;
    }
}

static void topk_backward(struct device *dev, struct mat dqueries, struct mat dlandmarks, const float *dweight,
                          struct topk_weights found, struct mat queries, struct mat landmarks) {
    const int64_t *index = found.index;
    int k = found.k;
    const char *op = "topk.backward";
    int64_t n = queries.rows, d = queries.cols;
    assert(dqueries.type == DTYPE_F32 && dlandmarks.type == DTYPE_F32 && dlandmarks.rows == landmarks.rows);
    assert(queries.type != DTYPE_F16 && landmarks.type != DTYPE_F16);
    if (n == 0 || landmarks.rows == 0) return;
    float scale = 1.0f / sqrtf((float)d), *dscore = NULL;
    scatter_plan plan = scatter_allocate(dev, n * k, landmarks.rows, (void **)&dscore, (size_t)(n * k) * sizeof(float));
    launch(dev, op, topk_backward_scores, (unsigned)blocks_for(n, THREADS), THREADS, 0, dscore, plan.key, plan.item,
           dweight, topk_found{found.weight, index, n, k}, (uint32_t)landmarks.rows);
    if (landmarks.type == DTYPE_F32)
        launch(dev, op, topk_backward_queries<float>, (unsigned)n, THREADS, 0, rows_of<float>(dqueries), dscore, index,
               rows<const float>{(const float *)landmarks.data, landmarks.stride}, d, k, scale);
    else
        launch(dev, op, topk_backward_queries<bf16>, (unsigned)n, THREADS, 0, rows_of<float>(dqueries), dscore, index,
               rows<const bf16>{(const bf16 *)landmarks.data, landmarks.stride}, d, k, scale);
    queries.type == DTYPE_F32 ? scatter_run<float>(dev, op, plan, dlandmarks, queries, dscore, scale, k)
                              : scatter_run<bf16>(dev, op, plan, dlandmarks, queries, dscore, scale, k);
}

extern "C" const struct topk_ops topk_cuda = {.forward = topk_forward,
                                              .sample = topk_sample,
                                              .subsample = topk_subsample,
                                              .gather = topk_gather,
                                              .softmax_weights = topk_softmax_weights,
                                              .backward = topk_backward};
