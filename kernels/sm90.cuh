/* sm90.cuh -- Hopper's instructions by name: bulk tensor copies into shared memory, the barriers they complete on, and
 * matrix products of a warpgroup (128 threads).
 *
 * A tile is 64 rows of 64 bf16 (128 bytes a row, 8 KiB), its 16-byte pieces swizzled over the rows' low three bits as
 * the copy engine writes it: the piece c of row r lies at r * 128 + ((c ^ (r & 7)) << 4). Tiles lie at multiples of 1 KiB.
 * Wider heads are several tiles, one behind the other.
 *
 * Accumulators of m64n64 (and fragments of A) lie as those of mma.m16n8k16: warp w of the group has rows 16w .. 16w+15;
 * thread `lane` of it has rows lane/4 and lane/4 + 8 and of each 8 columns the two at 2 * (lane % 4):
 * d[4i], d[4i+1] of the first row, d[4i+2], d[4i+3] of the second. */
#pragma once
#include "kernels/cuda.cuh"
#include <cuda.h>

/* wgmma is in sm_90a only; on other targets the kernels' bodies are empty, and never launched. */
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define SM90 1
#else
#define SM90 0
#endif

enum { TILE = 64, TILE_BYTES = 8192, WARPGROUP = 128 };

#if SM90
static __device__ __forceinline__ uint32_t shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

static __device__ __forceinline__ void barrier_init(uint64_t *barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
static __device__ __forceinline__ void barrier_init_done() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/* One arrival, and `bytes` of copies that have to come before the phase ends. */
static __device__ __forceinline__ void barrier_expect(uint64_t *barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}
/* One arrival once this thread's cp.async copies so far are there. */
static __device__ __forceinline__ void barrier_arrive_copies(uint64_t *barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}
static __device__ __forceinline__ void barrier_wait(uint64_t *barrier, uint32_t phase) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra over;\n"
                 "bra again;\n"
                 "over:\n"
                 "}\n" ::"r"(shared_address(barrier)),
                 "r"(phase)
                 : "memory");
}
/* Orders this thread's writes to shared memory before what the copy engine and matrix units do after the next barrier. */
static __device__ __forceinline__ void fence_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* The tile whose first element is (row, column) of the map's matrix; parts outside of the matrix read as 0. */
static __device__ __forceinline__ void tile_copy(void *tile, const CUtensorMap *map, int column, int row, uint64_t *barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(shared_address(tile)),
                 "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier))
                 : "memory");
}
/* 8 bytes, or zeros. */
static __device__ __forceinline__ void copy8(void *shared, const void *global, bool inside) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address(shared)), "l"(global),
                 "r"(inside ? 8 : 0)
                 : "memory");
}

static __device__ __forceinline__ void products_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void products_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits until at most `N` groups are unfinished. */
template <int N> static __device__ __forceinline__ void products_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
/* Keeps the compiler from moving uses of accumulators across the waits and fences around it. */
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

/* How the matrix units find a tile: address / 16, 1024 bytes from 8 rows to the next 8, 128-byte swizzle. */
static __device__ __forceinline__ uint64_t tile_descriptor(const void *tile) {
    return (uint64_t)((shared_address(tile) & 0x3ffff) >> 4) | (64ull << 16) | (64ull << 32) | (1ull << 62);
}

#define ACCUMULATOR_32                                                                                                 \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                          \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define ACCUMULATOR_32_OPERANDS(d)                                                                                     \
    "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),        \
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),         \
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),        \
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])

/* d (+)= A B, 64x64x16, A of registers. TURN 0: B's tile has a row for each column of d (d = A tile^T); 1: for each
 * step of the sum (d = A tile). */
template <int TURN>
static __device__ __forceinline__ void product(float *d, const uint32_t *a, uint64_t b, int add) {
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " ACCUMULATOR_32
                 ", {%32, %33, %34, %35}, %36, p, 1, 1, %38;\n"
                 "}\n"
                 : ACCUMULATOR_32_OPERANDS(d)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TURN));
}
/* The same with A a tile, one row for each row of d. */
static __device__ __forceinline__ void product_tiles(float *d, uint64_t a, uint64_t b, int add) {
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " ACCUMULATOR_32 ", %32, %33, p, 1, 1, 0, 0;\n"
                 "}\n"
                 : ACCUMULATOR_32_OPERANDS(d)
                 : "l"(a), "l"(b), "r"(add));
}

/* d = A (tiles of HALVES * 64 columns)^T. */
template <int HALVES>
static __device__ __forceinline__ void multiply_rows(float (&d)[32], const uint32_t (&a)[16 * HALVES], const uint8_t *tiles) {
#pragma unroll
    for (int s = 0; s < 4 * HALVES; s++)
        product<0>(d, a + 4 * s, tile_descriptor(tiles + s / 4 * TILE_BYTES) + s % 4 * 2, s > 0);
}
template <int HALVES>
static __device__ __forceinline__ void multiply_tiles(float (&d)[32], const uint8_t *a, const uint8_t *b) {
#pragma unroll
    for (int s = 0; s < 4 * HALVES; s++)
        product_tiles(d, tile_descriptor(a + s / 4 * TILE_BYTES) + s % 4 * 2, tile_descriptor(b + s / 4 * TILE_BYTES) + s % 4 * 2,
                      s > 0);
}
/* d += A tiles, A 64 x 64. */
template <int HALVES>
static __device__ __forceinline__ void multiply_columns(float (&d)[32 * HALVES], const uint32_t (&a)[16], const uint8_t *tiles) {
#pragma unroll
    for (int half = 0; half < HALVES; half++)
#pragma unroll
        for (int s = 0; s < 4; s++)
            product<1>(d + 32 * half, a + 4 * s, tile_descriptor(tiles + half * TILE_BYTES) + s * 128, 1);
}

static __device__ __forceinline__ uint32_t pack2(float low, float high) {
    uint32_t x;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
    return x;
}
/* An accumulator as the A of a following product. */
static __device__ __forceinline__ void pack(uint32_t (&a)[16], const float (&d)[32]) {
#pragma unroll
    for (int i = 0; i < 16; i++)
        a[i] = pack2(d[2 * i], d[2 * i + 1]);
}
/* Rows of tiles as A: fragments of this warp's 16 rows. */
template <int HALVES> static __device__ __forceinline__ void load_fragments(uint32_t (&a)[16 * HALVES], const uint8_t *tiles) {
    int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane % 16;
#pragma unroll
    for (int s = 0; s < 4 * HALVES; s++) {
        int piece = s % 4 * 2 + lane / 16;
        uint32_t from = shared_address(tiles) + s / 4 * TILE_BYTES + row * 128 + ((piece ^ (row & 7)) << 4);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a[4 * s]), "=r"(a[4 * s + 1]), "=r"(a[4 * s + 2]), "=r"(a[4 * s + 3])
                     : "r"(from)
                     : "memory");
    }
}
/* Writes an accumulator, times `factor`, as rows of bf16: turned in shared memory (this warp's rows of `tiles`) so that
 * memory is written 16 bytes at a time. Rows from `count` on are left out. */
template <int HALVES>
static __device__ __forceinline__ void store_rows(const float (&d)[32 * HALVES], float factor, uint8_t *tiles, bf16 *to,
                                                  int64_t stride, int count) {
    int lane = threadIdx.x % 32, first = threadIdx.x / 32 * 16;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 8 * HALVES; i++) {
        int row = first + lane / 4;
        uint8_t *at = tiles + i / 8 * TILE_BYTES + row * 128 + (((i % 8) ^ (row & 7)) << 4) + lane % 4 * 4;
        *(uint32_t *)at = pack2(d[4 * i] * factor, d[4 * i + 1] * factor);
        *(uint32_t *)(at + 8 * 128) = pack2(d[4 * i + 2] * factor, d[4 * i + 3] * factor);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4 * HALVES; i++) {
        int piece = i * 32 + lane, row = first + piece / (8 * HALVES), c = piece % (8 * HALVES);
        uint4 x = *(const uint4 *)(tiles + c / 8 * TILE_BYTES + row * 128 + (((c % 8) ^ (row & 7)) << 4));
        if (row < count) *(uint4 *)(to + row * stride + c * 8) = x;
    }
    __syncwarp();
}

static __device__ __forceinline__ float power2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
/* Over the four lanes that share a row. */
static __device__ __forceinline__ float row_sum(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}
static __device__ __forceinline__ float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
#endif

/* A matrix as the copy engine sees it: tiles of `box_rows` rows (at most 64) and 64 columns. False where it cannot. */
bool sm90_tile_map(CUtensorMap *map, struct mat m, int box_rows);
