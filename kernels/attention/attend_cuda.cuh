/* attend_cuda.cuh -- the core that attention, chunk attention and grouped cross-attention share on a GPU.
 *
 * All three are tiles of query rows of one head that read tiles of 64 keys; they differ in which tiles, and in what one
 * softmax spans. struct attend_task says which:
 *
 *   chunks  a block of rows reads K slots; one softmax (and one weight) for each slot. Chunk attention is the case of
 *           `positions` rows a block that read their own slot with weight 1.
 *   window  a row reads the `window` positions before it and itself, one softmax over all, ALiBi.
 *
 * Two implementations (attend_cuda.cu picks one at each call): attend_reference.cuh computes with ordinary arithmetic, any
 * type, head size and length; attend_wgmma_*.cuh use matrix units for bf16 tiles; attend_decode.cuh is for decoding. */
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

    int64_t stat_rows; /* backward by tiles: see stat_first */
};

/* o: the result, or with `partial` the parts [k*n, h*dh]. lse.data may be NULL. */
void attend_cuda_forward(struct device *dev, const char *op, const struct attend_task *t, struct mat o, struct mat lse,
                         struct mat q, struct mat k, struct mat v, bool partial);

struct attend_gradients {
    struct mat dq, dk, dv;
    float *dweight;             /* chunks, or NULL */
    bool accumulate;            /* chunks: dk and dv are added to */
    struct gca_inverse inverse; /* chunks; begin NULL: block b is the only one that reads slot b */
};
/* o.data is read in window mode only. */
void attend_cuda_backward(struct device *dev, const char *op, const struct attend_task *t,
                          const struct attend_gradients *g, struct mat dout, struct mat o, struct mat lse, struct mat q,
                          struct mat k, struct mat v);

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
/* attention_alibi_slope, in powers of two's logarithm as all scores here: scores are exponents of 2. */
#define ATTEND_LOG2E 1.44269504088896340736f
#define ATTEND_LN2 0.693147180559945309417f
static __device__ __forceinline__ float window_slope(const attend_task &t, int head) {
    return exp2f(-8.0f * (float)(head + 1) / (float)t.heads) * ATTEND_LOG2E;
}
/* What backward keeps for each query row, head and (chunks) place: the softmax' logarithm to base 2, and the row's
 * sum of p * dp. */
static __device__ __forceinline__ int64_t stat_index(const attend_task &t, int head, int place, int64_t row) {
    return ((int64_t)head * t.k + place) * t.n + row;
}
