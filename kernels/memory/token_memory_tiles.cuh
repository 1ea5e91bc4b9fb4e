/* token_memory_tiles.cuh -- token memories of bf16 by tensor cores: products of 64 rows and 64 keys.
 *
 *   score_tiles   states [64, d]  x  keys [64, d]^T  ->  distances in registers -> forward: a part of the softmax
 *                 (shared memory)    (ring of stages,                              backward: u, bf16, 8 KiB
 *                                     64 columns each)
 *
 *   sum_tiles     gradients: sums of u * keys over a row's entries (dstates), or of u * states over a key's readers
 *                 (dkeys, dpast). 64 owners and up to 256 columns in registers; tiles of u and of partners in a ring.
 *
 * Bound by memory: forward reads each key once for each block of rows, 2 d bytes for 2 * 64 * d operations; below some
 * 160 rows in a block an H200 waits for keys, not for the tensor cores. So one group of 128 threads for each block is
 * enough, and products wait for their data stage by stage. Backward writes u once (128 bytes for an entry and 64 rows,
 * besides 2 d bytes of its key) instead of computing the products again: 6 d operations instead of 8 d. u is kept in
 * the scratch, for as many blocks at a time as fit.
 *
 * u is rounded to bf16, and its sum is that of the rounded numbers: a gradient is a sum of differences (k - s), whose
 * rounding grows with their distance and not with the norms. */
#pragma once
#include "kernels/cuda/tiles.cuh"
#include "kernels/memory/token_memory_cuda.cuh"

enum { MEMORY_STAGES = 8, MEMORY_WIDTH = 1024, MEMORY_SLOTS_MAX = 1024, SUM_STAGES = 2, SUM_TILES = 4 };

/* d (+)= A B^T of one tile each. */
static __device__ __forceinline__ void memory_product(float (&d)[32], const uint8_t *a, const uint8_t *b, bool add) {
#if HOPPER
#pragma unroll
    for (int s = 0; s < 4; s++)
        product_tiles(d, tile_descriptor(a) + s * 2, tile_descriptor(b) + s * 2, add || s > 0);
#else
    int lane = threadIdx.x % 32;
    for (int i = 0; i < 32 && !add; i++)
        d[i] = 0.0f;
#pragma unroll
    for (int s = 0; s < 4; s++) {
        uint32_t fragment[4];
        load_matrices<false>(fragment, a, threadIdx.x / 32 * 16 + lane % 16, s * 2 + lane / 16);
        product_rows(d, fragment, b, s);
    }
#endif
}

/* 64 keys as 64 rows see them. */
struct memory_tile {
    int key_row, count;
    int64_t index; /* of the tile of u */
    int64_t position; /* own past: of the first key */
};

/* The slots of a block of rows that a group reads: those that are not empty. */
struct memory_slot_list {
    int count;
    int32_t slot[MEMORY_SLOTS_MAX];
    uint16_t order[MEMORY_SLOTS_MAX];
};
/* Called by all threads: slots first .. last-1 of the block. */
static __device__ __forceinline__ void memory_list(memory_slot_list &list, const memory_view &v, int64_t block,
                                                   int first, int last) {
    for (int i = first + (int)threadIdx.x; i < last; i += WARPGROUP)
        list.slot[i - first] = v.slot[block * v.k + i];
    __syncthreads();
    if (threadIdx.x == 0) {
        list.count = 0;
        for (int i = 0; i < last - first; i++) {
            if (list.slot[i] < 0) continue;
            list.slot[list.count] = list.slot[i];
            list.order[list.count++] = (uint16_t)(first + i);
        }
    }
    __syncthreads();
}

/* Iterates over the key tiles that a tile of rows reads. */
template <bool PAST> struct memory_walk {
    const memory_slot_list *list;
    int slot_tiles, slot_rows, item, sub; /* slots */
    int64_t position, high, key_base;     /* own past */
    int64_t index;                        /* of u: of the row tile's first */
    memory_tile now;

    __device__ __forceinline__ bool next() {
        if (PAST) {
            if (position >= high) return false;
            int64_t count = high - position;
            now = {(int)(key_base + position), count < TILE ? (int)count : (int)TILE, index++, position};
            position += TILE;
            return true;
        }
        if (item >= list->count) return false;
        int count = slot_rows - sub * TILE;
        now = {list->slot[item] * slot_rows + sub * TILE, count < TILE ? count : (int)TILE,
               index + (int64_t)list->order[item] * slot_tiles + sub, 0};
        if (++sub == slot_tiles) sub = 0, item++;
        return true;
    }
};

struct memory_tiles_task {
    memory_view v;
    int chunks;      /* of 64 columns */
    int stages;
    int64_t first;   /* block, or row tile of the past, of this launch's first group */
    int part_items;  /* slots, or key tiles of the past, of a part */
    int parts, first_part, all_parts;
    int row_tiles;   /* of a block; 1: past */
    int64_t row_stride; /* tiles of u for each row tile */
    memory_part *part;  /* forward: [n][all_parts] */
    float2 *sums;       /* backward: of u, and of u * distance, [n][all_parts] */
    uint8_t *u;
    token_memory_stats stats;
    const float *dlog_p, *dlse;
};

/* Row tiles of the past: those of one sequence after the other. */
struct memory_row_tile {
    int64_t row, position;
    int rows;
};
static __device__ __forceinline__ memory_row_tile memory_past_rows(const memory_view &v, int64_t index) {
    int64_t tiles = (v.length + TILE - 1) / TILE, sequence = index / tiles, offset = index % tiles * TILE;
    int64_t rows = v.length - offset;
    return {sequence * v.length + offset, v.first + offset, rows < TILE ? (int)rows : (int)TILE};
}
/* The first key tile that rows from `position` on read: tiles begin at multiples of 64 positions, so that rows share
 * them. */
static __device__ __forceinline__ int64_t memory_past_low(const memory_view &v, int64_t position) {
    return position > v.limit ? (position - v.limit) / TILE : 0;
}
/* The key tiles of a row tile of the past; part < 0: all. */
static __device__ __forceinline__ memory_walk<true>
memory_walk_past(const memory_tiles_task &t, const memory_row_tile &r, int64_t group, int part) {
    memory_walk<true> w = {};
    w.position = memory_past_low(t.v, r.position) * TILE, w.high = r.position + r.rows - 1;
    w.key_base = r.row / t.v.length * t.v.ring;
    w.index = group * t.row_stride;
    if (part < 0) return w;
    w.position += (int64_t)part * t.part_items * TILE, w.index += (int64_t)part * t.part_items;
    int64_t end = w.position + (int64_t)t.part_items * TILE;
    if (end < w.high) w.high = end;
    return w;
}

struct score_shared {
    uint64_t full[MEMORY_STAGES], own_full;
    float square[2][TILE];
    int32_t value[2][TILE];
    memory_slot_list list;
};

/* A thread's two rows of a group. */
struct score_rows {
    int row[2];
    float own[2];
    int32_t target[2];
    bool live[2];
};

/* Turns the products d into distances. */
template <bool PAST>
static __device__ __forceinline__ void score_distances(float (&d)[32], const score_shared &sh, int slot,
                                                       const memory_tile &tile, const score_rows &r, int64_t position,
                                                       int limit) {
    int column = (int)(threadIdx.x % 4) * 2;
#pragma unroll
    for (int i = 0; i < 32; i++) {
        int c = i / 4 * 8 + column + i % 2, h = i / 2 % 2;
        float x = memory_distance(r.own[h], sh.square[slot][c], d[i]);
        bool reads = c < tile.count && sh.value[slot][c] >= 0 && r.live[h];
        if (PAST) {
            int64_t back = position + r.row[h] - (tile.position + c);
            reads = reads && back > 0 && back <= limit;
        }
        d[i] = reads ? x : INFINITY;
    }
}

/* Adds a thread's columns of a tile to its parts of two rows. */
static __device__ __forceinline__ void score_absorb(memory_part (&p)[2], const float (&d)[32], const score_shared &sh,
                                                    int slot, const score_rows &r, float to_log2) {
    int column = (int)(threadIdx.x % 4) * 2;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float near = p[h].near;
#pragma unroll
        for (int i = 0; i < 16; i++)
            near = fminf(near, d[i / 2 * 4 + h * 2 + i % 2]);
        float shrink = memory_factor(near, p[h].near, to_log2), origin = near == INFINITY ? 0.0f : near;
        float sum = 0.0f, squares = 0.0f;
        unsigned hits = 0;
#pragma unroll
        for (int i = 0; i < 16; i++) {
            float e = power2((origin - d[i / 2 * 4 + h * 2 + i % 2]) * to_log2);
            sum += e, squares += e * e;
            if (sh.value[slot][i / 2 * 8 + column + i % 2] == r.target[h]) hits |= 1u << i;
        }
        p[h].sum = p[h].sum * shrink + sum, p[h].squares = p[h].squares * (shrink * shrink) + squares, p[h].near = near;
        if (!hits || r.target[h] < 0) continue;
#pragma unroll
        for (int i = 0; i < 16; i++) {
            float x = d[i / 2 * 4 + h * 2 + i % 2];
            if (!(hits >> i & 1) || !(x < INFINITY)) continue;
            if (x < p[h].target_near) {
                p[h].target_sum *= power2((x - p[h].target_near) * to_log2);
                p[h].target_near = x;
            }
            p[h].target_sum += power2((p[h].target_near - x) * to_log2);
        }
    }
}

/* Joins the four lanes that share a row: all get the same bits. */
static __device__ __forceinline__ memory_part score_join(memory_part p, float to_log2) {
#pragma unroll
    for (int step = 1; step < 4; step *= 2) {
        memory_part other = {__shfl_xor_sync(~0u, p.near, step), __shfl_xor_sync(~0u, p.sum, step),
                             __shfl_xor_sync(~0u, p.squares, step), __shfl_xor_sync(~0u, p.target_near, step),
                             __shfl_xor_sync(~0u, p.target_sum, step)};
        p = threadIdx.x & step ? memory_join(other, p, to_log2) : memory_join(p, other, to_log2);
    }
    return p;
}

/* u of a tile, as bf16, laid out as tiles are in shared memory; sums of the rounded numbers. */
static __device__ __forceinline__ void score_gradient(float2 (&sums)[2], const float (&d)[32], const score_shared &sh,
                                                      int slot, const score_rows &r, const memory_row (&m)[2],
                                                      uint8_t *to) {
    int lane = threadIdx.x % 32, column = lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float x = d[4 * i + 2 * h], y = d[4 * i + 2 * h + 1];
            float u = r.live[h] ? memory_gradient_of(m[h], x, sh.value[slot][i * 8 + column]) : 0.0f;
            float w = r.live[h] ? memory_gradient_of(m[h], y, sh.value[slot][i * 8 + column + 1]) : 0.0f;
            __nv_bfloat162 pair = __floats2bfloat162_rn(u, w);
            float2 rounded = two_floats(pair);
            sums[h].x += rounded.x + rounded.y;
            sums[h].y += (u == 0.0f ? 0.0f : u * x) + (w == 0.0f ? 0.0f : w * y);
            *(__nv_bfloat162 *)(to + r.row[h] * 128 + ((i ^ (r.row[h] & 7)) << 4) + lane % 4 * 4) = pair;
        }
}

/* One tile of rows: `r0` its first, `rows` of them live. The ring's count of fills continues in `filled` and `used`. */
template <bool PAST, bool GRADIENT> struct score_group {
    const memory_tiles_task &t;
    score_shared &sh;
    const tile_matrix &states, &keys;
    uint8_t *own, *ring;
    unsigned filled, used, started; /* started: `used` at the first tile of these rows */
    memory_walk<PAST> ahead;        /* of fills */
    int chunk;               /* of the next fill; 0: the next tile */
    bool more;

    __device__ __forceinline__ void start_fills(const memory_walk<PAST> &walk) {
        ahead = walk, chunk = 0, started = used;
        more = ahead.next();
        for (int i = 0; i < t.stages; i++)
            fill();
    }
    __device__ __forceinline__ void fill() {
        if (!more) return;
        int stage = (int)(filled % (unsigned)t.stages);
        fill_begin(&sh.full[stage], TILE_BYTES);
        tile_copy(ring + stage * TILE_BYTES, keys, chunk * TILE, ahead.now.key_row, &sh.full[stage]);
        fill_end(&sh.full[stage]);
        filled++;
        if (++chunk == t.chunks) chunk = 0, more = ahead.next();
    }
    /* s = states keys^T of one tile. The tile's columns are visible to all threads before the last products end. */
    __device__ __forceinline__ void multiply(float (&s)[32], const memory_tile &tile, int slot) {
        int c = (int)threadIdx.x % TILE;
        const int32_t *value = PAST ? t.v.past_value : t.v.slot_value;
        const float *square = PAST ? t.v.past_square : t.v.slot_square;
        int32_t of_column = 0;
        if (c < tile.count)
            of_column = (int)threadIdx.x < TILE ? value[tile.key_row + c] : __float_as_int(square[tile.key_row + c]);
        for (int i = 0; i < t.chunks; i++, used++) {
            unsigned stage = used % (unsigned)t.stages;
            barrier_wait(&sh.full[stage], used / (unsigned)t.stages & 1);
            pin(s);
            products_begin();
            memory_product(s, own + i * TILE_BYTES, ring + stage * TILE_BYTES, i > 0);
            products_commit();
            if (i == 0) { /* read by all threads of the tile before last */
                if ((int)threadIdx.x < TILE) sh.value[slot][c] = of_column;
                else sh.square[slot][c] = __int_as_float(of_column);
            }
            products_wait<1>(); /* the stage before is free */
            __syncthreads();
            if (used != started) fill();
        }
        products_wait<0>();
        pin(s);
    }
    __device__ __forceinline__ void run(int64_t r0, int rows, int64_t position, const memory_walk<PAST> &walk,
                                        int phase, int part) {
        int lane = threadIdx.x % 32;
        float tau = *t.v.tau, to_log2 = MEMORY_LOG2E / tau, s[32];
        score_rows r;
        memory_part p[2] = {memory_part_none(), memory_part_none()};
        memory_row m[2] = {};
        float2 sums[2] = {};
        fill_begin(&sh.own_full, (uint32_t)t.chunks * TILE_BYTES);
        for (int i = 0; i < t.chunks; i++)
            tile_copy(own + i * TILE_BYTES, states, i * TILE, (int)r0, &sh.own_full);
        fill_end(&sh.own_full);
        start_fills(walk);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            r.row[h] = (int)threadIdx.x / 32 * 16 + lane / 4 + 8 * h;
            r.live[h] = r.row[h] < rows;
            r.own[h] = r.live[h] ? t.v.state_square[r0 + r.row[h]] : 0.0f;
            r.target[h] = r.live[h] ? t.v.target[r0 + r.row[h]] : -1;
            if (GRADIENT && r.live[h]) m[h] = memory_row_of(t.v, t.stats, t.dlog_p, t.dlse, r0 + r.row[h]);
        }
        barrier_wait(&sh.own_full, phase);
#pragma unroll
        for (int i = 0; i < 32; i++)
            s[i] = 0.0f;
        memory_walk<PAST> now = walk;
        for (int slot = 0; now.next(); slot ^= 1) {
            multiply(s, now.now, slot);
            score_distances<PAST>(s, sh, slot, now.now, r, position, t.v.limit);
            if (GRADIENT) score_gradient(sums, s, sh, slot, r, m, t.u + now.now.index * TILE_BYTES);
            else score_absorb(p, s, sh, slot, r, to_log2);
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int64_t to = (r0 + r.row[h]) * t.all_parts + t.first_part + part;
            if constexpr (GRADIENT) {
                sums[h].x = row_sum(sums[h].x), sums[h].y = row_sum(sums[h].y);
                if (r.live[h] && lane % 4 == 0) t.sums[to] = sums[h];
            } else {
                p[h] = score_join(p[h], to_log2);
                if (r.live[h] && lane % 4 == 0) t.part[to] = p[h];
            }
        }
        __syncthreads(); /* the states' tiles are free */
    }
};

static __device__ __forceinline__ uint8_t *memory_aligned(uint8_t *raw) {
    return raw + (1024 - shared_address(raw) % 1024) % 1024;
}

/* grid: blocks (or row tiles of the past), parts. */
template <bool PAST, bool GRADIENT>
static __global__ void __launch_bounds__(WARPGROUP)
    score_tiles(const __grid_constant__ tile_matrix states, const __grid_constant__ tile_matrix keys,
                const __grid_constant__ memory_tiles_task t) {
    extern __shared__ uint8_t raw[];
    __shared__ score_shared sh;
    uint8_t *own = memory_aligned(raw);
    int64_t block = t.first + blockIdx.x, begin = 0, end = 0;
    int part = (int)blockIdx.y;
    memory_row_tile rows = {};
    fill_barriers_init(sh.full, &sh.own_full);
    if (PAST) rows = memory_past_rows(t.v, block);
    else {
        int first = part * t.part_items, last = first + t.part_items < t.v.k ? first + t.part_items : t.v.k;
        begin = t.v.row_begin[block], end = t.v.row_begin[block + 1];
        memory_list(sh.list, t.v, block, first, last);
    }
    __syncthreads();
    score_group<PAST, GRADIENT> g = {t, sh, states, keys, own, own + t.chunks * TILE_BYTES, 0, 0, 0, {}, 0, false};
    if constexpr (PAST) {
        g.run(rows.row, rows.rows, rows.position, memory_walk_past(t, rows, blockIdx.x, part), 0, part);
    } else {
        for (int tile = 0; begin + tile * TILE < end; tile++) {
            memory_walk<false> walk = {};
            walk.list = &sh.list, walk.slot_rows = t.v.slot_rows, walk.slot_tiles = (t.v.slot_rows + TILE - 1) / TILE;
            walk.index = ((int64_t)blockIdx.x * t.row_tiles + tile) * t.row_stride;
            int64_t left = end - begin - tile * TILE;
            g.run(begin + tile * TILE, left < TILE ? (int)left : (int)TILE, 0, walk, tile & 1, part);
        }
    }
}
