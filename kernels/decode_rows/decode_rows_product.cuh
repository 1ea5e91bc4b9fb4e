/* decode_rows_product.cuh -- products of up to 64 rows with a matrix of weights, with what comes before (a norm) and
 * after (a sum, SwiGLU, the texts' logits).
 *
 *   thread block (x, y)  tiles x, x + grid, ... of 16 * T outputs; 8 * NT rows from 8 * NT * y on
 *   warp w               of each 256 columns the 32 from 32 w on: weights and rows go from global memory to registers
 *   mma.sync             A: 16 outputs x 16 columns, B: 16 columns x 8 rows; lane l has of output (or row) l / 4 the
 *                        columns 8 (l % 4) .. + 7 of the 32: any order of columns serves, the same for A and B
 *   sums                 the eight warps' sums are added in shared memory, in their order; then the epilogue
 *
 * An output of a row is summed in an order that the matrix's columns alone decide: the same bits in any grid.
 *
 * A norm enters as x * weight, split in two bf16 numbers; 1 / rms multiplies the sum at the end, when it is known. The
 * first tile's weights are loaded before the previous kernel has ended (launch_wait), the next tile's before the
 * epilogue. They come from the L2 cache, into which an earlier kernel has read them (decode_rows_ahead.cuh).
 * GROUPS: how many groups of 32 columns a warp holds in registers; a wider matrix takes several rounds.
 *
 * Bound by reading the weights, and where there are few tiles by latency. */
#pragma once
#include "kernels/decode_rows/decode_rows_ahead.cuh"

enum rows_epilogue { ROWS_STORE, ROWS_ADD, ROWS_SWIGLU, ROWS_LOGITS };

/* One call. Outputs of tile i: rows i * step + 0 .. of w. SWIGLU: a matrix of A has the gates and ups of 8 units. */
struct rows_product {
    const void *x;                  /* [rows, k]: float32 with a norm, else bf16 */
    const bf16 *norm;
    const bf16 *w;                  /* [.., k] */
    const float *base;              /* ADD: y = base + product */
    float *y;                       /* STORE, ADD: [rows, out] */
    bf16 *act;                      /* SWIGLU: [rows, out] */
    const struct decode_row *texts; /* LOGITS */
    int k, out;                     /* SWIGLU: out = f */
    float eps;
    rows_ahead ahead;
};

template <int NT, int GROUPS, int T, bool NORM, rows_epilogue EPILOGUE> struct rows_block {
    /* EACH: outputs of one matrix of A. */
    static constexpr int EACH = EPILOGUE == ROWS_SWIGLU ? 8 : 16, STEP = EACH * T, M = 16 * T, N = 8 * NT, ROW = M + 4;
    struct shared {
        float sums[ROWS_WARPS][N][ROW];
        float squares[ROWS_WARPS][N];
        float scale[N];
    };
    const rows_product &p;
    shared &s;
    int lane, warp, row0, groups, rounds;
    uint4 w[GROUPS][T][2];
    uint4 high[GROUPS][NT], low[NORM ? GROUPS : 1][NORM ? NT : 1], scales[NORM ? GROUPS : 1];
    float squares[NT], acc[T][NT][4];

    __device__ __forceinline__ rows_block(const rows_product &product, shared &memory)
        : p(product), s(memory), lane(threadIdx.x % 32), warp((int)threadIdx.x / 32), row0((int)blockIdx.y * N),
          groups((p.k + ROWS_GROUP - 1) / ROWS_GROUP),
          rounds((groups + GROUPS * ROWS_WARPS - 1) / (GROUPS * ROWS_WARPS)) {}
    __device__ __forceinline__ int column(int round, int i) const {
        return ((round * GROUPS + i) * ROWS_WARPS + warp) * ROWS_GROUP + lane % 4 * 8;
    }
    __device__ __forceinline__ void load_weights(int tile, int round) {
#pragma unroll
        for (int i = 0; i < GROUPS; i++) {
            int at = column(round, i);
#pragma unroll
            for (int t = 0; t < T; t++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    int out = tile * STEP + t * EACH + lane / 4 + (EPILOGUE == ROWS_SWIGLU ? 0 : half * 8);
                    int64_t row = min(out, p.out - 1);
                    if (EPILOGUE == ROWS_SWIGLU) row += half * (int64_t)p.out;
                    w[i][t][half] = at < p.k ? load_once(p.w + row * p.k + at) : make_uint4(0, 0, 0, 0);
                }
        }
    }
    __device__ __forceinline__ void load_scales(int round) {
#pragma unroll
        for (int i = 0; i < GROUPS && NORM; i++) {
            int at = column(round, i);
            scales[i] = at < p.k ? *(const uint4 *)(p.norm + at) : make_uint4(0, 0, 0, 0);
        }
    }
    /* The sum of squares, and x * scale as two bf16 numbers. The compiler must not contract them to multiply-adds: it
     * might do so in the kernel for one number of rows and not in another. */
    static __device__ __forceinline__ void split(uint4 &rounded, uint4 &residual, float &square, const float4 (&x)[2],
                                                 uint4 by) {
        const float *in = &x[0].x;
        const uint32_t *factor = &by.x;
        uint32_t *to = &rounded.x, *rest = &residual.x;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float a = in[2 * j], b = in[2 * j + 1];
            square = fmaf(a, a, square), square = fmaf(b, b, square);
            a = __fmul_rn(a, __uint_as_float(factor[j] << 16));
            b = __fmul_rn(b, __uint_as_float(factor[j] & 0xffff0000u));
            to[j] = pack2(a, b);
            rest[j] = pack2(__fsub_rn(a, __uint_as_float(to[j] << 16)),
                            __fsub_rn(b, __uint_as_float(to[j] & 0xffff0000u)));
        }
    }
    __device__ __forceinline__ void load_rows(int round) {
        if (NORM && round > 0) load_scales(round);
#pragma unroll
        for (int i = 0; i < GROUPS; i++) {
            int at = column(round, i);
#pragma unroll
            for (int n = 0; n < NT; n++) {
                int64_t from = (int64_t)(row0 + n * 8 + lane / 4) * p.k + at;
                if constexpr (NORM) {
                    float4 x[2] = {};
                    if (at < p.k) {
                        x[0] = *(const float4 *)((const float *)p.x + from);
                        x[1] = *(const float4 *)((const float *)p.x + from + 4);
                    }
                    split(high[i][n], low[i][n], squares[n], x, scales[i]);
                } else {
                    high[i][n] = at < p.k ? *(const uint4 *)((const bf16 *)p.x + from) : make_uint4(0, 0, 0, 0);
                }
            }
        }
    }
    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int t = 0; t < T; t++)
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int c = 0; c < 4; c++)
                    acc[t][n][c] = 0.0f;
    }
    __device__ __forceinline__ void multiply(int round) {
#pragma unroll
        for (int i = 0; i < GROUPS; i++) {
            if ((round * GROUPS + i) * ROWS_WARPS + warp >= groups) break;
#pragma unroll
            for (int t = 0; t < T; t++)
#pragma unroll
                for (int n = 0; n < NT; n++) {
                    const uint4 a = w[i][t][0], b = w[i][t][1];
                    warp_product(acc[t][n], a.x, b.x, a.y, b.y, high[i][n].x, high[i][n].y);
                    warp_product(acc[t][n], a.z, b.z, a.w, b.w, high[i][n].z, high[i][n].w);
                    if constexpr (NORM) {
                        warp_product(acc[t][n], a.x, b.x, a.y, b.y, low[i][n].x, low[i][n].y);
                        warp_product(acc[t][n], a.z, b.z, a.w, b.w, low[i][n].z, low[i][n].w);
                    }
                }
        }
    }
    /* 1 / rms of each row, once for all tiles. */
    __device__ __forceinline__ void find_scale() {
#pragma unroll
        for (int n = 0; n < NT; n++) {
            float x = squares[n];
            x += __shfl_xor_sync(~0u, x, 1), x += __shfl_xor_sync(~0u, x, 2);
            if (lane % 4 == 0) s.squares[warp][n * 8 + lane / 4] = x;
        }
        __syncthreads();
        if (threadIdx.x < N) {
            float x = 0.0f;
            for (int i = 0; i < ROWS_WARPS; i++)
                x += s.squares[i][threadIdx.x];
            s.scale[threadIdx.x] = 1.0f / sqrtf(x / (float)p.k + p.eps);
        }
    }
    __device__ __forceinline__ void put_sums() {
#pragma unroll
        for (int t = 0; t < T; t++)
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int c = 0; c < 4; c++)
                    s.sums[warp][n * 8 + lane % 4 * 2 + c % 2][t * 16 + lane / 4 + c / 2 * 8] = acc[t][n][c];
    }
    __device__ __forceinline__ float total(int n, int m) const {
        float x = 0.0f;
#pragma unroll
        for (int i = 0; i < ROWS_WARPS; i++)
            x += s.sums[i][n][m];
        return NORM ? x * s.scale[n] : x;
    }
    __device__ __forceinline__ void finish(int tile) const {
        for (int e = threadIdx.x; e < N * STEP; e += ROWS_THREADS) {
            int n = e / STEP, m = e % STEP, out = tile * STEP + m, row = row0 + n;
            if (out >= p.out) continue;
            int64_t to = (int64_t)row * p.out + out;
            if constexpr (EPILOGUE == ROWS_STORE) p.y[to] = total(n, m);
            if constexpr (EPILOGUE == ROWS_ADD) p.y[to] = p.base[to] + total(n, m);
            if constexpr (EPILOGUE == ROWS_SWIGLU) {
                int at = m / 8 * 16 + m % 8;
                float gate = total(n, at), up = total(n, at + 8);
                p.act[to] = from_float<bf16>(gate / __fadd_rn(1.0f, expf(-gate)) * up);
            }
            if constexpr (EPILOGUE == ROWS_LOGITS) {
                float *logits = p.texts[row].logits;
                if (logits) logits[out] = total(n, m);
            }
        }
    }
    __device__ __forceinline__ void run() {
        const int tiles = (p.out + STEP - 1) / STEP;
        int tile = (int)blockIdx.x;
        launch_next();
        load_weights(tile, 0);
        load_scales(0);
        rows_read_ahead(p.ahead);
        launch_wait();
        for (bool first = true; tile < tiles; tile += (int)gridDim.x, first = false) {
            clear();
            for (int round = 0; round < rounds; round++) {
                if (first && round == 0)
#pragma unroll
                    for (int n = 0; n < NT; n++)
                        squares[n] = 0.0f;
                if (first || rounds > 1) {
                    if (NORM && rounds > 1 && round == 0 && !first) load_scales(0);
                    load_rows(round);
                }
                multiply(round);
                if (round + 1 < rounds)
                    load_weights(tile, round + 1);
                else if (tile + (int)gridDim.x < tiles)
                    load_weights(tile + (int)gridDim.x, 0);
            }
            if (NORM && first) find_scale();
            if (!first) __syncthreads(); /* the last tile's sums have been read */
            put_sums();
            __syncthreads();
            finish(tile);
        }
    }
};

template <int NT, int GROUPS, int T, bool NORM, rows_epilogue EPILOGUE>
static __global__ void __launch_bounds__(ROWS_THREADS) decode_rows_product(const __grid_constant__ rows_product p) {
    using block = rows_block<NT, GROUPS, T, NORM, EPILOGUE>;
    __shared__ typename block::shared s;
    block b(p, s);
    b.run();
}
