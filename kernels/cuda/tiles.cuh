/* tiles.cuh -- tensor core products on tiles in shared memory, for kernels that are written once and compiled for two
 * kinds of GPU: Hopper (sm_90a: TMA copies, wgmma) and Ampere and later (sm_80: cp.async, mma.sync). On Hopper thread 0
 * alone copies and products are asynchronous; elsewhere all threads copy and products are complete when they return.
 *
 * A tile is 64 rows of 64 bf16 (128 bytes a row, 8 KiB), with TMA's 128-byte swizzle: the 16-byte piece c of row r lies
 * at r * 128 + ((c ^ (r & 7)) << 4). Tiles are aligned to 1 KiB. Wider heads are several tiles, one after the other.
 *
 * A warpgroup is 128 threads. Accumulators of 64 x 64 (and fragments of A) have the layout of mma.m16n8k16:
 *
 *      columns  0 1   2 3   4 5   6 7  | 8 9 ...        warp w: rows 16 w .. 16 w + 15
 *   row  g     T4g  T4g+1 T4g+2 T4g+3  |                d[4i], d[4i+1]: row g of columns 8 i .. 8 i + 7
 *   row  g+8   T4g  T4g+1 T4g+2 T4g+3  |                d[4i+2], d[4i+3]: row g + 8
 */
#pragma once
#include "kernels/cuda/cuda.cuh"

/* FILL_ARRIVALS: threads that arrive at a barrier for one fill (all call fill_begin, tile copies, fill_end). */
enum { TILE = 64, TILE_BYTES = 8192, WARPGROUP = 128, FILL_ARRIVALS = HOPPER ? 1 : WARPGROUP };

/* A matrix of which tiles of up to `box` rows are loaded. */
struct tile_matrix {
    CUtensorMap map; /* Hopper */
    const bf16 *data;
    int64_t stride;
    int rows, box;
};

/* Orders ordinary stores to shared memory before the writes of TMA and the reads of wgmma that follow. */
static __device__ __forceinline__ void fence_async() {
#if HOPPER
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
static __device__ __forceinline__ void barrier_init_done() {
    barrier_init_fence();
    fence_async();
}
/* The first thread initialises a block's barriers for fills: of its stages, and one more. */
template <int STAGES>
static __device__ __forceinline__ void fill_barriers_init(uint64_t (&stages)[STAGES], uint64_t *more) {
    if (threadIdx.x != 0) return;
    for (int i = 0; i < STAGES; i++)
        barrier_init(&stages[i], FILL_ARRIVALS);
    barrier_init(more, FILL_ARRIVALS);
    barrier_init_done();
}
/* One arrival when this thread's cp.async copies so far are complete. */
static __device__ __forceinline__ void barrier_arrive_copies(uint64_t *barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}
/* A fill: `bytes` of tile copies that end a phase of `barrier`. Called by all threads of the warpgroup. */
static __device__ __forceinline__ void fill_begin(uint64_t *barrier, uint32_t bytes) {
#if HOPPER
    if (threadIdx.x == 0) barrier_expect(barrier, bytes);
#endif
}
static __device__ __forceinline__ void fill_end(uint64_t *barrier) {
#if !HOPPER
    barrier_arrive_copies(barrier);
#endif
}
/* Loads the tile whose first element is (row, column). Rows outside of the matrix read as 0; the tile's rows from `box`
 * on are not written. */
static __device__ __forceinline__ void tile_copy(uint8_t *tile, const tile_matrix &m, int column, int row,
                                                 uint64_t *barrier) {
#if HOPPER
    if (threadIdx.x == 0) tensor_copy(tile, &m.map, column, row, barrier);
#else
    for (int i = threadIdx.x; i < m.box * 8; i += WARPGROUP) {
        int r = i / 8, c = i % 8;
        bool inside = row + r >= 0 && row + r < m.rows;
        const bf16 *from = m.data + (inside ? row + r : 0) * m.stride + column + c * 8;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                         shared_address(tile + r * 128 + ((c ^ (r & 7)) << 4))),
                     "l"(from), "r"(inside ? 16 : 0)
                     : "memory");
    }
#endif
}
/* Copies BYTES contiguous bytes; both addresses are multiples of 16. */
template <int BYTES>
static __device__ __forceinline__ void line_copy(void *shared, const void *global, uint64_t *barrier) {
#if HOPPER
    if (threadIdx.x == 0) bulk_copy<BYTES>(shared, global, barrier);
#else
    for (int i = threadIdx.x * 16; i < BYTES; i += WARPGROUP * 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address((uint8_t *)shared + i)),
                     "l"((const uint8_t *)global + i)
                     : "memory");
#endif
}

static __device__ __forceinline__ void products_begin() {
#if HOPPER
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
static __device__ __forceinline__ void products_commit() {
#if HOPPER
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
/* Waits until at most N committed groups are unfinished. */
template <int N> static __device__ __forceinline__ void products_wait() {
#if HOPPER
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
#endif
}
/* Keeps the compiler from moving uses of accumulators across the neighbouring waits and fences. */
template <int N> static __device__ __forceinline__ void pin(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}
template <int N> static __device__ __forceinline__ void pin(uint32_t (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+r"(d[i])::"memory");
}

/* Converts an accumulator into the A operand of a following product. */
static __device__ __forceinline__ void pack(uint32_t (&a)[16], const float (&d)[32]) {
#pragma unroll
    for (int i = 0; i < 16; i++)
        a[i] = pack2(d[2 * i], d[2 * i + 1]);
}
/* Four 8 x 8 matrices of a tile; lane 8i + j has row and piece of row j of matrix i. */
template <bool TRANSPOSED>
static __device__ __forceinline__ void load_matrices(uint32_t *a, const uint8_t *tile, int row, int piece) {
    uint32_t from = shared_address(tile) + row * 128 + ((piece ^ (row & 7)) << 4);
    uint4 four = shared_matrices<TRANSPOSED>(from);
    a[0] = four.x, a[1] = four.y, a[2] = four.z, a[3] = four.w;
}
/* Loads this warp's 16 rows of tiles as fragments of A. */
template <int TILES>
static __device__ __forceinline__ void load_fragments(uint32_t (&a)[16 * TILES], const uint8_t *tiles) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int s = 0; s < 4 * TILES; s++)
        load_matrices<false>(a + 4 * s, tiles + s / 4 * TILE_BYTES, threadIdx.x / 32 * 16 + lane % 16,
                             s % 4 * 2 + lane / 16);
}
#if HOPPER
/* The wgmma matrix descriptor of a tile: address / 16, stride of 1024 bytes between groups of 8 rows, 128-byte swizzle.
 * Addresses of shared memory have 18 bits. */
static __device__ __forceinline__ uint64_t tile_descriptor(const void *tile) {
    return (uint64_t)(shared_address(tile) >> 4) | (64ull << 16) | (64ull << 32) | (1ull << 62);
}

#define ACCUMULATOR_32                                                                                                 \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                          \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define ACCUMULATOR_32_OPERANDS(d)                                                                                     \
    "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),        \
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),         \
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),        \
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])

#define ACCUMULATOR_32_RESULTS(d)                                                                                      \
    "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]), "=f"(d[4]), "=f"(d[5]), "=f"(d[6]), "=f"(d[7]), "=f"(d[8]),        \
        "=f"(d[9]), "=f"(d[10]), "=f"(d[11]), "=f"(d[12]), "=f"(d[13]), "=f"(d[14]), "=f"(d[15]), "=f"(d[16]),         \
        "=f"(d[17]), "=f"(d[18]), "=f"(d[19]), "=f"(d[20]), "=f"(d[21]), "=f"(d[22]), "=f"(d[23]), "=f"(d[24]),        \
        "=f"(d[25]), "=f"(d[26]), "=f"(d[27]), "=f"(d[28]), "=f"(d[29]), "=f"(d[30]), "=f"(d[31])

/* d (+)= A B, 64x64x16, A in registers. TRANSPOSED 0: B's tile has a row for each column of d (d = A tile^T); 1: a row
 * for each step of the sum (d = A tile). */
template <int TRANSPOSED>
static __device__ __forceinline__ void product(float *d, const uint32_t *a, uint64_t b, int add) {
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " ACCUMULATOR_32
                 ", {%32, %33, %34, %35}, %36, p, 1, 1, %38;\n"
                 "}\n"
                 : ACCUMULATOR_32_OPERANDS(d)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TRANSPOSED));
}
/* The same, with A in shared memory: a tile with a row for each row of d. */
static __device__ __forceinline__ void product_tiles(float *d, uint64_t a, uint64_t b, int add) {
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " ACCUMULATOR_32 ", %32, %33, p, 1, 1, 0, 0;\n"
                 "}\n"
                 : ACCUMULATOR_32_OPERANDS(d)
                 : "l"(a), "l"(b), "r"(add));
}

/* The first product of a sum: d = A B. d is an output only, so that the compiler does not keep its old value. */
template <int TRANSPOSED>
static __device__ __forceinline__ void product_first(float *d, const uint32_t *a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " ACCUMULATOR_32
                 ", {%32, %33, %34, %35}, %36, 0, 1, 1, %37;\n"
                 : ACCUMULATOR_32_RESULTS(d)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(TRANSPOSED));
}
static __device__ __forceinline__ void product_tiles_first(float *d, uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " ACCUMULATOR_32 ", %32, %33, 0, 1, 1, 0, 0;\n"
                 : ACCUMULATOR_32_RESULTS(d)
                 : "l"(a), "l"(b));
}

/* d = A (tiles of TILES * 64 columns)^T. */
template <int TILES>
static __device__ __forceinline__ void multiply_rows(float (&d)[32], const uint32_t (&a)[16 * TILES],
                                                     const uint8_t *tiles) {
#pragma unroll
    for (int s = 0; s < 4 * TILES; s++)
        product<0>(d, a + 4 * s, tile_descriptor(tiles + s / 4 * TILE_BYTES) + s % 4 * 2, s > 0);
}
template <int TILES>
static __device__ __forceinline__ void multiply_tiles(float (&d)[32], const uint8_t *a, const uint8_t *b) {
#pragma unroll
    for (int s = 0; s < 4 * TILES; s++)
        product_tiles(d, tile_descriptor(a + s / 4 * TILE_BYTES) + s % 4 * 2,
                      tile_descriptor(b + s / 4 * TILE_BYTES) + s % 4 * 2, s > 0);
}
/* The same, for loops that keep several products in flight. */
static __device__ __forceinline__ void multiply_rows_first(float (&d)[32], const uint32_t (&a)[16],
                                                           const uint8_t *tile) {
    product_first<0>(d, a, tile_descriptor(tile));
#pragma unroll
    for (int s = 1; s < 4; s++)
        product<0>(d, a + 4 * s, tile_descriptor(tile) + s * 2, 1);
}
static __device__ __forceinline__ void multiply_tiles_first(float (&d)[32], const uint8_t *a, const uint8_t *b) {
    product_tiles_first(d, tile_descriptor(a), tile_descriptor(b));
#pragma unroll
    for (int s = 1; s < 4; s++)
        product_tiles(d, tile_descriptor(a) + s * 2, tile_descriptor(b) + s * 2, 1);
}
/* d += A tiles, A 64 x 64. */
template <int TILES>
static __device__ __forceinline__ void multiply_columns(float (&d)[32 * TILES], const uint32_t (&a)[16],
                                                        const uint8_t *tiles) {
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int s = 0; s < 4; s++)
            product<1>(d + 32 * i, a + 4 * s, tile_descriptor(tiles + i * TILE_BYTES) + s * 128, 1);
}

#else

static __device__ __forceinline__ void product(float *d, const uint32_t *a, uint32_t b0, uint32_t b1) {
    warp_product(d, a[0], a[1], a[2], a[3], b0, b1);
}
/* 16 steps of the sum, against 64 rows of a tile (its columns from `step` * 16). */
static __device__ __forceinline__ void product_rows(float (&d)[32], const uint32_t *a, const uint8_t *tile, int step) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        uint32_t b[4];
        load_matrices<false>(b, tile, n * 16 + lane / 16 * 8 + lane % 8, step * 2 + lane / 8 % 2);
        product(d + 8 * n, a, b[0], b[1]);
        product(d + 8 * n + 4, a, b[2], b[3]);
    }
}
template <int TILES>
static __device__ __forceinline__ void multiply_rows(float (&d)[32], const uint32_t (&a)[16 * TILES],
                                                     const uint8_t *tiles) {
#pragma unroll
    for (int i = 0; i < 32; i++)
        d[i] = 0.0f;
#pragma unroll
    for (int s = 0; s < 4 * TILES; s++)
        product_rows(d, a + 4 * s, tiles + s / 4 * TILE_BYTES, s % 4);
}
template <int TILES>
static __device__ __forceinline__ void multiply_tiles(float (&d)[32], const uint8_t *a, const uint8_t *b) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 32; i++)
        d[i] = 0.0f;
#pragma unroll
    for (int s = 0; s < 4 * TILES; s++) {
        uint32_t fragment[4];
        load_matrices<false>(fragment, a + s / 4 * TILE_BYTES, threadIdx.x / 32 * 16 + lane % 16,
                             s % 4 * 2 + lane / 16);
        product_rows(d, fragment, b + s / 4 * TILE_BYTES, s % 4);
    }
}
template <int TILES>
static __device__ __forceinline__ void multiply_columns(float (&d)[32 * TILES], const uint32_t (&a)[16],
                                                        const uint8_t *tiles) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int s = 0; s < 4; s++)
#pragma unroll
            for (int n = 0; n < 4; n++) {
                uint32_t b[4];
                load_matrices<true>(b, tiles + i * TILE_BYTES, s * 16 + lane / 8 % 2 * 8 + lane % 8, n * 2 + lane / 16);
                product(d + 32 * i + 8 * n, a + 4 * s, b[0], b[1]);
                product(d + 32 * i + 8 * n + 4, a + 4 * s, b[2], b[3]);
            }
}
#endif

/* The same, where A's fragments are 4 of each 8 registers, from FIRST on. */
template <int TILES, int FIRST>
static __device__ __forceinline__ void multiply_columns(float (&d)[32 * TILES], const float (&a)[32],
                                                        const uint8_t *tiles) {
    uint32_t part[16];
#pragma unroll
    for (int i = 0; i < 16; i++)
        part[i] = __float_as_uint(a[i / 4 * 8 + FIRST + i % 4]);
    multiply_columns<TILES>(d, part, tiles);
}

/* The epilogue: stores an accumulator, times `factor`, as rows of bf16. It goes through shared memory (this warp's rows
 * of `tiles`), so that global memory is written 16 bytes at a time. ADD: the old values are in `tiles`. Rows before
 * `skip` and from `count` on are not stored. */
template <int TILES, bool ADD = false>
static __device__ __forceinline__ void store_rows(const float (&d)[32 * TILES], float factor, uint8_t *tiles, bf16 *to,
                                                  int64_t stride, int skip, int count) {
    int lane = threadIdx.x % 32, first = threadIdx.x / 32 * 16;
    auto put = [&](uint8_t *at, float x, float y) {
        float2 old = ADD ? two_floats(*(const __nv_bfloat162 *)at) : make_float2(0.0f, 0.0f);
        *(uint32_t *)at = ADD ? pack2(fmaf(x, factor, old.x), fmaf(y, factor, old.y)) : pack2(x * factor, y * factor);
    };
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 8 * TILES; i++) {
        int row = first + lane / 4;
        uint8_t *at = tiles + i / 8 * TILE_BYTES + row * 128 + (((i % 8) ^ (row & 7)) << 4) + lane % 4 * 4;
        put(at, d[4 * i], d[4 * i + 1]);
        put(at + 8 * 128, d[4 * i + 2], d[4 * i + 3]);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4 * TILES; i++) {
        int piece = i * 32 + lane, row = first + piece / (8 * TILES), c = piece % (8 * TILES);
        uint4 x = *(const uint4 *)(tiles + c / 8 * TILE_BYTES + row * 128 + (((c % 8) ^ (row & 7)) << 4));
        if (row >= skip && row < count) *(uint4 *)(to + row * stride + c * 8) = x;
    }
    __syncwarp();
}

/* Reductions over the four lanes that share a row. */
static __device__ __forceinline__ float row_sum(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}
static __device__ __forceinline__ float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

/* False where tiles of m cannot be loaded. `hopper`: TMA will load them. */
bool tile_matrix_of(tile_matrix *out, struct mat m, int box, bool hopper);
