/* attend_tiles_dkv.cuh -- backward's second pass: dK and dV of a key tile, over the query tiles that read it.
 *
 * No more than S^T and dP^T of one tile is held beside the sums: P^T and dS^T are packed into dP^T's registers, so that
 * the next tile's S^T begins before dV and dK of this one are done. One thread alone follows the list and copies. A
 * list is fetched at once when a group begins, and what stands in bf16 dK and dV comes as one tile more, behind the
 * last: together they took a seventh off the pass (0.51 to 0.44 ms, of 65536 rows, 12 heads of 64, 8 slots).
 *
 * Tried and lost: the next tile's S^T and dP^T both begun early (201 registers, two groups: 0.70 ms); as many groups as
 * the card holds, each taking key tiles from a counter with the next tile's keys on their way (two stages only, spills:
 * 1.03 ms in all); the second and third copy behind the first products (2 % of all); a stage given back by each warp
 * at a barrier of its own instead of by all threads at once (7 % of all, though no warp waits for another then; dq and
 * the forward pass 10 %). */
#pragma once
#include "kernels/attend_tiles_backward.cuh"
#include <type_traits>

enum { ENTRIES_NEAR = WARPGROUP }; /* entries of a list that are fetched at once, into shared memory */

/* Runs over the query tiles that read one key tile: entries of the inverse list, each cut into tiles. */
struct entry_cursor {
    const place_entry *near, *entries;
    int first, next, count;
    place_entry now;

    /* Moves on to an entry with rows; `now.rows` is 0 at the end. */
    __device__ __forceinline__ void settle() {
        while (now.rows <= 0 && next < count) {
            now = next < ENTRIES_NEAR ? near[next] : entries[first + next];
            next++;
        }
        if (now.rows < 0) now.rows = 0;
    }
    __device__ __forceinline__ void advance() {
        now.row += TILE;
        now.rows -= TILE;
        now.stat += TILE / 2;
        settle();
    }
};

/* float32: adds d * factor to `count` rows, or overwrites them. What stands there is read all at once, 64 columns at a
 * time. */
struct standing {
    float2 old[16];
    float *at;
    int64_t stride;
    int first, count;

    __device__ __forceinline__ void read(rows<float> from, int64_t row, int column, int rows_here, bool accumulate) {
        int lane = threadIdx.x % 32;
        first = threadIdx.x / 32 * 16 + lane / 4;
        count = rows_here;
        stride = from.stride;
        at = from[row + first] + column + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < 16; i++)
            old[i] = accumulate && first + i / 8 * 8 < count ? *(const float2 *)(at + i / 8 * 8 * stride + i % 8 * 8)
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

template <int DIM, int STAGES> struct dkv_memory {
    static constexpr int TILES = DIM / TILE, STAGE_BYTES = 2 * TILES * TILE_BYTES,
                         BYTES = 1024 + 2 * TILES * TILE_BYTES + STAGES * STAGE_BYTES;
};

/* What a stage holds besides its tiles. */
struct staged_entry {
    int row, rows;
    bool last;
};

template <bool WINDOW, typename G, int DIM, int STAGES, int RESIDENT>
static __global__ void __launch_bounds__(WARPGROUP, RESIDENT)
    dkv_tiles(const __grid_constant__ tile_matrix q_map, const __grid_constant__ tile_matrix dout_map,
              const __grid_constant__ tile_matrix k_map, const __grid_constant__ tile_matrix v_map,
              const __grid_constant__ tile_matrix dk_map, const __grid_constant__ tile_matrix dv_map,
              const __grid_constant__ attend_task t, rows<G> dk, rows<G> dv, const int32_t *entry_begin,
              const place_entry *entries, const float2 *stat, bool accumulate) {
    using memory = dkv_memory<DIM, STAGES>;
    constexpr int TILES = memory::TILES;
    extern __shared__ uint8_t raw[];
    uint8_t *k_tiles = raw + (1024 - shared_address(raw) % 1024) % 1024, *v_tiles = k_tiles + TILES * TILE_BYTES;
    uint8_t *stages = v_tiles + TILES * TILE_BYTES;
    __shared__ uint64_t full[STAGES], k_full;
    __shared__ alignas(16) float2 stats[STAGES][TILE];
    __shared__ staged_entry entry[STAGES];
    __shared__ place_entry near[ENTRIES_NEAR];
    __shared__ bool some;
    int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16 + lane / 4;
    int head = (int)blockIdx.y, block = (int)blockIdx.x;

    int key_row; /* of fewer than 2^31: see tile_matrix_of */
    int64_t tiles = WINDOW ? (t.length + TILE - 1) / TILE : 1, offset = WINDOW ? block % tiles * TILE : 0;
    int keys = t.live_rows, first_entry = 0, last_entry = 0;
    if (WINDOW) {
        key_row = (int)(block / tiles * t.length + offset);
        keys = t.length - offset < TILE ? (int)(t.length - offset) : TILE;
    } else {
        key_row = block * t.slot_rows;
        if (entry_begin) {
            first_entry = entry_begin[block];
            last_entry = entry_begin[block + 1];
            if (first_entry == last_entry) return; /* nobody read this slot: there is nothing to add */
        }
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++)
            barrier_init(&full[i], FILL_ARRIVALS);
        barrier_init(&k_full, FILL_ARRIVALS);
        barrier_init_done();
    }
    if (!HOPPER) __syncthreads();
    /* Window: the box is 64 rows, so rows behind a sequence's end come too; they are masked. */
    fill_begin(&k_full, 2 * TILES * (WINDOW ? TILE : keys) * 128);
    for (int i = 0; i < TILES; i++) {
        tile_copy(k_tiles + i * TILE_BYTES, k_map, head * DIM + i * TILE, key_row, &k_full);
        tile_copy(v_tiles + i * TILE_BYTES, v_map, head * DIM + i * TILE, key_row, &k_full);
    }
    fill_end(&k_full);
    if ((int)threadIdx.x < last_entry - first_entry) near[threadIdx.x] = entries[first_entry + threadIdx.x];
    for (int i = threadIdx.x; keys < TILE && i < (TILE - keys) * 2 * TILES * 8; i += WARPGROUP)
        *(uint4 *)(k_tiles + i / 8 % (2 * TILES) * TILE_BYTES + (keys + i / 8 / (2 * TILES)) * 128 + i % 8 * 16) =
            make_uint4(0, 0, 0, 0);
    fence_async();
    if (!WINDOW) __syncthreads();
    entry_cursor cursor = {near, entries, first_entry, 0, last_entry - first_entry, {0, 0, 0, 0}};
    bool copies = !HOPPER || threadIdx.x == 0; /* this thread: the others need not know what comes */
    if (copies) cursor.settle();
    if (WINDOW) {
        int64_t last = offset + TILE - 1 + t.window < t.length - 1 ? offset + TILE - 1 + t.window : t.length - 1;
        cursor.now = {key_row, (int)(last - offset + 1), 0,
                      (uint32_t)((stat_first(block / tiles * t.length, block / tiles) + offset) / 2)};
    } else if (!entry_begin) {
        int64_t begin = block_begin(t, block);
        cursor.now = {(int)begin, t.positions, 0, (uint32_t)(stat_first(begin, block) / 2)};
    }
    stat += (int64_t)head * t.k * t.stat_rows;
    /* bf16: what stands in dK and dV comes as one item more, while the last ones are computed. */
    constexpr bool NARROW = sizeof(G) == 2;
    bool wanted = NARROW && !WINDOW && accumulate && copies && cursor.now.rows > 0;
    auto fill = [&](int stage) {
        if (!copies) return;
        uint8_t *to = stages + stage * memory::STAGE_BYTES;
        if (cursor.now.rows == 0) {
            if (!wanted) return;
            wanted = false;
            fill_begin(&full[stage], 2 * TILES * keys * 128);
            for (int i = 0; i < TILES; i++) {
                tile_copy(to + i * TILE_BYTES, dk_map, head * DIM + i * TILE, key_row, &full[stage]);
                tile_copy(to + (TILES + i) * TILE_BYTES, dv_map, head * DIM + i * TILE, key_row, &full[stage]);
            }
            fill_end(&full[stage]);
            return;
        }
        place_entry of = cursor.now;
        cursor.advance();
        if (threadIdx.x == 0) entry[stage] = {of.row, of.rows, cursor.now.rows == 0};
        fill_begin(&full[stage], memory::STAGE_BYTES + TILE * (int)sizeof(float2));
        for (int i = 0; i < TILES; i++) {
            tile_copy(to + i * TILE_BYTES, q_map, head * DIM + i * TILE, of.row, &full[stage]);
            tile_copy(to + (TILES + i) * TILE_BYTES, dout_map, head * DIM + i * TILE, of.row, &full[stage]);
        }
        line_copy<TILE *(int)sizeof(float2)>(stats[stage], stat + 2 * (int64_t)of.stat, &full[stage]);
        fill_end(&full[stage]);
    };
    if (threadIdx.x == 0) some = cursor.now.rows > 0;
    for (int i = 0; i < STAGES; i++)
        fill(i);
    for (int i = 0; !NARROW && accumulate && threadIdx.x < keys && i < DIM; i += 128 / (int)sizeof(G)) {
        fetch_ahead(dk[key_row + threadIdx.x] + head * DIM + i);
        fetch_ahead(dv[key_row + threadIdx.x] + head * DIM + i);
    }
    __syncthreads();

    float to_log2 = t.scale * ATTEND_LOG2E, slope = WINDOW ? window_slope(t, head) : 0.0f;
    float s[32], dp[32], sum_k[32 * TILES], sum_v[32 * TILES];
#pragma unroll
    for (int i = 0; i < 32 * TILES; i++)
        sum_k[i] = sum_v[i] = 0.0f;
    /* S^T = K Q^T of an item begins. */
    auto multiply_queries = [&](int item) {
        barrier_wait(&full[item % STAGES], item / STAGES & 1);
        pin(s);
        products_begin();
        multiply_tiles<TILES>(s, k_tiles, stages + item % STAGES * memory::STAGE_BYTES);
        products_commit();
    };
    /* dP^T = V dO^T begins. */
    auto multiply_gradients = [&](int item) {
        pin(dp);
        products_begin();
        multiply_tiles<TILES>(dp, v_tiles, stages + item % STAGES * memory::STAGE_BYTES + TILES * TILE_BYTES);
        products_commit();
    };
    /* Scores of an item -> P^T, dS^T. */
    auto gradients = [&](int stage, int behind, int rows_here, auto some_masked) {
        constexpr bool MASKED = decltype(some_masked)::value;
        /* Window: query column c, key row r: distance behind + c - r. */
        float first = WINDOW ? slope * (float)(row0 - behind - lane % 4 * 2) : 0.0f;
        uint32_t hold[2];
#pragma unroll
        for (int i = 0; i < 32; i += 4) {
            int column = i * 2 + lane % 4 * 2;
            float4 st = *(const float4 *)&stats[stage][column]; /* two queries: what to add, delta */
            float bias0 = WINDOW ? fmaf(slope, -2.0f * i, first) : 0.0f, bias1 = WINDOW ? bias0 - slope : 0.0f;
            float add0 = WINDOW ? bias0 + st.x : st.x, add1 = WINDOW ? bias1 + st.z : st.z, eight = 8.0f * slope;
            float x[4] = {power2(fmaf(s[i], to_log2, add0)), power2(fmaf(s[i + 1], to_log2, add1)),
                          power2(fmaf(s[i + 2], to_log2, WINDOW ? add0 + eight : add0)),
                          power2(fmaf(s[i + 3], to_log2, WINDOW ? add1 + eight : add1))};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                bool seen = true;
                if (MASKED) {
                    int distance = behind + column + j % 2 - row0 - j / 2 * 8;
                    seen = column + j % 2 < rows_here && (!WINDOW || (distance >= 0 && distance <= t.window));
                }
                x[j] = seen ? x[j] : 0.0f;
                dp[i + j] = seen ? x[j] * (dp[i + j] - (j % 2 ? st.w : st.y)) : 0.0f;
            }
            /* Both as fragments of A, in the place of dP^T: s is free for the next item. */
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
    };
    /* dV += P^T dO and dK += dS^T Q begin. */
    auto add_gradients = [&](int item, staged_entry now) {
        int stage = item % STAGES;
        const uint8_t *from = stages + stage * memory::STAGE_BYTES;
        int behind = WINDOW ? now.row - key_row : 0;
        bool masked = now.rows < TILE || (WINDOW && (behind == 0 || behind + TILE - 1 > t.window));
        products_wait<0>();
        pin(s);
        pin(dp);
        if (masked) {
            rarely();
            gradients(stage, behind, now.rows, std::true_type{});
        } else {
            gradients(stage, behind, now.rows, std::false_type{});
        }
        pin(dp);
        pin(sum_k);
        pin(sum_v);
        products_begin();
        multiply_columns<TILES, 0>(sum_v, dp, from + TILES * TILE_BYTES);
        multiply_columns<TILES, 4>(sum_k, dp, from);
        products_commit();
    };
    barrier_wait(&k_full, 0);
    if (!some) return; /* only blocks without rows read this slot: there is nothing to add */
    multiply_queries(0);
    multiply_gradients(0);
    int item = 0;
    staged_entry now = entry[0];
    for (; !now.last; item++) {
        add_gradients(item, now);
        multiply_queries(item + 1);
        now = entry[(item + 1) % STAGES];
        products_wait<1>();
        pin(sum_k);
        pin(sum_v);
        multiply_gradients(item + 1);
        __syncthreads();
        fill(item % STAGES);
    }
    add_gradients(item, now);
    if constexpr (NARROW) {
        int stage = (item + 1) % STAGES;
        uint8_t *tiles = stages + stage * memory::STAGE_BYTES;
        G *to_k = dk[key_row] + head * DIM, *to_v = dv[key_row] + head * DIM;
        products_wait<0>();
        pin(sum_k);
        pin(sum_v);
        if (!WINDOW && accumulate) {
            barrier_wait(&full[stage], (item + 1) / STAGES & 1);
            store_rows<TILES, true>(sum_v, 1.0f, tiles + TILES * TILE_BYTES, to_v, dv.stride, 0, keys);
            store_rows<TILES, true>(sum_k, t.scale, tiles, to_k, dk.stride, 0, keys);
        } else {
            store_rows<TILES>(sum_v, 1.0f, tiles + TILES * TILE_BYTES, to_v, dv.stride, 0, keys);
            store_rows<TILES>(sum_k, t.scale, tiles, to_k, dk.stride, 0, keys);
        }
    } else {
        standing old;
        old.read(dv, key_row, head * DIM, keys, accumulate);
        products_wait<0>();
        pin(sum_k);
        pin(sum_v);
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            if (i) old.read(dv, key_row, head * DIM + i * TILE, keys, accumulate);
            old.add(sum_v + i * 32, 1.0f);
            old.read(dk, key_row, head * DIM + i * TILE, keys, accumulate);
            old.add(sum_k + i * 32, t.scale);
        }
    }
}
