/* attend_wgmma_queries.cuh -- the mainloop's loads of a warpgroup that owns a key tile of one head: the tile with its
 * values, and the query tiles (with dO and stat) that read it, copied through a ring of stages. The dkv pass uses it,
 * as the other passes use attend_wgmma_keys.cuh.
 *
 * Only thread 0 follows the list and copies (before Hopper all threads do). The first entries of the list are loaded
 * together when a warpgroup starts. Old values of bf16 dK and dV are one more item after the last. */
#pragma once
#include "kernels/attention/backward/attend_wgmma_backward.cuh"

enum { ENTRIES_CACHED = WARPGROUP }; /* entries of a list that are loaded at once, into shared memory */

/* Iterates over the query tiles that read one key tile: entries of the inverse list, each divided into tiles. */
struct entry_cursor {
    const inverse_entry *cached, *entries; /* in shared memory; in global memory */
    int first, next, count;
    inverse_entry now;

    /* Advances to an entry with rows; `now.rows` is 0 at the end. */
    __device__ __forceinline__ void skip_empty() {
        while (now.rows <= 0 && next < count) {
            now = next < ENTRIES_CACHED ? cached[next] : entries[first + next];
            next++;
        }
        if (now.rows < 0) now.rows = 0;
    }
    __device__ __forceinline__ void advance() {
        now.row += TILE;
        now.rows -= TILE;
        now.stat += TILE / 2;
        skip_empty();
    }
};

/* Data of a stage besides its tiles. */
struct staged_entry {
    int row, rows;
    bool last;
};

/* The matrices of the tiles; dk and dv: bf16 gradients that are added to. */
struct backward_maps {
    tile_matrix q, dout, k, v, dk, dv;
};

template <bool WINDOW, int DIM, int STAGES> struct query_reader {
    static constexpr int TILES = DIM / TILE, TILES_BYTES = TILES * TILE_BYTES, STAGE_BYTES = 2 * TILES_BYTES,
                         STAT_BYTES = TILE * (int)sizeof(float2), BYTES = 1024 + (1 + STAGES) * STAGE_BYTES;
    struct shared_part {
        uint64_t full[STAGES], keys_full;
        alignas(16) float2 stats[STAGES][TILE];
        staged_entry entry[STAGES];
        inverse_entry cached[ENTRIES_CACHED];
        bool any; /* some entry has rows */
    };
    const attend_task &t;
    shared_part &shared;
    const backward_maps &maps;
    const float2 *stat; /* the head's planes */
    uint8_t *keys, *values, *stages;
    int head, block, key_row, key_rows; /* below 2^31, see tile_matrix_of */
    bool copies;                        /* this thread copies; the others do not follow the list */
    bool old_pending;                   /* the old values of dK and dV are still to be copied */
    entry_cursor cursor;

    __device__ __forceinline__ query_reader(const attend_task &task, shared_part &in, uint8_t *raw,
                                            const backward_maps &from, const float2 *stats)
        : t(task), shared(in), maps(from), stat(stats + (int64_t)blockIdx.y * task.k * task.stat_rows),
          keys(raw + (1024 - shared_address(raw) % 1024) % 1024), values(keys + TILES_BYTES),
          stages(values + TILES_BYTES), head((int)blockIdx.y), block((int)blockIdx.x),
          copies(!HOPPER || threadIdx.x == 0), old_pending(false), cursor{} {}

    /* Finds the key tile and the entries that read it. False: none does. */
    __device__ __forceinline__ bool find(const int32_t *entry_begin, const inverse_entry *entries) {
        cursor = {shared.cached, entries, 0, 0, 0, {0, 0, 0, 0}};
        if (WINDOW) {
            int64_t tiles = (t.length + TILE - 1) / TILE, sequence = block / tiles, offset = block % tiles * TILE;
            int64_t seen = offset + TILE - 1 + t.window, last = seen < t.length - 1 ? seen : t.length - 1;
            key_row = (int)(sequence * t.length + offset);
            key_rows = t.length - offset < TILE ? (int)(t.length - offset) : TILE;
            cursor.now = {key_row, (int)(last - offset + 1), 0,
                          (uint32_t)((stat_first(sequence * t.length, sequence) + offset) / 2)};
            return true;
        }
        key_row = block * t.slot_rows;
        key_rows = t.live_rows;
        if (!entry_begin) {
            int64_t begin = block_begin(t, block);
            cursor.now = {(int)begin, t.positions, 0, (uint32_t)(stat_first(begin, block) / 2)};
            return true;
        }
        cursor.first = entry_begin[block];
        cursor.count = entry_begin[block + 1] - cursor.first;
        return cursor.count > 0;
    }
    /* Issues the first copies. `adds`: the old values of dK and dV are the last item. */
    __device__ __forceinline__ void start(bool adds) {
        fill_barriers_init(shared.full, &shared.keys_full);
        if (!HOPPER) __syncthreads();
        /* Window: the box is 64 rows, so rows after the end of a sequence are loaded too; they are masked. */
        fill_begin(&shared.keys_full, 2 * TILES * (WINDOW ? TILE : key_rows) * 128);
        copy_pair(keys, maps.k, maps.v, key_row, &shared.keys_full);
        fill_end(&shared.keys_full);
        if ((int)threadIdx.x < cursor.count) shared.cached[threadIdx.x] = cursor.entries[cursor.first + threadIdx.x];
        clear_dead_rows();
        if (!WINDOW) __syncthreads();
        if (copies) cursor.skip_empty();
        old_pending = adds && copies && cursor.now.rows > 0;
        if (threadIdx.x == 0) shared.any = cursor.now.rows > 0;
        for (int i = 0; i < STAGES; i++)
            fill(i);
    }
    /* Copies load live rows only. The rows after them are never written, but products read them: they must be finite.
     */
    __device__ __forceinline__ void clear_dead_rows() {
        for (int i = threadIdx.x; key_rows < TILE && i < (TILE - key_rows) * 2 * TILES * 8; i += WARPGROUP)
            *(uint4 *)(keys + i / 8 % (2 * TILES) * TILE_BYTES + (key_rows + i / 8 / (2 * TILES)) * 128 + i % 8 * 16) =
                make_uint4(0, 0, 0, 0);
        fence_async();
    }
    /* Copies this head's tiles of two matrices, one after the other. */
    __device__ __forceinline__ void copy_pair(uint8_t *to, const tile_matrix &a, const tile_matrix &b, int row,
                                              uint64_t *barrier) {
        for (int i = 0; i < TILES; i++) {
            tile_copy(to + i * TILE_BYTES, a, head * DIM + i * TILE, row, barrier);
            tile_copy(to + (TILES + i) * TILE_BYTES, b, head * DIM + i * TILE, row, barrier);
        }
    }
    /* Issues the copies of the next item, if there is one. */
    __device__ __forceinline__ void fill(int stage) {
        if (!copies) return;
        uint8_t *to = stages + stage * STAGE_BYTES;
        uint64_t *barrier = &shared.full[stage];
        if (cursor.now.rows == 0) {
            if (!old_pending) return;
            old_pending = false;
            fill_begin(barrier, 2 * TILES * key_rows * 128);
            copy_pair(to, maps.dk, maps.dv, key_row, barrier);
            fill_end(barrier);
            return;
        }
        inverse_entry of = cursor.now;
        cursor.advance();
        if (threadIdx.x == 0) shared.entry[stage] = {of.row, of.rows, cursor.now.rows == 0};
        fill_begin(barrier, STAGE_BYTES + STAT_BYTES);
        copy_pair(to, maps.q, maps.dout, of.row, barrier);
        line_copy<STAT_BYTES>(shared.stats[stage], stat + 2 * (int64_t)of.stat, barrier);
        fill_end(barrier);
    }

    __device__ __forceinline__ void wait_keys() { barrier_wait(&shared.keys_full, 0); }
    __device__ __forceinline__ void wait(int item) { barrier_wait(&shared.full[item % STAGES], item / STAGES & 1); }
    /* Of an item whose wait has returned. */
    __device__ __forceinline__ staged_entry entry(int item) const { return shared.entry[item % STAGES]; }
    __device__ __forceinline__ const float2 *stats(int item) const { return shared.stats[item % STAGES]; }
    __device__ __forceinline__ uint8_t *queries(int item) const { return stages + item % STAGES * STAGE_BYTES; }
    __device__ __forceinline__ uint8_t *gradients(int item) const { return queries(item) + TILES_BYTES; }
    /* All threads have read an item: its stage is filled again. */
    __device__ __forceinline__ void release(int item) {
        __syncthreads();
        fill(item % STAGES);
    }
};
