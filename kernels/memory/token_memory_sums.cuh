/* token_memory_sums.cuh -- gradients from tiles of u (token_memory_tiles.cuh): a group of 128 threads has 64 owners
 * (rows, or keys) and TILES * 64 columns of their sums in registers; tiles of u and of partners (keys, or rows) pass
 * through a ring.
 *
 *   dstates += 2/tau (u keys - s sum u)        dkeys += 2/tau (u^T states - k sum u)
 *
 * The slices of columns of one owner read the same u; all slices together read the partners once. */
#pragma once
#include "kernels/memory/token_memory_tiles.cuh"

/* Iterates over the row tiles that read a key tile: `index` of u, `row` the first. */
template <bool PAST> struct reader_walk {
    const memory_tiles_task &t;
    const int32_t *reader;
    int32_t at, end;        /* slots: readers of the slot, in this launch's blocks */
    int sub, slot_tiles;
    int64_t row, last_row, index;
    int64_t tile, last_tile, key_tile; /* own past */

    __device__ __forceinline__ bool next() {
        if (PAST) {
            if (tile >= last_tile) return false;
            memory_row_tile r = memory_past_rows(t.v, tile);
            row = r.row;
            index = (tile - t.first) * t.row_stride + key_tile - memory_past_low(t.v, r.position);
            tile++;
            return true;
        }
        row += TILE, index += t.row_stride;
        while (row >= last_row) {
            if (at >= end) return false;
            int64_t block = reader[at] / t.v.k;
            row = t.v.row_begin[block], last_row = t.v.row_begin[block + 1];
            index = (block - t.first) * t.row_tiles * t.row_stride + (int64_t)(reader[at] % t.v.k) * slot_tiles + sub;
            at++;
        }
        return true;
    }
};

/* Entries of a slot in the blocks first .. first+groups-1, in rising order. */
static __device__ __forceinline__ int32_t first_reader(const int32_t *reader, int32_t begin, int32_t end,
                                                       int64_t from) {
    while (begin < end) {
        int32_t middle = (begin + end) / 2;
        if (reader[middle] < from) begin = middle + 1;
        else end = middle;
    }
    return begin;
}

struct sum_shared {
    uint64_t full[SUM_STAGES], unused;
    memory_slot_list list;
};

template <int TILES> struct sum_group {
    static constexpr int STAGE_BYTES = (1 + TILES) * TILE_BYTES;
    const memory_tiles_task &t;
    sum_shared &sh;
    const tile_matrix &partner;
    uint8_t *ring;
    int column; /* the first */
    unsigned filled, used;
    float sum[32 * TILES], all[2]; /* all: of u, of this thread's two owners (KEYS) */

    __device__ __forceinline__ void fill(int64_t index, int row) {
        int stage = (int)(filled % SUM_STAGES);
        uint8_t *to = ring + stage * STAGE_BYTES;
        fill_begin(&sh.full[stage], STAGE_BYTES);
        line_copy<TILE_BYTES>(to, t.u + index * TILE_BYTES, &sh.full[stage]);
        for (int i = 0; i < TILES; i++)
            tile_copy(to + (1 + i) * TILE_BYTES, partner, column + i * TILE, row, &sh.full[stage]);
        fill_end(&sh.full[stage]);
        filled++;
    }
    template <bool KEYS> __device__ __forceinline__ void consume() {
        int stage = (int)(used % SUM_STAGES), lane = threadIdx.x % 32;
        uint8_t *tile = ring + stage * STAGE_BYTES;
        uint32_t a[16];
        barrier_wait(&sh.full[stage], used / SUM_STAGES & 1);
        if (KEYS) {
#pragma unroll
            for (int s = 0; s < 4; s++)
                load_matrices<true>(a + 4 * s, tile, s * 16 + lane / 16 * 8 + lane % 8,
                                    (int)threadIdx.x / 32 * 2 + lane / 8 % 2);
#pragma unroll
            for (int i = 0; i < 16; i++) {
                float2 x = two_floats(*(const __nv_bfloat162 *)&a[i]);
                all[i % 2] += x.x + x.y;
            }
        } else {
            load_fragments<1>(a, tile);
        }
        pin(a);
        pin(sum);
        products_begin();
        multiply_columns<TILES>(sum, a, tile + TILE_BYTES);
        products_commit();
        products_wait<0>();
        pin(sum);
        __syncthreads();
        used++;
    }
    /* All items of a walk, whose current item is now_index(walk), now_row(walk). */
    template <bool KEYS, typename WALK, typename ITEM> __device__ __forceinline__ void run(WALK &walk, ITEM item) {
#pragma unroll
        for (int i = 0; i < 32 * TILES; i++)
            sum[i] = 0.0f;
        all[0] = all[1] = 0.0f;
        bool more = walk.next();
        for (int i = 0; more && i < SUM_STAGES; i++) {
            item(*this, walk);
            more = walk.next();
        }
        while (used != filled) {
            consume<KEYS>();
            if (!more) continue;
            item(*this, walk);
            more = walk.next();
        }
    }
    /* to += factor * (sum - own * all) of `count` owners; own.data NULL: without. */
    __device__ __forceinline__ void store(rows<float> to, rows<const bf16> own, int64_t first, int count,
                                          float factor) {
        int lane = threadIdx.x % 32;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int row = (int)threadIdx.x / 32 * 16 + lane / 4 + 8 * h;
            float of_row = row_sum(all[h]);
            if (row >= count) continue;
#pragma unroll
            for (int i = 0; i < 8 * TILES; i++) {
                int c = column + i * 8 + lane % 4 * 2;
                float2 x = make_float2(sum[4 * i + 2 * h], sum[4 * i + 2 * h + 1]), k = make_float2(0.0f, 0.0f);
                if (own.data) k = two_floats(*(const __nv_bfloat162 *)(own[first + row] + c));
                float2 *at = (float2 *)(to[first + row] + c), old = *at;
                *at = make_float2(fmaf(factor, x.x - k.x * of_row, old.x), fmaf(factor, x.y - k.y * of_row, old.y));
            }
        }
    }
};

/* dstates. grid: blocks (row tiles of the past), slices of columns. */
template <int TILES, bool PAST>
static __global__ void __launch_bounds__(WARPGROUP, 2)
    sum_states(const __grid_constant__ tile_matrix keys, const __grid_constant__ memory_tiles_task t,
               rows<float> dstates) {
    extern __shared__ uint8_t raw[];
    __shared__ sum_shared sh;
    fill_barriers_init(sh.full, &sh.unused);
    int64_t block = t.first + blockIdx.x;
    if (!PAST) memory_list(sh.list, t.v, block, 0, t.v.k);
    __syncthreads();
    sum_group<TILES> g = {t, sh, keys, memory_aligned(raw), (int)blockIdx.y * TILES * TILE, 0, 0, {}, {}};
    auto item = [](sum_group<TILES> &to, memory_walk<PAST> &walk) { to.fill(walk.now.index, walk.now.key_row); };
    float factor = 2.0f / *t.v.tau;
    if constexpr (PAST) {
        memory_row_tile r = memory_past_rows(t.v, block);
        memory_walk<true> walk = memory_walk_past(t, r, blockIdx.x, -1);
        g.template run<false>(walk, item);
        g.store(dstates, {}, r.row, r.rows, factor);
    } else {
        int64_t begin = t.v.row_begin[block], end = t.v.row_begin[block + 1];
        for (int64_t row = begin, index = (int64_t)blockIdx.x * t.row_tiles * t.row_stride; row < end;
             row += TILE, index += t.row_stride) {
            memory_walk<false> walk = {};
            walk.list = &sh.list, walk.slot_rows = t.v.slot_rows, walk.slot_tiles = (t.v.slot_rows + TILE - 1) / TILE;
            walk.index = index;
            g.template run<false>(walk, item);
            g.store(dstates, {}, row, end - row < TILE ? (int)(end - row) : (int)TILE, factor);
        }
    }
}

struct sum_keys_task {
    const int32_t *begin, *reader; /* of slots */
    int64_t groups;               /* blocks, or row tiles of the past, of this launch */
    int64_t low, key_tiles;       /* own past: the first key tile of a sequence, and how many */
};

/* dkeys, or dpast. grid: key tiles, slices of columns. */
template <int TILES, bool PAST>
static __global__ void __launch_bounds__(WARPGROUP, 2)
    sum_keys(const __grid_constant__ tile_matrix states, const __grid_constant__ memory_tiles_task t, rows<float> to,
             rows<const bf16> keys, sum_keys_task s) {
    extern __shared__ uint8_t raw[];
    __shared__ sum_shared sh;
    reader_walk<PAST> walk = {t};
    int64_t first_key;
    int count;
    if (PAST) {
        int64_t sequence = blockIdx.x / s.key_tiles, tiles = (t.v.length + TILE - 1) / TILE,
                end = t.v.first + t.v.length;
        walk.key_tile = s.low + blockIdx.x % s.key_tiles;
        int64_t p = walk.key_tile * TILE, after = p + 1 > t.v.first ? (p + 1 - t.v.first) / TILE : 0;
        /* The last row that reads position p + 63, and the first tile with a row after position p. */
        int64_t last = (p + TILE - 1 + t.v.limit - t.v.first) / TILE + 1;
        last = (p + TILE - 1 + t.v.limit < t.v.first) ? 0 : last < tiles ? last : tiles;
        walk.tile = sequence * tiles + after, walk.last_tile = sequence * tiles + last;
        if (walk.tile < t.first) walk.tile = t.first;
        if (walk.last_tile > t.first + s.groups) walk.last_tile = t.first + s.groups;
        first_key = sequence * t.v.ring + p;
        count = end - p < TILE ? (int)(end - p) : (int)TILE;
        if (p + 1 >= end || walk.tile >= walk.last_tile) return; /* no row reads the last position */
    } else {
        walk.slot_tiles = (t.v.slot_rows + TILE - 1) / TILE;
        int64_t slot = blockIdx.x / walk.slot_tiles;
        walk.sub = (int)(blockIdx.x % walk.slot_tiles), walk.reader = s.reader;
        walk.at = first_reader(s.reader, s.begin[slot], s.begin[slot + 1], t.first * t.v.k);
        walk.end = first_reader(s.reader, walk.at, s.begin[slot + 1], (t.first + s.groups) * t.v.k);
        first_key = slot * t.v.slot_rows + walk.sub * TILE;
        count = t.v.slot_rows - walk.sub * TILE < TILE ? t.v.slot_rows - walk.sub * TILE : (int)TILE;
        if (walk.at >= walk.end) return;
    }
    fill_barriers_init(sh.full, &sh.unused);
    __syncthreads();
    sum_group<TILES> g = {t, sh, states, memory_aligned(raw), (int)blockIdx.y * TILES * TILE, 0, 0, {}, {}};
    g.template run<true>(walk, [](sum_group<TILES> &group, reader_walk<PAST> &w) { group.fill(w.index, (int)w.row); });
    g.store(to, keys, first_key, count, 2.0f / *t.v.tau);
}

/* dstates -= 2/tau s sum u, and the row's moment, from all parts. One warp for each row. */
static __global__ void __launch_bounds__(256) sum_rows(rows<float> dstates, float *moment, rows<const bf16> states,
                                                       const float2 *sums, int parts, memory_view v) {
    int64_t row = (int64_t)blockIdx.x * 8 + threadIdx.x / 32;
    if (row >= v.n) return;
    float2 all = make_float2(0.0f, 0.0f);
    for (int i = 0; i < parts; i++)
        all.x += sums[row * parts + i].x, all.y += sums[row * parts + i].y;
    float factor = 2.0f / *v.tau * all.x;
    for (int c = threadIdx.x % 32; dstates.data && c < v.d; c += 32)
        dstates[row][c] -= factor * to_float(states[row][c]);
    if (threadIdx.x % 32 == 0) moment[row] = all.y;
}
static __global__ void __launch_bounds__(256) parts_clear(memory_part *part, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < n) part[i] = memory_part_none();
}
