/* attend_tiles_backward.cuh -- attention of bf16 tiles with matrix units, backward, in two passes.
 *
 *   dq   as the forward pass: a group has 64 query rows and reads their key tiles. P comes from the kept lse,
 *        dP = dO V^T, dS = P (dP - delta), dQ += dS K. Chunks: delta, the row's sum of P dP, is whole inside a tile, so
 *        nothing of the forward pass but lse is needed; it also is what dweight sums. lse and delta are left as `stat`.
 *   dkv  a group has 64 key rows and reads the query tiles that saw them, in the order of the inverse list:
 *        S^T = K Q^T and dP^T = V dO^T lie in registers as the A operands of dV += P^T dO and dK += dS^T Q.
 *
 * Nothing is summed between thread blocks, so results are the same bits each time. Seven products for the five that are
 * counted: keeping P or dS between the passes would cost more in memory traffic than the two products.
 *
 * Measured on an H100 (2026-11-21, tests/device/bench_attention.cu; bf16 product on the card: 748 TFLOP/s):
 *   65536 rows, 12 heads of 64, 8 slots of 63 keys    1.03 ms, 250 TFLOP/s (33 %): dq 0.47, dkv 0.56; float32 dK, dV
 *                                                     1.09 ms
 *   window 512, 4 x 16640 rows, 12 heads of 64        1.00 ms, 259 TFLOP/s (35 %): dq 0.42, dkv 0.55
 *   the sm_80 version of the code on the same card    1.73 and 1.76 ms
 * Bound by latency: 33 % (dkv) and 43 % (dq) of issue slots are busy; registers allow three groups a multiprocessor.
 * Tried and lost: dkv with the next scores begun before dV and dK are done (201 registers, two groups: 0.70 ms); dq with
 * four groups (spills: 0.50 ms); both with a third stage (the same time). */
#pragma once
#include "kernels/attend_tiles_forward.cuh"
#include <type_traits>

/* What dkv needs to know of an entry of the inverse list, side by side. */
struct place_entry {
    int row, rows;
    float weight;
    int place;
};

/* dweight of each place from its heads' parts, in their order. */
static __global__ void sum_heads(attend_task t, const float *part, float *dweight) {
    int64_t place = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= (int64_t)t.blocks * t.k) return;
    float sum = 0.0f;
    for (int head = 0; head < t.heads && t.slot[place] >= 0; head++)
        sum += part[place * t.heads + head];
    dweight[place] = sum;
}

static __global__ void list_entries(attend_task t, gca_inverse inverse, place_entry *entries) {
    int64_t j = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= inverse.begin[inverse.slots]) return;
    int64_t place = inverse.place[j], block = place / t.k, begin = block_begin(t, block);
    int i = (int)(place % t.k);
    entries[j] = {(int)begin, (int)(block_begin(t, block + 1) - begin), block_weight(t, block, i), i};
}

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
        s[i] = power2(fmaf(s[i], to_log2, bias - log2_sum.x));
        s[i + 1] = power2(fmaf(s[i + 1], to_log2, next - log2_sum.x));
        s[i + 2] = power2(fmaf(s[i + 2], to_log2, bias - log2_sum.y));
        s[i + 3] = power2(fmaf(s[i + 3], to_log2, next - log2_sum.y));
    }
    if (!WINDOW) {
        delta = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int i = 0; i < 32; i += 4) {
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

template <int DIM, int STAGES> struct dq_memory {
    static constexpr int TILES = DIM / TILE, STAGE_BYTES = 2 * TILES * TILE_BYTES,
                         BYTES = 1024 + 2 * TILES * TILE_BYTES + STAGES * STAGE_BYTES;
};

template <bool WINDOW, int DIM, int STAGES, int RESIDENT>
static __global__ void __launch_bounds__(WARPGROUP, RESIDENT)
    dq_tiles(const __grid_constant__ tile_matrix q_map, const __grid_constant__ tile_matrix dout_map,
             const __grid_constant__ tile_matrix k_map, const __grid_constant__ tile_matrix v_map,
             const __grid_constant__ attend_task t, rows<bf16> dq, rows<float> lse, rows<bf16> o, rows<bf16> dout,
             float2 *stat, float *part_dweight) {
    using memory = dq_memory<DIM, STAGES>;
    constexpr int TILES = memory::TILES;
    extern __shared__ uint8_t raw[];
    uint8_t *q_tiles = raw + (1024 - shared_address(raw) % 1024) % 1024, *dout_tiles = q_tiles + TILES * TILE_BYTES;
    uint8_t *stages = dout_tiles + TILES * TILE_BYTES;
    __shared__ uint64_t full[STAGES], q_full;
    __shared__ place_list list;
    __shared__ float place_sum[WINDOW ? 1 : ATTEND_LIST_MAX][WARPGROUP / 32]; /* delta, by places and warps */
    int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16 + lane / 4;
    int head = (int)blockIdx.y, block = (int)blockIdx.x;
    int live = WINDOW ? TILE : t.live_rows;
    uint32_t stage_bytes = 2 * TILES * live * 128;

    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++)
            barrier_init(&full[i], FILL_ARRIVALS);
        barrier_init(&q_full, FILL_ARRIVALS);
        barrier_init_done();
    }
    int64_t begin = 0, end = 0;
    query_tile tile;
    if (WINDOW) {
        tile = window_tile(t, block);
    } else {
        begin = block_begin(t, block);
        end = block_begin(t, block + 1);
    }
    auto fill_queries = [&](int64_t row) {
        fill_begin(&q_full, 2 * TILES * TILE_BYTES);
        for (int i = 0; i < TILES; i++) {
            tile_copy(q_tiles + i * TILE_BYTES, q_map, head * DIM + i * TILE, (int)row, &q_full);
            tile_copy(dout_tiles + i * TILE_BYTES, dout_map, head * DIM + i * TILE, (int)row, &q_full);
        }
        fill_end(&q_full);
    };
    __syncthreads();
    if (WINDOW || begin < end) fill_queries(WINDOW ? tile.row : begin);
    if (!WINDOW) {
        if (threadIdx.x < 32) list_places(&list, t, block, true);
        for (int i = threadIdx.x; i < t.k * (WARPGROUP / 32); i += WARPGROUP)
            place_sum[i / (WARPGROUP / 32)][i % (WARPGROUP / 32)] = 0.0f;
        for (int i = threadIdx.x; live < TILE && i < (TILE - live) * 2 * STAGES * TILES * 8; i += WARPGROUP)
            *(uint4 *)(stages + i / 8 % (2 * STAGES * TILES) * TILE_BYTES +
                       (live + i / 8 / (2 * STAGES * TILES)) * 128 + i % 8 * 16) = make_uint4(0, 0, 0, 0);
        fence_async();
    }
    __syncthreads();
    int count = WINDOW ? tile.count : list.count;
    int64_t query_tiles = WINDOW ? 1 : (end - begin + TILE - 1) / TILE, items = query_tiles * count;

    int filled_index = 0;
    auto fill = [&](int64_t item) {
        uint8_t *to = stages + item % STAGES * memory::STAGE_BYTES;
        uint64_t *barrier = &full[item % STAGES];
        int row = WINDOW ? key_row(t, tile, filled_index) : list.row[filled_index];
        fill_begin(barrier, stage_bytes);
        for (int i = 0; i < TILES; i++) {
            tile_copy(to + i * TILE_BYTES, k_map, head * DIM + i * TILE, row, barrier);
            tile_copy(to + (TILES + i) * TILE_BYTES, v_map, head * DIM + i * TILE, row, barrier);
        }
        fill_end(barrier);
        filled_index = filled_index + 1 == count ? 0 : filled_index + 1;
    };
    for (int i = 0; i < STAGES && i < items; i++)
        fill(i);
    if (!WINDOW) fill_empty<DIM>(t, block, head, begin, end, dq, {nullptr, 0}, false);

    float to_log2 = t.scale * ATTEND_LOG2E, slope = WINDOW ? window_slope(t, head) : 0.0f;
    float s[32], dp[32], out[32 * TILES];
    uint32_t q[16 * TILES], ds[16];
    int64_t item = 0, lse_plane = t.n * lse.stride;
    for (int64_t at = 0; at < query_tiles; at++) {
        if (!WINDOW) {
            tile.row = begin + at * TILE;
            tile.rows = end - tile.row < TILE ? (int)(end - tile.row) : TILE;
        }
        int64_t r0 = tile.row + row0 < t.n ? tile.row + row0 : t.n - 1, r1 = r0 + 8 < t.n ? r0 + 8 : t.n - 1;
        const float *lse0 = lse[r0] + head, *lse1 = lse[r1] + head;
        float2 *stat_row = stat + stat_index(t, head, 0, tile.row + row0);
        auto kept = [&](int i) {
            int64_t place = WINDOW ? 0 : list.place[i] * lse_plane;
            return make_float2(lse0[place] * ATTEND_LOG2E, lse1[place] * ATTEND_LOG2E);
        };
        float2 log2_sum = make_float2(0.0f, 0.0f), delta = log2_sum;
        if (count) log2_sum = kept(0);
        if (WINDOW) delta = row_products<DIM>(o, dout, tile.row, t.n - 1, head * DIM);
        barrier_wait(&q_full, at & 1);
        load_fragments<TILES>(q, q_tiles);
#pragma unroll
        for (int i = 0; i < 32 * TILES; i++)
            out[i] = 0.0f;
        auto multiply = [&](int64_t of) {
            const uint8_t *from = stages + of % STAGES * memory::STAGE_BYTES;
            barrier_wait(&full[of % STAGES], of / STAGES & 1);
            pin(s);
            pin(dp);
            products_begin();
            multiply_rows<TILES>(s, q, from);
            multiply_tiles<TILES>(dp, dout_tiles, from + TILES * TILE_BYTES);
            products_commit();
        };
        auto add_gradient =
            [&](int i) { /* scores of tile i -> dS; dQ += dS K begins */
                         float2 now = log2_sum;
                         if (!WINDOW && i + 1 < count) log2_sum = kept(i + 1);
                         products_wait<0>();
                         pin(s);
                         pin(dp);
                         if (WINDOW)
                             mask_window(s, i * TILE, t.window, tile.position);
                         else if (live < TILE && !t.null_key)
                             mask_keys(
                                 s,
                                 live); /* with a null key lse >= 0: p of the zero rows is at most 1, and meets zeros */
                         float2 shift = now;
                         if (WINDOW)
                             shift = make_float2(now.x + slope * (float)row0, now.y + slope * (float)(row0 + 8));
                         delta = score_gradients<WINDOW>(s, dp, to_log2, slope, (float)(lane % 4 * 2 - i * TILE), shift,
                                                         delta, WINDOW ? 1.0f : list.weight[i]);
                         if (!WINDOW) {
                             float sum = (row0 < tile.rows ? delta.x : 0.0f) + (row0 + 8 < tile.rows ? delta.y : 0.0f);
                             for (int offset = 4; offset < 32; offset *= 2)
                                 sum += __shfl_xor_sync(~0u, sum, offset);
                             if (lane == 0) place_sum[i][threadIdx.x / 32] += sum;
                         }
                         if (lane % 4 == 0 && (!WINDOW || i == 0)) {
                             float2 *to = stat_row + (WINDOW ? 0 : list.place[i] * t.n);
                             if (row0 < tile.rows) to[0] = make_float2(now.x, delta.x);
                             if (row0 + 8 < tile.rows) to[8] = make_float2(now.y, delta.y);
                         }
                         pack(ds, s);
                         pin(ds);
                         pin(out);
                         products_begin();
                         multiply_columns<TILES>(out, ds, stages + item % STAGES * memory::STAGE_BYTES);
                         products_commit();
            };
        auto release = [&] {
            pin(out);
            pin(ds);
            __syncthreads();
            if (item + STAGES < items) fill(item + STAGES);
            item++;
        };
        if (count) {
            multiply(item);
            for (int i = 0; i + 1 < count; i++) {
                add_gradient(i);
                multiply(item + 1);
                products_wait<1>();
                release();
            }
            add_gradient(count - 1);
            products_wait<0>();
            release();
        }
        store_rows<TILES>(out, t.scale, q_tiles, dq[tile.row] + head * DIM, dq.stride, tile.rows);
        if (at + 1 < query_tiles) {
            fence_async();
            __syncthreads();
            fill_queries(begin + (at + 1) * TILE);
        }
    }
    if (!WINDOW && part_dweight) {
        __syncthreads();
        for (int i = threadIdx.x; i < count; i += WARPGROUP)
            part_dweight[((int64_t)block * t.k + list.place[i]) * t.heads + head] =
                place_sum[i][0] + place_sum[i][1] + place_sum[i][2] + place_sum[i][3];
    }
}

/* Runs over the query tiles that read one key tile: entries of the inverse list, each cut into tiles. The entry after
 * the present one is already on its way. */
struct entry_cursor {
    const place_entry *entries;
    int next, end;
    place_entry now, ahead;

    __device__ void begin(const place_entry *list, int first, int last) {
        entries = list;
        next = first;
        end = last;
        now = {0, 0, 0.0f, 0};
        if (next < end) ahead = entries[next];
        settle();
    }
    /* Moves on to an entry with rows; `now.rows` is 0 at the end. */
    __device__ void settle() {
        while (now.rows <= 0 && next < end) {
            now = ahead;
            next++;
            if (next < end) ahead = entries[next];
        }
        if (now.rows < 0) now.rows = 0;
    }
    __device__ void advance() {
        now.row += TILE;
        now.rows -= TILE;
        settle();
    }
};

static __device__ __forceinline__ float2 as_floats(float2 x) {
    return x;
}
static __device__ __forceinline__ float2 as_floats(__nv_bfloat162 x) {
    return __bfloat1622float2(x);
}
template <typename G> struct gradient_pair;
template <> struct gradient_pair<float> {
    using type = float2;
    static __device__ type of(float x, float y) { return make_float2(x, y); }
};
template <> struct gradient_pair<bf16> {
    using type = __nv_bfloat162;
    static __device__ type of(float x, float y) { return __floats2bfloat162_rn(x, y); }
};

/* Adds d * factor to `count` rows, or overwrites them. What stands there is read all at once: its way from memory is
 * longer than a tile's work. */
template <int TILES, typename G>
static __device__ __forceinline__ void store_gradient(const float (&d)[32 * TILES], float factor, rows<G> to,
                                                      int64_t row, int column, int count, bool accumulate) {
    using pair = typename gradient_pair<G>::type;
    int lane = threadIdx.x % 32, first = threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        pair old[16];
        G *at = to[row + first] + column + tile * TILE + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < 16; i++)
            old[i] = accumulate && first + i / 8 * 8 < count ? *(const pair *)(at + i / 8 * 8 * to.stride + i % 8 * 8)
                                                             : gradient_pair<G>::of(0.0f, 0.0f);
#pragma unroll
        for (int i = 0; i < 16; i++) {
            int from = tile * 32 + i % 8 * 4 + i / 8 * 2;
            float2 sum = as_floats(old[i]);
            if (first + i / 8 * 8 < count)
                *(pair *)(at + i / 8 * 8 * to.stride + i % 8 * 8) =
                    gradient_pair<G>::of(fmaf(d[from], factor, sum.x), fmaf(d[from + 1], factor, sum.y));
        }
    }
}

template <int DIM, int STAGES> struct dkv_memory {
    static constexpr int TILES = DIM / TILE, STAGE_BYTES = 2 * TILES * TILE_BYTES,
                         BYTES = 1024 + 2 * TILES * TILE_BYTES + STAGES * STAGE_BYTES;
};

template <bool WINDOW, typename G, int DIM, int STAGES, int RESIDENT>
static __global__ void __launch_bounds__(WARPGROUP, RESIDENT)
    dkv_tiles(const __grid_constant__ tile_matrix q_map, const __grid_constant__ tile_matrix dout_map,
              const __grid_constant__ tile_matrix k_map, const __grid_constant__ tile_matrix v_map,
              const __grid_constant__ attend_task t, rows<G> dk, rows<G> dv, const int32_t *entry_begin,
              const place_entry *entries, const float2 *stat, bool accumulate) {
    using memory = dkv_memory<DIM, STAGES>;
    constexpr int TILES = memory::TILES;
    extern __shared__ uint8_t raw[];
    uint8_t *k_tiles = raw + (1024 - shared_address(raw) % 1024) % 1024, *v_tiles = k_tiles + TILES * TILE_BYTES;
    uint8_t *stages = v_tiles + TILES * TILE_BYTES;
    __shared__ uint64_t full[STAGES], k_full;
    __shared__ alignas(16) float2 stats[STAGES][TILE];
    __shared__ place_entry entry[STAGES];
    int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16 + lane / 4;
    int head = (int)blockIdx.y, block = (int)blockIdx.x;

    int64_t key_row, tiles = WINDOW ? (t.length + TILE - 1) / TILE : 1, offset = WINDOW ? block % tiles * TILE : 0;
    int keys = t.live_rows, first_entry = 0, last_entry = 0;
    if (WINDOW) {
        key_row = block / tiles * t.length + offset;
        keys = t.length - offset < TILE ? (int)(t.length - offset) : TILE;
    } else {
        key_row = (int64_t)block * t.slot_rows;
        if (entry_begin) {
            first_entry = entry_begin[block];
            last_entry = entry_begin[block + 1];
            if (first_entry == last_entry) return; /* nobody read this slot: there is nothing to add */
        }
    }

    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++)
            barrier_init(&full[i], FILL_ARRIVALS + TILE);
        barrier_init(&k_full, FILL_ARRIVALS);
        barrier_init_done();
    }
    for (int i = threadIdx.x; keys < TILE && i < (TILE - keys) * 2 * TILES * 8; i += WARPGROUP)
        *(uint4 *)(k_tiles + i / 8 % (2 * TILES) * TILE_BYTES + (keys + i / 8 / (2 * TILES)) * 128 + i % 8 * 16) =
            make_uint4(0, 0, 0, 0);
    fence_async();
    __syncthreads();

    /* Window: the box is 64 rows, so rows behind a sequence's end come too; they are masked. */
    fill_begin(&k_full, 2 * TILES * (WINDOW ? TILE : keys) * 128);
    for (int i = 0; i < TILES; i++) {
        tile_copy(k_tiles + i * TILE_BYTES, k_map, head * DIM + i * TILE, (int)key_row, &k_full);
        tile_copy(v_tiles + i * TILE_BYTES, v_map, head * DIM + i * TILE, (int)key_row, &k_full);
    }
    fill_end(&k_full);
    entry_cursor cursor;
    cursor.begin(entries, first_entry, last_entry);
    if (WINDOW) {
        int64_t last = offset + TILE - 1 + t.window < t.length - 1 ? offset + TILE - 1 + t.window : t.length - 1;
        cursor.now = {(int)key_row, (int)(last - offset + 1), 1.0f, 0};
    } else if (!entry_begin) {
        cursor.now = {block * t.positions, t.positions, 1.0f, 0};
    }
    auto fill = [&](int stage) {
        uint8_t *to = stages + stage * memory::STAGE_BYTES;
        if (threadIdx.x == 0) entry[stage] = cursor.now;
        fill_begin(&full[stage], memory::STAGE_BYTES);
        for (int i = 0; i < TILES; i++) {
            tile_copy(to + i * TILE_BYTES, q_map, head * DIM + i * TILE, cursor.now.row, &full[stage]);
            tile_copy(to + (TILES + i) * TILE_BYTES, dout_map, head * DIM + i * TILE, cursor.now.row, &full[stage]);
        }
        fill_end(&full[stage]);
        if (threadIdx.x < TILE) {
            int64_t row = (int64_t)cursor.now.row + threadIdx.x;
            copy8(&stats[stage][threadIdx.x], stat + stat_index(t, head, cursor.now.place, row < t.n ? row : t.n - 1),
                  row < t.n);
            barrier_arrive_copies(&full[stage]);
        }
        cursor.advance();
    };
    int filled = 0;
    for (; filled < STAGES && cursor.now.rows > 0; filled++)
        fill(filled);

    float to_log2 = t.scale * ATTEND_LOG2E, slope = WINDOW ? window_slope(t, head) : 0.0f;
    float s[32], dp[32], sum_k[32 * TILES], sum_v[32 * TILES];
    uint32_t p[16], ds[16];
#pragma unroll
    for (int i = 0; i < 32 * TILES; i++)
        sum_k[i] = sum_v[i] = 0.0f;
    auto multiply = [&](int item) {
        const uint8_t *from = stages + item % STAGES * memory::STAGE_BYTES;
        barrier_wait(&full[item % STAGES], item / STAGES & 1);
        pin(s);
        pin(dp);
        products_begin();
        multiply_tiles<TILES>(s, k_tiles, from);
        multiply_tiles<TILES>(dp, v_tiles, from + TILES * TILE_BYTES);
        products_commit();
    };
    barrier_wait(&k_full, 0);
    auto add_gradients =
        [&](int item) { /* scores of an item -> P^T, dS^T; dV += P^T dO and dK += dS^T Q begin */
                        int stage = item % STAGES;
                        const uint8_t *from = stages + stage * memory::STAGE_BYTES;
                        place_entry now = entry[stage];
                        /* Window: query column c, key row r: distance behind + c - r. */
                        int behind = WINDOW ? now.row - (int)key_row : 0;
                        bool masked = now.rows < TILE || (WINDOW && (behind == 0 || behind + TILE - 1 > t.window));
                        products_wait<0>();
                        pin(s);
                        pin(dp);
                        float first = WINDOW ? slope * (float)(row0 - behind - lane % 4 * 2) : 0.0f;
                        auto gradients = [&](auto some_masked) {
                            constexpr bool MASKED = decltype(some_masked)::value;
#pragma unroll
                            for (int i = 0; i < 32; i += 4) {
                                int column = i * 2 + lane % 4 * 2;
                                float4 st =
                                    *(const float4 *)&stats[stage][column]; /* two queries: log2 of the sum, delta */
                                float bias0 = WINDOW ? fmaf(slope, -2.0f * i, first) : 0.0f,
                                      bias1 = WINDOW ? bias0 - slope : 0.0f;
                                float less0 = bias0 - st.x, less1 = bias1 - st.z, eight = 8.0f * slope;
                                float x[4] = {power2(fmaf(s[i], to_log2, less0)),
                                              power2(fmaf(s[i + 1], to_log2, less1)),
                                              power2(fmaf(s[i + 2], to_log2, WINDOW ? less0 + eight : less0)),
                                              power2(fmaf(s[i + 3], to_log2, WINDOW ? less1 + eight : less1))};
#pragma unroll
                                for (int j = 0; j < 4; j++) {
                                    bool seen = true;
                                    if (MASKED) {
                                        int distance = behind + column + j % 2 - row0 - j / 2 * 8;
                                        seen = column + j % 2 < now.rows &&
                                               (!WINDOW || (distance >= 0 && distance <= t.window));
                                    }
                                    float q = WINDOW ? x[j] : x[j] * now.weight;
                                    s[i + j] = seen ? q : 0.0f;
                                    dp[i + j] = seen ? q * (dp[i + j] - (j % 2 ? st.w : st.y)) : 0.0f;
                                }
                            }
                        };
                        if (masked) {
                            rarely();
                            gradients(std::true_type{});
                        } else {
                            gradients(std::false_type{});
                        }
                        pack(p, s);
                        pack(ds, dp);
                        pin(p);
                        pin(ds);
                        pin(sum_k);
                        pin(sum_v);
                        products_begin();
                        multiply_columns<TILES>(sum_v, p, from + TILES * TILE_BYTES);
                        multiply_columns<TILES>(sum_k, ds, from);
                        products_commit();
        };
    auto release = [&](int item) {
        pin(sum_k);
        pin(sum_v);
        pin(p);
        pin(ds);
        __syncthreads();
        if (cursor.now.rows > 0) {
            fill(item % STAGES);
            filled++;
        }
    };
    if (filled) {
        int item = 0;
        multiply(0);
        for (; item + 1 < filled; item++) {
            add_gradients(item);
            products_wait<0>();
            release(item);
            multiply(item + 1);
        }
        add_gradients(item);
        products_wait<0>();
        pin(sum_k);
        pin(sum_v);
    }
    store_gradient<TILES>(sum_k, t.scale, dk, key_row, head * DIM, keys, accumulate);
    store_gradient<TILES>(sum_v, 1.0f, dv, key_row, head * DIM, keys, accumulate);
}
