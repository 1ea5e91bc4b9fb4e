/* decode_step_consumer.cuh -- the way through all layers: of the warps that compute, and of the one that gathers. */
#pragma once
#include "kernels/decode_step/decode_step_product.cuh"

template <int DIM, int STRIPS, int UNITS> struct step_worker {
    using sizes = step_sizes<DIM, STRIPS, UNITS>;
    using attention_type = step_attention<DIM>;
    enum { PAIRS = attention_type::PAIRS, HEAD_SHARE = DIM / STEP_CLUSTER };
    step_block<DIM, STRIPS, UNITS> block;
    attention_type attention;
    int cluster, clusters;
    int slot, slot_count; /* of the chunk in hand; its keys */
    float slot_weight;
    unsigned turn; /* of the warps' rows */

    __device__ __forceinline__ void begin_window(const step_layer &l, int head) {
        if (head < block.t.heads) attention.begin(window_keys<DIM>(block.t, l, head), 0);
    }
    /* Well before begin_slot: what it reads comes from far. */
    __device__ __forceinline__ void choose_slot(const step_fusion &f, int place) {
        if (place < f.k) slot = f.slot[place], slot_weight = f.weight[place];
    }
    __device__ __forceinline__ void begin_slot(const step_fusion &f, int head, int place) {
        if (head >= block.t.heads || place >= f.k) return;
        step_keys s = slot_keys<DIM>(block.t, f, head, slot, slot_weight);
        slot_count = s.count;
        attention.begin(s, 0);
    }
    /* Warp w tells block w what it needs of this block's part. */
    __device__ __forceinline__ void tell_part(const float2 (&y)[PAIRS]) {
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
            step_send(block.peer(&block.s.parts[block.rank][block.lane + 32 * i]), pack2(y[i].x, y[i].y),
                      block.peer_told(PARTS));
    }
    /* The product's rows: HEAD_SHARE of each of `parts` vectors of the head. */
    __device__ __forceinline__ void tell_vectors(const step_layer &l, int head, unsigned parts) {
        enum { TURNS = (3 * HEAD_SHARE + 31) / 32 };
        const step_task &t = block.t;
        float y[TURNS];
#pragma unroll
        for (unsigned i = 0; i < TURNS; i++)
            y[i] = block.total(block.lane + 32 * i);
        float by = block.scale(); /* behind the sums in the code: they need not wait for it */
#pragma unroll
        for (unsigned i = 0; i < TURNS; i++) {
            unsigned row = (unsigned)block.lane + 32 * i, part = row / HEAD_SHARE;
            unsigned at = (unsigned)block.rank * HEAD_SHARE + row % HEAD_SHARE;
            if (row >= parts * HEAD_SHARE) break;
            y[i] *= by;
            unsigned place = part ? part * DIM + at : attention_type::query_place(at);
            step_send(block.peer(&block.s.vectors[place]), step_split(y[i]), block.peer_told(VECTORS));
            if (part && block.warp == STEP_WARPS - 1)
                l.ring[((int64_t)t.row * 2 + (part - 1)) * t.d + head * DIM + at] = from_float<bf16>(y[i]);
        }
    }
    __device__ __forceinline__ void attend(const step_layer &l, int head, bf16 *copy) {
        block.template product<sizes::stage_tiles(sizes::QKV_TILES)>(sizes::QKV_TILES, copy);
        block.expect(VECTORS, 3 * DIM * 4);
        block.expect(PARTS, STEP_CLUSTER * (DIM / 2 + 2) * 4);
        step_barrier();
        tell_vectors(l, head, 3);
        bool attends = block.warp < attention_type::WARPS;
        step_keys s = window_keys<DIM>(block.t, l, head);
        block.wait_told(VECTORS, attends);
        float *rows = block.s.rows[turn];
        if (attends) attention.run(rows + block.warp * attention_type::WIDTH, s, block.s.vectors);
        step_barrier();
        float2 y[PAIRS];
        float most, all;
        attention_type::join(y, most, all, rows);
        turn ^= 1;
        tell_part(y);
        if (block.lane == 0)
            step_send(block.peer(&block.s.scores[block.rank]), make_float2(most, all), block.peer_told(PARTS));
    }
    __device__ __forceinline__ void attend_slots(const step_layer &l, int head) {
        const step_fusion &f = block.t.fusion[l.group];
        block.template product<sizes::stage_tiles(sizes::QUERY_TILES)>(sizes::QUERY_TILES, NULL);
        block.expect(VECTORS, DIM * 4);
        block.expect(PARTS, STEP_CLUSTER * DIM / 2 * 4);
        step_barrier();
        tell_vectors(l, head, 1);
        bool attends = block.warp < attention_type::WARPS;
        block.wait_told(VECTORS, attends);
        float2 sum[PAIRS] = {};
#pragma unroll 1
        for (int place = block.rank; place < f.k; place += STEP_CLUSTER) {
            if (place != block.rank) choose_slot(f, place), begin_slot(f, head, place);
            step_keys s = {};
            s.count = slot_count, s.fresh = -1;
            float *rows = block.s.rows[turn];
            if (attends) {
                if (slot_count > attention_type::BATCH) s = slot_keys<DIM>(block.t, f, head, slot, slot_weight);
                attention.run(rows + block.warp * attention_type::WIDTH, s, block.s.vectors);
            }
            step_barrier();
            float2 y[PAIRS];
            float most, all;
            attention_type::join(y, most, all, rows);
            turn ^= 1;
            float top = f.null_key ? fmaxf(most, 0.0f) : most;
            all = power2(most - top) * all + (f.null_key ? power2(-top) : 0.0f);
            float by = slot_count ? slot_weight * __fdividef(power2(most - top), all) : 0.0f;
#pragma unroll
            for (int i = 0; i < PAIRS; i++)
                sum[i].x += by * y[i].x, sum[i].y += by * y[i].y;
        }
        tell_part(sum);
    }
    __device__ __forceinline__ void run() {
        const step_task &t = block.t;
        begin_window(t.layers[0], cluster);
        block.begin();
#pragma unroll 1
        for (int n = 0; n < t.n_layers; n++) {
            const step_layer &l = t.layers[n];
            bool fused = step_fused(t, l);
            if (fused) choose_slot(t.fusion[l.group], block.rank);
            auto begin_next = [&](int head) {
                if (head < t.heads) return begin_window(l, head);
                if (fused) return begin_slot(t.fusion[l.group], cluster, block.rank);
                if (n + 1 < t.n_layers) begin_window(t.layers[n + 1], cluster);
            };
#pragma unroll 1
            for (int head = cluster; head < t.heads; head += clusters) {
                attend(l, head, l.first && t.inputs && head == 0 && block.rank == 0 ? t.inputs + l.group * t.d : NULL);
                block.template output<true>();
                begin_next(head + clusters);
            }
            block.exchanged(false);
            if (fused) {
#pragma unroll 1
                for (int head = cluster; head < t.heads; head += clusters) {
                    attend_slots(l, head);
                    block.template output<false>();
                    if (head + clusters < t.heads)
                        choose_slot(t.fusion[l.group], block.rank),
                            begin_slot(t.fusion[l.group], head + clusters, block.rank);
                    else if (n + 1 < t.n_layers)
                        begin_window(t.layers[n + 1], cluster);
                }
                block.exchanged(true);
            }
            if constexpr (UNITS == 0)
                block.template mlp<0>();
            else if (block.units == UNITS)
                block.template mlp<UNITS>();
            else
                block.template mlp<UNITS - 8>();
        }
        if (t.logits) block.head();
    }
};

/* The warp that gathers what clusters add: this block's share of the columns, for its whole cluster. */
template <int DIM, int STRIPS, int UNITS> struct step_gatherer {
    using sizes = step_sizes<DIM, STRIPS, UNITS>;
    step_shared<DIM, STRIPS, UNITS> &s;
    const step_word *words;
    unsigned taken; /* exchanges. A slot comes again behind four of them, of which one at least was an MLP's: to that
                       every block has added, after it had read the slot */

    __device__ __forceinline__ void gather(int summands) {
        enum { PAIRS = (STRIPS + 1) / 2 };
        unsigned rank = blockIdx.x % STEP_CLUSTER, slot = taken % STREAM_SLOTS;
        unsigned barrier = shared_address(&s.gathered[slot]);
        int lane = threadIdx.x % 32, share = (int)rank * sizes::SHARE;
        if (lane == 0) barrier_expect(barrier, sizes::P * 4);
        float2 x[PAIRS];
        step_take(x, words + share, sizes::SHARE, (unsigned)summands);
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            if (2 * lane + 64 * i >= sizes::SHARE) break;
            unsigned to = shared_address(&s.stream[slot][share + 2 * lane + 64 * i]);
#pragma unroll
            for (unsigned j = 0; j < STEP_CLUSTER; j++) { /* not all at one block at a time */
                unsigned block = (rank + j) % STEP_CLUSTER;
                step_send(step_there(to, block), x[i], step_there(barrier, block));
            }
        }
        __syncwarp();
        words += sizes::P, taken++;
    }
    __device__ void run(const step_task &t) {
#pragma unroll 1
        for (int n = 0; n < t.n_layers; n++) {
            gather(t.heads);
            if (step_fused(t, t.layers[n])) gather(t.heads);
            if (t.logits || n + 1 < t.n_layers) gather(gridDim.x / STEP_CLUSTER);
        }
    }
};
