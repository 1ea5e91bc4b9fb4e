/* attend_full.cuh -- full attention inside texts of one length, bf16, forward only: the texts of a BERT-type encoder,
 * whose heads are smaller (32), or whose texts are longer than the tiles of attend_wgmma_*.cuh (64 rows) allow.
 *
 *   block (x, y)  tile x % tiles of 64 query rows of text x / tiles, head y
 *   warp w        16 of these rows: S = Q K^T and S V by mma.sync, one softmax over all key tiles, rescaled as the
 *                 greatest score rises
 *   key tile      64 keys and values in shared memory, which all warps read
 *
 * The keys of a row are read in their order: a text's result does not depend on the texts beside it. Bound by the
 * latency of a tile's load: a text of 80 positions has two tiles. */
#pragma once
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/instructions.cuh"

enum { FULL_WARPS = 4, FULL_TILE = 16 * FULL_WARPS, FULL_THREADS = 32 * FULL_WARPS };

struct full_task {
    rows<bf16> o, q, k, v; /* o may be q */
    int positions;
    float scale; /* log2(e) / sqrt(dim) */
};

template <int DIM> struct full_block {
    enum { ROW = DIM + 8, PIECES = DIM / 8 }; /* a row's 16 bytes more keep the rows of a matrix in different banks */
    struct shared {
        alignas(16) bf16 keys[FULL_TILE][ROW], values[FULL_TILE][ROW];
    };
    const full_task &t;
    shared &s;
    int lane, warp, tile, column;
    int64_t text; /* its first row */
    uint32_t query[DIM / 16][4];
    float out[DIM / 8][4], top[2], sum[2];

    __device__ __forceinline__ full_block(const full_task &task, shared &memory)
        : t(task), s(memory), lane(threadIdx.x % 32), warp((int)threadIdx.x / 32), column((int)blockIdx.y * DIM) {
        const int tiles = (t.positions + FULL_TILE - 1) / FULL_TILE;
        tile = (int)blockIdx.x % tiles;
        text = (int64_t)((int)blockIdx.x / tiles) * t.positions;
    }
    /* The position of this lane's row: half 0 or 1 of a fragment. */
    __device__ __forceinline__ int position(int half) const {
        return tile * FULL_TILE + warp * 16 + half * 8 + lane / 4;
    }

    __device__ __forceinline__ void load_queries() {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const bf16 *row = t.q[text + min(position(half), t.positions - 1)] + column + lane % 4 * 2;
#pragma unroll
            for (int step = 0; step < DIM / 16; step++)
#pragma unroll
                for (int right = 0; right < 2; right++)
                    query[step][right * 2 + half] = *(const uint32_t *)(row + step * 16 + right * 8);
        }
    }
    __device__ __forceinline__ void load_tile(int first) const {
        for (int i = threadIdx.x; i < FULL_TILE * PIECES; i += FULL_THREADS) {
            const int key = i / PIECES, at = i % PIECES * 8;
            const int64_t row = text + first + key;
            const bool is = first + key < t.positions;
            *(uint4 *)&s.keys[key][at] = is ? *(const uint4 *)(t.k[row] + column + at) : make_uint4(0, 0, 0, 0);
            *(uint4 *)&s.values[key][at] = is ? *(const uint4 *)(t.v[row] + column + at) : make_uint4(0, 0, 0, 0);
        }
    }
    /* score[j]: keys 8 j .. 8 j + 7 of the tile, as logarithms of base 2. */
    __device__ __forceinline__ void find_scores(float (&score)[FULL_TILE / 8][4], int first) const {
        const int of = lane / 8; /* the matrix whose row this lane addresses */
#pragma unroll
        for (int j = 0; j < FULL_TILE / 8; j++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                score[j][c] = 0.0f;
#pragma unroll
        for (int step = 0; step < DIM / 16; step++)
#pragma unroll
            for (int pair = 0; pair < FULL_TILE / 16; pair++) {
                const bf16 *from = &s.keys[pair * 16 + of / 2 * 8 + lane % 8][step * 16 + of % 2 * 8];
                const uint4 k = shared_matrices<false>(shared_address(from));
                const uint32_t *q = query[step];
                warp_product(score[2 * pair], q[0], q[1], q[2], q[3], k.x, k.y);
                warp_product(score[2 * pair + 1], q[0], q[1], q[2], q[3], k.z, k.w);
            }
#pragma unroll
        for (int j = 0; j < FULL_TILE / 8; j++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                const bool is = first + j * 8 + lane % 4 * 2 + c % 2 < t.positions;
                score[j][c] = is ? score[j][c] * t.scale : -INFINITY;
            }
    }
    /* Scores to weights, relative to the greatest score so far; what was added before is scaled to it. A tile has a key
     * of the text, so the greatest score is finite. */
    __device__ __forceinline__ void find_weights(float (&score)[FULL_TILE / 8][4]) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float most = top[half];
#pragma unroll
            for (int j = 0; j < FULL_TILE / 8; j++)
                most = fmaxf(most, fmaxf(score[j][2 * half], score[j][2 * half + 1]));
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
            const float factor = power2(top[half] - most);
            top[half] = most, sum[half] *= factor;
#pragma unroll
            for (int j = 0; j < FULL_TILE / 8; j++)
#pragma unroll
                for (int c = 2 * half; c < 2 * half + 2; c++) {
                    score[j][c] = power2(score[j][c] - most);
                    sum[half] += score[j][c];
                }
#pragma unroll
            for (int i = 0; i < DIM / 8; i++)
                out[i][2 * half] *= factor, out[i][2 * half + 1] *= factor;
        }
    }
    __device__ __forceinline__ void add_values(const float (&weight)[FULL_TILE / 8][4]) {
        const int of = lane / 8;
#pragma unroll
        for (int step = 0; step < FULL_TILE / 16; step++) {
            const float(&left)[4] = weight[2 * step], (&right)[4] = weight[2 * step + 1];
            const uint32_t p[4] = {pack2(left[0], left[1]), pack2(left[2], left[3]), pack2(right[0], right[1]),
                                   pack2(right[2], right[3])};
#pragma unroll
            for (int pair = 0; pair < DIM / 16; pair++) {
                const bf16 *from = &s.values[step * 16 + of % 2 * 8 + lane % 8][pair * 16 + of / 2 * 8];
                const uint4 v = shared_matrices<true>(shared_address(from));
                warp_product(out[2 * pair], p[0], p[1], p[2], p[3], v.x, v.y);
                warp_product(out[2 * pair + 1], p[0], p[1], p[2], p[3], v.z, v.w);
            }
        }
    }
    __device__ __forceinline__ void store() {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float all = sum[half];
            all += __shfl_xor_sync(~0u, all, 1), all += __shfl_xor_sync(~0u, all, 2);
            if (position(half) >= t.positions) continue;
            bf16 *to = t.o[text + position(half)] + column + lane % 4 * 2;
#pragma unroll
            for (int i = 0; i < DIM / 8; i++)
                *(uint32_t *)(to + i * 8) = pack2(out[i][2 * half] / all, out[i][2 * half + 1] / all);
        }
    }
    __device__ __forceinline__ void run() {
        load_queries();
#pragma unroll
        for (int i = 0; i < DIM / 8; i++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                out[i][c] = 0.0f;
        top[0] = top[1] = -INFINITY, sum[0] = sum[1] = 0.0f;
        for (int first = 0; first < t.positions; first += FULL_TILE) {
            float score[FULL_TILE / 8][4];
            if (first > 0) __syncthreads(); /* all warps have read the last tile */
            load_tile(first);
            __syncthreads();
            find_scores(score, first);
            find_weights(score);
            add_values(score);
        }
        store();
    }
};

template <int DIM>
static __global__ void __launch_bounds__(FULL_THREADS) attend_full(const __grid_constant__ full_task t) {
    __shared__ typename full_block<DIM>::shared s;
    full_block<DIM> b(t, s);
    b.run();
}
