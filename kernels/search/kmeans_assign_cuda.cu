/* kmeans_assign_cuda.cu -- sums of the points of each list, and the other steps of k-means on whole rows.
 *
 * Sums: a sort of the points by list and a segmented sum (scatter_cuda.cuh). Bound by memory: points are read once. The
 * others have one block for each row (unit), one thread for each column (split), one warp for each row (scatter_rows),
 * and are bound by memory, too. Measured: docs/kernels/search.md. */
#include "kernels/cuda/scatter_cuda.cuh"
extern "C" {
#include "kernels/search/kmeans_assign.h"
}

enum { THREADS = 256, POINTS = 1 << 25 /* sorted at a time: 512 MiB of scratch, besides the sort's */ };

/* Keys and positions for the scatter, and the counts: sums of integers, whose order does not matter. */
static __global__ void __launch_bounds__(THREADS) kmeans_sort_keys(uint32_t *key, int32_t *position, int32_t *counts,
                                                                   const int64_t *list, int64_t n, uint32_t lists) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n) return;
    bool live = list[i] >= 0;
    key[i] = live ? (uint32_t)list[i] : lists;
    position[i] = (int32_t)i;
    if (live) atomicAdd(counts + list[i], 1);
}

static void kmeans_sums(struct device *dev, struct mat sums, int32_t *counts, struct mat points, const int64_t *list) {
    const char *op = "kmeans_assign.sums";
    assert(sums.type == DTYPE_F32 && sums.stride == sums.cols && sums.cols == points.cols);
    device_clear(dev, sums.data, (size_t)(sums.rows * sums.cols) * sizeof(float));
    device_clear(dev, counts, (size_t)sums.rows * sizeof *counts);
    auto sum_rows = points.type == DTYPE_F32   ? scatter_run<float>
                    : points.type == DTYPE_F16 ? scatter_run<__half>
                                               : scatter_run<bf16>;
    for (int64_t first = 0; first < points.rows; first += POINTS) {
        int64_t left = points.rows - first, n = left < POINTS ? left : (int64_t)POINTS;
        scatter_plan plan = scatter_allocate(dev, n, sums.rows, NULL, 0);
        launch(dev, op, kmeans_sort_keys, (unsigned)blocks_for(n, THREADS), THREADS, 0, plan.key, plan.item, counts,
               list + first, n, (uint32_t)sums.rows);
        sum_rows(dev, op, plan, sums, mat_rows(points, first, n), NULL, 1.0f, 1);
    }
}

/* One thread for each column computes all pairs in order. */
static __global__ void __launch_bounds__(THREADS)
    kmeans_split_kernel(rows<float> x, const int32_t (*pairs)[2], int64_t n, int64_t d) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= d) return;
    float more = i % 2 ? 1.0f - 1.0f / 1024 : 1.0f + 1.0f / 1024;
    for (int64_t p = 0; p < n; p++) {
        float full = x[pairs[p][1]][i];
        x[pairs[p][0]][i] = full * more;
        x[pairs[p][1]][i] = full * (2.0f - more);
    }
}

static void kmeans_split(struct device *dev, struct mat x, const int32_t (*pairs)[2], int64_t n) {
    if (n == 0) return;
    launch(dev, "kmeans_assign.split", kmeans_split_kernel, (unsigned)blocks_for(x.cols, THREADS), THREADS, 0,
           rows_of<float>(x), pairs, n, x.cols);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS) kmeans_unit_kernel(rows<T> out, rows<const float> x, int64_t d) {
    __shared__ float part[THREADS / 32];
    const float *row = x[blockIdx.x];
    float square = 0.0f;
    for (int64_t i = threadIdx.x; i < d; i += THREADS)
        square += row[i] * row[i];
    square = block_sum(square, part);
    float factor = square > 0.0f ? 1.0f / sqrtf(square) : 0.0f;
    for (int64_t i = threadIdx.x; i < d; i += THREADS)
        out[blockIdx.x][i] = from_float<T>(row[i] * factor);
}

static void kmeans_unit(struct device *dev, struct mat out, struct mat x) {
    const char *op = "kmeans_assign.unit";
    assert(out.rows == x.rows && out.cols == x.cols && x.type == DTYPE_F32);
    rows<const float> from = {(const float *)x.data, x.stride};
    unsigned blocks = (unsigned)x.rows;
    if (out.type == DTYPE_F32)
        launch(dev, op, kmeans_unit_kernel<float>, blocks, THREADS, 0, rows_of<float>(out), from, x.cols);
    else if (out.type == DTYPE_F16)
        launch(dev, op, kmeans_unit_kernel<__half>, blocks, THREADS, 0, rows_of<__half>(out), from, x.cols);
    else launch(dev, op, kmeans_unit_kernel<bf16>, blocks, THREADS, 0, rows_of<bf16>(out), from, x.cols);
}

/* Rows as pieces of `T`: one warp for each row. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    kmeans_scatter_kernel(T *to, const T *from, const int64_t *row, int64_t n, int64_t pieces) {
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / 32;
    if (i >= n) return;
    for (int64_t c = threadIdx.x % 32; c < pieces; c += 32)
        to[row[i] * pieces + c] = from[i * pieces + c];
}

static void kmeans_scatter_rows(struct device *dev, struct mat to, struct mat from, const int64_t *row) {
    assert(to.type == from.type && to.cols == from.cols && to.stride == to.cols && from.stride == from.cols);
    int64_t bytes = from.cols * dtype_bytes(from.type);
    unsigned blocks = (unsigned)blocks_for(from.rows, THREADS / 32);
    bool wide = bytes % 16 == 0 && ((uintptr_t)to.data | (uintptr_t)from.data) % 16 == 0;
    if (wide)
        launch(dev, "kmeans_assign.scatter_rows", kmeans_scatter_kernel<uint4>, blocks, THREADS, 0, (uint4 *)to.data,
               (const uint4 *)from.data, row, from.rows, bytes / 16);
    else
        launch(dev, "kmeans_assign.scatter_rows", kmeans_scatter_kernel<uint16_t>, blocks, THREADS, 0,
               (uint16_t *)to.data, (const uint16_t *)from.data, row, from.rows, bytes / 2);
}

extern "C" const struct kmeans_assign_ops kmeans_assign_cuda = {
    .sums = kmeans_sums, .split = kmeans_split, .unit = kmeans_unit, .scatter_rows = kmeans_scatter_rows};
