/* decode_rows_ahead.cuh -- what a kernel of a pass reads into the L2 cache for the kernel after the next one.
 *
 * A kernel of a pass moves 1 to 6 MB of weights and waits for the one before. Its own loads alone leave the memory idle
 * while it waits, multiplies and adds. So each kernel, before it waits, asks for what the second kernel after it will
 * load: a part for each thread, without a register and without a wait for the data. Reading ahead changes no result.
 *
 * Gate and up also ask for keys and values of the next layer's windows (decode_rows_window.h says which), up to
 * ROWS_AHEAD_KEYS bytes: the next kernel, down, asks for nothing, so none of its own loads waits for them. With more
 * bytes, gate and up themselves take longer. Only the kernels for one width (rows_launch_exact) ask for keys.
 *
 * Hopper and later (prefetch_l2_range); before, a kernel reads from memory when it starts. */
#pragma once
#include "kernels/cuda/launch_cuda.cuh"
extern "C" {
#include "kernels/decode_rows/decode_rows.h"
}
#include "kernels/decode_rows/decode_rows_window.h"

enum { ROWS_WARPS = 8, ROWS_THREADS = 32 * ROWS_WARPS, ROWS_GROUP = 32 }; /* ROWS_GROUP: columns */
enum { ROWS_AHEAD_PIECE = 2048, ROWS_AHEAD_KEYS = 16 << 20 };

struct rows_ahead {
    const void *weights; /* bytes: a multiple of 16 */
    int64_t bytes;       /* 0: none */
};

/* What a pass reads of its texts. */
struct rows_texts {
    int64_t skip; /* keys of each window that are not read ahead */
    struct decode_row row[DECODE_ROWS_MAX];
};

/* Keys and values of a layer. */
struct rows_ahead_keys {
    const struct rows_texts *texts; /* NULL: none */
    int rows, window, layer, d;     /* rows: a power of two */
};

/* The number of this thread: the first ones are in different blocks, then in different warps. The threads of a warp ask
 * one after the other. */
static __device__ __forceinline__ unsigned rows_thread() {
    const unsigned in_block = threadIdx.x % 32 * ROWS_WARPS + threadIdx.x / 32;
    return (in_block * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
}
static __device__ __forceinline__ void rows_read_ahead(const rows_ahead &a) {
    const unsigned thread = rows_thread(), threads = gridDim.x * gridDim.y * ROWS_THREADS;
    for (int64_t at = (int64_t)thread * ROWS_AHEAD_PIECE; at < a.bytes; at += (int64_t)threads * ROWS_AHEAD_PIECE) {
        const int64_t left = a.bytes - at;
        prefetch_l2_range((const unsigned char *)a.weights + at,
                          (unsigned)(left < ROWS_AHEAD_PIECE ? left : ROWS_AHEAD_PIECE));
    }
}
/* Thread i: keys of text i % rows. */
static __device__ __forceinline__ void rows_read_keys_ahead(const rows_ahead_keys &a) {
    if (!a.texts) return;
    const unsigned thread = rows_thread(), threads = gridDim.x * gridDim.y * ROWS_THREADS;
    const struct decode_row &text = a.texts->row[thread % (unsigned)a.rows];
    const int64_t position = text.position;
    const unsigned char *ring = text.ring + a.layer * text.ring_step;
    const int ring_rows = text.ring_rows, skip = (int)a.texts->skip;
    if (position < 0) return;
    const int keys = rows_window_keys(position, a.window), first = rows_window_first(position, keys, ring_rows);
    const int64_t bytes = 4 * (int64_t)a.d; /* of a key and its value, bf16 */
    for (int i = skip + (int)(thread / (unsigned)a.rows); i < keys - 1; i += (int)(threads / (unsigned)a.rows))
        prefetch_l2_range(ring + rows_window_row(first, i, ring_rows) * bytes, (unsigned)bytes);
}
