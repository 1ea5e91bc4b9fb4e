/* decode_rows_window.h -- which keys of a text's ring its window has, and how many of them a pass reads ahead: shared
 * by the host and the kernels.
 *
 * Keys of a window count from 0, the oldest; the last one is the row's own, which the pass adds. Of the others an
 * earlier kernel reads those from `skip` on into the L2 cache (decode_rows_ahead.cuh). skip is the same for all texts,
 * so the longest windows get most, and of each the newest keys: a window's kernel takes its keys in their order, and
 * ends when the longest one has been read. */
#pragma once
#include <stdint.h>

#ifdef __CUDACC__
#define ROWS_FUNCTION static __host__ __device__ __forceinline__
#else
#define ROWS_FUNCTION static inline
#endif

/* Keys of the window, the row's own included. */
ROWS_FUNCTION int rows_window_keys(int64_t position, int window) {
    return (int)(position < window ? position : (int64_t)window) + 1;
}
/* The row of the ring that has key 0. A division of 64 bits takes a hundred instructions. */
ROWS_FUNCTION int rows_window_first(int64_t position, int keys, int ring) {
    const int64_t of = position - (keys - 1);
    return of >> 31 ? (int)(of % ring) : (int)((uint32_t)of % (uint32_t)ring);
}
/* The row of the ring that has key i. */
ROWS_FUNCTION int rows_window_row(int first, int i, int ring) {
    return first + i >= ring ? first + i - ring : first + i;
}

/* The least skip with which n texts read at most `most` keys ahead. positions < 0: no text. */
static inline int rows_window_skip(const int64_t *positions, int n, int window, int64_t most) {
    int low = 0, high = window; /* with `high` nothing is read */
    while (low < high) {
        const int skip = low + (high - low) / 2;
        int64_t keys = 0;
        for (int i = 0; i < n; i++) {
            const int64_t before = rows_window_keys(positions[i], window) - 1;
            keys += before > skip ? before - skip : 0;
        }
        if (keys <= most)
            high = skip;
        else
            low = skip + 1;
    }
    return low;
}
