/* window_backward.cuh -- backward of a sliding window with heads of 64 on Hopper, in one pass of five products.
 *
 * A strip is one head of one sequence. A block has a range of the key tiles of all strips, in pairs:
 *
 *   threadIdx.y 0, 1   consumer warpgroups: a key tile of the pair each. For each query tile that reads it, in
 *                      ascending order: S^T = K Q^T, dP^T = V dO^T, P^T and dS^T; dV += P^T dO, dK += dS^T Q,
 *                      dQ += dS K
 *   threadIdx.y 2      warps 0, 1: copies; warps 2, 3: lse and delta of the query tiles, computed from o and dO
 *
 * dK and dV of a key tile stay in registers. The sums of dQ are float32 in shared memory: a pair is read by
 * BACKWARD_REACH + 2 query tiles, of which the first two are complete with it, so BACKWARD_REACH slots are enough.
 * Consumer 1 adds to a query tile after consumer 0, so sums have a fixed order. Where a strip is divided between two
 * blocks, the second writes its sums of the query tiles that both add to, and the first, which computes these tiles
 * last, adds them.
 *
 * Bound by latency; what limits it next is shared memory. Best measured (H100, 4 x 16,640 rows, 12 heads of 64, window
 * 512): 309 TFLOP/s (docs/kernels/attention.md).
 *
 *   shared memory: | sums of dQ | K of each consumer | 3 stages: Q tile, dO tile | dS of each consumer | lse, delta |
 */
#pragma once
#include "kernels/attention/backward/persistent.cuh"

enum {
    BACKWARD_CONSUMERS = 2,
    BACKWARD_STAGES = 3,
    BACKWARD_REACH = 8,  /* a query tile reads its own key tile and so many before it, at most */
    BACKWARD_STORED = 8, /* barriers of steps whose sums are stored: no consumer is half as many steps ahead */
    BACKWARD_STATS = 16  /* slots of lse and delta */
};

/* Sums of dQ of a query tile, as a consumer's threads hold them. */
using backward_sums = float4[TILE * TILE / 4 / WARPGROUP][WARPGROUP];

struct backward_block {
    backward_sums sums[BACKWARD_REACH];
    uint8_t keys[BACKWARD_CONSUMERS][TILE_BYTES];
    persistent_stage stages[BACKWARD_STAGES];
    uint8_t ds[BACKWARD_CONSUMERS][TILE_BYTES];
    alignas(16) float2 stats[BACKWARD_STATS][TILE];
    /* stored: a consumer has stored its sums of a step */
    uint64_t full[BACKWARD_STAGES], empty[BACKWARD_STAGES], keys_full[BACKWARD_CONSUMERS],
        keys_empty[BACKWARD_CONSUMERS], stats_full[BACKWARD_STATS],
        stats_empty[BACKWARD_STATS], stored[BACKWARD_CONSUMERS][BACKWARD_STORED];
};
enum { BACKWARD_BYTES = sizeof(backward_block) + 1024 };

/* tiles, pairs: of a strip. reach: as BACKWARD_REACH, of this window. all: pairs of all strips. */
struct backward_plan {
    int tiles, pairs, reach, all;
};
/* partial: for each block, the sums of the first `reach` query tiles of its first strip, where that is divided; ready:
 * how many are written. */
struct backward_results {
    rows<bf16> dq, dk, dv;
    backward_sums *partial;
    unsigned *ready;
};
struct backward_inputs {
    rows<const bf16> o, dout, v;
    attend_lse lse;
};

#if HOPPER
/* The pairs of one strip that a block computes, and what it has computed before them. */
struct backward_piece {
    int at, end; /* pairs of all strips */
    int strip, first, last;
    uint32_t pair, tile; /* how many pairs and query tiles were before this piece */
    __device__ __forceinline__ backward_piece(const backward_plan &plan)
        : strip(0), first(0), last(0), pair(0), tile(0) {
        at = (int)((int64_t)plan.all * blockIdx.x / gridDim.x);
        end = (int)((int64_t)plan.all * (blockIdx.x + 1) / gridDim.x);
        locate(plan);
    }
    __device__ __forceinline__ void locate(const backward_plan &plan) {
        strip = at / plan.pairs, first = at % plan.pairs;
        last = min(plan.pairs, first + end - at);
    }
    __device__ __forceinline__ bool any() const { return at < end; }
    __device__ __forceinline__ void next(const backward_plan &plan) {
        pair += last - first;
        tile += min(2 * last + plan.reach, plan.tiles) - 2 * first;
        at += last - first;
        locate(plan);
    }
};
/* Query tiles that read a pair. */
static __device__ __forceinline__ int backward_steps(const backward_plan &plan, int pair) {
    return min(plan.reach + 2, plan.tiles - 2 * pair);
}

/* d += A B, 64 x 64 x 16: A's tile has a row for each row of d, B's a row for each step of the sum. */
static __device__ __forceinline__ void product_tile_columns(float *d, uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " ACCUMULATOR_32 ", %32, %33, 1, 1, 1, 0, 1;\n"
                 : ACCUMULATOR_32_OPERANDS(d)
                 : "l"(a), "l"(b));
}
/* Writes the transpose of dS^T, this warp's 16 keys of all queries, as bf16: fragments of A as
 * score_gradients_transposed leaves them. */
static __device__ __forceinline__ void backward_put(uint8_t *tile, const float (&dp)[32]) {
    int lane = threadIdx.x % 32, row = lane / 16 * 8 + lane % 8, piece = threadIdx.x / 32 * 2 + lane / 8 % 2;
    uint32_t at = shared_address(tile) + row * 128 + ((piece ^ (row & 7)) << 4);
#pragma unroll
    for (int s = 0; s < 4; s++)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at + s * 16 * 128),
                     "r"(__float_as_uint(dp[8 * s + 4])), "r"(__float_as_uint(dp[8 * s + 5])),
                     "r"(__float_as_uint(dp[8 * s + 6])), "r"(__float_as_uint(dp[8 * s + 7]))
                     : "memory");
}

/* Producer warp 0: query tiles with dO. */
static __device__ __forceinline__ void backward_copy(const backward_maps &maps, const attend_task &t,
                                                     const backward_plan &plan, backward_block &own) {
    const bool copies = elect_lane();
    tile_ring<BACKWARD_STAGES> ring = {0, 1};
    for (backward_piece piece(plan); piece.any(); piece.next(plan)) {
        int column = piece.strip % t.heads * TILE, row = (int)(piece.strip / t.heads * t.length);
        for (int pair = piece.first; pair < piece.last; pair++)
            for (int at = pair * 2; at < pair * 2 + backward_steps(plan, pair); at++, ring.next()) {
                uint64_t *full = &own.full[ring.stage];
                barrier_wait(&own.empty[ring.stage], ring.phase);
                if (copies) {
                    uint8_t *to = own.stages[ring.stage];
                    barrier_expect(full, 2 * TILE_BYTES);
                    tensor_copy(to, &maps.q.map, column, row + at * TILE, full);
                    tensor_copy(to + TILE_BYTES, &maps.dout.map, column, row + at * TILE, full);
                }
                __syncwarp();
            }
    }
}
/* Producer warp 1: keys. Values go to registers; they, and the next keys, are read into the L2 cache. */
static __device__ __forceinline__ void backward_copy_keys(const backward_maps &maps, const attend_task &t,
                                                          const backward_plan &plan, backward_block &own) {
    const bool copies = elect_lane();
    for (backward_piece piece(plan); piece.any(); piece.next(plan)) {
        int column = piece.strip % t.heads * TILE, row = (int)(piece.strip / t.heads * t.length);
        for (int pair = piece.first; pair < piece.last; pair++)
            for (int i = 0; i < BACKWARD_CONSUMERS; i++) {
                int key_row = row + (pair * BACKWARD_CONSUMERS + i) * TILE;
                barrier_wait(&own.keys_empty[i], (piece.pair + pair - piece.first & 1) ^ 1);
                if (copies) {
                    barrier_expect(&own.keys_full[i], TILE_BYTES);
                    tensor_copy(own.keys[i], &maps.k.map, column, key_row, &own.keys_full[i]);
                    tensor_prefetch(&maps.k.map, column, key_row + BACKWARD_CONSUMERS * TILE);
                    tensor_prefetch(&maps.v.map, column, key_row + BACKWARD_CONSUMERS * TILE);
                }
                __syncwarp();
            }
    }
}

/* lse and delta of 16 rows: eight lanes have a row's 64 numbers. */
static __device__ __forceinline__ void backward_stats_rows(const attend_task &t, const backward_inputs &in, float2 *to,
                                                         int64_t first, int head) {
    const int lane = threadIdx.x % 32;
    uint4 a[4], b[4];
    float lse[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int64_t row = min(first + i * 4 + lane / 8, t.n - 1);
        a[i] = *(const uint4 *)(in.o[row] + head * TILE + lane % 8 * 8);
        b[i] = *(const uint4 *)(in.dout[row] + head * TILE + lane % 8 * 8);
        lse[i] = *in.lse.at(0, row, head);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 x = two_floats(((const __nv_bfloat162 *)&a[i])[j]),
                   y = two_floats(((const __nv_bfloat162 *)&b[i])[j]);
            sum = fmaf(x.x, y.x, fmaf(x.y, y.y, sum));
        }
        sum += __shfl_xor_sync(~0u, sum, 4);
        sum = row_sum(sum);
        if (lane % 8 == 0) to[i * 4 + lane / 8] = make_float2(-lse[i] * ATTEND_LOG2E, sum);
    }
}
/* Producer warps 2 and 3: compute lse and delta of a pair's query tiles that the pair before did not have. */
static __device__ __forceinline__ void backward_stats(const attend_task &t, const backward_plan &plan,
                                                    const backward_inputs &in, backward_block &own) {
    const unsigned warp = threadIdx.x / 32 % 2;
    for (backward_piece piece(plan); piece.any(); piece.next(plan)) {
        int head = piece.strip % t.heads;
        int64_t row = piece.strip / t.heads * t.length;
        for (int pair = piece.first; pair < piece.last; pair++) {
            int first = pair == piece.first ? 2 * pair : 2 * pair + plan.reach,
                end = 2 * pair + backward_steps(plan, pair);
            for (int tile = first; tile < end; tile++) {
                const uint32_t at = piece.tile + tile - 2 * piece.first, slot = at % BACKWARD_STATS;
                for (int part = 0; part < 4; part++) {
                    if (part % 2 != warp) continue;
                    barrier_wait(&own.stats_empty[slot], (at / BACKWARD_STATS & 1) ^ 1);
                    backward_stats_rows(t, in, &own.stats[slot][part * 16], row + tile * TILE + part * 16, head);
                    __syncwarp();
                    if (threadIdx.x % 32 == 0) barrier_arrive(&own.stats_full[slot]);
                }
            }
        }
    }
}

struct backward_consumer {
    const attend_task &t;
    const backward_plan &plan;
    const backward_results &to;
    const backward_inputs &in;
    backward_block &own;
    const int group;
    const float to_log2;
    backward_piece piece;
    tile_ring<BACKWARD_STAGES> ring;
    uint32_t step; /* of all pairs so far */
    int pair, head;
    int64_t row; /* first of the sequence */
    float slope;
    float s[32], dp[32], sum_k[32], sum_v[32], sum_q[32];
    uint32_t v[16];

    __device__ __forceinline__ backward_consumer(const attend_task &task, const backward_plan &of,
                                               const backward_results &results, const backward_inputs &inputs,
                                               backward_block &block)
        : t(task), plan(of), to(results), in(inputs), own(block), group(uniform(threadIdx.y)),
          to_log2(t.scale * ATTEND_LOG2E), piece(of), ring{0, 0}, step(0), pair(0), head(0), row(0), slope(0.0f) {}

    __device__ __forceinline__ void meet() const {
        asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"((int)WARPGROUP) : "memory");
    }
    __device__ __forceinline__ void arrive(uint64_t *barrier) const {
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
    }
    /* The sums of a step are stored: the other consumer may add to them. */
    __device__ __forceinline__ void arrive_stored() {
        arrive(&own.stored[group][step % BACKWARD_STORED]);
        step++;
    }
    __device__ __forceinline__ void wait_stage(tile_ring<BACKWARD_STAGES> of) const {
        barrier_wait(&own.full[of.stage], of.phase);
    }
    /* A step in which no query reads this key tile. */
    __device__ __forceinline__ void skip_step() {
        wait_stage(ring);
        arrive(&own.empty[ring.stage]);
        arrive_stored();
        ring.next();
    }
    /* Loads the key tile's values as fragments of A. */
    __device__ __forceinline__ void load_values(int of_pair) {
        int64_t first = row + (of_pair * 2 + group) * TILE + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
        const bf16 *at[2] = {in.v[min(first, t.n - 1)] + head * TILE + threadIdx.x % 4 * 2,
                             in.v[min(first + 8, t.n - 1)] + head * TILE + threadIdx.x % 4 * 2};
#pragma unroll
        for (int i = 0; i < 16; i++)
            v[i] = *(const uint32_t *)(at[i % 2] + i / 4 * 16 + i % 4 / 2 * 8);
    }
    __device__ __forceinline__ uint32_t tile_count(int at) const { return piece.tile + (pair - piece.first) * 2 + at; }
    /* Issue S^T = K Q^T, dP^T = V dO^T of a stage. */
    __device__ __forceinline__ void multiply_queries(tile_ring<BACKWARD_STAGES> of) {
        products_begin();
        multiply_tiles_first(s, own.keys[group], own.stages[of.stage]);
        products_commit();
    }
    __device__ __forceinline__ void multiply_gradients(tile_ring<BACKWARD_STAGES> of) {
        products_begin();
        multiply_rows_first(dp, v, own.stages[of.stage] + TILE_BYTES);
        products_commit();
    }
    /* S^T, dP^T of query tile `at` of the pair -> P^T, dS^T, and dS in shared memory. */
    __device__ __forceinline__ void gradients(int at) {
        uint32_t count = tile_count(at);
        const float2 *stats = own.stats[count % BACKWARD_STATS];
        int tile = pair * 2 + at;
        tile_offset of = {(at - group) * TILE, (int)t.length - tile * TILE};
        bool masked = of.rows < TILE || of.offset == 0 || of.offset + TILE - 1 > t.window;
        barrier_wait(&own.stats_full[count % BACKWARD_STATS], count / BACKWARD_STATS & 1);
        products_wait<0>();
        pin(s);
        pin(dp);
        if (masked) {
            keep_branch();
            score_gradients_transposed<true, true>(s, dp, stats, to_log2, slope, t.window, of);
        } else {
            score_gradients_transposed<true, false>(s, dp, stats, to_log2, slope, t.window, of);
        }
        pin(dp);
        backward_put(own.ds[group], dp);
        fence_async();
    }
    /* Issues dV += P^T dO, dK += dS^T Q and dQ += dS K. */
    __device__ __forceinline__ void add_gradients(int at) {
        pin(sum_k);
        pin(sum_v);
        products_begin();
        multiply_columns<1, 0>(sum_v, dp, own.stages[ring.stage] + TILE_BYTES);
        multiply_columns<1, 4>(sum_k, dp, own.stages[ring.stage]);
        products_commit();
        meet(); /* dS is written */
        load_sums(at);
        pin(sum_q);
        products_begin();
#pragma unroll
        for (int i = 0; i < 4; i++)
            product_tile_columns(sum_q, tile_descriptor(own.ds[group]) + i * 2,
                                 tile_descriptor(own.keys[group]) + i * 128);
        products_commit();
    }
    __device__ __forceinline__ void load_sums(int at) {
        bool none = at == plan.reach + group || (group == 0 && pair == piece.first);
        const backward_sums &from = own.sums[tile_count(at) % BACKWARD_REACH];
        /* The other consumer added to this tile in this step, or so many steps ago; 4 stands for more than 4. */
        uint32_t since = group ? 0 : (uint32_t)min(min(4, plan.reach), plan.tiles - 2 * pair);
        if (!none)
            barrier_wait(&own.stored[group ^ 1][(step - since) % BACKWARD_STORED],
                         (step - since) / BACKWARD_STORED & 1);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float4 x = none ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : from[i][threadIdx.x];
            sum_q[4 * i] = x.x, sum_q[4 * i + 1] = x.y, sum_q[4 * i + 2] = x.z, sum_q[4 * i + 3] = x.w;
        }
    }
    __device__ __forceinline__ float4 sums_of(int i) const {
        return make_float4(sum_q[4 * i], sum_q[4 * i + 1], sum_q[4 * i + 2], sum_q[4 * i + 3]);
    }
    /* Adds what the next block has of query tile `at`. */
    __device__ __forceinline__ void join(int at) {
        unsigned wanted = (unsigned)min(plan.reach, plan.tiles - 2 * piece.last), have;
        do
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                         : "=r"(have)
                         : "l"(to.ready + blockIdx.x + 1)
                         : "memory");
        while (have < wanted);
        const backward_sums &from = to.partial[(int64_t)(blockIdx.x + 1) * BACKWARD_REACH + at - 2];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float4 x = __ldcg(&from[i][threadIdx.x]);
            sum_q[4 * i] += x.x, sum_q[4 * i + 1] += x.y, sum_q[4 * i + 2] += x.z, sum_q[4 * i + 3] += x.w;
        }
    }
    /* The sums of query tile `at` have this key tile's part: stores them, or dQ if they are complete. */
    __device__ __forceinline__ void keep_sums(int at) {
        bool joins = group == 1 && at >= 2 && pair + 1 == piece.last && piece.last < plan.pairs;
        int tile = pair * 2 + at;
        meet(); /* dS has been read */
        if (at == group || joins) arrive(&own.stats_empty[tile_count(at) % BACKWARD_STATS]);
        if (at != group && !joins) {
            backward_sums &into = own.sums[tile_count(at) % BACKWARD_REACH];
#pragma unroll
            for (int i = 0; i < 8; i++)
                into[i][threadIdx.x] = sums_of(i);
        } else if (piece.first > 0 && tile - 2 * piece.first < plan.reach) {
            backward_sums &into = to.partial[(int64_t)blockIdx.x * BACKWARD_REACH + tile - 2 * piece.first];
#pragma unroll
            for (int i = 0; i < 8; i++)
                into[i][threadIdx.x] = sums_of(i);
            __threadfence();
            meet();
            if (threadIdx.x == 0) atomicAdd(to.ready + blockIdx.x, 1u);
        } else {
            if (joins) join(at);
            store_rows<1>(sum_q, t.scale, own.ds[group], to.dq[row + tile * TILE] + head * TILE, to.dq.stride, 0,
                          (int)min(t.length - (int64_t)tile * TILE, (int64_t)TILE));
            meet();
        }
        arrive_stored();
    }
    /* Stores dK and dV. */
    __device__ __forceinline__ void store_keys() {
        int64_t first = (int64_t)(pair * 2 + group) * TILE;
        int count = (int)min(t.length - first, (int64_t)TILE);
        uint8_t *tile = own.ds[group];
        store_rows<1>(sum_v, 1.0f, tile, to.dv[row + first] + head * TILE, to.dv.stride, 0, count);
        store_rows<1>(sum_k, t.scale, tile, to.dk[row + first] + head * TILE, to.dk.stride, 0, count);
        meet();
    }
    __device__ __forceinline__ void compute_pair() {
        const int steps = backward_steps(plan, pair), end = min(group + plan.reach + 1, steps);
        barrier_wait(&own.keys_full[group], piece.pair + pair - piece.first & 1);
        for (int at = 0; at < min(group, steps); at++)
            skip_step();
        if (group < end) {
#pragma unroll
            for (int i = 0; i < 32; i++)
                sum_k[i] = sum_v[i] = 0.0f;
            wait_stage(ring);
            multiply_queries(ring);
            multiply_gradients(ring);
            gradients(group);
            for (int at = group; at + 1 < end; at++) {
                tile_ring<BACKWARD_STAGES> next = ring;
                next.next();
                add_gradients(at);
                wait_stage(next);
                multiply_queries(next);
                products_wait<1>();
                pin(sum_k);
                pin(sum_v);
                pin(sum_q);
                pin(dp);
                arrive(&own.empty[ring.stage]);
                keep_sums(at);
                multiply_gradients(next);
                ring = next;
                gradients(at + 1);
            }
            add_gradients(end - 1);
            products_wait<0>();
            pin(sum_k);
            pin(sum_v);
            pin(sum_q);
            arrive(&own.empty[ring.stage]);
            arrive(&own.keys_empty[group]);
            if (pair + 1 < piece.last) load_values(pair + 1);
            keep_sums(end - 1);
            ring.next();
            store_keys();
        } else {
            arrive(&own.keys_empty[group]);
        }
        for (int at = max(end, group); at < steps; at++)
            skip_step();
    }
    __device__ __forceinline__ void run() {
        for (; piece.any(); piece.next(plan)) {
            head = uniform(piece.strip % t.heads);
            row = piece.strip / t.heads * t.length;
            slope = window_slope(t, head);
            load_values(piece.first);
            for (pair = piece.first; pair < piece.last; pair++)
                compute_pair();
            if (group == 1 && piece.last < plan.pairs && threadIdx.x == 0) to.ready[blockIdx.x + 1] = 0;
        }
    }
};
#endif

static __global__ void __launch_bounds__(WARPGROUP *(BACKWARD_CONSUMERS + 1), 1)
    window_backward(const __grid_constant__ backward_maps maps, const __grid_constant__ attend_task t,
                    const __grid_constant__ backward_plan plan, const __grid_constant__ backward_inputs in,
                    const __grid_constant__ backward_results to) {
#if HOPPER
    extern __shared__ uint8_t raw[];
    backward_block &own = *(backward_block *)(raw + (1024 - shared_address(raw) % 1024) % 1024);
    if (threadIdx.x == 0 && threadIdx.y == 0) {
        const int all = BACKWARD_CONSUMERS * WARPGROUP / 32;
        for (int i = 0; i < BACKWARD_STAGES; i++)
            barrier_init(&own.full[i], 1), barrier_init(&own.empty[i], all);
        for (int i = 0; i < BACKWARD_CONSUMERS; i++)
            barrier_init(&own.keys_full[i], 1), barrier_init(&own.keys_empty[i], WARPGROUP / 32);
        for (int i = 0; i < BACKWARD_STATS; i++)
            barrier_init(&own.stats_full[i], 4), barrier_init(&own.stats_empty[i], WARPGROUP / 32);
        for (int i = 0; i < BACKWARD_CONSUMERS * BACKWARD_STORED; i++)
            barrier_init(&own.stored[0][i], WARPGROUP / 32);
        barrier_init_done();
    }
    __syncthreads();
    if (threadIdx.y == BACKWARD_CONSUMERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
        const int warp = uniform(threadIdx.x / 32);
        if (warp == 0)
            backward_copy(maps, t, plan, own);
        else if (warp == 1)
            backward_copy_keys(maps, t, plan, own);
        else
            backward_stats(t, plan, in, own);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");
        backward_consumer(t, plan, to, in, own).run();
    }
#endif
}
