/* next_token_read.cuh -- the first kernel of next_token: reads the memories. It needs the state, but no logits.
 *
 *   look up     key, value and square of the entries, four a warp, one round ahead
 *   copy        keys into shared memory, as many rounds as fit, before the state is there
 *   distances   |s - k|^2 of all entries
 *   the end     exponentials relative to the nearest entry, added to sums by token; their likeliest token; what the
 *               gate needs of the memories; weights
 *
 * Up to ALONE_COLUMNS_MAX entries one block makes the end alone: that which writes its distances last. More are divided
 * among the blocks, with two barriers. While the decode step reads the head, an access to memory takes one or two
 * microseconds, so what counts is the number of accesses in series: one barrier more costs as much as a thousand
 * entries.
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

enum { READ_WARPS = 16, READ_THREADS = 32 * READ_WARPS, READ_GROUP = 4 /* entries of a warp at a time */ };
enum { READ_STAGES_MAX = 4 /* rounds in shared memory */, ALONE_COLUMNS_MAX = 1 << 12 };

/* Shared memory whose size depends on the call, in this order; every part begins at a multiple of 16 bytes. The stages
 * are later distances and tokens of all entries, in the block that makes the end alone. */
static __host__ __device__ __forceinline__ size_t read_gate_at(int d) {
    return ((size_t)d * sizeof(float) + 15) / 16 * 16;
}
static __host__ __device__ __forceinline__ size_t read_stages_at(int d) {
    return read_gate_at(d) + (sizeof(memory_gate) + 15) / 16 * 16;
}

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

/* ---- copies of keys ---- */

static __device__ __forceinline__ void read_copy16(void *to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
static __device__ __forceinline__ void read_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Waits until at most stages - 1 of the newest groups of copies are incomplete. */
static __device__ __forceinline__ void read_wait_copies(int stages) {
    if (stages == 1) asm volatile("cp.async.wait_group 0;" ::: "memory");
    else if (stages == 2) asm volatile("cp.async.wait_group 1;" ::: "memory");
    else if (stages == 3) asm volatile("cp.async.wait_group 2;" ::: "memory");
    else asm volatile("cp.async.wait_group 3;" ::: "memory");
}
/* Begins to copy the keys of a round into a stage of this warp. A lane copies the pieces that it reads itself. */
template <typename T>
static __device__ __forceinline__ void read_copy(unsigned char *stage, const next_entry<T> &e, int pieces) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < READ_GROUP; j++) {
        const unsigned char *key = (const unsigned char *)__shfl_sync(~0u, (unsigned long long)e.key, j);
        for (int p = lane; key && p < pieces; p += 32)
            read_copy16(stage + ((size_t)j * pieces + p) * 16, key + (size_t)p * 16);
    }
    read_commit();
}
static __device__ __forceinline__ float read_piece(const float *own, const uint4 &raw, const float *) {
    return own[0] * __uint_as_float(raw.x) + own[1] * __uint_as_float(raw.y) + own[2] * __uint_as_float(raw.z) +
           own[3] * __uint_as_float(raw.w);
}
template <typename T>
static __device__ __forceinline__ float read_piece(const float *own, const uint4 &raw, const T *) {
    const typename next_pair<T>::type *pair = (const typename next_pair<T>::type *)&raw;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 f = two_floats(pair[i]);
        sum += own[2 * i] * f.x, sum += own[2 * i + 1] * f.y;
    }
    return sum;
}
/* As next_products, from a stage. */
template <typename T>
static __device__ __forceinline__ float read_products(const unsigned char *stage, const float *own, int pieces) {
    enum { EACH = 16 / sizeof(T) };
    const int lane = threadIdx.x % 32;
    float dot[READ_GROUP] = {}, mine = 0.0f;
    for (int p = lane; p < pieces; p += 32) {
        float y[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i += 4)
            *(float4 *)(y + i) = *(const float4 *)(own + p * EACH + i);
#pragma unroll
        for (int j = 0; j < READ_GROUP; j++)
            dot[j] += read_piece(y, *(const uint4 *)(stage + ((size_t)j * pieces + p) * 16), (const T *)NULL);
    }
#pragma unroll
    for (int j = 0; j < READ_GROUP; j++) {
        const float sum = warp_sum(dot[j]);
        if (lane == j) mine = sum;
    }
    return mine;
}

/* ---- distances ---- */

/* Stores the distance of this lane's entry of a round. square below 0: no entry. */
template <typename T>
static __device__ __forceinline__ void read_store(const next_call<T> &c, int first, float own_square, float square,
                                                  float dot, next_near &near) {
    const int lane = threadIdx.x % 32, column = first + lane;
    if (lane >= READ_GROUP || column >= c.columns) return;
    const bool second = column >= c.side[0].columns;
    const float distance = square < 0.0f ? INFINITY : memory_distance(own_square, square, dot);
    if (second) c.side[1].w[column - c.side[0].columns] = distance, near.of[1] = fminf(near.of[1], distance);
    else c.side[0].w[column] = distance, near.of[0] = fminf(near.of[0], distance);
}

/* ---- the end ---- */

/* An entry's exponential; adds it to the sum of its token and to t. */
template <typename T>
static __device__ __forceinline__ float next_scatter(const next_call<T> &c, next_tally &t, int column, float distance,
                                                     int token, const next_near &near) {
    const bool second = column >= c.side[0].columns;
    const float to_log2 = MEMORY_LOG2E / *(second ? c.side[1] : c.side[0]).v.tau;
    float e = distance == INFINITY ? 0.0f : power2(((second ? near.of[1] : near.of[0]) - distance) * to_log2);
    next_tally one = next_no_tally();
    if (isnan(distance)) {
        e = distance;
        if (second) one.sums.lost[1] = 1;
        else one.sums.lost[0] = 1;
    }
    if (e > 0.0f && token < c.vocab) {
        const unsigned long long units = __float2ull_rn(e * NEXT_UNIT), square = __float2ull_rn(e * e * NEXT_UNIT);
        const unsigned long long sum = units + atomicAdd((second ? c.sums[1] : c.sums[0]) + token, units);
        if (second)
            one.best.sum[1] = sum, one.best.token[1] = token, one.sums.all[1] = units, one.sums.squares[1] = square;
        else
            one.best.sum[0] = sum, one.best.token[0] = token, one.sums.all[0] = units, one.sums.squares[0] = square;
    }
    t = next_join(t, one);
    return e;
}
template <typename T> static __device__ __forceinline__ float *next_weight(const next_call<T> &c, int column) {
    return column >= c.side[0].columns ? c.side[1].w + (column - c.side[0].columns) : c.side[0].w + column;
}
/* The factor from an exponential to a weight. */
template <typename T>
static __device__ __forceinline__ float next_factor(const next_call<T> &c, const next_found &found, int column) {
    return (float)(found.by[column >= c.side[0].columns] * (double)NEXT_UNIT);
}

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

/* What the gate needs of the memories, by all threads of one block. tally: of all, in the first two warps. */
template <typename T>
static __device__ __forceinline__ void next_find(const next_call<T> &c, next_found *found, const memory_gate *gate,
                                                 next_tally tally, const next_near &near) {
    __shared__ double f[MEMORY_FEATURES];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (warp < MEMORY_SIDES && lane == 0) { /* a warp for each side: two independent chains of logarithms */
        for (int i = 0; i < MEMORY_SIDES; i++) /* no entry has an exponential: the first token */
            if (tally.best.token[i] == INT_MAX) tally.best.token[i] = 0;
        const unsigned long long all = warp ? tally.sums.all[1] : tally.sums.all[0];
        const bool lost = (warp ? tally.sums.lost[1] : tally.sums.lost[0]) > 0;
        const double by = lost ? (double)NAN : all ? 1.0 / (double)all : 0.0;
        found->by[warp] = by, found->best[warp] = warp ? tally.best.token[1] : tally.best.token[0];
        found->of[warp] = next_evidence(c, warp, tally, by, warp ? near.of[1] : near.of[0]);
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

/* What the blocks' warps give each other. */
struct read_shared {
    next_tally tally[READ_WARPS];
    next_near near[READ_WARPS];
    next_found found;
    float squares[READ_WARPS][READ_STAGES_MAX][READ_GROUP];
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
/* Adds 1 to a count after all that this block has written. Returns whether it is the last block. */
static __device__ __forceinline__ bool read_arrive(read_shared &s, unsigned *count) {
    __syncthreads();
    if (threadIdx.x == 0) {
        s.last = next_release(count) + 1 == gridDim.x;
        __threadfence(); /* what the other blocks wrote comes after it */
    }
    __syncthreads();
    return s.last;
}

/* The end by one block, which has distances and tokens of all entries in shared memory. */
template <typename T>
static __device__ __forceinline__ void read_end_alone(const next_call<T> &c, read_shared &s, const memory_gate *gate,
                                                      void *memory) {
    float *distance = (float *)memory;
    int *token = (int *)(distance + c.columns);
    next_near near = {{INFINITY, INFINITY}};
    next_tally tally = next_no_tally();
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < c.columns; i += READ_THREADS) {
        const float x = next_load(next_weight(c, i));
        distance[i] = x, token[i] = next_load(c.token + i);
        if (i >= c.side[0].columns) near.of[1] = fminf(near.of[1], x);
        else near.of[0] = fminf(near.of[0], x);
    }
    near = read_join_near(s, near);
    for (int i = (int)threadIdx.x; i < c.columns; i += READ_THREADS)
        distance[i] = next_scatter(c, tally, i, distance[i], token[i], near);
    next_find(c, &s.found, gate, read_join_tally(s, tally), near);
    for (int i = (int)threadIdx.x; i < c.columns; i += READ_THREADS)
        *next_weight(c, i) = distance[i] * next_factor(c, s.found, i);
}

/* The end by all blocks. near: of this block's entries. */
template <typename T>
static __device__ __forceinline__ void read_end_together(const next_call<T> &c, read_shared &s,
                                                         const memory_gate *gate, next_near near) {
    const int first = (int)(blockIdx.x * READ_THREADS + threadIdx.x), step = (int)gridDim.x * READ_THREADS;
    near = read_join_near(s, near);
    if (threadIdx.x == 0) c.exchange->near[blockIdx.x] = near;
    (void)read_arrive(s, &c.counts[NEXT_COUNT_NEAR]);
    next_wait(&c.counts[NEXT_COUNT_NEAR], gridDim.x);
    for (int i = (int)threadIdx.x % 32; i < (int)gridDim.x; i += 32)
        near = next_join(near, next_load_struct(&c.exchange->near[i]));
    near = next_warp(near);
    next_tally tally = next_no_tally();
    for (int i = first; i < c.columns; i += step)
        *next_weight(c, i) = next_scatter(c, tally, i, next_load(next_weight(c, i)), next_load(c.token + i), near);
    tally = read_join_tally(s, tally);
    if (threadIdx.x == 0) c.exchange->tally[blockIdx.x] = tally;
    if (read_arrive(s, &c.counts[NEXT_COUNT_TALLY])) {
        tally = next_no_tally();
        for (int i = (int)threadIdx.x % 32; i < (int)gridDim.x; i += 32)
            tally = next_join(tally, next_load_struct(&c.exchange->tally[i]));
        next_find(c, &s.found, gate, next_warp(tally), near);
        (void)read_arrive(s, &c.counts[NEXT_COUNT_FOUND]);
    } else {
        next_wait(&c.counts[NEXT_COUNT_FOUND], 1);
        if (threadIdx.x < MEMORY_SIDES) s.found.by[threadIdx.x] = next_load(&c.exchange->found.by[threadIdx.x]);
        __syncthreads();
    }
    for (int i = first; i < c.columns; i += step) /* this thread wrote it */
        *next_weight(c, i) *= next_factor(c, s.found, i);
}

/* ---- the kernel ---- */

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
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ read_shared s;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, pieces = (int)(c.d * sizeof(T) / 16);
    float *own = (float *)memory;
    memory_gate *gate = (memory_gate *)(memory + read_gate_at(c.d));
    const size_t stage_bytes = (size_t)READ_GROUP * pieces * 16;
    unsigned char *stages = memory + read_stages_at(c.d) + (size_t)(warp * c.stages) * stage_bytes;
    launch_next();
    /* all that needs no state */
    int first = (int)(warp * gridDim.x + blockIdx.x) * READ_GROUP;
    const int step = (int)gridDim.x * READ_WARPS * READ_GROUP;
    next_entry<T> ahead = next_look_up(c, first); /* of the next round that is to be copied */
    for (int i = 0; i < c.stages; i++) {
        read_copy(stages + i * stage_bytes, ahead, pieces);
        if (lane < READ_GROUP) s.squares[warp][i][lane] = ahead.key ? ahead.square : -1.0f;
        ahead = next_look_up(c, first + (i + 1) * step);
    }
    for (int i = threadIdx.x; i < (int)(sizeof *gate / sizeof(double)); i += READ_THREADS)
        ((double *)gate)[i] = ((const double *)c.gate)[i];
    for (int i = 0; i < MEMORY_SIDES; i++)
        for (int v = (int)(blockIdx.x * READ_THREADS + threadIdx.x); c.side[i].columns && v < c.vocab;
             v += (int)gridDim.x * READ_THREADS)
            c.sums[i][v] = 0;
    if (c.ready) next_wait(c.ready, c.at);
    const float square = next_load_state(c, own);
    next_near near = {{INFINITY, INFINITY}};
    for (int stage = 0; first < c.columns; first += step) {
        if (c.stages == 0) {
            const next_entry<T> entry = ahead;
            ahead = next_look_up(c, first + step); /* a chain of loads, during the products */
            const float dot = next_products(c, own, entry);
            read_store(c, first, square, entry.key ? entry.square : -1.0f, dot, near);
            continue;
        }
        read_wait_copies(c.stages);
        const float dot = read_products<T>(stages + stage * stage_bytes, own, pieces);
        read_store(c, first, square, lane < READ_GROUP ? s.squares[warp][stage][lane] : -1.0f, dot, near);
        read_copy(stages + stage * stage_bytes, ahead, pieces); /* the lane has read what it overwrites */
        if (lane < READ_GROUP) s.squares[warp][stage][lane] = ahead.key ? ahead.square : -1.0f;
        ahead = next_look_up(c, first + (c.stages + 1) * step);
        stage = stage + 1 == c.stages ? 0 : stage + 1;
    }
    asm volatile("cp.async.wait_all;" ::: "memory"); /* the last ones are empty */
    if (!c.alone) read_end_together(c, s, gate, near);
    else if (read_arrive(s, &c.counts[NEXT_COUNT_TALLY])) read_end_alone(c, s, gate, memory + read_stages_at(c.d));
    launch_wait(); /* so that the mixing kernel, which waits for this one, also waits for the decode step */
}
