/* attend_wgmma_keys.cuh -- the mainloop's loads of a warpgroup that owns query rows of one head: its query tiles, one
 * after another, and for each of them the key tiles (with values) that its rows read, copied from the pool or the ring
 * of keys through a ring of stages. The forward pass and the dQ pass of backward use it.
 *
 *   shared memory:  | queries (dQ: and dO) | stage 0: K tile, V tile | stage 1 | ... |      a full-mbarrier for each
 *   items in order: query tile 0 x key tiles 0 .. count-1, query tile 1 x key tiles 0 .. count-1, ...
 */
#pragma once
#include "kernels/attention/attend_cuda.cuh"
#include "kernels/cuda/tiles.cuh"

enum { ATTEND_LIST_MAX = 64 }; /* slots of a block at most */

/* The slots that one block of rows reads, in order. index: 0 .. k-1 among the block's entries. row: first key row. */
struct slot_list {
    int count, index[ATTEND_LIST_MAX], row[ATTEND_LIST_MAX];
    float weight[ATTEND_LIST_MAX], log2_weight[ATTEND_LIST_MAX];
};

/* A slot in a lane's registers. */
struct lane_slot {
    int32_t slot;
    float weight;
};
static __device__ __forceinline__ lane_slot read_slot(const attend_task &t, int64_t block, int i) {
    if (i >= t.k) return {-1, 0.0f};
    return {block_slot(t, block, i), block_weight(t, block, i)};
}
/* Called by one warp. `loaded`: the first 32 slots. `all`: also those of weight 0. */
static __device__ __forceinline__ void list_slots(slot_list *list, const attend_task &t, int64_t block,
                                                  lane_slot loaded, bool all) {
    int count = 0, lane = threadIdx.x % 32;
    for (int first = 0; first < t.k; first += 32) {
        int i = first + lane;
        auto [slot, weight] = first ? read_slot(t, block, i) : loaded;
        bool take = slot >= 0 && (all || weight != 0.0f);
        unsigned taken = __ballot_sync(~0u, take);
        int at = count + __popc(taken & ((1u << lane) - 1));
        if (take) {
            list->index[at] = i;
            list->row[at] = slot * t.slot_rows;
            list->weight[at] = weight;
            list->log2_weight[at] = __log2f(weight);
        }
        count += __popc(taken);
    }
    if (lane == 0) list->count = count;
}

/* A tile of query rows; rows skip .. rows-1 of it are valid. */
struct query_tile {
    int64_t row;
    int skip, rows;
    int64_t sequence, base, position; /* window: base: key row of position 0; position: of the first row */
};

/* A sequence whose keys wrap around the ring's end is cut where positions are multiples of 64, so that no tile of keys
 * crosses that end: its first tile begins before the first row. */
static __host__ __device__ __forceinline__ int64_t window_lead(const attend_task &t) {
    return t.first + t.length <= t.ring ? 0 : t.first % TILE;
}
static __device__ __forceinline__ query_tile window_tile(const attend_task &t, int64_t index) {
    int64_t lead = window_lead(t), tiles = (lead + t.length + TILE - 1) / TILE, sequence = index / tiles;
    int64_t offset = index % tiles * TILE - lead;
    query_tile q;
    q.row = sequence * t.length + offset;
    q.skip = offset < 0 ? (int)-offset : 0;
    q.rows = t.length - offset < TILE ? (int)(t.length - offset) : TILE;
    q.sequence = sequence;
    q.base = sequence * t.ring;
    q.position = t.first + offset;
    return q;
}
/* Key tile i begins 64 * i positions before the query tile. */
static __device__ __forceinline__ int window_tiles(const attend_task &t, const query_tile &q) {
    int64_t low = q.position > t.window ? q.position - t.window : 0;
    return (int)((q.position - low + TILE - 1) / TILE) + 1;
}
static __device__ __forceinline__ int key_row(const attend_task &t, const query_tile &q, int i) {
    int64_t position = q.position - (int64_t)i * TILE;
    return (int)(q.base + (position < t.ring ? position : position % t.ring));
}

/* In a rarely taken branch it keeps the compiler from predicated instructions, which every tile would execute. */
static __device__ __forceinline__ void keep_branch() {
    asm volatile("" ::: "memory");
}
/* Scores that a row may not see become -inf. Chunks: keys from `live` on. */
static __device__ __forceinline__ void mask_keys(float (&s)[32], int live) {
    keep_branch();
    int column = (int)(threadIdx.x % 4) * 2;
#pragma unroll
    for (int i = 0; i < 32; i++)
        if (i / 4 * 8 + column + i % 2 >= live) s[i] = -INFINITY;
}
/* Window: `offset` is the distance of the two tiles' first rows, `position` that of the queries'. */
static __device__ __forceinline__ void mask_window(float (&s)[32], int offset, int window, int64_t position) {
    if (offset > 0 && offset + TILE - 1 <= window && offset <= position) return;
    keep_branch();
    int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4, first = row + offset - lane % 4 * 2;
    /* Keys before position 0 are farther from a row than its position. An unsigned comparison also excludes keys after
     * the row. */
    unsigned limit0 = (unsigned)(position + row < window ? (int)position + row : window),
             limit1 = (unsigned)(position + row + 8 < window ? (int)position + row + 8 : window);
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
        if ((unsigned)(first - i * 2) > limit0) s[i] = -INFINITY;
        if ((unsigned)(first - i * 2 - 1) > limit0) s[i + 1] = -INFINITY;
        if ((unsigned)(first - i * 2 + 8) > limit1) s[i + 2] = -INFINITY;
        if ((unsigned)(first - i * 2 + 7) > limit1) s[i + 3] = -INFINITY;
    }
}

/* Clears the rows outside of all blocks and (partial, lse) of empty entries, of the reader's head. Reading a block's
 * slots again, one after the other, would delay its first tile: only a block whose list is short has empty ones. */
template <int DIM, typename READER>
static __device__ void fill_empty(const READER &r, rows<bf16> o, const attend_lse &lse, bool partial) {
    const attend_task &t = r.t;
    const int64_t block = r.block, begin = r.begin, end = r.end;
    const int head = r.head;
    const bool empty = r.count < t.k;
    auto clear = [&](int64_t first, int64_t last, int index) {
        for (int64_t i = first * (DIM / 8) + threadIdx.x; (partial || index == 0) && i < last * (DIM / 8);
             i += WARPGROUP)
            *(uint4 *)(o[index * t.n + i / (DIM / 8)] + head * DIM + i % (DIM / 8) * 8) = make_uint4(0, 0, 0, 0);
        for (int64_t r = first + threadIdx.x; lse.data && r < last; r += WARPGROUP)
            *lse.at(index, r, head) = -INFINITY;
    };
    if (!empty && block != 0 && block != t.blocks - 1) return;
    for (int i = 0; i < (partial || lse.data ? t.k : 1); i++) {
        if (block == 0) clear(0, begin, i);
        if (block == t.blocks - 1) clear(end, t.n, i);
        if (empty && (partial || lse.data) && block_slot(t, block, i) < 0) {
            if (partial)
                clear(begin, end, i);
            else
                for (int64_t r = begin + threadIdx.x; r < end; r += WARPGROUP)
                    *lse.at(i, r, head) = -INFINITY;
        }
    }
}

/* A stage of a ring, and the phase of its barrier. */
template <int STAGES> struct ring_slot {
    int stage;
    uint32_t phase;
    __device__ __forceinline__ ring_slot next() const {
        if (STAGES == 2) return {stage ^ 1, phase ^ (uint32_t)stage};
        return {stage + 1 == STAGES ? 0 : stage + 1, phase ^ (uint32_t)(stage + 1 == STAGES)};
    }
};

/* The sequence of items. An item is a tile of 64 keys with its values; every query tile reads `count` of them. QUERIES:
 * number of matrices of query rows (forward 1; dQ 2). */
template <bool WINDOW, int DIM, int STAGES, int QUERIES> struct key_reader {
    static constexpr int TILES = DIM / TILE, TILES_BYTES = TILES * TILE_BYTES, STAGE_BYTES = 2 * TILES_BYTES,
                         BYTES = 1024 + QUERIES * TILES_BYTES + STAGES * STAGE_BYTES;
    struct shared_part {
        uint64_t full[STAGES], queries_full;
        slot_list list;
    };
    const attend_task &t;
    shared_part &shared;
    const tile_matrix *query_maps[QUERIES], &k_map, &v_map;
    uint8_t *queries, *stages;
    int head, block;
    int64_t begin, end; /* chunks: the block's rows */
    query_tile tile;
    int count, ahead; /* key tiles of a query tile; which of them the next copy takes */
    unsigned query_tiles, items, item;
    ring_slot<STAGES> now; /* of the current item */

    __device__ __forceinline__ key_reader(const attend_task &task, shared_part &in, uint8_t *raw, const tile_matrix &k,
                                          const tile_matrix &v)
        : t(task), shared(in), k_map(k), v_map(v), queries(raw + (1024 - shared_address(raw) % 1024) % 1024),
          stages(queries + QUERIES * TILES_BYTES), head((int)blockIdx.y), block((int)blockIdx.x), begin(0), end(0),
          ahead(0), item(0), now{0, 0} {}

    /* Issues the first copies. `all_slots`: also slots of weight 0. */
    __device__ __forceinline__ void start(bool all_slots) {
        fill_barriers_init(shared.full, &shared.queries_full);
        bool lists = !WINDOW && threadIdx.x / 32 == 1;
        lane_slot loaded = {-1, 0.0f};
        if (WINDOW) {
            tile = window_tile(t, block);
        } else {
            if (lists)
                loaded =
                    read_slot(t, block, threadIdx.x % 32); /* loaded together with the block's begin, not after it */
            begin = block_begin(t, block);
            end = block_begin(t, block + 1);
        }
        query_tiles = WINDOW ? 1 : (unsigned)((end - begin + TILE - 1) / TILE);
        __syncthreads();
        if (query_tiles) fill_queries(0); /* in flight while the slots are listed */
        if (!WINDOW) {
            if (lists) list_slots(&shared.list, t, block, loaded, all_slots);
            clear_dead_rows();
        }
        __syncthreads();
        count = WINDOW ? window_tiles(t, tile) : shared.list.count;
        items = query_tiles * (unsigned)count;
        for (unsigned i = 0; i < STAGES && i < items; i++)
            fill((int)i);
    }
    /* Copies load live rows only. The rows after them are never written, but products read them: they must be finite.
     */
    __device__ __forceinline__ void clear_dead_rows() {
        constexpr int ALL = 2 * STAGES * TILES;
        int live = t.live_rows;
        for (int i = threadIdx.x; live < TILE && i < (TILE - live) * ALL * 8; i += WARPGROUP)
            *(uint4 *)(stages + i / 8 % ALL * TILE_BYTES + (live + i / 8 / ALL) * 128 + i % 8 * 16) =
                make_uint4(0, 0, 0, 0);
        fence_async();
    }
    __device__ __forceinline__ void fill_queries(unsigned at) {
        int row = (int)(WINDOW ? tile.row : begin + (int64_t)at * TILE);
        fill_begin(&shared.queries_full, QUERIES * TILES_BYTES);
        for (int i = 0; i < QUERIES * TILES; i++)
            tile_copy(queries + i * TILE_BYTES, *query_maps[i / TILES], head * DIM + i % TILES * TILE, row,
                      &shared.queries_full);
        fill_end(&shared.queries_full);
    }
    __device__ __forceinline__ void fill(int stage) {
        uint8_t *to = stages + stage * STAGE_BYTES;
        uint64_t *barrier = &shared.full[stage];
        int row = WINDOW ? key_row(t, tile, ahead) : shared.list.row[ahead];
        fill_begin(barrier, 2 * TILES * (WINDOW ? TILE : t.live_rows) * 128);
        for (int i = 0; i < TILES; i++) {
            tile_copy(to + i * TILE_BYTES, k_map, head * DIM + i * TILE, row, barrier);
            tile_copy(to + (TILES + i) * TILE_BYTES, v_map, head * DIM + i * TILE, row, barrier);
        }
        fill_end(barrier);
        ahead = ahead + 1 == count ? 0 : ahead + 1;
    }

    /* `tile` becomes the block's query tile `at`. */
    __device__ __forceinline__ void set_tile(unsigned at) {
        if (WINDOW) return;
        tile.row = begin + (int64_t)at * TILE;
        tile.skip = 0;
        tile.rows = end - tile.row < TILE ? (int)(end - tile.row) : TILE;
    }
    __device__ __forceinline__ void wait_queries(unsigned at) { barrier_wait(&shared.queries_full, at & 1); }
    /* The query tile `at` has been read (and overwritten by the epilogue); loads the next one. */
    __device__ __forceinline__ void next_queries(unsigned at) {
        if (at + 1 == query_tiles) return;
        fence_async();
        __syncthreads();
        fill_queries(at + 1);
    }
    __device__ __forceinline__ const uint8_t *keys(ring_slot<STAGES> of) const {
        return stages + of.stage * STAGE_BYTES;
    }
    __device__ __forceinline__ const uint8_t *values(ring_slot<STAGES> of) const { return keys(of) + TILES_BYTES; }
    __device__ __forceinline__ void wait(ring_slot<STAGES> of) { barrier_wait(&shared.full[of.stage], of.phase); }
    /* The warpgroup has read the current item: its stage is filled again. */
    __device__ __forceinline__ void release() {
        __syncthreads();
        if (item + STAGES < items) fill(now.stage);
        item++;
        now = now.next();
    }
};
