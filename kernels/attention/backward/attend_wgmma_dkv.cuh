/* attend_wgmma_dkv.cuh -- backward's second pass: dK and dV of a key tile, over the query tiles that read it.
 *
 *   thread block (x, y) = warpgroup -> key tile x (a slot; window: 64 rows) of head y
 *   ring of stages: query tile, its dO tile, 64 rows of stat   (attend_wgmma_queries.cuh)
 *   accumulators in registers: S^T, dP^T of one tile; dK, dV of the key tile
 *
 * P^T and dS^T are packed into the registers of dP^T, so the next tile's S^T is issued before dV and dK of this tile
 * are complete. Bound by latency: see attend_wgmma_backward.cuh. */
#pragma once
#include "kernels/attention/backward/attend_wgmma_queries.cuh"

/* The position of an item's queries relative to the keys: query column c is `offset` + c - r positions after key row r.
 */
struct tile_offset {
    int offset, rows; /* rows: valid queries */
};

/* Scores S^T and dP^T of a tile -> P^T and dS^T, both as fragments of A in the registers of dP^T, 4 of each 8. s is
 * then free for the next item. */
template <bool WINDOW, bool MASKED>
static __device__ __forceinline__ void score_gradients_transposed(const float (&s)[32], float (&dp)[32],
                                                                  const float2 *stats, float to_log2, float slope,
                                                                  int window, tile_offset at) {
    int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16 + lane / 4;
    /* Window: how many positions after a key its queries end. A negative distance is large as an unsigned number. */
    int nearest = at.offset + lane % 4 * 2 - row0, end = at.offset + at.rows - row0;
    unsigned ends[2] = {(unsigned)max(0, min(window, end - 1) + 1), (unsigned)max(0, min(window, end - 9) + 1)};
    float first = WINDOW ? slope * (float)(row0 - at.offset - lane % 4 * 2) : 0.0f;
    uint32_t hold[2];
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
        int column = i * 2 + lane % 4 * 2;
        float4 st = *(const float4 *)&stats[column]; /* of two queries: the exponent's summand, delta */
        float bias0 = WINDOW ? fmaf(slope, -2.0f * i, first) : 0.0f, bias1 = WINDOW ? bias0 - slope : 0.0f;
        float add0 = WINDOW ? bias0 + st.x : st.x, add1 = WINDOW ? bias1 + st.z : st.z, eight = 8.0f * slope;
        float x[4] = {power2(fmaf(s[i], to_log2, add0)), power2(fmaf(s[i + 1], to_log2, add1)),
                      power2(fmaf(s[i + 2], to_log2, WINDOW ? add0 + eight : add0)),
                      power2(fmaf(s[i + 3], to_log2, WINDOW ? add1 + eight : add1))};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            bool seen = true;
            if (MASKED) {
                seen = WINDOW ? (unsigned)(nearest + i * 2 + j % 2 - j / 2 * 8) < ends[j / 2]
                              : column + j % 2 < at.rows;
            }
            x[j] = seen ? x[j] : 0.0f;
            dp[i + j] = seen ? x[j] * (dp[i + j] - (j % 2 ? st.w : st.y)) : 0.0f;
        }
        uint32_t ds0 = pack2(dp[i], dp[i + 1]), ds1 = pack2(dp[i + 2], dp[i + 3]);
        if (i % 8 == 0) {
            hold[0] = ds0, hold[1] = ds1;
            dp[i] = __uint_as_float(pack2(x[0], x[1]));
            dp[i + 1] = __uint_as_float(pack2(x[2], x[3]));
        } else {
            dp[i - 2] = __uint_as_float(pack2(x[0], x[1]));
            dp[i - 1] = __uint_as_float(pack2(x[2], x[3]));
            dp[i] = __uint_as_float(hold[0]);
            dp[i + 1] = __uint_as_float(hold[1]);
            dp[i + 2] = __uint_as_float(ds0);
            dp[i + 3] = __uint_as_float(ds1);
        }
    }
}

/* The two gradients in global memory: this head's columns of a key tile's rows. */
template <typename G> struct key_gradients {
    rows<G> dk, dv;
    int row, column, count;
    float scale; /* of dK */
    bool adds;   /* to the values in memory */
};

/* float32: adds d * factor to `count` rows, or overwrites them. The old values of 64 columns are all loaded before the
 * first is used. */
struct accumulated_rows {
    float2 old[16];
    float *at;
    int64_t stride;
    int first, count;

    __device__ __forceinline__ void read(rows<float> from, const key_gradients<float> &g, int tile) {
        int lane = threadIdx.x % 32;
        first = threadIdx.x / 32 * 16 + lane / 4;
        count = g.count;
        stride = from.stride;
        at = from[g.row + first] + g.column + tile * TILE + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < 16; i++)
            old[i] = g.adds && first + i / 8 * 8 < count ? *(const float2 *)(at + i / 8 * 8 * stride + i % 8 * 8)
                                                         : make_float2(0.0f, 0.0f);
    }
    __device__ __forceinline__ void add(const float *d, float factor) {
#pragma unroll
        for (int i = 0; i < 16; i++) {
            int from = i % 8 * 4 + i / 8 * 2;
            if (first + i / 8 * 8 < count)
                *(float2 *)(at + i / 8 * 8 * stride + i % 8 * 8) =
                    make_float2(fmaf(d[from], factor, old[i].x), fmaf(d[from + 1], factor, old[i].y));
        }
    }
};

/* The epilogue: waits for the last products and stores. bf16: the stage of `item` has the old values of dK and dV, and
 * is the buffer in which rows are transposed. */
template <int TILES, typename READER>
static __device__ __forceinline__ void store_gradients(const key_gradients<float> &g, float (&sum_k)[32 * TILES],
                                                       float (&sum_v)[32 * TILES], READER &, int) {
    accumulated_rows old;
    old.read(g.dv, g, 0);
    products_wait<0>();
    pin(sum_k);
    pin(sum_v);
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        if (i) old.read(g.dv, g, i);
        old.add(sum_v + i * 32, 1.0f);
        old.read(g.dk, g, i);
        old.add(sum_k + i * 32, g.scale);
    }
}
template <int TILES, typename READER>
static __device__ __forceinline__ void store_gradients(const key_gradients<bf16> &g, float (&sum_k)[32 * TILES],
                                                       float (&sum_v)[32 * TILES], READER &r, int item) {
    bf16 *to_k = g.dk[g.row] + g.column, *to_v = g.dv[g.row] + g.column;
    uint8_t *tiles_k = r.queries(item), *tiles_v = r.gradients(item);
    products_wait<0>();
    pin(sum_k);
    pin(sum_v);
    if (g.adds) {
        r.wait(item);
        store_rows<TILES, true>(sum_v, 1.0f, tiles_v, to_v, g.dv.stride, 0, g.count);
        store_rows<TILES, true>(sum_k, g.scale, tiles_k, to_k, g.dk.stride, 0, g.count);
    } else {
        store_rows<TILES>(sum_v, 1.0f, tiles_v, to_v, g.dv.stride, 0, g.count);
        store_rows<TILES>(sum_k, g.scale, tiles_k, to_k, g.dk.stride, 0, g.count);
    }
}

template <bool WINDOW, typename G, int DIM, int STAGES, int RESIDENT>
static __global__ void __launch_bounds__(WARPGROUP, RESIDENT)
    attend_wgmma_dkv(const __grid_constant__ backward_maps maps, const __grid_constant__ attend_task t, rows<G> dk,
                     rows<G> dv, const int32_t *entry_begin, const inverse_entry *entries, const float2 *stat,
                     bool accumulate) {
    using reader = query_reader<WINDOW, DIM, STAGES>;
    constexpr int TILES = reader::TILES;
    constexpr bool NARROW = sizeof(G) == 2;
    bool adds = !WINDOW && accumulate;
    extern __shared__ uint8_t raw[];
    __shared__ typename reader::shared_part shared;
    reader r(t, shared, raw, maps, stat);
    if (!r.find(entry_begin, entries)) return; /* no query reads this slot */
    r.start(NARROW && adds);
    for (int i = 0; !NARROW && adds && threadIdx.x < r.key_rows && i < DIM; i += 128 / (int)sizeof(G)) {
        prefetch_l2(dk[r.key_row + threadIdx.x] + r.head * DIM + i);
        prefetch_l2(dv[r.key_row + threadIdx.x] + r.head * DIM + i);
    }
    __syncthreads();
    float to_log2 = t.scale * ATTEND_LOG2E, slope = WINDOW ? window_slope(t, r.head) : 0.0f;
    float s[32], dp[32], sum_k[32 * TILES], sum_v[32 * TILES];
#pragma unroll
    for (int i = 0; i < 32 * TILES; i++)
        sum_k[i] = sum_v[i] = 0.0f;
    /* Issues S^T = K Q^T of an item. */
    auto multiply_queries = [&](int item) {
        r.wait(item);
        pin(s);
        products_begin();
        multiply_tiles<TILES>(s, r.keys, r.queries(item));
        products_commit();
    };
    /* Issues dP^T = V dO^T. */
    auto multiply_gradients = [&](int item) {
        pin(dp);
        products_begin();
        multiply_tiles<TILES>(dp, r.values, r.gradients(item));
        products_commit();
    };
    /* Issues dV += P^T dO and dK += dS^T Q. */
    auto add_gradients = [&](int item, staged_entry now) {
        tile_offset at = {WINDOW ? now.row - r.key_row : 0, now.rows};
        bool masked = now.rows < TILE || (WINDOW && (at.offset == 0 || at.offset + TILE - 1 > t.window));
        products_wait<0>();
        pin(s);
        pin(dp);
        if (masked) {
            keep_branch();
            score_gradients_transposed<WINDOW, true>(s, dp, r.stats(item), to_log2, slope, t.window, at);
        } else {
            score_gradients_transposed<WINDOW, false>(s, dp, r.stats(item), to_log2, slope, t.window, at);
        }
        pin(dp);
        pin(sum_k);
        pin(sum_v);
        products_begin();
        multiply_columns<TILES, 0>(sum_v, dp, r.gradients(item));
        multiply_columns<TILES, 4>(sum_k, dp, r.queries(item));
        products_commit();
    };
    r.wait_keys();
    if (!shared.any) return; /* only blocks without rows read this slot */
    multiply_queries(0);
    multiply_gradients(0);
    int item = 0;
    staged_entry now = r.entry(0);
    for (; !now.last; item++) {
        add_gradients(item, now);
        multiply_queries(item + 1);
        now = r.entry(item + 1);
        products_wait<1>();
        pin(sum_k);
        pin(sum_v);
        multiply_gradients(item + 1);
        r.release(item);
    }
    add_gradients(item, now);
    key_gradients<G> g = {dk, dv, r.key_row, r.head * DIM, r.key_rows, t.scale, adds};
    store_gradients<TILES>(g, sum_k, sum_v, r, item + 1);
}
