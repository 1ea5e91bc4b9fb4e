/* bench_device.cuh -- shared by the benchmarks of ops on a GPU: matrices of random numbers, the median of several times
 * by events, and ceilings measured in the same run. A reported share is that of the ceiling that bounds the op: memory
 * or arithmetic. */
#pragma once
#include "kernels/cuda/cuda.cuh"
#include "tests/bench/result.h"
#include <algorithm>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

static struct device *dev;
static double copy_rate, product_rate; /* bytes/s, operations/s */

static void must(enum status s) {
    if (s == STATUS_OK) return;
    fprintf(stderr, "bench: %s\n", status_message());
    exit(s == STATUS_UNSUPPORTED ? 77 : 1);
}

__device__ static float random_of(uint64_t i) {
    i = (i ^ (i >> 31)) * 0x9E3779B97F4A7C15u;
    i = (i ^ (i >> 29)) * 0xBF58476D1CE4E5B9u;
    uint32_t a = (uint32_t)(i >> 32), b = (uint32_t)i;
    return sqrtf(-2.0f * logf(((float)a + 1.0f) * 0x1p-32f)) * cospif((float)b * 0x1p-31f);
}
template <typename T> __global__ void fill(T *to, int64_t n, float scale, uint64_t seed) {
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        to[i] = from_float<T>(scale * random_of((uint64_t)i + seed * 1000003u));
}
__global__ void fill_ids(int32_t *to, int64_t n, int words) {
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        float u = fabsf(random_of((uint64_t)i + 77777u)) / 6.0f; /* a few ids are frequent, as in text */
        to[i] = i % 64 == 63 ? words - 1 : min(words - 1, (int)(u * u * u * (float)words));
    }
}

static std::vector<void *> taken;
static void *take(size_t bytes) {
    void *p;
    must(device_allocate_bytes(dev, &p, bytes));
    taken.push_back(p);
    return p;
}
static void drop() {
    for (void *p : taken)
        device_release(dev, p);
    taken.clear();
}
static struct mat matrix(enum dtype type, int64_t rows, int64_t cols, float scale) {
    static uint64_t seed = 1;
    struct mat m = mat_dense(take((size_t)(rows * cols * dtype_bytes(type))), type, rows, cols);
    cudaStream_t s = device_cuda_stream(dev);
    if (type == DTYPE_F32)
        fill<<<2048, 256, 0, s>>>((float *)m.data, rows * cols, scale, seed++);
    else if (type == DTYPE_BF16)
        fill<<<2048, 256, 0, s>>>((bf16 *)m.data, rows * cols, scale, seed++);
    else
        fill<<<2048, 256, 0, s>>>((__half *)m.data, rows * cols, scale, seed++);
    device_cuda_check(dev, "bench fill");
    return m;
}

template <typename F> static double seconds(F f, int times, std::vector<double> *each = NULL) {
    cudaEvent_t a, b;
    std::vector<float> all;
    cudaStream_t s = device_cuda_stream(dev);
    cudaEventCreate(&a), cudaEventCreate(&b);
    f();
    for (int i = 0; i < times; i++) {
        float ms;
        cudaEventRecord(a, s);
        f();
        cudaEventRecord(b, s);
        cudaEventSynchronize(b);
        cudaEventElapsedTime(&ms, a, b);
        all.push_back(ms);
    }
    must(device_sync(dev));
    cudaEventDestroy(a), cudaEventDestroy(b);
    if (each) each->assign(all.begin(), all.end());
    std::sort(all.begin(), all.end());
    return all[all.size() / 2] * 1e-3;
}

/* A name that begins with two spaces continues the last that does not: "matmul.forward", "  backward_input". */
static void report_figure(const char *name, const std::vector<double> &ms, const char *limit, double share) {
    static char group[96];
    struct figure figure = {};
    bool inner = name[0] == ' ';
    if (!inner) snprintf(group, sizeof group, "%s", name);
    figure.unit = "ms", figure.values = ms.data(), figure.count = (int64_t)ms.size();
    figure.peer = limit, figure.ratio = share;
    result_figure(&figure, "%s%s%s", group, inner ? "," : "", inner ? name + 1 : "");
}

template <typename F> static void report(const char *name, double bytes, double operations, F f, int times = 9) {
    std::vector<double> each;
    double t = seconds(f, times, &each), by_memory = bytes / copy_rate, by_arithmetic = operations / product_rate;
    bool memory = by_memory > by_arithmetic;
    double rate = memory ? bytes / t * 1e-9 : operations / t * 1e-12, share = (memory ? by_memory : by_arithmetic) / t;
    printf("%-44s %10.1f us  %8.1f %-7s %5.1f %% of %s\n", name, t * 1e6, rate, memory ? "GB/s" : "TFLOP/s",
           100 * share, memory ? "copy" : "product");
    fflush(stdout);
    report_figure(name, each, memory ? "copy" : "bf16 product", share);
}

static void ceilings() {
    size_t bytes = (size_t)4 << 30;
    void *a = matrix(DTYPE_F32, 1 << 15, 1 << 15, 1.0f).data, *b = take(bytes);
    copy_rate = 2.0 * (double)bytes / seconds([&] { device_copy(dev, b, a, bytes); }, 9);
    struct mat x = matrix(DTYPE_BF16, 8192, 8192, 1.0f), w = matrix(DTYPE_BF16, 8192, 8192, 1.0f);
    struct mat y = matrix(DTYPE_BF16, 8192, 8192, 1.0f);
    double t = seconds([&] { dev->ops->matmul->forward(dev, y, x, w, false); }, 15);
    product_rate = 2.0 * 8192.0 * 8192.0 * 8192.0 / t;
    result_value("GB/s", copy_rate * 1e-9, "copy, read and written, the limit");
    result_value("TFLOP/s", product_rate * 1e-12, "bf16 product, the limit");
    printf("ceilings: copy %.0f GB/s (read and written), bf16 product of 8192^3 %.0f TFLOP/s\n", copy_rate * 1e-9,
           product_rate * 1e-12);
    drop();
}
