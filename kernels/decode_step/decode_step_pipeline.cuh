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
 * g), 16 x 16 for Wo and 16 x 8 for Wdown (fragments of mma.sync).
 *
 * The ring takes nearly all of shared memory: more than a layer of a small model. Stages have different sizes. The
 * producer walks through all stages of the kernel and copies as soon as the ring has capacity; the consumer warps walk
 * through the same stages after it. Two mbarriers for each stage: `full` (bytes have arrived) and `empty` (all consumer
 * warps have read it). README.md has a drawing. */
#pragma once
#include "kernels/decode_step/decode_step_exchange.cuh"
extern "C" {
#include "kernels/decode_step/decode_step.h"
}

/* The producer copies COPY_BYTES at a time and then pauses for COPY_PAUSE. When all blocks request whole stages at
 * once, the accumulators of decode_step_exchange.cuh queue after them in the memory system. */
enum { COPY_BYTES = 4096 /* bytes */, COPY_PAUSE = 80 /* cycles */ };
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

/* Sizes in bytes. STRIPS: strips of 32 columns of d that a warp has. UNITS: units of a block at most; 0: any number. */
template <int DIM, int STRIPS, int UNITS> struct step_sizes {
    enum {
        P = STRIPS * 32 * STEP_WARPS,
        SHARE = P / STEP_CLUSTER, /* rows of Wo and Wdown that a block finishes */
        TILE = 8 * P * 2,
        QKV_TILES = 3 * DIM / 64,
        QUERY_TILES = DIM / 64,
        OUTPUT = SHARE * DIM * 2,
        ATTEND = QKV_TILES * TILE + OUTPUT,
        FUSE = QUERY_TILES * TILE + OUTPUT,
        NORM = P * 2,
        UNIT = 3 * P * 2,
        DOWN_TILES = 2 * STRIPS, /* of a warp, 16 rows each */
        DOWN_STAGE = UNITS ? DOWN_TILES : 2,
        HEAD_TILES = STRIPS > 4 ? 2 : 4, /* of a stage */
        HEAD_ROWS = 8 * HEAD_TILES
    };
    static __host__ __device__ constexpr int stage_tiles(int tiles) {
        return STRIPS > 4 ? (tiles < 2 ? tiles : 2) : tiles % 3 == 0 ? 3 : tiles < 4 ? tiles : 4;
    }
    static constexpr int GATE_STAGE = UNITS ? UNITS / 4 : stage_tiles(4);
    static __host__ __device__ int down(int units) { return units * 256; } /* a tile of each warp */
    static __host__ __device__ int64_t layer(int heads, int f, bool fuses) {
        return (int64_t)heads * STEP_CLUSTER * (ATTEND + (fuses ? FUSE : 0)) + (int64_t)f * UNIT;
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

/* The first row of the embedding (the head's matrix) that block `block` multiplies. */
static __device__ __forceinline__ int step_vocab_begin(const step_task &t, unsigned block) {
    return (int)((int64_t)t.vocab * block / gridDim.x);
}

/* The producer warp. */
template <int DIM, int STRIPS, int UNITS> struct step_producer {
    using sizes = step_sizes<DIM, STRIPS, UNITS>;
    step_ring ring;
    int units;
    unsigned last, pause; /* clock of the last copy; cycles from copy to copy */
    unsigned tail;        /* the oldest stage that may still be read */
    unsigned begin;       /* lane l: where the last stage s with s % RING_STAGES == l begins */
    uint64_t policy;

    /* Copies a stage; for the first of a product, the norm's weights follow it. Waits until the ring has capacity. */
    __device__ __forceinline__ void load_stage(const void *from, int size, const bf16 *norm, int norm_size) {
        int lane = threadIdx.x % 32, all = size + (norm ? norm_size : 0);
        unsigned to = ring.address_of(all), barrier = ring.full + ring.slot();
        while (tail != ring.stage &&
               (ring.stage - tail == RING_STAGES ||
                ring.position + all - __shfl_sync(~0u, begin, tail % RING_STAGES) > (unsigned)ring.capacity)) {
            step_wait(ring.empty + tail % RING_STAGES * 8, tail / RING_STAGES % 2);
            tail++;
        }
        if (lane == ring.stage % RING_STAGES) begin = ring.position;
        if (lane == 0) {
            barrier_expect(barrier, all);
            for (int at = 0; at < size; at += COPY_BYTES) {
                while ((unsigned)clock() - last < pause)
                    ;
                last = (unsigned)clock();
                ring_copy(to + at, (const unsigned char *)from + at, min((int)COPY_BYTES, size - at), barrier, policy);
            }
            if (norm) ring_copy(to + size, norm, norm_size, barrier, policy);
        }
        __syncwarp();
        ring.advance(all);
    }
    __device__ void product(const unsigned char *from, int tiles, int each, const bf16 *norm) {
        for (int first = 0; first < tiles; first += each)
            load_stage(from + first * sizes::TILE, min(each, tiles - first) * sizes::TILE, first ? NULL : norm,
                       sizes::NORM);
    }
    __device__ void layer(const step_task &t, const step_layer &l, const unsigned char *from, const bf16 *norms) {
        int rank = blockIdx.x % STEP_CLUSTER, cluster = blockIdx.x / STEP_CLUSTER, clusters = gridDim.x / STEP_CLUSTER;
        for (int head = cluster; head < t.heads; head += clusters) {
            const unsigned char *piece = from + (int64_t)(head * STEP_CLUSTER + rank) * sizes::ATTEND;
            product(piece, sizes::QKV_TILES, sizes::stage_tiles(sizes::QKV_TILES), norms);
            load_stage(piece + sizes::QKV_TILES * sizes::TILE, sizes::OUTPUT, NULL, 0);
        }
        from += (int64_t)t.heads * STEP_CLUSTER * sizes::ATTEND;
        for (int head = cluster; head < t.heads && step_fused(t, l); head += clusters) {
            const unsigned char *piece = from + (int64_t)(head * STEP_CLUSTER + rank) * sizes::FUSE;
            product(piece, sizes::QUERY_TILES, sizes::stage_tiles(sizes::QUERY_TILES), norms + sizes::P);
            load_stage(piece + sizes::QUERY_TILES * sizes::TILE, sizes::OUTPUT, NULL, 0);
        }
        if (l.group >= 0) from += (int64_t)t.heads * STEP_CLUSTER * sizes::FUSE;
        from += (int64_t)step_units_begin(t.f, blockIdx.x, gridDim.x) * sizes::UNIT;
        product(from, units / 4, sizes::GATE_STAGE, norms + 2 * sizes::P);
        from += units / 4 * sizes::TILE;
        for (int i = 0; i < sizes::DOWN_TILES; i += sizes::DOWN_STAGE)
            load_stage(from + i * sizes::down(units), sizes::DOWN_STAGE * sizes::down(units), NULL, 0);
    }
    __device__ void produce(const step_task &t) {
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        tail = 0, begin = 0, units = step_units(t.f, blockIdx.x, gridDim.x);
        last = (unsigned)clock(), pause = COPY_PAUSE;
        const unsigned char *from = t.packed;
#pragma unroll 1
        for (int n = 0; n < t.n_layers; n++) {
            const step_layer &l = t.layers[n];
            layer(t, l, from, t.norms + (int64_t)n * 3 * sizes::P);
            from += sizes::layer(t.heads, t.f, l.group >= 0);
        }
        if (!t.logits) return;
        int end = step_vocab_begin(t, blockIdx.x + 1);
        pause = 0; /* no exchange follows that copies could delay */
        for (int row = step_vocab_begin(t, blockIdx.x), i = 0; row < end; row += sizes::HEAD_ROWS, i++)
            load_stage(t.embed + (int64_t)row * t.d, min((int)sizes::HEAD_ROWS, end - row) * t.d * 2,
                       i ? NULL : t.final_norm, t.d * 2);
    }
};
