/* gca_library.cu -- grouped cross-attention as two C functions of a shared library, which tests/bench/peers/gca_peer.py
 * calls on PyTorch's memory. All matrices bf16, contiguous; weights, sums of exponentials and dweight float32; keys and
 * values 64 rows a slot, the last of each the null key. */
#include "tests/device/bench/attention_device.cuh"

static struct mat rows_at(void *data, enum dtype type, int64_t n, int64_t columns) {
    return {data, type, n, columns, columns};
}
static struct gca_pool pool_at(void *keys, void *values, int64_t slots, int64_t d) {
    return {rows_at(keys, DTYPE_BF16, slots * 64, d), rows_at(values, DTYPE_BF16, slots * 64, d), 64, 63, true};
}

extern "C" {
/* lse NULL: keeps nothing for backward. */
void gca_library_forward(void *o, void *lse, void *q, void *keys, void *values, const int64_t *row_begin,
                         const int32_t *slot, const float *weight, int64_t slots, int blocks, int k, int heads,
                         int dim) {
    int64_t n = (int64_t)blocks * 64, d = (int64_t)heads * dim;
    struct gca_blocks of = {row_begin, slot, weight, blocks, k};
    struct mat out = rows_at(o, DTYPE_BF16, n, d), queries = rows_at(q, DTYPE_BF16, n, d);
    if (lse)
        gca_cuda.forward_keep(NULL, out, rows_at(lse, DTYPE_F32, k * heads, n), queries,
                              pool_at(keys, values, slots, d), of, heads);
    else
        gca_cuda.forward(NULL, out, queries, pool_at(keys, values, slots, d), of, heads);
}

/* begin [slots+1] and entry [blocks*k] are filled first. dkeys and dvalues are added to. */
void gca_library_backward(void *dq, void *dkeys, void *dvalues, float *dweight, void *dout, void *lse, void *q,
                          void *keys, void *values, const int64_t *row_begin, const int32_t *slot, const float *weight,
                          int32_t *begin, int32_t *entry, int64_t slots, int blocks, int k, int heads, int dim) {
    int64_t n = (int64_t)blocks * 64, d = (int64_t)heads * dim;
    gca_cuda.invert(NULL, begin, entry, slot, (int64_t)blocks * k, slots);
    struct gca_gradients to = {rows_at(dq, DTYPE_BF16, n, d), rows_at(dkeys, DTYPE_BF16, slots * 64, d),
                               rows_at(dvalues, DTYPE_BF16, slots * 64, d), dweight};
    gca_cuda.backward(NULL, &to, rows_at(dout, DTYPE_BF16, n, d), rows_at(q, DTYPE_BF16, n, d),
                      pool_at(keys, values, slots, d), {row_begin, slot, weight, blocks, k}, {begin, entry, slots},
                      rows_at(lse, DTYPE_F32, k * heads, n));
}
}
