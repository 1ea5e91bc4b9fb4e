/* decode_step_i8_cuda.cu -- weights of 8 bits in the decode step: the kernels, for heads of 64 and up to 1,024 columns,
 * and the copy of the weights in the order of decode_step_i8.cuh. Of the copy a thread writes four weights of a row, or
 * a scale. */
#include "kernels/decode_step/decode_step_kernel.cuh"
#include "kernels/decode_step/decode_step_pack.cuh"

const step_kernel decode_step_kernels_i8[DECODE_STEP_KERNELS_I8] = {
    decode_step_entry<64, 3, 24, true>(), decode_step_entry<64, 4, 24, true>(), decode_step_entry<64, 1, 0, true>(),
    decode_step_entry<64, 2, 0, true>(),  decode_step_entry<64, 3, 0, true>(),  decode_step_entry<64, 4, 0, true>(),
};

struct step_pack_word {
    int row, col;
    bool scale; /* of the row's block that begins at `col` */
};

/* `at`: index of the word in its piece. */
template <step_matrix WHICH>
static __device__ step_pack_word step_pack_word_of(const step_packing_shape &c, int piece, int first, int units,
                                                   int64_t at) {
    if (WHICH == PACK_OUTPUT) {
        int rank = piece % STEP_CLUSTER, head = piece / STEP_CLUSTER, share = c.p / STEP_CLUSTER, i = (int)at;
        if (i >= share * c.dim / 4) return {rank * share + i - share * c.dim / 4, head * c.dim, true};
        int e = i % 4, lane = i / 4 % 32, part = i / 128 % 2, tile = i / 256;
        int col = head * c.dim + lane % 4 * 16 + part * 8 + e / 2 * 4;
        return {rank * share + tile * 16 + lane / 4 + e % 2 * 8, col, false};
    }
    if (WHICH == PACK_DOWN) {
        int words = units * 4, all = words + 16 * step_down_scales(first, units); /* of a tile of a warp */
        int i = (int)(at % all), to = (int)(at / all) % STEP_WARPS, tile = (int)(at / all) / STEP_WARPS;
        if (i < words)
            return {step_pack_down_row(c, to, tile, i % 32 / 4, i % 2), first + i / 32 * 8 + i / 2 % 2 * 4, false};
        i -= words;
        int block = first / STEP_BLOCK + i / 16;
        return {step_pack_down_row(c, to, tile, i % 16 / 2, i % 2), block * STEP_BLOCK, true};
    }
    int cols = WHICH == PACK_HEAD ? c.d : c.p, all = step_tile_i8(cols) / 4;
    int i = (int)(at % all), tile = (int)(at / all);
    if (i < 2 * cols) {
        int row = step_pack_tile_row<WHICH>(c, piece, first, tile, i % 64 / 8);
        return {row, i / 64 * 32 + i / 2 % 4 * 8 + i % 2 * 4, false};
    }
    i -= 2 * cols;
    return {step_pack_tile_row<WHICH>(c, piece, first, tile, i % 8), i / 8 * STEP_BLOCK, true};
}

template <step_matrix WHICH> static __global__ void decode_step_pack_i8(step_packing_i8 c, int64_t each) {
    enum { PANEL = 16, PANEL_BYTES = PANEL * (STEP_BLOCK + 4) /* of a block of inputs */ };
    const step_packing_shape &x = c.shape;
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int piece = blockIdx.y, first = 0, units = 0;
    unsigned char *to = c.to + piece * c.stride;
    if (WHICH == PACK_GATE_UP || WHICH == PACK_DOWN) {
        first = step_units_begin(x.f, piece, gridDim.y), units = step_units(x.f, piece, gridDim.y);
        int64_t gate = units / 4 * (int64_t)step_tile_i8(x.p);
        each = WHICH == PACK_GATE_UP ? gate : units * x.p + step_down_scales(first, units) * 4 * x.p;
        to += first * c.unit + piece * c.scales + (WHICH == PACK_DOWN ? gate : 0);
    }
    if (at >= each / 4) return;
    step_pack_word w = step_pack_word_of<WHICH>(x, piece, first, units, at);
    unsigned word = 0;
    if (w.row < c.rows && w.col < c.cols) {
        int64_t blocks = (c.cols + STEP_BLOCK - 1) / STEP_BLOCK;
        const unsigned char *block = c.from + (w.row / PANEL * blocks + w.col / STEP_BLOCK) * PANEL_BYTES;
        int row = w.row % PANEL * 4;
        if (w.scale) word = *(const unsigned *)(block + PANEL * STEP_BLOCK + row);
        else word = *(const unsigned *)(block + w.col % STEP_BLOCK / 4 * 64 + row) ^ 0x80808080; /* stored + 128 */
    }
    ((unsigned *)to)[at] = word;
}

template <step_matrix WHICH>
static void step_pack_matrix_i8(const step_packing_i8 &c, int pieces, int64_t each, cudaStream_t stream) {
    dim3 grid((unsigned)((each / 4 + 255) / 256), (unsigned)pieces);
    decode_step_pack_i8<WHICH><<<grid, 256, 0, stream>>>(c, each);
}

void step_pack_i8(step_matrix which, const step_packing_i8 &c, int pieces, int64_t each, cudaStream_t stream) {
    switch (which) {
    case PACK_QKV: return step_pack_matrix_i8<PACK_QKV>(c, pieces, each, stream);
    case PACK_QUERY: return step_pack_matrix_i8<PACK_QUERY>(c, pieces, each, stream);
    case PACK_OUTPUT: return step_pack_matrix_i8<PACK_OUTPUT>(c, pieces, each, stream);
    case PACK_GATE_UP: return step_pack_matrix_i8<PACK_GATE_UP>(c, pieces, each, stream);
    case PACK_DOWN: return step_pack_matrix_i8<PACK_DOWN>(c, pieces, each, stream);
    case PACK_HEAD: return step_pack_matrix_i8<PACK_HEAD>(c, pieces, each, stream);
    }
}
