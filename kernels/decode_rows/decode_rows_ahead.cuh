/* decode_rows_ahead.cuh -- what a kernel of a pass reads into the L2 cache for the kernel after the next one.
 *
 * A kernel of a pass moves 1 to 6 MB of weights and waits for the one before. Its own loads alone leave the memory idle
 * while it waits, multiplies and adds. So each kernel, before it waits, asks for what the second kernel after it will
 * load: a part for each thread, without a register and without a wait for the data. Reading ahead changes no result.
 * Keys of the next layer's window gain nothing (docs/kernels/decode_rows.md).
 *
 * Hopper and later (prefetch_l2_range); before, a kernel reads from memory when it starts. */
#pragma once
#include "kernels/cuda/launch_cuda.cuh"
enum { ROWS_WARPS = 8, ROWS_THREADS = 32 * ROWS_WARPS, ROWS_GROUP = 32 }; /* ROWS_GROUP: columns */
enum { ROWS_AHEAD_PIECE = 2048 };

struct rows_ahead {
    const void *weights; /* bytes: a multiple of 16 */
    int64_t bytes;       /* 0: none */
};

static __device__ __forceinline__ void rows_read_ahead(const rows_ahead &a) {
    const unsigned blocks = gridDim.x * gridDim.y;
    const unsigned thread = threadIdx.x * blocks + blockIdx.y * gridDim.x + blockIdx.x; /* first pieces: all blocks */
    const unsigned threads = blocks * ROWS_THREADS;
    for (int64_t at = (int64_t)thread * ROWS_AHEAD_PIECE; at < a.bytes; at += (int64_t)threads * ROWS_AHEAD_PIECE) {
        const int64_t left = a.bytes - at;
        prefetch_l2_range((const unsigned char *)a.weights + at,
                          (unsigned)(left < ROWS_AHEAD_PIECE ? left : ROWS_AHEAD_PIECE));
    }
}
