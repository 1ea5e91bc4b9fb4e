/* wide_product_cuda.cuh -- x w^T on Hopper for many rows, with an epilogue that works on the products in registers.
 *
 *   cluster of 2 blocks       256 rows of x, 256 of w; each block copies half of w's tile to both
 *   block                     128 rows of x; persistent: takes every (number of clusters)-th tile
 *     producer warpgroup      one thread: bulk tensor copies into a ring of stages, 64 numbers a row
 *     consumer warpgroups (2) 64 rows each, wgmma m64n256k16; then the epilogue
 *
 * Neighbours in time share the part of the larger matrix that they read: the smaller one stays in the L2 cache, and the
 * larger is read once.
 *
 * An epilogue is a struct E with
 *   parameters                          what the kernel gets (tensor maps: it is a kernel parameter)
 *   w_row(parameters, tile, rank)       first of the 128 rows of w that are half `rank` of a tile's columns
 *   E(parameters, buffers)              buffers of this warp: two tiles of 16 rows of 64 numbers
 *   begin(row, tile)                    before a tile's products; row: the warp's first
 *   finish(d)                           this warp's 16 x 256 products, half 0 first (layout: wide_tiles.cuh)
 *   end()                               after the last tile
 *
 * Bound by arithmetic, 2 n m d. wgmma is in sm_90a only: elsewhere the kernel is empty and never launched. */
#pragma once
#include "kernels/cuda/launch_cuda.cuh"
#include "kernels/cuda/tile_maps.cuh"
#include "kernels/cuda/wide_tiles.cuh"

enum {
    WIDE_ROWS = 128,    /* of a block */
    WIDE_COLUMNS = 256, /* of a tile */
    WIDE_DEEP = 64,     /* numbers of a row in a stage: 128 bytes */
    WIDE_STAGES = 4,
    WIDE_CLUSTER = 2,
    WIDE_CONSUMERS = WIDE_ROWS / 64 * 4, /* warps */
    WIDE_HALF = WIDE_COLUMNS / WIDE_CLUSTER,
    WIDE_BUFFER = 16 * WIDE_DEEP * 2 /* bytes */
};

struct wide_product_block {
    struct {
        uint8_t x[WIDE_ROWS * WIDE_DEEP * 2], w[WIDE_COLUMNS * WIDE_DEEP * 2];
    } stage[WIDE_STAGES];
    uint8_t buffers[WIDE_CONSUMERS][2][WIDE_BUFFER];
    uint64_t full[WIDE_STAGES], empty[WIDE_STAGES];
};
enum { WIDE_BYTES = sizeof(wide_product_block) + 1024 }; /* 1024: aligns the stages */

struct wide_product_task {
    CUtensorMap x, w;
    int d, row_tiles, column_tiles; /* row_tiles: of a cluster */
    bool rows_first;                /* x is the smaller matrix */
    __device__ __forceinline__ int row_tile(int tile) const {
        return rows_first ? tile % row_tiles : tile / column_tiles;
    }
    __device__ __forceinline__ int column_tile(int tile) const {
        return rows_first ? tile / row_tiles : tile % column_tiles;
    }
};

#if HOPPER
/* Stores 16 x 64 numbers of a warp as bf16, through a buffer that its store before the last one has read. */
static __device__ __forceinline__ void wide_product_store(const float *p, uint8_t *buffer, const CUtensorMap *map,
                                                          int column, int row) {
    int lane = threadIdx.x % 32, to = lane % 16;
    if (lane == 0) tensor_store_wait<1>();
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 8; i += 2) /* pieces of 8 columns: i and i + 1 of rows 0 .. 7 and 8 .. 15 */
        store_matrices(shared_address(buffer) + to * 128 + (((i + lane / 16) ^ (to & 7)) << 4),
                       make_uint4(pack2(p[4 * i], p[4 * i + 1]), pack2(p[4 * i + 2], p[4 * i + 3]),
                                  pack2(p[4 * i + 4], p[4 * i + 5]), pack2(p[4 * i + 6], p[4 * i + 7])));
    fence_async();
    __syncwarp();
    if (lane == 0) tensor_store(map, buffer, column, row);
}

/* One thread: fills stages as consumers release them. */
template <typename E>
static __device__ void wide_product_producer(const wide_product_task &t, const typename E::parameters &p,
                                             wide_product_block &own, int cluster, int clusters) {
    int rank = (int)cluster_rank();
    tile_ring<WIDE_STAGES> turn = {0, 1}; /* the first round finds every stage empty */
    for (int tile = cluster; tile < t.row_tiles * t.column_tiles; tile += clusters)
        for (int column = 0; column < t.d; column += WIDE_DEEP, turn.next()) {
            auto &stage = own.stage[turn.stage];
            uint64_t *full = &own.full[turn.stage];
            barrier_wait(&own.empty[turn.stage], turn.phase);
            barrier_expect(full, (uint32_t)sizeof stage);
            tensor_copy(stage.x, &t.x, column, (t.row_tile(tile) * WIDE_CLUSTER + rank) * WIDE_ROWS, full);
            tensor_copy_all<WIDE_CLUSTER>(stage.w + rank * WIDE_HALF * WIDE_DEEP * 2, &t.w, column,
                                          E::w_row(p, t.column_tile(tile), rank), full);
        }
}

/* A consumer warpgroup: products of its 64 rows. */
template <typename E>
static __device__ __forceinline__ void wide_product_consumer(const wide_product_task &t,
                                                             const typename E::parameters &p, wide_product_block &own,
                                                             int cluster, int clusters) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 - 4, group = warp / 4;
    E epilogue(p, own.buffers[warp]);
    float d[128];
    tile_ring<WIDE_STAGES> turn = {0, 0};
    for (int tile = cluster; tile < t.row_tiles * t.column_tiles; tile += clusters) {
        int before = -1;
        epilogue.begin((t.row_tile(tile) * WIDE_CLUSTER + (int)cluster_rank()) * WIDE_ROWS + warp * 16,
                       t.column_tile(tile));
        for (int column = 0; column < t.d; column += WIDE_DEEP, turn.next()) {
            auto &stage = own.stage[turn.stage];
            barrier_wait(&own.full[turn.stage], turn.phase);
            uint64_t a = tile_descriptor(stage.x + group * 64 * WIDE_DEEP * 2), b = tile_descriptor(stage.w);
            products_begin();
#pragma unroll
            for (int s = 0; s < WIDE_DEEP / 16; s++)
                product_wide(d, a + s * 2, b + s * 2, column > 0 || s > 0, bf16());
            products_commit();
            products_wait<1>();
            if (before >= 0 && lane == 0) cluster_release<WIDE_CLUSTER>(&own.empty[before]);
            before = turn.stage;
        }
        products_wait<0>();
        if (lane == 0) cluster_release<WIDE_CLUSTER>(&own.empty[before]);
        pin(d); /* nothing reads the products before the wait */
        epilogue.finish(d);
    }
    epilogue.end();
}
#endif

template <typename E>
static __global__ void __launch_bounds__(128 + 32 * WIDE_CONSUMERS, 1)
    wide_product_kernel(const __grid_constant__ wide_product_task t,
                        const __grid_constant__ typename E::parameters p) {
#if HOPPER
    extern __shared__ uint8_t raw[];
    wide_product_block &own = *(wide_product_block *)(raw + (1024 - shared_address(raw) % 1024) % 1024);
    int cluster = blockIdx.x / WIDE_CLUSTER, clusters = gridDim.x / WIDE_CLUSTER;
    if (threadIdx.x == 0) {
        for (int i = 0; i < WIDE_STAGES; i++) {
            barrier_init(&own.full[i], 1);
            barrier_init(&own.empty[i], WIDE_CONSUMERS * WIDE_CLUSTER);
        }
        barrier_init_fence();
    }
    __syncthreads();
    cluster_arrive();
    cluster_wait(); /* barriers of both blocks are ready */
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) wide_product_producer<E>(t, p, own, cluster, clusters);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        wide_product_consumer<E>(t, p, own, cluster, clusters);
    }
    __syncwarp();
    cluster_arrive();
    cluster_wait(); /* the other block may still copy to this one */
#endif
}

/* Makes the task; `columns`: of the result, in tiles. False: this GPU or these matrices are not taken. */
static bool wide_product_plan(struct device *dev, wide_product_task *t, struct mat x, struct mat w,
                              int64_t column_tiles) {
    *t = {};
    if (!device_cuda_hopper(dev) || device_cuda_shared_bytes(dev) < WIDE_BYTES || x.type != DTYPE_BF16 ||
        w.type != DTYPE_BF16 || !vectors_fit(x) || !vectors_fit(w) || x.rows > INT32_MAX / 2 ||
        w.rows > INT32_MAX / 2 || !tile_map_of(&t->x, x, WIDE_ROWS, CU_TENSOR_MAP_L2_PROMOTION_L2_256B) ||
        !tile_map_of(&t->w, w, WIDE_HALF, CU_TENSOR_MAP_L2_PROMOTION_L2_256B))
        return false;
    t->d = (int)x.cols;
    t->row_tiles = (int)blocks_for(x.rows, WIDE_ROWS * WIDE_CLUSTER);
    t->column_tiles = (int)column_tiles;
    t->rows_first = x.rows < w.rows;
    return (int64_t)t->row_tiles * column_tiles < INT32_MAX / 2;
}

/* The map of a result that an epilogue stores with wide_product_store. */
static bool wide_product_map(CUtensorMap *map, struct mat m) {
    return m.type == DTYPE_BF16 && vectors_fit(m) && tile_map_of(map, m, 16, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

template <typename E>
static void wide_product_launch(struct device *dev, const char *op, const wide_product_task &t,
                                const typename E::parameters &p) {
    int64_t tiles = (int64_t)t.row_tiles * t.column_tiles, clusters = device_cuda_processors(dev) / WIDE_CLUSTER;
    auto kernel = wide_product_kernel<E>;
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, WIDE_BYTES);
    launch_clusters(dev, op, kernel, WIDE_CLUSTER, (unsigned)((tiles < clusters ? tiles : clusters) * WIDE_CLUSTER),
                    128 + 32 * WIDE_CONSUMERS, WIDE_BYTES, t, p);
}
