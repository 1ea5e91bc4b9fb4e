/* token_step_ring.cuh -- the weights' way into shared memory, far ahead of their use.
 *
 * A block owns a contiguous run of the rows of each matrix. They come in stages of up to STEP_ROWS rows, in the order
 * of their use, into a ring that takes nearly all of shared memory: two layers of a small model. One warp walks through
 * all stages of the kernel and copies as soon as there is room; the workers walk through the same stages behind it. A
 * stage is one piece of memory, hence one copy: copies of single rows took longer to issue than to arrive. */
#pragma once
#include "kernels/token_step_words.cuh"
extern "C" {
#include "kernels/model_config.h"
}

enum { STEP_ROWS = 32, RING_SLOTS = 16 };

struct step_layer {
    const bf16 *input_norm, *qkv, *o, *post_norm, *gate_up, *down, *gca_norm, *gca_q, *gca_o;
    bf16 *ring;
    int group;
    bool first; /* of its group */
};
struct step_fusion {
    const bf16 *keys, *values;
    const int32_t *slot;
    const float *weight;
    int k, slot_rows, live_rows, null_key;
};
enum { STEP_LAYERS_MAX = 96 };
struct step_task {
    const bf16 *embed, *final_norm;
    step_word *middle, *end, *qkv, *part, *query, *slot_part, *sum,
        *act; /* of the phases, in their order; end: of DOWN */
    float *logits;
    bf16 *inputs;
    unsigned base;              /* phase p of layer n: base + n * PHASES + p */
    int row, first, keys, ring; /* rows of the ring: the position's, its window's first; keys in the window */
    int n_layers, d, f, heads, vocab, id, splits; /* splits: pieces of a head's window */
    int capacity;                                 /* bytes of the ring of weights */
    int rows_d, rows_f;                           /* of a stage at most */
    float eps;
    step_fusion fusion[MODEL_GROUPS_MAX];
    step_layer layers[STEP_LAYERS_MAX]; /* constant memory: a pointer that had to be fetched first would cost a phase
                                           half its time */
};

/* In their order; those from FUSE_QUERY to FUSE_OUTPUT for layers that read chunks. */
enum step_phase { QKV, ATTEND, OUTPUT, FUSE_QUERY, FUSE_ATTEND, FUSE_OUTPUT, GATE_UP, DOWN, HEAD, PHASES };

/* Rows of a stage at most: three stages must fit, with a row of the norm's weights each. */
static inline int step_stage_rows(int in, int capacity) {
    return capacity / 3 / (in * (int)sizeof(bf16)) - 1;
}
/* Tiles of eight rows that a stage may have; strips: that a warp has of d columns. */
static __host__ __device__ constexpr int step_tiles(step_phase phase, int strips) {
    int tiles = phase == QKV ? 3 : phase == GATE_UP || phase == HEAD ? 4 : 1;
    return strips > 4 && tiles > 2 ? 2 : tiles;
}

/* Which units of each phase's matrix are this block's. A unit is a row; of GATE_UP the rows u and f + u. */
struct step_shares {
    int begin[PHASES], units[PHASES];
    __device__ void lay(const step_task &t, int phase) {
        int all = phase == QKV ? 3 * t.d : phase == GATE_UP ? t.f : phase == HEAD ? t.vocab : t.d;
        begin[phase] = (int)((int64_t)all * blockIdx.x / gridDim.x);
        units[phase] = (int)((int64_t)all * (blockIdx.x + 1) / gridDim.x) - begin[phase];
    }
};

/* A phase's units, and how they are cut into stages. */
template <step_phase PHASE, int STRIPS> struct step_share {
    static constexpr bool PAIR = PHASE == GATE_UP; /* units have a second row */
    static constexpr bool NORMED = PHASE == QKV || PHASE == FUSE_QUERY || PAIR ||
                                   PHASE == HEAD; /* the norm's weights come behind the rows of the first stage */
    static constexpr bool WIDTH_IS_D = PHASE != DOWN;
    int in, begin, units, each; /* each: units of a stage */
    __device__ __forceinline__ step_share(const step_task &t, const step_shares &shares)
        : in(PHASE == DOWN ? t.f : t.d), begin(shares.begin[PHASE]), units(shares.units[PHASE]),
          each(min(step_tiles(PHASE, STRIPS) * 8, PHASE == DOWN ? t.rows_f : t.rows_d) / (PAIR ? 2 : 1)) {}
    __device__ __forceinline__ int stride() const { return in * (int)sizeof(bf16); }
    __device__ __forceinline__ int stage_units(int round) const { return min(each, units - round * each); }
    __device__ __forceinline__ int stage_rows(int round) const { return stage_units(round) * (PAIR ? 2 : 1); }
    __device__ __forceinline__ int stage_bytes(int round) const {
        return (stage_rows(round) + (NORMED && round == 0)) * stride();
    }
};
static __device__ __forceinline__ bool step_fused(const step_task &t, const step_layer &l) {
    return l.group >= 0 && t.fusion[l.group].k > 0;
}

static __device__ __forceinline__ void ring_wait(unsigned barrier, unsigned parity) {
    unsigned done;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!done);
}

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

static __device__ __forceinline__ void ring_copy(unsigned to, const bf16 *from, unsigned size, unsigned barrier,
                                                 uint64_t policy) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
            "r"(to),
        "l"(from), "r"(size), "r"(barrier), "l"(policy)
        : "memory");
}

/* The warp that brings the weights. */
template <int STRIPS> struct step_bringer {
    step_ring ring;
    unsigned tail,
        begin; /* the oldest stage that may still be read; begin: of stage lane + RING_SLOTS * x, in this lane */
    uint64_t policy;

    template <step_phase PHASE>
    __device__ __forceinline__ void bring(const step_task &t, const step_shares &shares, const bf16 *w,
                                          const bf16 *norm) {
        step_share<PHASE, STRIPS> s(t, shares);
        int lane = threadIdx.x % 32;
#pragma unroll 1
        for (int round = 0; round * s.each < s.units; round++) {
            int size = s.stage_bytes(round), part = s.stage_units(round) * s.stride();
            unsigned to = ring.place(size), barrier = ring.full + ring.slot();
            while (tail != ring.stage &&
                   (ring.stage - tail == RING_SLOTS ||
                    ring.position + size - __shfl_sync(~0u, begin, tail % RING_SLOTS) > (unsigned)ring.capacity)) {
                ring_wait(ring.empty + tail % RING_SLOTS * 8, tail / RING_SLOTS % 2);
                tail++;
            }
            if (lane == ring.stage % RING_SLOTS) begin = ring.position;
            if (lane == 0) {
                const bf16 *from = w + (int64_t)(s.begin + round * s.each) * s.in;
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(size)
                             : "memory");
                ring_copy(to, from, part, barrier, policy);
                if (s.PAIR) ring_copy(to + part, from + (int64_t)t.f * s.in, part, barrier, policy);
                if (s.NORMED && round == 0) ring_copy(to + size - s.stride(), norm, s.stride(), barrier, policy);
            }
            __syncwarp();
            ring.next(size);
        }
    }
    __device__ void run(const step_task &t, const step_shares &shares) {
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        tail = 0, begin = 0;
#pragma unroll 1
        for (int n = 0; n < t.n_layers; n++) {
            const step_layer &l = t.layers[n];
            bring<QKV>(t, shares, l.qkv, l.input_norm);
            bring<OUTPUT>(t, shares, l.o, NULL);
            if (step_fused(t, l)) {
                bring<FUSE_QUERY>(t, shares, l.gca_q, l.gca_norm);
                bring<FUSE_OUTPUT>(t, shares, l.gca_o, NULL);
            }
            bring<GATE_UP>(t, shares, l.gate_up, l.post_norm);
            bring<DOWN>(t, shares, l.down, NULL);
        }
        if (t.logits) bring<HEAD>(t, shares, t.embed, t.final_norm);
    }
};
