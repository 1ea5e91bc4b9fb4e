/* next_token_mix.cuh -- the second kernel of next_token: the gate, log p of all ids, and the division of the weights.
 *
 * Every block joins the shares of the logits, computes the gate in one warp and writes its share of the vocabulary, one
 * id a thread. So no block waits for another. An id that no memory has gets log p_lm + log g_0, without an exponential.
 *
 * The kernel is on the critical path of an id. Therefore its chain is short: what the gate needs of the memories is
 * already summed (next_found), the gate's parameters are converted to float32 before the logits are there, and what
 * remains of the gate is computed in float32. */
#pragma once
#include "kernels/cuda/launch_cuda.cuh"
#include "kernels/memory/next_token_call.cuh"

enum { MIX_WARPS = 16, MIX_THREADS = 32 * MIX_WARPS };
enum { MIX_FEATURES = 2 + 3 * MEMORY_SIDES }; /* those that need the logits */
static_assert((int)MIX_FEATURES <= 32 && (int)MEMORY_GATE_HIDDEN == 16 && (int)MEMORY_SIDES == 2, "lanes of a warp");

struct mix_gate { /* the parameters that remain, as float32 */
    float mean[MIX_FEATURES], by[MIX_FEATURES]; /* by: 1 / deviation */
    float w1[MIX_FEATURES][MEMORY_GATE_HIDDEN], w2[MEMORY_SIDES][MEMORY_GATE_HIDDEN], b2[MEMORY_SIDES];
};
struct mix_weights {
    float g[1 + MEMORY_SIDES], log_g[1 + MEMORY_SIDES];
};

/* Waits until the reading kernel and the decode step have written their results. Their ends are later: a kernel's end,
 * its flush and the start of the next one take a microsecond each. */
template <typename T> static __device__ __forceinline__ void mix_wait(const next_call<T> &c) {
    if (c.done) {
        if (threadIdx.x == 0) next_poll(c.done, c.done_at);
        if (threadIdx.x == 32) next_poll(&c.counts[NEXT_COUNT_FOUND], 1);
    } else {
        launch_wait();
    }
    __syncthreads();
}

/* The number among all features of one that needs the logits. */
static __device__ __forceinline__ int mix_feature(int i) {
    return i < 2 ? i : 3 + (i - 2) / 3 * MEMORY_SIDE_FEATURES + NEXT_OF_TOP + (i - 2) % 3;
}

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

/* All shares of the logits joined, in every thread. */
template <typename T> static __device__ __forceinline__ logit_share mix_join_shares(const next_call<T> &c) {
    __shared__ logit_share of_warp[MIX_WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    logit_share s = logit_share_none();
    for (int i = (int)threadIdx.x; i < c.n_shares; i += MIX_THREADS) {
        const float4 x = next_load((const float4 *)(c.shares + i));
        s = logit_share_join(s, {x.x, __float_as_int(x.y), x.z, x.w});
    }
    s = logit_share_warp(s);
    if (lane == 0) of_warp[warp] = s;
    __syncthreads();
    s = logit_share_warp(lane < MIX_WARPS ? of_warp[lane] : logit_share_none());
    s.token = min(s.token, c.vocab - 1); /* all logits are NaN */
    return s;
}

/* The weights, by one warp: a lane has a feature, then a hidden unit. */
template <typename T>
static __device__ __forceinline__ void mix_weigh(const next_call<T> &c, mix_weights *out, const mix_gate &gate,
                                                 const next_found &found, const logit_share &all, float log_all) {
    const int lane = threadIdx.x % 32;
    const int side = lane >= 5, what = lane < 2 ? lane : (lane - 2) % 3; /* of the feature of this lane */
    const bool read = side ? c.side[1].read : c.side[0].read;
    float value = lane ? -log_all : log_all - all.moment / all.sum, x = 0.0f;
    if (lane >= 2 && lane < MIX_FEATURES && read) {
        memory_evidence e = found.of[side];
        const unsigned long long sum = next_load((side ? c.sums[1] : c.sums[0]) + all.token);
        e.of_top = logf((float)((double)sum * found.by[side]));
        e.lm_of_top = next_load(c.logits + found.best[side]) - all.top - log_all;
        value = what == 0   ? (float)memory_gate_log(e.of_top)
                : what == 1 ? (float)memory_gate_log(e.lm_of_top)
                            : (float)(e.top == e.of_top);
    }
    if (lane < MIX_FEATURES && (lane < 2 || read)) {
        x = (value - gate.mean[lane]) * gate.by[lane];
        x = x > 5.0f ? 5.0f : x < -5.0f ? -5.0f : x; /* NaN stays */
    }
    const int unit = lane % MEMORY_GATE_HIDDEN, of = lane / MEMORY_GATE_HIDDEN; /* of: the side that this lane sums */
    float hidden = found.hidden[unit];
#pragma unroll
    for (int i = 0; i < MIX_FEATURES; i++)
        hidden += gate.w1[i][unit] * __shfl_sync(~0u, x, i);
    float a = gate.w2[of][unit] * tanhf(hidden);
#pragma unroll
    for (int offset = MEMORY_GATE_HIDDEN / 2; offset; offset /= 2)
        a += __shfl_xor_sync(~0u, a, offset);
    a += gate.b2[of];
    const float a0 = __shfl_sync(~0u, a, 0), a1 = __shfl_sync(~0u, a, MEMORY_GATE_HIDDEN);
    const bool r0 = c.side[0].read, r1 = c.side[1].read;
    float top = 0.0f;
    if (r0 && a0 > top) top = a0;
    if (r1 && a1 > top) top = a1;
    const float log_sum = logf(expf(-top) + (r0 ? expf(a0 - top) : 0.0f) + (r1 ? expf(a1 - top) : 0.0f));
    if (lane <= MEMORY_SIDES) {
        const float log_g = (lane == 0 ? -top : lane == 1 ? a0 - top : a1 - top) - log_sum;
        const bool none = (lane == 1 && !r0) || (lane == 2 && !r1);
        out->log_g[lane] = none ? -INFINITY : log_g, out->g[lane] = none ? 0.0f : expf(log_g);
    }
}

/* The sums of a token of both sides. */
struct mix_token {
    unsigned long long sum[MEMORY_SIDES];
    float logit;
};
template <typename T> static __device__ __forceinline__ mix_token mix_load_token(const next_call<T> &c, int v) {
    mix_token t;
    t.logit = next_load(c.logits + v);
#pragma unroll
    for (int i = 0; i < MEMORY_SIDES; i++)
        t.sum[i] = c.side[i].columns ? next_load(c.sums[i] + v) : 0;
    return t;
}

/* Writes p of each side, and log p. log_sum: of the exponentials of all logits. */
template <typename T>
static __device__ __forceinline__ void mix_write(const next_call<T> &c, int v, const mix_token &t,
                                                 const next_found &found, const mix_weights &w, double log_sum) {
    const double log_lm = (double)t.logit - log_sum;
    float p[MEMORY_SIDES] = {};
#pragma unroll
    for (int i = 0; i < MEMORY_SIDES; i++) {
        if (!c.side[i].columns) continue;
        p[i] = t.sum[i] ? (float)((double)t.sum[i] * found.by[i]) : isnan(found.by[i]) ? NAN : 0.0f;
        c.side[i].p[v] = p[i];
    }
    float log_p = (float)(log_lm + (double)w.log_g[0]);
    if ((t.sum[0] && c.side[0].read) || (t.sum[1] && c.side[1].read)) {
        const float mixed = w.g[0] * expf((float)log_lm) + w.g[1] * p[0] + w.g[2] * p[1];
        if (mixed >= 1e-30f || isnan(mixed)) {
            log_p = logf(mixed);
        } else {
            double g[1 + MEMORY_SIDES], of[MEMORY_SIDES];
            for (int i = 0; i <= MEMORY_SIDES; i++)
                g[i] = exp((double)w.log_g[i]);
            for (int i = 0; i < MEMORY_SIDES; i++)
                of[i] = c.side[i].read ? log((double)p[i]) : -INFINITY;
            log_p = (float)memory_mixed(g, log_lm, of);
        }
    }
    c.log_p[v] = log_p;
}

template <typename T>
static __global__ void __launch_bounds__(MIX_THREADS, 1) next_mix_kernel(const __grid_constant__ next_call<T> c) {
    __shared__ mix_gate gate;
    __shared__ next_found found;
    __shared__ mix_weights weights;
    const int begin = (int)((int64_t)c.vocab * blockIdx.x / gridDim.x);
    const int end = (int)((int64_t)c.vocab * (blockIdx.x + 1) / gridDim.x);
    const int mine = begin + (int)threadIdx.x; /* of this thread: the first token, most often the only one */
    mix_load_gate(&gate, c.gate);
    mix_wait(c);
    unsigned before = 0; /* of the last warp: blocks that had waited before this one. The result is needed at the end */
    if (threadIdx.x == MIX_THREADS - 32) before = atomicAdd(&c.counts[NEXT_COUNT_MIX], 1);
    const mix_token token = mix_load_token(c, mine < end ? mine : 0);
    for (int i = (int)threadIdx.x; i < (int)(sizeof found / sizeof(unsigned long long)); i += MIX_THREADS)
        ((unsigned long long *)&found)[i] = next_load((const unsigned long long *)&c.exchange->found + i);
    const logit_share all = mix_join_shares(c); /* and a barrier */
    const float log_all = logf(all.sum);
    const double log_sum = (double)all.top + (double)log_all;
    if (threadIdx.x < 32) mix_weigh(c, &weights, gate, found, all, log_all);
    __syncthreads();
    if (mine < end) mix_write(c, mine, token, found, weights, log_sum);
    for (int v = mine + MIX_THREADS; v < end; v += MIX_THREADS)
        mix_write(c, v, mix_load_token(c, v), found, weights, log_sum);
    if (blockIdx.x == 0 && threadIdx.x <= MEMORY_SIDES) c.g[threadIdx.x] = (double)weights.g[threadIdx.x];
    for (int i = (int)(blockIdx.x * MIX_THREADS + threadIdx.x); i < c.columns; i += (int)gridDim.x * MIX_THREADS) {
        const bool second = i >= c.side[0].columns;
        float *w = second ? c.side[1].w + (i - c.side[0].columns) : c.side[0].w + i;
        *w = next_load(w) * (float)((second ? found.by[1] : found.by[0]) * (double)NEXT_UNIT);
    }
    if (threadIdx.x >= MIX_THREADS - 32 && __shfl_sync(~0u, before, 0) + 1 == gridDim.x)
        for (int i = (int)threadIdx.x % 32; i < NEXT_COUNT_NEAR + 2 * c.readers; i += 32)
            c.counts[i] = 0; /* no block waits any more */
    launch_wait();
}
