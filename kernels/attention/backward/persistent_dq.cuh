/* persistent_dq.cuh -- backward's first pass, persistent: what attend_wgmma_dq.cuh computes.
 *
 *   consumer                  64 query rows of one block and head, then those of its next task, in a fixed order
 *   warp 3 of the producers   clears rows that read no slot
 *
 *   shared memory of a consumer: | Q | dO | stage 0: K tile, V tile | stage 1 | stage 2 |  two lists of slots, barriers
 *
 * The next tile's Q is copied as soon as this tile's fragments are in registers, its dO after this tile's last product
 * with dO, its K and V as stages are released; so its first product is issued before this tile's dQ is stored. */
#pragma once
#include "kernels/attention/backward/persistent.cuh"

/* The matrices of the tiles. */
struct dq_maps {
    tile_matrix q, dout, k, v;
};


/* What a producer passes to its consumer of a block of rows and a head. sums: of delta of each slot, by warp. */
struct dq_list {
    slot_list slots;
    float sums[ATTEND_LIST_MAX][WARPGROUP / 32];
};
/* The same of a query tile. rows 0: there are no more tiles. */
struct dq_tile {
    int64_t row;
    int rows, block, head, list;
    uint32_t stat;    /* first row in a plane of stat */
    bool first, last; /* of the block's tiles */
};

struct dq_buffers {
    uint8_t queries[TILE_BYTES], dout[TILE_BYTES];
    persistent_stage stages[PERSISTENT_STAGES];
};
struct dq_shared {
    dq_list lists[2];
    dq_tile tiles[2];
    uint64_t full[PERSISTENT_STAGES], empty[PERSISTENT_STAGES], queries_full, queries_empty, dout_full, dout_empty;
};
struct dq_block {
    dq_buffers buffers[PERSISTENT_CONSUMERS];
    dq_shared shared[PERSISTENT_CONSUMERS];
};
enum { DQ_BYTES = sizeof(dq_block) + 1024 };

#if HOPPER
/* A producer warp. */
static __device__ __forceinline__ void dq_produce(const dq_maps &maps, const attend_task &t, dq_buffers &buffers,
                                                  dq_shared &shared, int warp) {
    const int tasks = t.blocks * t.heads, stride = (int)gridDim.x * PERSISTENT_CONSUMERS;
    const int lane = threadIdx.x % 32;
    const bool copies = elect_lane();
    tile_ring<PERSISTENT_STAGES> ring = {0, 1}; /* the first round finds every stage empty */
    uint32_t at = 0, task = 0;          /* tiles, tasks so far */
    const uint32_t stage_bytes = 2u * (uint32_t)t.live_rows * 128u;
    for (int id = (int)blockIdx.x * PERSISTENT_CONSUMERS + warp; id < tasks; id += stride) {
        int head = id / t.blocks, block = id - head * t.blocks, column = head * TILE;
        lane_slot loaded = read_slot(t, block, lane);
        int64_t begin = block_begin(t, block), end = block_begin(t, block + 1);
        if (begin >= end) continue;
        dq_list &list = shared.lists[task % 2];
        for (int64_t row = begin; row < end; row += TILE, at++) {
            barrier_wait(&shared.queries_empty, (at & 1) ^ 1);
            if (row == begin) list_slots(&list.slots, t, block, loaded, true);
            __syncwarp();
            int count = list.slots.count;
            if (count == 0) break;
            if (copies) {
                dq_tile &tile = shared.tiles[at & 1];
                tile.row = row;
                tile.rows = end - row < TILE ? (int)(end - row) : TILE;
                tile.block = block, tile.head = head, tile.list = task % 2;
                tile.stat = (uint32_t)(stat_first(begin, block) + (row - begin));
                tile.first = row == begin, tile.last = row + TILE >= end;
                barrier_expect(&shared.queries_full, TILE_BYTES);
                tensor_copy(buffers.queries, &maps.q.map, column, (int)row, &shared.queries_full);
            }
            __syncwarp();
            for (int i = 0; i < count || i < 3; i++) {
                if (i == 2) { /* not earlier: it waits for the last product of the tile before */
                    barrier_wait(&shared.dout_empty, (at & 1) ^ 1);
                    if (copies) {
                        barrier_expect(&shared.dout_full, TILE_BYTES);
                        tensor_copy(buffers.dout, &maps.dout.map, column, (int)row, &shared.dout_full);
                    }
                    __syncwarp();
                }
                if (i >= count) continue;
                int key_row = uniform(list.slots.row[i]), stage = uniform(ring.stage);
                barrier_wait(&shared.empty[stage], ring.phase);
                if (copies) {
                    uint64_t *full = &shared.full[stage];
                    uint8_t *to = buffers.stages[stage];
                    barrier_expect(full, stage_bytes);
                    tensor_copy(to, &maps.k.map, column, key_row, full);
                    tensor_copy(to + TILE_BYTES, &maps.v.map, column, key_row, full);
                }
                __syncwarp();
                ring.next();
            }
        }
        task += list.slots.count > 0;
    }
    /* The end: a tile without rows, and a stage that its consumer will not read. */
    barrier_wait(&shared.queries_empty, (at & 1) ^ 1);
    barrier_wait(&shared.empty[ring.stage], ring.phase);
    if (copies) {
        shared.tiles[at & 1].rows = 0;
        shared.tiles[at & 1].list = 0;
        barrier_arrive(&shared.queries_full);
        barrier_arrive(&shared.full[ring.stage]);
    }
}

/* Clears dq in the rows outside of all blocks and of blocks without slots, and dweight's parts of blocks without rows.
 * A warp. */
static __device__ __forceinline__ void dq_clear(const attend_task &t, const query_gradients &to) {
    int lane = threadIdx.x % 32, vectors = t.heads * (TILE / 8);
    auto clear = [&](int64_t first, int64_t last, int64_t offset, int64_t step) {
        for (int64_t row = first + offset; row < last; row += step)
            for (int c = lane; c < vectors; c += 32)
                *(uint4 *)(to.dq[row] + c * 8) = make_uint4(0, 0, 0, 0);
    };
    clear(0, block_begin(t, 0), blockIdx.x, gridDim.x);
    clear(block_begin(t, t.blocks), t.n, blockIdx.x, gridDim.x);
    for (int block = blockIdx.x; block < t.blocks; block += gridDim.x) {
        bool live = false;
        for (int i = lane; i < t.k; i += 32)
            live = live || block_slot(t, block, i) >= 0;
        int64_t begin = block_begin(t, block), end = block_begin(t, block + 1);
        if (!__any_sync(~0u, live)) clear(begin, end, 0, 1);
        int parts = begin < end || !to.part_dweight ? 0 : t.k * t.heads;
        for (int i = lane; i < parts; i += 32)
            to.part_dweight[(int64_t)block * parts + i] = 0.0f;
    }
}

template <bool MASKS> struct dq_consumer {
    const attend_task &t;
    const query_gradients &to;
    const attend_lse &lse;
    dq_buffers &buffers;
    dq_shared &shared;
    int group;
    uint32_t at; /* tiles so far */
    tile_ring<PERSISTENT_STAGES> ring;
    dq_list *list;
    int row0, count;
    uint32_t lse_plane, stat_plane;
    const uint8_t *lse_row;
    uint32_t lse_next;
    float2 *stat;
    bool inside0, inside1, first;
    float to_log2;
    float2 log2_sum, now, delta;
    float s[32], dp[32], out[32];
    uint32_t q[16], ds[16];

    __device__ __forceinline__ dq_consumer(const attend_task &task, const query_gradients &results,
                                           const attend_lse &kept_lse, dq_buffers &tiles, dq_shared &in, int of)
        : t(task), to(results), lse(kept_lse), buffers(tiles), shared(in), group(of), at(0), ring{0, 0},
          row0((int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4),
          lse_plane((uint32_t)(lse.plane * sizeof(float))), stat_plane((uint32_t)t.stat_rows),
          to_log2(t.scale * ATTEND_LOG2E) {}

    __device__ __forceinline__ float2 kept(int i) const {
        const uint8_t *from = lse_row + (uint64_t)(uint32_t)list->slots.index[i] * lse_plane;
        return make_float2(*(const float *)from, *(const float *)(from + lse_next));
    }
    /* This warp has read a buffer. */
    __device__ __forceinline__ void release(uint64_t *empty, bool yes) {
        __syncwarp();
        if (threadIdx.x % 32 == 0 && yes) barrier_arrive(empty);
    }
    /* The next tile: its Q is in registers afterwards. Returns its rows, 0 at the end. */
    __device__ __forceinline__ int next_tile() {
        barrier_wait(&shared.queries_full, at & 1);
        const dq_tile &tile = shared.tiles[at & 1];
        int rows = uniform(tile.rows);
        list = &shared.lists[uniform(tile.list)];
        count = uniform(list->slots.count);
        first = tile.first;
        inside0 = row0 < rows, inside1 = row0 + 8 < rows;
        if (rows) {
            stat = to.stat + (int64_t)tile.head * t.k * t.stat_rows + tile.stat + row0;
            lse_row = (const uint8_t *)(lse.data + (tile.row + (inside0 ? row0 : 0)) * lse.row + tile.head * lse.head);
            lse_next = inside1 ? (uint32_t)(8 * lse.row * sizeof(float)) : 0;
            asm volatile("" : "+l"(lse_row), "+r"(lse_next)); /* else the loop computes them again */
            log2_sum = kept(0);
        }
        load_fragments<1>(q, buffers.queries);
        fence_async();
        release(&shared.queries_empty, true);
        return rows;
    }
    __device__ __forceinline__ const uint8_t *keys(tile_ring<PERSISTENT_STAGES> of) const {
        return buffers.stages[of.stage];
    }
    __device__ __forceinline__ tile_ring<PERSISTENT_STAGES> following() const {
        tile_ring<PERSISTENT_STAGES> next = ring;
        next.next();
        return next;
    }
    __device__ __forceinline__ void multiply_keys(tile_ring<PERSISTENT_STAGES> of) {
        products_begin();
        multiply_rows_first(s, q, keys(of));
        products_commit();
    }
    __device__ __forceinline__ void multiply_values(tile_ring<PERSISTENT_STAGES> of) {
        products_begin();
        multiply_tiles_first(dp, buffers.dout, keys(of) + TILE_BYTES);
        products_commit();
    }
    /* S, dP -> dS, in ds. */
    __device__ __forceinline__ void gradients(int i) {
        now = make_float2(log2_sum.x * ATTEND_LOG2E, log2_sum.y * ATTEND_LOG2E);
        if (i + 1 < count) log2_sum = kept(i + 1);
        products_wait<0>();
        pin(s);
        pin(dp);
        if (MASKS) mask_keys(s, t.live_rows);
        delta = score_gradients<false>(s, dp, to_log2, 0.0f, 0.0f, now, delta, list->slots.weight[i]);
        pack(ds, s);
        pin(ds);
    }
    __device__ __forceinline__ void multiply_gradients(tile_ring<PERSISTENT_STAGES> of) {
        products_begin();
        multiply_columns<1>(out, ds, keys(of));
        products_commit();
    }
    /* Stores what the second pass needs of item i. */
    __device__ __forceinline__ void keep(int i) {
        int lane = threadIdx.x % 32;
        float sum = (inside0 ? delta.x : 0.0f) + (inside1 ? delta.y : 0.0f);
        for (int offset = 4; offset < 32; offset *= 2)
            sum += __shfl_xor_sync(~0u, sum, offset);
        float *total = &list->sums[i][threadIdx.x / 32];
        if (lane == 0) *total = first ? sum : *total + sum;
        if (lane % 4) return;
        float2 *where = stat + (uint32_t)list->slots.index[i] * stat_plane;
        float log2_weight = list->slots.log2_weight[i];
        if (inside0) where[0] = make_float2(log2_weight - now.x, delta.x);
        if (inside1) where[8] = make_float2(log2_weight - now.y, delta.y);
    }
    __device__ __forceinline__ void wait_stage(tile_ring<PERSISTENT_STAGES> of) {
        barrier_wait(&shared.full[of.stage], of.phase);
    }
    /* Writes dweight's part of a block and head whose tiles are complete. */
    __device__ __forceinline__ void store_sums(const dq_tile &tile) {
        asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"((int)WARPGROUP) : "memory");
        if (!to.part_dweight || !tile.last) return;
        for (int i = threadIdx.x; i < count; i += WARPGROUP)
            to.part_dweight[((int64_t)tile.block * t.k + list->slots.index[i]) * t.heads + tile.head] =
                list->sums[i][0] + list->sums[i][1] + list->sums[i][2] + list->sums[i][3];
    }
    __device__ __forceinline__ void run() {
        int rows = next_tile();
        if (!rows) return;
        wait_stage(ring);
        barrier_wait(&shared.dout_full, 0);
        multiply_keys(ring);
        products_wait<0>();
        for (;;) {
#pragma unroll
            for (int i = 0; i < 32; i++)
                out[i] = 0.0f;
            pin(out);
            multiply_values(ring);
            gradients(0);
            for (int i = 0; i + 1 < count; i++) {
                tile_ring<PERSISTENT_STAGES> next = following();
                pin(out);
                multiply_gradients(ring);
                wait_stage(next);
                multiply_keys(next);
                multiply_values(next);
                keep(i);
                products_wait<2>();
                pin(out);
                pin(ds);
                release(&shared.empty[ring.stage], true);
                ring = next;
                gradients(i + 1);
            }
            release(&shared.dout_empty, true);
            pin(ds);
            pin(out);
            multiply_gradients(ring);
            keep(count - 1);
            const dq_tile &tile = shared.tiles[at & 1];
            store_sums(tile);
            bf16 *to_rows = to.dq[tile.row] + tile.head * TILE;
            at++;
            int stored = rows;
            rows = next_tile();
            tile_ring<PERSISTENT_STAGES> next = following();
            wait_stage(next);
            multiply_keys(next);
            products_wait<1>();
            pin(out);
            pin(ds);
            store(to_rows, stored);
            release(&shared.empty[ring.stage], true);
            products_wait<0>();
            ring = next;
            if (!rows) return;
            barrier_wait(&shared.dout_full, at & 1);
        }
    }
    /* Stores dQ through the value tile of the current stage, whose dead rows stay 0. */
    __device__ __forceinline__ void store(bf16 *to_rows, int rows) {
        uint8_t *tile = buffers.stages[ring.stage] + TILE_BYTES;
        store_rows<1>(out, t.scale, tile, to_rows, to.dq.stride, 0, rows);
        int top = threadIdx.x / 32 * 16;
        for (int i = threadIdx.x % 32; t.live_rows < top + 16 && i < 16 * 8; i += 32)
            if (top + i / 8 >= t.live_rows)
                *(uint4 *)(tile + (top + i / 8) * 128 + i % 8 * 16) = make_uint4(0, 0, 0, 0);
        fence_async();
    }
};
#endif

/* threadIdx.y is the warpgroup. */
template <bool MASKS>
static __global__ void __launch_bounds__(WARPGROUP *(PERSISTENT_CONSUMERS + 1), 1)
    persistent_dq(const __grid_constant__ dq_maps maps, const __grid_constant__ attend_task t,
                  const __grid_constant__ query_gradients to, const __grid_constant__ attend_lse lse) {
#if HOPPER
    extern __shared__ uint8_t raw[];
    dq_block &own = *(dq_block *)(raw + (1024 - shared_address(raw) % 1024) % 1024);
    if (threadIdx.x == 0 && threadIdx.y < PERSISTENT_CONSUMERS) {
        dq_shared &in = own.shared[threadIdx.y];
        for (int i = 0; i < PERSISTENT_STAGES; i++) {
            barrier_init(&in.full[i], 1);
            barrier_init(&in.empty[i], WARPGROUP / 32);
        }
        barrier_init(&in.queries_full, 1);
        barrier_init(&in.queries_empty, WARPGROUP / 32);
        barrier_init(&in.dout_full, 1);
        barrier_init(&in.dout_empty, WARPGROUP / 32);
        barrier_init_done();
    }
    /* Copies load live rows only. The rows after them must be finite. */
    for (int i = threadIdx.x;
         threadIdx.y < PERSISTENT_CONSUMERS && i < (TILE - t.live_rows) * PERSISTENT_STAGES * 2 * 8; i += WARPGROUP)
        *(uint4 *)(own.buffers[threadIdx.y].stages[0] + i / 8 % (2 * PERSISTENT_STAGES) * TILE_BYTES +
                   (t.live_rows + i / 8 / (2 * PERSISTENT_STAGES)) * 128 + i % 8 * 16) = make_uint4(0, 0, 0, 0);
    fence_async();
    __syncthreads();
    if (threadIdx.y == PERSISTENT_CONSUMERS) {
        take_producer_registers();
        int warp = uniform(threadIdx.x / 32);
        if (warp < PERSISTENT_CONSUMERS)
            dq_produce(maps, t, own.buffers[warp], own.shared[warp], warp);
        else
            dq_clear(t, to);
    } else {
        take_consumer_registers();
        int group = uniform(threadIdx.y);
        dq_consumer<MASKS>(t, to, lse, own.buffers[group], own.shared[group], group).run();
    }
#endif
}
