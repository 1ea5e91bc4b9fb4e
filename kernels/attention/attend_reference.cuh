/* attend_reference.cuh -- attention without tensor cores: any storage type, head size and length. The path of float32,
 * and the one that the others are tested against.
 *
 *   forward, dq   block (x, y) -> query row x of head y; warp w -> slots w, w + 8, ... or keys 32 w, 32 w + 256, ...
 *                 32 keys at a time: lane j -> the score of key j, then columns j, j + 32, ... of the sum over V
 *   dk, dv        block (x, y), warp w -> key row 8 x + w of head y; it loops over the query rows that read the key
 *
 * Warps are summed in a fixed order. Bound by the latency of dot products; no rate is claimed for it. */
#pragma once
#include "kernels/attention/attend_cuda.cuh"

enum { REFERENCE_THREADS = 256, REFERENCE_WARPS = REFERENCE_THREADS / 32, REFERENCE_DIM_MAX = 512 };

/* A run of keys: rows base + (first + j) % ring of a matrix. */
struct key_run {
    int64_t base, first, ring;
    __device__ int64_t row(int j) const {
        int64_t r = first + j;
        return base + (r >= ring ? r - ring : r);
    }
};
static __device__ __forceinline__ key_run slot_run(int64_t first_row) {
    return {0, first_row, INT64_MAX};
}

/* Scores are natural logarithms: a factor of log2(e) inside q would cost large scores their last bits. */
static __device__ __forceinline__ float natural_exp(float x) {
    return exp2f(x * ATTEND_LOG2E);
}

template <typename T> static __device__ float reference_dot(const float *shared, const T *row, int dim, bool vectors) {
    float sum = 0.0f;
    if (vectors) {
        for (int t = 0; t < dim; t += 8) {
            vec8 x = load8(row + t);
#pragma unroll
            for (int i = 0; i < 8; i++)
                sum += shared[t + i] * x.v[i];
        }
    } else {
        for (int t = 0; t < dim; t++)
            sum += shared[t] * to_float(row[t]);
    }
    return sum;
}

/* out[i] += sum_j p_j row_j[lane + 32 i]; lane j holds p_j. */
template <typename T, int ACC>
static __device__ void reference_columns(float (&out)[ACC], float p, rows<T> m, key_run run, int64_t column, int dim,
                                         int count) {
    int lane = threadIdx.x % 32;
#pragma unroll 8
    for (int j = 0; j < count; j++) {
        float factor = __shfl_sync(~0u, p, j);
        const T *row = m[run.row(j)] + column;
#pragma unroll
        for (int i = 0; i < ACC; i++)
            if (lane + 32 * i < dim) out[i] += factor * to_float(row[lane + 32 * i]);
    }
}

template <int ACC> struct reference_softmax {
    float top, sum, out[ACC];
    __device__ void begin(bool null_key) {
        top = null_key ? 0.0f : -INFINITY;
        sum = null_key ? 1.0f : 0.0f;
#pragma unroll
        for (int i = 0; i < ACC; i++)
            out[i] = 0.0f;
    }
    /* Adds up to 32 keys; at least one score is finite. */
    template <typename T>
    __device__ void keys(float score, rows<T> values, key_run run, int64_t column, int dim, int count) {
        float higher = fmaxf(top, warp_max(score)), shrink = natural_exp(top - higher), p = natural_exp(score - higher);
        sum = sum * shrink + warp_sum(p);
        top = higher;
#pragma unroll
        for (int i = 0; i < ACC; i++)
            out[i] *= shrink;
        reference_columns(out, p, values, run, column, dim, count);
    }
};

struct reference_window {
    key_run run; /* of the first key */
    int64_t count, distance;
};
static __device__ reference_window reference_window_of(const attend_task &t, int64_t row) {
    int64_t sequence = row / t.length, position = t.first + row % t.length;
    int64_t low = position > t.window ? position - t.window : 0;
    return {{sequence * t.ring, low % t.ring, t.ring}, position - low + 1, position - low};
}

template <typename T> static __device__ void reference_load(float *shared, const T *row, int dim, float factor) {
    for (int i = threadIdx.x; i < dim; i += REFERENCE_THREADS)
        shared[i] = to_float(row[i]) * factor;
}

/* Stores each warp's sums of columns into shared memory, [warp][dim]. */
template <int ACC> static __device__ void reference_gather(float *shared, const float (&share)[ACC], int dim) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < ACC; i++)
        if (lane + 32 * i < dim) shared[warp * dim + lane + 32 * i] = share[i];
    __syncthreads();
}

/* Merges the warps' softmaxes, tops[w] and sums[w] with the columns in `share`, and writes the row's `dim` results.
 * Returns top and sum of all keys. */
template <typename T>
static __device__ __forceinline__ float2 reference_merge(T *out, const float *share, const float *tops,
                                                         const float *sums, int dim) {
    float top = -INFINITY, sum = 0.0f;
    for (int w = 0; w < REFERENCE_WARPS; w++)
        top = fmaxf(top, tops[w]);
    for (int w = 0; w < REFERENCE_WARPS; w++)
        sum += natural_exp(tops[w] - top) * sums[w];
    for (int c = threadIdx.x; c < dim; c += REFERENCE_THREADS) {
        float x = 0.0f;
        for (int w = 0; w < REFERENCE_WARPS; w++)
            x += natural_exp(tops[w] - top) * share[w * dim + c];
        out[c] = from_float<T>(x / sum);
    }
    return {top, sum};
}

template <typename T> struct attend_views {
    rows<T> o, q, k, v;
    attend_lse lse;
    bool partial, vectors;
};

template <typename T, int ACC>
static __device__ void reference_chunks(const attend_task &t, const attend_views<T> &m, const float *query,
                                        float *share, int64_t row, int head) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t block = find_block(t, row), column = (int64_t)head * t.dim;
    float total[ACC] = {};
    for (int i = warp; i < t.k; i += REFERENCE_WARPS) {
        int32_t slot = block < 0 ? -1 : block_slot(t, block, i);
        float weight = slot < 0 ? 0.0f : m.partial ? 1.0f : block_weight(t, block, i);
        reference_softmax<ACC> a;
        a.begin(t.null_key);
        if (slot >= 0 && (weight != 0.0f || m.lse.data))
            for (int key = 0; key < t.live_rows; key += 32) {
                int count = min(32, t.live_rows - key);
                key_run run = slot_run((int64_t)slot * t.slot_rows + key);
                float score = lane < count
                                  ? t.scale * reference_dot(query, m.k[run.row(lane)] + column, t.dim, m.vectors)
                                  : -INFINITY;
                a.keys(score, m.v, run, column, t.dim, count);
            }
        float factor = weight == 0.0f ? 0.0f : weight / a.sum;
#pragma unroll
        for (int c = 0; c < ACC; c++) {
            if (m.partial && lane + 32 * c < t.dim)
                m.o[i * t.n + row][column + lane + 32 * c] = from_float<T>(factor * a.out[c]);
            total[c] += factor == 0.0f ? 0.0f : factor * a.out[c];
        }
        if (m.lse.data && lane == 0)
            *m.lse.at(i, row, head) = slot < 0 ? -INFINITY : a.top + logf(a.sum);
    }
    if (m.partial) return;
    reference_gather(share, total, t.dim);
    for (int c = threadIdx.x; c < t.dim; c += REFERENCE_THREADS) {
        float sum = 0.0f;
        for (int w = 0; w < REFERENCE_WARPS; w++)
            sum += share[w * t.dim + c];
        m.o[row][column + c] = from_float<T>(sum);
    }
}

template <typename T, int ACC>
static __device__ void reference_window_row(const attend_task &t, const attend_views<T> &m, const float *query,
                                            float *share, int64_t row, int head) {
    __shared__ float tops[REFERENCE_WARPS], sums[REFERENCE_WARPS];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t column = (int64_t)head * t.dim;
    reference_window w = reference_window_of(t, row);
    float slope = window_slope(t, head) * ATTEND_LN2;
    reference_softmax<ACC> a;
    a.begin(false);
    for (int64_t key = warp * 32; key < w.count; key += REFERENCE_THREADS) {
        int count = w.count - key < 32 ? (int)(w.count - key) : 32;
        key_run run = w.run;
        run.first += key;
        if (run.first >= run.ring) run.first -= run.ring;
        float score = -INFINITY;
        if (lane < count)
            score = t.scale * reference_dot(query, m.k[run.row(lane)] + column, t.dim, m.vectors) -
                    slope * (float)(w.distance - key - lane);
        a.keys(score, m.v, run, column, t.dim, count);
    }
    if (lane == 0) tops[warp] = a.top, sums[warp] = a.sum;
    reference_gather(share, a.out, t.dim);
    float2 all = reference_merge(m.o[row] + column, share, tops, sums, t.dim);
    if (m.lse.data && threadIdx.x == 0) *m.lse.at(0, row, head) = all.x + logf(all.y);
}

template <bool WINDOW, typename T, int ACC>
static __global__ void __launch_bounds__(REFERENCE_THREADS) attend_reference_forward(attend_task t, attend_views<T> m) {
    __shared__ float query[32 * ACC], share[REFERENCE_WARPS * 32 * ACC];
    int64_t row = blockIdx.x;
    int head = blockIdx.y;
    reference_load(query, m.q[row] + (int64_t)head * t.dim, t.dim, 1.0f);
    __syncthreads(); /* also: all of q's row is read before o, which may be q, is written */
    if (WINDOW)
        reference_window_row<T, ACC>(t, m, query, share, row, head);
    else
        reference_chunks<T, ACC>(t, m, query, share, row, head);
}

template <typename T> struct attend_backward_views {
    rows<T> dq, dout, o, q, k, v;
    attend_lse lse;
    float2 *stat;
    bool vectors;
};

/* A query row in shared memory: q, dO; its head's first column. */
struct reference_query {
    const float *query, *gradient;
    int64_t column;
};

/* A run of up to 32 keys against the row: lane j gets p_j and dp_j. */
template <typename T>
static __device__ void reference_scores(float &p, float &dp, const attend_task &t, const attend_backward_views<T> &m,
                                        const reference_query &q, key_run run, int count, float shift) {
    int lane = threadIdx.x % 32;
    p = dp = 0.0f;
    if (lane >= count) return;
    p = natural_exp(t.scale * reference_dot(q.query, m.k[run.row(lane)] + q.column, t.dim, m.vectors) - shift);
    dp = reference_dot(q.gradient, m.v[run.row(lane)] + q.column, t.dim, m.vectors);
}

template <typename T, int ACC>
static __device__ void reference_dq_chunks(float (&total)[ACC], const attend_task &t, const attend_backward_views<T> &m,
                                           const float *query, const float *gradient, int64_t row, int head) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t block = find_block(t, row), column = (int64_t)head * t.dim;
    for (int i = warp; i < t.k && block >= 0; i += REFERENCE_WARPS) {
        int32_t slot = block_slot(t, block, i);
        if (slot < 0) continue;
        float weight = block_weight(t, block, i), p, dp, delta = 0.0f;
        float lse = *m.lse.at(i, row, head);
        int64_t first = (int64_t)slot * t.slot_rows;
        for (int key = 0; key < t.live_rows; key += 32) {
            reference_scores(p, dp, t, m, {query, gradient, column}, slot_run(first + key), min(32, t.live_rows - key),
                             lse);
            delta += p * dp;
        }
        delta = warp_sum(delta);
        if (lane == 0) m.stat[stat_index(t, head, i, row)] = make_float2(lse, delta);
        for (int key = 0; key < t.live_rows; key += 32) {
            int count = min(32, t.live_rows - key);
            key_run run = slot_run(first + key);
            reference_scores(p, dp, t, m, {query, gradient, column}, run, count, lse);
            reference_columns(total, p * (dp - delta) * weight, m.k, run, column, t.dim, count);
        }
    }
}

template <typename T, int ACC>
static __device__ void reference_dq_window(float (&total)[ACC], const attend_task &t, const attend_backward_views<T> &m,
                                           const float *query, const float *gradient, int64_t row, int head) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t column = (int64_t)head * t.dim;
    reference_window w = reference_window_of(t, row);
    float slope = window_slope(t, head) * ATTEND_LN2, lse = *m.lse.at(0, row, head), delta = 0.0f;
    for (int c = lane; c < t.dim; c += 32)
        delta += gradient[c] * to_float(m.o[row][column + c]);
    delta = warp_sum(delta);
    if (threadIdx.x == 0) m.stat[stat_index(t, head, 0, row)] = make_float2(lse, delta);
    for (int64_t key = warp * 32; key < w.count; key += REFERENCE_THREADS) {
        int count = w.count - key < 32 ? (int)(w.count - key) : 32;
        key_run run = w.run;
        run.first += key;
        if (run.first >= run.ring) run.first -= run.ring;
        float p, dp, shift = lse + slope * (float)(w.distance - key - lane);
        reference_scores(p, dp, t, m, {query, gradient, column}, run, count, shift);
        reference_columns(total, p * (dp - delta), m.k, run, column, t.dim, count);
    }
}

template <bool WINDOW, typename T, int ACC>
static __global__ void __launch_bounds__(REFERENCE_THREADS)
    attend_reference_dq(attend_task t, attend_backward_views<T> m) {
    __shared__ float query[32 * ACC], gradient[32 * ACC], share[REFERENCE_WARPS * 32 * ACC];
    int64_t row = blockIdx.x;
    int head = blockIdx.y;
    int64_t column = (int64_t)head * t.dim;
    reference_load(query, m.q[row] + column, t.dim, 1.0f);
    reference_load(gradient, m.dout[row] + column, t.dim, 1.0f);
    __syncthreads();
    float total[ACC] = {};
    if (WINDOW)
        reference_dq_window<T, ACC>(total, t, m, query, gradient, row, head);
    else
        reference_dq_chunks<T, ACC>(total, t, m, query, gradient, row, head);
    reference_gather(share, total, t.dim);
    for (int c = threadIdx.x; c < t.dim; c += REFERENCE_THREADS) {
        float sum = 0.0f;
        for (int w = 0; w < REFERENCE_WARPS; w++)
            sum += share[w * t.dim + c];
        m.dq[row][column + c] = from_float<T>(sum * t.scale);
    }
}

/* A warp's key row, its value, and their gradients. */
template <int ACC> struct reference_key { float k[ACC], v[ACC], dk[ACC], dv[ACC]; };

/* Adds the contribution of one query row that read this key. */
template <typename T, int ACC>
static __device__ void reference_dkv_row(reference_key<ACC> &a, const attend_task &t, const attend_backward_views<T> &m,
                                         int64_t row, int64_t column, float2 stat, float bias, float weight) {
    int lane = threadIdx.x % 32;
    float x[ACC], g[ACC], s = 0.0f, dp = 0.0f;
#pragma unroll
    for (int i = 0; i < ACC; i++) {
        bool inside = lane + 32 * i < t.dim;
        x[i] = inside ? to_float(m.q[row][column + lane + 32 * i]) : 0.0f;
        g[i] = inside ? to_float(m.dout[row][column + lane + 32 * i]) : 0.0f;
        s += x[i] * a.k[i];
        dp += g[i] * a.v[i];
    }
    float p = natural_exp(warp_sum(s) * t.scale + bias - stat.x) * weight, ds = p * (warp_sum(dp) - stat.y);
#pragma unroll
    for (int i = 0; i < ACC; i++) {
        a.dv[i] += p * g[i];
        a.dk[i] += ds * x[i];
    }
}

template <bool WINDOW, typename T, typename G, int ACC>
static __global__ void __launch_bounds__(REFERENCE_THREADS)
    attend_reference_dkv(attend_task t, attend_backward_views<T> m, rows<G> dk, rows<G> dv, gca_inverse inverse,
                         bool accumulate, int64_t keys) {
    int lane = threadIdx.x % 32, head = blockIdx.y;
    int64_t key = (int64_t)blockIdx.x * REFERENCE_WARPS + threadIdx.x / 32, column = (int64_t)head * t.dim;
    if (key >= keys) return;
    int64_t slot = WINDOW ? 0 : key / t.live_rows, at = WINDOW ? key : slot * t.slot_rows + key % t.live_rows;
    reference_key<ACC> a = {};
#pragma unroll
    for (int i = 0; i < ACC; i++)
        if (lane + 32 * i < t.dim) {
            a.k[i] = to_float(m.k[at][column + lane + 32 * i]);
            a.v[i] = to_float(m.v[at][column + lane + 32 * i]);
        }
    if (WINDOW) {
        int64_t end = key / t.length * t.length + t.length; /* of its sequence */
        float slope = window_slope(t, head) * ATTEND_LN2;
        for (int64_t row = key; row < end && row <= key + t.window; row++)
            reference_dkv_row(a, t, m, row, column, m.stat[stat_index(t, head, 0, row)], -slope * (float)(row - key),
                              1.0f);
    } else {
        int first = inverse.begin ? inverse.begin[slot] : (int)slot;
        int last = inverse.begin ? inverse.begin[slot + 1] : (int)slot + 1;
        for (int j = first; j < last; j++) {
            int64_t entry = inverse.begin ? inverse.entry[j] : j, block = entry / t.k;
            int i = (int)(entry % t.k);
            for (int64_t row = block_begin(t, block); row < block_begin(t, block + 1); row++)
                reference_dkv_row(a, t, m, row, column, m.stat[stat_index(t, head, i, row)], 0.0f,
                                  block_weight(t, block, i));
        }
    }
#pragma unroll
    for (int i = 0; i < ACC; i++)
        if (lane + 32 * i < t.dim) {
            G *to_k = dk[at] + column + lane + 32 * i, *to_v = dv[at] + column + lane + 32 * i;
            *to_k = from_float<G>(a.dk[i] * t.scale + (accumulate ? to_float(*to_k) : 0.0f));
            *to_v = from_float<G>(a.dv[i] + (accumulate ? to_float(*to_v) : 0.0f));
        }
}
