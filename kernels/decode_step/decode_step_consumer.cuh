/* decode_step_consumer.cuh -- the loops over all layers: of the consumer warps, which compute, and of the exchange
 * warps, which poll the sums between clusters. */
#pragma once
#include "kernels/cuda/launch_cuda.cuh"
#include "kernels/decode_step/decode_step_product.cuh"

template <int DIM, int STRIPS, int UNITS, bool I8> struct step_consumer {
    using sizes = step_sizes<DIM, STRIPS, UNITS, I8>;
    using attention_type = step_attention<DIM>;
    enum { PAIRS = attention_type::PAIRS, HEAD_SHARE = DIM / STEP_CLUSTER };
    enum { PART = DIM / 2 + I8 /* numbers of 32 bits in a part; the last one of 8 bits: a scale */ };
    step_block<DIM, STRIPS, UNITS, I8> block;
    attention_type attention;
    int cluster, clusters;
    int slot, slot_count; /* of the current chunk; its keys */
    float slot_weight;
    unsigned row_buffer; /* which of s.rows is written next */

    __device__ __forceinline__ void start_window(const step_layer &l, int head) {
        if (head < block.t.heads) attention.begin(step_window_keys<DIM>(block.t, l, head), 0);
    }
    /* Called well before start_slot, because the load comes from global memory. */
    __device__ __forceinline__ void read_slot(const step_fusion &f, int index) {
        if (index < f.k) slot = f.slot[index], slot_weight = f.weight[index];
    }
    __device__ __forceinline__ void start_slot(const step_fusion &f, int head, int index) {
        if (head >= block.t.heads || index >= f.k) return;
        step_keys s = step_slot_keys<DIM>(block.t, f, head, slot, slot_weight);
        slot_count = s.count;
        attention.begin(s, 0);
    }
    /* Warp w sends this block's part to block w of the cluster. */
    __device__ __forceinline__ void send_part(const float2 (&y)[PAIRS]) {
        step_rounding by = {};
        if constexpr (I8) { /* as digits: a head is one block of 64 columns */
            static_assert(!I8 || PAIRS == 1, "a lane has a pair");
            by = step_rounding_of(max(step_magnitude(y[0].x), step_magnitude(y[0].y)));
            if (block.lane == 0)
                step_send(block.peer(&block.s.parts[block.rank][DIM / 2]), by.scale, block.peer_signal(PARTS));
        }
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
            step_send(block.peer(&block.s.parts[block.rank][block.lane + 32 * i]),
                      I8 ? step_digits(y[i].x, y[i].y, by.factor) : pack2(y[i].x, y[i].y), block.peer_signal(PARTS));
    }
    /* Sends the product's rows (HEAD_SHARE of each of `parts` vectors of the head) to the cluster. */
    __device__ __forceinline__ void send_vectors(const step_layer &l, int head, unsigned parts) {
        enum { ROUNDS = (3 * HEAD_SHARE + 31) / 32 };
        const step_task &t = block.t;
        float y[ROUNDS];
#pragma unroll
        for (unsigned i = 0; i < ROUNDS; i++)
            y[i] = block.total(block.lane + 32 * i);
        float by = block.scale(); /* after the sums, which do not depend on it */
#pragma unroll
        for (unsigned i = 0; i < ROUNDS; i++) {
            unsigned row = (unsigned)block.lane + 32 * i, part = row / HEAD_SHARE;
            unsigned at = (unsigned)block.rank * HEAD_SHARE + row % HEAD_SHARE;
            if (row >= parts * HEAD_SHARE) break;
            y[i] *= by;
            unsigned index = part ? part * DIM + at : attention_type::query_index(at);
            step_send(block.peer(&block.s.vectors[index]), step_split(y[i]), block.peer_signal(VECTORS));
            if (part && block.warp == STEP_WARPS - 1)
                l.ring[((int64_t)t.row * 2 + (part - 1)) * t.d + head * DIM + at] = from_float<bf16>(y[i]);
        }
    }
    __device__ __forceinline__ void attend(const step_layer &l, int head, bf16 *copy) {
        block.template product<sizes::stage_tiles(sizes::QKV_TILES)>(sizes::QKV_TILES, copy);
        block.expect(VECTORS, 3 * DIM * 4);
        block.expect(PARTS, STEP_CLUSTER * (PART + 2) * 4);
        step_barrier();
        send_vectors(l, head, 3);
        bool attends = block.warp < attention_type::WARPS;
        step_keys s = step_window_keys<DIM>(block.t, l, head);
        block.wait_signal(VECTORS, attends);
        float *rows = block.s.rows[row_buffer];
        if (attends) attention.attend(rows + block.warp * attention_type::WIDTH, s, block.s.vectors);
        step_barrier();
        float2 y[PAIRS];
        float most, all;
        attention_type::combine_warps(y, most, all, rows);
        row_buffer ^= 1;
        send_part(y);
        if (block.lane == 0)
            step_send(block.peer(&block.s.scores[block.rank]), make_float2(most, all), block.peer_signal(PARTS));
    }
    __device__ __forceinline__ void attend_slots(const step_layer &l, int head) {
        const step_fusion &f = block.t.fusion[l.group];
        block.template product<sizes::stage_tiles(sizes::QUERY_TILES)>(sizes::QUERY_TILES, NULL);
        block.expect(VECTORS, DIM * 4);
        block.expect(PARTS, STEP_CLUSTER * PART * 4);
        step_barrier();
        send_vectors(l, head, 1);
        bool attends = block.warp < attention_type::WARPS;
        block.wait_signal(VECTORS, attends);
        float2 sum[PAIRS] = {};
#pragma unroll 1
        for (int index = block.rank; index < f.k; index += STEP_CLUSTER) {
            if (index != block.rank) read_slot(f, index), start_slot(f, head, index);
            step_keys s = {};
            s.count = slot_count, s.fresh = -1;
            float *rows = block.s.rows[row_buffer];
            if (attends) {
                if (slot_count > attention_type::BATCH) s = step_slot_keys<DIM>(block.t, f, head, slot, slot_weight);
                attention.attend(rows + block.warp * attention_type::WIDTH, s, block.s.vectors);
            }
            step_barrier();
            float2 y[PAIRS];
            float most, all;
            attention_type::combine_warps(y, most, all, rows);
            row_buffer ^= 1;
            float top = f.null_key ? fmaxf(most, 0.0f) : most;
            all = power2(most - top) * all + (f.null_key ? power2(-top) : 0.0f);
            float by = slot_count ? slot_weight * __fdividef(power2(most - top), all) : 0.0f;
#pragma unroll
            for (int i = 0; i < PAIRS; i++)
                sum[i].x += by * y[i].x, sum[i].y += by * y[i].y;
        }
        send_part(sum);
    }
    /* KEYS: computes a layer's key state (decode_step.h). */
    template <bool KEYS> __device__ __forceinline__ void run() {
        const step_task &t = block.t;
        start_window(t.layers[0], cluster);
        block.begin();
#pragma unroll 1
        for (int n = 0; n < t.n_layers; n++) {
            const step_layer &l = t.layers[n];
            bool fused = step_fused(t, l);
            if (KEYS && n == t.permit_layer && block.warp == 0) launch_next(); /* a reader of the key state may start */
            if (fused) read_slot(t.fusion[l.group], block.rank);
            auto begin_next = [&](int head) {
                if (head < t.heads) return start_window(l, head);
                if (fused) return start_slot(t.fusion[l.group], cluster, block.rank);
                if (n + 1 < t.n_layers) start_window(t.layers[n + 1], cluster);
            };
#pragma unroll 1
            for (int head = cluster; head < t.heads; head += clusters) {
                attend(l, head, l.first && t.inputs && head == 0 && block.rank == 0 ? t.inputs + l.group * t.d : NULL);
                block.template output<true>();
                begin_next(head + clusters);
            }
            block.end_exchange(false);
            if (fused) {
#pragma unroll 1
                for (int head = cluster; head < t.heads; head += clusters) {
                    attend_slots(l, head);
                    block.template output<false>();
                    if (head + clusters < t.heads)
                        read_slot(t.fusion[l.group], block.rank),
                            start_slot(t.fusion[l.group], head + clusters, block.rank);
                    else if (n + 1 < t.n_layers)
                        start_window(t.layers[n + 1], cluster);
                }
                block.end_exchange(true);
            }
            if constexpr (UNITS == 0)
                block.template mlp<0, KEYS>(n);
            else if (block.units == UNITS)
                block.template mlp<UNITS, KEYS>(n);
            else
                block.template mlp<UNITS - 8, KEYS>(n);
        }
        if (!KEYS && t.pick.id && block.warp == 0) launch_next(); /* the step that reads the pick may start */
        if (t.logits) block.template head<KEYS>();
    }
};

/* An exchange warp: polls its part of this block's share of the columns and sends the sums to the whole cluster. */
template <int DIM, int STRIPS, int UNITS, bool I8> struct step_exchange_warp {
    using sizes = step_sizes<DIM, STRIPS, UNITS, I8>;
    step_shared<DIM, STRIPS, UNITS> &s;
    const step_accumulator *exchange;
    /* Counts exchanges. A buffer of `stream` is reused after four exchanges, one of which at least was an MLP's. Every
     * block adds to that one, and does so after it has read the buffer: so no buffer is overwritten too early. */
    unsigned exchange_index;
    int part; /* of STEP_EXCHANGE_WARPS */

    __device__ __forceinline__ void gather_sums(int summands) {
        enum { COLUMNS = sizes::SHARE / STEP_EXCHANGE_WARPS, PAIRS = (COLUMNS + 63) / 64 };
        unsigned rank = blockIdx.x % STEP_CLUSTER, slot = exchange_index % STREAM_BUFFERS;
        unsigned barrier = shared_address(&s.gathered[slot]);
        int lane = threadIdx.x % 32, share = (int)rank * sizes::SHARE + part * COLUMNS;
        if (lane == 0 && part == 0) barrier_expect(barrier, sizes::P * 4);
        float2 x[PAIRS];
        step_wait_sums(x, exchange + share, COLUMNS, (unsigned)summands);
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            if (2 * lane + 64 * i >= COLUMNS) break;
            unsigned to = shared_address(&s.stream[slot][share + 2 * lane + 64 * i]);
#pragma unroll
            for (unsigned j = 0; j < STEP_CLUSTER; j++) { /* each block starts with another one, to spread the writes */
                unsigned block = (rank + j) % STEP_CLUSTER;
                step_send(step_peer_address(to, block), x[i], step_peer_address(barrier, block));
            }
        }
        __syncwarp();
        exchange += sizes::P, exchange_index++;
    }
    __device__ void run(const step_task &t) {
#pragma unroll 1
        for (int n = 0; n < t.n_layers; n++) {
            gather_sums(t.heads);
            if (step_fused(t, t.layers[n])) gather_sums(t.heads);
            if (part == 0 && step_has_keys(t, n)) step_keys_release(t.ready);
            if (t.logits || n + 1 < t.n_layers) gather_sums(gridDim.x / STEP_CLUSTER);
        }
    }
};
