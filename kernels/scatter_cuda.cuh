/* scatter_cuda.cuh -- table[key[i]] += coefficient[i] * source[i / share], without atomics: the places are sorted by
 * key (CUB's radix sort, stable), and a block sums all places of one key in a fixed order.
 *
 * Bound by memory: source is read once, rows of the table that have a key are read and written once. A block per
 * place; those whose place is not the first of its key leave at once. A key with many places (the landmark id, the
 * comma) is shared by the block's eight warps. */
#pragma once
#include "kernels/cuda.cuh"
#include <cub/device/device_radix_sort.cuh>
#include <limits.h>

enum { SCATTER_WARPS = 8, SCATTER_THREADS = 32 * SCATTER_WARPS, SCATTER_COLUMNS = 256 };

struct scatter_plan { /* in the scratch */
    uint32_t *key, *key_sorted;
    int32_t *place, *place_sorted;
    void *temporary;
    size_t temporary_bytes;
    int64_t n;
    int bits;
};

/* Room for n places among `keys` keys; the key `keys` marks a place that takes no part. *more: `more_bytes` besides. */
static scatter_plan scatter_room(struct device *dev, int64_t n, int64_t keys, void **more, size_t more_bytes) {
    scatter_plan p = {};
    assert(n <= INT_MAX && keys < UINT_MAX);
    p.n = n;
    while ((uint64_t)keys >> p.bits)
        p.bits++;
    (void)cub::DeviceRadixSort::SortPairs(NULL, p.temporary_bytes, p.key, p.key_sorted, p.place, p.place_sorted, (int)n, 0,
                                          p.bits);
    size_t each = ((size_t)n * 4 + 255) / 256 * 256;
    unsigned char *at = (unsigned char *)device_cuda_scratch(dev, 4 * each + p.temporary_bytes + 256 + more_bytes);
    p.key = (uint32_t *)(void *)at;
    p.key_sorted = (uint32_t *)(void *)(at + each);
    p.place = (int32_t *)(void *)(at + 2 * each);
    p.place_sorted = (int32_t *)(void *)(at + 3 * each);
    p.temporary = at + 4 * each;
    if (more) *more = at + 4 * each + (p.temporary_bytes + 255) / 256 * 256;
    return p;
}

/* A lane's eight columns of one row, added to sum; past the end nothing. */
template <typename T>
static __device__ void scatter_row(float *sum, const T *row, float coefficient, int64_t column, int64_t d, bool vectors) {
    if (vectors) {
        if (column >= d) return;
        vec8 x = load8(row + column);
#pragma unroll
        for (int i = 0; i < 8; i++)
            sum[i] += coefficient * x.v[i];
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (column + i < d) sum[i] += coefficient * to_float(row[column + i]);
    }
}

template <typename T>
static __global__ void __launch_bounds__(SCATTER_THREADS)
    scatter_sum(rows<float> table, rows<const T> source, const uint32_t *key, const int32_t *place,
                const float *coefficient, float scale, int share, int64_t n, uint32_t keys, int64_t d, bool vectors) {
    __shared__ float part[SCATTER_WARPS][SCATTER_COLUMNS];
    int64_t first = blockIdx.x, end = first + 1;
    uint32_t mine = key[first];
    if (mine >= keys || (first > 0 && key[first - 1] == mine)) return;
    for (int64_t far = n; end < far;) { /* the first place behind of another key */
        int64_t middle = (end + far) / 2;
        if (key[middle] == mine) end = middle + 1;
        else far = middle;
    }
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t each = (end - first + SCATTER_WARPS - 1) / SCATTER_WARPS;
    int64_t from = first + warp * each, to = from + each < end ? from + each : end;
    for (int64_t base = 0; base < d; base += SCATTER_COLUMNS) {
        float sum[8] = {};
#pragma unroll 4
        for (int64_t i = from; i < to; i++) {
            int32_t at = place[i];
            scatter_row(sum, source[at / share], coefficient ? coefficient[at] * scale : scale, base + lane * 8, d, vectors);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 8; i++)
            part[warp][lane * 8 + i] = sum[i];
        __syncthreads();
        int64_t column = base + threadIdx.x;
        if (column >= d) continue;
        float all = 0.0f;
#pragma unroll
        for (int w = 0; w < SCATTER_WARPS; w++)
            all += part[w][threadIdx.x];
        table[mine][column] += all;
    }
}

/* From plan.key and plan.place. */
static void scatter_sort(struct device *dev, const char *op, scatter_plan plan) {
    cudaError_t error =
        cub::DeviceRadixSort::SortPairs(plan.temporary, plan.temporary_bytes, plan.key, plan.key_sorted, plan.place,
                                        plan.place_sorted, (int)plan.n, 0, plan.bits, device_cuda_stream(dev));
    if (error != cudaSuccess) device_cuda_fault(dev, op, cudaGetErrorString(error));
    device_cuda_check(dev, op);
}

/* plan.key and plan.place are filled. coefficient NULL: 1. */
template <typename T>
static void scatter_run(struct device *dev, const char *op, scatter_plan plan, struct mat table, struct mat source,
                        const float *coefficient, float scale, int share) {
    assert(table.type == DTYPE_F32 && table.cols == source.cols);
    scatter_sort(dev, op, plan);
    launch(dev, op, scatter_sum<T>, (unsigned)plan.n, SCATTER_THREADS, 0, rows_of<float>(table),
           rows<const T>{(const T *)source.data, source.stride}, plan.key_sorted, plan.place_sorted, coefficient, scale, share,
           plan.n, (uint32_t)table.rows, source.cols, vectors_fit(source));
}
