/* next_token_read.cuh -- the first kernel of next_token: reads the memories. It needs the state, but no logits.
 *
 *   before the state   entries are looked up, keys are copied (next_token_entries.cuh), sums are cleared
 *   the state          its key, which every block computes
 *   distances          of the block's entries; they stay in its shared memory
 *   nearest            each block gives its least distances to all others: one word, which is its own signal
 *   sums               exponentials relative to the nearest entry, added to sums by token; one below 2^-46 adds nothing
 *   the end            the block that has added last joins what all know, and computes what the gate needs
 *
 * While the decode step reads the head, an access to memory takes one or two microseconds. So what counts, besides the
 * bytes of keys, is the number of accesses in series: after the state, P; a word of each other block; an addition; a
 * count; what the blocks know.
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
static __device__ __forceinline__ next_best next_join(const next_best &a, const next_best &b) {
    next_best c;
    for (int i = 0; i < MEMORY_SIDES; i++) {
        const bool second = b.sum[i] > a.sum[i] || (b.sum[i] == a.sum[i] && b.token[i] < a.token[i]);
        c.sum[i] = second ? b.sum[i] : a.sum[i], c.token[i] = second ? b.token[i] : a.token[i];
    }
    return c;
}
static __device__ __forceinline__ next_tally next_join(const next_tally &a, const next_tally &b) {
    next_tally c;
    c.best = next_join(a.best, b.best);
    for (int i = 0; i < MEMORY_SIDES; i++) {
        c.sums.all[i] = a.sums.all[i] + b.sums.all[i], c.sums.squares[i] = a.sums.squares[i] + b.sums.squares[i];
        c.sums.lost[i] = a.sums.lost[i] + b.sums.lost[i];
    }
    return c;
}
static __device__ __forceinline__ next_tally next_no_tally() {
    return {{{0, 0}, {INT_MAX, INT_MAX}}, {{0, 0}, {0, 0}, {0, 0}}};
}

/* ---- the nearest ---- */

/* Both least distances in one word, which is written and read at once. They are neither NaN nor below 0, so that no
 * half is 0. */
static __device__ __forceinline__ unsigned long long next_near_words(const next_near &near) {
    return (unsigned long long)(__float_as_uint(near.of[0]) + 1) << 32 | (__float_as_uint(near.of[1]) + 1);
}
static __device__ __forceinline__ next_near next_near_of(unsigned long long words) {
    return {{__uint_as_float((unsigned)(words >> 32) - 1), __uint_as_float((unsigned)words - 1)}};
}

template <typename T>
static __device__ memory_evidence next_evidence(const next_call<T> &c, int which, const next_tally &t, double by,
                                                float nearest, float tau) {
    const next_side<T> &s = which ? c.side[1] : c.side[0];
    const unsigned long long all_units = which ? t.sums.all[1] : t.sums.all[0];
    const unsigned long long squares = which ? t.sums.squares[1] : t.sums.squares[0];
    const bool is_lost = (which ? t.sums.lost[1] : t.sums.lost[0]) > 0;
    const double all = (double)all_units / (double)NEXT_UNIT, lost = is_lost ? (double)NAN : 0.0;
    const double near = (double)nearest;
    memory_evidence e = {};
    if (!s.read) return e;
    e.entries = s.marks.entries;
    e.lse = (float)((all_units ? log(all) - near / (double)tau : -INFINITY) + lost);
    e.nearest = (float)(near + lost);
    e.squares = all_units ? (float)((double)squares / (double)NEXT_UNIT / (all * all) + lost) : (float)lost;
    e.top = logf((float)((double)(which ? t.best.sum[1] : t.best.sum[0]) * by));
    e.token = (float)(which ? t.best.token[1] : t.best.token[0]);
    e.best = s.marks.best, e.kth = s.marks.kth, e.mean = s.marks.mean;
    return e;
}

/* What the blocks' warps give each other. */
struct read_shared {
    next_tally tally[READ_WARPS];
    next_near near[READ_WARPS];
    next_near all_near;
    next_found found;
    float tau[MEMORY_SIDES];
    bool last;
};
static_assert((int)READ_WARPS == (int)MEMORY_GATE_HIDDEN, "a warp for each hidden unit");

/* Joined over the block, in every warp. */
static __device__ __forceinline__ next_near read_join_near(read_shared &s, next_near near) {
    const int lane = threadIdx.x % 32;
    near = next_warp(near);
    if (lane == 0) s.near[threadIdx.x / 32] = near;
    __syncthreads();
    return next_warp(s.near[lane % READ_WARPS]);
}
static __device__ __forceinline__ next_tally read_join_tally(read_shared &s, next_tally t) {
    const int lane = threadIdx.x % 32;
    t = next_warp(t);
    if (lane == 0) s.tally[threadIdx.x / 32] = t;
    __syncthreads();
    return next_warp(lane < READ_WARPS ? s.tally[lane] : next_no_tally());
}

/* What the gate needs of the memories, by all threads of one block. tally: of all, in the first two warps. */
template <typename T>
static __device__ __forceinline__ void next_find(const next_call<T> &c, read_shared &s, const memory_gate *gate,
                                                 next_tally tally, const next_near &near) {
    __shared__ double f[MEMORY_FEATURES];
    next_found *found = &s.found;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (warp < MEMORY_SIDES && lane == 0) { /* a warp for each side: two independent chains of logarithms */
        for (int i = 0; i < MEMORY_SIDES; i++) /* no entry has an exponential: the first token */
            if (tally.best.token[i] == INT_MAX) tally.best.token[i] = 0;
        const unsigned long long all = warp ? tally.sums.all[1] : tally.sums.all[0];
        const bool lost = (warp ? tally.sums.lost[1] : tally.sums.lost[0]) > 0;
        const double by = lost ? (double)NAN : all ? 1.0 / (double)all : 0.0;
        found->by[warp] = by, found->best[warp] = warp ? tally.best.token[1] : tally.best.token[0];
        found->of[warp] = next_evidence(c, warp, tally, by, warp ? near.of[1] : near.of[0], s.tau[warp]);
        if (found->of[warp].entries > 0)
            memory_side_features(f + 3 + warp * MEMORY_SIDE_FEATURES, &found->of[warp]);
    }
    __syncthreads();
    double x = 0.0;
    if (lane < MEMORY_FEATURES && !next_needs_logits(lane)) {
        const int side = memory_feature_side(lane);
        const bool there = side < 0 || found->of[side < 0 ? 0 : side].entries > 0;
        double value = there && side >= 0 ? f[lane] : 0.0;
        if (side < 0)
            value = found->of[0].entries > 0 && found->of[1].entries > 0 && found->of[0].token == found->of[1].token;
        x = gate->w1[warp][lane] * memory_gate_standard(gate, lane, value, there);
    }
#pragma unroll
    for (int offset = 16; offset; offset /= 2)
        x += __shfl_xor_sync(~0u, x, offset);
    if (lane == 0) found->hidden[warp] = (float)(x + gate->b1[warp]); /* a warp for each hidden unit */
    __syncthreads();
    for (int i = (int)threadIdx.x; i < (int)(sizeof *found / sizeof(unsigned long long)); i += READ_THREADS)
        ((unsigned long long *)&c.exchange->found)[i] = ((const unsigned long long *)found)[i];
}

/* near: of this block; returns that of all blocks. What every thread of every block wrote before the barrier that
 * precedes the block's __threadfence (read_prepare) is then visible. */
template <typename T>
static __device__ __forceinline__ next_near read_exchange_near(const next_call<T> &c, read_shared &s, next_near near) {
    unsigned long long *slot = (unsigned long long *)(c.counts + NEXT_COUNT_NEAR);
    near = read_join_near(s, near);
    if (threadIdx.x == 0)
        asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(slot + blockIdx.x), "l"(next_near_words(near))
                     : "memory");
    if (threadIdx.x < 32) {
        for (unsigned i = threadIdx.x; i < gridDim.x; i += 32) {
            unsigned long long words;
            do {
                asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(words) : "l"(slot + i) : "memory");
            } while (words == 0);
            near = next_join(near, next_near_of(words));
        }
        near = next_warp(near);
        __threadfence();
        if (threadIdx.x == 0) s.all_near = near;
    }
    __syncthreads();
    return s.all_near;
}

/* ---- sums by token ---- */

/* Exponentials of this block's entries: stored as weights that are not divided yet, and added to the sums of their
 * tokens. Returns what this thread knows. */
template <typename T>
static __device__ __forceinline__ next_tally read_add(const next_call<T> &c, const read_shared &s,
                                                      const read_block<T> &b, const next_near &near) {
    enum { EACH = 6 }; /* additions of a thread in flight */
    const float to_log2[MEMORY_SIDES] = {MEMORY_LOG2E / s.tau[0], MEMORY_LOG2E / s.tau[1]};
    next_tally t = next_no_tally();
    for (int first = (int)threadIdx.x; first < c.entries; first += EACH * READ_THREADS) {
        unsigned long long units[EACH], squares[EACH], sum[EACH];
        bool lost[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int entry = first + i * READ_THREADS, column = read_column(entry);
            const bool second = column >= c.side[0].columns;
            units[i] = squares[i] = sum[i] = 0, lost[i] = false;
            if (entry >= c.entries || column >= c.columns) continue;
            const float distance = b.distance[entry];
            const float by = second ? to_log2[1] : to_log2[0], nearest = second ? near.of[1] : near.of[0];
            float e = distance == INFINITY ? 0.0f : power2((nearest - distance) * by);
            if (isnan(distance)) e = distance, lost[i] = true;
            const int token = b.token[entry];
            if (e > 0.0f && token < c.vocab)
                units[i] = __float2ull_rn(e * NEXT_UNIT), squares[i] = __float2ull_rn(e * e * NEXT_UNIT);
            if (units[i]) sum[i] = units[i] + atomicAdd((second ? c.sums[1] : c.sums[0]) + token, units[i]);
            *(second ? c.side[1].w + (column - c.side[0].columns) : c.side[0].w + column) = e;
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            if (!units[i] && !lost[i]) continue;
            const int entry = first + i * READ_THREADS;
            next_tally one = next_no_tally();
            if (read_column(entry) >= c.side[0].columns) {
                one.sums.all[1] = units[i], one.sums.squares[1] = squares[i], one.sums.lost[1] = lost[i];
                if (units[i]) one.best.sum[1] = sum[i], one.best.token[1] = b.token[entry];
            } else {
                one.sums.all[0] = units[i], one.sums.squares[0] = squares[i], one.sums.lost[0] = lost[i];
                if (units[i]) one.best.sum[0] = sum[i], one.best.token[0] = b.token[entry];
            }
            t = next_join(t, one);
        }
    }
    return t;
}

/* ---- the end ---- */

/* Adds 1 to a count after all that this block has written. Returns whether it is the last block. */
static __device__ __forceinline__ bool read_arrive(read_shared &s, unsigned *count) {
    __syncthreads();
    if (threadIdx.x == 0) s.last = next_arrive(count) + 1 == gridDim.x;
    __syncthreads();
    return s.last;
}
template <typename T>
static __device__ __forceinline__ void read_end(const next_call<T> &c, read_shared &s, const read_block<T> &b,
                                                next_tally tally, const next_near &near) {
    tally = read_join_tally(s, tally);
    if (threadIdx.x == 0) c.exchange->tally[blockIdx.x] = tally;
    if (!read_arrive(s, &c.counts[NEXT_COUNT_TALLY])) return;
    tally = next_no_tally();
    if (threadIdx.x < MEMORY_SIDES * 32) /* next_find needs it in these warps */
        for (int i = (int)threadIdx.x % 32; i < (int)gridDim.x; i += 32)
            tally = next_join(tally, next_load_struct(&c.exchange->tally[i]));
    next_find(c, s, b.gate, next_warp(tally), near);
    __syncthreads();
    if (threadIdx.x == 0) (void)next_arrive(&c.counts[NEXT_COUNT_FOUND]);
}

/* ---- the kernel ---- */

/* All that needs no state. */
template <typename T>
static __device__ __forceinline__ void read_prepare(const next_call<T> &c, read_shared &s, const read_block<T> &b,
                                                    read_projection<T> &projection) {
    read_look_up(c, b);
    __syncthreads(); /* rows are complete */
    for (int i = 0; i < c.stages; i++)
        read_copy(c, b, i, i);
    if (c.tiles && c.ready) read_prefetch_keys(c, b, c.stages);
    projection.prefetch(c);
    for (int i = threadIdx.x; i < (int)(sizeof *b.gate / sizeof(double)); i += READ_THREADS)
        ((double *)b.gate)[i] = ((const double *)c.gate)[i];
    for (int i = 0; i < MEMORY_SIDES; i++) {
        if (threadIdx.x == 0) s.tau[i] = c.side[i].columns ? *c.side[i].v.tau : 1.0f;
        for (int v = (int)(blockIdx.x * READ_THREADS + threadIdx.x); c.side[i].columns && v < c.vocab;
             v += (int)gridDim.x * READ_THREADS)
            c.sums[i][v] = 0;
    }
    __syncthreads();
    if (threadIdx.x == 0) __threadfence(); /* read_exchange_near */
}

template <typename T>
static __global__ void __launch_bounds__(READ_THREADS, 1) next_read_kernel(const __grid_constant__ next_call<T> c) {
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ read_shared s;
    const read_layout at = read_layout_of(c.state_d, c.d, c.entries, sizeof(T));
    const read_block<T> b = {(T *)memory,
                             c.projection ? (T *)(memory + at.key) : (T *)memory,
                             (memory_gate *)(memory + at.gate),
                             (float *)(memory + at.distance),
                             (int *)(memory + at.token),
                             (int *)(memory + at.row),
                             memory + at.stages + threadIdx.x / 32 * c.stages * read_stage_bytes(c.d, sizeof(T))};
    read_projection<T> projection;
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
