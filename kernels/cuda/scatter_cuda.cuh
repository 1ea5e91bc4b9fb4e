/* scatter_cuda.cuh -- scatter-add without atomics: table[key[i]] += coefficient[i] * source[i / share].
 *
 * Items are sorted by key (scatter_sort_cuda.h), then all items of one key are summed in a fixed order:
 *
 *   scatter_short  warp -> item; it leaves unless its item is the first of its key. Lane -> 8 columns, in steps of 256.
 *                  Keys of up to SCATTER_SHORT items: nearly all of them.
 *   scatter_long   block (x, y) -> SCATTER_SHORT neighbouring items, 256 columns. At most one longer key begins among
 *                  them; its items are divided among the eight warps. Such keys are the landmark id, the comma.
 *
 * Bound by memory: source is read once, rows of the table that have a key are read and written once. */
#pragma once
#include "kernels/cuda/scatter_sort_cuda.h"

enum { SCATTER_WARPS = 8, SCATTER_THREADS = 32 * SCATTER_WARPS, SCATTER_COLUMNS = 256, SCATTER_SHORT = 32 };

/* Adds a lane's eight columns of one row to sum; columns from d on are left out. */
template <typename T>
static __device__ void scatter_row(float *sum, const T *row, float coefficient, int64_t column, int64_t d,
                                   bool vectors) {
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

struct scatter_task {
    rows<float> table;
    const uint32_t *key; /* sorted, like item */
    const int32_t *item;
    const float *coefficient;
    float scale;
    int share;
    uint32_t keys;
    int64_t n, d;
    bool vectors, table_vectors;
};

/* table[row][column ..] += sum: a lane's eight columns. */
static __device__ void scatter_add(const scatter_task &t, uint32_t row, const float *sum, int64_t column) {
    float *to = t.table[row] + column;
    if (t.table_vectors) {
        vec8 x = load8(to);
#pragma unroll
        for (int i = 0; i < 8; i++)
            x.v[i] += sum[i];
        store8(to, x);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (column + i < t.d) to[i] += sum[i];
    }
}

template <typename T>
static __global__ void __launch_bounds__(SCATTER_THREADS) scatter_short(scatter_task t, rows<const T> source) {
    int64_t first = (int64_t)blockIdx.x * SCATTER_WARPS + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    if (first >= t.n) return;
    uint32_t mine = t.key[first];
    if (mine >= t.keys || (first > 0 && t.key[first - 1] == mine)) return;
    unsigned others = __ballot_sync(~0u, first + 1 + lane < t.n && t.key[first + 1 + lane] != mine);
    int64_t left = t.n - first;
    int count = others ? __ffs(others) : left <= SCATTER_SHORT ? (int)left : SCATTER_SHORT + 1;
    if (count > SCATTER_SHORT) return; /* left to scatter_long */
    for (int64_t column = lane * 8; column < t.d; column += SCATTER_COLUMNS) {
        float sum[8] = {};
#pragma unroll 4
        for (int i = 0; i < count; i++) {
            int32_t at = t.item[first + i];
            scatter_row(sum, source[at / t.share], t.coefficient ? t.coefficient[at] * t.scale : t.scale, column, t.d,
                        t.vectors);
        }
        scatter_add(t, mine, sum, column);
    }
}

template <typename T>
static __global__ void __launch_bounds__(SCATTER_THREADS) scatter_long(scatter_task t, rows<const T> source) {
    __shared__ float part[SCATTER_WARPS][SCATTER_COLUMNS];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t look = (int64_t)blockIdx.x * SCATTER_SHORT + lane;
    bool begins = look + SCATTER_SHORT < t.n && t.key[look] < t.keys && t.key[look + SCATTER_SHORT] == t.key[look] &&
                  (look == 0 || t.key[look - 1] != t.key[look]);
    unsigned found = __ballot_sync(~0u, begins);
    if (!found) return;
    int64_t first = (int64_t)blockIdx.x * SCATTER_SHORT + __ffs(found) - 1, end = first + SCATTER_SHORT + 1;
    uint32_t mine = t.key[first];
    for (int64_t far = t.n; end < far;) { /* the first later item of another key */
        int64_t middle = (end + far) / 2;
        if (t.key[middle] == mine)
            end = middle + 1;
        else
            far = middle;
    }
    int64_t each = (end - first + SCATTER_WARPS - 1) / SCATTER_WARPS, base = (int64_t)blockIdx.y * SCATTER_COLUMNS;
    int64_t from = first + warp * each, to = from + each < end ? from + each : end;
    float sum[8] = {};
#pragma unroll 8
    for (int64_t i = from; i < to; i++) {
        int32_t at = t.item[i];
        scatter_row(sum, source[at / t.share], t.coefficient ? t.coefficient[at] * t.scale : t.scale, base + lane * 8,
                    t.d, t.vectors);
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        part[warp][lane * 8 + i] = sum[i];
    __syncthreads();
    int64_t column = base + threadIdx.x;
    if (column >= t.d) return;
    float all = 0.0f;
#pragma unroll
    for (int w = 0; w < SCATTER_WARPS; w++)
        all += part[w][threadIdx.x];
    t.table[mine][column] += all;
}

/* The caller has filled plan.key and plan.item. coefficient NULL: 1. */
template <typename T>
static void scatter_run(struct device *dev, const char *op, scatter_plan plan, struct mat table, struct mat source,
                        const float *coefficient, float scale, int share) {
    assert(table.type == DTYPE_F32 && table.cols == source.cols);
    scatter_sort(dev, op, plan);
    scatter_task t = {rows_of<float>(table),
                      plan.key_sorted,
                      plan.item_sorted,
                      coefficient,
                      scale,
                      share,
                      (uint32_t)table.rows,
                      plan.n,
                      source.cols,
                      vectors_fit(source),
                      vectors_fit(table)};
    rows<const T> from = {(const T *)source.data, source.stride};
    dim3 pieces((unsigned)blocks_for(plan.n, SCATTER_SHORT), (unsigned)blocks_for(source.cols, SCATTER_COLUMNS));
    launch(dev, op, scatter_short<T>, (unsigned)blocks_for(plan.n, SCATTER_WARPS), SCATTER_THREADS, 0, t, from);
    launch(dev, op, scatter_long<T>, pieces, SCATTER_THREADS, 0, t, from);
}
