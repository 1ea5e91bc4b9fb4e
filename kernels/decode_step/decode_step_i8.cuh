/* decode_step_i8.cuh -- weights of 8 bits in the decode step: their layout, and a warp's part of their products.
 *
 * A weight is an integer of at most 127 times a float32 scale of its row and block of 64 columns, the same numbers as
 * on a CPU (matmul.h). Tensor cores multiply the integers (mma.m16n8k32), so they are not converted. A vector is
 * rounded to integers of at most 32512 with one scale for all columns of a warp (of Wo: for the part of a block; of
 * Wdown: for 32 units at most), as two signed digits of 8 bits. They are two of the eight columns of B, so a sum is
 * exact until its block of 64 ends. Columns of two blocks enter one product: their digits are in different columns of
 * B, zeros in the others'. Each lane then has the sums of one block, which it multiplies by the block's scale.
 *
 * The copy has its scales where they are used:
 *
 *   tile of 8 rows         strips of 32 columns: lane 4 g + k has columns 8 k .. 8 k + 7 of row g; then the scales
 *                          [blocks of 64 columns][8]. Two tiles are one A.
 *   Wo, 16 rows            two parts of 32 columns: lane 4 g + k has words a0 .. a3, part p is columns 16 k + 8 p ..
 *                          of rows g, g + 8. After all tiles the scales [rows], since a head is one block.
 *   Wdown, 16 rows         eights of units: lane 2 g + k has units 4 k .. 4 k + 3 of rows g, g + 8; then the scales
 *                          [blocks of 64 units][8][2], as many as the units of the block of the grid need. */
#pragma once
#include "kernels/decode_step/decode_step_attention.cuh"

#define STEP_LIMIT 32512.0f /* the greatest integer: its upper digit is 127 */

/* factor: makes numbers integers. scale: an integer times it is the number. */
struct step_rounding {
    float factor, scale;
};
/* most: the bits of the greatest absolute value that this lane has. A number that is not finite, or above 1e37, makes
 * the scale NaN, and with it every product. Numbers below 1e-30 are zero. */
static __device__ __forceinline__ step_rounding step_rounding_of(unsigned most) {
    float limit = __uint_as_float(__reduce_max_sync(~0u, most));
    return {limit < 1e-30f ? 0.0f : __fdividef(STEP_LIMIT, limit),
            limit < 1e37f ? limit * (1.0f / STEP_LIMIT) : __uint_as_float(0x7fffffff)};
}
static __device__ __forceinline__ unsigned step_magnitude(float x) {
    return __float_as_uint(x) & 0x7fffffff;
}
/* Two numbers as digits: the upper ones in the lower half. An upper digit is that of the number + 128, a lower one is
 * the number's lowest byte. */
static __device__ __forceinline__ unsigned step_digits(float x, float y, float factor) {
    unsigned a = (unsigned)__float2int_rn(x * factor) + 128, b = (unsigned)__float2int_rn(y * factor) + 128;
    return __byte_perm(a, b, 0x4051) ^ 0x80800000;
}
/* Of four numbers, the upper digits or the lower ones. */
static __device__ __forceinline__ unsigned step_digit(unsigned first, unsigned second, bool lower) {
    return __byte_perm(first, second, lower ? 0x7632 : 0x5410);
}
static __device__ __forceinline__ float step_joined(int upper, int lower) {
    return (float)(upper * 256 + lower);
}

/* Tiles that a warp has read from a stage. */
template <int STRIPS, int EACH, bool I8> struct step_tiles {
    uint4 a[EACH][STRIPS];
};
template <int STRIPS, int EACH> struct step_tiles<STRIPS, EACH, true> {
    uint2 a[EACH][STRIPS];
    float scale[EACH]; /* of row lane / 4, of the lane's block */
};

/* ---- a warp's part of a product; `block` is a step_block (decode_step_product.cuh) ---- */

/* The block of 64 columns that strip j of this warp belongs to, counted from the warp's first. */
template <int STRIPS> static __device__ __forceinline__ int step_strip_block(int warp, int j) {
    return (warp * STRIPS + j) / 2 - warp * STRIPS / 2;
}

/* b: two columns of B for each block of 64, the upper digits and the lower ones of y. */
template <class BLOCK, int STRIPS, int PAIRS>
static __device__ __forceinline__ void step_load_digits(BLOCK &block, uint2 (&b)[STRIPS], const float2 (&y)[PAIRS]) {
    enum { COLUMNS = STRIPS * 32 };
    const int lane = block.lane;
    unsigned most = 0, *scratch = block.s.scratch[block.warp];
#pragma unroll
    for (int i = 0; i < PAIRS; i++)
        most = max(most, max(step_magnitude(y[i].x), step_magnitude(y[i].y)));
    const step_rounding by = step_rounding_of(most);
    block.vector_scale = by.scale;
    unsigned short *to = (unsigned short *)scratch + lane;
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        if (lane + 32 * i >= COLUMNS / 2) continue;
        unsigned digits = step_digits(y[i].x, y[i].y, by.factor);
        to[32 * i] = (unsigned short)digits, to[32 * i + COLUMNS / 2] = (unsigned short)(digits >> 16);
    }
    __syncwarp();
    unsigned at = shared_address(scratch) + lane / 4 % 2 * COLUMNS + lane % 4 * 8;
#pragma unroll
    for (int j = 0; j < STRIPS; j++) {
        uint2 eight = step_shared_load2(at + j * 32);
        b[j] = lane / 8 == step_strip_block<STRIPS>(block.warp, j) ? eight : make_uint2(0, 0);
    }
}

/* `staged` tiles of `cols` columns; WHOLE: these are all columns of all warps. */
template <bool WHOLE, class BLOCK, int STRIPS, int EACH>
static __device__ __forceinline__ void step_load_tiles(const BLOCK &block, step_tiles<STRIPS, EACH, true> &w,
                                                       unsigned stage, int staged, int cols) {
    const int lane = block.lane, warp = block.warp;
    int own = warp * STRIPS / 2 + min(lane % 4, step_strip_block<STRIPS>(warp, STRIPS - 1));
    if (!WHOLE) own = min(own, cols / STEP_BLOCK - 1); /* the vector has zeros there */
#pragma unroll
    for (int m = 0; m < EACH; m++) {
        unsigned tile = stage + (m < staged ? m : staged - 1) * step_tile_i8(cols);
#pragma unroll
        for (int j = 0; j < STRIPS; j++) {
            int strip = warp * STRIPS + j;
            if (!WHOLE) strip = min(strip, cols / 32 - 1);
            w.a[m][j] = step_shared_load2(tile + strip * 256 + lane * 8);
        }
        w.scale[m] = step_shared_load(tile + cols * 8 + own * 32 + lane / 4 * 4);
    }
}

/* Their products with b, as partial sums of tile `first` and the next ones. A lane has the sums of its block of 64 of
 * two rows; it gives one to its neighbour. */
template <class BLOCK, int STRIPS, int EACH>
static __device__ __forceinline__ void step_store_products(BLOCK &block, int first, int staged,
                                                           const step_tiles<STRIPS, EACH, true> &w,
                                                           const uint2 (&b)[STRIPS]) {
    const int lane = block.lane;
#pragma unroll
    for (int m = 0; m < EACH; m += 2) {
        const int next = m + 1 < EACH ? m + 1 : m;
        int c[4] = {};
#pragma unroll
        for (int j = 0; j < STRIPS; j++)
            warp_product_bytes(c, w.a[m][j].x, w.a[next][j].x, w.a[m][j].y, w.a[next][j].y, b[j].x, b[j].y);
        float y = step_joined(c[0], c[1]) * w.scale[m], z = step_joined(c[2], c[3]) * w.scale[next];
        float other = __shfl_xor_sync(~0u, lane % 2 ? y : z, 1), sum = (lane % 2 ? z : y) + other;
        if (lane % 4 < 2 && m + lane % 2 < min(staged, EACH))
            block.s.sum[(first + m + lane % 2) * 8 + lane / 4][block.warp] = sum * block.vector_scale;
    }
}

/* Activations of four eights from 4 * set on as digits: two words of B. A block of 64 units has two columns. Returns
 * their scale. */
template <class BLOCK>
static __device__ __forceinline__ float step_load_activations(const BLOCK &block, unsigned (&b)[2], int set, float by,
                                                              int units) {
    const int lane = block.lane;
    float act[2] = {};
    unsigned most = 0;
#pragma unroll
    for (int half = 0; half < 2; half++)
        if (set * 32 + half * 16 < units) {
            act[half] = block.activation((set * 2 + half) * 32 + lane, by, units);
            if (lane % 16 < 8) most = max(most, step_magnitude(act[half]));
        }
    const step_rounding rounding = step_rounding_of(most);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        b[half] = 0;
        if (set * 32 + half * 16 >= units) continue;
        int from = lane % 4 / 2 * 16 + lane % 2 * 4, own = block.eight + set * 4 + half * 2 + lane % 4 / 2;
        unsigned pair = step_digits(act[half], __shfl_xor_sync(~0u, act[half], 1), rounding.factor);
        unsigned two = __shfl_sync(~0u, pair, from), next = __shfl_sync(~0u, pair, from + 2);
        if (lane / 8 == own / 8) b[half] = step_digit(two, next, lane / 4 % 2);
    }
    return rounding.scale;
}

/* step_block::down with weights of 8 bits. KNOWN: units of this block; 0: any number. */
template <int KNOWN, bool KEYS, class BLOCK>
static __device__ __forceinline__ void step_down_i8(BLOCK &block, int layer) {
    using sizes = typename BLOCK::sizes;
    enum { STAGE = sizes::DOWN_STAGE, WORDS = KNOWN > 16 ? 2 : 1, SCALES_AT = 64 * ((UNITS_MAX + 31) / 32) };
    const int lane = block.lane, units = KNOWN ? KNOWN : block.units, scales = step_down_scales(block.eight * 8, units);
    const int tile = sizes::down(units, scales), bytes = STAGE * tile;
    unsigned stage = block.wait_stage(bytes) + block.warp * (tile / STEP_WARPS);
    unsigned *activations = block.s.scratch[block.warp];
    auto weights = [&](int i, int pair) { /* of the lane's eight of a pair of them */
        int own = min(2 * pair + lane % 4 / 2, units / 8 - 1);
        return step_shared_load2(stage + i * tile + own * 128 + lane / 4 * 16 + lane % 2 * 8);
    };
    auto scale_of = [&](int i) { /* of two rows and the lane's block of 64 units */
        uint2 both = step_shared_load2(stage + i * tile + units * 16 + min(lane % 4, scales - 1) * 64 + lane / 4 * 8);
        return make_float2(__uint_as_float(both.x), __uint_as_float(both.y));
    };
    uint2 a[STAGE][WORDS];
    float2 row[STAGE];
    if (KNOWN) {
#pragma unroll
        for (int i = 0; i < STAGE; i++) {
            row[i] = scale_of(i);
#pragma unroll
            for (int j = 0; j < WORDS; j++)
                a[i][j] = weights(i, j);
        }
        block.release_stage(bytes);
    }
    float by = block.template finish_product<KEYS>(layer), act = 1.0f;
    unsigned b[2];
    if (KNOWN) act = step_load_activations(block, b, 0, by, units);
    for (int set = 0; !KNOWN && set * 32 < units; set++) {
        act = step_load_activations(block, b, set, by, units);
        activations[set * 64 + lane] = b[0], activations[set * 64 + 32 + lane] = b[1];
        if (lane == 0) activations[SCALES_AT + set] = __float_as_uint(act);
    }
    __syncwarp();
#pragma unroll
    for (int first = 0; first < sizes::DOWN_TILES; first += STAGE) {
        if (first) stage = block.wait_stage(bytes) + block.warp * (tile / STEP_WARPS);
        float2 sum[STAGE] = {};
        for (int set = 0; KNOWN ? set == 0 : set * 32 < units; set++)
#pragma unroll
            for (int i = 0; i < STAGE; i++) {
                int c[4] = {};
                if (!KNOWN) {
                    a[i][0] = weights(i, 2 * set), row[i] = scale_of(i);
                    b[0] = activations[set * 64 + lane], b[1] = activations[set * 64 + 32 + lane];
                    act = __uint_as_float(activations[SCALES_AT + set]);
                }
                uint2 more = KNOWN ? a[i][WORDS - 1] : weights(i, 2 * set + 1);
                warp_product_bytes(c, a[i][0].x, a[i][0].y, more.x, more.y, b[0], b[1]);
                sum[i].x += step_joined(c[0], c[1]) * (row[i].x * act);
                sum[i].y += step_joined(c[2], c[3]) * (row[i].y * act);
            }
        for (int other = 1; other < scales; other *= 2)
#pragma unroll
            for (int i = 0; i < STAGE; i++) {
                sum[i].x += __shfl_xor_sync(~0u, sum[i].x, other);
                sum[i].y += __shfl_xor_sync(~0u, sum[i].y, other);
            }
        block.send_down(first, sum);
        if (!KNOWN) block.release_stage(bytes);
    }
}
