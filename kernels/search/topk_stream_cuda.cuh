/* topk_stream_cuda.cuh -- the best landmarks of up to 64 queries in one pass over 16-bit landmarks.
 *
 *   block: one an SM, 8 warps     queries in shared memory, in the order in which lanes multiply them
 *   warp:  32 landmarks           rows 0..31 straight into registers, 16 bytes a lane and step, 4 steps in flight
 *          x all queries          mma m16n8k16; a lane's 16 bytes feed two products
 *          list a query           in shared memory; a score is compared with the list's last slot and rarely enters
 *
 * A product may combine the numbers of a row in any order that is the same on both sides: so a lane reads 16
 * consecutive bytes, and four lanes read 64. Queries of a wider type than the landmarks take two columns
 * (topk_split_cuda.cuh).
 *
 * Bound by memory: 2 E d bytes, each landmark read once. Best measured (H100, 20M x 1024 fp16, best 8): 97 % of a
 * copy's rate for one query, 88 % for 64 (docs/kernels/search.md). */
#pragma once
#include "kernels/search/topk_list_cuda.cuh"
#include "kernels/search/topk_split_cuda.cuh"

enum {
    STREAM_WARPS = 8,
    STREAM_THREADS = 32 * STREAM_WARPS,
    STREAM_COLUMNS = 64, /* of a product: queries times parts */
    STREAM_ROWS = 32,    /* landmarks of a warp */
    STREAM_STEP = 32,    /* numbers of a row that a step takes */
    STREAM_DEPTH = 4     /* steps in flight */
};

struct topk_stream_lists { /* [blocks, queries, k], in the scratch */
    float *score;
    int32_t *index;
    int blocks;
};

struct topk_stream_task {
    topk_out out;
    const int64_t *visible;
    topk_stream_lists lists;
    int64_t landmarks, first_query;
    int queries, parts, d;
    float scale;
};

static __device__ __forceinline__ void topk_stream_mma(float *c, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                       uint32_t b0, uint32_t b1, bf16) {
    warp_product(c, a0, a1, a2, a3, b0, b1);
}
static __device__ __forceinline__ void topk_stream_mma(float *c, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                       uint32_t b0, uint32_t b1, __half) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* Queries to shared memory: entry (step, tile of 8 columns, lane) is the 16 bytes that this lane multiplies there.
 * Column c: query c % padded, part c / padded. */
template <typename T, typename Q>
static __device__ void topk_stream_load_queries(uint4 *to, const float *power, rows<const Q> queries,
                                                const topk_stream_task &t, int tiles) {
    int padded = tiles * 8 / t.parts;
    for (int i = threadIdx.x; i < t.d / STREAM_STEP * tiles * 32; i += STREAM_THREADS) {
        int lane = i % 32, column = i / 32 % tiles * 8 + lane / 4, at = i / 32 / tiles * STREAM_STEP + lane % 4 * 8;
        int query = column % padded, part = column / padded;
        union {
            uint4 raw;
            uint16_t bits[8];
        } out = {};
        for (int j = 0; j < 8 && query < t.queries; j++) {
            float x = to_float(queries[query][at + j]) * power[query];
            T rounded = from_float<T>(x);
            if (part) rounded = from_float<T>(x - to_float(rounded));
            memcpy(&out.bits[j], &rounded, 2);
        }
        to[i] = out.raw;
    }
}

/* Offers the scores of a warp's 32 landmarks: one tile of columns passes through `stage`, 8 scores a lane, so that one
 * loop serves them all. Lane (g, c) holds rows g + 8 i, columns 2 c and 2 c + 1. */
static __device__ void topk_stream_offer(const topk_stream_task &t, const float *stage, topk_list lists,
                                         const int32_t *visible, const topk_below *below, int32_t first_row, int tile) {
    int lane = threadIdx.x % 32, k = t.out.k;
    for (int e = 0; e < 8; e++) {
        int query = tile * 8 + lane % 4 * 2 + e % 2;
        int32_t row = first_row + lane / 4 + e / 2 * 8;
        float score = stage[e * 32 + lane];
        bool mine = query < t.queries && row < visible[query] && score >= lists.score[query * k + k - 1] &&
                    below[query].allows(score, row);
        topk_list_offer_lanes(lists, k, mine, query, score, row);
    }
}

/* Reads the next 16 bytes of each of a lane's four rows. */
template <typename T> struct topk_stream_cursor {
    const T *data;
    int64_t stride, tile, tiles, jump, last_row;
    int step, steps;
    __device__ void load(uint4 *into) {
        int64_t row = tile * STREAM_ROWS + threadIdx.x % 32 / 4;
        const T *at = data + step * STREAM_STEP + threadIdx.x % 4 * 8;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int64_t r = row + 8 * i < last_row ? row + 8 * i : last_row;
            into[i] = load_once(at + r * stride);
        }
        if (++step == steps) {
            step = 0;
            if (tile + jump < tiles) tile += jump; /* past the end the last row is read again, and not used */
        }
    }
};

/* Shared memory of a block besides queries and lists. */
struct topk_stream_block {
    float stage[STREAM_WARPS][8 * 32];
    int32_t visible[STREAM_COLUMNS];
    topk_below below[STREAM_COLUMNS];
    float power[STREAM_COLUMNS], factor[STREAM_COLUMNS]; /* of the query before it is rounded; from sums to scores */
    int sees; /* the largest number that any query sees */
};

/* The scores of a warp's 32 landmarks: adds parts, and offers the scores that reach a list's last slot. */
template <int NT, int PARTS>
static __device__ __forceinline__ void topk_stream_scores(const topk_stream_task &t, float (*sum)[NT][4],
                                                          topk_stream_block &own, topk_list lists, int32_t first_row) {
    enum { TILES = NT / PARTS };
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, k = t.out.k;
#pragma unroll
    for (int j = 0; j < TILES; j++) {
        bool any = false;
        int query = j * 8 + lane % 4 * 2;
        float last0 = query < t.queries ? lists.score[query * k + k - 1] : INFINITY;
        float last1 = query + 1 < t.queries ? lists.score[(query + 1) * k + k - 1] : INFINITY;
        float2 factor = *(const float2 *)(own.factor + query);
#pragma unroll
        for (int e = 0; e < 8; e++) {
            float s = sum[e / 4][j][e % 4];
            if (PARTS == 2) s += sum[e / 4][j + NT - TILES][e % 4];
            s *= e % 2 ? factor.y : factor.x;
            sum[e / 4][j][e % 4] = s;
            any |= s >= (e % 2 ? last1 : last0);
        }
        if (!__any_sync(~0u, any)) continue;
#pragma unroll
        for (int e = 0; e < 8; e++)
            own.stage[warp][e * 32 + lane] = sum[e / 4][j][e % 4];
        __syncwarp();
        topk_stream_offer(t, own.stage[warp], lists, own.visible, own.below, first_row, j);
        __syncwarp();
    }
}

/* One warp: its tiles of landmarks, one after another. */
template <typename T, int NT, int PARTS>
static __device__ __forceinline__ void topk_stream_warp(const topk_stream_task &t, rows<const T> landmarks,
                                                        const uint4 *queries, topk_stream_block &own, topk_list lists) {
    int steps = t.d / STREAM_STEP, lane = threadIdx.x % 32;
    int64_t tiles = ((int64_t)own.sees + STREAM_ROWS - 1) / STREAM_ROWS, jump = (int64_t)gridDim.x * STREAM_WARPS;
    int64_t tile = (int64_t)blockIdx.x * STREAM_WARPS + threadIdx.x / 32;
    if (tile >= tiles) return;
    topk_stream_cursor<T> cursor = {landmarks.data, landmarks.stride, tile, tiles, jump, t.landmarks - 1, 0, steps};
    uint4 a[STREAM_DEPTH][4];
#pragma unroll
    for (int u = 0; u < STREAM_DEPTH; u++)
        cursor.load(a[u]);
    for (; tile < tiles; tile += jump) {
        float sum[2][NT][4] = {};
        for (int step = 0; step < steps; step += STREAM_DEPTH) {
#pragma unroll
            for (int u = 0; u < STREAM_DEPTH; u++) {
                const uint4 *b = queries + (step + u) * NT * 32 + lane;
#pragma unroll
                for (int j = 0; j < NT; j++) {
                    uint4 q = b[j * 32];
#pragma unroll
                    for (int m = 0; m < 2; m++) {
                        const uint4 &up = a[u][2 * m], &low = a[u][2 * m + 1];
                        topk_stream_mma(sum[m][j], up.x, low.x, up.y, low.y, q.x, q.y, T());
                        topk_stream_mma(sum[m][j], up.z, low.z, up.w, low.w, q.z, q.w, T());
                    }
                }
                cursor.load(a[u]);
            }
        }
        topk_stream_scores<NT, PARTS>(t, sum, own, lists, (int32_t)(tile * STREAM_ROWS));
    }
}

/* NT: tiles of 8 columns. Tiles j and j + NT/2 are the parts of the same queries when there are two. */
template <typename T, typename Q, int NT, int PARTS>
static __global__ void __launch_bounds__(STREAM_THREADS, 1)
    topk_stream_kernel(topk_stream_task t, rows<const Q> queries, rows<const T> landmarks) {
    extern __shared__ uint4 shared[];
    __shared__ topk_stream_block own;
    int warp = threadIdx.x / 32, k = t.out.k, slots = STREAM_WARPS * t.queries * k;
    float *scores = (float *)(shared + t.d / STREAM_STEP * NT * 32);
    int32_t *indexes = (int32_t *)(scores + slots);
    if (threadIdx.x == 0) own.sees = 0;
    for (int i = threadIdx.x; i < slots; i += STREAM_THREADS) {
        scores[i] = -INFINITY;
        indexes[i] = -1;
    }
    for (int q = warp; q < STREAM_COLUMNS; q += STREAM_WARPS) {
        float power = q < t.queries ? split_power<T>(queries[q], t.d) : 1.0f;
        own.power[q] = power;
        own.factor[q] = t.scale / power;
    }
    __syncthreads();
    topk_stream_load_queries<T, Q>(shared, own.power, queries, t, NT);
    if ((int)threadIdx.x < t.queries) {
        int64_t v = t.visible[threadIdx.x];
        own.visible[threadIdx.x] = (int32_t)(v < t.landmarks ? v : t.landmarks);
        own.below[threadIdx.x] = t.out.bound(t.first_query + threadIdx.x);
        atomicMax(&own.sees, own.visible[threadIdx.x]);
    }
    __syncthreads();
    topk_list lists = {scores + warp * t.queries * k, indexes + warp * t.queries * k};
    topk_stream_warp<T, NT, PARTS>(t, landmarks, shared, own, lists);
    __syncthreads();
    topk_list_join(t.lists.score, t.lists.index, scores, indexes, t.queries, t.out.k, STREAM_WARPS);
}

static size_t topk_stream_shared(int tiles, int queries, int64_t d, int k) {
    return (size_t)tiles * 8 * (size_t)d * 2 + (size_t)STREAM_WARPS * (size_t)queries * (size_t)k * 8;
}

/* How many queries fit one pass; 0: fewer than 8. GPUs differ in the shared memory of a block. */
static int topk_stream_queries(struct device *dev, int64_t d, int k, int parts) {
    size_t limit = (size_t)device_cuda_shared_bytes(dev) - sizeof(struct topk_stream_block);
    int n = STREAM_COLUMNS / parts;
    while (n > 0 && topk_stream_shared(n * parts / 8, n, d, k) > limit)
        n /= 2;
    return n >= 8 ? n : 0;
}

static bool topk_stream_fits(struct device *dev, struct mat queries, struct mat landmarks, int k) {
    int parts = queries.type == DTYPE_F32 ? 2 : 1;
    return queries.cols % (STREAM_STEP * STREAM_DEPTH) == 0 && vectors_fit(landmarks) &&
           topk_stream_queries(dev, queries.cols, k, parts) > 0;
}

template <typename T, typename Q>
static topk_stream_lists topk_stream_search(struct device *dev, topk_out out, struct mat queries, struct mat landmarks,
                               const int64_t *visible, int64_t first_query, int parts) {
    constexpr int PARTS = sizeof(Q) > sizeof(T) ? 2 : 1;
    int n = (int)queries.rows, tiles = (int)blocks_for(n, 8);
    tiles = tiles <= 1 ? 1 : tiles <= 2 ? 2 : tiles <= 4 ? 4 : 8;
    int blocks = device_cuda_processors(dev);
    int64_t enough = blocks_for(blocks_for(landmarks.rows, STREAM_ROWS), STREAM_WARPS);
    if (blocks > enough) blocks = (int)enough;
    size_t slots = (size_t)blocks * (size_t)n * (size_t)out.k;
    float *scratch = (float *)device_cuda_scratch(dev, 8 * slots);
    topk_stream_lists lists = {scratch, (int32_t *)(void *)(scratch + slots), blocks};
    topk_stream_task t = {out, visible, lists, landmarks.rows, first_query, n, parts, (int)queries.cols,
                     1.0f / sqrtf((float)queries.cols)};
    auto kernel = tiles == 1   ? topk_stream_kernel<T, Q, 1 * PARTS, PARTS>
                  : tiles == 2 ? topk_stream_kernel<T, Q, 2 * PARTS, PARTS>
                  : tiles == 4 ? topk_stream_kernel<T, Q, 4 * PARTS, PARTS>
                               : topk_stream_kernel<T, Q, 8, PARTS>;
    size_t bytes = topk_stream_shared(tiles * PARTS, n, queries.cols, out.k);
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    launch(dev, "topk.forward", kernel, (unsigned)blocks, STREAM_THREADS, bytes, t,
           rows<const Q>{(const Q *)queries.data, queries.stride},
           rows<const T>{(const T *)landmarks.data, landmarks.stride});
    return lists;
}
