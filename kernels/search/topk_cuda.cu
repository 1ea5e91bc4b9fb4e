/* topk_cuda.cu -- landmark scores and the best of them; the weights of the chosen, and their way back.
 *
 * More than 16 queries against 16-bit landmarks on Hopper: topk_tiles_cuda.cuh, scores never leave the registers.
 * To 64 queries else: topk_stream_cuda.cuh. Both read the landmarks once. A few float32 queries: topk_rows_cuda.cuh.
 * Everything else: products by cuBLASLt into a tile of scores that stays in the L2 cache, and a warp a query that reads
 * the tile against its list's last place. Bound by arithmetic, 2 n E d; the tile's way through the cache, 4 n E bytes
 * each way, comes on top: 2.2 times the floor for 1024 queries (H100, 2026-11-21), and why the kernel for Hopper exists.
 *
 * Queries of a wider type than the landmarks are split (topk_split_cuda.cuh), so that nothing of a float32 query is lost on
 * the tensor cores; what is found is scored once more in float32. */
#include "kernels/search/topk_sample_cuda.cuh"
#include "kernels/search/topk_rows_cuda.cuh"
#include "kernels/search/topk_stream_cuda.cuh"
#include "kernels/search/topk_tiles_cuda.cuh"
extern "C" {
#include "kernels/linear/blas_cuda_internal.h"
}

enum { THREADS = 256, SCAN_WARPS = 4, TILE_SCORES = 8 << 20, TILE_MIN = 1024, TILE_MAX = 16384, JOIN_WARPS = 4 };

static __global__ void __launch_bounds__(THREADS) clear_out(int64_t *index, float *score, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n) return;
    index[i] = -1;
    score[i] = -INFINITY;
}

/* Joins the blocks' lists of one query: one warp. lists [blocks, queries, k]. */
static __global__ void __launch_bounds__(32 * JOIN_WARPS)
    join_blocks(topk_out out, const float *scores, const int32_t *indexes, int blocks, int queries, int first_query) {
    __shared__ float score[JOIN_WARPS][LIST_MAX];
    __shared__ int32_t index[JOIN_WARPS][LIST_MAX];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, q = blockIdx.x * JOIN_WARPS + warp, k = out.k;
    if (q >= queries) return;
    topk_list l = {score[warp], index[warp]};
    list_clear(l, k);
    for (int base = 0; base < blocks * k; base += 32) {
        int i = base + lane;
        int64_t at = ((int64_t)(i / k) * queries + q) * k + i % k;
        float s = i < blocks * k ? scores[at] : -INFINITY;
        int32_t which = i < blocks * k ? indexes[at] : -1;
        list_offer_lanes(l, k, which >= 0 && s >= l.score[k - 1], s, which);
    }
    if (lane < k) {
        int64_t at = (int64_t)(first_query + q) * out.all + out.first + lane;
        out.score[at] = l.score[lane];
        out.index[at] = l.index[lane];
    }
}

/* A round of the few: as many queries a pass as shared memory holds. */
template <typename T, typename Q>
static void few(struct device *dev, topk_out out, struct mat queries, struct mat landmarks, const int64_t *visible) {
    int parts = sizeof(Q) > sizeof(T) ? 2 : 1;
    int group = stream_queries(dev, queries.cols, out.k, parts);
    for (int64_t first = 0; first < queries.rows; first += group) {
        int n = (int)(queries.rows - first < group ? queries.rows - first : group);
        stream_lists lists = stream_run<T, Q>(dev, out, mat_rows(queries, first, n), landmarks, visible + first, first, parts);
        launch(dev, "topk.forward", join_blocks, (unsigned)blocks_for(n, JOIN_WARPS), 32 * JOIN_WARPS, 0, out, lists.score,
               lists.index, lists.blocks, n, (int)first);
    }
}

/* A tile of sums [n (and n more), columns], of landmarks base .. base+columns-1: a warp a query. */
static __global__ void __launch_bounds__(32 * SCAN_WARPS)
    scan(topk_out out, const float *scores, const float *factors, int64_t second, int stride, int columns, int32_t base, const int64_t *visible,
         int64_t n) {
    __shared__ float score[SCAN_WARPS][LIST_MAX];
    __shared__ int32_t index[SCAN_WARPS][LIST_MAX];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, k = out.k;
    int64_t query = (int64_t)blockIdx.x * SCAN_WARPS + warp;
    if (query >= n) return;
    int64_t sees = visible[query] - base, at = query * out.all + out.first;
    int live = sees < columns ? (int)sees : columns;
    if (live <= 0) return;
    topk_below below = out.bound(query);
    topk_list l = {score[warp], index[warp]};
    if (lane < k) {
        l.score[lane] = out.score[at + lane];
        l.index[lane] = (int32_t)out.index[at + lane];
    }
    __syncwarp();
    float last = l.score[k - 1], factor = factors[query];
    const float *row = scores + query * stride;
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
            list_offer_lanes(l, k, mine, s[j / 4][j % 4], base + c);
        }
        last = l.score[k - 1];
        changed = true;
    }
    if (changed && lane < k) {
        out.score[at + lane] = l.score[lane];
        out.index[at + lane] = l.index[lane];
    }
}

static int64_t tile_columns(int64_t rows_all, int64_t landmarks) {
    int64_t columns = TILE_SCORES / rows_all / TILE_MIN * TILE_MIN;
    if (columns < TILE_MIN) columns = TILE_MIN;
    if (columns > TILE_MAX) columns = TILE_MAX;
    int64_t enough = blocks_for(landmarks, 4) * 4;
    return columns < enough ? columns : enough;
}

/* The parts of a block of queries in the scratch, what makes scores of their sums, and what is left of the scratch. */
template <typename T> struct query_parts {
    struct mat parts; /* [n or 2n, d] */
    float *factor;    /* [n] */
    void *rest;
};

/* How many queries at a time, when there may be `most`: with all their parts they take no more than half of the scratch. */
template <typename T, typename Q> static int64_t queries_at_once(struct device *dev, int64_t most, int64_t d) {
    int64_t bytes = d * (int64_t)sizeof(T) * (sizeof(Q) > sizeof(T) ? 2 : 1), fit = (int64_t)device_cuda_scratch_bytes(dev) / 2 / bytes;
    return fit < most ? fit : most;
}

template <typename T, typename Q>
static query_parts<T> split(struct device *dev, struct mat queries, size_t rest_bytes) {
    constexpr int PARTS = sizeof(Q) > sizeof(T) ? 2 : 1;
    int64_t n = queries.rows, d = queries.cols;
    size_t part_bytes = ((size_t)(PARTS * n * d) * sizeof(T) + 255) / 256 * 256;
    size_t factor_bytes = ((size_t)n * sizeof(float) + 255) / 256 * 256;
    unsigned char *scratch = (unsigned char *)device_cuda_scratch(dev, part_bytes + factor_bytes + rest_bytes);
    query_parts<T> q = {mat_dense(scratch, dtype_of<T>(), PARTS * n, d), (float *)(void *)(scratch + part_bytes),
                        scratch + part_bytes + factor_bytes};
    launch(dev, "topk.forward", split_queries<T, Q, PARTS>, (unsigned)blocks_for(n, SPLIT_WARPS), SPLIT_THREADS, 0,
           (T *)q.parts.data, q.factor, rows<const Q>{(const Q *)queries.data, queries.stride}, n, d, 1.0f / sqrtf((float)d));
    return q;
}

/* A round of the many; queries in blocks so that a block's tile fits. */
template <typename T, typename Q>
static void many(struct device *dev, topk_out out, struct mat queries, struct mat landmarks, const int64_t *visible) {
    enum { BLOCK = TILE_SCORES / TILE_MIN };
    bool two = sizeof(Q) > sizeof(T);
    int64_t block = queries_at_once<T, Q>(dev, two ? BLOCK / 2 : BLOCK, queries.cols);
    for (int64_t first = 0; first < queries.rows; first += block) {
        int64_t n = queries.rows - first < block ? queries.rows - first : block, all = two ? 2 * n : n;
        int64_t columns = tile_columns(all, landmarks.rows);
        query_parts<T> q = split<T, Q>(dev, mat_rows(queries, first, n), (size_t)(all * columns) * 4);
        topk_out place = out;
        place.index += first * out.all;
        place.score += first * out.all;
        for (int64_t base = 0; base < landmarks.rows; base += columns) {
            int64_t m = landmarks.rows - base < columns ? landmarks.rows - base : columns;
            struct mat tile = {q.rest, DTYPE_F32, all, m, columns};
            blas_cuda_product(dev, "topk.forward", {.y = tile, .a = q.parts, .b = mat_rows(landmarks, base, m),
                                                    .b_transposed = true, .scale = 1.0f});
            launch(dev, "topk.forward", scan, (unsigned)blocks_for(n, SCAN_WARPS), 32 * SCAN_WARPS, 0, place,
                   (const float *)q.rest, q.factor, two ? n * columns : 0, (int)columns, (int)m, (int32_t)base, visible + first, n);
        }
    }
}

/* A round of the many on Hopper. */
template <typename T, typename Q>
static void tiles(struct device *dev, topk_out out, struct mat queries, struct mat landmarks, const int64_t *visible) {
    int64_t block = queries_at_once<T, Q>(dev, tiles_queries(dev), queries.cols);
    for (int64_t first = 0; first < queries.rows; first += block) {
        int64_t n = queries.rows - first < block ? queries.rows - first : block;
        tiles_task t = {out, visible + first, NULL, NULL, NULL, landmarks.rows, n, 0, 0, (int)queries.cols};
        t.out.index += first * out.all;
        t.out.score += first * out.all;
        tiles_cut(dev, &t);
        size_t places = (size_t)(t.parts * n * out.k);
        query_parts<T> q = split<T, Q>(dev, mat_rows(queries, first, n), 8 * places);
        t.factor = q.factor;
        t.score = (float *)q.rest;
        t.index = (int32_t *)(void *)(t.score + places);
        if (!tiles_run<T, (sizeof(Q) > sizeof(T) ? 2 : 1)>(dev, t, q.parts, landmarks)) {
            device_cuda_fault(dev, "topk.forward", "no tensor map of the landmarks");
            return;
        }
        launch(dev, "topk.forward", join_blocks, (unsigned)blocks_for(n, JOIN_WARPS), 32 * JOIN_WARPS, 0, t.out, t.score,
               t.index, t.parts, (int)n, 0);
    }
}

template <typename T, typename Q>
static void run(struct device *dev, topk_out out, struct mat queries, struct mat landmarks, const int64_t *visible) {
    if constexpr (sizeof(T) == 2) {
        /* All rounds of a list take one way: a round begins where the one before ended, to the bit. */
        int k = out.all < LIST_MAX ? out.all : LIST_MAX;
        bool hopper = tiles_serve(dev, landmarks);
        int64_t most = hopper ? STREAM_COLUMNS / 4 : STREAM_COLUMNS;
        if (queries.rows <= most && stream_serves(dev, queries, landmarks, k)) {
            few<T, Q>(dev, out, queries, landmarks, visible);
            return;
        }
        if (hopper) {
            tiles<T, Q>(dev, out, queries, landmarks, visible);
            return;
        }
    }
    many<T, Q>(dev, out, queries, landmarks, visible);
}

/* The scores of what was found once more, in float32, and its order by them: tensor cores cut the sums of a float32 query short, by
 * some 2^-19. A block a query, a warp a place. */
template <typename T>
static __global__ void __launch_bounds__(32 * SCAN_WARPS)
    score_again(int64_t *index, float *score, rows<const float> queries, rows<const T> landmarks, int64_t d, int k, float scale) {
    __shared__ sorted_place place[LIST_MAX];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const float *query = queries[blockIdx.x];
    index += (int64_t)blockIdx.x * k;
    score += (int64_t)blockIdx.x * k;
    for (int i = warp; i < LIST_MAX; i += SCAN_WARPS) {
        int32_t which = i < k ? (int32_t)index[i] : -1;
        float sum = 0.0f;
        for (int64_t j = lane; which >= 0 && j < d; j += 32)
            sum += query[j] * to_float(landmarks[which][j]);
        sum = warp_sum(sum) * scale;
        if (lane == 0) place[i] = {which >= 0 ? sum : -INFINITY, which};
    }
    __syncthreads();
    if (warp > 0) return;
    sorted_place p = sorted_of(place[lane]);
    if (lane >= k) return;
    index[lane] = p.index;
    score[lane] = p.score;
}

template <typename T>
static void again(struct device *dev, int64_t *index, float *score, struct mat queries, struct mat landmarks, int k) {
    launch(dev, "topk.forward", score_again<T>, (unsigned)queries.rows, 32 * SCAN_WARPS, 0, index, score,
           rows<const float>{(const float *)queries.data, queries.stride},
           rows<const T>{(const T *)landmarks.data, landmarks.stride}, queries.cols, k, 1.0f / sqrtf((float)queries.cols));
}

/* A round of a few float32 queries. */
static void few_rows(struct device *dev, topk_out out, struct mat queries, struct mat landmarks, const int64_t *visible) {
    rows_task t = {out, visible, NULL, NULL, 0, 0, 0.0f};
    int blocks = rows_run(dev, &t, queries, landmarks), n = (int)queries.rows;
    if (blocks > 1)
        launch(dev, "topk.forward", join_blocks, (unsigned)blocks_for(n, JOIN_WARPS), 32 * JOIN_WARPS, 0, out, t.score, t.index,
               blocks, n, 0);
}

static void forward(struct device *dev, int64_t *index, float *score, struct mat queries, struct mat landmarks,
                    const int64_t *visible, int k) {
    assert(k >= 1 && k <= TOPK_PLACES_MAX && (landmarks.rows == 0 || queries.cols == landmarks.cols));
    assert(landmarks.rows < INT32_MAX - TILE_MAX && (queries.type != DTYPE_F16 || landmarks.type == DTYPE_F16));
    int64_t places = queries.rows * k;
    bool wide = queries.type == DTYPE_F32, by_rows = landmarks.rows > 0 && rows_serve(queries, landmarks);
    if (!by_rows) /* which writes every place */
        launch(dev, "topk.forward", clear_out, (unsigned)blocks_for(places, THREADS), THREADS, 0, index, score, places);
    if (queries.rows == 0 || landmarks.rows == 0) return;
    for (int first = 0; first < k; first += LIST_MAX) {
        topk_out out = {index, score, k, first, k - first < LIST_MAX ? k - first : LIST_MAX};
        auto round = by_rows                        ? few_rows
                     : queries.type == DTYPE_F16     ? run<__half, __half>
                     : landmarks.type == DTYPE_F32  ? (wide ? run<float, float> : run<float, bf16>)
                     : landmarks.type == DTYPE_BF16 ? (wide ? run<bf16, float> : run<bf16, bf16>)
                                                    : (wide ? run<__half, float> : run<__half, bf16>);
        round(dev, out, queries, landmarks, visible);
    }
    if (wide && landmarks.type != DTYPE_F32 && k <= LIST_MAX)
        (landmarks.type == DTYPE_F16 ? again<__half> : again<bf16>)(dev, index, score, queries, landmarks, k);
}

static void choose(struct device *dev, int64_t *index, int32_t *slot, float *score, struct mat queries, struct mat landmarks,
                   struct topk_rows rows, int k, bool gumbel, uint64_t seed) {
    assert(k >= 1 && k <= TOPK_CHOOSE_MAX && (landmarks.rows == 0 || queries.cols == landmarks.cols));
    assert(landmarks.rows < INT32_MAX - CHOOSE_COLUMNS && queries.type == landmarks.type && queries.type != DTYPE_F16);
    int64_t places = queries.rows * k;
    launch(dev, "topk.sample", clear_out, (unsigned)blocks_for(places, THREADS), THREADS, 0, index, score, places);
    for (int first = 0; first < k && queries.rows && landmarks.rows; first += LIST_MAX) {
        topk_out out = {index, score, k, first, k - first < LIST_MAX ? k - first : LIST_MAX};
        choose_round(dev, {rows, 0, out, gumbel, seed}, queries, landmarks);
    }
    auto finish = queries.type == DTYPE_F32 ? choose_finish<float> : choose_finish<bf16>;
    if (slot || gumbel) finish(dev, score, slot, index, queries, landmarks, k, gumbel);
}

static void thin(struct device *dev, int64_t *index, const int64_t *from_index, const float *from_score, int64_t n, int from,
                 int k, uint64_t seed) {
    assert(k >= 1 && k <= from && k <= TOPK_CHOOSE_MAX);
    launch(dev, "topk.subsample", thin_rows, (unsigned)blocks_for(n, CHOOSE_WARPS), CHOOSE_THREADS, 0, index, from_index, from_score,
           n, from, k, seed);
}

static void take(struct device *dev, int32_t *out, const int32_t *table, int64_t rows, int64_t cols, const int64_t *index,
                 int64_t n) {
    launch(dev, "topk.gather", take_rows, (unsigned)blocks_for(n * cols, CHOOSE_THREADS), CHOOSE_THREADS, 0, out, table, rows,
           cols, index, n);
}

/* A thread a row. */
static __global__ void __launch_bounds__(THREADS) softmax_places(float *weight, const float *score, int64_t n, int k) {
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

static void weigh(struct device *dev, float *weight, const float *score, int64_t n, int k) {
    launch(dev, "topk.softmax_weights", softmax_places, (unsigned)blocks_for(n, THREADS), THREADS, 0, weight, score, n, k);
}

/* dscore = w (dw - sum w dw); also the keys of the scatter: empty places take no part. */
static __global__ void __launch_bounds__(THREADS)
    scores_back(float *dscore, uint32_t *key, int32_t *place, const float *dweight, const float *weight,
                const int64_t *index, int64_t n, int k, uint32_t keys) {
    int64_t row = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (row >= n) return;
    float sum = 0.0f;
    for (int i = 0; i < k; i++)
        sum += weight[row * k + i] * dweight[row * k + i];
    for (int i = 0; i < k; i++) {
        int64_t at = row * k + i;
        bool live = index[at] >= 0 && weight[at] != 0.0f; /* weight 0 by underflow: the gradient is 0 too */
        dscore[at] = live ? weight[at] * (dweight[at] - sum) : 0.0f;
        key[at] = live ? (uint32_t)index[at] : keys;
        place[at] = (int32_t)at;
    }
}

/* dqueries[row] += scale sum_j dscore_j landmark_j: a block a row. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    queries_back(rows<float> dqueries, const float *dscore, const int64_t *index, rows<const T> landmarks, int64_t d, int k,
                 float scale) {
    int64_t row = blockIdx.x;
    for (int64_t i = threadIdx.x; i < d; i += THREADS) {
        float sum = 0.0f;
        for (int j = 0; j < k; j++)
            if (index[row * k + j] >= 0) sum += dscore[row * k + j] * to_float(landmarks[index[row * k + j]][i]);
        dqueries[row][i] += scale * sum;
    }
}

static void backward(struct device *dev, struct mat dqueries, struct mat dlandmarks, const float *dweight,
                     const float *weight, const int64_t *index, struct mat queries, struct mat landmarks, int k) {
    const char *op = "topk.backward";
    int64_t n = queries.rows, d = queries.cols;
    assert(dqueries.type == DTYPE_F32 && dlandmarks.type == DTYPE_F32 && dlandmarks.rows == landmarks.rows);
    assert(queries.type != DTYPE_F16 && landmarks.type != DTYPE_F16);
    if (n == 0 || landmarks.rows == 0) return;
    float scale = 1.0f / sqrtf((float)d), *dscore = NULL;
    scatter_plan plan = scatter_allocate(dev, n * k, landmarks.rows, (void **)&dscore, (size_t)(n * k) * sizeof(float));
    launch(dev, op, scores_back, (unsigned)blocks_for(n, THREADS), THREADS, 0, dscore, plan.key, plan.item, dweight, weight,
           index, n, k, (uint32_t)landmarks.rows);
    if (landmarks.type == DTYPE_F32)
        launch(dev, op, queries_back<float>, (unsigned)n, THREADS, 0, rows_of<float>(dqueries), dscore, index,
               rows<const float>{(const float *)landmarks.data, landmarks.stride}, d, k, scale);
    else
        launch(dev, op, queries_back<bf16>, (unsigned)n, THREADS, 0, rows_of<float>(dqueries), dscore, index,
               rows<const bf16>{(const bf16 *)landmarks.data, landmarks.stride}, d, k, scale);
    queries.type == DTYPE_F32 ? scatter_run<float>(dev, op, plan, dlandmarks, queries, dscore, scale, k)
                              : scatter_run<bf16>(dev, op, plan, dlandmarks, queries, dscore, scale, k);
}

extern "C" const struct topk_ops topk_cuda = {
    .forward = forward, .sample = choose, .subsample = thin, .gather = take, .softmax_weights = weigh, .backward = backward};
