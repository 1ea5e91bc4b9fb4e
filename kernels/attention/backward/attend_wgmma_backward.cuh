/* attend_wgmma_backward.cuh -- attention of bf16 tiles on tensor cores, backward, in two passes.
 *
 *   dq   attend_wgmma_dq.cuh    a warpgroup has 64 query rows and reads their key tiles, as in the forward pass:
 *                               P from q, k and the stored lse; dP = dO V^T; dS = P (dP - delta); dQ += dS K.
 *                               Chunks: delta, the row's sum of P dP, is complete within a tile, so only lse is needed
 *                               of the forward pass; delta's sum is dweight. Writes lse and delta to `stat`.
 *   dkv  attend_wgmma_dkv.cuh   a warpgroup has 64 key rows and reads the query tiles that read them, in the order of
 *                               the inverse list. S^T = K Q^T and dP^T = V dO^T are in registers, as A operands of
 *                               dV += P^T dO and dK += dS^T Q.
 *
 * No atomics: nothing is added across thread blocks, so results have the same bits each time. It computes seven
 * products, of which the bound counts five; storing P or dS between the passes would cost more memory traffic than the
 * two products.
 *
 * GCA with heads of 64 on Hopper: persistent_dq.cuh and persistent_dkv.cuh, with the arithmetic of these files.
 *
 * Bound by latency: tensor cores are busy 41 % (dq) and 49 % (dkv) of the time, and registers allow three warpgroups a
 * multiprocessor. Best measured on an H200: 313 TFLOP/s (65,536 rows, 16 heads of 64, 8 slots of 63 keys).
 * docs/kernels/gca.md has more measurements and rejected variants. */
#pragma once
#include "kernels/attention/attend_wgmma_keys.cuh"

/* stat: for each query row, head and index 0 .. k-1, what dkv needs: {log2(weight) - log2 of the sum of exponentials,
 * delta}. There is a plane of t.stat_rows rows for each head and index. The rows of a block (window: of a sequence)
 * begin at an even index, so that 64 of them are one aligned copy. This is that index. */
static __host__ __device__ __forceinline__ int64_t stat_first(int64_t begin, int64_t block) {
    return (begin + 2 * block) / 2 * 2;
}

/* An entry of the inverse list as dkv reads it. */
struct alignas(16) inverse_entry {
    int row, rows, spare;
    uint32_t stat; /* half the index of its first row in the head's planes */
};

/* dweight of each entry: the sum of its heads' parts, in their order; `more`: added to what dweight has. A thread is
 * one entry. */
static __global__ void attend_wgmma_dweight(attend_task t, const float *part, float *dweight, bool more) {
    int64_t entry = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (entry >= (int64_t)t.blocks * t.k) return;
    float sum = more ? dweight[entry] : 0.0f;
    for (int head = 0; head < t.heads && t.slot[entry] >= 0; head++)
        sum += part[entry * t.heads + head];
    dweight[entry] = sum;
}

/* The inverse list as dkv reads it; counter: becomes 0. A thread is one element of the list. */
static __global__ void attend_wgmma_entries(attend_task t, gca_inverse inverse, inverse_entry *entries, int *counter) {
    int64_t j = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (j == 0) *counter = 0;
    if (j >= inverse.begin[inverse.slots]) return;
    int64_t entry = inverse.entry[j], block = entry / t.k, begin = block_begin(t, block);
    int i = (int)(entry % t.k);
    entries[j] = {(int)begin, (int)(block_begin(t, block + 1) - begin), 0,
                  (uint32_t)((i * t.stat_rows + stat_first(begin, block)) / 2)};
}
