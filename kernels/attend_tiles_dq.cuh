/* attend_tiles_dq.cuh -- backward's first pass: dQ, what the second pass needs of each row, and dweight by heads. */
#pragma once
#include "kernels/attend_tiles_backward.cuh"

/* s becomes dS = p (dp - delta) weight; chunks: delta is found here. Returns the two rows' delta. `key`: window, the
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

/* sum of o * dout of this thread's two rows. */
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

template <bool WINDOW, int DIM, int STAGES, int RESIDENT>
static __global__ void __launch_bounds__(WARPGROUP, RESIDENT)
    dq_tiles(const __grid_constant__ tile_matrix q_map, const __grid_constant__ tile_matrix dout_map,
             const __grid_constant__ tile_matrix k_map, const __grid_constant__ tile_matrix v_map,
             const __grid_constant__ attend_task t, rows<bf16> dq, rows<float> lse, rows<bf16> o, rows<bf16> dout,
             float2 *stat, float *part_dweight) {
    using reader = key_reader<WINDOW, DIM, STAGES, 2>;
    constexpr int TILES = reader::TILES;
    extern __shared__ uint8_t raw[];
    __shared__ typename reader::shared_part shared;
    __shared__ float place_sum[WINDOW ? 1 : ATTEND_LIST_MAX][WARPGROUP / 32]; /* delta, by places and warps */
    reader r(t, shared, raw, k_map, v_map);
    r.query_maps[0] = &q_map;
    r.query_maps[1] = &dout_map;
    if (!WINDOW)
        for (int i = threadIdx.x; i < t.k * (WARPGROUP / 32); i += WARPGROUP)
            place_sum[i / (WARPGROUP / 32)][i % (WARPGROUP / 32)] = 0.0f;
    r.start(true);
    const place_list &list = shared.list;
    const uint8_t *dout_tiles = r.queries + reader::TILES_BYTES;
    int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16 + lane / 4, head = r.head;
    if (!WINDOW) fill_empty<DIM>(t, r.block, head, r.begin, r.end, dq, {nullptr, 0}, false);

    float to_log2 = t.scale * ATTEND_LOG2E, slope = WINDOW ? window_slope(t, head) : 0.0f;
    int64_t sequence_row = WINDOW ? r.tile.sequence * t.length : 0;
    stat +=
        (int64_t)head * t.k * t.stat_rows + row0 +
        (WINDOW ? stat_first(sequence_row, r.tile.sequence) + r.tile.row - sequence_row : stat_first(r.begin, r.block));
    /* Smaller than 2^32 elements both: see tiles_suit. */
    uint32_t lse_plane = (uint32_t)(t.n * lse.stride), stat_plane = (uint32_t)t.stat_rows;
    float s[32], dp[32], out[32 * TILES];
    uint32_t q[16 * TILES], ds[16];
    for (unsigned at = 0; at < r.query_tiles; at++, stat += TILE) {
        r.set_tile(at);
        bool inside0 = row0 < r.tile.rows, inside1 = row0 + 8 < r.tile.rows;
        int64_t r0 = r.tile.row + (inside0 ? row0 : 0), r1 = r.tile.row + (inside1 ? row0 + 8 : 0);
        uint32_t lse0 = (uint32_t)(r0 * lse.stride + head), lse1 = (uint32_t)(r1 * lse.stride + head);
        auto kept = [&](int i) {
            uint32_t plane = WINDOW ? 0 : (uint32_t)list.place[i] * lse_plane;
            return make_float2(lse.data[lse0 + plane], lse.data[lse1 + plane]);
        };
        float2 log2_sum = make_float2(0.0f, 0.0f), now = log2_sum, delta = log2_sum;
        if (r.count) log2_sum = kept(0);
        if (WINDOW) delta = row_products<DIM>(o, dout, r.tile.row, t.n - 1, head * DIM);
        r.wait_queries(at);
        load_fragments<TILES>(q, r.queries);
#pragma unroll
        for (int i = 0; i < 32 * TILES; i++)
            out[i] = 0.0f;
        auto multiply = [&](unsigned of) {
            r.wait(of);
            pin(s);
            pin(dp);
            products_begin();
            multiply_rows<TILES>(s, q, r.keys(of));
            multiply_tiles<TILES>(dp, dout_tiles, r.values(of));
            products_commit();
        };
        /* Scores of tile i -> dS; dQ += dS K begins. */
        auto add_gradient = [&](int i) {
            now = make_float2(log2_sum.x * ATTEND_LOG2E, log2_sum.y * ATTEND_LOG2E);
            if (!WINDOW && i + 1 < r.count) log2_sum = kept(i + 1);
            products_wait<0>();
            pin(s);
            pin(dp);
            /* Chunks with a null key: lse >= 0, so p of the zero rows behind the live ones is at most 1, and meets
             * zeros. */
            if (WINDOW)
                mask_window(s, i * TILE, t.window, r.tile.position);
            else if (t.live_rows < TILE && !t.null_key)
                mask_keys(s, t.live_rows);
            float2 shift = now;
            if (WINDOW) shift = make_float2(now.x + slope * (float)row0, now.y + slope * (float)(row0 + 8));
            delta = score_gradients<WINDOW>(s, dp, to_log2, slope, (float)(lane % 4 * 2 - i * TILE), shift, delta,
                                            WINDOW ? 1.0f : list.weight[i]);
            pack(ds, s);
            pin(ds);
            pin(out);
            products_begin();
            multiply_columns<TILES>(out, ds, r.keys(r.item));
            products_commit();
        };
        /* While products run. */
        auto keep = [&](int i) {
            if (!WINDOW) {
                float sum = (inside0 ? delta.x : 0.0f) + (inside1 ? delta.y : 0.0f);
                for (int offset = 4; offset < 32; offset *= 2)
                    sum += __shfl_xor_sync(~0u, sum, offset);
                if (lane == 0) place_sum[i][threadIdx.x / 32] += sum;
            }
            if (lane % 4 || (WINDOW && i)) return;
            float2 *to = stat + (WINDOW ? 0 : (uint32_t)list.place[i] * stat_plane);
            float log2_weight = WINDOW ? 0.0f : list.log2_weight[i];
            if (inside0) to[0] = make_float2(log2_weight - now.x, delta.x);
            if (inside1) to[8] = make_float2(log2_weight - now.y, delta.y);
        };
        auto release = [&] {
            pin(out);
            pin(ds);
            r.release();
        };
        if (r.count) {
            multiply(r.item);
            for (int i = 0; i + 1 < r.count; i++) {
                add_gradient(i);
                multiply(r.item + 1);
                keep(i);
                products_wait<1>();
                release();
            }
            add_gradient(r.count - 1);
            keep(r.count - 1);
            products_wait<0>();
            release();
        }
        store_rows<TILES>(out, t.scale, r.queries, dq[r.tile.row] + head * DIM, dq.stride, 0, r.tile.rows);
        r.next_queries(at);
    }
    if (!WINDOW && part_dweight) {
        __syncthreads();
        for (int i = threadIdx.x; i < r.count; i += WARPGROUP)
            part_dweight[((int64_t)r.block * t.k + list.place[i]) * t.heads + head] =
                place_sum[i][0] + place_sum[i][1] + place_sum[i][2] + place_sum[i][3];
    }
}
