/* probe_cuda.cu -- the best rows of the lists that a query visits; up to 32 queries a pass.
 *
 * Four kernels. centroid_scores: a warp takes four centroids and multiplies them with every query. pick_lists: a block a
 * query finds the nprobe-th greatest score bit by bit, and marks the lists in a mask of queries for each list; the last block
 * to end turns the marked lists into pieces of four rows. scan_lists: the pieces are dealt to all warps in equal stretches; a
 * warp reads its rows once, whoever visits them (a lane 16 bytes of each 512), and keeps a list of the best for each query.
 * join_lists: the blocks' lists into one.
 *
 * Bound by memory: 2 d bytes a centroid, 2 d bytes a row that anyone visits. Sums run in float32 over rows turned to float32:
 * what one query visits costs the arithmetic units a sixth of the time that its reading takes, so that six queries that meet
 * in a list are still free.
 *
 * Measured (H200, 2026-11-21, 20M x 768, 16,384 lists, best 8, hits in host memory): one query 95 us with 32 lists, 192 us with
 * 256; 64 queries, two passes, 6.3 ms with 256.
 *
 * The order (score, then smaller id) is total, and masks are sets: the same bits however blocks are timed. */
#include "kernels/topk_list_cuda.cuh"
#include <cub/block/block_scan.cuh>
extern "C" {
#include "kernels/probe.h"
}

enum {
    PROBE_QUERIES = 32, /* of a pass: bits of a mask */
    PROBE_GROUP = 4,    /* rows that a warp takes at a time */
    PROBE_WARPS = 16,
    PROBE_THREADS = 32 * PROBE_WARPS,
    PICK_THREADS = 1024,
    JOIN_WARPS = 8
};

struct probe_plan { /* in the scratch */
    float *score;   /* [queries, lists]: of the centroids, -inf where a list is empty */
    uint32_t *mask; /* [lists]: which queries visit */
    int32_t *list, *piece; /* [visited], [visited + 1]: lists that anyone visits, and their first pieces */
    uint32_t *who;         /* [visited]: their masks */
    int32_t *counts;       /* visited lists, pieces, queries done */
};

struct probe_task {
    topk_out out;
    probe_plan plan;
    const int32_t *begin, *id;
    const int64_t (*hole)[2];
    float *block_score; /* [blocks, queries, k] */
    int32_t *block_id;
    int64_t first_query;
    int queries, lists, d, nprobe;
    float scale;
};

/* Queries in shared memory: two float4 for each 16 bytes that a lane reads of a row, lanes behind one another. */
template <int UNITS>
static __device__ void queries_in(float4 *to, rows<const float> queries, int n, int d) {
    float *out = (float *)to;
    for (int i = threadIdx.x; i < n * UNITS * 256; i += blockDim.x) {
        int within = i % (UNITS * 256), unit = within / 256, half = within / 128 % 2, lane = within / 4 % 32;
        int at = (unit * 32 + lane) * 8 + half * 4 + within % 4;
        out[i] = at < d ? queries[i / (UNITS * 256)][at] : 0.0f;
    }
}

/* Rows first .. first+3 of a matrix, as a warp holds them; behind `last` that one again. */
template <int UNITS>
static __device__ __forceinline__ void group_load(uint4 (&raw)[PROBE_GROUP][UNITS], rows<const __half> from, int64_t first,
                                                  int64_t last, int d) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int g = 0; g < PROBE_GROUP; g++) {
        const __half *row = from[first + g < last ? first + g : last];
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
            int at = (u * 32 + lane) * 8;
            raw[g][u] = at < d ? load_once(row + at) : make_uint4(0, 0, 0, 0);
        }
    }
}

/* The four rows' products with one query: lane i gets that of row i / 8. */
template <int UNITS>
static __device__ __forceinline__ float group_dots(const uint4 (&raw)[PROBE_GROUP][UNITS], const float4 *query) {
    int lane = threadIdx.x % 32;
    float sum[PROBE_GROUP] = {};
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        float4 a = query[u * 64 + lane], b = query[u * 64 + 32 + lane];
#pragma unroll
        for (int g = 0; g < PROBE_GROUP; g++) {
            const __half2 *pair = (const __half2 *)&raw[g][u];
            float2 x = __half22float2(pair[0]), y = __half22float2(pair[1]), z = __half22float2(pair[2]), w = __half22float2(pair[3]);
            sum[g] += a.x * x.x + a.y * x.y + a.z * y.x + a.w * y.y + b.x * z.x + b.y * z.y + b.z * w.x + b.w * w.y;
        }
    }
    bool upper = lane & 16, odd = lane & 8;
    float keep0 = upper ? sum[2] : sum[0], keep1 = upper ? sum[3] : sum[1];
    keep0 += __shfl_xor_sync(~0u, upper ? sum[0] : sum[2], 16);
    keep1 += __shfl_xor_sync(~0u, upper ? sum[1] : sum[3], 16);
    float keep = odd ? keep1 : keep0;
    keep += __shfl_xor_sync(~0u, odd ? keep0 : keep1, 8);
#pragma unroll
    for (int offset = 4; offset; offset /= 2)
        keep += __shfl_xor_sync(~0u, keep, offset);
    return keep;
}

template <int UNITS>
static __global__ void __launch_bounds__(PROBE_THREADS, 1)
    centroid_scores(probe_task t, rows<const float> queries, rows<const __half> centroids) {
    extern __shared__ float4 shared[];
    queries_in<UNITS>(shared, queries, t.queries, t.d);
    __syncthreads();
    int lane = threadIdx.x % 32, jump = gridDim.x * PROBE_WARPS * PROBE_GROUP;
    if (blockIdx.x == 0 && threadIdx.x == 0) t.plan.counts[2] = 0;
    for (int first = (blockIdx.x * PROBE_WARPS + threadIdx.x / 32) * PROBE_GROUP; first < t.lists; first += jump) {
        uint4 raw[PROBE_GROUP][UNITS];
        group_load(raw, centroids, first, t.lists - 1, t.d);
        int list = first + lane / 8;
        bool mine = lane % 8 == 0 && list < t.lists;
        bool empty = mine && t.begin[list] == t.begin[list + 1];
        if (mine) t.plan.mask[list] = 0;
        for (int q = 0; q < t.queries; q++) {
            float score = group_dots(raw, shared + q * UNITS * 64);
            if (mine) t.plan.score[(int64_t)q * t.lists + list] = empty ? -INFINITY : score;
        }
    }
}

/* A number that grows as the score does. */
static __device__ __forceinline__ uint32_t order_of(float score) {
    uint32_t bits = __float_as_uint(score);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* A query's scores: PER of them in each thread's registers, or all in memory (PER 0). */
template <int PER> struct pick_keys {
    uint32_t key[PER > 0 ? PER : 1];
    const float *score;
    int lists;
    __device__ void load() {
#pragma unroll
        for (int j = 0; j < PER; j++) {
            int i = j * PICK_THREADS + threadIdx.x;
            key[j] = i < lists ? order_of(score[i]) : 0;
        }
    }
    template <typename F> __device__ __forceinline__ void each(F f) const {
        if constexpr (PER > 0) {
#pragma unroll
            for (int j = 0; j < PER; j++)
                f(key[j], j * PICK_THREADS + (int)threadIdx.x);
        } else {
            for (int i = threadIdx.x; i < lists; i += PICK_THREADS)
                f(order_of(score[i]), i);
        }
    }
};

/* The block's sum, or least, of what each thread brings; one wait each, since two rooms are used in turn. */
static __device__ __forceinline__ int pick_sum(int (*part)[32], int &turn, int mine) {
    int warp = __reduce_add_sync(~0u, mine);
    turn ^= 1;
    if (threadIdx.x % 32 == 0) part[turn][threadIdx.x / 32] = warp;
    __syncthreads();
    return __reduce_add_sync(~0u, part[turn][threadIdx.x % 32]);
}
static __device__ __forceinline__ int pick_least(int (*part)[32], int &turn, int mine) {
    int warp = __reduce_min_sync(~0u, mine);
    turn ^= 1;
    if (threadIdx.x % 32 == 0) part[turn][threadIdx.x / 32] = warp;
    __syncthreads();
    return __reduce_min_sync(~0u, part[turn][threadIdx.x % 32]);
}

template <int PER> static __device__ void pick_query(const probe_task &t, int (*part)[32], int query) {
    pick_keys<PER> keys;
    keys.score = t.plan.score + (int64_t)query * t.lists;
    keys.lists = t.lists;
    keys.load();
    int turn = 0;
    uint32_t least = 0; /* the nprobe-th greatest key */
    for (uint32_t bit = 0x80000000u; bit; bit >>= 1) {
        int count = 0;
        keys.each([&](uint32_t key, int) { count += key >= (least | bit); });
        if (pick_sum(part, turn, count) >= t.nprobe) least |= bit;
    }
    int above = 0;
    keys.each([&](uint32_t key, int i) {
        if (key <= least || i >= t.lists) return;
        above++;
        atomicOr(&t.plan.mask[i], 1u << query);
    });
    int left = t.nprobe - pick_sum(part, turn, above);
    if (least <= order_of(-INFINITY)) return; /* the rest is empty */
    for (int last = -1; left > 0; left--) {   /* equal scores: the smaller list first */
        int next = INT32_MAX;
        keys.each([&](uint32_t key, int i) {
            if (key == least && i > last && i < next && i < t.lists) next = i;
        });
        last = pick_least(part, turn, next);
        if (threadIdx.x == 0) atomicOr(&t.plan.mask[last], 1u << query);
    }
}

/* Marked lists to pieces, by one block: each thread a stretch of lists. */
static __device__ void plan_pieces(const probe_task &t) {
    using scan = cub::BlockScan<unsigned long long, PICK_THREADS>;
    __shared__ typename scan::TempStorage room;
    const probe_plan &p = t.plan;
    int each = (t.lists + PICK_THREADS - 1) / PICK_THREADS, from = threadIdx.x * each, to = min(from + each, t.lists);
    unsigned long long mine = 0, all; /* lists in the upper half, pieces in the lower */
    for (int l = from; l < to; l++)
        if (__ldcg(p.mask + l)) mine += (1ull << 32) + (t.begin[l + 1] - t.begin[l] + PROBE_GROUP - 1) / PROBE_GROUP;
    scan(room).ExclusiveSum(mine, mine, all);
    for (int l = from; l < to; l++) {
        uint32_t who = __ldcg(p.mask + l);
        if (!who) continue;
        int at = (int)(mine >> 32);
        p.list[at] = l;
        p.who[at] = who;
        p.piece[at] = (int)(uint32_t)mine;
        mine += (1ull << 32) + (t.begin[l + 1] - t.begin[l] + PROBE_GROUP - 1) / PROBE_GROUP;
    }
    if (threadIdx.x > 0) return;
    p.counts[0] = (int)(all >> 32);
    p.counts[1] = (int)(uint32_t)all;
    p.piece[all >> 32] = (int)(uint32_t)all;
}

template <int PER> static __global__ void __launch_bounds__(PICK_THREADS) pick_lists(probe_task t) {
    __shared__ int part[2][32];
    __shared__ bool last;
    pick_query<PER>(t, part, blockIdx.x);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(&t.plan.counts[2], 1) == (int)gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    __threadfence();
    plan_pieces(t);
}

/* What a block of scan_lists keeps beside queries and lists. */
struct scan_block {
    topk_below below[PROBE_QUERIES];
    int32_t hole[PROBE_QUERIES][2];
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
static __device__ void scan_stretch(const probe_task &t, const float4 *queries, rows<const __half> from, const scan_block &own,
                                    topk_list lists) {
    const probe_plan &p = t.plan;
    int visited = p.counts[0], lane = threadIdx.x % 32, k = t.out.k, warps = gridDim.x * PROBE_WARPS;
    int64_t pieces = p.counts[1], warp = blockIdx.x * PROBE_WARPS + threadIdx.x / 32;
    int piece = (int)(pieces * warp / warps), end = (int)(pieces * (warp + 1) / warps), next = 0, row = 0, last = 0;
    uint32_t who = 0;
    int at = piece < end ? list_of_piece(p.piece, visited, piece) - 1 : 0;
    for (bool fresh = true; piece < end; piece++, row += PROBE_GROUP) {
        if (fresh || piece == next) {
            at++;
            int list = p.list[at];
            who = p.who[at];
            next = p.piece[at + 1];
            row = t.begin[list] + (piece - p.piece[at]) * PROBE_GROUP;
            last = t.begin[list + 1] - 1;
            fresh = false;
        }
        uint4 raw[PROBE_GROUP][UNITS];
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
static __global__ void __launch_bounds__(PROBE_THREADS, 1)
    scan_lists(probe_task t, rows<const float> queries, rows<const __half> from) {
    extern __shared__ float4 shared[];
    __shared__ scan_block own;
    int warp = threadIdx.x / 32, k = t.out.k, places = PROBE_WARPS * t.queries * k;
    float *scores = (float *)(shared + t.queries * UNITS * 64);
    int32_t *ids = (int32_t *)(scores + places);
    queries_in<UNITS>(shared, queries, t.queries, t.d);
    for (int i = threadIdx.x; i < places; i += PROBE_THREADS) {
        scores[i] = -INFINITY;
        ids[i] = -1;
    }
    if ((int)threadIdx.x < t.queries) {
        const int64_t *hole = t.hole ? t.hole[t.first_query + threadIdx.x] : NULL;
        own.below[threadIdx.x] = t.out.bound(t.first_query + threadIdx.x);
        for (int i = 0; i < 2; i++)
            own.hole[threadIdx.x][i] = hole ? (int32_t)(hole[i] < 0 ? 0 : hole[i] < INT32_MAX ? hole[i] : INT32_MAX) : 0;
    }
    __syncthreads();
    scan_stretch<UNITS>(t, shared, from, own, {scores + warp * t.queries * k, ids + warp * t.queries * k});
    __syncthreads();
    list_join(t.block_score, t.block_id, scores, ids, t.queries, k, PROBE_WARPS);
}

/* The blocks' lists of one query: a block a query, each warp a share, then the first joins the warps'. */
static __global__ void __launch_bounds__(32 * JOIN_WARPS) join_lists(probe_task t, int blocks) {
    __shared__ float score[JOIN_WARPS][LIST_MAX];
    __shared__ int32_t id[JOIN_WARPS][LIST_MAX];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, q = blockIdx.x, k = t.out.k;
    topk_list own = {score[warp], id[warp]};
    list_clear(own, k);
    for (int base = warp * 32; base < blocks * k; base += 32 * JOIN_WARPS) {
        int i = base + lane;
        int64_t at = ((int64_t)(i / k) * t.queries + q) * k + i % k;
        float s = i < blocks * k ? t.block_score[at] : -INFINITY;
        int32_t which = i < blocks * k ? t.block_id[at] : -1;
        list_offer_lanes(own, k, which >= 0 && s >= own.score[k - 1], s, which);
    }
    __syncthreads();
    if (warp > 0) return;
    for (int w = 1; w < JOIN_WARPS; w++) {
        float s = lane < k ? score[w][lane] : -INFINITY;
        int32_t which = lane < k ? id[w][lane] : -1;
        list_offer_lanes(own, k, which >= 0 && s >= own.score[k - 1], s, which);
    }
    if (lane >= k) return;
    int64_t at = (t.first_query + q) * t.out.all + t.out.first + lane;
    t.out.score[at] = own.score[lane];
    t.out.index[at] = own.index[lane];
}

static size_t query_bytes(int units) {
    return (size_t)units * 256 * sizeof(float);
}

/* How many queries a pass takes: what shared memory holds of them and their lists. */
static int pass_queries(struct device *dev, int units, int k) {
    size_t limit = (size_t)device_cuda_shared_bytes(dev) - sizeof(scan_block) - 1024;
    int n = (int)(limit / (query_bytes(units) + (size_t)PROBE_WARPS * (size_t)k * 8));
    assert(n >= 1);
    return n < PROBE_QUERIES ? n : PROBE_QUERIES;
}

static void *carve(unsigned char **at, size_t bytes) {
    void *piece = *at;
    *at += (bytes + 255) / 256 * 256;
    return piece;
}

template <int UNITS>
static void pass(struct device *dev, probe_task t, struct mat queries, struct probe_lists in) {
    const char *op = "probe.forward";
    int blocks = device_cuda_processors(dev);
    size_t lists = (size_t)t.lists, n = (size_t)t.queries, places = (size_t)blocks * n * (size_t)t.out.k;
    unsigned char *at = (unsigned char *)device_cuda_scratch(dev, 4 * (n * lists + 4 * lists + 2 * places) + 16 * 256);
    t.plan.score = (float *)carve(&at, n * lists * 4);
    t.plan.mask = (uint32_t *)carve(&at, lists * 4);
    t.plan.list = (int32_t *)carve(&at, lists * 4);
    t.plan.who = (uint32_t *)carve(&at, lists * 4);
    t.plan.piece = (int32_t *)carve(&at, (lists + 1) * 4);
    t.plan.counts = (int32_t *)carve(&at, 3 * 4);
    t.block_score = (float *)carve(&at, places * 4);
    t.block_id = (int32_t *)carve(&at, places * 4);
    rows<const float> q = {(const float *)queries.data, queries.stride};
    rows<const __half> centroids = {(const __half *)in.centroids.data, in.centroids.stride};
    rows<const __half> from = {(const __half *)in.rows.data, in.rows.stride};
    size_t shared = n * query_bytes(UNITS), with_lists = shared + (size_t)PROBE_WARPS * n * (size_t)t.out.k * 8;
    (void)cudaFuncSetAttribute(centroid_scores<UNITS>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    (void)cudaFuncSetAttribute(scan_lists<UNITS>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)with_lists);
    int64_t enough = blocks_for(t.lists, PROBE_WARPS * PROBE_GROUP);
    launch(dev, op, centroid_scores<UNITS>, (unsigned)(enough < blocks ? enough : blocks), PROBE_THREADS, shared, t, q, centroids);
    auto pick = t.lists <= 4 * PICK_THREADS    ? pick_lists<4>
                : t.lists <= 16 * PICK_THREADS ? pick_lists<16>
                : t.lists <= 32 * PICK_THREADS ? pick_lists<32>
                                               : pick_lists<0>;
    launch(dev, op, pick, (unsigned)n, PICK_THREADS, 0, t);
    launch(dev, op, scan_lists<UNITS>, (unsigned)blocks, PROBE_THREADS, with_lists, t, q, from);
    launch(dev, op, join_lists, (unsigned)n, 32 * JOIN_WARPS, 0, t, blocks);
}

static void forward(struct device *dev, int64_t *index, float *score, struct mat queries, struct probe_lists in,
                    const int64_t (*hole)[2], int nprobe, int k) {
    int64_t lists = in.centroids.rows, d = queries.cols;
    assert(k >= 1 && nprobe >= 1 && lists >= 1 && lists <= PROBE_LISTS_MAX && d <= PROBE_WIDTH_MAX);
    assert(queries.type == DTYPE_F32 && in.centroids.type == DTYPE_F16 && in.rows.type == DTYPE_F16);
    assert(d == in.centroids.cols && d == in.rows.cols && vectors_fit(in.centroids) && vectors_fit(in.rows));
    assert(in.rows.rows <= 1 << 30);
    int units = (int)blocks_for(d, 256);
    auto run = units == 1 ? pass<1> : units == 2 ? pass<2> : units == 3 ? pass<3> : units == 4 ? pass<4> : pass<8>;
    if (units > 4) units = 8;
    probe_task t = {};
    t.begin = in.begin, t.id = in.id, t.hole = hole;
    t.lists = (int)lists, t.d = (int)d, t.nprobe = (int)(nprobe < lists ? nprobe : lists), t.scale = 1.0f / sqrtf((float)d);
    for (int first = 0; first < k; first += LIST_MAX) {
        t.out = {index, score, k, first, k - first < LIST_MAX ? k - first : LIST_MAX};
        int most = pass_queries(dev, units, t.out.k);
        for (int64_t q = 0; q < queries.rows; q += most) {
            t.first_query = q;
            t.queries = (int)(queries.rows - q < most ? queries.rows - q : most);
            run(dev, t, mat_rows(queries, q, t.queries), in);
        }
    }
}

extern "C" const struct probe_ops probe_cuda = {.forward = forward};
