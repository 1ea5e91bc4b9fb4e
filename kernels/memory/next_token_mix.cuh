/* next_token_mix.cuh -- the second kernel of next_token: the gate, log p of all ids, and the division of the weights.
 *
 * Every block joins the shares of the logits, computes the gate in one warp and writes its share of the vocabulary, one
 * id a thread. So no block waits for another. An id that no memory has gets log p_lm + log g_0, without an exponential.
 *
 * The kernel is on the critical path of an id. Therefore its chain is short: what the gate needs of the memories is
 * already summed (next_found), the gate's parameters have been converted to float32 by the first kernel, and what
 * remains of the gate is computed in float32. Its code is short, because it comes from memory for every id: the step
 * has read all weights through the caches since. So loops are not unrolled, and what is rare is apart. */
#pragma once
#include "kernels/cuda/launch_cuda.cuh"
#include "kernels/memory/next_token_call.cuh"

enum { MIX_WARPS = 16, MIX_THREADS = 32 * MIX_WARPS };
struct mix_weights {
    float g[1 + MEMORY_SIDES], log_g[1 + MEMORY_SIDES];
};

/* Waits until the reading kernel and the decode step have written their results. Their ends are later: a kernel's end,
 * its flush and the start of the next one take a microsecond each. */
template <typename T> static __device__ __forceinline__ void mix_wait(const next_call<T> &c, next_found &found) {
    static_assert((int)NEXT_FOUND_WORDS <= 32 && sizeof(mix_gate) / 4 <= MIX_THREADS, "a word a lane");
    if (!c.done) launch_wait();
    else if (threadIdx.x == 0) next_poll(c.done, c.done_at);
    if (const int i = (int)threadIdx.x - 32; i >= 0 && i < NEXT_FOUND_WORDS) {
        const unsigned long long word = next_take(&c.exchange->found[i]);
        memcpy((unsigned long long *)&found + i, &word, sizeof word);
    }
    __syncthreads();
}

/* A float as a number of the same order. */
static __device__ __forceinline__ int mix_order(float x) {
    const int bits = __float_as_int(x);
    return bits ^ (bits >> 31 & INT_MAX);
}
/* Over a warp, as logit_share_warp, in less code. */
static __device__ __forceinline__ logit_share mix_share_warp(logit_share s) {
    const int key = mix_order(s.top), top = __reduce_max_sync(~0u, key);
    s.token = __reduce_min_sync(~0u, key == top ? s.token : INT_MAX);
    s = logit_share_raise(s, __int_as_float(mix_order(__int_as_float(top))));
#pragma unroll 1
    for (int offset = 16; offset; offset /= 2) {
        s.sum += __shfl_xor_sync(~0u, s.sum, offset);
        s.moment += __shfl_xor_sync(~0u, s.moment, offset);
    }
    return s;
}
/* All shares of the logits joined, in every thread. */
template <typename T> static __device__ __forceinline__ logit_share mix_join_shares(const next_call<T> &c) {
    __shared__ logit_share of_warp[MIX_WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    logit_share s = logit_share_none();
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < c.n_shares; i += MIX_THREADS) {
        const float4 x = next_load((const float4 *)(c.shares + i));
        s = logit_share_join(s, {x.x, __float_as_int(x.y), x.z, x.w});
    }
#pragma unroll 1
    for (int level = 0;; level++) { /* of a warp, of all warps */
        s = mix_share_warp(s);
        if (level) break;
        if (lane == 0) of_warp[warp] = s;
        __syncthreads();
        s = lane < MIX_WARPS ? of_warp[lane] : logit_share_none();
    }
    s.token = min(s.token, c.vocab - 1); /* all logits are NaN */
    return s;
}

/* The weights, by one warp: a lane has a feature, then a hidden unit. */
template <typename T>
static __device__ __forceinline__ void mix_weigh(const next_call<T> &c, mix_weights *out, const mix_gate &gate,
                                                 const next_found &found, const logit_share &all, float log_all) {
    const int lane = threadIdx.x % 32;
    const int side = lane >= 5, what = lane < 2 ? lane : (lane - 2) % 3; /* of the feature of this lane */
    const bool read = (side ? found.of[1].entries : found.of[0].entries) > 0.0f;
    float value = lane ? -log_all : log_all - all.moment / all.sum, x = 0.0f;
    if (lane >= 2 && lane < MIX_FEATURES && read) {
        memory_evidence e = found.of[side];
        const unsigned long long sum = next_load((side ? c.sums[1] : c.sums[0]) + all.token);
        e.of_top = logf((float)((double)sum * found.by[side]));
        e.lm_of_top = next_load(c.logits + found.best[side]) - all.top - log_all;
        value = what == 2 ? (float)(e.top == e.of_top) : what ? e.lm_of_top : e.of_top;
        value = what == 2 || value > -12.0f ? value : -12.0f; /* memory_gate_log */
    }
    if (lane < MIX_FEATURES && (lane < 2 || read)) {
        x = (value - gate.mean[lane]) * gate.by[lane];
        x = x > 5.0f ? 5.0f : x < -5.0f ? -5.0f : x; /* NaN stays */
    }
    const int unit = lane % MEMORY_GATE_HIDDEN, of = lane / MEMORY_GATE_HIDDEN; /* of: the side that this lane sums */
    float hidden = found.hidden[unit];
#pragma unroll 2
    for (int i = 0; i < MIX_FEATURES; i++)
        hidden += gate.w1[i][unit] * __shfl_sync(~0u, x, i);
    float a = gate.w2[of][unit] * tanhf(hidden);
#pragma unroll 1
    for (int offset = MEMORY_GATE_HIDDEN / 2; offset; offset /= 2)
        a += __shfl_xor_sync(~0u, a, offset);
    a += gate.b2[of];
    const float a0 = __shfl_sync(~0u, a, 0), a1 = __shfl_sync(~0u, a, MEMORY_GATE_HIDDEN);
    const bool r0 = found.of[0].entries > 0.0f, r1 = found.of[1].entries > 0.0f;
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

/* log p where float32 cannot represent p. Rarely called, so its code is apart. */
static __device__ __noinline__ float mix_small(const mix_weights &w, double log_lm, float p0, float p1) {
    double g[1 + MEMORY_SIDES];
    const double of[MEMORY_SIDES] = {log((double)p0), log((double)p1)};
    for (int i = 0; i <= MEMORY_SIDES; i++)
        g[i] = exp((double)w.log_g[i]);
    return (float)memory_mixed(g, log_lm, of);
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
    if ((t.sum[0] && found.of[0].entries > 0.0f) || (t.sum[1] && found.of[1].entries > 0.0f)) {
        const float mixed = w.g[0] * expf((float)log_lm) + w.g[1] * p[0] + w.g[2] * p[1];
        log_p = mixed >= 1e-30f || isnan(mixed) ? logf(mixed) : mix_small(w, log_lm, p[0], p[1]);
    }
    c.log_p[v] = log_p;
}

template <typename T>
static __global__ void __launch_bounds__(MIX_THREADS, 1) next_mix_kernel(const __grid_constant__ next_call<T> c) {
    __shared__ mix_gate gate;
    __shared__ next_found found;
    __shared__ mix_weights weights;
    const int begin = (int)blockIdx.x * c.ids, end = min(begin + c.ids, c.vocab);
    mix_wait(c, found);
    unsigned before = 0; /* of the last warp: blocks that had waited before this one. The result is needed at the end */
    if (threadIdx.x == MIX_THREADS - 32) before = atomicAdd(&c.exchange->mixed, 1);
    int v = begin + (int)threadIdx.x; /* most often the only id of this thread */
    mix_token token = mix_load_token(c, min(v, c.vocab - 1));
    if (threadIdx.x < sizeof gate / sizeof(float))
        ((float *)&gate)[threadIdx.x] = next_load((const float *)c.mix + threadIdx.x);
    const logit_share all = mix_join_shares(c); /* and a barrier */
    const float log_all = logf(all.sum);
    const double log_sum = (double)all.top + (double)log_all;
    if (threadIdx.x < 32) mix_weigh(c, &weights, gate, found, all, log_all);
    __syncthreads();
#pragma unroll 1
    while (v < end) {
        mix_write(c, v, token, found, weights, log_sum);
        v += MIX_THREADS;
        if (v < end) token = mix_load_token(c, v);
    }
    if (blockIdx.x == 0 && threadIdx.x <= MEMORY_SIDES) c.g[threadIdx.x] = (double)weights.g[threadIdx.x];
    if (threadIdx.x >= MIX_THREADS - 32 && __shfl_sync(~0u, before, 0) + 1 == gridDim.x) { /* no block waits any more */
        unsigned long long *word = (unsigned long long *)c.exchange;
        const int words = (int)(offsetof(next_exchange, of) + c.readers * sizeof c.exchange->of[0]) / 8;
        for (int i = (int)threadIdx.x % 32; i < words; i += 32)
            word[i] = 0;
    }
    launch_wait(); /* the reading kernel's weights are complete */
    for (int i = (int)(blockIdx.x * MIX_THREADS + threadIdx.x); i < c.columns; i += (int)gridDim.x * MIX_THREADS) {
        const bool second = i >= c.side[0].columns;
        float *w = second ? c.side[1].w + (i - c.side[0].columns) : c.side[0].w + i;
        *w = next_load(w) * (float)((second ? found.by[1] : found.by[0]) * (double)NEXT_UNIT);
    }
}
