/* next_token_cuda.cu -- the distribution of the next token on a GPU: one cooperative launch, a block on each
 * multiprocessor, three barriers of the grid.
 *
 *   pass 1   |s - k|^2 of all entries of both sides, four entries a warp; greatest logit, sums of a share of the logits
 *   pass 2   exponentials, relative to the nearest entry, added to sums by token; every block joins the logits' shares
 *   pass 3   p of each side, and its greatest, of a share of the vocabulary; weights of the entries
 *   pass 4   every block computes the gate, a warp a hidden unit; log p of its share of the vocabulary
 *
 * Exponentials are added as integers, in units of 2^-45, so that the order does not matter: they are at most 1, and the
 * sum of 2^18 fits into 63 bits. One below 2^-46 of the nearest entry's adds nothing.
 *
 * Bound by reading the keys once where there are many entries, by latency (three barriers, chains of loads) else. */
#include "kernels/memory/token_memory_cuda.cuh"
#include <cooperative_groups.h>
extern "C" {
#include "kernels/memory/next_token.h"
}

enum { NEXT_WARPS = 16, NEXT_THREADS = 32 * NEXT_WARPS, NEXT_GROUP = 4 /* entries of a warp at a time */ };
enum { NEXT_BLOCKS_MAX = 512, NEXT_COLUMNS_MAX = 1 << 18 };
static_assert((int)NEXT_WARPS == (int)MEMORY_GATE_HIDDEN, "a warp for each hidden unit");
static_assert((int)MEMORY_FEATURES <= 32, "a lane for each feature");
#define NEXT_UNIT 0x1p45f

struct next_top { /* of some logits: the greatest, the first of equal ones */
    float logit;
    int token;
};
struct next_moments {
    double sum, moment; /* of e^(logit - the greatest), and of it times the exponent */
};
struct next_best { /* of some tokens of a side: the greatest sum, the first of equal ones */
    unsigned long long sum;
    int token;
};
struct next_sums {
    unsigned long long all, squares;
    unsigned lost; /* some exponential is NaN */
};
/* What blocks tell each other, in the device's scratch. */
struct next_exchange {
    float near[MEMORY_SIDES][NEXT_BLOCKS_MAX];
    next_top top[NEXT_BLOCKS_MAX];
    next_moments moments[NEXT_BLOCKS_MAX];
    next_best best[MEMORY_SIDES][NEXT_BLOCKS_MAX];
    next_sums sums[MEMORY_SIDES];
};
template <typename T> struct next_side {
    memory_view v;
    memory_sources<T> in;
    memory_marks marks;
    float *w, *p;
    int64_t columns; /* 0: not read */
    bool read;       /* its gate may open */
};
template <typename T> struct next_call {
    const memory_gate *gate;
    const float *logits;
    const T *state;
    float *log_p;
    double *g;
    next_token_append append;
    next_exchange *exchange;
    unsigned long long *sums[MEMORY_SIDES]; /* [V] */
    next_side<T> side[MEMORY_SIDES];
    int vocab, d;
};

/* ---- reductions over a block, in a fixed order; every thread gets the result ---- */

static __device__ __forceinline__ next_top next_join(const next_top &a, const next_top &b) {
    return b.logit > a.logit || (b.logit == a.logit && b.token < a.token) || isnan(a.logit) ? b : a;
}
static __device__ __forceinline__ next_best next_join(const next_best &a, const next_best &b) {
    return b.sum > a.sum || (b.sum == a.sum && b.token < a.token) ? b : a;
}
static __device__ __forceinline__ next_moments next_join(const next_moments &a, const next_moments &b) {
    return {a.sum + b.sum, a.moment + b.moment};
}
template <typename X> static __device__ __forceinline__ X next_shuffle(const X &x, int offset) {
    enum { WORDS = sizeof(X) / sizeof(int) };
    static_assert(sizeof(X) % sizeof(int) == 0, "whole words");
    int from[WORDS], to[WORDS];
    memcpy(from, &x, sizeof x);
#pragma unroll
    for (int i = 0; i < WORDS; i++)
        to[i] = __shfl_xor_sync(~0u, from[i], offset);
    X y;
    memcpy(&y, to, sizeof y);
    return y;
}
/* none: joined with x, it gives x. */
template <typename X> static __device__ __forceinline__ X next_reduce(X x, const X &none, void *memory) {
    X *shared = (X *)memory;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int offset = 16; offset; offset /= 2)
        x = next_join(x, next_shuffle(x, offset));
    __syncthreads();
    if (lane == 0) shared[warp] = x;
    __syncthreads();
    x = lane < NEXT_WARPS ? shared[lane] : none;
#pragma unroll
    for (int offset = 16; offset; offset /= 2)
        x = next_join(x, next_shuffle(x, offset));
    return x;
}

/* This block's share of the vocabulary. */
static __device__ __forceinline__ int next_begin(int vocab, unsigned block) {
    return (int)((int64_t)vocab * block / gridDim.x);
}

/* ---- the passes ---- */

/* An entry, as memory_entry_at; the newest value may not have arrived yet. */
static __device__ __forceinline__ memory_entry next_entry(const memory_view &v, int block, int64_t column,
                                                          const next_token_append &append) {
    if (column < memory_slot_columns(v)) return memory_entry_at(v, 0, block, column);
    int64_t p = v.first - 1 - (column - memory_slot_columns(v));
    memory_entry e = {-1, -1, true};
    if (p < 0) return e;
    const int64_t key = p % v.ring;
    e.value = v.past_value + key == append.value ? append.id : v.past_value[key];
    if (e.value >= 0) e.key = key;
    return e;
}

/* Squared distances of a side, and the least of them. */
template <typename T>
static __device__ void next_distances(const next_call<T> &call, int which, const float *own, float square,
                                      float *shared) {
    const next_side<T> &s = call.side[which];
    const memory_view &v = s.v;
    int lane = threadIdx.x % 32, block = memory_block_of(v, 0);
    int64_t warp = (int64_t)threadIdx.x / 32 * gridDim.x + blockIdx.x, warps = (int64_t)gridDim.x * NEXT_WARPS;
    float near = INFINITY;
    for (int64_t first = warp * NEXT_GROUP; first < s.columns; first += warps * NEXT_GROUP) {
        /* Lanes below NEXT_GROUP look one entry up each: chains of loads. */
        memory_entry e = {-1, -1, false};
        float of_key = 0.0f;
        if (lane < NEXT_GROUP && first + lane < s.columns) {
            e = next_entry(v, block, first + lane, call.append);
            if (e.key >= 0) of_key = memory_square(v, e);
        }
        float dot[NEXT_GROUP], mine = 0.0f;
        int64_t key[NEXT_GROUP];
#pragma unroll
        for (int j = 0; j < NEXT_GROUP; j++) {
            key[j] = __shfl_sync(~0u, e.key, j);
            bool past = __shfl_sync(~0u, (int)e.past, j);
            dot[j] = 0.0f;
            if (key[j] < 0) continue;
            const T *k = past ? s.in.past[key[j]] : s.in.slots[key[j]];
            if (s.in.vectors) {
                for (int i = lane * 8; i < v.d; i += 256) {
                    vec8 x = load8(k + i);
#pragma unroll
                    for (int c = 0; c < 8; c++)
                        dot[j] += own[i + c] * x.v[c];
                }
            } else {
                for (int i = lane; i < v.d; i += 32)
                    dot[j] += own[i] * to_float(k[i]);
            }
        }
#pragma unroll
        for (int j = 0; j < NEXT_GROUP; j++) {
            float sum = warp_sum(dot[j]);
            if (lane == j) mine = sum;
        }
        if (lane < NEXT_GROUP && first + lane < s.columns) {
            float distance = e.key < 0 ? INFINITY : memory_distance(square, of_key, mine);
            s.w[first + lane] = distance;
            near = fminf(near, distance);
        }
    }
    near = -block_max(-near, shared);
    if (threadIdx.x == 0) call.exchange->near[which][blockIdx.x] = near;
}

/* The greatest of this block's logits, and its sums. */
template <typename T> static __device__ void next_logits(const next_call<T> &c, int begin, int end, void *shared) {
    const next_top none = {-INFINITY, INT_MAX};
    next_top top = none;
    for (int v = begin + (int)threadIdx.x; v < end; v += NEXT_THREADS)
        top = next_join(top, next_top{c.logits[v], v});
    top = next_reduce(top, none, shared);
    next_moments x = {};
    for (int v = begin + (int)threadIdx.x; v < end; v += NEXT_THREADS) {
        const double below = (double)c.logits[v] - (double)top.logit, e = exp(below);
        x.sum += e;
        if (e > 0) x.moment += e * below;
    }
    x = next_reduce(x, next_moments{}, shared);
    if (threadIdx.x == 0) c.exchange->top[blockIdx.x] = top, c.exchange->moments[blockIdx.x] = x;
}
/* Of all logits. */
template <typename T>
static __device__ next_moments next_all_logits(const next_call<T> &c, next_top &top, void *shared) {
    const next_top none = {-INFINITY, INT_MAX};
    const bool one = threadIdx.x < gridDim.x;
    const next_top mine = one ? c.exchange->top[threadIdx.x] : none;
    next_moments x = one ? c.exchange->moments[threadIdx.x] : next_moments{};
    top = next_reduce(mine, none, shared);
    top.token = min(top.token, c.vocab - 1); /* all logits are NaN */
    if (x.sum != 0) { /* a share of no logits has none; NaN stays */
        const double below = (double)mine.logit - (double)top.logit, by = exp(below);
        x.moment = by > 0 ? by * (x.moment + x.sum * below) : 0, x.sum *= by;
    }
    return next_reduce(x, next_moments{}, shared);
}

/* Exponentials of a side's entries into w, and into the sums of their tokens. */
template <typename T> static __device__ void next_scatter(const next_call<T> &c, int which, float near) {
    const next_side<T> &s = c.side[which];
    const memory_view &v = s.v;
    next_sums *sums = &c.exchange->sums[which];
    const float to_log2 = MEMORY_LOG2E / *v.tau;
    const int block = memory_block_of(v, 0);
    unsigned long long all = 0, squares = 0;
    for (int64_t i = (int64_t)blockIdx.x * NEXT_THREADS + threadIdx.x; i < s.columns;
         i += (int64_t)gridDim.x * NEXT_THREADS) {
        float distance = s.w[i];
        float e = distance == INFINITY ? 0.0f : power2((near - distance) * to_log2);
        if (isnan(distance)) e = distance, sums->lost = 1;
        s.w[i] = e;
        if (!(e > 0.0f)) continue;
        const unsigned long long units = __float2ull_rn(e * NEXT_UNIT);
        const int32_t token = next_entry(v, block, i, c.append).value;
        if (token >= 0 && token < c.vocab) atomicAdd(c.sums[which] + token, units), all += units;
        squares += __float2ull_rn(e * e * NEXT_UNIT);
    }
#pragma unroll
    for (int offset = 16; offset; offset /= 2)
        all += __shfl_xor_sync(~0u, all, offset), squares += __shfl_xor_sync(~0u, squares, offset);
    if (threadIdx.x % 32 == 0 && (all | squares)) atomicAdd(&sums->all, all), atomicAdd(&sums->squares, squares);
}

/* p of a side for this block's tokens, and weights from exponentials. */
template <typename T>
static __device__ void next_normalise(const next_call<T> &c, int which, int begin, int end, void *shared) {
    const next_side<T> &s = c.side[which];
    const next_sums &sums = c.exchange->sums[which];
    const double by = sums.lost ? (double)NAN : sums.all ? 1.0 / (double)sums.all : 0.0;
    const float by_units = (float)(by * (double)NEXT_UNIT);
    const next_best none = {0, INT_MAX};
    next_best x = none;
    for (int v = begin + (int)threadIdx.x; v < end; v += NEXT_THREADS) {
        const unsigned long long sum = c.sums[which][v];
        s.p[v] = (float)((double)sum * by);
        x = next_join(x, next_best{sum, v});
    }
    for (int64_t i = (int64_t)blockIdx.x * NEXT_THREADS + threadIdx.x; i < s.columns;
         i += (int64_t)gridDim.x * NEXT_THREADS)
        s.w[i] *= by_units;
    x = next_reduce(x, none, shared);
    if (threadIdx.x == 0) c.exchange->best[which][blockIdx.x] = x;
}

/* What all blocks know before the gate. */
struct next_found {
    float near[MEMORY_SIDES];
    next_best best[MEMORY_SIDES];
    next_top top;
    next_moments moments; /* of all logits */
    double log_sum;       /* of the exponentials of all logits */
};

template <typename T>
static __device__ memory_evidence next_evidence(const next_call<T> &c, int which, const next_found &found) {
    const next_side<T> &s = c.side[which];
    const next_sums &sums = c.exchange->sums[which];
    const next_best &best = found.best[which];
    memory_evidence e = {};
    if (!s.read) return e;
    const double all = (double)sums.all / (double)NEXT_UNIT, lost = sums.lost ? (double)NAN : 0.0;
    e.entries = s.marks.entries;
    e.lse = (float)((sums.all ? log(all) - (double)found.near[which] / (double)*s.v.tau : -INFINITY) + lost);
    e.nearest = (float)((double)found.near[which] + lost);
    e.squares = sums.all ? (float)((double)sums.squares / (double)NEXT_UNIT / (all * all) + lost) : (float)lost;
    e.top = logf(s.p[best.token]), e.of_top = logf(s.p[found.top.token]);
    e.lm_of_top = (float)((double)c.logits[best.token] - found.log_sum), e.token = (float)best.token;
    e.best = s.marks.best, e.kth = s.marks.kth, e.mean = s.marks.mean;
    return e;
}

/* The gate, by all warps of the block, into g (shared memory). */
template <typename T>
static __device__ void next_gate(const next_call<T> &c, const next_found &found, double (&g)[1 + MEMORY_SIDES]) {
    __shared__ double f[MEMORY_FEATURES], hidden[MEMORY_GATE_HIDDEN];
    __shared__ memory_evidence of[MEMORY_SIDES];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (lane == 0 && warp < MEMORY_SIDES) { /* side by side: chains of logarithms */
        of[warp] = next_evidence(c, warp, found);
        double *at = f + MEMORY_FEATURES - (MEMORY_SIDES - warp) * MEMORY_SIDE_FEATURES;
        if (of[warp].entries > 0) memory_side_features(at, &of[warp]);
    }
    __syncthreads();
    double x = 0.0;
    if (lane < MEMORY_FEATURES) {
        const int side = memory_feature_side(lane);
        const bool there = side < 0 || of[side].entries > 0;
        double value = there ? f[lane] : 0.0;
        if (lane == 0) value = (double)(float)(log(found.moments.sum) - found.moments.moment / found.moments.sum);
        if (lane == 1) value = (double)(float)-log(found.moments.sum);
        if (lane == 2) value = of[0].entries > 0 && of[1].entries > 0 && of[0].token == of[1].token;
        x = c.gate->w1[warp][lane] * memory_gate_standard(c.gate, lane, value, there);
    }
#pragma unroll
    for (int offset = 16; offset; offset /= 2)
        x += __shfl_xor_sync(~0u, x, offset);
    if (lane == 0) hidden[warp] = tanh(x + c.gate->b1[warp]);
    __syncthreads();
    if (threadIdx.x == 0) memory_gate_softmax(g, c.gate, hidden, of);
    __syncthreads();
}

template <typename T>
static __device__ float next_log_p(const next_call<T> &c, int v, const double (&g)[1 + MEMORY_SIDES],
                                   double log_sum) {
    const double log_lm = (double)c.logits[v] - log_sum;
    double p = g[0] * exp(log_lm);
    for (int i = 0; i < MEMORY_SIDES; i++)
        if (c.side[i].read) p += g[1 + i] * (double)c.side[i].p[v];
    if (p >= 1e-290 || isnan(p)) return (float)log(p);
    double log_p[MEMORY_SIDES];
    for (int i = 0; i < MEMORY_SIDES; i++)
        log_p[i] = c.side[i].read ? log((double)c.side[i].p[v]) : -INFINITY;
    return (float)memory_mixed(g, log_lm, log_p);
}

template <typename T>
static __global__ void __launch_bounds__(NEXT_THREADS, 1) next_token_kernel(const __grid_constant__ next_call<T> c) {
    extern __shared__ float own[]; /* [d]: the state */
    __shared__ double shared[NEXT_WARPS * 2];
    __shared__ double g[1 + MEMORY_SIDES];
    cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    const int begin = next_begin(c.vocab, blockIdx.x), end = next_begin(c.vocab, blockIdx.x + 1);
    float square = 0.0f;
    for (int i = threadIdx.x; i < c.d; i += NEXT_THREADS)
        own[i] = to_float(c.state[i]), square += own[i] * own[i];
    square = block_sum(square, (float *)shared); /* and a barrier: own is complete */
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        if (c.append.square) *c.append.square = square;
        if (c.append.value) *c.append.value = c.append.id;
        for (int i = 0; i < MEMORY_SIDES; i++)
            c.exchange->sums[i] = {};
    }
    for (int i = 0; i < MEMORY_SIDES; i++) {
        if (!c.side[i].columns) continue;
        for (int v = begin + (int)threadIdx.x; v < end; v += NEXT_THREADS)
            c.sums[i][v] = 0;
        next_distances(c, i, own, square, (float *)shared);
    }
    next_logits(c, begin, end, shared);

    grid.sync();
    next_found found = {};
    for (int i = 0; i < MEMORY_SIDES; i++) {
        if (!c.side[i].columns) continue;
        const float least = threadIdx.x < gridDim.x ? c.exchange->near[i][threadIdx.x] : INFINITY;
        found.near[i] = -block_max(-least, (float *)shared);
        next_scatter(c, i, found.near[i]);
    }
    found.moments = next_all_logits(c, found.top, shared);
    found.log_sum = (double)found.top.logit + log(found.moments.sum);

    grid.sync();
    for (int i = 0; i < MEMORY_SIDES; i++)
        if (c.side[i].columns) next_normalise(c, i, begin, end, shared);

    grid.sync();
    const next_best none = {0, INT_MAX};
    for (int i = 0; i < MEMORY_SIDES; i++) {
        if (!c.side[i].columns) continue;
        found.best[i] = next_reduce(threadIdx.x < gridDim.x ? c.exchange->best[i][threadIdx.x] : none, none, shared);
    }
    next_gate(c, found, g);
    for (int v = begin + (int)threadIdx.x; v < end; v += NEXT_THREADS)
        c.log_p[v] = next_log_p(c, v, g, found.log_sum);
    if (blockIdx.x == 0 && threadIdx.x <= MEMORY_SIDES) c.g[threadIdx.x] = g[threadIdx.x];
}

/* ---- the op ---- */

template <typename T> static next_side<T> next_side_of(const next_token_side &from, struct mat state) {
    next_side<T> s = {};
    const token_memory &m = from.memory;
    if (!m.tau) return s;
    s.v = memory_view_of(state, &m, NULL), s.in = memory_sources_of<T>(state, &m);
    s.marks = from.marks, s.w = (float *)from.weights.data, s.p = from.p;
    s.columns = memory_columns(s.v), s.read = from.marks.entries > 0;
    assert(s.columns <= NEXT_COLUMNS_MAX && from.weights.cols == s.columns && from.weights.type == DTYPE_F32);
    return s;
}

template <typename T>
static void next_token_launch(struct device *dev, float *log_p, double *g, const struct next_token_task *task) {
    const char *op = "next_token.mix";
    const int blocks = device_cuda_processors(dev) < NEXT_BLOCKS_MAX ? device_cuda_processors(dev) : NEXT_BLOCKS_MAX;
    const size_t row = ((size_t)task->vocab * sizeof(unsigned long long) + 255) / 256 * 256;
    const size_t head = (sizeof(next_exchange) + 255) / 256 * 256;
    unsigned char *scratch = (unsigned char *)device_cuda_scratch(dev, head + MEMORY_SIDES * row);
    next_call<T> c = {};
    c.gate = task->gate, c.logits = task->logits, c.state = (const T *)task->state.data;
    c.log_p = log_p, c.g = g, c.append = task->append;
    c.exchange = (next_exchange *)(void *)scratch;
    for (int i = 0; i < MEMORY_SIDES; i++) {
        c.sums[i] = (unsigned long long *)(void *)(scratch + head + (size_t)i * row);
        c.side[i] = next_side_of<T>(task->side[i], task->state);
    }
    c.vocab = (int)task->vocab, c.d = (int)task->state.cols;
    void *arguments[] = {&c};
    const cudaError_t error =
        cudaLaunchCooperativeKernel((const void *)next_token_kernel<T>, dim3((unsigned)blocks), dim3(NEXT_THREADS),
                                    arguments, (size_t)c.d * sizeof(float), device_cuda_stream(dev));
    if (error != cudaSuccess) device_cuda_fault(dev, op, cudaGetErrorString(error));
    device_cuda_check(dev, op);
}

static void next_token_mix(struct device *dev, float *log_p, double *g, const struct next_token_task *task) {
    assert(task->state.rows == 1 && task->vocab > 0 && task->vocab < INT32_MAX);
    if (task->state.type == DTYPE_F32) next_token_launch<float>(dev, log_p, g, task);
    else if (task->state.type == DTYPE_BF16) next_token_launch<bf16>(dev, log_p, g, task);
    else next_token_launch<__half>(dev, log_p, g, task);
}

extern "C" const struct next_token_ops next_token_cuda = {.mix = next_token_mix};
