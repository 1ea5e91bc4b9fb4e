/* next_token_cuda.cu -- the distribution of the next token on a GPU: one cooperative launch, a block on each
 * multiprocessor, two barriers of the grid.
 *
 *   pass 1   |s - k|^2 of all entries, a warp has four; greatest logit and sums of this block's share of the logits
 *   pass 2   exponentials, relative to the nearest entry, added to sums by token; every block joins the logits' shares
 *   pass 3   weights of the entries; every block computes the gate, a warp for each hidden unit; p of each side and
 *            log p of its share of the vocabulary
 *
 * The gate needs each side's likeliest token. An addition returns the sum before it, so the thread that adds a token's
 * last exponential sees its whole sum, and no sum seen is greater. The greatest sum seen is the greatest of all.
 *
 * Columns of both sides are one range. With few entries the time is that of chains of loads, barriers and logarithms;
 * with many, that of reading the keys once. H200, d 768, 2,048 entries of the text's own past: 29 us with 1,016
 * entries of slots, 35 us with 8,128, 64 us with 32,512.
 *
 * Exponentials are added as integers, in units of 2^-45, so that the order does not matter: they are at most 1, and the
 * sum of 2^18 fits into 63 bits. One below 2^-46 of the nearest entry's adds nothing. */
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
/* Of a block, after pass 1. */
struct next_part {
    float near[MEMORY_SIDES]; /* the least distance */
    next_top top;
};
/* Of some tokens: a side's greatest sum, the first of equal ones. */
struct next_best {
    unsigned long long sum[MEMORY_SIDES];
    int token[MEMORY_SIDES];
};
struct next_sums { /* of the exponentials of a side, and of their squares */
    unsigned long long all, squares;
    unsigned lost; /* some exponential is NaN */
};
/* Results that blocks exchange, in the device's scratch. */
struct next_exchange {
    next_part parts[NEXT_BLOCKS_MAX];
    next_moments moments[NEXT_BLOCKS_MAX];
    next_best best[NEXT_BLOCKS_MAX];
    next_sums sums[MEMORY_SIDES];
};
template <typename T> struct next_side {
    memory_view v;
    memory_sources<T> in;
    memory_marks marks;
    float *w, *p;
    int columns; /* 0: not read */
    bool read;   /* its gate may open */
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
    int32_t *token;                         /* [columns of both sides]: -1: no entry */
    next_side<T> side[MEMORY_SIDES];
    int vocab, d, columns;
};

/* ---- reductions over a block, in a fixed order; every thread gets the result ---- */

static __device__ __forceinline__ next_part next_join(const next_part &a, const next_part &b) {
    next_part c;
    for (int i = 0; i < MEMORY_SIDES; i++)
        c.near[i] = fminf(a.near[i], b.near[i]);
    const bool second = b.top.logit > a.top.logit || (b.top.logit == a.top.logit && b.top.token < a.top.token);
    c.top = second || isnan(a.top.logit) ? b.top : a.top;
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
/* the neutral element: joined with x, it gives x. */
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
static __device__ __forceinline__ next_part next_no_part() {
    return {{INFINITY, INFINITY}, {-INFINITY, INT_MAX}};
}
static __device__ __forceinline__ next_best next_no_best() {
    return {{0, 0}, {INT_MAX, INT_MAX}};
}

/* This block's share of the vocabulary. */
static __device__ __forceinline__ int next_begin(int vocab, unsigned block) {
    return (int)((int64_t)vocab * block / gridDim.x);
}

/* ---- the passes ---- */

/* An entry, as memory_entry_at; the newest value may not have arrived yet. */
static __device__ __forceinline__ memory_entry next_entry(const memory_view &v, int column,
                                                          const next_token_append &append) {
    const int slots = (int)memory_slot_columns(v);
    if (column < slots) return memory_entry_at(v, 0, 0, column);
    int64_t p = v.first - 1 - (column - slots);
    memory_entry e = {-1, -1, true};
    if (p < 0) return e;
    const int64_t key = p % v.ring;
    e.value = v.past_value + key == append.value ? append.id : v.past_value[key];
    if (e.value >= 0) e.key = key;
    return e;
}

/* Squared distances and tokens of all columns; the least distance of each side. */
template <typename T>
static __device__ __forceinline__ void next_distances(const next_call<T> &c, const float *own, float square,
                                                      float (&near)[MEMORY_SIDES]) {
    const int lane = threadIdx.x % 32, warps = (int)gridDim.x * NEXT_WARPS;
    const int warp = (int)(threadIdx.x / 32 * gridDim.x + blockIdx.x);
    for (int first = warp * NEXT_GROUP; first < c.columns; first += warps * NEXT_GROUP) {
        /* Each lane below NEXT_GROUP looks up one entry: a chain of loads. */
        const int column = first + lane, which = column >= c.side[0].columns;
        const int here = which ? column - c.side[0].columns : column;
        const bool mine = lane < NEXT_GROUP && column < c.columns;
        const T *key = NULL;
        float of_key = 0.0f, sum_of_mine = 0.0f;
        if (mine) {
            const next_side<T> &s = which ? c.side[1] : c.side[0];
            const memory_entry e = next_entry(s.v, here, c.append);
            if (e.key >= 0) key = s.in.key(e), of_key = memory_square(s.v, e);
            c.token[column] = e.value;
        }
        const bool vectors = (c.side[0].columns == 0 || c.side[0].in.vectors) &&
                             (c.side[1].columns == 0 || c.side[1].in.vectors);
        float dot[NEXT_GROUP];
#pragma unroll
        for (int j = 0; j < NEXT_GROUP; j++) {
            const T *k = (const T *)__shfl_sync(~0u, (unsigned long long)key, j);
            dot[j] = 0.0f;
            if (!k) continue;
            if (vectors) {
                for (int i = lane * 8; i < c.d; i += 256) {
                    vec8 x = load8(k + i);
#pragma unroll
                    for (int n = 0; n < 8; n++)
                        dot[j] += own[i + n] * x.v[n];
                }
            } else {
                for (int i = lane; i < c.d; i += 32)
                    dot[j] += own[i] * to_float(k[i]);
            }
        }
#pragma unroll
        for (int j = 0; j < NEXT_GROUP; j++) {
            float sum = warp_sum(dot[j]);
            if (lane == j) sum_of_mine = sum;
        }
        if (mine) {
            const float distance = key ? memory_distance(square, of_key, sum_of_mine) : INFINITY;
            (which ? c.side[1] : c.side[0]).w[here] = distance;
            near[0] = which ? near[0] : fminf(near[0], distance);
            near[1] = which ? fminf(near[1], distance) : near[1];
        }
    }
}

/* Sums of this block's logits, relative to the greatest of them. */
static __device__ __forceinline__ next_moments next_block_moments(const float *logits, int begin, int end,
                                                                  float greatest) {
    next_moments x = {};
    for (int v = begin + (int)threadIdx.x; v < end; v += NEXT_THREADS) {
        const double below = (double)logits[v] - (double)greatest, e = exp(below);
        x.sum += e;
        if (e > 0) x.moment += e * below;
    }
    return x;
}

/* Exponentials of the entries into w, and into the sums of their tokens. Returns the greatest sums that this thread
 * saw. */
template <typename T>
static __device__ __forceinline__ next_best next_scatter(const next_call<T> &c, const float (&near)[MEMORY_SIDES]) {
    unsigned long long all[MEMORY_SIDES] = {}, squares[MEMORY_SIDES] = {};
    next_best best = next_no_best();
    for (int column = (int)(blockIdx.x * NEXT_THREADS + threadIdx.x); column < c.columns;
         column += (int)gridDim.x * NEXT_THREADS) {
        const int which = column >= c.side[0].columns, here = which ? column - c.side[0].columns : column;
        const next_side<T> &s = which ? c.side[1] : c.side[0];
        const float distance = s.w[here], to_log2 = MEMORY_LOG2E / *s.v.tau;
        const int token = c.token[column];
        float e = distance == INFINITY ? 0.0f : power2(((which ? near[1] : near[0]) - distance) * to_log2);
        if (isnan(distance)) e = distance, c.exchange->sums[which].lost = 1;
        s.w[here] = e;
        if (!(e > 0.0f) || token >= c.vocab) continue;
        const unsigned long long units = __float2ull_rn(e * NEXT_UNIT), square = __float2ull_rn(e * e * NEXT_UNIT);
        const unsigned long long sum = units + atomicAdd((which ? c.sums[1] : c.sums[0]) + token, units);
        next_best one = next_no_best();
        if (which) one.sum[1] = sum, one.token[1] = token, all[1] += units, squares[1] += square;
        else one.sum[0] = sum, one.token[0] = token, all[0] += units, squares[0] += square;
        best = next_join(best, one);
    }
#pragma unroll
    for (int i = 0; i < MEMORY_SIDES; i++) {
#pragma unroll
        for (int offset = 16; offset; offset /= 2) {
            all[i] += __shfl_xor_sync(~0u, all[i], offset);
            squares[i] += __shfl_xor_sync(~0u, squares[i], offset);
        }
        if (threadIdx.x % 32 == 0 && (all[i] | squares[i])) {
            atomicAdd(&c.exchange->sums[i].all, all[i]);
            atomicAdd(&c.exchange->sums[i].squares, squares[i]);
        }
    }
    return best;
}

/* Weights from exponentials. */
template <typename T>
static __device__ __forceinline__ void next_normalise(const next_call<T> &c, const double (&by)[MEMORY_SIDES]) {
    for (int column = (int)(blockIdx.x * NEXT_THREADS + threadIdx.x); column < c.columns;
         column += (int)gridDim.x * NEXT_THREADS) {
        const int which = column >= c.side[0].columns, here = which ? column - c.side[0].columns : column;
        (which ? c.side[1] : c.side[0]).w[here] *= (float)((which ? by[1] : by[0]) * (double)NEXT_UNIT);
    }
}

/* The inputs of the gate, known to all blocks. */
struct next_found {
    next_part part; /* of all */
    next_best best;
    next_moments moments; /* of all logits */
    next_sums sums[MEMORY_SIDES];
    double by[MEMORY_SIDES]; /* p of a token is its sum, times this */
    double log_all;          /* of the sum of moments */
};

/* p of a side for a token, from the sum of its exponentials. */
template <typename T>
static __device__ __forceinline__ float next_p(const next_call<T> &c, int side, int token, const next_found &found) {
    return (float)((double)(side ? c.sums[1] : c.sums[0])[token] * found.by[side]);
}

template <typename T>
static __device__ memory_evidence next_evidence(const next_call<T> &c, int which, const next_found &found) {
    const next_side<T> &s = which ? c.side[1] : c.side[0];
    const next_sums &sums = found.sums[which];
    const int best = found.best.token[which], top = found.part.top.token;
    memory_evidence e = {};
    if (!s.read) return e;
    const float p_best = next_p(c, which, best, found), p_top = next_p(c, which, top, found);
    const float logit = c.logits[best];
    const double all = (double)sums.all / (double)NEXT_UNIT, lost = sums.lost ? (double)NAN : 0.0;
    const double near = (double)found.part.near[which];
    e.entries = s.marks.entries;
    e.lse = (float)((sums.all ? log(all) - near / (double)*s.v.tau : -INFINITY) + lost);
    e.nearest = (float)(near + lost);
    e.squares = sums.all ? (float)((double)sums.squares / (double)NEXT_UNIT / (all * all) + lost) : (float)lost;
    e.top = logf(p_best), e.of_top = logf(p_top);
    e.lm_of_top = (float)((double)logit - (double)found.part.top.logit - found.log_all), e.token = (float)best;
    e.best = s.marks.best, e.kth = s.marks.kth, e.mean = s.marks.mean;
    return e;
}

/* The gate, by all warps of the block; `gate` is in shared memory. */
template <typename T>
static __device__ void next_gate(const next_call<T> &c, const memory_gate *gate, const next_found &found,
                                 double (&g)[1 + MEMORY_SIDES]) {
    __shared__ double f[MEMORY_FEATURES], hidden[MEMORY_GATE_HIDDEN], a[MEMORY_SIDES];
    __shared__ memory_evidence of[MEMORY_SIDES];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (lane == 0 && warp < MEMORY_SIDES) { /* two independent chains of logarithms */
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
        if (lane == 0) value = (double)(float)(found.log_all - found.moments.moment / found.moments.sum);
        if (lane == 1) value = (double)(float)-found.log_all;
        if (lane == 2) value = of[0].entries > 0 && of[1].entries > 0 && of[0].token == of[1].token;
        x = gate->w1[warp][lane] * memory_gate_standard(gate, lane, value, there);
    }
#pragma unroll
    for (int offset = 16; offset; offset /= 2)
        x += __shfl_xor_sync(~0u, x, offset);
    if (lane == 0) hidden[warp] = tanh(x + gate->b1[warp]);
    __syncthreads();
    if (warp < MEMORY_SIDES) {
        x = lane < MEMORY_GATE_HIDDEN ? gate->w2[warp][lane] * hidden[lane] : 0.0;
#pragma unroll
        for (int offset = 16; offset; offset /= 2)
            x += __shfl_xor_sync(~0u, x, offset);
        if (lane == 0) a[warp] = x + gate->b2[warp];
    }
    __syncthreads();
    memory_gate_softmax(g, a, of);
}

/* p of both sides for a token. */
struct next_sides {
    float p[MEMORY_SIDES];
};
template <typename T>
static __device__ __forceinline__ next_sides next_sides_of(const next_call<T> &c, int v, const next_found &found) {
    next_sides s = {};
    for (int i = 0; i < MEMORY_SIDES; i++)
        if (c.side[i].columns) c.side[i].p[v] = s.p[i] = next_p(c, i, v, found);
    return s;
}

/* log p of a token; e: p of the model. */
template <typename T>
static __device__ __forceinline__ float next_log_p(const next_call<T> &c, const next_sides &sides,
                                                   const double (&g)[1 + MEMORY_SIDES], double log_lm, double e) {
    double p = g[0] * e, log_p[MEMORY_SIDES];
    for (int i = 0; i < MEMORY_SIDES; i++)
        if (c.side[i].read) p += g[1 + i] * (double)sides.p[i];
    if (p >= 1e-290 || isnan(p)) return (float)log(p);
    for (int i = 0; i < MEMORY_SIDES; i++)
        log_p[i] = c.side[i].read ? log((double)sides.p[i]) : -INFINITY;
    return (float)memory_mixed(g, log_lm, log_p);
}

template <typename T>
static __global__ void __launch_bounds__(NEXT_THREADS, 1) next_token_kernel(const __grid_constant__ next_call<T> c) {
    extern __shared__ float own[]; /* [d]: the state */
    __shared__ double shared[NEXT_WARPS * sizeof(next_best) / sizeof(double)];
    __shared__ memory_gate gate;
    cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    const int begin = next_begin(c.vocab, blockIdx.x), end = next_begin(c.vocab, blockIdx.x + 1);
    const int mine = begin + (int)threadIdx.x; /* of this thread: the first token, most often the only one */
    const float logit = mine < end ? c.logits[mine] : -INFINITY;
    float square = 0.0f;
    for (int i = threadIdx.x; i < c.d; i += NEXT_THREADS)
        own[i] = to_float(c.state[i]), square += own[i] * own[i];
    for (int i = threadIdx.x; i < (int)(sizeof gate / sizeof(double)); i += NEXT_THREADS)
        ((double *)&gate)[i] = ((const double *)c.gate)[i];
    for (int i = 0; i < MEMORY_SIDES; i++)
        for (int v = mine; c.side[i].columns && v < end; v += NEXT_THREADS)
            c.sums[i][v] = 0;
    square = block_sum(square, (float *)shared); /* and a barrier: own is complete */
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        if (c.append.square) *c.append.square = square;
        if (c.append.value) *c.append.value = c.append.id;
        for (int i = 0; i < MEMORY_SIDES; i++)
            c.exchange->sums[i] = {};
    }
    next_part part = next_no_part();
    next_distances(c, own, square, part.near);
    if (mine < end) part.top = {logit, mine};
    for (int v = mine + NEXT_THREADS; v < end; v += NEXT_THREADS) {
        next_part one = next_no_part();
        one.top = {c.logits[v], v};
        part = next_join(part, one);
    }
    part = next_reduce(part, next_no_part(), shared);
    const next_moments of_block =
        next_reduce(next_block_moments(c.logits, begin, end, part.top.logit), next_moments{}, shared);
    if (threadIdx.x == 0) c.exchange->parts[blockIdx.x] = part, c.exchange->moments[blockIdx.x] = of_block;

    grid.sync();
    next_found found = {};
    const bool one = threadIdx.x < gridDim.x;
    part = one ? c.exchange->parts[threadIdx.x] : next_no_part();
    next_moments moments = one ? c.exchange->moments[threadIdx.x] : next_moments{};
    found.part = next_reduce(part, next_no_part(), shared);
    found.part.top.token = min(found.part.top.token, c.vocab - 1); /* all logits are NaN */
    next_best best = next_reduce(next_scatter(c, found.part.near), next_no_best(), shared);
    if (threadIdx.x == 0) c.exchange->best[blockIdx.x] = best;
    if (moments.sum != 0) { /* a share of no logits has none; NaN stays */
        const double below = (double)part.top.logit - (double)found.part.top.logit, by = exp(below);
        moments.moment = by > 0 ? by * (moments.moment + moments.sum * below) : 0, moments.sum *= by;
    }
    found.moments = next_reduce(moments, next_moments{}, shared);
    found.log_all = log(found.moments.sum);
    const double log_sum = (double)found.part.top.logit + found.log_all, log_lm = (double)logit - log_sum;
    const double e = exp(log_lm);

    grid.sync();
    for (int i = 0; i < MEMORY_SIDES; i++) {
        const next_sums &sums = found.sums[i] = c.exchange->sums[i];
        found.by[i] = sums.lost ? (double)NAN : sums.all ? 1.0 / (double)sums.all : 0.0;
    }
    const next_sides sides = mine < end ? next_sides_of(c, mine, found) : next_sides{};
    best = next_reduce(one ? c.exchange->best[threadIdx.x] : next_no_best(), next_no_best(), shared);
    for (int i = 0; i < MEMORY_SIDES; i++) /* no entry has an exponential: the first token */
        if (best.token[i] == INT_MAX) best.token[i] = 0;
    found.best = best;
    double g[1 + MEMORY_SIDES];
    next_gate(c, &gate, found, g);
    if (mine < end) c.log_p[mine] = next_log_p(c, sides, g, log_lm, e);
    for (int v = mine + NEXT_THREADS; v < end; v += NEXT_THREADS) {
        const double of_lm = (double)c.logits[v] - log_sum;
        c.log_p[v] = next_log_p(c, next_sides_of(c, v, found), g, of_lm, exp(of_lm));
    }
    next_normalise(c, found.by); /* nothing waits for the weights */
    if (blockIdx.x == 0 && threadIdx.x == 0)
        for (int i = 0; i <= MEMORY_SIDES; i++)
            c.g[i] = g[i];
}

/* ---- the op ---- */

template <typename T> static next_side<T> next_side_of(const next_token_side &from, struct mat state) {
    next_side<T> s = {};
    const token_memory &m = from.memory;
    if (!m.tau) return s;
    s.v = memory_view_of(state, &m, NULL), s.in = memory_sources_of<T>(state, &m);
    s.marks = from.marks, s.w = (float *)from.weights.data, s.p = from.p;
    s.columns = (int)memory_columns(s.v), s.read = from.marks.entries > 0;
    assert(memory_columns(s.v) <= NEXT_COLUMNS_MAX && from.weights.cols == s.columns);
    assert(from.weights.type == DTYPE_F32 && m.slots.blocks <= 1 && m.past.length <= 1);
    return s;
}

template <typename T>
static void next_token_launch(struct device *dev, float *log_p, double *g, const struct next_token_task *task) {
    const char *op = "next_token.mix";
    const int blocks = device_cuda_processors(dev) < NEXT_BLOCKS_MAX ? device_cuda_processors(dev) : NEXT_BLOCKS_MAX;
    const size_t row = ((size_t)task->vocab * sizeof(unsigned long long) + 255) / 256 * 256;
    const size_t head = (sizeof(next_exchange) + 255) / 256 * 256;
    next_call<T> c = {};
    for (int i = 0; i < MEMORY_SIDES; i++) {
        c.side[i] = next_side_of<T>(task->side[i], task->state);
        c.columns += c.side[i].columns;
    }
    const size_t tokens = (size_t)c.columns * sizeof(int32_t);
    unsigned char *scratch = (unsigned char *)device_cuda_scratch(dev, head + MEMORY_SIDES * row + tokens);
    c.gate = task->gate, c.logits = task->logits, c.state = (const T *)task->state.data;
    c.log_p = log_p, c.g = g, c.append = task->append;
    c.exchange = (next_exchange *)(void *)scratch;
    for (int i = 0; i < MEMORY_SIDES; i++)
        c.sums[i] = (unsigned long long *)(void *)(scratch + head + (size_t)i * row);
    c.token = (int32_t *)(void *)(scratch + head + MEMORY_SIDES * row);
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
