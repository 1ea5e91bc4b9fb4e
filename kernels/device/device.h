/* device.h -- where numbers are computed: a table of ops, memory, and a thread pool.
 *
 * Every pointer that an op takes (matrices, ids, weights, row lists) is memory of the device; on the CPU that is any
 * memory. Ops of one device run in the order of their calls; on a GPU a call returns before its work is done.
 *
 * Shape letters: n rows (positions), d hidden size, h heads, dh head size, f FFN size, V vocabulary,
 * C chunks, S positions a chunk (with landmark), T live rows of a chunk's K and V, K neighbours, G groups.
 * One thread at a time per device. Ops never fail: on a GPU the first fault is kept and device_sync returns it. */
#pragma once
#include "base/memory.h"
#include "base/status.h"
#include "base/system/threads.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The CPU computes in DTYPE_F32 only (keys of token_memory and attention may be bf16). DTYPE_F16: landmarks of a store;
 * topk, kmeans_assign, ivf_scan and token_memory alone take it. DTYPE_I8: weights on a CPU in the layout of
 * matmul->pack_i8, for matmul and loss->forward alone; dtype_bytes, mat_bytes, mat_rows and mat_cols do not apply. */
enum dtype { DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_I8 };
static inline int64_t dtype_bytes(enum dtype type) { return type == DTYPE_F32 ? 4 : 2; }

/* A row-major view; `stride` elements from row to row (>= cols). Borrowed memory of the device. */
struct mat { void *data; enum dtype type; int64_t rows, cols, stride; };
struct mat mat_f32(const float *data, int64_t rows, int64_t cols);          /* stride = cols */
struct mat mat_dense(void *data, enum dtype type, int64_t rows, int64_t cols);
struct mat mat_rows(struct mat m, int64_t first, int64_t rows);             /* a range of rows */
struct mat mat_cols(struct mat m, int64_t first, int64_t cols);             /* a range of columns */
/* of a dense one */
static inline size_t mat_bytes(struct mat m) { return (size_t)(m.rows * m.cols * dtype_bytes(m.type)); }
static inline float *mat_row(struct mat m, int64_t row) { return (float *)m.data + row * m.stride; }

struct ops;
struct device_runtime;                   /* open, memory, copies: device_internal.h */
struct device {
    const struct ops *ops;
    const struct device_runtime *runtime;
    struct threads *threads;             /* owned; NULL: only this thread */
    void *state;                         /* the twin's own */
    const char *name;                    /* "cpu", "cuda" */
    bool shares_memory; /* shared with this process: the CPU. Its ops gain from loops over device_worker, too */
};

/* kind: "cpu" or "cuda". threads <= 0: one for each processor. Sets OpenBLAS to one thread, because the ops divide the
 * work themselves. "cuda" is the current GPU of this process. STATUS_UNSUPPORTED, with the reason: there is no GPU, or
 * the program was built without CUDA; the caller may continue with "cpu". */
enum status device_open(struct device **out, const char *kind, int threads);
/* Starts the driver of a GPU, as device_open does otherwise: for another thread, while this one loads a model. kind as
 * in device_open, or "auto". Failures are found by device_open. */
void device_warm(const char *kind);
bool device_built(const char *kind);                      /* whether this program has support for it */
void device_close(struct device *dev);                    /* NULL is fine */
enum status device_sync(struct device *dev);
/* returns the first fault found so far, like device_sync but without waiting */
enum status device_fault(struct device *dev);
/* *pointer = zeroed memory of the device for `count` elements of the type that it points to (of a void *: bytes),
 * 64-byte aligned; lives until device_release. */
#define device_allocate(dev, pointer, count) \
    MEMORY_TYPED(pointer, NULL, device_allocate_bytes(dev, &typed_, (size_t)(count) * sizeof **(pointer)))
enum status device_allocate_bytes(struct device *dev, void **out, size_t bytes);
void device_release(struct device *dev, void *memory);    /* NULL is fine */
/* The same in host memory, which is pinned beside a GPU, so that copies are direct. */
#define device_allocate_host(dev, pointer, count) \
    MEMORY_TYPED(pointer, NULL, device_allocate_host_bytes(dev, &typed_, (size_t)(count) * sizeof **(pointer)))
enum status device_allocate_host_bytes(struct device *dev, void **out, size_t bytes);
void device_release_host(struct device *dev, void *memory);                          /* NULL is fine */
/* The address under which the device's code may write host memory; NULL: it cannot (memory beside a GPU that is not
 * pinned). Writes are complete after device_sync. */
void *device_reach(struct device *dev, void *memory);

/* Data that the host passes to ops, or takes from them, has two addresses: in host memory and on the device. If the
 * device shares memory they are equal: device_buffer gives NULL, device_side returns the host's address, and copies
 * between the two do nothing.
 *   device_buffer(dev, &buffer, bytes);
 *   ids = device_side(dev, host_ids, buffer);
 *   device_upload(dev, ids, host_ids, bytes); */
/* device_release; NULL if memory is shared */
enum status device_buffer(struct device *dev, void **out, size_t bytes);
static inline void *device_side(const struct device *dev, void *host, void *buffer) {
    return dev->shares_memory ? host : buffer;
}
/* Copies in the order of ops. When the call returns, host memory in `from` and `to` may be used again, and a download
 * is complete. Nothing happens if both addresses are equal. Faults are kept for device_sync, like those of ops. */
void device_upload(struct device *dev, void *to, const void *from, size_t bytes);
void device_download(struct device *dev, void *to, const void *from, size_t bytes);
/* A download of results of the ops issued so far, which runs during later ops. device_fetch_wait waits for every fetch
 * so far, and for no later op; until then `to` is incomplete and no op may write `from`. `to` should come from
 * device_allocate_host: a fetch to other memory is an ordinary download. `to` may be `from`, if the device can reach it
 * (device_reach): then nothing is copied, and device_fetch_wait only waits. */
void device_fetch(struct device *dev, void *to, const void *from, size_t bytes);
void device_fetch_wait(struct device *dev);
/* An upload in the order of ops, for which this process does not wait. `from` should come from device_allocate_host and
 * must not change until device_send_wait, which waits for every send so far; other memory may change at once. A release
 * of `from` waits by itself. */
void device_send(struct device *dev, void *to, const void *from, size_t bytes);
void device_send_wait(struct device *dev);
void device_copy(struct device *dev, void *to, const void *from, size_t bytes);      /* both of the device */
void device_copy_rows(struct device *dev, struct mat to, struct mat from);           /* the same; one type and shape */
void device_clear(struct device *dev, void *memory, size_t bytes);                   /* to zero */

/* Repeats ops with the same arguments. `body` issues ops and copies within the device, the same ones each time. A GPU
 * runs them one by one the first time, records them the second time, and from then on launches them all at once.
 * *replay is NULL at first; the caller owns it. */
struct device_replay;
typedef void device_ops(void *context, struct device *dev);
void device_replay_run(struct device *dev, struct device_replay **replay, device_ops *body, void *context);
void device_replay_free(struct device *dev, struct device_replay *replay);          /* NULL is fine */

/* Returns the device for worker `worker` of dev->threads within a loop body: the same ops without threads of their own,
 * and with the scratch of that worker. Valid until device_close; ops of `dev` itself must not run meanwhile. */
struct device *device_worker(struct device *dev, int worker);
