/* device_cuda_internal.h -- what the CUDA twins use of a device. Included from .cu files, inside extern "C".
 *
 * One stream per device: an op's kernels follow those of the op before, so that all ops may use the same scratch. */
#pragma once
#include "kernels/device/device_internal.h"
#include <cuda_runtime_api.h>

cudaStream_t device_cuda_stream(struct device *dev);
/* The scratch, 256-byte aligned, with at least `bytes` (asserted); its content is lost with the next op. Taken once, at
 * device_open: ops cut their work so that scratch_bytes are enough whatever the shapes. */
void *device_cuda_scratch(struct device *dev, size_t bytes);
size_t device_cuda_scratch_bytes(struct device *dev);
/* Counters for blocks of a kernel that wait for each other, 0 between ops: an op that uses them clears them. */
enum { DEVICE_CUDA_COUNTERS = 2048 };
unsigned *device_cuda_counters(struct device *dev);
int device_cuda_processors(struct device *dev);           /* streaming multiprocessors */
int device_cuda_architecture(struct device *dev);         /* 80, 90, ...: what the code that runs was compiled for */
bool device_cuda_hopper(struct device *dev);              /* ... and whether it is sm_90a's, where HOPPER is 1 */
int device_cuda_shared_bytes(struct device *dev);         /* shared memory that a block may ask for */

/* After each launch: keeps the device's first fault with the op's name ("norm.forward"). A fault inside a kernel is
 * found by a later call, and has its name; CUDA_LAUNCH_BLOCKING=1 gives the right one. */
void device_cuda_check(struct device *dev, const char *op);
void device_cuda_fault(struct device *dev, const char *op, const char *what);      /* status of a library call */

/* The state of blas_cuda.cu: opened and closed with the device. */
struct blas_cuda;
struct blas_cuda *device_cuda_blas(struct device *dev);
enum status blas_cuda_open(struct blas_cuda **out);
void blas_cuda_close(struct blas_cuda *blas);             /* NULL is fine */

/* Cosines and sines of rope for the last shape used, memory of the device (kernels/pointwise/rope_cuda.cu). */
struct device_rope *device_cuda_rope(struct device *dev);

/* NCCL for kernels/device/collective.h (collective_cuda.cu, or collective_nonccl.c, which refuses). */
extern const struct device_peers device_peers_cuda;
