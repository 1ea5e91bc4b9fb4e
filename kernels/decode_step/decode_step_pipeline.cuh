/* decode_step_pipeline.cuh -- the weights of the decode step: their order in memory, and the producer warp that copies
 * them into the ring of stages in shared memory.
 *
 * Weights are copied once (decode_step_pack.cuh) into the order in which a block uses them and its lanes read them. A
 * stage is then one contiguous range: one bulk copy fills it, and it is read without bank conflicts. P is d rounded up
 * to whole strips of 32 columns for all warps (zeros after column d). Order of a layer:
 *
 *   for each head and rank in its cluster    a share of the head's rows of Wq, Wk, Wv; then a share of the rows of Wo,
 *                                            the head's columns of them
 *   layers with GCA, the same                rows of the GCA query matrix; rows of the GCA output matrix as Wo
 *   for each block                           rows of gate and up of its units; the columns of its units of all of Wdown
 *
 * Tiles are 8 rows x 32 columns for products with the residual stream (lane 4 g + k has columns 8 k .. 8 k + 7 of row
 * g), 16 x 16 for Wo and 16 x 8 for Wdown (fragments of mma.sync). Weights of 8 bits: decode_step_i8.cuh.
 *
 * The ring takes nearly all of shared memory: more than a layer of a small model. Stages have different sizes. The
 * producer walks through all stages of the kernel and copies as soon as the ring has capacity; the consumer warps walk
 * through the same stages after it. Two mbarriers for each stage: `full` (bytes have arrived) and `empty` (all consumer
 * warps have read it). README.md has a drawing. */
#pragma once
#include "kernels/decode_step/decode_step_exchange.cuh"
#include "kernels/decode_step/decode_step_pick.cuh"
extern "C" {
#include "kernels/decode_step/decode_step.h"
}

/* The producer issues `group` copies of COPY_BYTES at a time, one group every `cycles`. When all blocks request whole
 * stages at once, the accumulators of decode_step_exchange.cuh queue after them in the memory system. The faster the
 * memory, the shorter the queue (docs/kernels/decode_step.md has the times of each pace). */
enum { COPY_BYTES = 4096 };
struct step_pace {
    int group, cycles;
};
static constexpr double STEP_FAST_MEMORY = 4e12; /* bytes/s: HBM3e */
static constexpr step_pace STEP_PACE[2][2] = {{{3, 420}, {3, 780}}, {{4, 360}, {4, 540}}}; /* [fast][8 bits] */
/* The layers wait for exchanges and do not take all that the memory gives. So in the last AHEAD_LAYERS the producer
 * also requests rows of the head, AHEAD_BYTES with each group of copies: every second stage from AHEAD_FIRST on,
 * AHEAD_STAGES in all (d 768: 12 MB of 50 MB of L2). The stages between them come from memory while these come from
 * L2. */
enum { AHEAD_LAYERS = 6, AHEAD_BYTES = 3072, AHEAD_FIRST = 4, AHEAD_STAGES = 2 };
/* With weights of 8 bits the layers wait for no weights even so, and a stage of the head has half of the bytes. */
enum { AHEAD_LAYERS_I8 = 8, AHEAD_BYTES_I8 = 4096, AHEAD_STAGES_I8 = 8 };
enum { STEP_BLOCK = 64 /* inputs that share a scale */ };
/* A tile of eight rows of `cols` columns with weights of 8 bits and their scales. */
static __host__ __device__ __forceinline__ constexpr int step_tile_i8(int cols) {
    return 8 * cols + 32 * (cols / STEP_BLOCK);
}
enum { RING_STAGES = 16, STEP_LAYERS_MAX = 96, UNITS_MAX = 80 /* of a block */, STREAM_BUFFERS = 4 };

struct step_layer {
    bf16 *ring; /* keys and values */
    int group;
    bool first; /* of its group */
};
struct step_fusion {
    const bf16 *keys, *values;
    const int32_t *slot;
    const float *weight;
    int k, slot_rows, live_rows, null_key;
};
struct step_task {
    const unsigned char *packed; /* layer after layer */
    const bf16 *norms;           /* [layers, 3, P]: of qkv, of the query, of the MLP */
    const bf16 *embed, *final_norm;
    step_accumulator *exchange_buffer,
        *next_exchange_buffer; /* [exchanges, P]: of this step; of the next, which this step clears */
    int exchanges;
    float *logits;
    bf16 *inputs;
    const int32_t *picked; /* the id, if another kernel has written it; NULL: `id` */
    int row, first, keys, ring; /* rows of the ring: the position's, its window's first; keys in the window */
    int n_layers, d, f, heads, vocab, id;
    int capacity;     /* bytes of the ring of weights */
    step_pace pace;   /* of the copies into it */
    float share;      /* 1 / d */
    float eps, slope; /* slope: log2 of the ALiBi slope of head h is (h + 1) * slope */
    step_fusion fusion[DECODE_STEP_GROUPS_MAX];
    step_layer layers[STEP_LAYERS_MAX];
    bf16 *key_state;
    int key_layer; /* whose MLP's input goes to key_state, from 0 */
    int permit_layer; /* at whose start a reader of the key state may start */
    /* of a step that makes a key state: the block that makes it adds 1 to `ready`;
     * shares [warps of all blocks] of the logits, and each block adds 1 to `done` after its part of both */
    unsigned *ready, *done;
    struct logit_share *shares;
    /* [blocks] in host memory: `step` after the block's part of the logits is there; NULL: not wanted */
    unsigned *written, step;
    step_pick pick; /* id NULL: not wanted */
    /* Weights of 8 bits: tiles of eight rows of the head, `head_tile` bytes each. Else the head is `embed`. */
    const unsigned char *head;
    int head_tile;
};
static __device__ __forceinline__ bool step_fused(const step_task &t, const step_layer &l) {
    return l.group >= 0 && t.fusion[l.group].k > 0;
}

/* Whether this block writes the layer's key state. The last block has units, however few there are. */
static __device__ __forceinline__ bool step_has_keys(const step_task &t, int layer) {
    return layer == t.key_layer && blockIdx.x + 1 == gridDim.x;
}

/* Units of the MLP (columns of f) are divided among the blocks in eights. This is the first unit of a block. If the
 * division has a remainder, the last blocks have eight more: their cluster may have no attention head. */
static __host__ __device__ __forceinline__ int step_units_begin(int f, int block, int blocks) {
    int each = f / 8 / blocks, more = f / 8 % blocks;
    return 8 * (each * block + (block > blocks - more ? block - (blocks - more) : 0));
}
static __host__ __device__ __forceinline__ int step_units(int f, int block, int blocks) {
    return step_units_begin(f, block + 1, blocks) - step_units_begin(f, block, blocks);
}

/* Scales that a row of Wdown has for `units` units from `first` on, with weights of 8 bits: of each block of inputs. */
static __host__ __device__ __forceinline__ int step_down_scales(int first, int units) {
    return units ? (first + units - 1) / STEP_BLOCK - first / STEP_BLOCK + 1 : 0;
}

/* Sizes in bytes. STRIPS: strips of 32 columns of d that a warp has. UNITS: units of a block at most; 0: any number.
 * I8: weights of 8 bits. */
template <int DIM, int STRIPS, int UNITS, bool I8> struct step_sizes {
    enum {
        P = STRIPS * 32 * STEP_WARPS,
        SHARE = P / STEP_CLUSTER, /* rows of Wo and Wdown that a block finishes */
        TILE = I8 ? step_tile_i8(P) : 8 * P * 2,
        QKV_TILES = 3 * DIM / 64,
        QUERY_TILES = DIM / 64,
        OUTPUT = SHARE * (I8 ? DIM + 4 : DIM * 2),
        ATTEND = QKV_TILES * TILE + OUTPUT,
        FUSE = QUERY_TILES * TILE + OUTPUT,
        NORM = P * 2,
        DOWN_TILES = 2 * STRIPS, /* of a warp, 16 rows each */
        UNIT = I8 ? 2 * TILE / 8 + DOWN_TILES * 128 : 3 * P * 2,
        DOWN_SCALES = DOWN_TILES * 512, /* 8 bits: one for each row */
        MLP_SCALES = I8 ? (UNITS ? 2 : 3) * DOWN_SCALES : 0, /* of a block, as many as it may need */
        DOWN_STAGE = UNITS ? DOWN_TILES : 2,
        HEAD_TILES = STRIPS > 4 ? 2 : 4, /* of a stage */
        HEAD_ROWS = 8 * HEAD_TILES
    };
    static __host__ __device__ constexpr int stage_tiles(int tiles) {
        return STRIPS > 4 ? (tiles < 2 ? tiles : 2) : tiles % 3 == 0 ? 3 : tiles < 4 ? tiles : 4;
    }
    static constexpr int GATE_STAGE = UNITS ? UNITS / 4 : stage_tiles(4);
    /* a tile of each warp; scales: of step_down_scales */
    static __host__ __device__ constexpr int down(int units, int scales) {
        return I8 ? units * 128 + scales * 512 : units * 256;
    }
    /* from the MLP's weights of the first block to those of `block`, whose first unit is `first` */
    static __host__ __device__ int64_t mlp(int first, int block) {
        return (int64_t)first * UNIT + (I8 ? block * (int64_t)MLP_SCALES : 0);
    }
    static __host__ __device__ int64_t layer(int heads, int f, bool fuses, int blocks) {
        return (int64_t)heads * STEP_CLUSTER * (ATTEND + (fuses ? FUSE : 0)) + mlp(f, blocks);
    }
};

/* A position in the ring. Stages lie one after the other; one that does not fit before the end begins at offset 0. */
struct step_ring {
    unsigned bytes, full, empty; /* addresses in shared memory: of the ring, of RING_STAGES barriers each */
    int capacity, offset;
    unsigned stage, position; /* both count up through the whole kernel: stages; bytes of the ring */

    __device__ unsigned slot() const { return stage % RING_STAGES * 8; }
    __device__ unsigned parity() const { return stage / RING_STAGES % 2; }
    /* The address of the next stage, of `size` bytes. `position` becomes its begin. */
    __device__ unsigned address_of(int size) {
        if (offset + size > capacity) position += capacity - offset, offset = 0;
        return bytes + offset;
    }
    __device__ void advance(int size) { offset += size, position += size, stage++; }
};

static __device__ __forceinline__ void ring_copy(unsigned to, const void *from, unsigned size, unsigned barrier,
                                                 uint64_t policy) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
            "r"(to),
        "l"(from), "r"(size), "r"(barrier), "l"(policy)
        : "memory");
}

static __device__ __forceinline__ void ring_prefetch(const void *from, unsigned size) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(size) : "memory");
}

/* The first row of the head's matrix that block `block` multiplies; with weights of 8 bits a multiple of 8, and the
 * last rows may not exist. */
template <bool I8> static __device__ __forceinline__ int step_vocab_begin(const step_task &t, unsigned block) {
    if (I8) return 8 * (int)((int64_t)((t.vocab + 7) / 8) * block / gridDim.x);
    return (int)((int64_t)t.vocab * block / gridDim.x);
}
/* Bytes of so many of its rows. */
template <bool I8> static __device__ __forceinline__ int step_head_bytes(const step_task &t, int rows) {
    return I8 ? rows / 8 * t.head_tile : rows * (t.d * 2);
}

/* What a product reads: `stages` of `each` bytes, the last one shorter. The norm's weights follow the first one, unless
 * norm is NULL. A stage of a block without units of the MLP is empty. */
struct step_piece {
    const unsigned char *from;
    int stages, bytes, each;
    const bf16 *norm;
    int norm_bytes;
};

/* The producer warp. All its lanes walk through the stages together, and each lane issues a copy. So the code is short;
 * a copy's instructions once for each copy of a layer took longer, since they were not in the instruction cache. */
template <int DIM, int STRIPS, int UNITS, bool I8> struct step_producer {
    using sizes = step_sizes<DIM, STRIPS, UNITS, I8>;
    static constexpr int LAYERS = I8 ? (int)AHEAD_LAYERS_I8 : (int)AHEAD_LAYERS,
                         AHEAD = I8 ? (int)AHEAD_BYTES_I8 : (int)AHEAD_BYTES,
                         STAGES = I8 ? (int)AHEAD_STAGES_I8 : (int)AHEAD_STAGES;
    static_assert(sizes::stage_tiles(sizes::QKV_TILES) * sizes::TILE <= 31 * COPY_BYTES &&
                      sizes::GATE_STAGE * sizes::TILE <= 31 * COPY_BYTES && sizes::OUTPUT <= 32 * COPY_BYTES &&
                      sizes::HEAD_TILES * sizes::TILE <= 31 * COPY_BYTES &&
                      sizes::DOWN_STAGE * sizes::down(UNITS ? UNITS : UNITS_MAX, 3) <= 32 * COPY_BYTES,
                  "each lane has a copy, and a further one the norm's weights");
    const step_task &t;
    step_ring ring;
    int units;
    unsigned last, pause; /* clock of the last group of copies; cycles from group to group; 0: no pause */
    unsigned tail;        /* the oldest stage that may still be read */
    unsigned begin;       /* lane l: where the last stage s with s % RING_STAGES == l begins */
    uint64_t policy;
    const unsigned char *ahead;   /* the next bytes of the head that are requested ahead */
    int ahead_left, ahead_stages; /* bytes left of their stage; such stages after it */

    /* Requests a few bytes of the head's rows, which are then in the L2 cache when the head needs them. */
    __device__ __forceinline__ void request_ahead() {
        int bytes = min(AHEAD, ahead_left), stage = step_head_bytes<I8>(t, sizes::HEAD_ROWS);
        if (threadIdx.x % 32 == 0) ring_prefetch(ahead, (unsigned)bytes);
        ahead += bytes, ahead_left -= bytes;
        if (ahead_left == 0 && ahead_stages > 0)
            ahead += stage, ahead_left = stage, ahead_stages--; /* the stage between is read from memory meanwhile */
    }
    /* Copies a stage and the norm's weights after it. Waits until the ring has capacity. */
    __device__ __forceinline__ void load_stage(const unsigned char *from, int size, const bf16 *norm, int norm_bytes) {
        int lane = threadIdx.x % 32, copies = (size + COPY_BYTES - 1) / COPY_BYTES;
        int all = size + (norm ? norm_bytes : 0);
        unsigned to = ring.address_of(all), barrier = ring.full + ring.slot();
        while (tail != ring.stage &&
               (ring.stage - tail == RING_STAGES ||
                ring.position + all - __shfl_sync(~0u, begin, tail % RING_STAGES) > (unsigned)ring.capacity)) {
            step_wait(ring.empty + tail % RING_STAGES * 8, tail / RING_STAGES % 2);
            tail++;
        }
        if (lane == ring.stage % RING_STAGES) begin = ring.position;
        if (lane == 0) barrier_expect(barrier, all);
        __syncwarp();
        int at = lane * COPY_BYTES, bytes = min((int)COPY_BYTES, size - at);
        const void *source = from + at;
        if (norm && lane == copies) at = size, bytes = norm_bytes, source = norm;
        copies += norm != NULL;
#pragma unroll 1
        for (int first = 0; first < copies; first += t.pace.group) {
            while ((unsigned)clock() - last < pause)
                ;
            last = (unsigned)clock();
            if (lane >= first && lane < min(first + t.pace.group, copies))
                ring_copy(to + at, source, (unsigned)bytes, barrier, policy);
            __syncwarp();
            if (ahead_left > 0 && pause > 0) request_ahead();
        }
        ring.advance(all);
    }
    /* The part-th of a layer's `parts` products, in the order in which the consumer warps compute them. `from`, norms:
     * the layer's. heads: of this cluster. */
    __device__ __forceinline__ step_piece piece(const step_layer &l, const unsigned char *from, const bf16 *norms,
                                                int heads, int part, int parts) const {
        int rank = blockIdx.x % STEP_CLUSTER, cluster = blockIdx.x / STEP_CLUSTER, clusters = gridDim.x / STEP_CLUSTER;
        if (part < parts - 2) {
            bool fuses = part >= 2 * heads;
            int64_t at = ((part / 2 - (fuses ? heads : 0)) * clusters + cluster) * STEP_CLUSTER + rank;
            from += fuses ? (int64_t)t.heads * STEP_CLUSTER * sizes::ATTEND + at * sizes::FUSE : at * sizes::ATTEND;
            int tiles = fuses ? sizes::QUERY_TILES : sizes::QKV_TILES;
            int staged = fuses ? sizes::stage_tiles(sizes::QUERY_TILES) : sizes::stage_tiles(sizes::QKV_TILES);
            if (part % 2) return {from + tiles * sizes::TILE, 1, sizes::OUTPUT, sizes::OUTPUT, NULL, 0};
            return {from, (tiles + staged - 1) / staged, tiles * sizes::TILE, staged * sizes::TILE,
                    norms + (fuses ? sizes::P : 0), sizes::NORM};
        }
        from += (int64_t)t.heads * STEP_CLUSTER * (sizes::ATTEND + (l.group >= 0 ? sizes::FUSE : 0));
        int first = step_units_begin(t.f, blockIdx.x, gridDim.x);
        from += sizes::mlp(first, blockIdx.x);
        int tiles = units / 4, gate = tiles * sizes::TILE, down = sizes::down(units, step_down_scales(first, units));
        if (part == parts - 2)
            return {from, (tiles + sizes::GATE_STAGE - 1) / sizes::GATE_STAGE, gate, sizes::GATE_STAGE * sizes::TILE,
                    norms + 2 * sizes::P, sizes::NORM};
        return {from + gate, sizes::DOWN_TILES / sizes::DOWN_STAGE, sizes::DOWN_TILES * down,
                sizes::DOWN_STAGE * down, NULL, 0};
    }
    __device__ void produce() {
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        int cluster = blockIdx.x / STEP_CLUSTER, clusters = gridDim.x / STEP_CLUSTER;
        int heads = cluster < t.heads ? (t.heads - cluster + clusters - 1) / clusters : 0;
        int row = step_vocab_begin<I8>(t, blockIdx.x), row_bytes = t.d * 2;
        int stage = step_head_bytes<I8>(t, sizes::HEAD_ROWS);
        int head = t.logits ? step_head_bytes<I8>(t, step_vocab_begin<I8>(t, blockIdx.x + 1) - row) : 0;
        const unsigned char *rows = I8 ? t.head + (int64_t)(row / 8) * t.head_tile
                                       : (const unsigned char *)t.embed + (int64_t)row * row_bytes;
        const unsigned char *from = t.packed;
        tail = 0, begin = 0, units = step_units(t.f, blockIdx.x, gridDim.x);
        last = (unsigned)clock(), pause = (unsigned)t.pace.cycles, ahead_left = 0;
#pragma unroll 1
        for (int n = 0; n <= t.n_layers; n++) {
            bool after = n == t.n_layers; /* the head */
            const step_layer &l = t.layers[after ? 0 : n];
            int parts = after ? head > 0 : 2 * heads * (step_fused(t, l) ? 2 : 1) + 2;
            if (n == max(t.n_layers - LAYERS, 0)) {
                ahead_stages = min(STAGES, (head / stage - AHEAD_FIRST + 1) / 2) - 1;
                ahead = rows + AHEAD_FIRST * stage, ahead_left = ahead_stages >= 0 ? stage : 0;
            }
            if (after) pause = 0; /* no exchange follows that copies could delay */
#pragma unroll 1
            for (int part = 0; part < parts; part++) {
                step_piece p = {rows, (head + stage - 1) / stage, head, stage, t.final_norm, row_bytes};
                if (!after) p = piece(l, from, t.norms + (int64_t)n * 3 * sizes::P, heads, part, parts);
#pragma unroll 1
                for (int i = 0, at = 0; i < p.stages; i++, at += p.each)
                    load_stage(p.from + at, min(p.each, p.bytes - at), i ? NULL : p.norm, p.norm_bytes);
            }
            from += sizes::layer(t.heads, t.f, l.group >= 0, gridDim.x);
        }
    }
};
