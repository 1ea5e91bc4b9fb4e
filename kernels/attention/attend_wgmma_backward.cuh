/* attend_wgmma_backward.cuh -- attention of bf16 tiles with matrix units, backward, in two passes.
 *
 *   dq   attend_wgmma_dq.cuh, as the forward pass: a group has 64 query rows and reads their key tiles. P comes from
 *        the kept lse, dP = dO V^T, dS = P (dP - delta), dQ += dS K. Chunks: delta, the row's sum of P dP, is whole
 *        inside a tile, so nothing of the forward pass but lse is needed; it also is what dweight sums. lse and delta
 *        are left as `stat`.
 *   dkv  attend_wgmma_dkv.cuh: a group has 64 key rows and reads the query tiles that saw them, in the order of the
 *        inverse list. S^T = K Q^T and dP^T = V dO^T lie in registers as the A operands of dV += P^T dO and
 *        dK += dS^T Q.
 *
 * Nothing is summed between thread blocks, so results are the same bits each time. Seven products for the five that are
 * counted: keeping P or dS between the passes would cost more in memory traffic than the two products.
 *
 * Measured on an H200 (2026-11-22, tests/device/bench_attention.cu; bf16 product on the card: 726 to 780 TFLOP/s):
 *   65536 rows, 12 heads of 64, 8 slots of 63 keys    0.83 ms, 309 TFLOP/s: dq 0.39, dkv 0.44; float32 dK, dV 0.92
 *   the same with 16 heads                            1.10 ms, 313 TFLOP/s
 *   window 512, 4 x 16640 rows, 12 heads of 64        0.84 ms, 306 TFLOP/s
 * Bound by latency: matrix units are busy 41 (dq) and 49 % (dkv) of the time. Registers allow three groups a
 * multiprocessor. Tried and lost: dq with four groups, its queries read from shared memory (1 % of all; with spills
 * 25 % of dq); dkv beginning while dq ends (programmatic launch: no gain). lse in planes of a head would save dq most
 * of the sectors that it reads of it: 1 to 2 % of all, and 3 % of forward_keep. */
#pragma once
#include "kernels/attention/attend_wgmma_keys.cuh"

/* Kept for dkv, for each query row, head and place: {log2(weight) - log2 of the softmax' sum, delta}. Rows of a block
 * (a sequence) lie at an even place, so that 64 of them are one copy; a plane of t.stat_rows rows for each head and
 * place. */
static __host__ __device__ __forceinline__ int64_t stat_first(int64_t begin, int64_t block) {
    return (begin + 2 * block) / 2 * 2;
}

/* What dkv needs to know of an entry of the inverse list, side by side. */
struct alignas(16) place_entry {
    int row, rows, spare;
    uint32_t stat; /* half the index of its first row in the head's planes */
};

/* dweight of each place from its heads' parts, in their order; `more`: behind those that are in it. */
static __global__ void sum_heads(attend_task t, const float *part, float *dweight, bool more) {
    int64_t place = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= (int64_t)t.blocks * t.k) return;
    float sum = more ? dweight[place] : 0.0f;
    for (int head = 0; head < t.heads && t.slot[place] >= 0; head++)
        sum += part[place * t.heads + head];
    dweight[place] = sum;
}

static __global__ void list_entries(attend_task t, gca_inverse inverse, place_entry *entries) {
    int64_t j = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= inverse.begin[inverse.slots]) return;
    int64_t place = inverse.place[j], block = place / t.k, begin = block_begin(t, block);
    int i = (int)(place % t.k);
    entries[j] = {(int)begin, (int)(block_begin(t, block + 1) - begin), 0,
                  (uint32_t)((i * t.stat_rows + stat_first(begin, block)) / 2)};
}
