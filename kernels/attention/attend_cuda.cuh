/* attend_cuda.cuh -- the core that attention, chunk attention and grouped cross-attention share on a GPU.
 *
 * In all three a tile of query rows of one head reads tiles of 64 keys. They differ in which tiles are read, and in
 * what one softmax covers. struct attend_task has both:
 *
 *   chunks  a block of rows reads K slots; one softmax (and one weight) for each slot. Chunk attention is the case of
 *           blocks of `positions` rows that read their own slot with weight 1.
 *   window  a row reads itself and the `window` positions before it; one softmax over all of them, with ALiBi.
 *
 * Three paths; attend_cuda.cu selects one for each call:
 *
 *   attend_decode.cuh     few query rows, bf16: mma.sync, a cluster for each head; bound by latency
 *   attend_wgmma_*.cuh    tiles of 64 rows, bf16, heads of 64 or 128: wgmma and TMA (before Hopper: mma.sync, cp.async)
 *                         (backward/: backward, for GCA with heads of 64 on Hopper with persistent blocks; window/: of
 *                         whole sequences with heads of 64 on Hopper)
 *   attend_reference.cuh  any type, head size and length, without tensor cores; the others are tested against it
 *
 * chunk_attention_cuda.cu selects attend_full.cuh, which has no struct attend_task, for heads and lengths that only the
 * reference path would take. */
#pragma once
#include "kernels/cuda/cuda.cuh"

struct attend_task {
    bool window_mode;
    int64_t n; /* query rows */
    int heads, dim;
    float scale; /* 1 / sqrt(dim) */

    /* chunks; slot NULL: block b reads slot b. row_begin NULL: block b begins at row b * positions. weight NULL: 1. */
    const int64_t *row_begin;
    const int32_t *slot;
    const float *weight;
    int blocks, k, positions, slot_rows, live_rows;
    bool null_key;

    /* window: n / length sequences; the first row of each is position `first`; position p of sequence s lies in key row
     * s * ring + p % ring */
    int64_t first, length, ring;
    int window;

    int64_t stat_rows; /* wgmma backward: rows of a plane of stat, see stat_first */
};

/* Log sums: that of a query row, a head and (chunks) index 0 .. k-1 of the slot is
 * data[index * plane + head * this->head + row * this->row]. */
struct attend_lse {
    float *data;
    int64_t row, head, plane;
    __host__ __device__ float *at(int64_t index, int64_t row_, int64_t head_) const {
        return data + index * plane + head_ * head + row_ * row;
    }
};
/* [k*n, h]: row index * n + row. */
static inline attend_lse attend_lse_rows(struct mat m, int64_t n) {
    return {(float *)m.data, m.stride, 1, n * m.stride};
}

/* o: the result, or with `partial` the parts [k*n, h*dh]. lse.data may be NULL. */
struct attend_operands {
    struct mat o;
    attend_lse lse;
    struct mat q, k, v;
};
/* Reads q, k, v; writes o and, unless lse.data is NULL, lse. */
void attend_cuda_forward(struct device *dev, const char *op, const struct attend_task *t, const attend_operands &m,
                         bool partial);

struct attend_gradients {
    struct mat dq, dk, dv;
    float *dweight;             /* chunks, or NULL */
    bool accumulate;            /* chunks: add to dk and dv */
    struct gca_inverse inverse; /* chunks; begin NULL: block b is the only one that reads slot b */
};
struct attend_backward_inputs {
    struct mat dout, o;
    attend_lse lse;
    struct mat q, k, v;
};
/* m: forward's operands. m.o is read in window mode only, elsewhere its data may be NULL. */
void attend_cuda_backward(struct device *dev, const char *op, const struct attend_task *t,
                          const struct attend_gradients *g, struct mat dout, const attend_operands &m);

static __device__ __forceinline__ int64_t block_begin(const attend_task &t, int64_t block) {
    return t.row_begin ? t.row_begin[block] : block * t.positions;
}
/* The block that holds `row`, or -1. */
static __device__ __forceinline__ int64_t find_block(const attend_task &t, int64_t row) {
    if (t.blocks == 0) return -1;
    int64_t low = 0, high = t.blocks; /* block_begin(low) <= row < block_begin(high), once both are known */
    if (row < block_begin(t, 0) || row >= block_begin(t, t.blocks)) return -1;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (block_begin(t, middle) <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}
static __device__ __forceinline__ int32_t block_slot(const attend_task &t, int64_t block, int i) {
    return t.slot ? t.slot[block * t.k + i] : (int32_t)block;
}
static __device__ __forceinline__ float block_weight(const attend_task &t, int64_t block, int i) {
    return t.weight ? t.weight[block * t.k + i] : 1.0f;
}
/* Scores are exponents of 2: times log2(e), so that exp2 serves. window_slope is attention_alibi_slope in that unit. */
#define ATTEND_LOG2E 1.44269504088896340736f
#define ATTEND_LN2 0.693147180559945309417f
static __device__ __forceinline__ float window_slope(const attend_task &t, int head) {
    return exp2f(-8.0f * (float)(head + 1) / (float)t.heads) * ATTEND_LOG2E;
}
/* The index in `stat` of a query row, a head and (chunks) index 0 .. k-1 of the slot: what backward's first pass leaves
 * for the second, the log sum exp and the row's sum of p * dp. */
static __device__ __forceinline__ int64_t stat_index(const attend_task &t, int head, int index, int64_t row) {
    return ((int64_t)head * t.k + index) * t.n + row;
}
