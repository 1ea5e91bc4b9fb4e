/* instructions.cuh -- wrappers of single PTX instructions: shared memory addresses, ldmatrix, mma.sync, mbarrier,
 * prefetch, clusters. Hopper has all of them. HOPPER is 1 if the compiler makes code for sm_90a; other code does not
 * use instructions that older GPUs lack. */
#pragma once
#include <cuda.h>
#include <stdint.h>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HOPPER 1
#else
#define HOPPER 0
#endif

/* Two numbers as bf16, the first in the lower half. */
static __device__ __forceinline__ uint32_t pack2(float low, float high) {
    uint32_t x;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
    return x;
}
/* 2^x, approximate: one instruction, where e^x takes five. */
static __device__ __forceinline__ float power2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
/* Reads the line of an address into the L2 cache, without a wait. */
static __device__ __forceinline__ void prefetch_l2(const void *global) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
}
/* The same for a range: both are multiples of 16 bytes. Before Hopper it does nothing. */
static __device__ __forceinline__ void prefetch_l2_range(const void *global, unsigned bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
#endif
}
static __device__ __forceinline__ uint32_t shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}
/* ldmatrix: four 8 x 8 matrices of 16 bits; lane 8i + j has the address of row j of matrix i. */
template <bool TRANSPOSED> static __device__ __forceinline__ uint4 shared_matrices(uint32_t address) {
    uint4 a;
    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a.x), "=r"(a.y), "=r"(a.z), "=r"(a.w)
                     : "r"(address)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a.x), "=r"(a.y), "=r"(a.z), "=r"(a.w)
                     : "r"(address)
                     : "memory");
    return a;
}
/* movmatrix: transposes an 8 x 8 matrix of 16 bits, of which each lane has two numbers of a row. */
static __device__ __forceinline__ uint32_t transposed_matrix(uint32_t x) {
    uint32_t y;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}
/* mma.sync, d += a b of a warp, 16 x 8 x 16, bf16. */
static __device__ __forceinline__ void warp_product(float *d, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                    uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
/* The same of bytes, 16 x 8 x 32, with exact sums. */
static __device__ __forceinline__ void warp_product_bytes(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                                          uint32_t a3, uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* ---- barriers in shared memory ---- */

static __device__ __forceinline__ void barrier_init(uint64_t *barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
/* After a thread's barrier_init calls: makes them visible to copies and to the other blocks of a cluster. */
static __device__ __forceinline__ void barrier_init_fence() {
#if HOPPER
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
/* Waits until the phase of this parity has ended. */
static __device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t phase) {
#if HOPPER
#define BARRIER_TRY "mbarrier.try_wait.parity.shared::cta.b64"
#else
#define BARRIER_TRY "mbarrier.test_wait.parity.shared::cta.b64"
#endif
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n" BARRIER_TRY " done, [%0], %1;\n"
                 "@done bra over;\n"
                 "bra again;\n"
                 "over:\n"
                 "}\n" ::"r"(barrier),
                 "r"(phase)
                 : "memory");
}
static __device__ __forceinline__ void barrier_wait(uint64_t *barrier, uint32_t phase) {
    barrier_wait(shared_address(barrier), phase);
}
static __device__ __forceinline__ void barrier_arrive(uint64_t *barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
/* Arrives, and adds `bytes` to what copies must transfer before the phase ends. From Hopper on. */
static __device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
static __device__ __forceinline__ void barrier_expect(uint64_t *barrier, uint32_t bytes) {
    barrier_expect(shared_address(barrier), bytes);
}
#if HOPPER
/* TMA: copies the box of `map` whose first element is (row, column). */
static __device__ __forceinline__ void tensor_copy(void *to, const CUtensorMap *map, int column, int row,
                                                   uint64_t *barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(to)),
                 "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier))
                 : "memory");
}
/* Reads the box into the L2 cache, without a wait. */
static __device__ __forceinline__ void tensor_prefetch(const CUtensorMap *map, int column, int row) {
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(map), "r"(column), "r"(row)
                 : "memory");
}
/* Copies BYTES contiguous bytes; both addresses are multiples of 16. */
template <int BYTES>
static __device__ __forceinline__ void bulk_copy(void *shared, const void *global, uint64_t *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(shared)),
                 "l"(global), "n"(BYTES), "r"(shared_address(barrier))
                 : "memory");
}
/* True in one lane of a warp. */
static __device__ __forceinline__ bool elect_lane() {
    uint32_t elected;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}\n" : "=r"(elected));
    return elected;
}
#endif

/* ---- clusters; before Hopper every block is a cluster of one ---- */

static __device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t rank = 0;
#if HOPPER
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
    return rank;
}
/* Called by all threads, alternately: what was written before an arrival is visible to all blocks after the wait. */
static __device__ __forceinline__ void cluster_arrive() {
#if HOPPER
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
static __device__ __forceinline__ void cluster_wait() {
#if HOPPER
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
    __syncthreads();
#endif
}
