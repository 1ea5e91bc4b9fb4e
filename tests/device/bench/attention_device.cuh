/* attention_device.cuh -- a minimal device for the attention kernels (a stream and scratch), for their tests and
 * benchmarks on a machine without the other libraries; copies to and from its memory. */
#pragma once
#include "kernels/cuda/cuda.cuh"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

#define GPU(call)                                                                                                      \
    do {                                                                                                               \
        cudaError_t gpu_error_ = (call);                                                                               \
        if (gpu_error_ != cudaSuccess) {                                                                               \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(gpu_error_));                        \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static cudaStream_t device_stream; /* a blocking one: ordered with copies */
static void *device_scratch_memory;
static size_t device_scratch_limit = 1 << 30; /* a test sets less, so that work is divided */
static int device_architecture_seen;          /* 0: the GPU's; a test sets 75, which uses the reference kernels */
static int device_processors_seen;            /* 0: the GPU's; a test sets 1, so that blocks have many tiles each */

extern "C" {
cudaStream_t device_cuda_stream(struct device *) {
    if (!device_stream) GPU(cudaStreamCreate(&device_stream));
    return device_stream;
}
void *device_cuda_scratch(struct device *, size_t bytes) {
    if (!device_scratch_memory) GPU(cudaMalloc(&device_scratch_memory, 1 << 30));
    if (bytes > 1 << 30) abort();
    return device_scratch_memory;
}
size_t device_cuda_scratch_bytes(struct device *) {
    return device_scratch_limit;
}
unsigned *device_cuda_counters(struct device *) {
    static unsigned *counters;
    if (!counters) {
        GPU(cudaMalloc(&counters, DEVICE_CUDA_COUNTERS * sizeof *counters));
        GPU(cudaMemset(counters, 0, DEVICE_CUDA_COUNTERS * sizeof *counters));
    }
    return counters;
}
int device_cuda_shared_bytes(struct device *) {
    int bytes;
    GPU(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    return bytes;
}
int device_cuda_architecture(struct device *) {
    if (!device_architecture_seen) {
        cudaDeviceProp p;
        GPU(cudaGetDeviceProperties(&p, 0));
        device_architecture_seen = p.major * 10 + p.minor;
    }
    return device_architecture_seen;
}
bool device_cuda_hopper(struct device *dev) {
    return device_cuda_architecture(dev) == 90; /* with code built for it: run_attention.sh */
}
int device_cuda_processors(struct device *) {
    cudaDeviceProp p;
    if (!device_processors_seen) {
        GPU(cudaGetDeviceProperties(&p, 0));
        device_processors_seen = p.multiProcessorCount;
    }
    return device_processors_seen;
}
void device_cuda_check(struct device *, const char *op) {
    cudaError_t e = cudaGetLastError();
    if (e == cudaSuccess) return;
    fprintf(stderr, "%s: %s\n", op, cudaGetErrorString(e));
    exit(1);
}
void device_cuda_fault(struct device *, const char *op, const char *what) {
    fprintf(stderr, "%s: %s\n", op, what);
    exit(1);
}
}

static uint64_t random_state = 88172645463325252ull;
static double random_uniform() {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (double)(random_state >> 11) / 9007199254740992.0;
}
static inline float random_normal() {
    double u = random_uniform() + 1e-12, v = random_uniform();
    return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v));
}
static inline float as_bf16(float x) {
    return __bfloat162float(__float2bfloat16_rn(x));
}

template <typename T> static T *upload(const std::vector<T> &v) {
    T *p;
    GPU(cudaMalloc(&p, v.size() * sizeof(T) + 16));
    GPU(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
    return p;
}
