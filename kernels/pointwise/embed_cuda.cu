/* embed_cuda.cu -- rows of the embedding table, and their gradient (scatter_cuda.cuh).
 *
 * Mapping: a thread copies eight numbers of a row.
 * Bound by memory: x is written once; a row of the table is read from device memory once and then found in the
 * cache. */
#include "kernels/cuda/scatter_cuda.cuh"

enum { THREADS = 256 };

template <typename TX, typename TT, int N>
static __global__ void __launch_bounds__(THREADS)
    embed_gather(rows<TX> x, rows<const TT> table, const int32_t *ids, int32_t pad_id, int64_t n, int64_t across) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, row = i / across, column = i % across * N;
    if (row >= n) return;
    int32_t id = ids[row] < 0 ? pad_id : ids[row];
    if constexpr (N == 8) store8(x[row] + column, load8(table[id] + column));
    else x[row][column] = from_float<TX>(to_float(table[id][column]));
}

template <typename TX, typename TT>
static void embed_forward_typed(struct device *dev, struct mat x, struct mat table, const int32_t *ids,
                                int32_t pad_id) {
    bool vectors = vectors_fit(x) && vectors_fit(table);
    int64_t across = vectors ? x.cols / 8 : x.cols;
    launch(dev, "embed.forward", vectors ? embed_gather<TX, TT, 8> : embed_gather<TX, TT, 1>,
           (unsigned)blocks_for(x.rows * across, THREADS), THREADS, 0, rows_of<TX>(x),
           rows<const TT>{(const TT *)table.data, table.stride}, ids, pad_id, x.rows, across);
}

static void embed_forward(struct device *dev, struct mat x, struct mat table, const int32_t *ids, int32_t pad_id) {
    assert(x.cols == table.cols && x.cols > 0 && pad_id >= 0 && pad_id < table.rows);
    if (x.type == DTYPE_F32 && table.type == DTYPE_F32) embed_forward_typed<float, float>(dev, x, table, ids, pad_id);
    else if (x.type == DTYPE_F32) embed_forward_typed<float, bf16>(dev, x, table, ids, pad_id);
    else embed_forward_typed<bf16, bf16>(dev, x, table, ids, pad_id);
}

static __global__ void __launch_bounds__(THREADS)
    embed_sort_keys(uint32_t *key, int32_t *position, const int32_t *ids, int32_t pad_id, int64_t n, uint32_t keys) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n) return;
    key[i] = ids[i] < 0 || ids[i] == pad_id ? keys : (uint32_t)ids[i];
    position[i] = (int32_t)i;
}

static void embed_backward(struct device *dev, struct mat dtable, struct mat dx, const int32_t *ids, int32_t pad_id) {
    const char *op = "embed.backward";
    if (dx.rows == 0) return;
    scatter_plan plan = scatter_allocate(dev, dx.rows, dtable.rows, NULL, 0);
    launch(dev, op, embed_sort_keys, (unsigned)blocks_for(dx.rows, THREADS), THREADS, 0, plan.key, plan.item, ids,
           pad_id, dx.rows, (uint32_t)dtable.rows);
    dx.type == DTYPE_F32 ? scatter_run<float>(dev, op, plan, dtable, dx, NULL, 1.0f, 1)
                         : scatter_run<bf16>(dev, op, plan, dtable, dx, NULL, 1.0f, 1);
}

extern "C" const struct embed_ops embed_cuda = {.forward = embed_forward, .backward = embed_backward};
