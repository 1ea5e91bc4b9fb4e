/* attend_wgmma_dkv.cuh -- backward's second pass: dK and dV of a key tile, over the query tiles that read it.
 *
 * No more than S^T and dP^T of one tile is held beside the sums: P^T and dS^T are packed into dP^T's registers, so that
 * the next tile's S^T begins before dV and dK of this one are done.
 *
 * Tried and lost: the next tile's S^T and dP^T both begun early (201 registers, two groups: 0.70 ms); as many groups as
 * the card holds, each taking key tiles from a counter with the next tile's keys on their way (two stages only, spills:
 * 1.03 ms in all); the second and third copy behind the first products (2 % of all); a stage given back by each warp
 * at a barrier of its own instead of by all threads at once (7 % of all, though no warp waits for another then; dq and
 * the forward pass 10 %). */
#pragma once
#include "kernels/attention/attend_wgmma_queries.cuh"

/* Where an item's queries lie seen from the keys: query column c, key row r are `behind` + c - r apart. */
struct tile_place {
    int behind, rows; /* rows: queries that count */
};

/* Scores S^T and dP^T of a tile -> P^T and dS^T, both as fragments of A in the place of dP^T, 4 registers of 8 each:
 * s is free for the next item. */
template <bool WINDOW, bool MASKED>
static __device__ __forceinline__ void weigh_scores(const float (&s)[32], float (&dp)[32], const float2 *stats,
                                                    float to_log2, float slope, int window, tile_place at) {
    int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16 + lane / 4;
    float first = WINDOW ? slope * (float)(row0 - at.behind - lane % 4 * 2) : 0.0f;
    uint32_t hold[2];
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
        int column = i * 2 + lane % 4 * 2;
        float4 st = *(const float4 *)&stats[column]; /* two queries: what to add, delta */
        float bias0 = WINDOW ? fmaf(slope, -2.0f * i, first) : 0.0f, bias1 = WINDOW ? bias0 - slope : 0.0f;
        float add0 = WINDOW ? bias0 + st.x : st.x, add1 = WINDOW ? bias1 + st.z : st.z, eight = 8.0f * slope;
        float x[4] = {power2(fmaf(s[i], to_log2, add0)), power2(fmaf(s[i + 1], to_log2, add1)),
                      power2(fmaf(s[i + 2], to_log2, WINDOW ? add0 + eight : add0)),
                      power2(fmaf(s[i + 3], to_log2, WINDOW ? add1 + eight : add1))};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            bool seen = true;
            if (MASKED) {
                int distance = at.behind + column + j % 2 - row0 - j / 2 * 8;
                seen = column + j % 2 < at.rows && (!WINDOW || (distance >= 0 && distance <= window));
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

/* The two gradients as kernels write them: this head's columns of a key tile's rows. */
template <typename G> struct key_gradients {
    rows<G> dk, dv;
    int row, column, count;
    float scale; /* of dK */
    bool adds;   /* to what stands there */
};

/* float32: adds d * factor to `count` rows, or overwrites them. What stands there is read all at once, 64 columns at a
 * time. */
struct standing_rows {
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

/* Ends the last products and stores. `r`, `item`: where bf16 rows that are added to have come, and room to turn rows. */
template <int TILES, typename READER>
static __device__ __forceinline__ void store_gradients(const key_gradients<float> &g, float (&sum_k)[32 * TILES],
                                                       float (&sum_v)[32 * TILES], READER &, int) {
    standing_rows old;
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
    dkv_tiles(const __grid_constant__ backward_maps maps, const __grid_constant__ attend_task t, rows<G> dk, rows<G> dv,
              const int32_t *entry_begin, const place_entry *entries, const float2 *stat, bool accumulate) {
    using reader = query_reader<WINDOW, DIM, STAGES>;
    constexpr int TILES = reader::TILES;
    constexpr bool NARROW = sizeof(G) == 2;
    bool adds = !WINDOW && accumulate;
    extern __shared__ uint8_t raw[];
    __shared__ typename reader::shared_part shared;
    reader r(t, shared, raw, maps, stat);
    if (!r.find(entry_begin, entries)) return; /* there is nothing to add */
    r.start(NARROW && adds);
    for (int i = 0; !NARROW && adds && threadIdx.x < r.key_rows && i < DIM; i += 128 / (int)sizeof(G)) {
        fetch_ahead(dk[r.key_row + threadIdx.x] + r.head * DIM + i);
        fetch_ahead(dv[r.key_row + threadIdx.x] + r.head * DIM + i);
    }
    __syncthreads();

    float to_log2 = t.scale * ATTEND_LOG2E, slope = WINDOW ? window_slope(t, r.head) : 0.0f;
    float s[32], dp[32], sum_k[32 * TILES], sum_v[32 * TILES];
#pragma unroll
    for (int i = 0; i < 32 * TILES; i++)
        sum_k[i] = sum_v[i] = 0.0f;
    /* S^T = K Q^T of an item begins. */
    auto multiply_queries = [&](int item) {
        r.wait(item);
        pin(s);
        products_begin();
        multiply_tiles<TILES>(s, r.keys, r.queries(item));
        products_commit();
    };
    /* dP^T = V dO^T begins. */
    auto multiply_gradients = [&](int item) {
        pin(dp);
        products_begin();
        multiply_tiles<TILES>(dp, r.values, r.gradients(item));
        products_commit();
    };
    /* dV += P^T dO and dK += dS^T Q begin. */
    auto add_gradients = [&](int item, staged_entry now) {
        tile_place at = {WINDOW ? now.row - r.key_row : 0, now.rows};
        bool masked = now.rows < TILE || (WINDOW && (at.behind == 0 || at.behind + TILE - 1 > t.window));
        products_wait<0>();
        pin(s);
        pin(dp);
        if (masked) {
            rarely();
            weigh_scores<WINDOW, true>(s, dp, r.stats(item), to_log2, slope, t.window, at);
        } else {
            weigh_scores<WINDOW, false>(s, dp, r.stats(item), to_log2, slope, t.window, at);
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
    if (!shared.some) return; /* only blocks without rows read this slot: there is nothing to add */
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
