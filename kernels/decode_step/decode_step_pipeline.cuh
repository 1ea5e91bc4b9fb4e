/* decode_step_pipeline.cuh -- the token step's weights: their order in memory, and their way into shared memory.
 *
 * Weights are copied once (decode_step_pack.cuh) so that what a block reads of a layer lies in the order of its use, in
 * the order in which lanes take it: a stage is one piece of memory, hence one copy, and is read without conflicts of
 * banks. P: d rounded up to what all warps take in whole strips of 32 columns (zeros behind). Pieces of a layer:
 *
 *   for each head and block of its cluster   a share of the head's rows of Wq, Wk, Wv; a share of the rows of Wo, of
 *                                            them the head's columns
 *   the same, layers that read chunks        rows of the query's matrix; the output matrix as Wo
 *   for each block                           rows of gate and up of its units; of all rows of Wdown its units' columns
 *
 * Tiles are 8 rows x 32 columns for products of the vector (lane 4 g + k: columns 8 k .. of row g), 16 x 16 for Wo and
 * 16 x 8 for Wdown (as the matrix unit takes them).
 *
 * Stages come, in the order of their use, into a ring that takes nearly all of shared memory: more than a layer of a
 * small model. One warp walks through all stages of the kernel and copies as soon as there is room; the workers walk
 * through the same stages behind it. */
#pragma once
#include "kernels/decode_step/decode_step_exchange.cuh"
extern "C" {
#include "kernels/decode_step/decode_step.h"
}

/* Weights are asked for a piece at a time, with a pause: when all blocks ask for whole stages at once, the words of
 * decode_step_exchange.cuh wait behind them. */
enum { PIECE = 4096 /* bytes */, PAUSE = 200 /* cycles */ };
enum { RING_SLOTS = 16, STEP_LAYERS_MAX = 96, UNITS_MAX = 80 /* of a block */, STREAM_SLOTS = 4 };

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
    step_word *words, *next; /* [exchanges, P]: of this step; of the next, to be cleared */
    int exchanges;
    float *logits;
    bf16 *inputs;
    int row, first, keys, ring; /* rows of the ring: the position's, its window's first; keys in the window */
    int n_layers, d, f, heads, vocab, id;
    int capacity;     /* bytes of the ring of weights */
    float share;      /* 1 / d */
    float eps, slope; /* slope: the logarithm of a head's to 2, over its number from 1 on */
    step_fusion fusion[DECODE_STEP_GROUPS_MAX];
    step_layer layers[STEP_LAYERS_MAX];
};
static __device__ __forceinline__ bool step_fused(const step_task &t, const step_layer &l) {
    return l.group >= 0 && t.fusion[l.group].k > 0;
}

/* The units of f that blocks before this one have. In eights; where some have eight more, those are the last: they may
 * have no head. */
static __host__ __device__ __forceinline__ int step_units_begin(int f, int block, int blocks) {
    int each = f / 8 / blocks, more = f / 8 % blocks;
    return 8 * (each * block + (block > blocks - more ? block - (blocks - more) : 0));
}
static __host__ __device__ __forceinline__ int step_units(int f, int block, int blocks) {
    return step_units_begin(f, block + 1, blocks) - step_units_begin(f, block, blocks);
}

/* Sizes in bytes. STRIPS: of 32 columns, that a warp has of d. UNITS: of a block at most; 0: any number. */
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

/* One's place in the ring. Stages get places one behind the other, from the start again where one would not fit. */
struct step_ring {
    unsigned bytes, full, empty; /* addresses in shared memory: of the ring, of RING_SLOTS barriers each */
    int capacity, offset;
    unsigned stage, position; /* position: counts the ring's bytes on and on */

    __device__ unsigned slot() const { return stage % RING_SLOTS * 8; }
    __device__ unsigned parity() const { return stage / RING_SLOTS % 2; }
    /* The address of the next stage; `position` is its begin. */
    __device__ unsigned place(int size) {
        if (offset + size > capacity) position += capacity - offset, offset = 0;
        return bytes + offset;
    }
    __device__ void next(int size) { offset += size, position += size, stage++; }
};

static __device__ __forceinline__ void ring_copy(unsigned to, const void *from, unsigned size, unsigned barrier,
                                                 uint64_t policy) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
            "r"(to),
        "l"(from), "r"(size), "r"(barrier), "l"(policy)
        : "memory");
}

/* Which rows of the head are this block's. */
static __device__ __forceinline__ int step_vocab_begin(const step_task &t, unsigned block) {
    return (int)((int64_t)t.vocab * block / gridDim.x);
}

/* The warp that brings the weights. */
template <int DIM, int STRIPS, int UNITS> struct step_bringer {
    using sizes = step_sizes<DIM, STRIPS, UNITS>;
    step_ring ring;
    int units;
    unsigned last, pause; /* when the last piece was asked for; cycles from piece to piece */
    unsigned tail,
        begin; /* the oldest stage that may still be read; begin: of stage lane + RING_SLOTS * x, in this lane */
    uint64_t policy;

    /* A stage; behind it a norm's weights, for the first of a product. */
    __device__ __forceinline__ void bring(const void *from, int size, const bf16 *norm, int norm_size) {
        int lane = threadIdx.x % 32, all = size + (norm ? norm_size : 0);
        unsigned to = ring.place(all), barrier = ring.full + ring.slot();
        while (tail != ring.stage &&
               (ring.stage - tail == RING_SLOTS ||
                ring.position + all - __shfl_sync(~0u, begin, tail % RING_SLOTS) > (unsigned)ring.capacity)) {
            step_wait(ring.empty + tail % RING_SLOTS * 8, tail / RING_SLOTS % 2);
            tail++;
        }
        if (lane == ring.stage % RING_SLOTS) begin = ring.position;
        if (lane == 0) {
            barrier_expect(barrier, all);
            for (int at = 0; at < size; at += PIECE) {
                while ((unsigned)clock() - last < pause)
                    ;
                last = (unsigned)clock();
                ring_copy(to + at, (const unsigned char *)from + at, min((int)PIECE, size - at), barrier, policy);
            }
            if (norm) ring_copy(to + size, norm, norm_size, barrier, policy);
        }
        __syncwarp();
        ring.next(all);
    }
    __device__ void product(const unsigned char *from, int tiles, int each, const bf16 *norm) {
        for (int first = 0; first < tiles; first += each)
            bring(from + first * sizes::TILE, min(each, tiles - first) * sizes::TILE, first ? NULL : norm, sizes::NORM);
    }
    __device__ void layer(const step_task &t, const step_layer &l, const unsigned char *from, const bf16 *norms) {
        int rank = blockIdx.x % STEP_CLUSTER, cluster = blockIdx.x / STEP_CLUSTER, clusters = gridDim.x / STEP_CLUSTER;
        for (int head = cluster; head < t.heads; head += clusters) {
            const unsigned char *piece = from + (int64_t)(head * STEP_CLUSTER + rank) * sizes::ATTEND;
            product(piece, sizes::QKV_TILES, sizes::stage_tiles(sizes::QKV_TILES), norms);
            bring(piece + sizes::QKV_TILES * sizes::TILE, sizes::OUTPUT, NULL, 0);
        }
        from += (int64_t)t.heads * STEP_CLUSTER * sizes::ATTEND;
        for (int head = cluster; head < t.heads && step_fused(t, l); head += clusters) {
            const unsigned char *piece = from + (int64_t)(head * STEP_CLUSTER + rank) * sizes::FUSE;
            product(piece, sizes::QUERY_TILES, sizes::stage_tiles(sizes::QUERY_TILES), norms + sizes::P);
            bring(piece + sizes::QUERY_TILES * sizes::TILE, sizes::OUTPUT, NULL, 0);
        }
        if (l.group >= 0) from += (int64_t)t.heads * STEP_CLUSTER * sizes::FUSE;
        from += (int64_t)step_units_begin(t.f, blockIdx.x, gridDim.x) * sizes::UNIT;
        product(from, units / 4, sizes::GATE_STAGE, norms + 2 * sizes::P);
        from += units / 4 * sizes::TILE;
        for (int i = 0; i < sizes::DOWN_TILES; i += sizes::DOWN_STAGE)
            bring(from + i * sizes::down(units), sizes::DOWN_STAGE * sizes::down(units), NULL, 0);
    }
    __device__ void run(const step_task &t) {
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        tail = 0, begin = 0, units = step_units(t.f, blockIdx.x, gridDim.x);
        last = (unsigned)clock(), pause = PAUSE;
        const unsigned char *from = t.packed;
#pragma unroll 1
        for (int n = 0; n < t.n_layers; n++) {
            const step_layer &l = t.layers[n];
            layer(t, l, from, t.norms + (int64_t)n * 3 * sizes::P);
            from += sizes::layer(t.heads, t.f, l.group >= 0);
        }
        if (!t.logits) return;
        int end = step_vocab_begin(t, blockIdx.x + 1);
        pause = 0; /* no words travel any more */
        for (int row = step_vocab_begin(t, blockIdx.x), i = 0; row < end; row += sizes::HEAD_ROWS, i++)
            bring(t.embed + (int64_t)row * t.d, min((int)sizes::HEAD_ROWS, end - row) * t.d * 2,
                  i ? NULL : t.final_norm, t.d * 2);
    }
};
