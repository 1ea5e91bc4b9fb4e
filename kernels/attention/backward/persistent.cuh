/* persistent.cuh -- backward of chunks with heads of 64 on Hopper: one block stays on each multiprocessor. What its two
 * passes share (persistent_dq.cuh, persistent_dkv.cuh).
 *
 *   threadIdx.y 0 .. 2   consumer warpgroups: one resident tile after another, each with buffers of its own
 *   threadIdx.y 3        producer warps 0 .. 2: one for each consumer; an elected lane issues the copies
 *
 * A block of a tile ends with its last products and its stores, and begins with copies that nothing hides; here a
 * producer copies the next tile's operands while its consumer ends a tile. The compiler keeps products in flight only
 * if none of them is in flight where a loop begins again, and addresses in uniform registers only if a shuffle shows
 * that they are the same in a warp. docs/kernels/gca.md has measurements. */
#pragma once
#include "kernels/attention/backward/attend_wgmma_dkv.cuh"
#include "kernels/attention/backward/attend_wgmma_dq.cuh"
#include "kernels/cuda/wide_tiles.cuh"

enum {
    PERSISTENT_CONSUMERS = 3,
    PERSISTENT_STAGES = 3,
    PERSISTENT_THREADS = WARPGROUP * (PERSISTENT_CONSUMERS + 1)
};

/* A stage: two tiles, one after the other. */
using persistent_stage = uint8_t[2 * TILE_BYTES];

#if HOPPER
/* x, which is the same in all lanes, in a uniform register. */
static __device__ __forceinline__ int uniform(int x) {
    return __shfl_sync(~0u, x, 0);
}
/* Registers of a producer warp and of a consumer's, 65,536 together. */
static __device__ __forceinline__ void take_producer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
}
static __device__ __forceinline__ void take_consumer_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
}
#endif
