/* token_memory_plain.cuh -- token memories by ordinary arithmetic: any type, width, slot size and ring; and the ops of
 * few rows. A warp computes one entry of a row (its lanes share the width). A block computes some entries of one row
 * or, for gradients of keys, some rows that read one key. Every sum has a fixed order.
 *
 * Bound by the L2 cache: each row reads a key again (2 d bytes of bf16 for 2 d operations). One row, as in decoding,
 * reads each key once, which is the minimum. */
#pragma once
#include "kernels/memory/token_memory_cuda.cuh"

enum { PLAIN_WARPS = 8, PLAIN_THREADS = 32 * PLAIN_WARPS };

/* s.k by a warp. */
template <typename T>
static __device__ __forceinline__ float plain_dot(const float *s, const T *k, int d, bool vectors) {
    int lane = threadIdx.x % 32;
    float sum = 0.0f;
    if (vectors) {
        for (int i = lane * 8; i < d; i += 256) {
            vec8 x = load8(k + i);
#pragma unroll
            for (int j = 0; j < 8; j++)
                sum += s[i + j] * x.v[j];
        }
    } else {
        for (int i = lane; i < d; i += 32)
            sum += s[i] * to_float(k[i]);
    }
    return warp_sum(sum);
}

template <typename T>
static __global__ void __launch_bounds__(PLAIN_THREADS)
    plain_squares(float *square, rows<const T> keys, int64_t n, int d) {
    int64_t row = (int64_t)blockIdx.x * PLAIN_WARPS + threadIdx.x / 32;
    if (row >= n) return;
    float sum = 0.0f;
    for (int i = threadIdx.x % 32; i < d; i += 32) {
        float x = to_float(keys[row][i]);
        sum += x * x;
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) square[row] = sum;
}

/* A row of numbers as floats in shared memory. */
template <typename T> static __device__ __forceinline__ void plain_stage(float *to, const T *from, int d) {
    for (int i = threadIdx.x; i < d; i += PLAIN_THREADS)
        to[i] = to_float(from[i]);
    __syncthreads();
}

/* grid: part, row. A warp's entries are every PLAIN_WARPS-th of the part. */
template <typename T>
static __global__ void __launch_bounds__(PLAIN_THREADS)
    plain_parts(memory_part *parts, memory_view v, memory_sources<T> in, int64_t part_columns) {
    extern __shared__ float own[];
    __shared__ memory_part found[PLAIN_WARPS];
    int64_t row = blockIdx.x, end = (blockIdx.y + 1) * part_columns, columns = memory_columns(v);
    int warp = threadIdx.x / 32, block = memory_block_of(v, row);
    plain_stage(own, in.states[row], v.d);
    float to_log2 = MEMORY_LOG2E / *v.tau;
    memory_part p = memory_part_none();
    for (int64_t i = blockIdx.y * part_columns + warp; i < end && i < columns; i += PLAIN_WARPS) {
        memory_entry e = memory_entry_at(v, row, block, i);
        if (e.key < 0) continue;
        float dot = plain_dot(own, in.key(e), v.d, in.vectors);
        memory_absorb(p, memory_distance(v.state_square[row], memory_square(v, e), dot), e.value == v.target[row],
                      to_log2);
    }
    if (threadIdx.x % 32 == 0) found[warp] = p;
    __syncthreads();
    if (threadIdx.x) return;
    for (int w = 1; w < PLAIN_WARPS; w++)
        p = memory_join(p, found[w], to_log2);
    parts[row * gridDim.y + blockIdx.y] = p;
}

/* One thread for each row: joins its parts in order into the results of the header. */
static __global__ void __launch_bounds__(PLAIN_THREADS)
    plain_join(token_memory_stats out, const memory_part *parts, int count, memory_view v) {
    int64_t row = (int64_t)blockIdx.x * PLAIN_THREADS + threadIdx.x;
    if (row >= v.n) return;
    float tau = *v.tau;
    memory_part p = memory_part_none();
    for (int i = 0; i < count; i++)
        p = memory_join(p, parts[row * count + i], MEMORY_LOG2E / tau);
    bool empty = p.near == INFINITY && p.sum == 0.0f, lost = isnan(p.sum);
    float log_sum = logf(p.sum), log_p = (p.near - p.target_near) / tau + (logf(p.target_sum) - log_sum);
    out.log_p[row] = lost ? NAN : p.target_near == INFINITY ? -INFINITY : fminf(log_p, 0.0f);
    out.lse[row] = empty ? -INFINITY : log_sum - p.near / tau;
    out.nearest[row] = lost ? NAN : p.near;
    out.squares[row] = empty ? 0.0f : p.squares / (p.sum * p.sum);
    out.largest[row] = empty ? 0.0f : 1.0f / p.sum;
}

/* ---- gradients: sums of u * partner over the partners of one owner ---- */

struct plain_task {
    token_memory_stats stats;
    const float *dlog_p, *dlse;
    float *moment;              /* [n]: sum of u * distance */
    const int32_t *begin, *reader; /* gca_inverse */
};

/* The owner's sums in shared memory: [d] its numbers, [d] sums. */
template <typename T> struct plain_gather {
    float *own, *sum, (&u)[PLAIN_THREADS];
    const T *(&partner)[PLAIN_THREADS];
    float all; /* of u, on all threads */

    __device__ __forceinline__ void begin(const T *from, int d) {
        for (int i = threadIdx.x; i < d; i += PLAIN_THREADS)
            own[i] = to_float(from[i]), sum[i] = 0.0f;
        all = 0.0f;
        __syncthreads();
    }
    /* u and partner hold `count`. */
    __device__ __forceinline__ void add(int count, int d) {
        __syncthreads();
        for (int i = 0; i < count; i++)
            all += u[i];
        for (int c = threadIdx.x; c < d; c += PLAIN_THREADS)
            for (int i = 0; i < count; i++)
                if (u[i] != 0.0f) sum[c] += u[i] * to_float(partner[i][c]);
        __syncthreads();
    }
    /* to += factor * (sum of u * (partner - own)). */
    __device__ __forceinline__ void finish(float *to, int d, float factor) {
        for (int c = threadIdx.x; c < d; c += PLAIN_THREADS)
            to[c] += factor * (sum[c] - own[c] * all);
    }
};
#define PLAIN_GATHER(T, g, d)                                                                                          \
    extern __shared__ float plain_numbers[];                                                                           \
    __shared__ float plain_u[PLAIN_THREADS];                                                                           \
    __shared__ const T *plain_partner[PLAIN_THREADS];                                                                  \
    plain_gather<T> g = {plain_numbers, plain_numbers + (d), plain_u, plain_partner, 0.0f}

/* One block for each row: dstates, and the row's share of dtau. */
template <typename T>
static __global__ void __launch_bounds__(PLAIN_THREADS)
    plain_states(rows<float> dstates, memory_view v, memory_sources<T> in, plain_task t) {
    PLAIN_GATHER(T, g, v.d);
    __shared__ float distances[PLAIN_THREADS];
    int64_t row = blockIdx.x, columns = memory_columns(v);
    int block = memory_block_of(v, row);
    memory_row r = memory_row_of(v, t.stats, t.dlog_p, t.dlse, row);
    float moment = 0.0f;
    g.begin(in.states[row], v.d);
    for (int64_t first = 0; first < columns; first += PLAIN_THREADS) {
        for (int i = threadIdx.x / 32; i < PLAIN_THREADS; i += PLAIN_WARPS) {
            float u = 0.0f, distance = 0.0f;
            const T *key = nullptr;
            memory_entry e = {-1, -1, false};
            if (first + i < columns) e = memory_entry_at(v, row, block, first + i);
            if (e.key >= 0) {
                key = in.key(e);
                distance =
                    memory_distance(v.state_square[row], memory_square(v, e), plain_dot(g.own, key, v.d, in.vectors));
                u = memory_gradient_of(r, distance, e.value);
            }
            if (threadIdx.x % 32 == 0) g.u[i] = u, g.partner[i] = key, distances[i] = u == 0.0f ? 0.0f : u * distance;
        }
        g.add(PLAIN_THREADS, v.d);
        for (int i = 0; i < PLAIN_THREADS; i++)
            moment += distances[i];
        __syncthreads();
    }
    if (dstates.data) g.finish(dstates[row], v.d, 2.0f / *v.tau);
    if (threadIdx.x == 0) t.moment[row] = moment;
}

/* Rows row .. row+count-1 that read a key. */
template <typename T>
static __device__ __forceinline__ void plain_readers(plain_gather<T> &g, const memory_view &v,
                                                     const memory_sources<T> &in, const plain_task &t,
                                                     const memory_entry &e, int64_t row, int64_t count) {
    float square = memory_square(v, e);
    for (int64_t first = 0; first < count; first += PLAIN_THREADS) {
        int now = count - first < PLAIN_THREADS ? (int)(count - first) : PLAIN_THREADS;
        for (int i = threadIdx.x / 32; i < now; i += PLAIN_WARPS) {
            int64_t reader = row + first + i;
            float dot = plain_dot(g.own, in.states[reader], v.d, in.vectors);
            float distance = memory_distance(v.state_square[reader], square, dot);
            memory_row r = memory_row_of(v, t.stats, t.dlog_p, t.dlse, reader);
            if (threadIdx.x % 32 == 0)
                g.u[i] = memory_gradient_of(r, distance, e.value), g.partner[i] = in.states[reader];
        }
        g.add(now, v.d);
    }
}

/* One block for each entry of the slots. */
template <typename T>
static __global__ void __launch_bounds__(PLAIN_THREADS)
    plain_slot_keys(rows<float> dkeys, memory_view v, memory_sources<T> in, plain_task t) {
    PLAIN_GATHER(T, g, v.d);
    memory_entry e = {(int64_t)blockIdx.x, v.slot_value[blockIdx.x], false};
    int64_t slot = e.key / v.slot_rows;
    if (e.value < 0 || t.begin[slot] == t.begin[slot + 1]) return;
    g.begin(in.key(e), v.d);
    for (int32_t at = t.begin[slot]; at < t.begin[slot + 1]; at++) {
        int block = t.reader[at] / v.k;
        plain_readers(g, v, in, t, e, v.row_begin[block], v.row_begin[block + 1] - v.row_begin[block]);
    }
    g.finish(dkeys[e.key], v.d, 2.0f / *v.tau);
}
/* One block for each position of a sequence, from `low` on. */
template <typename T>
static __global__ void __launch_bounds__(PLAIN_THREADS)
    plain_past_keys(rows<float> dpast, memory_view v, memory_sources<T> in, plain_task t, int64_t low) {
    PLAIN_GATHER(T, g, v.d);
    int64_t each = v.first + v.length - low, sequence = blockIdx.x / each, p = low + blockIdx.x % each;
    memory_entry e = {sequence * v.ring + p % v.ring, 0, true};
    e.value = v.past_value[e.key];
    int64_t q = p + 1 > v.first ? p + 1 : v.first, last = p + v.limit + 1;
    last = last < v.first + v.length ? last : v.first + v.length;
    if (e.value < 0 || q >= last) return;
    g.begin(in.key(e), v.d);
    plain_readers(g, v, in, t, e, sequence * v.length + q - v.first, last - q);
    g.finish(dpast[e.key], v.d, 2.0f / *v.tau);
}

/* dtau += sum of moments / tau^2, by one block, in one order. */
static __global__ void __launch_bounds__(1024)
    plain_tau(float *dtau, const float *moment, int64_t n, const float *tau) {
    __shared__ float shared[32];
    float sum = 0.0f;
    for (int64_t i = threadIdx.x; i < n; i += 1024)
        sum += moment[i];
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0) *dtau += sum / (*tau * *tau);
}

/* ---- few rows ---- */

/* grid: row, tile of columns. Distances; +infinity where there is no entry. */
template <typename T>
static __global__ void __launch_bounds__(PLAIN_THREADS)
    plain_distances(rows<float> w, memory_view v, memory_sources<T> in, int64_t part_columns) {
    extern __shared__ float own[];
    int64_t row = blockIdx.x, end = (blockIdx.y + 1) * part_columns, columns = memory_columns(v);
    int block = memory_block_of(v, row);
    plain_stage(own, in.states[row], v.d);
    for (int64_t i = blockIdx.y * part_columns + threadIdx.x / 32; i < end && i < columns; i += PLAIN_WARPS) {
        memory_entry e = memory_entry_at(v, row, block, i);
        float distance = INFINITY;
        if (e.key >= 0)
            distance =
                memory_distance(v.state_square[row], memory_square(v, e), plain_dot(own, in.key(e), v.d, in.vectors));
        if (threadIdx.x % 32 == 0) w[row][i] = distance;
    }
}
static __global__ void __launch_bounds__(1024) plain_softmax(rows<float> w, int64_t columns, const float *tau) {
    __shared__ float shared[32];
    float *own = w[blockIdx.x], near = INFINITY, sum = 0.0f, to_log2 = MEMORY_LOG2E / *tau;
    for (int64_t i = threadIdx.x; i < columns; i += 1024)
        near = fminf(near, own[i]);
    near = -block_max(-near, shared);
    for (int64_t i = threadIdx.x; i < columns; i += 1024) {
        own[i] = own[i] == INFINITY ? 0.0f : power2((near - own[i]) * to_log2);
        sum += own[i];
    }
    sum = block_sum(sum, shared);
    for (int64_t i = threadIdx.x; sum != 0.0f && i < columns; i += 1024)
        own[i] /= sum;
}

/* Sums of weights in units of 2^-62: integers, whose sum does not depend on the order. A weight has 24 bits, so that a
 * weight above 2^-39 is exact; the sum of all is 1 up to rounding, less than 2. */
static __global__ void __launch_bounds__(PLAIN_THREADS)
    plain_scatter(unsigned long long *sum, int64_t words, rows<const float> w, int64_t first_row, memory_view v) {
    int64_t i = (int64_t)blockIdx.y * PLAIN_THREADS + threadIdx.x, row = first_row + blockIdx.x;
    if (i >= memory_columns(v)) return;
    float weight = w[row][i];
    if (!(weight > 0.0f)) return;
    memory_entry e = memory_entry_at(v, row, memory_block_of(v, row), i);
    if (e.key >= 0 && e.value < words) atomicAdd(sum + blockIdx.x * words + e.value, __float2ull_rn(weight * 0x1p62f));
}
static __global__ void __launch_bounds__(PLAIN_THREADS)
    plain_words(rows<float> p, const unsigned long long *sum, int64_t words, rows<const float> w, int64_t first_row,
                int64_t columns) {
    int64_t i = (int64_t)blockIdx.y * PLAIN_THREADS + threadIdx.x, row = first_row + blockIdx.x;
    if (i < words)
        p[row][i] = columns > 0 && isnan(w[row][0]) ? NAN : (float)((double)sum[blockIdx.x * words + i] * 0x1p-62);
}

/* One block for each row: k times the best of those after the last one found. */
static __global__ void __launch_bounds__(PLAIN_THREADS)
    plain_contributors(int32_t *column, float *weight, rows<const float> w, memory_view v, const int32_t *token, int k,
                       float threshold) {
    __shared__ float best_weight[PLAIN_THREADS];
    __shared__ int32_t best_column[PLAIN_THREADS];
    int64_t row = blockIdx.x, columns = memory_columns(v);
    int block = memory_block_of(v, row), me = threadIdx.x;
    float last = INFINITY;
    int32_t last_column = -1;
    for (int found = 0; found < k; found++) {
        float best = 0.0f;
        int32_t at = -1;
        for (int64_t i = me; i < columns && last_column != INT32_MAX; i += PLAIN_THREADS) {
            float x = w[row][i];
            if (!(x > best && x >= threshold) || x > last || (x == last && i <= last_column)) continue;
            if (memory_entry_at(v, row, block, i).value == token[row]) best = x, at = (int32_t)i;
        }
        best_weight[me] = best, best_column[me] = at;
        __syncthreads();
        for (int half = PLAIN_THREADS / 2; half; half /= 2) {
            float other = me < half ? best_weight[me + half] : 0.0f;
            int32_t other_column = me < half ? best_column[me + half] : -1;
            if (other_column >= 0 &&
                (other > best_weight[me] || (other == best_weight[me] && other_column < best_column[me])))
                best_weight[me] = other, best_column[me] = other_column;
            __syncthreads();
        }
        last = best_weight[0], last_column = best_column[0];
        if (me == 0) column[row * k + found] = last_column, weight[row * k + found] = last;
        if (last_column < 0) last_column = INT32_MAX; /* no more */
        __syncthreads();
    }
}

static __device__ __forceinline__ float plain_softplus(float x) {
    return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
}
static __global__ void __launch_bounds__(PLAIN_THREADS)
    plain_mix(token_memory_mix out, const float *log_lm, const float *log_p, const float *gate, const int32_t *target,
              int64_t n, float scale) {
    int64_t r = (int64_t)blockIdx.x * PLAIN_THREADS + threadIdx.x;
    if (r >= n) return;
    float lm = log_lm[r] - plain_softplus(gate[r]), memory = log_p[r] - plain_softplus(-gate[r]), nll = 0.0f;
    float dgate = 0.0f, dlog_lm = 0.0f, dlog_p = 0.0f;
    if (target[r] >= 0 && lm == -INFINITY && memory == -INFINITY) nll = INFINITY;
    else if (target[r] >= 0) {
        float share = 1.0f / (1.0f + expf(lm - memory)); /* of the memory in p(target) */
        nll = -((lm > memory ? lm : memory) + log1pf(expf(-fabsf(lm - memory))));
        dgate = scale * (1.0f / (1.0f + expf(-gate[r])) - share);
        dlog_lm = scale * (share - 1.0f), dlog_p = -scale * share;
    }
    out.nll[r] = nll, out.dgate[r] = dgate, out.dlog_lm[r] = dlog_lm, out.dlog_p[r] = dlog_p;
}
