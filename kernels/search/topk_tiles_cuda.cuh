/* topk_tiles_cuda.cuh -- the best landmarks of many queries on Hopper: products and lists in one kernel, so that scores
 * never leave the registers.
 *
 *   cluster of 2 blocks            each copies half of what both need, by multicast
 *   block
 *     producer warpgroup           one thread: bulk tensor copies into a ring of stages, 64 numbers a row
 *     consumer warpgroups (1 or 2) 64 queries each, wgmma m64n256k16 against 256 landmarks
 *       thread                     scores of 2 queries: their maxima are compared with what a list's last slot needs
 *       warp                       owns the lists of its 16 queries, in shared memory
 *
 * Two consumers: the blocks of a cluster take different queries against the same landmarks. One (up to 64 queries): the
 * same queries, different landmarks. Without clusters reading tiles from the L2 cache would be the bound. Queries in
 * two parts (topk_split_cuda.cuh) put both parts into the stage of the same landmarks, and add to one sum: twice the
 * arithmetic, the same bytes of landmarks.
 *
 * Blocks that scan other landmarks for the same query share what its lists have reached: k landmarks are known to be at
 * least that good, so worse ones need no slot. The results do not depend on it.
 *
 * Bound by arithmetic, 2 n E d, with two consumers; by memory, 2 E d bytes, with one. Best measured (H100, 20M x 1024
 * fp16, best 8): 64 queries at 1.03 times a copy's rate, 1024 at the rate of a product that runs as long
 * (docs/kernels/search.md).
 *
 * wgmma is in sm_90a only: elsewhere the kernel is empty and never launched. */
#pragma once
#include "kernels/cuda/launch_cuda.cuh"
#include "kernels/cuda/tile_maps.cuh"
#include "kernels/cuda/wide_tiles.cuh"
#include "kernels/search/topk_list_cuda.cuh"

enum {
    TILES_GROUP = 64,      /* queries of a warpgroup */
    TILES_LANDMARKS = 256, /* at a time */
    TILES_DEEP = 64,       /* numbers of a row in a stage: 128 bytes */
    TILES_STAGES = 4,      /* at most */
    TILES_CLUSTER = 2,
    TILES_K_SMALL = 14,       /* k up to which two consumers have the most stages */
    TILES_SHARED = 226 << 10 /* bytes of a block; one more KiB aligns the stages */
};

template <int GROUPS, int PARTS> struct topk_tiles_stage {
    uint8_t queries[PARTS][GROUPS * TILES_GROUP * TILES_DEEP * 2], landmarks[TILES_LANDMARKS * TILES_DEEP * 2];
};
/* K_MAX: slots of a list at most. */
template <int GROUPS_, int PARTS_, int K_MAX> struct topk_tiles_block {
    static constexpr int GROUPS = GROUPS_, PARTS = PARTS_;
    static constexpr int STAGES =
        TILES_STAGES - (GROUPS * PARTS == 4) - (GROUPS == 2 && K_MAX > TILES_K_SMALL); /* that fit */
    topk_tiles_stage<GROUPS, PARTS> stage[STAGES];
    float turn[GROUPS * 4][16 * 32];
    float score[GROUPS * TILES_GROUP * K_MAX];
    int32_t index[GROUPS * TILES_GROUP * K_MAX];
    int32_t visible[GROUPS * TILES_GROUP];
    topk_below below[GROUPS * TILES_GROUP];
    float factor[GROUPS * TILES_GROUP];
    uint64_t full[TILES_STAGES], empty[TILES_STAGES];
    int sees; /* the largest number that any query of the cluster sees */
};

/* The work of a block: its queries, its first 256 landmarks, and how many times. */
struct topk_tiles_share {
    int first_query, part, times;
};

struct topk_tiles_task {
    topk_out out;
    const int64_t *visible;
    const float *factor; /* [queries]: from sums to scores */
    int32_t *reach;      /* [queries + 1]: of all blocks, see topk_tiles_reach; 0 at first, and the last one always */
    float *score;        /* [parts, queries, k] */
    int32_t *index;
    int64_t landmarks, queries;
    int pairs, parts, d; /* pairs of blocks with different queries; shares of the landmarks */
};

#if HOPPER
/* One thread: fills stages as consumers release them. */
template <typename BLOCK>
static __device__ void topk_tiles_producer(const topk_tiles_task &t, BLOCK &own, const CUtensorMap *queries,
                                           const CUtensorMap *landmarks, topk_tiles_share share) {
    constexpr bool same_queries = BLOCK::GROUPS == 1;
    constexpr int half = (same_queries ? TILES_GROUP : TILES_LANDMARKS) / TILES_CLUSTER;
    int rank = (int)cluster_rank();
    tile_ring<BLOCK::STAGES> turn = {0, 1}; /* the first round finds every stage empty */
    for (int time = 0; time < share.times; time++)
#pragma unroll 1
        for (int column = 0; column < t.d; column += TILES_DEEP, turn.next()) {
            auto &stage = own.stage[turn.stage];
            uint64_t *full = &own.full[turn.stage];
            int row = (share.part + time * t.parts) * TILES_LANDMARKS;
            barrier_wait(&own.empty[turn.stage], turn.phase);
            barrier_expect(full, (uint32_t)sizeof stage);
            for (int part = 0; part < BLOCK::PARTS; part++) {
                int first = part * (int)t.queries;
                if (same_queries)
                    tensor_copy_all<TILES_CLUSTER>(stage.queries[part] + rank * half * TILES_DEEP * 2, queries, column,
                                        first + rank * half, full);
                else
                    tensor_copy(stage.queries[part], queries, column, first + share.first_query, full);
            }
            if (same_queries)
                tensor_copy(stage.landmarks, landmarks, column, row, full);
            else
                tensor_copy_all<TILES_CLUSTER>(stage.landmarks + rank * half * TILES_DEEP * 2, landmarks, column,
                                    row + rank * half, full);
        }
}

/* What a sum must reach to enter a query's list: a little below the last slot, because sums are not yet scaled. `key`:
 * its bits, which are ordered as the number is if that is positive; else every sum is compared as a number. */
struct topk_tiles_reach {
    float sum;
    int32_t key;
};
static __device__ __forceinline__ topk_tiles_reach topk_tiles_reach_of(float last, float factor) {
    float sum = last / factor;
    sum *= sum > 0.0f ? 1.0f - 1e-6f : 1.0f + 1e-6f;
    return {sum, sum <= 0.0f ? INT32_MIN : __float_as_int(sum)};
}

/* What the query's lists of other blocks have reached. */
static __device__ __forceinline__ int32_t topk_tiles_others(const int32_t *reach) {
    int32_t x;
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(reach));
    return x;
}
static __device__ __forceinline__ void topk_tiles_raise(topk_tiles_reach &own, int32_t others) {
    if (others > 0 && others > own.key) own = {__int_as_float(others), others};
}

/* A thread's 128 sums as eight sets, each of 16 sums of one query: half h of the sums, quarter i has
 * d[4 (i + 4 (n / 2)) + 2 h + n % 2]. */
struct topk_tiles_tops {
    int32_t of[2][4]; /* the greatest bits of each set */
};
static __device__ __forceinline__ constexpr int topk_tiles_at(int half, int quarter, int n) {
    return 4 * (quarter + n / 2 * 4) + 2 * half + n % 2;
}
/* Three numbers an instruction. */
static __device__ __forceinline__ topk_tiles_tops topk_tiles_tops_of(const float (&d)[128]) {
    topk_tiles_tops top;
#pragma unroll
    for (int set = 0; set < 8; set++) {
        int half = set / 4, quarter = set % 4;
        int32_t x = max(__float_as_int(d[topk_tiles_at(half, quarter, 0)]),
                        __float_as_int(d[topk_tiles_at(half, quarter, 1)]));
#pragma unroll
        for (int n = 2; n < 16; n += 2)
            x = __vimax3_s32(x, __float_as_int(d[topk_tiles_at(half, quarter, n)]),
                             __float_as_int(d[topk_tiles_at(half, quarter, n + 1)]));
        top.of[half][quarter] = x;
    }
    return top;
}
static __device__ __forceinline__ bool topk_tiles_any(const topk_tiles_tops &top, const topk_tiles_reach (&reach)[2]) {
    bool any = false;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int32_t *x = top.of[half];
        any |= __vimax3_s32(max(x[0], x[1]), x[2], x[3]) >= reach[half].key;
    }
    return any;
}

/* A warp's 16 x 256 scores: sets of which a lane's maximum reaches a list go through shared memory. */
template <typename BLOCK>
static __device__ __forceinline__ void topk_tiles_offer(BLOCK &own, int k, const float (&d)[128],
                                                        const topk_tiles_tops &top, int first_row,
                                                        topk_tiles_reach (&reach)[2]) {
    int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32;
    float *turn = own.turn[warp] + lane;
    unsigned sets = 0;
#pragma unroll
    for (int set = 0; set < 8; set++)
        sets |= top.of[set / 4][set % 4] >= reach[set / 4].key ? 1u << set : 0u;
    sets = __reduce_or_sync(~0u, sets);
#pragma unroll
    for (int set = 0; set < 8; set++) {
        if (!(sets >> set & 1)) continue;
        int half = set / 4, at = warp * 16 + lane / 4 + half * 8;
        unsigned mine = 0;
#pragma unroll
        for (int n = 0; n < 16; n++)
            mine |= d[topk_tiles_at(half, set % 4, n)] >= reach[half].sum ? 1u << n : 0u;
        unsigned any = __reduce_or_sync(~0u, mine);
        if (!any) continue;
        float factor = own.factor[at];
#pragma unroll
        for (int n = 0; n < 16; n++)
            turn[n * 32] = d[topk_tiles_at(half, set % 4, n)] * factor;
        __syncwarp();
        for (; any; any &= any - 1) { /* d[4 j + c]: column 8 j + 2 (lane % 4) + c % 2 */
            int n = __ffs(any) - 1;
            int32_t row = first_row + (set % 4 + n / 2 * 4) * 8 + lane % 4 * 2 + n % 2;
            float score = turn[n * 32];
            bool good = mine >> n & 1 && score >= own.score[at * k + k - 1] && row < own.visible[at] &&
                        own.below[at].allows(score, row);
            topk_list_offer_lanes({own.score, own.index}, k, good, at, score, row);
        }
        __syncwarp();
        topk_tiles_reach now = topk_tiles_reach_of(own.score[at * k + k - 1], factor);
        if (now.sum > reach[half].sum) reach[half] = now;
    }
#pragma unroll
    for (int half = 0; half < 2; half++) /* nothing later enters the list of a query that sees no more */
        if (own.visible[warp * 16 + lane / 4 + 8 * half] <= first_row + TILES_LANDMARKS)
            reach[half] = topk_tiles_reach_of(INFINITY, 1.0f);
}

/* A consumer warpgroup: products of its 64 queries. */
template <typename T, typename BLOCK>
static __device__ __forceinline__ void topk_tiles_consumer(const topk_tiles_task &t, BLOCK &own,
                                                           topk_tiles_share share) {
    int lane = threadIdx.x % 32, group = __shfl_sync(~0u, threadIdx.x / 128 - 1, 0), before = -1;
    uint32_t empty = cluster_address(own.empty, (uint32_t)lane % TILES_CLUSTER); /* a lane for each block */
    float d[128];
    topk_tiles_reach reach[2];
    int32_t *others[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int at = (threadIdx.x / 32 - 4) * 16 + lane / 4 + half * 8;
        bool live = own.visible[at] > 0; /* never where there is no such query */
        reach[half] = topk_tiles_reach_of(live ? -INFINITY : INFINITY, 1.0f);
        others[half] = t.reach + (live ? share.first_query + at : t.queries);
    }
    tile_ring<BLOCK::STAGES> turn = {0, 0};
    for (int time = 0; time < share.times; time++) {
        int32_t now[2] = {topk_tiles_others(others[0]), topk_tiles_others(others[1])};
#pragma unroll 1
        for (int column = 0; column < t.d; column += TILES_DEEP, turn.next()) {
            auto &stage = own.stage[turn.stage];
            barrier_wait(&own.full[turn.stage], turn.phase);
            uint64_t b = tile_descriptor(stage.landmarks);
            products_begin();
#pragma unroll
            for (int part = 0; part < BLOCK::PARTS; part++) {
                uint64_t a = tile_descriptor(stage.queries[part] + group * TILES_GROUP * TILES_DEEP * 2);
#pragma unroll
                for (int s = 0; s < TILES_DEEP / 16; s++)
                    product_wide(d, a + s * 2, b + s * 2, column > 0 || part > 0 || s > 0, T());
            }
            products_commit();
            products_wait<1>();
            if (column > 0 && lane < TILES_CLUSTER) cluster_release_at(empty + 8 * before);
            before = turn.stage;
        }
        products_wait<0>();
        if (lane < TILES_CLUSTER) cluster_release_at(empty + 8 * before);
        pin(d); /* nothing reads the sums before the wait */
        topk_tiles_raise(reach[0], now[0]), topk_tiles_raise(reach[1], now[1]);
        topk_tiles_tops top = topk_tiles_tops_of(d);
        if (!__any_sync(~0u, topk_tiles_any(top, reach))) continue;
        topk_tiles_offer(own, t.out.k, d, top, (share.part + time * t.parts) * TILES_LANDMARKS, reach);
#pragma unroll
        for (int half = 0; half < 2; half++)
            if (lane % 4 == 0 && reach[half].key > now[half] && reach[half].sum < INFINITY)
                atomicMax(others[half], reach[half].key);
    }
}

/* Barriers, empty lists, and the number of landmarks that the cluster's queries see. */
template <typename BLOCK>
static __device__ void topk_tiles_begin(const topk_tiles_task &t, BLOCK &own, int cluster_query, int first_query) {
    constexpr int GROUPS = BLOCK::GROUPS, queries = GROUPS * TILES_GROUP * (GROUPS == 1 ? 1 : TILES_CLUSTER);
    if (threadIdx.x == 0) {
        own.sees = 0;
        for (int i = 0; i < BLOCK::STAGES; i++) {
            barrier_init(&own.full[i], 1);
            barrier_init(&own.empty[i], 4 * GROUPS * TILES_CLUSTER);
        }
        barrier_init_fence();
    }
    for (int i = threadIdx.x; i < GROUPS * TILES_GROUP * t.out.k; i += blockDim.x) {
        own.score[i] = first_query + i / t.out.k < t.queries ? -INFINITY : INFINITY; /* nothing enters the latter */
        own.index[i] = -1;
    }
    for (int i = threadIdx.x; i < GROUPS * TILES_GROUP; i += blockDim.x) {
        bool live = first_query + i < t.queries;
        int64_t sees = live ? t.visible[first_query + i] : 0;
        own.visible[i] = (int32_t)(sees < t.landmarks ? sees : t.landmarks);
        own.factor[i] = live ? t.factor[first_query + i] : 1.0f;
        own.below[i] = live ? t.out.bound(first_query + i) : topk_below{-INFINITY, INT32_MAX};
    }
    __syncthreads();
    for (int i = threadIdx.x; i < queries && cluster_query + i < t.queries; i += blockDim.x) {
        int64_t sees = t.visible[cluster_query + i];
        atomicMax(&own.sees, (int)(sees < t.landmarks ? sees : t.landmarks));
    }
    __syncthreads();
    cluster_arrive();
    cluster_wait(); /* barriers of both blocks are ready */
}
#endif

template <typename T, typename BLOCK>
static __global__ void __launch_bounds__(128 + 128 * BLOCK::GROUPS, 1)
    topk_tiles_kernel(const __grid_constant__ topk_tiles_task t, const __grid_constant__ CUtensorMap queries,
                 const __grid_constant__ CUtensorMap landmarks) {
#if HOPPER
    extern __shared__ uint8_t raw[];
    constexpr int GROUPS = BLOCK::GROUPS;
    BLOCK &own = *(BLOCK *)(raw + (1024 - shared_address(raw) % 1024) % 1024);
    int cluster = blockIdx.x / TILES_CLUSTER, pair = cluster % t.pairs, rank = (int)cluster_rank(), k = t.out.k;
    int cluster_query = GROUPS == 1 ? 0 : pair * GROUPS * TILES_GROUP * TILES_CLUSTER;
    topk_tiles_share share = {cluster_query + (GROUPS == 1 ? 0 : rank * GROUPS * TILES_GROUP), cluster / t.pairs, 0};
    topk_tiles_begin(t, own, cluster_query, share.first_query);
    /* Blocks of a cluster make the same number of steps, so that each copies for the other; rows past the end are
     * zeros. */
    int tiles = (own.sees + TILES_LANDMARKS - 1) / TILES_LANDMARKS,
        first = GROUPS == 1 ? share.part * TILES_CLUSTER : share.part;
    share.times = tiles > first ? (tiles - first + t.parts - 1) / t.parts : 0;
    if (GROUPS == 1) share.part = first + rank;
    if (threadIdx.x < 128) {
        if (GROUPS == 2) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) topk_tiles_producer(t, own, &queries, &landmarks, share);
    } else {
        if (GROUPS == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        topk_tiles_consumer<T>(t, own, share);
        int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32;
        __syncwarp();
        for (int i = lane; i < 16 * k; i += 32) {
            int64_t query = share.first_query + warp * 16 + i / k, to = (share.part * t.queries + query) * k + i % k;
            if (query >= t.queries) continue;
            t.score[to] = own.score[warp * 16 * k + i];
            t.index[to] = own.index[warp * 16 * k + i];
        }
    }
    __syncwarp();
    cluster_arrive();
    cluster_wait(); /* the other block may still copy to this one */
#endif
}

/* How many queries a launch can take. */
static int64_t topk_tiles_queries(struct device *dev) {
    return (int64_t)device_cuda_processors(dev) / TILES_CLUSTER * TILES_CLUSTER * 2 * TILES_GROUP;
}

static bool topk_tiles_fit(struct device *dev, struct mat landmarks) {
    return device_cuda_hopper(dev) && vectors_fit(landmarks) && device_cuda_shared_bytes(dev) >= TILES_SHARED + 1024;
}

template <typename T, typename BLOCK>
static bool topk_tiles_launch(struct device *dev, topk_tiles_task t, int blocks, struct mat queries,
                              struct mat landmarks) {
    static_assert(BLOCK::STAGES >= 2 && sizeof(BLOCK) <= TILES_SHARED);
    constexpr int GROUPS = BLOCK::GROUPS;
    int query_box = GROUPS == 1 ? TILES_GROUP / TILES_CLUSTER : GROUPS * TILES_GROUP;
    int landmark_box = GROUPS == 1 ? TILES_LANDMARKS : TILES_LANDMARKS / TILES_CLUSTER;
    CUtensorMap queries_map, landmarks_map;
    static_assert(TILES_DEEP == 64); /* numbers of a tile's row */
    if (!tile_map_of(&queries_map, queries, query_box, CU_TENSOR_MAP_L2_PROMOTION_L2_256B) ||
        !tile_map_of(&landmarks_map, landmarks, landmark_box, CU_TENSOR_MAP_L2_PROMOTION_L2_256B))
        return false;
    (void)cudaFuncSetAttribute(topk_tiles_kernel<T, BLOCK>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               (int)sizeof(BLOCK) + 1024);
    launch_clusters(dev, "topk.forward", topk_tiles_kernel<T, BLOCK>, TILES_CLUSTER, (unsigned)blocks,
                    128 + 128 * GROUPS, sizeof(BLOCK) + 1024, t, queries_map, landmarks_map);
    return true;
}

/* Sets pairs and parts of t: how the work is divided among blocks. */
static void topk_tiles_plan(struct device *dev, topk_tiles_task *t) {
    int blocks = device_cuda_processors(dev) / TILES_CLUSTER * TILES_CLUSTER;
    int64_t tiles = blocks_for(t->landmarks, TILES_LANDMARKS);
    bool one = t->queries <= TILES_GROUP;
    t->pairs = one ? 1 : (int)blocks_for(t->queries, 2 * TILES_GROUP * TILES_CLUSTER);
    t->parts = one ? blocks : blocks / TILES_CLUSTER / t->pairs;
    if (t->parts > tiles) t->parts = one ? (int)(blocks_for(tiles, TILES_CLUSTER) * TILES_CLUSTER) : (int)tiles;
}

/* Fills lists [parts, queries, k] of at most topk_tiles_queries queries, which are dense and of the landmarks' type:
 * [PARTS * queries, d], a query's parts `queries` rows apart. */
template <typename T, int PARTS>
static bool topk_tiles_search(struct device *dev, topk_tiles_task t, struct mat queries, struct mat landmarks) {
    if (t.queries <= TILES_GROUP)
        return topk_tiles_launch<T, topk_tiles_block<1, PARTS, TOPK_LIST_MAX>>(dev, t, t.parts, queries, landmarks);
    auto run = t.out.k > TILES_K_SMALL ? topk_tiles_launch<T, topk_tiles_block<2, PARTS, TOPK_LIST_MAX>>
                                      : topk_tiles_launch<T, topk_tiles_block<2, PARTS, TILES_K_SMALL>>;
    return run(dev, t, t.pairs * t.parts * TILES_CLUSTER, queries, landmarks);
}
