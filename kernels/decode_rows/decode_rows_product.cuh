/* decode_rows_product.cuh -- products of up to 64 rows with a matrix of weights, with what comes before (a norm) and
 * after (a sum, SwiGLU, the texts' logits).
 *
 *   thread block (x, y)  tiles x, x + grid, ... of 16 * T outputs; 8 * NT rows from 8 * NT * y on
 *   warp w               of each 256 columns the 32 from 32 w on: weights and rows go from global memory to registers
 *   mma.sync             A: 16 rows x 16 columns, B: 16 columns x 8 outputs; lane l has of output (or row) l / 4 the
 *                        columns 8 (l % 4) .. + 7 of the 32: any order of columns serves, the same for A and B. Weights
 *                        are B: 16 bytes as they are loaded are two operands there, but four moves for each as A
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

/* One call. Outputs of tile i: rows i * step + 0 .. of w. */
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
    uint32_t zero;                  /* 0: the compiler must not know it, see load_rows */
    rows_ahead ahead;
    rows_ahead_keys ahead_keys; /* SWIGLU */
};

template <int NT, int GROUPS, int T, bool NORM, rows_epilogue EPILOGUE, bool EXACT = false> struct rows_block {
    /* EACH: outputs of two matrices of B; SWIGLU: of the gates and the ups of 8 units. */
    static constexpr int EACH = EPILOGUE == ROWS_SWIGLU ? 8 : 16, STEP = EACH * T, M = 16 * T, N = 8 * NT, ROW = M + 8;
    /* Matrices of A, of 16 rows; of 8 rows, the second half is zeros. K: the width, if EXACT. */
    static constexpr int MT = (NT + 1) / 2, K = GROUPS * ROWS_WARPS * ROWS_GROUP;
    /* Keys are requested when the rows have been loaded, not before the wait: where a SM has one block with 64 outputs,
     * its rows would wait for them. In the other forms an early request is faster (docs/kernels/decode_rows.md). */
    static constexpr bool LATE_KEYS = T > 2;
    using sums_of_warps = float[ROWS_WARPS][N][ROW];
    struct shared {
        float squares[ROWS_WARPS][N];
        float scale[N];
        float *logits[EPILOGUE == ROWS_LOGITS ? N : 1];
    };
    /* Of the base of an ADD: what a thread's outputs are added to. */
    static constexpr int OWN = (N * STEP + ROWS_THREADS - 1) / ROWS_THREADS;
    const rows_product &p;
    shared &s;
    sums_of_warps &sums;
    int lane, warp, row0, groups, rounds;
    uint4 w[GROUPS][T][2];
    /* Of 16 rows: A of the first and of the second 16 columns of a group's 32. */
    uint4 high[GROUPS][MT][2], low[NORM ? GROUPS : 1][NORM ? MT : 1][2], scales[NORM ? GROUPS : 1];
    float squares[NT], acc[MT][T][2][4], own[EPILOGUE == ROWS_ADD ? OWN : 1];

    __device__ __forceinline__ rows_block(const rows_product &product, shared &memory, sums_of_warps &to)
        : p(product), s(memory), sums(to), lane(threadIdx.x % 32), warp((int)threadIdx.x / 32),
          row0((int)blockIdx.y * N), groups((p.k + ROWS_GROUP - 1) / ROWS_GROUP),
          rounds((groups + GROUPS * ROWS_WARPS - 1) / (GROUPS * ROWS_WARPS)) {}
    __device__ __forceinline__ int column(int round, int i) const {
        return ((round * GROUPS + i) * ROWS_WARPS + warp) * ROWS_GROUP + lane % 4 * 8;
    }
    __device__ __forceinline__ bool inside(int at) const { return EXACT || at < p.k; }
    __device__ __forceinline__ int width() const { return EXACT ? K : p.k; }
    __device__ __forceinline__ void load_weight(int tile, int round, int i, int t, int half) {
        constexpr bool PAIR = EPILOGUE == ROWS_SWIGLU;
        const int at = column(round, i);
        if constexpr (EXACT) {
            const bf16 *from = p.w + (int64_t)(tile * STEP + lane / 4) * K + column(0, 0);
            if (PAIR && half) from += (int64_t)p.out * K;
            from += (t * EACH + (PAIR ? 0 : half * 8)) * K + i * ROWS_WARPS * ROWS_GROUP;
            w[i][t][half] = load_once(from);
        } else {
            int out = tile * STEP + t * EACH + lane / 4 + (PAIR ? 0 : half * 8);
            int64_t row = min(out, p.out - 1);
            if (PAIR) row += half * (int64_t)p.out;
            w[i][t][half] = inside(at) ? load_once(p.w + row * width() + at) : make_uint4(0, 0, 0, 0);
        }
    }
    __device__ __forceinline__ void load_weights(int tile, int round) {
#pragma unroll
        for (int i = 0; i < GROUPS; i++)
#pragma unroll
            for (int t = 0; t < T; t++)
#pragma unroll
                for (int half = 0; half < 2; half++)
                    load_weight(tile, round, i, t, half);
    }
    __device__ __forceinline__ void load_scales(int round) {
#pragma unroll
        for (int i = 0; i < GROUPS && NORM; i++) {
            int at = column(round, i);
            scales[i] = inside(at) ? *(const uint4 *)(p.norm + at) : make_uint4(0, 0, 0, 0);
        }
    }
    /* The sum of squares, and x * scale as two bf16 numbers. The compiler must not contract them to multiply-adds: it
     * might do so in the kernel for one number of rows and not in another. */
    static __device__ __forceinline__ void split(uint4 &rounded, uint4 &residual, float &square, const uint4 (&x)[2],
                                                 uint4 by) {
        const uint32_t *in = &x[0].x;
        const uint32_t *factor = &by.x;
        uint32_t *to = &rounded.x, *rest = &residual.x;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float a = __uint_as_float(in[2 * j]), b = __uint_as_float(in[2 * j + 1]);
            square = fmaf(a, a, square), square = fmaf(b, b, square);
            a = __fmul_rn(a, __uint_as_float(factor[j] << 16));
            b = __fmul_rn(b, __uint_as_float(factor[j] & 0xffff0000u));
            to[j] = pack2(a, b);
            rest[j] = pack2(__fsub_rn(a, __uint_as_float(to[j] << 16)),
                            __fsub_rn(b, __uint_as_float(to[j] & 0xffff0000u)));
        }
    }
    /* A's registers of rows l / 4 (first) and l / 4 + 8: made here, so that a product takes no moves. */
    static __device__ __forceinline__ void interleave(uint4 (&to)[2], uint4 first, uint4 second) {
        to[0] = make_uint4(first.x, second.x, first.y, second.y);
        to[1] = make_uint4(first.z, second.z, first.w, second.w);
    }
    __device__ __forceinline__ void load_rows(int round) {
        constexpr int PARTS = NORM ? 2 : 1; /* of 16 bytes each */
        uint4 x[GROUPS][NT][PARTS];
        if (NORM && round > 0) load_scales(round);
#pragma unroll
        for (int i = 0; i < GROUPS; i++) {
            const int at = column(round, i);
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int part = 0; part < PARTS; part++) {
                    const int64_t from = (int64_t)(row0 + lane / 4) * width() + n * 8 * width() + at;
                    const void *source = NORM ? (const void *)((const float *)p.x + from + 4 * part)
                                              : (const void *)((const bf16 *)p.x + from);
                    x[i][n][part] = inside(at) ? *(const uint4 *)source : make_uint4(0, 0, 0, 0);
                }
        }
        /* The first product needs all loads: else the compiler moves loads down to their uses, and the block waits for
         * the memory several times. */
        uint32_t all = EPILOGUE == ROWS_ADD ? __float_as_uint(own[0]) : 0;
#pragma unroll
        for (int i = 0; i < GROUPS; i++)
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int part = 0; part < PARTS; part++)
                    all |= x[i][n][part].x;
        x[0][0][0].x ^= all & p.zero;
#pragma unroll
        for (int i = 0; i < GROUPS; i++) {
            uint4 rounded[2 * MT] = {}, residual[2 * MT] = {};
#pragma unroll
            for (int n = 0; n < NT; n++)
                if constexpr (NORM)
                    split(rounded[n], residual[n], squares[n], x[i][n], scales[i]);
                else
                    rounded[n] = x[i][n][0];
#pragma unroll
            for (int m = 0; m < MT; m++) {
                interleave(high[i][m], rounded[2 * m], rounded[2 * m + 1]);
                if constexpr (NORM) interleave(low[i][m], residual[2 * m], residual[2 * m + 1]);
            }
        }
    }
    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int t = 0; t < T; t++)
#pragma unroll
                for (int c = 0; c < 8; c++)
                    acc[m][t][c / 4][c % 4] = 0.0f;
    }
    static __device__ __forceinline__ void product(float *to, uint4 rows, uint32_t b0, uint32_t b1) {
        warp_product(to, rows.x, rows.y, rows.z, rows.w, b0, b1);
    }
    /* Group i of columns: 32 of them of the weights of eight outputs by all rows. */
    __device__ __forceinline__ void multiply_by(int t, int half, int i, uint4 weights) {
#pragma unroll
        for (int m = 0; m < MT; m++)
            product(acc[m][t][half], high[i][m][0], weights.x, weights.y);
#pragma unroll
        for (int m = 0; m < MT; m++)
            product(acc[m][t][half], high[i][m][1], weights.z, weights.w);
        if constexpr (NORM) {
#pragma unroll
            for (int m = 0; m < MT; m++)
                product(acc[m][t][half], low[i][m][0], weights.x, weights.y);
#pragma unroll
            for (int m = 0; m < MT; m++)
                product(acc[m][t][half], low[i][m][1], weights.z, weights.w);
        }
    }
    __device__ __forceinline__ void multiply(int round) {
#pragma unroll
        for (int i = 0; i < GROUPS; i++) {
            const bool is = EXACT || (round * GROUPS + i) * ROWS_WARPS + warp < groups;
#pragma unroll
            for (int t = 0; t < T; t++)
#pragma unroll
                for (int half = 0; half < 2; half++)
                    if (is) multiply_by(t, half, i, w[i][t][half]);
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
    __device__ __forceinline__ void put_sums() const {
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int t = 0; t < T; t++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const float *two = acc[n / 2][t][half] + n % 2 * 2;
                    *(float2 *)&sums[warp][n * 8 + lane / 4][t * 16 + half * 8 + lane % 4 * 2] =
                        make_float2(two[0], two[1]);
                }
    }
    __device__ __forceinline__ float total(int n, int m) const {
        float x = 0.0f;
#pragma unroll
        for (int i = 0; i < ROWS_WARPS; i++)
            x += sums[i][n][m];
        return NORM ? x * s.scale[n] : x;
    }
    /* The base of this thread's outputs, while rows are loaded: not at the end, when nothing else is to do. */
    __device__ __forceinline__ void load_base(int tile) {
#pragma unroll
        for (int i = 0; i < OWN && EPILOGUE == ROWS_ADD; i++) {
            const int e = i * ROWS_THREADS + (int)threadIdx.x, out = tile * STEP + e % STEP;
            own[i] = e < N * STEP && (EXACT || out < p.out) ? p.base[(int64_t)(row0 + e / STEP) * p.out + out] : 0.0f;
        }
    }
    __device__ __forceinline__ void finish(int tile) const {
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            const int e = i * ROWS_THREADS + (int)threadIdx.x;
            const int n = e / STEP, m = e % STEP, out = tile * STEP + m, row = row0 + n;
            if (e >= N * STEP || (!EXACT && out >= p.out)) continue;
            const int64_t to = (int64_t)row * p.out + out;
            if constexpr (EPILOGUE == ROWS_STORE) p.y[to] = total(n, m);
            if constexpr (EPILOGUE == ROWS_ADD) p.y[to] = own[i] + total(n, m);
            if constexpr (EPILOGUE == ROWS_SWIGLU) {
                const int at = m / 8 * 16 + m % 8;
                const float gate = total(n, at), up = total(n, at + 8);
                p.act[to] = from_float<bf16>(gate / __fadd_rn(1.0f, expf(-gate)) * up);
            }
            if constexpr (EPILOGUE == ROWS_LOGITS)
                if (float *logits = s.logits[n]) logits[out] = total(n, m);
        }
    }
    /* Before the first barrier of the block. */
    __device__ __forceinline__ void find_logits() {
        if constexpr (EPILOGUE == ROWS_LOGITS)
            if (threadIdx.x < N) s.logits[threadIdx.x] = p.texts[row0 + (int)threadIdx.x].logits;
    }
    __device__ __forceinline__ void read_keys_ahead(bool late) const {
        if constexpr (EPILOGUE == ROWS_SWIGLU)
            if (late == LATE_KEYS) rows_read_keys_ahead(p.ahead_keys);
    }
    /* One tile of one round: the width is that of the registers. */
    __device__ __forceinline__ void run_exact() {
        launch_next();
        load_weights((int)blockIdx.x, 0);
        load_scales(0);
        rows_read_ahead(p.ahead);
        read_keys_ahead(false);
        launch_wait();
        clear();
        load_base((int)blockIdx.x);
#pragma unroll
        for (int n = 0; n < NT; n++)
            squares[n] = 0.0f;
        load_rows(0);
        read_keys_ahead(true);
        multiply(0);
        if (NORM) find_scale();
        put_sums();
        __syncthreads();
        finish((int)blockIdx.x);
    }
    __device__ __forceinline__ void run() {
        const int tiles = (p.out + STEP - 1) / STEP;
        int tile = (int)blockIdx.x;
        launch_next();
        load_weights(tile, 0);
        load_scales(0);
        rows_read_ahead(p.ahead);
        launch_wait();
        find_logits();
        for (bool first = true; tile < tiles; tile += (int)gridDim.x, first = false) {
            clear();
            load_base(tile);
            for (int round = 0; round < rounds; round++) {
                if (first && round == 0)
#pragma unroll
                    for (int n = 0; n < NT; n++)
                        squares[n] = 0.0f;
                if (first || rounds > 1) {
                    if (NORM && rounds > 1 && round == 0 && !first) load_scales(0);
                    load_rows(round);
                }
                const bool last = round + 1 == rounds;
                const int next = last ? tile + (int)gridDim.x : tile;
                multiply(round);
                if (next < tiles) load_weights(next, last ? 0 : round + 1);
            }
            if (NORM && first) find_scale();
            if (!first) __syncthreads(); /* the last tile's sums have been read */
            put_sums();
            __syncthreads();
            finish(tile);
        }
    }
};

template <int NT, int GROUPS, int T, bool NORM, rows_epilogue EPILOGUE, bool EXACT>
static __global__ void __launch_bounds__(ROWS_THREADS) decode_rows_product(const __grid_constant__ rows_product p) {
    using block = rows_block<NT, GROUPS, T, NORM, EPILOGUE, EXACT>;
    __shared__ typename block::shared s;
    __shared__ __align__(16) typename block::sums_of_warps sums;
    block b(p, s, sums);
    if constexpr (EXACT)
        b.run_exact();
    else
        b.run();
}
