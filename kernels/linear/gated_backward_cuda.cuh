/* gated_backward_cuda.cuh -- the backward pass of a SwiGLU through the product that follows it, in one Hopper kernel:
 *
 *   dgated = dy w               [n, f], w [d, f]; not stored
 *   both [n, 2f] = gate, up     is overwritten by its gradient, of dgated rounded to bf16
 *
 *   cluster of 2 blocks         256 rows, 256 columns of dgated; each block copies half of w's tile to both
 *   block                       128 rows; persistent: takes every (number of clusters)-th tile
 *     producer warpgroup        one thread: bulk tensor copies into a ring of stages, 64 steps of the sum each
 *     consumer warpgroups (2)   64 rows each, wgmma m64n128k16. A warp writes its 16 rows to a strip of shared memory
 *     row warpgroup             a warp takes the strips of two consumer warps in turn, a row of gate, up and dgated at
 *                               a time, 16 bytes a lane. Rows are loaded BACK_AHEAD before they are used, also over
 *                               strips
 *
 * So a tile's gradients are computed while the tensor cores compute the next tile. A strip has 4 tiles of 16 rows by 64
 * columns in TMA's 128-byte swizzle. Bound by memory where copies are slower than products: 2 n (d + 4 f) bytes against
 * 2 n f d operations. wgmma is in sm_90a only: elsewhere the kernel is empty and never launched. */
#pragma once
#include "kernels/linear/wide_product_cuda.cuh"

enum {
    BACK_STAGES = 3,
    BACK_AHEAD = 8,
    BACK_THREADS = 128 + 32 * WIDE_CONSUMERS + 128,
    BACK_STRIP_TILE = 16 * 64 * 2, /* bytes */
    BACK_STRIP = 4 * BACK_STRIP_TILE
};

struct gated_backward_block {
    struct {
        uint8_t x[WIDE_ROWS * WIDE_DEEP * 2], w[WIDE_COLUMNS * WIDE_DEEP * 2];
    } stage[BACK_STAGES];
    uint8_t strips[WIDE_CONSUMERS][BACK_STRIP];
    uint64_t full[BACK_STAGES], empty[BACK_STAGES], ready[WIDE_CONSUMERS], read[WIDE_CONSUMERS];
};
enum { BACK_BYTES = sizeof(gated_backward_block) + 1024 }; /* 1024: aligns the stages */

/* x: dy. w: in tiles of 64 rows by 64 columns. */
struct gated_backward_task {
    CUtensorMap x, w;
    bf16 *both;
    int64_t stride;
    int n, d, f, row_tiles, column_tiles;
    __device__ __forceinline__ int row(int tile) const {
        return (tile / column_tiles * WIDE_CLUSTER + (int)cluster_rank()) * WIDE_ROWS;
    }
    __device__ __forceinline__ int column(int tile) const { return tile % column_tiles * WIDE_COLUMNS; }
    __device__ __forceinline__ int tiles() const { return row_tiles * column_tiles; }
};

#if HOPPER
/* The wgmma matrix descriptor of B as tiles of 64 columns, one after the other, each with a row for each of 64 steps of
 * the sum. 16 steps further: + 128; two tiles: + 2 TILE_BYTES / 16. In a cluster an address has the block's number in
 * higher bits than its 18, where the descriptor has the stride of tiles: it must be cut. */
static __device__ __forceinline__ uint64_t column_tiles_descriptor(const void *tiles) {
    return (uint64_t)((shared_address(tiles) & 0x3ffff) >> 4) | ((uint64_t)(TILE_BYTES >> 4) << 16) | (64ull << 32) |
           (1ull << 62);
}
/* d (+)= a b, 64 x 128 x 16: d is half of the accumulators of 64 x 256. A wgmma of all 256 columns needs more registers
 * than ptxas gives a kernel of 512 threads. */
static __device__ __forceinline__ void product_half(float *d, uint64_t a, uint64_t b, int add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "%64, %65, p, 1, 1, 0, 1;\n}\n"
                 : ACCUMULATOR_16_OPERANDS(0), ACCUMULATOR_16_OPERANDS(16), ACCUMULATOR_16_OPERANDS(32),
                   ACCUMULATOR_16_OPERANDS(48)
                 : "l"(a), "l"(b), "r"(add));
}

/* One thread: fills stages as consumers release them. */
static __device__ void gated_backward_producer(const gated_backward_task &t, gated_backward_block &own, int cluster,
                                               int clusters) {
    int rank = (int)cluster_rank();
    tile_ring<BACK_STAGES> turn = {0, 1}; /* the first round finds every stage empty */
    for (int tile = cluster; tile < t.tiles(); tile += clusters) {
        int row = t.row(tile), column = t.column(tile);
        for (int step = 0; step < t.d; step += WIDE_DEEP, turn.next()) {
            auto &stage = own.stage[turn.stage];
            uint64_t *full = &own.full[turn.stage];
            barrier_wait(&own.empty[turn.stage], turn.phase);
            barrier_expect(full, (uint32_t)sizeof stage);
            tensor_copy(stage.x, &t.x, step, row, full);
#pragma unroll
            for (int i = rank * 2; i < rank * 2 + 2; i++)
                tensor_copy_all<WIDE_CLUSTER>(stage.w + i * TILE_BYTES, &t.w, column + i * 64, step, full);
        }
    }
}

/* Writes a warp's 16 x 256 products to its strip as bf16. */
static __device__ __forceinline__ void gated_backward_put(uint8_t *strip, const float (&d)[128]) {
    int lane = threadIdx.x % 32, to = lane % 16;
    uint32_t first = shared_address(strip) + to * 128;
#pragma unroll
    for (int i = 0; i < 32; i += 2) { /* pieces of 8 columns: i and i + 1 of rows 0 .. 7 and 8 .. 15 */
        const float *x = d + 4 * i;
        store_matrices(first + i / 8 * BACK_STRIP_TILE + (((i % 8 + lane / 16) ^ (to & 7)) << 4),
                       make_uint4(pack2(x[0], x[1]), pack2(x[2], x[3]), pack2(x[4], x[5]), pack2(x[6], x[7])));
    }
}

/* A consumer warpgroup: products of its 64 rows. */
static __device__ __forceinline__ void gated_backward_consumer(const gated_backward_task &t, gated_backward_block &own,
                                                               int cluster, int clusters) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 - 4;
    uint32_t phase = 1; /* the first strip is free */
    float d[128];
    tile_ring<BACK_STAGES> turn = {0, 0};
    for (int tile = cluster; tile < t.tiles(); tile += clusters, phase ^= 1) {
        int before = -1;
        for (int step = 0; step < t.d; step += WIDE_DEEP, turn.next()) {
            auto &stage = own.stage[turn.stage];
            barrier_wait(&own.full[turn.stage], turn.phase);
            uint64_t a = tile_descriptor(stage.x + warp / 4 * TILE_BYTES), b = column_tiles_descriptor(stage.w);
            products_begin();
#pragma unroll
            for (int s = 0; s < WIDE_DEEP / 16 * 2; s++)
                product_half(d + s % 2 * 64, a + s / 2 * 2, b + s / 2 * 128 + s % 2 * (2 * TILE_BYTES >> 4),
                             step > 0 || s > 1);
            products_commit();
            products_wait<1>();
            if (before >= 0 && lane == 0) cluster_release<WIDE_CLUSTER>(&own.empty[before]);
            before = turn.stage;
        }
        products_wait<0>();
        if (lane == 0) cluster_release<WIDE_CLUSTER>(&own.empty[before]);
        pin(d); /* nothing reads the products before the wait */
        barrier_wait(&own.read[warp], phase);
        gated_backward_put(own.strips[warp], d);
        __syncwarp();
        if (lane == 0) barrier_arrive(&own.ready[warp]);
    }
}

/* The strip of a consumer warp in a tile: this lane's first number of gate, and how many rows are in the matrix (16 or
 * more: all). */
struct gated_strip {
    bf16 *gate;
    int rows;
};
static __device__ __forceinline__ gated_strip gated_strip_of(const gated_backward_task &t, int tile, int warp) {
    int row = t.row(tile) + warp * 16;
    return {t.both + row * t.stride + t.column(tile) + threadIdx.x % 32 * 8, tile < t.tiles() ? t.n - row : 0};
}

/* Without a branch, so that rows overlap. */
static __device__ __forceinline__ void load_row(uint4 &x, const bf16 *p, bool inside) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n"
                 "@p ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n}\n"
                 : "+r"(x.x), "+r"(x.y), "+r"(x.z), "+r"(x.w)
                 : "l"(p), "r"((int)inside)
                 : "memory");
}
static __device__ __forceinline__ void store_row(bf16 *p, uint4 x, bool inside) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n@p st.global.v4.u32 [%4], {%0, %1, %2, %3};\n}\n" ::"r"(x.x),
                 "r"(x.y), "r"(x.z), "r"(x.w), "l"(p), "r"((int)inside)
                 : "memory");
}

/* gate and up become their gradients. silu'(g) = s + g s (1 - s), s = sigmoid(g) */
static __device__ __forceinline__ void gated_gradient(float &g, float &u, float d) {
    float s = __fdividef(1.0f, 1.0f + power2(-1.44269504f * g)), gs = g * s;
    g = d * u * (fmaf(-gs, s, gs) + s);
    u = d * gs;
}
static __device__ __forceinline__ void gated_gradient2(uint32_t &gate, uint32_t &up, uint32_t d) {
    float g0 = __uint_as_float(gate << 16), g1 = __uint_as_float(gate & 0xffff0000u), u0 = __uint_as_float(up << 16),
          u1 = __uint_as_float(up & 0xffff0000u);
    gated_gradient(g0, u0, __uint_as_float(d << 16));
    gated_gradient(g1, u1, __uint_as_float(d & 0xffff0000u));
    gate = pack2(g0, g1), up = pack2(u0, u1);
}

/* The rows that a row warp has loaded. */
struct gated_rows_ahead {
    const gated_backward_task &t;
    uint4 gate[BACK_AHEAD], up[BACK_AHEAD];

    __device__ __forceinline__ void load(int i, const gated_strip &from, int row) {
        const bf16 *first = from.gate + row * t.stride;
        load_row(gate[i], first, row < from.rows);
        load_row(up[i], first + t.f, row < from.rows);
    }
    /* Computes a strip from its products, and loads the first rows of the next one. */
    __device__ __forceinline__ void compute(const gated_strip &strip, const gated_strip &next,
                                            const uint8_t *products) {
        int lane = threadIdx.x % 32;
        products += lane / 8 * BACK_STRIP_TILE;
#pragma unroll
        for (int row = 0; row < 16; row++) {
            int i = row % BACK_AHEAD, then = row + BACK_AHEAD;
            uint4 d = *(const uint4 *)(products + row * 128 + ((lane % 8 ^ (row & 7)) << 4)), g = gate[i], u = up[i];
            load(i, then < 16 ? strip : next, then % 16);
            gated_gradient2(g.x, u.x, d.x);
            gated_gradient2(g.y, u.y, d.y);
            gated_gradient2(g.z, u.z, d.z);
            gated_gradient2(g.w, u.w, d.w);
            bf16 *to = strip.gate + row * t.stride;
            store_row(to, g, row < strip.rows);
            store_row(to + t.f, u, row < strip.rows);
        }
    }
};

static __device__ __forceinline__ void gated_backward_rows(const gated_backward_task &t, gated_backward_block &own,
                                                           int cluster, int clusters) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    gated_rows_ahead ahead = {t, {}, {}};
    gated_strip strip = gated_strip_of(t, cluster, warp), next;
    uint32_t phase = 0;
#pragma unroll
    for (int i = 0; i < BACK_AHEAD; i++)
        ahead.load(i, strip, i);
    for (int tile = cluster; tile < t.tiles(); tile += clusters, phase ^= 1)
#pragma unroll 1 /* the code of a strip is long */
        for (int from = warp; from < WIDE_CONSUMERS; from += 4, strip = next) {
            next = from < 4 ? gated_strip_of(t, tile, warp + 4) : gated_strip_of(t, tile + clusters, warp);
            barrier_wait(&own.ready[from], phase);
            ahead.compute(strip, next, own.strips[from]);
            __syncwarp();
            if (lane == 0) barrier_arrive(&own.read[from]);
        }
}
#endif

static __global__ void __launch_bounds__(BACK_THREADS, 1)
    gated_backward_kernel(const __grid_constant__ gated_backward_task t) {
#if HOPPER
    extern __shared__ uint8_t raw[];
    gated_backward_block &own = *(gated_backward_block *)(raw + (1024 - shared_address(raw) % 1024) % 1024);
    int cluster = blockIdx.x / WIDE_CLUSTER, clusters = gridDim.x / WIDE_CLUSTER;
    if (threadIdx.x == 0) {
        for (int i = 0; i < BACK_STAGES; i++) {
            barrier_init(&own.full[i], 1);
            barrier_init(&own.empty[i], WIDE_CONSUMERS * WIDE_CLUSTER);
        }
        for (int i = 0; i < WIDE_CONSUMERS; i++) {
            barrier_init(&own.ready[i], 1);
            barrier_init(&own.read[i], 1);
        }
        barrier_init_fence();
    }
    __syncthreads();
    cluster_arrive();
    cluster_wait(); /* barriers of both blocks are ready */
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 0) gated_backward_producer(t, own, cluster, clusters);
    } else if (threadIdx.x < 128 + 32 * WIDE_CONSUMERS) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
        gated_backward_consumer(t, own, cluster, clusters);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 168;");
        gated_backward_rows(t, own, cluster, clusters);
    }
    __syncwarp();
    cluster_arrive();
    cluster_wait(); /* the other block may still copy to this one */
#endif
}

/* False: this GPU or these matrices are not taken. */
static bool gated_backward(struct device *dev, const char *op, struct mat both, struct mat dy, struct mat w) {
    gated_backward_task t = {};
    int64_t f = w.cols, clusters = device_cuda_processors(dev) / WIDE_CLUSTER;
    if (!device_cuda_hopper(dev) || device_cuda_shared_bytes(dev) < BACK_BYTES || f % WIDE_COLUMNS != 0 ||
        dy.type != DTYPE_BF16 || w.type != DTYPE_BF16 || both.type != DTYPE_BF16 || !vectors_fit(dy) ||
        !vectors_fit(w) || !vectors_fit(both) || dy.rows > INT32_MAX / 2 ||
        !tile_map_of(&t.x, dy, WIDE_ROWS, CU_TENSOR_MAP_L2_PROMOTION_L2_256B) ||
        !tile_map_of(&t.w, w, WIDE_DEEP, CU_TENSOR_MAP_L2_PROMOTION_L2_256B))
        return false;
    t.both = (bf16 *)both.data, t.stride = both.stride;
    t.n = (int)dy.rows, t.d = (int)dy.cols, t.f = (int)f;
    t.row_tiles = (int)blocks_for(dy.rows, WIDE_ROWS * WIDE_CLUSTER), t.column_tiles = (int)(f / WIDE_COLUMNS);
    int64_t tiles = (int64_t)t.row_tiles * t.column_tiles;
    if (tiles >= INT32_MAX / 2) return false;
    (void)cudaFuncSetAttribute(gated_backward_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BACK_BYTES);
    launch_clusters(dev, op, gated_backward_kernel, WIDE_CLUSTER,
                    (unsigned)((tiles < clusters ? tiles : clusters) * WIDE_CLUSTER), BACK_THREADS, BACK_BYTES, t);
    return true;
}
