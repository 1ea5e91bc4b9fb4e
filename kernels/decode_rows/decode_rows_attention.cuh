/* decode_rows_attention.cuh -- attention of one row each of several texts: over a window of the text's ring, and over
 * the chunks that the text reads.
 *
 *   thread block (h, r)  head h of row r; 8 warps
 *   a key                DIM / 8 lanes, 8 numbers each; a warp has 32 / (DIM / 8) keys at once: its groups of lanes
 *   window               key i -> group i % groups of the block; each group has a softmax of its own; the groups'
 *                        results are combined at the end, in a fixed order
 *   chunks               entry e -> warp e % 8; its keys -> the warp's groups; combined at each chunk's end
 *
 * The query and the probabilities are float32. Bound by reading keys and values: 3 KiB of bf16 a key of a row of d 768;
 * for 32 rows with windows of 512 that is more than the layer's weights. Four keys and four values of each group are
 * read before the first is used, and the first ones before the previous kernel has ended. */
#pragma once
#include "kernels/decode_rows/decode_rows_product.cuh"

#define ROWS_LOG2E 1.44269504088896340736f

struct rows_attention {
    bf16 *o;        /* [rows, d] */
    const float *q; /* window: query, key, value [rows, 3d]; chunks: [rows, d] */
    const struct decode_row *texts;
    int d, heads, window, layer, group;
    float scale;    /* log2(e) / sqrt(DIM) */
    rows_ahead ahead;
};

/* A softmax over the keys of one group of lanes; each lane has 8 columns of the result. Scores in units of log 2. */
template <int DIM> struct rows_softmax {
    static constexpr int LANES = DIM / 8, KEYS = 32 / LANES, READ = 4; /* keys of a group that are read at once */
    float top = -INFINITY, sum = 0.0f, out[8] = {};

    static __device__ __forceinline__ void widen(float (&x)[8], uint4 from) {
        const uint32_t *pair = &from.x;
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[2 * i] = __uint_as_float(pair[i] << 16), x[2 * i + 1] = __uint_as_float(pair[i] & 0xffff0000u);
    }
    static __device__ __forceinline__ float dot(const float (&q)[8], uint4 key) {
        float k[8], x = 0.0f;
        widen(k, key);
#pragma unroll
        for (int i = 0; i < 8; i++)
            x = fmaf(q[i], k[i], x);
#pragma unroll
        for (int offset = 1; offset < LANES; offset *= 2)
            x += __shfl_xor_sync(~0u, x, offset);
        return x;
    }
    /* bias: added to the score; -INFINITY: there is no such key. */
    __device__ __forceinline__ void take(const float (&q)[8], const uint4 (&k)[READ], const uint4 (&v)[READ],
                                         const float (&bias)[READ]) {
        float s[READ], most = top;
#pragma unroll
        for (int u = 0; u < READ; u++)
            s[u] = dot(q, k[u]);
#pragma unroll
        for (int u = 0; u < READ; u++)
            s[u] = bias[u] == -INFINITY ? -INFINITY : s[u] + bias[u], most = fmaxf(most, s[u]);
        float base = most == -INFINITY ? 0.0f : most, shrink = power2(top - base);
        top = most;
        sum *= shrink;
#pragma unroll
        for (int i = 0; i < 8; i++)
            out[i] *= shrink;
#pragma unroll
        for (int u = 0; u < READ; u++) {
            float p = power2(s[u] - base), x[8];
            widen(x, v[u]);
            sum += p;
#pragma unroll
            for (int i = 0; i < 8; i++)
                out[i] = fmaf(p, x[i], out[i]);
        }
    }
    __device__ __forceinline__ void combine(float other_top, float other_sum, const float (&other)[8]) {
        float most = fmaxf(top, other_top), base = most == -INFINITY ? 0.0f : most;
        float mine = power2(top - base), its = power2(other_top - base);
        top = most;
        sum = sum * mine + other_sum * its;
#pragma unroll
        for (int i = 0; i < 8; i++)
            out[i] = out[i] * mine + other[i] * its;
    }
    /* The warp's groups: the result is in the first group's lanes. */
    __device__ __forceinline__ void combine_groups() {
#pragma unroll
        for (int offset = LANES; offset < 32; offset *= 2) {
            float other[8];
            float other_top = __shfl_xor_sync(~0u, top, offset), other_sum = __shfl_xor_sync(~0u, sum, offset);
#pragma unroll
            for (int i = 0; i < 8; i++)
                other[i] = __shfl_xor_sync(~0u, out[i], offset);
            combine(other_top, other_sum, other);
        }
    }
};

/* What the warps of a block leave for one another. */
template <int DIM> struct rows_parts {
    float out[ROWS_WARPS][DIM], top[ROWS_WARPS], sum[ROWS_WARPS];

    __device__ __forceinline__ void put(int warp, int lane, const rows_softmax<DIM> &s) {
        if (lane >= rows_softmax<DIM>::LANES) return;
#pragma unroll
        for (int i = 0; i < 8; i++)
            out[warp][lane * 8 + i] = s.out[i];
        if (lane == 0) top[warp] = s.top, sum[warp] = s.sum;
    }
};

static __device__ __forceinline__ uint4 rows_narrow(const float *x) {
    float4 a = *(const float4 *)x, b = *(const float4 *)(x + 4);
    return make_uint4(pack2(a.x, a.y), pack2(a.z, a.w), pack2(b.x, b.y), pack2(b.z, b.w));
}
static __device__ __forceinline__ void rows_load_query(float (&q)[8], const float *from, float scale) {
    vec8 x = load8(from);
#pragma unroll
    for (int i = 0; i < 8; i++)
        q[i] = x.v[i] * scale;
}

template <int DIM>
static __global__ void __launch_bounds__(ROWS_THREADS, 3)
    decode_rows_attend(const __grid_constant__ rows_attention p) {
    using softmax = rows_softmax<DIM>;
    enum { LANES = softmax::LANES, READ = softmax::READ, GROUPS = ROWS_WARPS * softmax::KEYS };
    __shared__ rows_parts<DIM> parts;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = (int)blockIdx.x;
    int64_t row = blockIdx.y;
    launch_next();
    const struct decode_row &text = p.texts[row];
    const int64_t position = text.position, ring_step = text.ring_step;
    unsigned char *rings = text.ring;
    const int ring = text.ring_rows;
    /* Only the position can be negative. All are loaded at once then: one wait for the memory, not two. */
    if ((position | (int64_t)((uint64_t)ring_step >> 1) | (int64_t)rings | ring) < 0) {
        rows_read_ahead(p.ahead);
        launch_wait(); /* in every block: else this kernel could end before the last one */
        return;
    }
    const int keys = rows_window_keys(position, p.window), first = rows_window_first(position, keys, ring);
    int column = head * DIM + lane % LANES * 8, group = warp * softmax::KEYS + lane / LANES;
    bf16 *base = (bf16 *)(rings + p.layer * ring_step) + column;
    float slope = exp2f(-8.0f * (float)(head + 1) / (float)p.heads) * ROWS_LOG2E, q[8], bias[READ];
    uint4 k[READ], v[READ];
    auto at = [&](int i) { return base + (int64_t)rows_window_row(first, i, ring) * 2 * p.d; };
    /* The keys begin + group, + GROUPS, ..: all but the last one, which this pass makes. */
    auto load = [&](int begin) {
#pragma unroll
        for (int u = 0; u < READ; u++) {
            int i = begin + u * GROUPS + group;
            bias[u] = i < keys ? -slope * (float)(keys - 1 - i) : -INFINITY;
            k[u] = v[u] = make_uint4(0, 0, 0, 0);
            if (i >= keys - 1) continue;
            const bf16 *from = at(i);
            k[u] = load_once(from), v[u] = load_once(from + p.d);
        }
    };
    load(0);
    rows_read_ahead(p.ahead);
    launch_wait();
    const float *own = p.q + row * 3 * p.d + column;
    rows_load_query(q, own, p.scale);
    softmax s;
    for (int begin = 0; begin < keys; begin += READ * GROUPS) {
        if (begin) load(begin);
#pragma unroll
        for (int u = 0; u < READ; u++) {
            if (begin + u * GROUPS + group != keys - 1) continue;
            k[u] = rows_narrow(own + p.d), v[u] = rows_narrow(own + 2 * p.d);
            bf16 *to = at(keys - 1);
            *(uint4 *)to = k[u], *(uint4 *)(to + p.d) = v[u];
        }
        __syncwarp();
        s.take(q, k, v, bias);
    }
    s.combine_groups();
    parts.put(warp, lane, s);
    __syncthreads();
    if (threadIdx.x >= DIM) return;
    float top = -INFINITY, sum = 0.0f, out = 0.0f;
#pragma unroll
    for (int w = 0; w < ROWS_WARPS; w++)
        top = fmaxf(top, parts.top[w]);
#pragma unroll
    for (int w = 0; w < ROWS_WARPS; w++) {
        float by = power2(parts.top[w] - top);
        sum = fmaf(by, parts.sum[w], sum), out = fmaf(by, parts.out[w][threadIdx.x], out);
    }
    p.o[row * p.d + head * DIM + threadIdx.x] = from_float<bf16>(out / sum);
}

template <int DIM>
static __global__ void __launch_bounds__(ROWS_THREADS, 3)
    decode_rows_attend_chunks(const __grid_constant__ rows_attention p) {
    using softmax = rows_softmax<DIM>;
    enum { LANES = softmax::LANES, READ = softmax::READ, KEYS = softmax::KEYS };
    __shared__ float parts[ROWS_WARPS][DIM];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = (int)blockIdx.x;
    int64_t row = blockIdx.y;
    launch_next();
    const struct decode_row &text = p.texts[row];
    const struct decode_row::decode_row_chunks &c = text.chunks[p.group];
    int column = head * DIM + lane % LANES * 8, count = text.position < 0 ? 0 : c.k, live = c.live_rows;
    float q[8], bias[READ], total[8] = {};
    uint4 k[READ], v[READ];
    int64_t base = 0; /* of the slot at work, in numbers */
    float weight = 0.0f;
    auto find = [&](int entry) {
        int32_t slot = c.slot[entry];
        weight = slot < 0 ? 0.0f : c.weight[entry];
        base = (int64_t)(slot < 0 ? 0 : slot) * c.slot_rows * c.stride + column;
    };
    auto load = [&](int begin) {
#pragma unroll
        for (int u = 0; u < READ; u++) {
            int i = begin + u * KEYS + lane / LANES;
            bool there = weight != 0.0f && i < live;
            bias[u] = there ? 0.0f : -INFINITY;
            k[u] = v[u] = make_uint4(0, 0, 0, 0);
            if (!there) continue;
            k[u] = load_once((const bf16 *)c.keys + base + i * c.stride);
            v[u] = load_once((const bf16 *)c.values + base + i * c.stride);
        }
    };
    if (warp < count) find(warp), load(0);
    rows_read_ahead(p.ahead);
    launch_wait();
    if (count > 0) rows_load_query(q, p.q + row * p.d + column, p.scale);
    for (int entry = warp; entry < count; entry += ROWS_WARPS) {
        if (entry != warp) find(entry), load(0);
        if (weight == 0.0f) continue;
        softmax s;
        for (int begin = 0; begin < live; begin += READ * KEYS) {
            if (begin) load(begin);
            s.take(q, k, v, bias);
        }
        s.combine_groups();
        float top = c.off_by_one ? fmaxf(s.top, 0.0f) : s.top, shrink = power2(s.top - top);
        float all = shrink * s.sum + (c.off_by_one ? power2(-top) : 0.0f), by = weight * shrink / all;
#pragma unroll
        for (int i = 0; i < 8; i++)
            total[i] = fmaf(by, s.out[i], total[i]);
    }
    if (lane < LANES)
#pragma unroll
        for (int i = 0; i < 8; i++)
            parts[warp][lane * 8 + i] = total[i];
    __syncthreads();
    if (threadIdx.x >= DIM || text.position < 0) return;
    float out = 0.0f;
#pragma unroll
    for (int w = 0; w < ROWS_WARPS; w++)
        out += parts[w][threadIdx.x];
    p.o[row * p.d + head * DIM + threadIdx.x] = from_float<bf16>(out);
}
