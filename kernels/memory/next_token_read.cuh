/* next_token_read.cuh -- the first kernel of next_token: reads the memories. It needs the state, but no logits.
 *
 *   before the state   entries are looked up, keys are copied (next_token_entries.cuh), sums are cleared
 *   the state          its key, which every block computes
 *   distances          of the block's entries; they stay in its shared memory
 *   nearest            each block gives its least distances to all others: one word, which is its own signal
 *   sums               exponentials relative to the nearest entry, added to sums by token; one below 2^-46 adds nothing
 *   the end            each block gives what it knows to the first one, which computes what the gate needs
 *
 * While the decode step reads the head, an access to memory takes one or two microseconds. So what counts, besides the
 * bytes of keys, is the number of accesses in series: after the state, P; a word of each other block; an addition; what
 * the blocks know.
 *
 * An addition returns the sum before it, so the thread that adds a token's last exponential sees its whole sum, and no
 * sum seen is greater. The greatest sum seen is the greatest of all.
 *
 * The kernel may start while the decode step still runs, as soon as all blocks of that step run (programmatic dependent
 * launch). Then it has no more blocks than there are multiprocessors without a block of the step. It waits for the
 * step's count of the key state. Blocks wait for each other, too, although the launch is not cooperative. Nothing waits
 * forever: the decode step waits for no other kernel, so it ends, and its multiprocessors then take blocks of this
 * kernel that did not fit before. The mixing kernel's blocks get none before, since they are launched when every block
 * of this kernel runs (launch_next). Kernels of other streams wait for nothing that waits for this kernel. */
#pragma once
#include "kernels/memory/next_token_entries.cuh"

static __device__ __forceinline__ next_near next_join(const next_near &a, const next_near &b) {
    next_near c;
    for (int i = 0; i < MEMORY_SIDES; i++)
        c.of[i] = fminf(a.of[i], b.of[i]);
    return c;
}
static __device__ __forceinline__ next_tally next_join(const next_tally &a, const next_tally &b) {
    next_tally c;
    for (int i = 0; i < MEMORY_SIDES; i++) {
        const bool second = b.best.sum[i] > a.best.sum[i] ||
                            (b.best.sum[i] == a.best.sum[i] && b.best.token[i] < a.best.token[i]);
        c.best.sum[i] = second ? b.best.sum[i] : a.best.sum[i];
        c.best.token[i] = second ? b.best.token[i] : a.best.token[i];
        c.sums.all[i] = a.sums.all[i] + b.sums.all[i], c.sums.squares[i] = a.sums.squares[i] + b.sums.squares[i];
        c.sums.lost[i] = a.sums.lost[i] + b.sums.lost[i];
    }
    return c;
}
static __device__ __forceinline__ next_tally next_no_tally() {
    return {{{0, 0}, {INT_MAX, INT_MAX}}, {{0, 0}, {0, 0}, {0, 0}}};
}

/* Joined over a warp; every lane gets the result. The warp's reductions of 32 bits take less code than shuffles, and
 * the kernel's code comes from memory for every id. */
static __device__ __forceinline__ next_near next_near_warp(const next_near &near) {
    next_near x;
    for (int i = 0; i < MEMORY_SIDES; i++) /* not below 0: in the order of their bits */
        x.of[i] = __uint_as_float(__reduce_min_sync(~0u, __float_as_uint(near.of[i])));
    return x;
}
static __device__ __forceinline__ unsigned long long next_sum_warp(unsigned long long x) {
    enum { BITS = 27 }; /* sums of 32 numbers of so many bits fit into 32 bits */
    unsigned long long sum = 0;
    for (int at = 0; at < 64; at += BITS)
        sum += (unsigned long long)__reduce_add_sync(~0u, (unsigned)(x >> at) & ((1u << BITS) - 1)) << at;
    return sum;
}
static __device__ __forceinline__ next_tally next_tally_warp(const next_tally &t) {
    next_tally x;
    for (int i = 0; i < MEMORY_SIDES; i++) {
        const unsigned high = (unsigned)(t.best.sum[i] >> 32), low = (unsigned)t.best.sum[i];
        const unsigned most = __reduce_max_sync(~0u, high), rest = __reduce_max_sync(~0u, high == most ? low : 0);
        x.best.sum[i] = (unsigned long long)most << 32 | rest;
        x.best.token[i] = __reduce_min_sync(~0u, t.best.sum[i] == x.best.sum[i] ? t.best.token[i] : INT_MAX);
        x.sums.all[i] = next_sum_warp(t.sums.all[i]), x.sums.squares[i] = next_sum_warp(t.sums.squares[i]);
        x.sums.lost[i] = __any_sync(~0u, t.sums.lost[i] > 0);
    }
    return x;
}

/* ---- the nearest ---- */

/* Both least distances in one word. */
static __device__ __forceinline__ unsigned long long next_near_word(const next_near &near) {
    return (unsigned long long)__float_as_uint(near.of[0]) << 32 | __float_as_uint(near.of[1]);
}
static __device__ __forceinline__ next_near next_near_of(unsigned long long word) {
    return {{__uint_as_float((unsigned)(word >> 32)), __uint_as_float((unsigned)word)}};
}
/* Words of a tally: sums, then tokens and what is lost. A token of none is one less than INT_MAX, so that no word has
 * all bits set. */
static __device__ __forceinline__ unsigned long long next_tally_word(const next_tally &t, int i) {
    if (i < 2) return t.best.sum[i];
    if (i < 4) return t.sums.all[i - 2];
    if (i < 6) return t.sums.squares[i - 4];
    const unsigned long long a = min(t.best.token[0], INT_MAX - 1), b = min(t.best.token[1], INT_MAX - 1);
    return a | b << 31 | (t.sums.lost[0] ? 1ull << 62 : 0) | (t.sums.lost[1] ? 1ull << 63 : 0);
}
static __device__ __forceinline__ next_tally next_tally_of(const unsigned long long *word) {
    return {{{word[0], word[1]}, {(int)(word[6] & INT_MAX), (int)(word[6] >> 31 & INT_MAX)}},
            {{word[2], word[3]}, {word[4], word[5]}, {word[6] >> 62 & 1, word[6] >> 63}}};
}

/* The number among all features of one that needs the logits. */
static __device__ __forceinline__ int mix_feature(int i) {
    return i < 2 ? i : 3 + (i - 2) / 3 * MEMORY_SIDE_FEATURES + NEXT_OF_TOP + (i - 2) % 3;
}

/* The gate for the mixing kernel. */
static __device__ __forceinline__ void mix_load_gate(mix_gate *to, const memory_gate *from) {
    const int i = (int)threadIdx.x;
    if (i < MIX_FEATURES) {
        const int feature = mix_feature(i);
        to->mean[i] = (float)from->mean[feature], to->by[i] = (float)(1.0 / from->deviation[feature]);
    }
    if (i < MIX_FEATURES * MEMORY_GATE_HIDDEN) {
        const int unit = i % MEMORY_GATE_HIDDEN, feature = i / MEMORY_GATE_HIDDEN;
        to->w1[feature][unit] = (float)from->w1[unit][mix_feature(feature)];
    }
    if (i < MEMORY_SIDES * MEMORY_GATE_HIDDEN)
        to->w2[i / MEMORY_GATE_HIDDEN][i % MEMORY_GATE_HIDDEN] =
            (float)from->w2[i / MEMORY_GATE_HIDDEN][i % MEMORY_GATE_HIDDEN];
    if (i < MEMORY_SIDES) to->b2[i] = (float)from->b2[i];
}

/* The gate's parameters that the reading kernel needs. Float32 is enough: what remains of the gate is, too. */
struct read_gate {
    float mean[MEMORY_FEATURES], by[MEMORY_FEATURES]; /* by: 1 / deviation */
    float w1[MEMORY_GATE_HIDDEN][MEMORY_FEATURES], b1[MEMORY_GATE_HIDDEN];
};
static __device__ __forceinline__ void read_load_gate(read_gate &to, const memory_gate *from) {
    const int i = (int)threadIdx.x;
    if (i < MEMORY_FEATURES) to.mean[i] = (float)from->mean[i], to.by[i] = (float)(1.0 / from->deviation[i]);
    if (i < MEMORY_GATE_HIDDEN) to.b1[i] = (float)from->b1[i];
    if (i < MEMORY_GATE_HIDDEN * MEMORY_FEATURES)
        to.w1[i / MEMORY_FEATURES][i % MEMORY_FEATURES] = (float)from->w1[i / MEMORY_FEATURES][i % MEMORY_FEATURES];
}

/* What the blocks' warps give each other. */
struct read_shared {
    next_tally tally[READ_WARPS];
    next_near near[READ_WARPS];
    next_near all_near;
    next_found found;
    read_gate gate;
    float tau[MEMORY_SIDES];
    memory_marks marks[MEMORY_SIDES];
    unsigned long long words[READ_BLOCKS_MAX][NEXT_TALLY_WORDS];
};
static_assert((int)READ_WARPS == (int)MEMORY_GATE_HIDDEN, "a warp for each hidden unit");

/* A side's evidence but of_top and lm_of_top, and its features that need no logits. */
static __device__ __forceinline__ memory_evidence next_evidence(float *f, const memory_marks &marks,
                                                                const next_tally &t, int which, double by,
                                                                float nearest, float tau) {
    const unsigned long long units = which ? t.sums.all[1] : t.sums.all[0];
    const unsigned long long squares = which ? t.sums.squares[1] : t.sums.squares[0];
    const float lost = (which ? t.sums.lost[1] : t.sums.lost[0]) ? NAN : 0.0f;
    const float all = (float)units / NEXT_UNIT;
    memory_evidence e = {};
    if (!(marks.entries > 0.0f)) return e;
    e.entries = marks.entries;
    e.lse = (units ? logf(all) - nearest / tau : -INFINITY) + lost;
    e.nearest = nearest + lost;
    e.squares = units ? (float)squares / NEXT_UNIT / (all * all) + lost : lost;
    e.top = logf((float)((double)(which ? t.best.sum[1] : t.best.sum[0]) * by));
    e.token = (float)(which ? t.best.token[1] : t.best.token[0]);
    e.best = marks.best, e.kth = marks.kth, e.mean = marks.mean;
    f[0] = logf(e.entries), f[1] = e.nearest, f[2] = e.lse, f[3] = e.squares;
    f[NEXT_OF_TOP - 1] = (float)memory_gate_log(e.top);
    f[NEXT_SAME + 1] = e.best, f[NEXT_SAME + 2] = e.kth, f[NEXT_SAME + 3] = e.mean;
    return e;
}
static_assert((int)NEXT_OF_TOP == 5 && (int)NEXT_SAME == 7 && (int)MEMORY_SIDE_FEATURES == 11, "memory_side_features");

/* What the gate needs of the memories, by all threads of one block. tally: of all, in the first two warps. */
template <typename T, int M>
static __device__ __forceinline__ void next_find(const read_call<T, M> &c, read_shared &s, next_tally tally,
                                                 const next_near &near) {
    __shared__ float f[MEMORY_FEATURES];
    next_found *found = &s.found;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (warp < MEMORY_SIDES && lane == 0) { /* a warp for each side: two independent chains of logarithms */
        for (int i = 0; i < MEMORY_SIDES; i++) /* no entry has an exponential: the first token */
            if (tally.best.token[i] >= INT_MAX - 1) tally.best.token[i] = 0;
        const unsigned long long all = warp ? tally.sums.all[1] : tally.sums.all[0];
        const bool lost = (warp ? tally.sums.lost[1] : tally.sums.lost[0]) > 0;
        const double by = lost ? (double)NAN : all ? 1.0 / (double)all : 0.0;
        found->by[warp] = by, found->best[warp] = warp ? tally.best.token[1] : tally.best.token[0];
        float *mine = f + 3 + warp * MEMORY_SIDE_FEATURES;
        found->of[warp] = next_evidence(mine, s.marks[warp], tally, warp, by,
                                        warp ? near.of[1] : near.of[0], s.tau[warp]);
    }
    __syncthreads();
    float x = 0.0f;
    if (lane < MEMORY_FEATURES && !next_needs_logits(lane)) {
        const int side = memory_feature_side(lane);
        const bool there = side < 0 || found->of[side < 0 ? 0 : side].entries > 0;
        float value = there && side >= 0 ? f[lane] : 0.0f;
        if (side < 0)
            value = found->of[0].entries > 0 && found->of[1].entries > 0 && found->of[0].token == found->of[1].token;
        value = (value - s.gate.mean[lane]) * s.gate.by[lane];
        value = value > 5.0f ? 5.0f : value < -5.0f ? -5.0f : value; /* NaN stays */
        x = there ? s.gate.w1[warp][lane] * value : 0.0f;
    }
    x = warp_sum(x);
    if (lane == 0) found->hidden[warp] = x + s.gate.b1[warp]; /* a warp for each hidden unit */
    __syncthreads();
    if (threadIdx.x < NEXT_FOUND_WORDS) {
        unsigned long long word;
        memcpy(&word, (const unsigned long long *)found + threadIdx.x, sizeof word);
        next_fence();
        next_give(&c.exchange->found[threadIdx.x], word);
    }
}

/* near: of this block; returns that of all blocks. What every thread of every block wrote before the barrier that
 * precedes the block's next_fence (read_prepare) is then visible. */
template <typename T, int M>
static __device__ __forceinline__ next_near read_exchange_near(const read_call<T, M> &c, read_shared &s,
                                                               next_near near) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    near = next_near_warp(near);
    if (lane == 0) s.near[warp] = near;
    __syncthreads();
    if (warp == 0) {
        near = next_near_warp(s.near[lane % READ_WARPS]);
        if (lane == 0) next_give(&c.exchange->of[blockIdx.x].near, next_near_word(near));
#pragma unroll 1
        for (unsigned i = lane; i < gridDim.x; i += 32)
            near = next_join(near, next_near_of(next_take(&c.exchange->of[i].near)));
        near = next_near_warp(near);
        if (lane == 0) s.all_near = near;
    }
    __syncthreads();
    return s.all_near;
}

/* ---- sums by token ---- */

/* Exponentials of this block's entries, in place of the distances, are added to the sums of their tokens. Returns what
 * this thread knows. */
template <typename T, int M>
static __device__ __forceinline__ next_tally read_add(const read_call<T, M> &c, const read_shared &s,
                                                      const read_block<T> &b, const next_near &near) {
    enum { EACH = 4 }; /* additions of a thread in flight */
    const float to_log2[MEMORY_SIDES] = {MEMORY_LOG2E / s.tau[0], MEMORY_LOG2E / s.tau[1]};
    next_tally t = next_no_tally();
#pragma unroll 1
    for (int first = (int)threadIdx.x; first < c.entries; first += EACH * READ_THREADS) {
        unsigned long long sum[EACH] = {};
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int entry = first + i * READ_THREADS;
            if (entry >= c.entries) break;
            const bool second = read_of_second(c, entry);
            const float distance = b.distance[entry];
            float e = power2(((second ? near.of[1] : near.of[0]) - distance) * (second ? to_log2[1] : to_log2[0]));
            if (distance == INFINITY) e = 0.0f;
            if (isnan(distance)) e = distance, (second ? t.sums.lost[1] : t.sums.lost[0]) = 1;
            b.distance[entry] = e;
            const int token = b.token[entry];
            if (!(e > 0.0f && token < c.vocab)) continue;
            const unsigned long long units = __float2ull_rn(e * NEXT_UNIT);
            const unsigned long long square = __float2ull_rn(e * e * NEXT_UNIT);
            if (second) t.sums.all[1] += units, t.sums.squares[1] += square;
            else t.sums.all[0] += units, t.sums.squares[0] += square;
            if (units) sum[i] = units + atomicAdd((second ? c.sums[1] : c.sums[0]) + token, units);
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            if (!sum[i]) continue;
            const int entry = first + i * READ_THREADS, token = b.token[entry];
            const bool second = read_of_second(c, entry);
            const unsigned long long best = second ? t.best.sum[1] : t.best.sum[0];
            if (sum[i] < best || (sum[i] == best && token >= (second ? t.best.token[1] : t.best.token[0]))) continue;
            if (second) t.best.sum[1] = sum[i], t.best.token[1] = token;
            else t.best.sum[0] = sum[i], t.best.token[0] = token;
        }
    }
    return t;
}

/* ---- the end ---- */

template <typename T, int M>
static __device__ __forceinline__ void read_end(const read_call<T, M> &c, read_shared &s, const read_block<T> &b,
                                                next_tally tally, const next_near &near) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll 1
    for (int level = 0; level < 3; level++) { /* of a warp; of the block; of all blocks */
        tally = next_tally_warp(tally);
        if (level == 0) {
            if (lane == 0) s.tally[warp] = tally;
            __syncthreads();
            tally = lane < READ_WARPS ? s.tally[lane] : next_no_tally();
        } else if (level == 1) {
            unsigned long long word = 0;
#pragma unroll
            for (int i = 0; i < NEXT_TALLY_WORDS; i++)
                if (lane == i) word = next_tally_word(tally, i);
            if (threadIdx.x < NEXT_TALLY_WORDS) {
                next_fence(); /* sums are complete: their additions have returned */
                next_give(&c.exchange->of[blockIdx.x].tally[lane], word);
            }
            if (blockIdx.x > 0) break;
#pragma unroll 1
            for (int i = (int)threadIdx.x; i < (int)gridDim.x * NEXT_TALLY_WORDS; i += READ_THREADS)
                s.words[i / NEXT_TALLY_WORDS][i % NEXT_TALLY_WORDS] =
                    next_take(&c.exchange->of[i / NEXT_TALLY_WORDS].tally[i % NEXT_TALLY_WORDS]);
            __syncthreads();
            tally = next_no_tally();
#pragma unroll 1
            for (int i = lane; i < (int)gridDim.x; i += 32)
                tally = next_join(tally, next_tally_of(s.words[i]));
        }
    }
    if (blockIdx.x == 0) next_find(c, s, tally, near);
    /* weights that the mixing kernel divides */
#pragma unroll 1
    for (int entry = (int)threadIdx.x; entry < c.entries; entry += READ_THREADS) {
        const read_spot<T> at = read_spot_of(c, entry);
        if (at.column >= 0) at.side->w[at.column] = b.distance[entry];
    }
}

/* ---- the kernel ---- */

/* All that needs no state. */
template <typename T, int M>
static __device__ __forceinline__ void read_prepare(const read_call<T, M> &c, read_shared &s, const read_block<T> &b,
                                                    read_projection<T, M> &projection) {
    read_look_up(c, b);
    __syncthreads(); /* rows are complete */
    projection.copy(c, b);
    for (int i = 0; i < c.first_stages; i++)
        read_copy(c, b, i, i);
    if (M != READ_PLAIN && c.ready) read_prefetch_keys(c, b, c.first_stages);
    projection.prefetch(c);
    if (blockIdx.x == 0) read_load_gate(s.gate, c.gate), mix_load_gate(c.mix, c.gate);
    for (int i = 0; i < MEMORY_SIDES; i++) {
        if (threadIdx.x == 0) {
            s.tau[i] = c.side[i].columns ? *c.side[i].v.tau : 1.0f;
            s.marks[i] = c.side[i].found ? *c.side[i].found : c.side[i].marks;
        }
        for (int v = (int)(blockIdx.x * READ_THREADS + threadIdx.x); c.side[i].columns && v < c.vocab;
             v += (int)gridDim.x * READ_THREADS)
            c.sums[i][v] = 0;
    }
    __syncthreads();
    if (threadIdx.x == 0) next_fence(); /* read_exchange_near */
}

template <typename T, int M>
static __global__ void __launch_bounds__(READ_THREADS, 1)
    next_read_kernel(const __grid_constant__ read_call<T, M> c) {
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ read_shared s;
    const read_layout at = read_layout_of(c.state_d, c.d, c.tile, c.entries, sizeof(T));
    read_block<T> b = {(T *)memory,
                       c.projection ? (T *)(memory + at.key) : (T *)memory,
                       (int8_t *)(memory + at.digits),
                       0.0f,
                       (float *)(memory + at.distance),
                       (int *)(memory + at.token),
                       (int *)(memory + at.row),
                       memory + at.stages + threadIdx.x / 32 * c.stage_bytes};
    read_projection<T, M> projection;
    launch_next();
    read_prepare(c, s, b, projection);
    if (c.ready) {
        if (threadIdx.x == 0) next_poll(c.ready, c.at);
        __syncthreads();
    }
    const float own = read_state(c, b, projection);
    const next_near near = read_exchange_near(c, s, read_distances(c, b, own));
    read_end(c, s, b, read_add(c, s, b, near), near);
    launch_wait(); /* so that the mixing kernel, which ends after this one, also ends after the decode step */
}
