/* wide_tiles.cuh -- for Hopper kernels whose blocks have a producer warpgroup and consumer warpgroups: products of
 * 64 x 256, copies to all blocks of a cluster, the ring of stages. Tiles have the layout of tiles.cuh; a consumer has
 * 64 rows of A, and B has 256 rows of 64 numbers, one after the other.
 *
 * Accumulators: d[4 j + c] is column 8 j + 2 (lane % 4) + c % 2 of row 16 warp + lane / 4 + 8 (c / 2). */
#pragma once
#include "kernels/cuda/tiles.cuh"

/* The ring of stages. */
template <int STAGES> struct tile_ring {
    int stage;
    uint32_t phase;
    __device__ __forceinline__ void next() {
        if (++stage < STAGES) return;
        stage = 0;
        phase ^= 1;
    }
};

#if HOPPER
#define ACCUMULATOR_128                                                                                                \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                                 \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                                 \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "                                 \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                                 \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "                                 \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "                     \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define ACCUMULATOR_16_OPERANDS(i)                                                                                     \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]),        \
        "+f"(d[i + 7]), "+f"(d[i + 8]), "+f"(d[i + 9]), "+f"(d[i + 10]), "+f"(d[i + 11]), "+f"(d[i + 12]),             \
        "+f"(d[i + 13]), "+f"(d[i + 14]), "+f"(d[i + 15])
#define PRODUCT_WIDE(type)                                                                                             \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"                                                         \
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type " {" ACCUMULATOR_128                     \
                 "}, %128, %129, p, 1, 1, 0, 0;\n}\n"                                                                  \
                 : ACCUMULATOR_16_OPERANDS(0), ACCUMULATOR_16_OPERANDS(16), ACCUMULATOR_16_OPERANDS(32),               \
                   ACCUMULATOR_16_OPERANDS(48), ACCUMULATOR_16_OPERANDS(64), ACCUMULATOR_16_OPERANDS(80),              \
                   ACCUMULATOR_16_OPERANDS(96), ACCUMULATOR_16_OPERANDS(112)                                           \
                 : "l"(a), "l"(b), "r"(add))

/* d (+)= a b^T, 64 x 256 x 16. */
static __device__ __forceinline__ void product_wide(float (&d)[128], uint64_t a, uint64_t b, int add, bf16) {
    PRODUCT_WIDE("bf16");
}
static __device__ __forceinline__ void product_wide(float (&d)[128], uint64_t a, uint64_t b, int add, __half) {
    PRODUCT_WIDE("f16");
}

/* Arrives at this barrier in each block of the cluster. It releases reads of the tensor cores that are complete, so it
 * needs no fence over the cluster, which would cost more than the stage. */
template <int BLOCKS> static __device__ __forceinline__ void cluster_release(uint64_t *barrier) {
#pragma unroll
    for (uint32_t block = 0; block < BLOCKS; block++)
        asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
                     "mbarrier.arrive.shared::cluster.b64 _, [there];\n}\n" ::"r"(shared_address(barrier)),
                     "r"(block)
                     : "memory");
}
/* The address of a variable of this block in the shared memory of another block of the cluster. */
static __device__ __forceinline__ uint32_t cluster_address(const void *own, uint32_t block) {
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(own)), "r"(block));
    return there;
}
/* As cluster_release, at one barrier: its address is from cluster_address. */
static __device__ __forceinline__ void cluster_release_at(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/* Copies to the same address of every block of the cluster; each block's own barrier is signalled. */
template <int BLOCKS>
static __device__ __forceinline__ void tensor_copy_all(void *to, const CUtensorMap *map, int column, int row,
                                                       uint64_t *barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
                 "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier)), "h"((uint16_t)((1 << BLOCKS) - 1))
                 : "memory");
}
/* TMA: stores the box of `map` whose first element is (row, column); elements outside of the matrix are left out. One
 * thread commits it, after fence_async by the threads that wrote the tile. */
static __device__ __forceinline__ void tensor_store(const CUtensorMap *map, const void *from, int column, int row) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];\n"
                 "cp.async.bulk.commit_group;" ::"l"(map),
                 "r"(column), "r"(row), "r"(shared_address(from))
                 : "memory");
}
/* This thread's stores, except the last N, have read their tiles. */
template <int N> static __device__ __forceinline__ void tensor_store_wait() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
/* All of this thread's stores have been written. */
static __device__ __forceinline__ void tensor_store_wait_written() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
/* stmatrix: four 8 x 8 matrices of 16 bits; lane 8i + j has the address of row j of matrix i. */
static __device__ __forceinline__ void store_matrices(uint32_t address, uint4 a) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a.x), "r"(a.y),
                 "r"(a.z), "r"(a.w)
                 : "memory");
}
#endif
