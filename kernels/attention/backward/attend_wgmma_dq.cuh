/* attend_wgmma_dq.cuh -- backward's first pass: dQ, `stat` for the second pass, and dweight by heads. The mapping of
 * threads is that of attend_wgmma_forward.cuh, with Q and dO resident in shared memory. */
#pragma once
#include "kernels/attention/backward/attend_wgmma_backward.cuh"

/* s becomes dS = p (dp - delta) weight; chunks: delta is computed here. Returns the two rows' delta. `key`: window, the
 * distance of this thread's first column from the tile of queries. */
template <bool WINDOW>
static __device__ __forceinline__ float2 score_gradients(float (&s)[32], const float (&dp)[32], float to_log2,
                                                         float slope, float key, float2 log2_sum, float2 delta,
                                                         float weight) {
    float first = WINDOW ? slope * key : 0.0f;
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
        float bias = WINDOW ? fmaf(slope, 2.0f * i, first) : 0.0f, next = WINDOW ? bias + slope : 0.0f;
        s[i] = power2(fmaf(s[i], to_log2, WINDOW ? bias - log2_sum.x : -log2_sum.x));
        s[i + 1] = power2(fmaf(s[i + 1], to_log2, WINDOW ? next - log2_sum.x : -log2_sum.x));
        s[i + 2] = power2(fmaf(s[i + 2], to_log2, WINDOW ? bias - log2_sum.y : -log2_sum.y));
        s[i + 3] = power2(fmaf(s[i + 3], to_log2, WINDOW ? next - log2_sum.y : -log2_sum.y));
    }
    if (!WINDOW) {
        delta = make_float2(s[0] * dp[0], s[2] * dp[2]);
        delta = make_float2(fmaf(s[1], dp[1], delta.x), fmaf(s[3], dp[3], delta.y));
#pragma unroll
        for (int i = 4; i < 32; i += 4) {
            delta.x = fmaf(s[i + 1], dp[i + 1], fmaf(s[i], dp[i], delta.x));
            delta.y = fmaf(s[i + 3], dp[i + 3], fmaf(s[i + 2], dp[i + 2], delta.y));
        }
        delta.x = row_sum(delta.x);
        delta.y = row_sum(delta.y);
    }
    float less0 = -delta.x * weight, less1 = -delta.y * weight;
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
        s[i] *= fmaf(dp[i], weight, less0);
        s[i + 1] *= fmaf(dp[i + 1], weight, less0);
        s[i + 2] *= fmaf(dp[i + 2], weight, less1);
        s[i + 3] *= fmaf(dp[i + 3], weight, less1);
    }
    return delta;
}

/* The sum of o * dout of this thread's two rows. */
template <int DIM>
static __device__ __forceinline__ float2 row_products(rows<bf16> o, rows<bf16> dout, int64_t row, int64_t last,
                                                      int column) {
    int lane = threadIdx.x % 32;
    float sum[2] = {0.0f, 0.0f};
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int64_t at = row + threadIdx.x / 32 * 16 + lane / 4 + 8 * r;
        at = at < last ? at : last;
#pragma unroll
        for (int c = 0; c < DIM / 4; c += 8) {
            vec8 a = load8(o[at] + column + lane % 4 * (DIM / 4) + c),
                 b = load8(dout[at] + column + lane % 4 * (DIM / 4) + c);
#pragma unroll
            for (int i = 0; i < 8; i++)
                sum[r] += a.v[i] * b.v[i];
        }
        sum[r] = row_sum(sum[r]);
    }
    return make_float2(sum[0], sum[1]);
}

/* Sums of delta of each slot, by warp. */
struct slot_sums {
    float warp[ATTEND_LIST_MAX][WARPGROUP / 32];
};

/* The results. part_dweight NULL: it is not computed. */
struct query_gradients {
    rows<bf16> dq;
    float2 *stat;
    float *part_dweight;
};

/* The state of a warpgroup that computes one query tile after the other. MASKS: chunks of fewer live rows than a tile,
 * and no null key. */
template <bool WINDOW, bool MASKS, int DIM, int STAGES> struct dq_group {
    using reader = key_reader<WINDOW, DIM, STAGES, 2>;
    static constexpr int TILES = reader::TILES;
    const attend_task &t;
    reader &r;
    const uint8_t *dout_tiles;
    slot_sums &sums; /* chunks */
    const attend_lse &lse;
    int row0; /* this thread's first row; the second is 8 rows later */
    float to_log2, slope;
    float2 *stat;                   /* of row0 */
    uint32_t lse_plane, stat_plane; /* bytes, elements of a plane; below 2^32, see attend_wgmma_backward */
    const uint8_t *lse_row;         /* of row0 */
    uint32_t lse_next;              /* bytes to the second row */
    bool inside0, inside1;
    float2 log2_sum, now, delta; /* of the two rows: loaded for the next tile; of this tile; sum of P dP */
    float s[32], dp[32], out[32 * TILES];
    uint32_t q[16 * TILES], ds[16];

    __device__ __forceinline__ dq_group(const attend_task &task, reader &from, slot_sums &in,
                                        const attend_lse &kept_lse, float2 *to)
        : t(task), r(from), dout_tiles(r.queries + reader::TILES_BYTES), sums(in), lse(kept_lse),
          row0((int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4), to_log2(t.scale * ATTEND_LOG2E),
          slope(WINDOW ? window_slope(t, r.head) : 0.0f), lse_plane((uint32_t)(lse.plane * sizeof(float))),
          stat_plane((uint32_t)t.stat_rows) {
        int64_t first = WINDOW ? r.tile.sequence * t.length : r.begin;
        stat = to + (int64_t)r.head * t.k * t.stat_rows + row0 +
               (WINDOW ? stat_first(first, r.tile.sequence) + r.tile.row - first : stat_first(first, r.block));
    }

    __device__ __forceinline__ float2 kept(int i) const {
        const uint8_t *from =
            lse_row + (WINDOW ? (uint64_t)0 : (uint64_t)(uint32_t)r.shared.list.index[i] * lse_plane);
        return make_float2(*(const float *)from, *(const float *)(from + lse_next));
    }
    __device__ __forceinline__ void begin(unsigned at, rows<bf16> o, rows<bf16> dout) {
        r.set_tile(at);
        inside0 = row0 < r.tile.rows, inside1 = row0 + 8 < r.tile.rows;
        lse_row = (const uint8_t *)(lse.data + (r.tile.row + (inside0 ? row0 : 0)) * lse.row + r.head * lse.head);
        lse_next = inside1 ? (uint32_t)(8 * lse.row * sizeof(float)) : 0;
        if (!WINDOW) asm volatile("" : "+l"(lse_row), "+r"(lse_next)); /* else the loop computes them again */
        log2_sum = delta = make_float2(0.0f, 0.0f);
        if (r.count) log2_sum = kept(0);
        if (WINDOW) delta = row_products<DIM>(o, dout, r.tile.row, t.n - 1, r.head * DIM);
        r.wait_queries(at);
        load_fragments<TILES>(q, r.queries);
#pragma unroll
        for (int i = 0; i < 32 * TILES; i++)
            out[i] = 0.0f;
    }
    /* Issues S = Q K^T and dP = dO V^T of an item. */
    __device__ __forceinline__ void multiply(ring_slot<STAGES> of) {
        r.wait(of);
        pin(s);
        pin(dp);
        products_begin();
        multiply_rows<TILES>(s, q, r.keys(of));
        multiply_tiles<TILES>(dp, dout_tiles, r.values(of));
        products_commit();
    }
    /* Scores of tile i -> dS; issues dQ += dS K. */
    __device__ __forceinline__ void add_gradient(int i) {
        now = make_float2(log2_sum.x * ATTEND_LOG2E, log2_sum.y * ATTEND_LOG2E);
        if (!WINDOW && i + 1 < r.count) log2_sum = kept(i + 1);
        products_wait<0>();
        pin(s);
        pin(dp);
        /* Chunks with a null key: lse >= 0, so p of the zero rows after the live ones is at most 1, and it multiplies
         * zeros. */
        if (WINDOW)
            mask_window(s, i * TILE, t.window, r.tile.position);
        else if (MASKS)
            mask_keys(s, t.live_rows);
        float2 shift = now;
        if (WINDOW) shift = make_float2(now.x + slope * (float)row0, now.y + slope * (float)(row0 + 8));
        delta = score_gradients<WINDOW>(s, dp, to_log2, slope, (float)((int)threadIdx.x % 4 * 2 - i * TILE), shift,
                                        delta, WINDOW ? 1.0f : r.shared.list.weight[i]);
        pack(ds, s);
        pin(ds);
        pin(out);
        products_begin();
        multiply_columns<TILES>(out, ds, r.keys(r.now));
        products_commit();
    }
    /* While the products run: stores what the second pass needs of tile i. */
    __device__ __forceinline__ void keep(int i) {
        int lane = threadIdx.x % 32;
        if (!WINDOW) {
            float sum = (inside0 ? delta.x : 0.0f) + (inside1 ? delta.y : 0.0f);
            for (int offset = 4; offset < 32; offset *= 2)
                sum += __shfl_xor_sync(~0u, sum, offset);
            if (lane == 0) sums.warp[i][threadIdx.x / 32] += sum;
        }
        if (lane % 4 || (WINDOW && i)) return;
        float2 *to = stat + (WINDOW ? 0 : (uint32_t)r.shared.list.index[i] * stat_plane);
        float log2_weight = WINDOW ? 0.0f : r.shared.list.log2_weight[i];
        if (inside0) to[0] = make_float2(log2_weight - now.x, delta.x);
        if (inside1) to[8] = make_float2(log2_weight - now.y, delta.y);
    }
    __device__ __forceinline__ void release() {
        pin(out);
        pin(ds);
        r.release();
    }
};

/* o and dout: read in window mode only.
 * Nine parameters: with these two in a struct the compiler orders instructions differently. */
template <bool WINDOW, bool MASKS, int DIM, int STAGES, int RESIDENT>
static __global__ void __launch_bounds__(WARPGROUP, RESIDENT)
    attend_wgmma_dq(const __grid_constant__ tile_matrix q_map, const __grid_constant__ tile_matrix dout_map,
                    const __grid_constant__ tile_matrix k_map, const __grid_constant__ tile_matrix v_map,
                    const __grid_constant__ attend_task t, query_gradients to, const __grid_constant__ attend_lse lse,
                    rows<bf16> o, rows<bf16> dout) {
    using reader = key_reader<WINDOW, DIM, STAGES, 2>;
    extern __shared__ uint8_t raw[];
    __shared__ typename reader::shared_part shared;
    __shared__ slot_sums sums;
    reader r(t, shared, raw, k_map, v_map);
    r.query_maps[0] = &q_map;
    r.query_maps[1] = &dout_map;
    for (int i = threadIdx.x; !WINDOW && i < t.k * (WARPGROUP / 32); i += WARPGROUP)
        sums.warp[i / (WARPGROUP / 32)][i % (WARPGROUP / 32)] = 0.0f;
    r.start(true);
    if (!WINDOW) fill_empty<DIM>(r, to.dq, attend_lse{}, false);
    dq_group<WINDOW, MASKS, DIM, STAGES> g(t, r, sums, lse, to.stat);
    for (unsigned at = 0; at < r.query_tiles; at++, g.stat += TILE) {
        g.begin(at, o, dout);
        if (r.count) {
            g.multiply(r.now);
            for (int i = 0; i + 1 < r.count; i++) {
                g.add_gradient(i);
                g.multiply(r.now.next());
                g.keep(i);
                products_wait<1>();
                g.release();
            }
            g.add_gradient(r.count - 1);
            g.keep(r.count - 1);
            products_wait<0>();
            g.release();
        }
        store_rows<reader::TILES>(g.out, t.scale, r.queries, to.dq[r.tile.row] + r.head * DIM, to.dq.stride, 0,
                                  r.tile.rows);
        r.next_queries(at);
    }
    if (WINDOW || !to.part_dweight) return;
    __syncthreads();
    for (int i = threadIdx.x; i < r.count; i += WARPGROUP)
        to.part_dweight[((int64_t)r.block * t.k + shared.list.index[i]) * t.heads + r.head] =
            sums.warp[i][0] + sums.warp[i][1] + sums.warp[i][2] + sums.warp[i][3];
}
