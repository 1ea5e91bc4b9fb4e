/* corpus_rows_cuda.cu -- see corpus_rows.h: one thread for each number; the CPU's device uses the same function. */
#include "kernels/cuda/cuda.cuh"
extern "C" {
#include "tests/bench/corpus_rows.h"
}

__host__ __device__ static uint64_t mixed(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}
/* Approximately normal: a sum of four bytes. */
__host__ __device__ static float normal_of(uint64_t key) {
    uint64_t h = mixed(key * 0x9E3779B97F4A7C15u);
    return ((float)((h & 255) + (h >> 8 & 255) + (h >> 16 & 255) + (h >> 24 & 255)) - 510.0f) / 147.8f;
}
/* The size of a cluster is proportional to 1 / sqrt(its number). */
__host__ __device__ static float element(corpus_rows c, int64_t row, int64_t column) {
    double u = (double)(mixed((uint64_t)row + c.seed * 0x9E3779B97F4A7C15u) >> 11) * 0x1p-53;
    uint64_t cluster = (uint64_t)(u * u * (double)c.clusters);
    float centre = normal_of(cluster * 8192 + (uint64_t)column + (c.seed + 1) * 0x5851F42D4C957F2Du);
    return centre + c.noise * normal_of((uint64_t)row * 8192 + (uint64_t)column + (c.seed + 2) * 0x14057B7EF767814Fu);
}

template <typename T> static __global__ void fill(T *to, corpus_rows c, int64_t first, int64_t n, int64_t d) {
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        to[i] = from_float<T>(element(c, first + i / d, i % d));
}

extern "C" enum status corpus_rows_fill(const struct corpus_rows *c, struct device *dev, struct mat to, int64_t first) {
    int64_t n = to.rows * to.cols;
    assert(to.stride == to.cols);
    if (dev->shares_memory) {
        for (int64_t i = 0; i < n; i++)
            ((float *)to.data)[i] = element(*c, first + i / to.cols, i % to.cols);
    } else if (to.type == DTYPE_F16) {
        launch(dev, "corpus_rows", fill<__half>, 8192, 256, 0, (__half *)to.data, *c, first, n, to.cols);
    } else {
        launch(dev, "corpus_rows", fill<float>, 8192, 256, 0, (float *)to.data, *c, first, n, to.cols);
    }
    return STATUS_OK;
}
