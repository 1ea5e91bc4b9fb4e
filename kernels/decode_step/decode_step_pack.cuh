/* decode_step_pack.cuh -- copies a layer's weights into the order of decode_step_pipeline.cuh. A thread writes one
 * number of the copy: it computes that number's row and column in the matrix. Past the end of the matrix it writes
 * zero. Runs once for a model; bound by memory. */
#pragma once
#include "kernels/decode_step/decode_step_pipeline.cuh"

/* Which matrix. PACK_DOWN: DOWN_TILES rounds of a tile for each warp. A piece is the part of a matrix that one block
 * reads (for one head). */
enum step_matrix { PACK_QKV, PACK_QUERY, PACK_OUTPUT, PACK_GATE_UP, PACK_DOWN };

struct step_packing {
    bf16 *to;         /* piece 0; of the MLP: the layer's begin */
    int64_t stride;   /* numbers from piece to piece; 0 for the MLP, whose pieces differ in size */
    const bf16 *from; /* [., cols] */
    int d, f, dim, p;
};
struct step_pack_position {
    int row, col;
    bool inside;
};

/* `at`: index of the number in its piece. */
template <step_matrix WHICH>
static __device__ step_pack_position step_pack_position_of(const step_packing &c, int piece, int first, int units,
                                                           int at) {
    int rank = piece % STEP_CLUSTER, head = piece / STEP_CLUSTER, share = c.p / STEP_CLUSTER;
    if (WHICH == PACK_OUTPUT) {
        int e = at % 8, lane = at / 8 % 32, step = at / 256 % (c.dim / 16), tile = at / 256 / (c.dim / 16);
        int row = rank * share + tile * 16 + lane / 4 + e / 2 % 2 * 8;
        return {row, head * c.dim + step * 16 + e / 4 * 8 + lane % 4 * 2 + e % 2, row < c.d};
    }
    if (WHICH == PACK_DOWN) {
        int e = at % 4, lane = at / 4 % 32, steps = units / 8, step = at / 128 % steps, rest = at / 128 / steps;
        int to = rest % STEP_WARPS, tile = rest / STEP_WARPS, strips = share / 32;
        int row = to * share + lane / 4 * 4 * strips + tile * 2 + e / 2;
        int col = first + step * 8 + lane % 4 * 2 + e % 2;
        return {row, col, row < c.d};
    }
    int e = at % 8, lane = at / 8 % 32, strip = at / 256 % (c.p / 32), tile = at / (8 * c.p), g = lane / 4;
    int col = strip * 32 + lane % 4 * 8 + e, part = c.dim / 64 /* tiles */;
    if (WHICH == PACK_GATE_UP) {
        return {tile % 2 * c.f + first + tile / 2 * 8 + g, col, col < c.d};
    }
    return {tile / part * c.d + head * c.dim + rank * c.dim / STEP_CLUSTER + tile % part * 8 + g, col, col < c.d};
}

template <step_matrix WHICH> static __global__ void decode_step_pack(step_packing c, int each) {
    int at = blockIdx.x * blockDim.x + threadIdx.x, piece = blockIdx.y;
    int first = step_units_begin(c.f, piece, gridDim.y), units = step_units(c.f, piece, gridDim.y);
    bf16 *to = c.to + piece * c.stride;
    if (WHICH == PACK_GATE_UP) each = 2 * units * c.p, to += (int64_t)3 * first * c.p;
    if (WHICH == PACK_DOWN) each = units * c.p, to += (int64_t)(3 * first + 2 * units) * c.p;
    if (at >= each) return;
    step_pack_position x = step_pack_position_of<WHICH>(c, piece, first, units, at);
    int64_t cols = WHICH == PACK_DOWN ? c.f : c.d;
    to[at] = x.inside ? c.from[x.row * cols + x.col] : from_float<bf16>(0.0f);
}
static __global__ void decode_step_pack_norm(bf16 *to, const bf16 *from, int d) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    to[i] = from && i < d ? from[i] : from_float<bf16>(0.0f);
}
