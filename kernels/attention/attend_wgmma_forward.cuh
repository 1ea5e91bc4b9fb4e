/* attend_wgmma_forward.cuh -- attention of bf16 tiles on tensor cores, forward.
 *
 *   thread block (x, y) = warpgroup of 128 threads -> 64 query rows (chunks: a block of rows, 64 at a time) of head y
 *
 *       global K, V --TMA--> ring of stages (a key tile and its value tile each) in shared memory
 *                               |  S = Q K^T      wgmma, Q's fragments in registers, 32 accumulators a thread
 *                               |  P = exp2(S)    in registers: they are the A operand of
 *                               v  O += P V       wgmma, accumulators in registers -> epilogue: shared memory -> o
 *
 * K and V are copied from the pool's slots without a gather. In chunks mode a softmax is complete within a tile, so P
 * is scaled by weight / sum before the product and O is never rescaled. Several warpgroups share a multiprocessor:
 * while one computes exponentials, the products of the others run.
 *
 * Bound by the L2 cache: a tile pair is 16 KiB for 4 * 64^3 operations. Heads are the grid's slow axis, so that K and V
 * of the heads being computed fit into that cache; those of all heads do not. Best measured on an H200: 372 TFLOP/s
 * (65,536 rows, 16 heads of 64, 8 slots of 63 keys; bf16 product on that GPU 780). docs/kernels/gca.md has the rest. */
#pragma once
#include "kernels/attention/attend_wgmma_keys.cuh"

/* 1 / x and log2(x) of normal numbers, one instruction each. */
static __device__ __forceinline__ float inverse_of(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
static __device__ __forceinline__ float log2_of(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Of a row: the greatest exponent of 2, and the sum of exponentials relative to it, at least 1. */
struct chunk_sum {
    float top, sum;
};
/* One softmax over a tile: s becomes p * weight / sum. Returns the sum of the thread's first row, or of its second in
 * every other lane: so each sum is in one lane of a quad that keeps it. */
static __device__ __forceinline__ chunk_sum softmax_chunk(float (&s)[32], float to_log2, bool null_key, float weight) {
    float top0 = s[0], top1 = s[2], sum0 = 0.0f, sum1 = 0.0f;
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
        top0 = fmaxf(top0, fmaxf(s[i], s[i + 1]));
        top1 = fmaxf(top1, fmaxf(s[i + 2], s[i + 3]));
    }
    top0 = row_max(top0);
    top1 = row_max(top1);
    if (null_key) {
        top0 = fmaxf(top0, 0.0f);
        top1 = fmaxf(top1, 0.0f);
    }
    top0 *= to_log2;
    top1 *= to_log2;
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
        s[i] = power2(fmaf(s[i], to_log2, -top0));
        s[i + 1] = power2(fmaf(s[i + 1], to_log2, -top0));
        s[i + 2] = power2(fmaf(s[i + 2], to_log2, -top1));
        s[i + 3] = power2(fmaf(s[i + 3], to_log2, -top1));
        sum0 += s[i] + s[i + 1];
        sum1 += s[i + 2] + s[i + 3];
    }
    sum0 = row_sum(sum0);
    sum1 = row_sum(sum1);
    if (null_key) {
        sum0 += power2(-top0);
        sum1 += power2(-top1);
    }
    float factor0 = weight * inverse_of(sum0), factor1 = weight * inverse_of(sum1);
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
        s[i] *= factor0;
        s[i + 1] *= factor0;
        s[i + 2] *= factor1;
        s[i + 3] *= factor1;
    }
    return threadIdx.x % 2 ? chunk_sum{top1, sum1} : chunk_sum{top0, sum0};
}

/* Window mode: the online softmax, in exponents of 2; slope * row is left out, as it is constant for a row. */
struct online_softmax {
    float top0, top1, sum0, sum1;
};
#define WINDOW_TOP_RISE 8.0f /* exponentials may be 2^8 before `top` is raised */

template <int HALVES>
static __device__ __forceinline__ void scale_rows(float (&o)[32 * HALVES], float first, float second) {
#pragma unroll
    for (int i = 0; i < 32 * HALVES; i += 4) {
        o[i] *= first;
        o[i + 1] *= first;
        o[i + 2] *= second;
        o[i + 3] *= second;
    }
}

/* One more tile, whose keys begin `offset` positions before the queries: s becomes p. Keys come from near to far, so
 * `top` seldom rises after the first tile; only then out and the sums are scaled. The first tile has a visible key for
 * every row. */
template <int HALVES>
static __device__ __forceinline__ void softmax_window(online_softmax &a, float (&s)[32], float (&out)[32 * HALVES],
                                                      float to_log2, float slope, int offset) {
    float first = slope * (float)((int)(threadIdx.x % 4) * 2 - offset);
    float first0 = first - a.top0, first1 = first - a.top1;
    float rise0 = -INFINITY, rise1 = -INFINITY;
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
        float bias0 = fmaf(slope, 2.0f * i, first0), bias1 = fmaf(slope, 2.0f * i, first1);
        s[i] = fmaf(s[i], to_log2, bias0);
        s[i + 1] = fmaf(s[i + 1], to_log2, bias0 + slope);
        s[i + 2] = fmaf(s[i + 2], to_log2, bias1);
        s[i + 3] = fmaf(s[i + 3], to_log2, bias1 + slope);
        rise0 = fmaxf(rise0, fmaxf(s[i], s[i + 1]));
        rise1 = fmaxf(rise1, fmaxf(s[i + 2], s[i + 3]));
    }
    rise0 = row_max(rise0);
    rise1 = row_max(rise1);
    if (offset == 0 || __any_sync(~0u, fmaxf(rise0, rise1) > WINDOW_TOP_RISE)) {
        keep_branch();
        if (offset > 0) {
            rise0 = fmaxf(rise0, 0.0f), rise1 = fmaxf(rise1, 0.0f);
            float shrink0 = power2(-rise0), shrink1 = power2(-rise1);
            a.sum0 *= shrink0, a.sum1 *= shrink1;
            scale_rows<HALVES>(out, shrink0, shrink1);
        }
        a.top0 += rise0, a.top1 += rise1;
#pragma unroll
        for (int i = 0; i < 32; i += 4)
            s[i] -= rise0, s[i + 1] -= rise0, s[i + 2] -= rise1, s[i + 3] -= rise1;
    }
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
        s[i] = power2(s[i]);
        s[i + 1] = power2(s[i + 1]);
        s[i + 2] = power2(s[i + 2]);
        s[i + 3] = power2(s[i + 3]);
        a.sum0 += s[i] + s[i + 1];
        a.sum1 += s[i + 2] + s[i + 3];
    }
}

/* What a call reads; known at compile time, so that the loop has no branches. */
enum forward_mode {
    FORWARD_WINDOW,
    FORWARD_CHUNKS,  /* any number of live rows, with a null key or without */
    FORWARD_ZERO_ROW, /* 63 live rows and the null key, which is the tile's last row of zeros */
    FORWARD_NULL_KEY, /* 64 live rows and the null key */
    FORWARD_PARTIAL   /* as FORWARD_CHUNKS; o is the parts */
};

/* The state of a warpgroup that computes one query tile after the other. */
template <forward_mode MODE, int DIM, int STAGES> struct forward_group {
    static constexpr bool WINDOW = MODE == FORWARD_WINDOW, PARTIAL = MODE == FORWARD_PARTIAL;
    using reader = key_reader<WINDOW, DIM, STAGES, 1>;
    static constexpr int TILES = reader::TILES;
    const attend_task &t;
    reader &r;
    rows<bf16> o;
    const attend_lse &lse;
    bool zero_row; /* the tile's last row of zeros is the null key */
    int keeps;     /* this thread stores lse: chunks, two lanes of a quad, a row each */
    int row0;      /* this thread's first row; the second is 8 rows later */
    float to_log2, slope, *lse_row;
    online_softmax so_far; /* window */
    chunk_sum sum;         /* chunks */
    float s[32], out[32 * TILES];
    uint32_t q[16 * TILES], p[16];

    __device__ __forceinline__ forward_group(const attend_task &task, reader &from, rows<bf16> to,
                                             const attend_lse &sums)
        : t(task), r(from), o(to), lse(sums),
          zero_row(MODE == FORWARD_ZERO_ROW || (t.null_key && t.live_rows == TILE - 1)),
          row0((int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4), to_log2(t.scale * ATTEND_LOG2E),
          slope(WINDOW ? window_slope(t, r.head) : 0.0f) {}

    __device__ __forceinline__ void begin(unsigned at) {
        r.set_tile(at);
        r.wait_queries(at);
        int kept = row0 + (WINDOW ? 0 : (int)threadIdx.x % 2 * 8);
        lse_row = lse.data + (r.tile.row + kept) * lse.row + r.head * lse.head;
        keeps = lse.data && threadIdx.x % 4 < 2 && kept < r.tile.rows;
        if (!WINDOW) asm volatile("" : "+l"(lse_row), "+r"(keeps)); /* else the loop computes them again */
        sum = {0.0f, 1.0f};
        so_far = {0.0f, 0.0f, 0.0f, 0.0f};
        load_fragments<TILES>(q, r.queries);
        clear_out();
    }
    __device__ __forceinline__ void clear_out() {
#pragma unroll
        for (int i = 0; i < 32 * TILES; i++)
            out[i] = 0.0f;
    }
    /* Issues S = Q K^T of an item. */
    __device__ __forceinline__ void scores(ring_slot<STAGES> of) {
        r.wait(of);
        pin(s);
        products_begin();
        multiply_rows<TILES>(s, q, r.keys(of));
        products_commit();
    }
    /* Scores of tile i -> p; issues out += p V. */
    __device__ __forceinline__ void add_values(int i) {
        products_wait<0>();
        pin(s);
        if (WINDOW) {
            mask_window(s, i * TILE, t.window, r.tile.position);
            softmax_window<TILES>(so_far, s, out, to_log2, slope, i * TILE);
        } else if (MODE == FORWARD_ZERO_ROW || MODE == FORWARD_NULL_KEY) {
            sum = softmax_chunk(s, to_log2, MODE == FORWARD_NULL_KEY, r.shared.list.weight[i]);
        } else {
            if (t.live_rows < TILE && !zero_row) mask_keys(s, t.live_rows);
            sum = softmax_chunk(s, to_log2, t.null_key && !zero_row, PARTIAL ? 1.0f : r.shared.list.weight[i]);
        }
        pack(p, s);
        pin(p);
        pin(out);
        products_begin();
        multiply_columns<TILES>(out, p, r.values(r.now));
        products_commit();
    }
    /* While the products run: stores the log sum exp of tile i. */
    __device__ __forceinline__ void keep(int i) {
        if (WINDOW || !keeps) return;
        uint64_t offset = (uint64_t)(uint32_t)r.shared.list.index[i] * (uint32_t)(lse.plane * sizeof(float));
        *(float *)((uint8_t *)lse_row + offset) = (sum.top + log2_of(sum.sum)) * ATTEND_LN2;
    }
    __device__ __forceinline__ void release(int i) {
        pin(out);
        pin(p);
        r.release();
        if (!PARTIAL) return;
        store(r.shared.list.index[i] * t.n, 0);
        clear_out();
    }
    __device__ __forceinline__ void store(int64_t plane, int skip) {
        store_rows<TILES>(out, 1.0f, r.queries, o[plane + r.tile.row] + r.head * DIM, o.stride, skip, r.tile.rows);
    }
    /* The epilogue of the online softmax: divides by the sum, stores the log sum exp. */
    __device__ __forceinline__ void divide() {
        float sum0 = row_sum(so_far.sum0), sum1 = row_sum(so_far.sum1);
        scale_rows<TILES>(out, __fdividef(1.0f, sum0), __fdividef(1.0f, sum1));
        if (!lse.data || threadIdx.x % 4) return;
        float log0 = so_far.top0 + __log2f(sum0) - slope * (float)row0;
        float log1 = so_far.top1 + __log2f(sum1) - slope * (float)(row0 + 8);
        if (row0 >= r.tile.skip && row0 < r.tile.rows) lse_row[0] = log0 * ATTEND_LN2;
        if (row0 + 8 >= r.tile.skip && row0 + 8 < r.tile.rows) lse_row[8 * lse.row] = log1 * ATTEND_LN2;
    }
};

template <forward_mode MODE, int DIM, int STAGES, int RESIDENT>
static __global__ void __launch_bounds__(WARPGROUP, RESIDENT)
    attend_wgmma_forward(const __grid_constant__ tile_matrix q_map, const __grid_constant__ tile_matrix k_map,
                         const __grid_constant__ tile_matrix v_map, const __grid_constant__ attend_task t, rows<bf16> o,
                         const __grid_constant__ attend_lse lse) {
    constexpr bool WINDOW = MODE == FORWARD_WINDOW, PARTIAL = MODE == FORWARD_PARTIAL;
    using reader = key_reader<WINDOW, DIM, STAGES, 1>;
    extern __shared__ uint8_t raw[];
    __shared__ typename reader::shared_part shared;
    reader r(t, shared, raw, k_map, v_map);
    r.query_maps[0] = &q_map;
    r.start(PARTIAL || lse.data);
    if (!WINDOW) fill_empty<DIM>(r, o, lse, PARTIAL);
    forward_group<MODE, DIM, STAGES> g(t, r, o, lse);
    for (unsigned at = 0; at < r.query_tiles; at++) {
        g.begin(at);
        /* The last round is peeled off: with a branch in the loop the compiler waits for products in flight. */
        if (r.count) {
            g.scores(r.now);
            for (int i = 0; i + 1 < r.count; i++) {
                g.add_values(i);
                g.scores(r.now.next());
                g.keep(i);
                products_wait<1>();
                g.release(i);
            }
            g.add_values(r.count - 1);
            g.keep(r.count - 1);
            products_wait<0>();
            g.release(r.count - 1);
        }
        if (WINDOW) g.divide();
        if (!PARTIAL) g.store(0, r.tile.skip);
        r.next_queries(at);
    }
}
