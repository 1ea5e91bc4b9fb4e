/* persistent_dkv.cuh -- backward's second pass, persistent: what attend_wgmma_dkv.cuh computes.
 *
 *   consumer   the key rows of one slot and head, then those of another; producers take them from a counter, since the
 *              lists of slots differ in length. Who computes a key tile does not change its sums.
 *
 *   shared memory of a consumer: | K | V | stage 0: Q tile, dO tile | stage 1 | stage 2 |  stat of each stage, barriers
 *
 * Busiest is the L2 cache, 78 % of the time (tensor cores 53 %). */
#pragma once
#include "kernels/attention/backward/persistent.cuh"

struct dkv_buffers {
    uint8_t keys[TILE_BYTES], values[TILE_BYTES];
    persistent_stage stages[PERSISTENT_STAGES];
};
/* What a producer passes to its consumer of a key tile: first row, head, number of query tiles that read it (0: the
 * end). */
struct dkv_task {
    int row, head, items;
};
struct dkv_shared {
    alignas(16) float2 stats[PERSISTENT_STAGES][TILE];
    int rows[PERSISTENT_STAGES];
    dkv_task tasks[2];
    uint64_t full[PERSISTENT_STAGES], empty[PERSISTENT_STAGES], keys_full, keys_empty;
};
struct dkv_block {
    dkv_buffers buffers[PERSISTENT_CONSUMERS];
    dkv_shared shared[PERSISTENT_CONSUMERS];
};
enum { DKV_BYTES = sizeof(dkv_block) + 1024 };

/* The entries of each slot, what dq left of their rows, and the counter from which producers take key tiles. */
struct dkv_lists {
    const int32_t *begin;
    const inverse_entry *entries;
    const float2 *stat;
    bool adds; /* to the old dK and dV */
    int slots, *counter;
};

#if HOPPER
/* Counts the query tiles of a list. mine: this lane's of its first 32 entries. A warp. */
static __device__ __forceinline__ int dkv_count(const inverse_entry *entries, int first, int count,
                                                inverse_entry &mine) {
    const int lane = threadIdx.x % 32;
    int items = 0;
    for (int from = 0; from < count; from += 32) {
        inverse_entry one = {0, 0, 0, 0};
        if (from + lane < count) one = entries[first + from + lane];
        if (from == 0) mine = one;
        items += (one.rows + TILE - 1) / TILE;
    }
    return __reduce_add_sync(~0u, items);
}
/* Reads the keys and values of a task into the L2 cache. */
static __device__ __forceinline__ void dkv_prefetch(const backward_maps &maps, const attend_task &t, int slots,
                                                    int id) {
    int head = id / slots, slot = id - head * slots;
    tensor_prefetch(&maps.k.map, head * TILE, slot * t.slot_rows);
    tensor_prefetch(&maps.v.map, head * TILE, slot * t.slot_rows);
}
/* Fills a stage with the old values of dK and dV; without `adds` the stage is a buffer only. */
static __device__ __forceinline__ void dkv_copy_old(const backward_maps &maps, bool adds, persistent_stage &to,
                                                    int column, int row, uint32_t bytes, uint64_t *full) {
    if (adds) {
        barrier_expect(full, bytes);
        tensor_copy(to, &maps.dk.map, column, row, full);
        tensor_copy(to + TILE_BYTES, &maps.dv.map, column, row, full);
    } else {
        barrier_arrive(full);
    }
}
/* A producer warp. NARROW: bf16 gradients; after a tile's items there is one more stage, with their old values. */
template <bool NARROW>
static __device__ __forceinline__ void dkv_produce(const backward_maps &maps, const attend_task &t,
                                                   const dkv_lists lists, dkv_buffers &buffers, dkv_shared &shared) {
    const int lane = threadIdx.x % 32, tasks = lists.slots * t.heads;
    const bool copies = elect_lane();
    tile_ring<PERSISTENT_STAGES> ring = {0, 1};
    uint32_t at = 0;
    const uint32_t pair_bytes = 2u * (uint32_t)t.live_rows * 128u;
    auto take = [&] {
        int id = 0;
        if (lane == 0) id = atomicAdd(lists.counter, 1);
        return uniform(id);
    };
    auto stage_wait = [&] {
        int stage = uniform(ring.stage);
        barrier_wait(&shared.empty[stage], ring.phase);
        return stage;
    };
    int id = take();
    while (id < tasks) {
        int next = take();
        int head = id / lists.slots, slot = id - head * lists.slots, column = head * TILE, key_row = slot * t.slot_rows;
        int first = lists.begin[slot], count = lists.begin[slot + 1] - first;
        inverse_entry mine = {0, 0, 0, 0};
        int items = dkv_count(lists.entries, first, count, mine);
        if (next < tasks && copies) dkv_prefetch(maps, t, lists.slots, next);
        __syncwarp();
        id = next;
        if (items == 0) continue;
        int filled = 0;
        for (int from = 0; from < count; from += 32) {
            if (from) mine = from + lane < count ? lists.entries[first + from + lane] : inverse_entry{0, 0, 0, 0};
            int in_batch = count - from < 32 ? count - from : 32;
            for (int i = 0; i < in_batch; i++) {
                int row = __shfl_sync(~0u, mine.row, i), rows = __shfl_sync(~0u, mine.rows, i);
                uint32_t stats = __shfl_sync(~0u, mine.stat, i);
                for (; rows > 0; rows -= TILE, row += TILE, stats += TILE / 2, filled++) {
                    int stage = stage_wait();
                    if (copies) {
                        uint64_t *full = &shared.full[stage];
                        uint8_t *to = buffers.stages[stage];
                        shared.rows[stage] = rows;
                        barrier_expect(full, 2 * TILE_BYTES + (uint32_t)sizeof shared.stats[0]);
                        tensor_copy(to, &maps.q.map, column, row, full);
                        tensor_copy(to + TILE_BYTES, &maps.dout.map, column, row, full);
                        const float2 *planes = lists.stat + (int64_t)head * t.k * t.stat_rows;
                        bulk_copy<(int)sizeof shared.stats[0]>(shared.stats[stage], planes + 2 * (int64_t)stats, full);
                    }
                    __syncwarp();
                    ring.next();
                    if (filled == 0) { /* not earlier: it waits for the last products with the keys before */
                        barrier_wait(&shared.keys_empty, (at & 1) ^ 1);
                        if (copies) {
                            shared.tasks[at & 1] = {key_row, head, items};
                            barrier_expect(&shared.keys_full, pair_bytes);
                            tensor_copy(buffers.keys, &maps.k.map, column, key_row, &shared.keys_full);
                            tensor_copy(buffers.values, &maps.v.map, column, key_row, &shared.keys_full);
                        }
                        __syncwarp();
                    }
                }
            }
        }
        at++;
        if (NARROW) {
            int stage = stage_wait();
            if (copies)
                dkv_copy_old(maps, lists.adds, buffers.stages[stage], column, key_row, pair_bytes,
                             &shared.full[stage]);
            __syncwarp();
            ring.next();
        }
    }
    barrier_wait(&shared.keys_empty, (at & 1) ^ 1);
    if (copies) {
        shared.tasks[at & 1] = {0, 0, 0};
        barrier_arrive(&shared.keys_full);
    }
}

/* A stage as a consumer reads it, and store_gradients, whose item is unused. */
struct dkv_stage {
    dkv_buffers &buffers;
    dkv_shared &shared;
    tile_ring<PERSISTENT_STAGES> ring;
    __device__ __forceinline__ uint8_t *queries(int) const { return buffers.stages[ring.stage]; }
    __device__ __forceinline__ uint8_t *gradients(int) const { return buffers.stages[ring.stage] + TILE_BYTES; }
    __device__ __forceinline__ const float2 *stats() const { return shared.stats[ring.stage]; }
    __device__ __forceinline__ void wait(int) const { barrier_wait(&shared.full[ring.stage], ring.phase); }
    /* All threads of this warp have read the stage. */
    __device__ __forceinline__ void release() const {
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(&shared.empty[ring.stage]);
    }
};

template <typename G>
static __device__ __forceinline__ void dkv_consume(const attend_task &t, dkv_buffers &buffers, dkv_shared &shared,
                                                   rows<G> dk, rows<G> dv, bool adds) {
    constexpr bool NARROW = sizeof(G) == 2;
    float to_log2 = t.scale * ATTEND_LOG2E;
    float s[32], dp[32], sum_k[32], sum_v[32];
    dkv_stage now = {buffers, shared, {0, 0}};
    /* S^T, dP^T of an item -> P^T, dS^T. */
    auto gradients = [&](const dkv_stage &of) {
        tile_offset at = {0, uniform(shared.rows[of.ring.stage])};
        products_wait<0>();
        pin(s);
        pin(dp);
        if (at.rows < TILE) {
            keep_branch();
            score_gradients_transposed<false, true>(s, dp, of.stats(), to_log2, 0.0f, 0, at);
        } else {
            score_gradients_transposed<false, false>(s, dp, of.stats(), to_log2, 0.0f, 0, at);
        }
        pin(dp);
    };
    /* Issue S^T = K Q^T, dP^T = V dO^T; dV += P^T dO and dK += dS^T Q. */
    auto multiply_queries = [&](const dkv_stage &of) {
        of.wait(0);
        products_begin();
        multiply_tiles_first(s, buffers.keys, of.queries(0));
        products_commit();
    };
    auto multiply_gradients = [&](const dkv_stage &of) {
        products_begin();
        multiply_tiles_first(dp, buffers.values, of.gradients(0));
        products_commit();
    };
    auto add_gradients = [&](const dkv_stage &of) {
        pin(sum_k);
        pin(sum_v);
        products_begin();
        multiply_columns<1, 0>(sum_v, dp, of.gradients(0));
        multiply_columns<1, 4>(sum_k, dp, of.queries(0));
        products_commit();
    };
    for (uint32_t at = 0;; at++) {
        barrier_wait(&shared.keys_full, at & 1);
        const dkv_task *task = &shared.tasks[at & 1];
        const int items = uniform(task->items);
        if (items == 0) return;
#pragma unroll
        for (int i = 0; i < 32; i++)
            sum_k[i] = sum_v[i] = 0.0f;
        multiply_queries(now);
        multiply_gradients(now);
        gradients(now);
        for (int i = 1; i < items; i++) {
            dkv_stage next = {buffers, shared, now.ring};
            next.ring.next();
            add_gradients(now);
            multiply_queries(next);
            products_wait<1>();
            pin(sum_k);
            pin(sum_v);
            pin(dp);
            multiply_gradients(next);
            now.release();
            now.ring = next.ring;
            gradients(now);
        }
        key_gradients<G> g = {dk, dv, task->row, task->head * TILE, t.live_rows, t.scale, adds};
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(&shared.keys_empty);
        add_gradients(now);
        dkv_stage last = now;
        if (NARROW) now.ring.next();
        if (NARROW && !adds) now.wait(0);
        store_gradients<1>(g, sum_k, sum_v, now, 0);
        last.release();
        if (NARROW) fence_async();
        if (NARROW) now.release();
        now.ring.next();
    }
}
#endif

template <typename G>
static __global__ void __launch_bounds__(WARPGROUP *(PERSISTENT_CONSUMERS + 1), 1)
    persistent_dkv(const __grid_constant__ backward_maps maps, const __grid_constant__ attend_task t,
                   rows<G> dk, rows<G> dv, const int32_t *entry_begin, const inverse_entry *entries,
                   const float2 *stat, bool adds, int slots, int *counter) {
#if HOPPER
    extern __shared__ uint8_t raw[];
    dkv_block &own = *(dkv_block *)(raw + (1024 - shared_address(raw) % 1024) % 1024);
    if (threadIdx.x == 0 && threadIdx.y < PERSISTENT_CONSUMERS) {
        dkv_shared &in = own.shared[threadIdx.y];
        for (int i = 0; i < PERSISTENT_STAGES; i++) {
            barrier_init(&in.full[i], 1);
            barrier_init(&in.empty[i], WARPGROUP / 32);
        }
        barrier_init(&in.keys_full, 1);
        barrier_init(&in.keys_empty, WARPGROUP / 32);
        barrier_init_done();
    }
    /* Copies load live rows only. The rows after them must be finite. */
    for (int i = threadIdx.x; threadIdx.y < PERSISTENT_CONSUMERS && i < (TILE - t.live_rows) * 2 * 8; i += WARPGROUP)
        *(uint4 *)(own.buffers[threadIdx.y].keys + i / 8 % 2 * TILE_BYTES + (t.live_rows + i / 8 / 2) * 128 +
                   i % 8 * 16) = make_uint4(0, 0, 0, 0);
    fence_async();
    __syncthreads();
    if (threadIdx.y == PERSISTENT_CONSUMERS) {
        take_producer_registers();
        int warp = uniform(threadIdx.x / 32);
        if (warp < PERSISTENT_CONSUMERS)
            dkv_produce<sizeof(G) == 2>(maps, t, {entry_begin, entries, stat, adds, slots, counter}, own.buffers[warp],
                                        own.shared[warp]);
    } else {
        take_consumer_registers();
        int group = uniform(threadIdx.y);
        dkv_consume<G>(t, own.buffers[group], own.shared[group], dk, dv, adds);
    }
#endif
}
