/* exp_product_cuda.cuh -- exponentials of a product on Hopper, in one kernel:
 *
 *   e[r][v] = 2^(x[r].table[v] log2(e) - shift[r])     bf16, or not stored
 *   part[r][i] = the sum of e[r][256 i .. 256 i + 255], before e is rounded
 *
 *   cluster of 2 blocks       256 rows of x, 256 of the table; each block copies half of the table's tile to both
 *   block                     128 rows of x; persistent: takes every (number of clusters)-th tile
 *     producer warpgroup      one thread: bulk tensor copies into a ring of stages, 64 numbers a row
 *     consumer warpgroups (2) 64 rows each, wgmma m64n256k16; then exponentials, sums, and a store by TMA
 *
 * The second consumer begins LAG stages after the first, and stays as far after it: while one computes exponentials, the
 * products of the other run. Tiles that read the same part of the table are neighbours in time, so that x stays in the
 * L2 cache and the table is read once.
 *
 * Bound by arithmetic, 2 n V d: an exponential a product of d. Sums have a fixed order. wgmma is in sm_90a only:
 * elsewhere the kernel is empty and never launched. */
#pragma once
#include "kernels/cuda/launch_cuda.cuh"
#include "kernels/cuda/tile_maps.cuh"
#include "kernels/cuda/wide_tiles.cuh"

enum {
    EXP_ROWS = 128,  /* of a block */
    EXP_WORDS = 256, /* of a tile */
    EXP_DEEP = 64,   /* numbers of a row in a stage: 128 bytes */
    EXP_STAGES = 4,
    EXP_CLUSTER = 2,
    EXP_LAG = 2,
    EXP_CONSUMERS = EXP_ROWS / 64 * 4 /* warps */
};

struct exp_product_block {
    struct {
        uint8_t x[EXP_ROWS * EXP_DEEP * 2], table[EXP_WORDS * EXP_DEEP * 2];
    } stage[EXP_STAGES];
    uint8_t out[EXP_CONSUMERS][2][16 * EXP_DEEP * 2]; /* a warp's rows of 64 columns, twice */
    uint64_t full[EXP_STAGES], empty[EXP_STAGES];
};

struct exp_product_task {
    const float *shift; /* [n]; infinite: the row's exponentials are 0 */
    float *part;        /* [n, words_tiles] */
    int n, words, d, row_tiles, word_tiles; /* row_tiles: of a cluster */
};
struct exp_product_maps {
    CUtensorMap x, table, e;
};

#if HOPPER
/* One thread: fills stages as consumers release them. */
static __device__ void exp_product_producer(const exp_product_task &t, exp_product_block &own,
                                            const exp_product_maps &maps, int cluster, int clusters) {
    constexpr int half = EXP_WORDS / EXP_CLUSTER;
    int rank = (int)cluster_rank();
    tile_ring<EXP_STAGES> turn = {0, 1}; /* the first round finds every stage empty */
    for (int tile = cluster; tile < t.row_tiles * t.word_tiles; tile += clusters)
        for (int column = 0; column < t.d; column += EXP_DEEP, turn.next()) {
            auto &stage = own.stage[turn.stage];
            uint64_t *full = &own.full[turn.stage];
            barrier_wait(&own.empty[turn.stage], turn.phase);
            barrier_expect(full, (uint32_t)sizeof stage);
            tensor_copy(stage.x, &maps.x, column, (tile % t.row_tiles * EXP_CLUSTER + rank) * EXP_ROWS, full);
            tensor_copy_all<EXP_CLUSTER>(stage.table + rank * half * EXP_DEEP * 2, &maps.table, column,
                                         tile / t.row_tiles * EXP_WORDS + rank * half, full);
        }
}

/* A warp's 16 x 256 products -> exponentials; returns this thread's part of the sums of its two rows. */
template <bool STORE>
static __device__ __forceinline__ float2 exp_product_store(float (&d)[128], exp_product_block &own, float2 shift,
                                                           const CUtensorMap *map, int row, int column) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 - 4, to_row = lane % 16;
    float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int chunk = 0; chunk < 4; chunk++) {
        float *p = d + chunk * 32;
#pragma unroll
        for (int i = 0; i < 32; i += 4) {
            p[i] = power2(fmaf(p[i], 1.44269504f, -shift.x));
            p[i + 1] = power2(fmaf(p[i + 1], 1.44269504f, -shift.x));
            p[i + 2] = power2(fmaf(p[i + 2], 1.44269504f, -shift.y));
            p[i + 3] = power2(fmaf(p[i + 3], 1.44269504f, -shift.y));
            sum.x += p[i] + p[i + 1];
            sum.y += p[i + 2] + p[i + 3];
        }
        if (!STORE) continue;
        uint8_t *tile = own.out[warp][chunk % 2];
        if (lane == 0) tensor_store_wait<1>();
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 8; i += 2) /* pieces of 8 columns: i and i + 1 of rows 0 .. 7 and 8 .. 15 */
            store_matrices(shared_address(tile) + to_row * 128 + (((i + lane / 16) ^ (to_row & 7)) << 4),
                           make_uint4(pack2(p[4 * i], p[4 * i + 1]), pack2(p[4 * i + 2], p[4 * i + 3]),
                                      pack2(p[4 * i + 4], p[4 * i + 5]), pack2(p[4 * i + 6], p[4 * i + 7])));
        fence_async();
        __syncwarp();
        if (lane == 0) tensor_store(map, tile, column + chunk * 64, row);
    }
    return sum;
}

/* A consumer warpgroup: products of its 64 rows. */
template <bool STORE, int LAG>
static __device__ __forceinline__ void exp_product_consumer(const exp_product_task &t, exp_product_block &own,
                                                            const exp_product_maps &maps, int cluster, int clusters) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 - 4, group = warp / 4, lag = group == 0 && LAG > 0 ? LAG : -1;
    float d[128];
    tile_ring<EXP_STAGES> turn = {0, 0};
    if (LAG > 0 && group == 1) asm volatile("bar.sync 1, 256;" ::: "memory");
    for (int tile = cluster; tile < t.row_tiles * t.word_tiles; tile += clusters) {
        int before = -1, word_tile = tile / t.row_tiles,
            first = (tile % t.row_tiles * EXP_CLUSTER + (int)cluster_rank()) * EXP_ROWS + warp * 16,
            row = first + lane / 4;
        float2 shift = make_float2(row < t.n ? t.shift[row] : INFINITY, row + 8 < t.n ? t.shift[row + 8] : INFINITY);
        for (int column = 0; column < t.d; column += EXP_DEEP, turn.next()) {
            auto &stage = own.stage[turn.stage];
            barrier_wait(&own.full[turn.stage], turn.phase);
            uint64_t a = tile_descriptor(stage.x + group * 64 * EXP_DEEP * 2), b = tile_descriptor(stage.table);
            products_begin();
#pragma unroll
            for (int s = 0; s < EXP_DEEP / 16; s++)
                product_wide(d, a + s * 2, b + s * 2, column > 0 || s > 0, bf16());
            products_commit();
            products_wait<1>();
            if (before >= 0 && lane == 0) cluster_release<EXP_CLUSTER>(&own.empty[before]);
            before = turn.stage;
            if (LAG > 0 && lag >= 0 && lag-- == 0) asm volatile("bar.arrive 1, 256;" ::: "memory");
        }
        products_wait<0>();
        if (lane == 0) cluster_release<EXP_CLUSTER>(&own.empty[before]);
        pin(d); /* nothing reads the products before the wait */
        int live = t.words - word_tile * EXP_WORDS;
        if (live < EXP_WORDS) { /* the last tile */
            asm volatile("" ::: "memory");
#pragma unroll
            for (int i = 0; i < 128; i++)
                if (i / 4 * 8 + lane % 4 * 2 + i % 2 >= live) d[i] = -INFINITY;
        }
        float2 sum = exp_product_store<STORE>(d, own, shift, &maps.e, first, word_tile * EXP_WORDS);
        sum = make_float2(row_sum(sum.x), row_sum(sum.y));
        float *part = t.part + (int64_t)row * t.word_tiles + word_tile;
        if (lane % 4 == 0 && row < t.n) part[0] = sum.x;
        if (lane % 4 == 0 && row + 8 < t.n) part[8 * t.word_tiles] = sum.y;
    }
    if (LAG > 0 && lag >= 0) asm volatile("bar.arrive 1, 256;" ::: "memory");
    if (STORE && lane == 0) tensor_store_wait_written();
}
#endif

template <bool STORE, int LAG>
static __global__ void __launch_bounds__(128 + 32 * EXP_CONSUMERS, 1)
    exp_product_kernel(const __grid_constant__ exp_product_task t, const __grid_constant__ exp_product_maps maps) {
#if HOPPER
    extern __shared__ uint8_t raw[];
    exp_product_block &own = *(exp_product_block *)(raw + (1024 - shared_address(raw) % 1024) % 1024);
    int cluster = blockIdx.x / EXP_CLUSTER, clusters = gridDim.x / EXP_CLUSTER;
    if (threadIdx.x == 0) {
        for (int i = 0; i < EXP_STAGES; i++) {
            barrier_init(&own.full[i], 1);
            barrier_init(&own.empty[i], EXP_CONSUMERS * EXP_CLUSTER);
        }
        barrier_init_fence();
    }
    __syncthreads();
    cluster_arrive();
    cluster_wait(); /* barriers of both blocks are ready */
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) exp_product_producer(t, own, maps, cluster, clusters);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        exp_product_consumer<STORE, LAG>(t, own, maps, cluster, clusters);
    }
    __syncwarp();
    cluster_arrive();
    cluster_wait(); /* the other block may still copy to this one */
#endif
}

/* Parts of a row: how many sums it has. */
static int64_t exp_product_parts(int64_t words) {
    return blocks_for(words, EXP_WORDS);
}

/* x [n, d], table [words, d]; e [n, at least words] (columns up to its width are written; data NULL: not stored); part
 * [n, exp_product_parts], shift [n]. False: this GPU or these matrices are not taken. */
template <int LAG = EXP_LAG>
static bool exp_product(struct device *dev, const char *op, struct mat e, float *part, const float *shift, struct mat x,
                        struct mat table) {
    exp_product_maps maps = {};
    int bytes = (int)sizeof(exp_product_block) + 1024;
    if (!device_cuda_hopper(dev) || device_cuda_shared_bytes(dev) < bytes || x.type != DTYPE_BF16 || !vectors_fit(x) ||
        !vectors_fit(table) || (e.data && !vectors_fit(e)) || x.rows > INT32_MAX / 2 || table.rows > INT32_MAX / 2 ||
        !tile_map_of(&maps.x, x, EXP_ROWS, CU_TENSOR_MAP_L2_PROMOTION_L2_256B) ||
        !tile_map_of(&maps.table, table, EXP_WORDS / EXP_CLUSTER, CU_TENSOR_MAP_L2_PROMOTION_L2_256B) ||
        (e.data && !tile_map_of(&maps.e, e, 16, CU_TENSOR_MAP_L2_PROMOTION_L2_256B)))
        return false;
    exp_product_task t = {shift,
                          part,
                          (int)x.rows,
                          (int)table.rows,
                          (int)x.cols,
                          (int)blocks_for(x.rows, EXP_ROWS * EXP_CLUSTER),
                          (int)exp_product_parts(table.rows)};
    int64_t tiles = (int64_t)t.row_tiles * t.word_tiles, clusters = device_cuda_processors(dev) / EXP_CLUSTER;
    if (tiles > INT32_MAX - clusters) return false;
    auto kernel = e.data ? exp_product_kernel<true, LAG> : exp_product_kernel<false, LAG>;
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    launch_clusters(dev, op, kernel, EXP_CLUSTER, (unsigned)((tiles < clusters ? tiles : clusters) * EXP_CLUSTER),
                    128 + 32 * EXP_CONSUMERS, (size_t)bytes, t, maps);
    return true;
}
