/* next_token_read.cuh -- the first kernel of next_token: reads the memories. It needs the state, but no logits.
 *
 *   look up     key, value and square of the entries, four a warp, before the state is there
 *   distances   |s - k|^2 of all entries; the least of each side         -> barrier of the blocks
 *   scatter     exponentials relative to the nearest entry, added to sums by token; their likeliest token
 *   find        the block that ends last joins the blocks' results and computes what the gate needs of the memories
 *   weights     of the entries
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
#include "kernels/cuda/launch_cuda.cuh"
#include "kernels/memory/next_token_call.cuh"

enum { READ_WARPS = 32, READ_THREADS = 32 * READ_WARPS, READ_GROUP = 4 /* entries of a warp at a time */ };

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

/* ---- waiting ---- */

static __device__ __forceinline__ unsigned next_acquire(const unsigned *from) {
    unsigned x;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
    return x;
}
/* Adds 1 to a count after all that this block has written so far; returns the count before. One thread; a block barrier
 * precedes. */
static __device__ __forceinline__ unsigned next_release(unsigned *count) {
    unsigned before;
    __threadfence();
    asm volatile("atom.add.release.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(count) : "memory");
    return before;
}
/* All threads of the block: waits until the count is `at` or more. */
static __device__ __forceinline__ void next_wait(const unsigned *count, unsigned at) {
    if (threadIdx.x == 0) {
        while ((int)(next_acquire(count) - at) < 0)
            ;
        __threadfence();
    }
    __syncthreads();
}

/* ---- the entries ---- */

/* An entry, by the lane that looked it up. */
template <typename T> struct next_entry {
    const T *key; /* NULL: none */
    float square;
};
/* Lane l of the first READ_GROUP looks up column first + l, and stores its token. The newest value may not have arrived
 * yet. */
template <typename T>
static __device__ __forceinline__ next_entry<T> next_look_up(const next_call<T> &c, int first) {
    const int lane = threadIdx.x % 32, column = first + lane;
    next_entry<T> e = {NULL, 0.0f};
    if (lane >= READ_GROUP || column >= c.columns) return e;
    const bool second = column >= c.side[0].columns;
    const next_side<T> &s = second ? c.side[1] : c.side[0];
    const int here = second ? column - c.side[0].columns : column, slots = (int)memory_slot_columns(s.v);
    int value = -1;
    if (here < slots) {
        const int slot = next_load(s.v.slot + here / s.v.slot_rows);
        const int64_t key = (int64_t)slot * s.v.slot_rows + here % s.v.slot_rows;
        if (slot >= 0) {
            value = next_load(s.v.slot_value + key);
            e = {s.in.slots[key], next_load(s.v.slot_square + key)};
        }
    } else if (const int64_t p = s.v.first - 1 - (here - slots); p >= 0) {
        const int64_t key = p % s.v.ring;
        value = s.v.past_value + key == c.append.value ? c.append.id : next_load(s.v.past_value + key);
        e = {s.in.past[key], next_load(s.v.past_square + key)};
    }
    if (value < 0) e.key = NULL;
    c.token[column] = value;
    return e;
}

/* Eight numbers of a key. */
static __device__ __forceinline__ void next_load8(vec8 &x, const float *p) {
    const float4 a = next_load((const float4 *)p), b = next_load((const float4 *)(p + 4));
    x = {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}
template <typename T> struct next_pair;
template <> struct next_pair<bf16> {
    using type = __nv_bfloat162;
};
template <> struct next_pair<__half> {
    using type = __half2;
};
template <typename T> static __device__ __forceinline__ void next_load8(vec8 &x, const T *p) {
    const uint4 raw = next_load((const uint4 *)p);
    const typename next_pair<T>::type *pair = (const typename next_pair<T>::type *)&raw;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 f = two_floats(pair[i]);
        x.v[2 * i] = f.x, x.v[2 * i + 1] = f.y;
    }
}
static __device__ __forceinline__ float next_float(const float *p) {
    return next_load(p);
}
template <typename T> static __device__ __forceinline__ float next_float(const T *p) {
    const unsigned short bits = next_load((const unsigned short *)p);
    T x;
    memcpy(&x, &bits, sizeof x);
    return to_float(x);
}

/* Products of the state with the keys of four lanes' entries; lane j gets that of entry j. */
template <typename T>
static __device__ __forceinline__ float next_products(const next_call<T> &c, const float *own, const next_entry<T> &e) {
    const int lane = threadIdx.x % 32;
    const bool vectors = (c.side[0].columns == 0 || c.side[0].in.vectors) &&
                         (c.side[1].columns == 0 || c.side[1].in.vectors);
    const T *key[READ_GROUP];
    float dot[READ_GROUP], mine = 0.0f;
#pragma unroll
    for (int j = 0; j < READ_GROUP; j++)
        key[j] = (const T *)__shfl_sync(~0u, (unsigned long long)e.key, j), dot[j] = 0.0f;
    if (vectors) {
        for (int i = lane * 8; i < c.d; i += 256) {
            vec8 x[READ_GROUP];
#pragma unroll
            for (int j = 0; j < READ_GROUP; j++)
                if (key[j]) next_load8(x[j], key[j] + i);
            const vec8 y = load8(own + i);
#pragma unroll
            for (int j = 0; j < READ_GROUP; j++)
#pragma unroll
                for (int n = 0; n < 8; n++)
                    if (key[j]) dot[j] += y.v[n] * x[j].v[n];
        }
    } else {
        for (int i = lane; i < c.d; i += 32)
#pragma unroll
            for (int j = 0; j < READ_GROUP; j++)
                if (key[j]) dot[j] += own[i] * next_float(key[j] + i);
    }
#pragma unroll
    for (int j = 0; j < READ_GROUP; j++) {
        const float sum = warp_sum(dot[j]);
        if (lane == j) mine = sum;
    }
    return mine;
}

/* ---- scatter ---- */

/* Exponentials of the entries into w, and into the sums of their tokens; each warp's results in lane 0. */
template <typename T> static __device__ __forceinline__ next_tally next_scatter(const next_call<T> &c, next_near near) {
    next_tally t = next_no_tally();
    for (int column = (int)(blockIdx.x * READ_THREADS + threadIdx.x); column < c.columns;
         column += (int)gridDim.x * READ_THREADS) {
        const bool second = column >= c.side[0].columns;
        const int here = second ? column - c.side[0].columns : column;
        const next_side<T> &s = second ? c.side[1] : c.side[0];
        const float distance = next_load(s.w + here), to_log2 = MEMORY_LOG2E / *s.v.tau;
        const int token = next_load(c.token + column);
        float e = distance == INFINITY ? 0.0f : power2(((second ? near.of[1] : near.of[0]) - distance) * to_log2);
        next_tally one = next_no_tally();
        if (isnan(distance)) {
            e = distance;
            if (second) one.sums.lost[1] = 1;
            else one.sums.lost[0] = 1;
        }
        s.w[here] = e;
        if (e > 0.0f && token < c.vocab) {
            const unsigned long long units = __float2ull_rn(e * NEXT_UNIT), square = __float2ull_rn(e * e * NEXT_UNIT);
            const unsigned long long sum = units + atomicAdd((second ? c.sums[1] : c.sums[0]) + token, units);
            if (second)
                one.best.sum[1] = sum, one.best.token[1] = token, one.sums.all[1] = units, one.sums.squares[1] = square;
            else
                one.best.sum[0] = sum, one.best.token[0] = token, one.sums.all[0] = units, one.sums.squares[0] = square;
        }
        t = next_join(t, one);
    }
    return next_warp(t);
}

/* Weights from exponentials. */
template <typename T>
static __device__ __forceinline__ void next_normalise(const next_call<T> &c, const next_found &found) {
    for (int column = (int)(blockIdx.x * READ_THREADS + threadIdx.x); column < c.columns;
         column += (int)gridDim.x * READ_THREADS) {
        const bool second = column >= c.side[0].columns;
        const int here = second ? column - c.side[0].columns : column;
        float *w = (second ? c.side[1] : c.side[0]).w + here; /* this thread wrote it */
        *w *= (float)((second ? found.by[1] : found.by[0]) * (double)NEXT_UNIT);
    }
}

/* ---- what the gate needs of the memories ---- */

template <typename T>
static __device__ memory_evidence next_evidence(const next_call<T> &c, int which, const next_tally &t, double by,
                                                float nearest) {
    const next_side<T> &s = which ? c.side[1] : c.side[0];
    const unsigned long long all_units = which ? t.sums.all[1] : t.sums.all[0];
    const unsigned long long squares = which ? t.sums.squares[1] : t.sums.squares[0];
    const bool is_lost = (which ? t.sums.lost[1] : t.sums.lost[0]) > 0;
    const double all = (double)all_units / (double)NEXT_UNIT, lost = is_lost ? (double)NAN : 0.0;
    const double near = (double)nearest;
    memory_evidence e = {};
    if (!s.read) return e;
    e.entries = s.marks.entries;
    e.lse = (float)((all_units ? log(all) - near / (double)*s.v.tau : -INFINITY) + lost);
    e.nearest = (float)(near + lost);
    e.squares = all_units ? (float)((double)squares / (double)NEXT_UNIT / (all * all) + lost) : (float)lost;
    e.top = logf((float)((double)(which ? t.best.sum[1] : t.best.sum[0]) * by));
    e.token = (float)(which ? t.best.token[1] : t.best.token[0]);
    e.best = s.marks.best, e.kth = s.marks.kth, e.mean = s.marks.mean;
    return e;
}

/* By all threads of one block. */
template <typename T>
static __device__ void next_find(const next_call<T> &c, next_found *found, const next_near &near) {
    __shared__ double f[MEMORY_FEATURES];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (warp < MEMORY_SIDES) { /* a warp for each side: two independent chains of logarithms */
        next_tally t = next_no_tally();
        for (int i = lane; i < (int)gridDim.x; i += 32)
            t = next_join(t, next_load_struct(&c.exchange->tally[i]));
        t = next_warp(t);
        for (int i = 0; i < MEMORY_SIDES; i++) /* no entry has an exponential: the first token */
            if (t.best.token[i] == INT_MAX) t.best.token[i] = 0;
        const unsigned long long all = warp ? t.sums.all[1] : t.sums.all[0];
        const bool lost = (warp ? t.sums.lost[1] : t.sums.lost[0]) > 0;
        const double by = lost ? (double)NAN : all ? 1.0 / (double)all : 0.0;
        if (lane == 0) {
            found->by[warp] = by, found->best[warp] = warp ? t.best.token[1] : t.best.token[0];
            found->of[warp] = next_evidence(c, warp, t, by, warp ? near.of[1] : near.of[0]);
            if (found->of[warp].entries > 0)
                memory_side_features(f + 3 + warp * MEMORY_SIDE_FEATURES, &found->of[warp]);
        }
    }
    __syncthreads();
    if (warp < MEMORY_GATE_HIDDEN) {
        double x = 0.0;
        if (lane < MEMORY_FEATURES && !next_needs_logits(lane)) {
            const int side = memory_feature_side(lane);
            const bool there = side < 0 || found->of[side < 0 ? 0 : side].entries > 0;
            double value = there && side >= 0 ? f[lane] : 0.0;
            if (side < 0)
                value = found->of[0].entries > 0 && found->of[1].entries > 0 &&
                        found->of[0].token == found->of[1].token;
            x = c.gate->w1[warp][lane] * memory_gate_standard(c.gate, lane, value, there);
        }
#pragma unroll
        for (int offset = 16; offset; offset /= 2)
            x += __shfl_xor_sync(~0u, x, offset);
        if (lane == 0) found->hidden[warp] = (float)(x + c.gate->b1[warp]);
    }
    __syncthreads();
}

/* ---- the kernel ---- */

/* Least distances of all blocks, in every warp. */
static __device__ __forceinline__ next_near next_near_of_all(const next_exchange *exchange) {
    next_near near = {{INFINITY, INFINITY}};
    for (int i = threadIdx.x % 32; i < (int)gridDim.x; i += 32)
        near = next_join(near, next_load_struct(&exchange->near[i]));
    return next_warp(near);
}

/* By warp 0: the results of all warps joined. */
template <typename X> static __device__ __forceinline__ X next_join_warps(const X *of_warp) {
    return next_warp(of_warp[threadIdx.x % 32]); /* READ_WARPS is 32 */
}

/* own: the state as float32. Returns |s|^2. */
template <typename T> static __device__ __forceinline__ float next_load_state(const next_call<T> &c, float *own) {
    __shared__ float of_warp[READ_WARPS];
    float square = 0.0f;
    for (int i = threadIdx.x; i < c.d; i += READ_THREADS)
        own[i] = next_float(c.state + i), square += own[i] * own[i];
    square = block_sum(square, of_warp); /* and a barrier: own is complete */
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        if (c.append.square) *c.append.square = square;
        if (c.append.value) *c.append.value = c.append.id;
    }
    return square;
}

template <typename T>
static __global__ void __launch_bounds__(READ_THREADS, 1) next_read_kernel(const __grid_constant__ next_call<T> c) {
    extern __shared__ __align__(16) float own[]; /* [d]: the state */
    __shared__ next_tally of_warp[READ_WARPS];
    __shared__ next_near near_of_warp[READ_WARPS];
    __shared__ next_found found;
    __shared__ bool last;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    launch_next();
    for (int i = 0; i < MEMORY_SIDES; i++)
        for (int v = (int)(blockIdx.x * READ_THREADS + threadIdx.x); c.side[i].columns && v < c.vocab;
             v += (int)gridDim.x * READ_THREADS)
            c.sums[i][v] = 0;
    int first = (int)(warp * gridDim.x + blockIdx.x) * READ_GROUP;
    const int step = (int)gridDim.x * READ_WARPS * READ_GROUP;
    next_entry<T> entry = next_look_up(c, first);
    if (c.ready) next_wait(c.ready, c.at);
    const float square = next_load_state(c, own);
    next_near near = {{INFINITY, INFINITY}};
    for (; first < c.columns; first += step) {
        const next_entry<T> following = next_look_up(c, first + step); /* a chain of loads, during the products */
        const float dot = next_products(c, own, entry);
        const int column = first + lane;
        if (lane < READ_GROUP && column < c.columns) {
            const bool second = column >= c.side[0].columns;
            const float distance = entry.key ? memory_distance(square, entry.square, dot) : INFINITY;
            if (second) c.side[1].w[column - c.side[0].columns] = distance, near.of[1] = fminf(near.of[1], distance);
            else c.side[0].w[column] = distance, near.of[0] = fminf(near.of[0], distance);
        }
        entry = following;
    }
    near = next_warp(near);
    if (lane == 0) near_of_warp[warp] = near;
    __syncthreads();
    if (warp == 0) {
        near = next_join_warps(near_of_warp);
        if (lane == 0) c.exchange->near[blockIdx.x] = near;
    }
    __syncthreads(); /* before the release: stores of the whole block */
    if (threadIdx.x == 0) (void)next_release(&c.counts[NEXT_COUNT_NEAR]);
    next_wait(&c.counts[NEXT_COUNT_NEAR], gridDim.x);
    near = next_near_of_all(c.exchange);
    const next_tally tally = next_scatter(c, near);
    if (lane == 0) of_warp[warp] = tally;
    __syncthreads();
    if (warp == 0) {
        const next_tally of_block = next_join_warps(of_warp);
        if (lane == 0) c.exchange->tally[blockIdx.x] = of_block;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        last = next_release(&c.counts[NEXT_COUNT_TALLY]) + 1 == gridDim.x;
        __threadfence(); /* the other blocks' tallies, and sums, come after it */
    }
    __syncthreads();
    if (last) {
        next_find(c, &found, near);
        if (threadIdx.x == 0) {
            c.exchange->found = found;
            (void)next_release(&c.counts[NEXT_COUNT_FOUND]);
        }
    } else {
        next_wait(&c.counts[NEXT_COUNT_FOUND], 1);
        if (threadIdx.x < MEMORY_SIDES) found.by[threadIdx.x] = next_load(&c.exchange->found.by[threadIdx.x]);
        __syncthreads();
    }
    next_normalise(c, found);
    launch_wait(); /* so that the mixing kernel, which waits for this one, also waits for the decode step */
}
