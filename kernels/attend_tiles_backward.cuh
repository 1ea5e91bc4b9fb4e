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
 * dkv holds no more than S^T and dP^T of one tile beside its sums: P^T and dS^T are packed into dP^T's registers, so
 * that the next tile's S^T begins before dV and dK of this one are done. One thread alone follows the list and copies;
 * what it reads of the list is used a tile later.
 *
 * Measured on an H200 (2026-11-22, tests/device/bench_attention.cu; bf16 product on the card: 726 to 780 TFLOP/s):
 *   65536 rows, 12 heads of 64, 8 slots of 63 keys    0.90 ms, 285 TFLOP/s: dq 0.40, the rest dkv; float32 dK, dV 0.93
 * ms the same with 16 heads                            1.26 ms, 272 TFLOP/s window 512, 4 x 16640 rows, 12 heads of 64
 * 0.99 ms, 261 TFLOP/s Bound by latency: 47 % (dq) and 30 % (dkv) of issue slots are busy, matrix units 41 and 42 %; a
 * third of a dkv group's time goes to its beginning and its end. Registers allow three groups a multiprocessor. Tried
 * and lost: dkv with the next tile's S^T and dP^T both begun early (201 registers, two groups: 0.70 ms for dkv); dq
 * with four groups (spills: 0.50 ms); as many dkv groups as the card holds, each taking key tiles from a counter with
 * the next tile's keys on their way (two stages only, spills: 1.03 ms in all). */
#pragma once
#include "kernels/attend_tiles_keys.cuh"
#include <type_traits>

/* Kept for dkv, for each query row, head and place: {log2(weight) - log2 of the softmax' sum, delta}. Rows of a block
 * (a sequence) lie at an even place, so that 64 of them are one copy; a plane of t.stat_rows rows for each head and
 * place. */
static __host__ __device__ __forceinline__ int64_t stat_first(int64_t begin, int64_t block) {
    return (begin + 2 * block) / 2 * 2;
}

/* What dkv needs to know of an entry of the inverse list, side by side. */
struct place_entry {
    int row, rows, spare;
    uint32_t stat; /* half the index of its first row in the head's planes */
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
    entries[j] = {(int)begin, (int)(block_begin(t, block + 1) - begin), 0,
                  (uint32_t)((i * t.stat_rows + stat_first(begin, block)) / 2)};
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

/* Runs over the query tiles that read one key tile: entries of the inverse list, each cut into tiles. The entry after
 * the present one is already on its way. */
struct entry_cursor {
    const place_entry *entries;
    int next, end;
    place_entry now, ahead;

    /* As one thread's own: a value that the compiler knew to be all threads' would be waited for at once. */
    static __device__ __forceinline__ place_entry read(const place_entry *p) {
        place_entry e;
        asm volatile("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(e.row), "=r"(e.rows), "=r"(e.spare), "=r"(e.stat)
                     : "l"(p));
        return e;
    }
    __device__ __forceinline__ void begin(const place_entry *list, int first, int last) {
        entries = list;
        next = first;
        end = last;
        now = ahead = {0, 0, 0, 0};
        if (next < end) ahead = read(entries + next);
        settle();
    }
    /* Moves on to an entry with rows; `now.rows` is 0 at the end. */
    __device__ __forceinline__ void settle() {
        while (now.rows <= 0 && next < end) {
            now = ahead;
            next++;
            if (next < end) ahead = read(entries + next);
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

/* Adds d * factor to `count` rows, or overwrites them. What stands there is read all at once, 64 columns at a time. */
template <typename G> struct standing {
    using pair = typename gradient_pair<G>::type;
    pair old[16];
    G *at;
    int64_t stride;
    int first, count;

    __device__ __forceinline__ void read(rows<G> from, int64_t row, int column, int rows_here, bool accumulate) {
        int lane = threadIdx.x % 32;
        first = threadIdx.x / 32 * 16 + lane / 4;
        count = rows_here;
        stride = from.stride;
        at = from[row + first] + column + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < 16; i++)
            old[i] = accumulate && first + i / 8 * 8 < count ? *(const pair *)(at + i / 8 * 8 * stride + i % 8 * 8)
                                                             : gradient_pair<G>::of(0.0f, 0.0f);
    }
    __device__ __forceinline__ void add(const float *d, float factor) {
#pragma unroll
        for (int i = 0; i < 16; i++) {
            int from = i % 8 * 4 + i / 8 * 2;
            float2 sum = as_floats(old[i]);
            if (first + i / 8 * 8 < count)
                *(pair *)(at + i / 8 * 8 * stride + i % 8 * 8) =
                    gradient_pair<G>::of(fmaf(d[from], factor, sum.x), fmaf(d[from + 1], factor, sum.y));
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
    __shared__ bool some;
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
            barrier_init(&full[i], FILL_ARRIVALS);
        barrier_init(&k_full, FILL_ARRIVALS);
        barrier_init_done();
    }
    if (!HOPPER) __syncthreads();
    /* Window: the box is 64 rows, so rows behind a sequence's end come too; they are masked. */
    fill_begin(&k_full, 2 * TILES * (WINDOW ? TILE : keys) * 128);
    for (int i = 0; i < TILES; i++) {
        tile_copy(k_tiles + i * TILE_BYTES, k_map, head * DIM + i * TILE, (int)key_row, &k_full);
        tile_copy(v_tiles + i * TILE_BYTES, v_map, head * DIM + i * TILE, (int)key_row, &k_full);
    }
    fill_end(&k_full);
    entry_cursor cursor;
    bool copies = !HOPPER || threadIdx.x == 0; /* this thread: the others need not know what comes */
    if (copies) cursor.begin(entries, first_entry, last_entry);
    if (WINDOW) {
        int64_t last = offset + TILE - 1 + t.window < t.length - 1 ? offset + TILE - 1 + t.window : t.length - 1;
        cursor.now = {(int)key_row, (int)(last - offset + 1), 0,
                      (uint32_t)((stat_first(block / tiles * t.length, block / tiles) + offset) / 2)};
    } else if (!entry_begin) {
        int64_t begin = block_begin(t, block);
        cursor.now = {(int)begin, t.positions, 0, (uint32_t)(stat_first(begin, block) / 2)};
    }
    stat += (int64_t)head * t.k * t.stat_rows;
    auto fill = [&](int stage) {
        if (!copies || cursor.now.rows == 0) return;
        uint8_t *to = stages + stage * memory::STAGE_BYTES;
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
    for (int i = threadIdx.x; keys < TILE && i < (TILE - keys) * 2 * TILES * 8; i += WARPGROUP)
        *(uint4 *)(k_tiles + i / 8 % (2 * TILES) * TILE_BYTES + (keys + i / 8 / (2 * TILES)) * 128 + i % 8 * 16) =
            make_uint4(0, 0, 0, 0);
    fence_async();
    for (int i = 0; accumulate && threadIdx.x < keys && i < DIM; i += 128 / (int)sizeof(G)) {
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
        int behind = WINDOW ? now.row - (int)key_row : 0;
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
    standing<G> old_v, old_k;
    old_v.read(dv, key_row, head * DIM, keys, accumulate);
    if (sizeof(G) == 2) old_k.read(dk, key_row, head * DIM, keys, accumulate);
    products_wait<0>();
    pin(sum_k);
    pin(sum_v);
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        if (i) old_v.read(dv, key_row, head * DIM + i * TILE, keys, accumulate);
        old_v.add(sum_v + i * 32, 1.0f);
        if (i || sizeof(G) != 2) old_k.read(dk, key_row, head * DIM + i * TILE, keys, accumulate);
        old_k.add(sum_k + i * 32, t.scale);
    }
}
