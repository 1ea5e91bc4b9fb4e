/* decode_step_pack.cuh -- copies a layer's weights into the order of decode_step_pipeline.cuh. A thread writes one
 * number of the copy: it computes that number's row and column in the matrix. Past the end of the matrix it writes
 * zero. Runs once for a model; bound by memory. */
#pragma once
#include "kernels/decode_step/decode_step_pipeline.cuh"

/* Which matrix. PACK_DOWN: DOWN_TILES rounds of a tile for each warp. A piece is the part of a matrix that one block
 * reads (for one head). */
enum step_matrix { PACK_QKV, PACK_QUERY, PACK_OUTPUT, PACK_GATE_UP, PACK_DOWN, PACK_HEAD /* 8 bits alone */ };

struct step_packing_shape {
    int d, f, dim, p;
};
struct step_packing {
    bf16 *to;         /* piece 0; of the MLP: its begin */
    int64_t stride;   /* numbers from piece to piece; 0 for the MLP, whose pieces differ in size */
    const bf16 *from; /* [., cols] */
    step_packing_shape shape;
};
struct step_pack_position {
    int row, col;
    bool inside;
};

/* Row g of a tile of eight rows. Units are allocated to blocks in eights, each a tile of gate and one of up. */
template <step_matrix WHICH>
static __device__ int step_pack_tile_row(const step_packing_shape &c, int piece, int first, int tile, int g) {
    int rank = piece % STEP_CLUSTER, head = piece / STEP_CLUSTER, part = c.dim / 64 /* tiles */;
    if (WHICH == PACK_HEAD) return tile * 8 + g;
    if (WHICH == PACK_GATE_UP) return tile % 2 * c.f + first + tile / 2 * 8 + g;
    return tile / part * c.d + head * c.dim + rank * c.dim / STEP_CLUSTER + tile % part * 8 + g;
}
/* Row g or, for half 1, g + 8 of a tile of Wdown: of the rows that block `to` of each cluster finishes. */
static __device__ int step_pack_down_row(const step_packing_shape &c, int to, int tile, int g, int half) {
    int share = c.p / STEP_CLUSTER;
    return to * share + g * 4 * (share / 32) + tile * 2 + half;
}
/* `at`: index of the number in its piece. */
template <step_matrix WHICH>
static __device__ step_pack_position step_pack_position_of(const step_packing_shape &c, int piece, int first, int units,
                                                           int at) {
    int rank = piece % STEP_CLUSTER, head = piece / STEP_CLUSTER, share = c.p / STEP_CLUSTER;
    if (WHICH == PACK_OUTPUT) {
        int e = at % 8, lane = at / 8 % 32, step = at / 256 % (c.dim / 16), tile = at / 256 / (c.dim / 16);
        int row = rank * share + tile * 16 + lane / 4 + e / 2 % 2 * 8;
        return {row, head * c.dim + step * 16 + e / 4 * 8 + lane % 4 * 2 + e % 2, row < c.d};
    }
    if (WHICH == PACK_DOWN) {
        int e = at % 4, lane = at / 4 % 32, steps = units / 8, step = at / 128 % steps, rest = at / 128 / steps;
        int row = step_pack_down_row(c, rest % STEP_WARPS, rest / STEP_WARPS, lane / 4, e / 2);
        int col = first + step * 8 + lane % 4 * 2 + e % 2;
        return {row, col, row < c.d};
    }
    int e = at % 8, lane = at / 8 % 32, strip = at / 256 % (c.p / 32), tile = at / (8 * c.p);
    int col = strip * 32 + lane % 4 * 8 + e;
    return {step_pack_tile_row<WHICH>(c, piece, first, tile, lane / 4), col, col < c.d};
}

template <step_matrix WHICH> static __global__ void decode_step_pack(step_packing c, int each) {
    const step_packing_shape &x = c.shape;
    int at = blockIdx.x * blockDim.x + threadIdx.x, piece = blockIdx.y;
    int first = step_units_begin(x.f, piece, gridDim.y), units = step_units(x.f, piece, gridDim.y);
    bf16 *to = c.to + piece * c.stride;
    if (WHICH == PACK_GATE_UP) each = 2 * units * x.p, to += (int64_t)3 * first * x.p;
    if (WHICH == PACK_DOWN) each = units * x.p, to += (int64_t)(3 * first + 2 * units) * x.p;
    if (at >= each) return;
    step_pack_position y = step_pack_position_of<WHICH>(x, piece, first, units, at);
    int64_t cols = WHICH == PACK_DOWN ? x.f : x.d;
    to[at] = y.inside ? c.from[y.row * cols + y.col] : from_float<bf16>(0.0f);
}
static __global__ void decode_step_pack_norm(bf16 *to, const bf16 *from, int d) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    to[i] = from && i < d ? from[i] : from_float<bf16>(0.0f);
}

/* ---- weights of 8 bits ---- */

struct step_packing_i8 {
    unsigned char *to;
    int64_t stride;            /* bytes */
    const unsigned char *from; /* panels of 16 rows (matmul_i8.h) */
    int rows, cols;
    int64_t unit, scales;      /* bytes of a unit of the MLP; of scales of Wdown that a block may need */
    step_packing_shape shape;
};
/* each: bytes of a piece; of the MLP: of the largest one. In decode_step_i8_cuda.cu. */
void step_pack_i8(step_matrix which, const step_packing_i8 &c, int pieces, int64_t each, cudaStream_t stream);
