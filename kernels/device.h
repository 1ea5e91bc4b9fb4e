/* device.h -- where numbers are computed: a table of ops, memory, and a thread pool.
 *
 * Shape letters: n rows (positions), d hidden size, h heads, dh head size, f FFN size, V vocabulary,
 * C chunks, S positions a chunk (with landmark), T live rows of a chunk's K and V, K neighbours, G groups.
 * One thread at a time per device. Ops never fail: on a GPU the first fault is kept and device_sync returns it. */
#pragma once
#include "base/status.h"
#include "base/threads.h"
#include <stddef.h>
#include <stdint.h>

enum dtype { DTYPE_F32, DTYPE_BF16 };                     /* the CPU computes in DTYPE_F32 only */

/* A row-major view; `stride` elements from row to row (>= cols). Borrowed memory of the device. */
struct mat { void *data; enum dtype type; int64_t rows, cols, stride; };
struct mat mat_f32(const float *data, int64_t rows, int64_t cols);          /* stride = cols */
struct mat mat_rows(struct mat m, int64_t first, int64_t rows);             /* a range of rows */
struct mat mat_cols(struct mat m, int64_t first, int64_t cols);             /* a range of columns */
static inline float *mat_row(struct mat m, int64_t row) { return (float *)m.data + row * m.stride; }

struct ops;
struct device {
    const struct ops *ops;
    struct threads *threads;             /* owned; NULL: this thread alone */
    void *state;                         /* the twin's own */
    const char *name;                    /* "cpu", later "cuda" */
};

/* `kind`: "cpu". threads <= 0: all processors. Sets OpenBLAS to one thread: parallelism is ours. */
enum status device_open(struct device **out, const char *kind, int threads);
void device_close(struct device *dev);                    /* NULL is fine */
enum status device_sync(struct device *dev);
/* Zeroed memory of the device, 64-byte aligned; lives until device_release. */
enum status device_allocate(struct device *dev, void **out, size_t bytes);
void device_release(struct device *dev, void *memory);    /* NULL is fine */

/* The device as worker `worker` of dev->threads may use it inside a loop body: same ops, no threads of its own, scratch
 * of that worker only. Valid until device_close; ops of `dev` itself may not run meanwhile. */
struct device *device_worker(struct device *dev, int worker);
