/* landmark_attention_cuda.cu -- Landmark Attention on a GPU, without tensor cores: any type, head size and length.
 *
 *   scores         warp -> far(c) of one row, head and block; only where a row has more earlier blocks than it reads
 *   forward, dq    block (x, y) -> query row x of head y; warp w -> groups w, w + 8, ...: group 0 is the own block, the
 *                  others are the earlier blocks that the row reads
 *   dk, dv         block (x, y), warp w -> key row 8 x + w of head y; it loops over the query rows that read the key
 *
 * dq writes a landmark_stat for each row and earlier block, which dk and dv read. Warps are summed in a fixed order.
 * Bound by the latency of dot products; no rate is claimed. */
#include "kernels/attention/attend_reference.cuh"

struct landmark_task {
    int64_t n, first, length; /* row r: position first + r % length of sequence r / length */
    int heads, dim, block, window, topk;
    float scale;
    const float *scores; /* [n, heads, blocks]: far(c); NULL: no row has more earlier blocks than it reads */
    int64_t blocks;
};

/* The position of a row. begin: first position of its own block; key: first key row of its sequence. */
struct landmark_row {
    int64_t position, block, begin, key;
};
static __device__ __forceinline__ landmark_row landmark_row_of(const landmark_task &t, int64_t row) {
    int64_t position = t.first + row % t.length, block = position / (t.block + 1);
    return {position, block, block * (t.block + 1), row / t.length * t.length};
}
static __device__ __forceinline__ float landmark_slope(const landmark_task &t, int head) {
    return exp2f(-8.0f * (float)(head + 1) / (float)t.heads);
}

/* Dot product of a warp: a in shared memory, b a row of the matrix. Every lane gets the result. */
template <typename T> static __device__ __forceinline__ float landmark_dot(const float *a, const T *b, int dim) {
    float sum = 0.0f;
    for (int i = threadIdx.x % 32; i < dim; i += 32)
        sum += a[i] * to_float(b[i]);
    return warp_sum(sum);
}

template <typename T>
static __device__ __forceinline__ float landmark_far(const landmark_task &t, const float *query, rows<T> k,
                                                     const landmark_row &r, int64_t block, int head) {
    int64_t landmark = block * (t.block + 1) + t.block, distance = r.position - landmark;
    if (distance > t.window) distance = t.window;
    return t.scale * landmark_dot(query, k[r.key + landmark] + (int64_t)head * t.dim, t.dim) -
           landmark_slope(t, head) * (float)distance;
}

template <typename T> struct landmark_views {
    rows<T> o, q, k, v;
    float *lse; /* NULL: not written */
    int64_t lse_stride;
    bool vectors;
};

/* Block (x, y, z) -> blocks 8 x .. 8 x + 7 of head y and row z. */
template <typename T, int ACC>
static __global__ void __launch_bounds__(REFERENCE_THREADS)
    landmark_scores(landmark_task t, landmark_views<T> m, float *scores) {
    __shared__ float query[32 * ACC];
    int64_t row = blockIdx.z, c = (int64_t)blockIdx.x * REFERENCE_WARPS + threadIdx.x / 32;
    int head = blockIdx.y;
    reference_load(query, m.q[row] + (int64_t)head * t.dim, t.dim, 1.0f);
    __syncthreads();
    landmark_row r = landmark_row_of(t, row);
    if (c >= r.block) return;
    float score = landmark_far(t, query, m.k, r, c, head);
    if (threadIdx.x % 32 == 0) scores[(row * t.heads + head) * t.blocks + c] = score;
}

/* A block and its score; higher scores come first, of equal ones the earlier block. */
struct landmark_best {
    float score;
    int block;
    __device__ bool before(const landmark_best &b) const {
        return score > b.score || (score == b.score && block < b.block);
    }
};

/* The topk best of a row's `count` blocks into `chosen`, by the whole thread block. */
static __device__ void landmark_select(int *chosen, const landmark_task &t, const float *scores, int64_t count) {
    __shared__ landmark_best bests[REFERENCE_WARPS], last;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const landmark_best none = {-INFINITY, INT32_MAX};
    if (threadIdx.x == 0) last = {INFINITY, -1};
    __syncthreads();
    for (int i = 0; i < t.topk; i++) {
        landmark_best best = none, previous = last;
        for (int64_t c = threadIdx.x; c < count; c += REFERENCE_THREADS) {
            landmark_best mine = {scores[c], (int)c};
            if (previous.before(mine) && mine.before(best)) best = mine;
        }
#pragma unroll
        for (int offset = 16; offset; offset /= 2) {
            landmark_best other = {__shfl_xor_sync(~0u, best.score, offset), __shfl_xor_sync(~0u, best.block, offset)};
            if (other.before(best)) best = other;
        }
        if (lane == 0) bests[warp] = best;
        __syncthreads(); /* also: `last` has been read */
        if (threadIdx.x == 0) {
            for (int w = 1; w < REFERENCE_WARPS; w++)
                if (bests[w].before(best)) best = bests[w];
            last = best;
            chosen[i] = best.block == INT32_MAX ? 0 : best.block; /* scores that are NaN: the result is NaN */
        }
        __syncthreads();
    }
}

/* One group's keys: first key row, number, and the distance of the first. */
struct landmark_group {
    int64_t first;
    int count, distance;
};
static __device__ __forceinline__ landmark_group landmark_group_of(const landmark_task &t, const landmark_row &r,
                                                                   int64_t block) {
    if (block < r.block) return {r.key + block * (t.block + 1), t.block, t.block};
    int64_t seen = r.position - r.begin + 1; /* no row reads the landmark of its own block */
    return {r.key + r.begin, seen < t.block ? (int)seen : t.block, (int)(r.position - r.begin)};
}

template <typename T, int ACC>
static __global__ void __launch_bounds__(REFERENCE_THREADS) landmark_forward(landmark_task t, landmark_views<T> m) {
    __shared__ float query[32 * ACC], share[REFERENCE_WARPS * 32 * ACC], tops[REFERENCE_WARPS], sums[REFERENCE_WARPS];
    __shared__ int chosen[LANDMARK_TOPK_MAX];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = blockIdx.y;
    int64_t row = blockIdx.x, column = (int64_t)head * t.dim;
    reference_load(query, m.q[row] + column, t.dim, 1.0f);
    __syncthreads(); /* also: all of q's row is read before o, which may be q, is written */
    landmark_row r = landmark_row_of(t, row);
    bool select = t.topk > 0 && r.block > t.topk;
    if (select) landmark_select(chosen, t, t.scores + (row * t.heads + head) * t.blocks, r.block);
    int64_t groups = 1 + (select ? (int64_t)t.topk : r.block);
    float slope = landmark_slope(t, head), top = -INFINITY, sum = 0.0f, out[ACC] = {};
    for (int64_t g = warp; g < groups; g += REFERENCE_WARPS) {
        int64_t block = g == 0 ? r.block : select ? (int64_t)chosen[g - 1] : g - 1;
        landmark_group keys = landmark_group_of(t, r, block);
        reference_softmax<ACC> a;
        a.begin(false);
        for (int key = 0; key < keys.count; key += 32) {
            int count = min(32, keys.count - key);
            key_run run = slot_run(keys.first + key);
            float score = lane < count ? t.scale * reference_dot(query, m.k[run.row(lane)] + column, t.dim, m.vectors) -
                                             slope * (float)(keys.distance - key - lane)
                                       : -INFINITY;
            a.keys(score, m.v, run, column, t.dim, count);
        }
        float score = g == 0 ? a.top + logf(a.sum) : landmark_far(t, query, m.k, r, block, head);
        float higher = fmaxf(top, score), keep = natural_exp(top - higher), add = natural_exp(score - higher);
        sum = sum * keep + add;
        top = higher;
#pragma unroll
        for (int i = 0; i < ACC; i++)
            out[i] = out[i] * keep + a.out[i] * (add / a.sum);
    }
    if (lane == 0) tops[warp] = top, sums[warp] = sum;
    reference_gather(share, out, t.dim);
    float2 all = reference_merge(m.o[row] + column, share, tops, sums, t.dim);
    if (m.lse && threadIdx.x == 0) m.lse[row * m.lse_stride + head] = all.x + logf(all.y);
}

/* Of a row and an earlier block: log sum exp inside the block; W = exp(far - lse); e = sum of softmax times dout.v;
 * the gradient of far. */
struct __align__(16) landmark_stat {
    float inside, weight, mean, dfar;
};

template <typename T> struct landmark_backward_views {
    rows<T> dq, dk, dv, dout, o, q, k, v;
    const float *lse;
    int64_t lse_stride;
    landmark_stat *stat; /* [n, heads, blocks] */
    float2 *own;         /* [n, heads]: lse, delta */
    bool vectors;
};

/* Common to a row's passes over a block: each lane has keys `lane` and 32 + lane of it. */
template <typename T> struct landmark_pair {
    float score[2], dp[2];
    key_run run[2];
    int count[2];
    __device__ __forceinline__ void load(const landmark_task &t, const landmark_backward_views<T> &m,
                                         const reference_query &q, landmark_group keys, float slope) {
        int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            count[i] = max(0, min(32, keys.count - 32 * i));
            run[i] = slot_run(keys.first + 32 * i);
            score[i] = -INFINITY, dp[i] = 0.0f;
            if (lane >= count[i]) continue;
            score[i] = t.scale * reference_dot(q.query, m.k[run[i].row(lane)] + q.column, t.dim, m.vectors) -
                       slope * (float)(keys.distance - 32 * i - lane);
            dp[i] = reference_dot(q.gradient, m.v[run[i].row(lane)] + q.column, t.dim, m.vectors);
        }
    }
    template <int ACC>
    __device__ __forceinline__ void add(float (&total)[ACC], const landmark_task &t, rows<T> k, int64_t column,
                                        const float (&ds)[2]) const {
        for (int i = 0; i < 2; i++)
            reference_columns(total, ds[i], k, run[i], column, t.dim, count[i]);
    }
};

template <typename T, int ACC>
static __device__ void landmark_dq_far(float (&total)[ACC], const landmark_task &t,
                                       const landmark_backward_views<T> &m, const reference_query &q, int64_t row,
                                       int64_t block, float2 own) {
    int lane = threadIdx.x % 32, head = blockIdx.y;
    landmark_row r = landmark_row_of(t, row);
    landmark_pair<T> a;
    a.load(t, m, q, landmark_group_of(t, r, block), landmark_slope(t, head));
    float top = warp_max(fmaxf(a.score[0], a.score[1])), p[2], ds[2];
    for (int i = 0; i < 2; i++)
        p[i] = natural_exp(a.score[i] - top);
    float sum = warp_sum(p[0] + p[1]), mean = warp_sum(p[0] * a.dp[0] + p[1] * a.dp[1]) / sum;
    float weight = natural_exp(landmark_far(t, q.query, m.k, r, block, head) - own.x), dfar = weight * (mean - own.y);
    for (int i = 0; i < 2; i++)
        ds[i] = weight * p[i] / sum * (a.dp[i] - mean);
    a.add(total, t, m.k, q.column, ds);
    const T *landmark = m.k[r.key + block * (t.block + 1) + t.block] + q.column;
#pragma unroll
    for (int i = 0; i < ACC; i++)
        if (lane + 32 * i < t.dim) total[i] += dfar * to_float(landmark[lane + 32 * i]);
    if (lane == 0) m.stat[(row * t.heads + head) * t.blocks + block] = {top + logf(sum), weight, mean, dfar};
}

template <typename T, int ACC>
static __global__ void __launch_bounds__(REFERENCE_THREADS) landmark_dq(landmark_task t, landmark_backward_views<T> m) {
    __shared__ float query[32 * ACC], gradient[32 * ACC], share[REFERENCE_WARPS * 32 * ACC];
    int warp = threadIdx.x / 32, head = blockIdx.y;
    int64_t row = blockIdx.x, column = (int64_t)head * t.dim;
    reference_load(query, m.q[row] + column, t.dim, 1.0f);
    reference_load(gradient, m.dout[row] + column, t.dim, 1.0f);
    __syncthreads();
    landmark_row r = landmark_row_of(t, row);
    reference_query q = {query, gradient, column};
    float2 own = make_float2(m.lse[row * m.lse_stride + head], landmark_dot(gradient, m.o[row] + column, t.dim));
    if (threadIdx.x == 0) m.own[row * t.heads + head] = own;
    float total[ACC] = {};
    if (warp == 0) {
        landmark_pair<T> a;
        float ds[2];
        a.load(t, m, q, landmark_group_of(t, r, r.block), landmark_slope(t, head));
        for (int i = 0; i < 2; i++)
            ds[i] = natural_exp(a.score[i] - own.x) * (a.dp[i] - own.y);
        a.add(total, t, m.k, column, ds);
    }
    for (int64_t g = warp ? warp : REFERENCE_WARPS; g <= r.block; g += REFERENCE_WARPS)
        landmark_dq_far(total, t, m, q, row, g - 1, own);
    reference_gather(share, total, t.dim);
    for (int c = threadIdx.x; c < t.dim; c += REFERENCE_THREADS) {
        float sum = 0.0f;
        for (int w = 0; w < REFERENCE_WARPS; w++)
            sum += share[w * t.dim + c];
        m.dq[row][column + c] = from_float<T>(sum * t.scale);
    }
}

/* A warp's key row, and the current query row: lane -> columns lane, lane + 32, ... */
template <typename T, int ACC> struct landmark_key {
    float k[ACC], v[ACC], dk[ACC], dv[ACC], x[ACC], g[ACC];

    __device__ __forceinline__ void read(float (&to)[ACC], const T *from, int dim) const {
#pragma unroll
        for (int i = 0; i < ACC; i++)
            to[i] = (int)(threadIdx.x % 32) + 32 * i < dim ? to_float(from[threadIdx.x % 32 + 32 * i]) : 0.0f;
    }
    __device__ __forceinline__ float dot(const float (&a)[ACC], const float (&b)[ACC]) const {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < ACC; i++)
            sum += a[i] * b[i];
        return warp_sum(sum);
    }
    /* The row's score of this key gets the weight exp(score - shift) * factor, and dout.v the mean `mean`. */
    __device__ __forceinline__ void row(float score, float shift, float factor, float mean) {
        float p = natural_exp(score - shift) * factor, ds = p * (dot(g, v) - mean);
#pragma unroll
        for (int i = 0; i < ACC; i++) {
            dv[i] += p * g[i];
            dk[i] += ds * x[i];
        }
    }
};

template <typename T, int ACC>
static __global__ void __launch_bounds__(REFERENCE_THREADS)
    landmark_dkv(landmark_task t, landmark_backward_views<T> m) {
    int lane = threadIdx.x % 32, head = blockIdx.y;
    int64_t key = (int64_t)blockIdx.x * REFERENCE_WARPS + threadIdx.x / 32, column = (int64_t)head * t.dim;
    if (key >= t.n) return;
    landmark_row r = landmark_row_of(t, key);
    int64_t next = r.key + r.begin + t.block + 1, end = r.key + t.length; /* the next block, the sequence's end */
    int back = (int)(r.begin + t.block - r.position); /* before the landmark; 0: it is the landmark */
    float slope = landmark_slope(t, head);
    landmark_key<T, ACC> a = {};
    a.read(a.k, m.k[key] + column, t.dim);
    a.read(a.v, m.v[key] + column, t.dim);
    for (int64_t row = key; row < next && back > 0; row++) {
        a.read(a.x, m.q[row] + column, t.dim);
        a.read(a.g, m.dout[row] + column, t.dim);
        float2 own = m.own[row * t.heads + head];
        a.row(a.dot(a.x, a.k) * t.scale - slope * (float)(row - key), own.x, 1.0f, own.y);
    }
    for (int64_t row = next; row < end; row++) {
        landmark_stat s = m.stat[(row * t.heads + head) * t.blocks + r.block];
        a.read(a.x, m.q[row] + column, t.dim);
        if (back == 0) {
#pragma unroll
            for (int i = 0; i < ACC; i++)
                a.dk[i] += s.dfar * a.x[i];
            continue;
        }
        a.read(a.g, m.dout[row] + column, t.dim);
        a.row(a.dot(a.x, a.k) * t.scale - slope * (float)back, s.inside, s.weight, s.mean);
    }
#pragma unroll
    for (int i = 0; i < ACC; i++)
        if (lane + 32 * i < t.dim) {
            m.dk[key][column + lane + 32 * i] = from_float<T>(a.dk[i] * t.scale);
            m.dv[key][column + lane + 32 * i] = from_float<T>(a.dv[i]);
        }
}

static landmark_task landmark_task_of(struct landmark_shape shape, struct mat q, int64_t first, int64_t length) {
    landmark_task t = {};
    assert(shape.heads > 0 && q.cols % shape.heads == 0 && q.cols / shape.heads <= REFERENCE_DIM_MAX);
    assert(shape.block >= 1 && shape.block <= LANDMARK_BLOCK_MAX);
    t.n = q.rows, t.first = first, t.length = length;
    t.heads = shape.heads, t.dim = (int)(q.cols / shape.heads), t.block = shape.block, t.window = shape.window;
    t.scale = 1.0f / sqrtf((float)t.dim);
    return t;
}

static bool landmark_vectors(struct mat k, struct mat v, int dim) {
    return vectors_fit(k) && vectors_fit(v) && dim % 8 == 0;
}

template <typename T, int ACC>
static void landmark_forward_launch(struct device *dev, const char *op, const landmark_task &t,
                                    const landmark_views<T> &m, float *scores) {
    dim3 each((unsigned)blocks_for(t.blocks, REFERENCE_WARPS), (unsigned)t.heads, (unsigned)t.n);
    if (scores) launch(dev, op, landmark_scores<T, ACC>, each, REFERENCE_THREADS, 0, t, m, scores);
    launch(dev, op, landmark_forward<T, ACC>, dim3((unsigned)t.n, (unsigned)t.heads), REFERENCE_THREADS, 0, t, m);
}

template <typename T>
static void landmark_forward_typed(struct device *dev, const char *op, const landmark_task &t,
                                   const struct landmark_sequences *in, struct mat o, struct mat lse, float *scores) {
    landmark_views<T> m = {rows_of<T>(o),     rows_of<T>(in->q), rows_of<T>(in->k),
                           rows_of<T>(in->v), (float *)lse.data, lse.stride,
                           landmark_vectors(in->k, in->v, t.dim)};
    if (t.dim <= 64)
        landmark_forward_launch<T, 2>(dev, op, t, m, scores);
    else if (t.dim <= 128)
        landmark_forward_launch<T, 4>(dev, op, t, m, scores);
    else
        landmark_forward_launch<T, 16>(dev, op, t, m, scores);
}

static void landmark_forward_any(struct device *dev, const char *op, const landmark_task &t,
                                 const struct landmark_sequences *in, struct mat o, struct mat lse, float *scores) {
    if (t.n == 0) return;
    if (in->q.type == DTYPE_F32)
        landmark_forward_typed<float>(dev, op, t, in, o, lse, scores);
    else
        landmark_forward_typed<bf16>(dev, op, t, in, o, lse, scores);
}

enum { LANDMARK_ROWS_MAX = 32768 }; /* of one launch: z of a grid has 16 bits */

static void landmark_attention_forward(struct device *dev, struct mat o, struct mat q, struct mat keys,
                                       struct mat values, int64_t first, struct landmark_shape shape, int topk) {
    const char *op = "landmark_attention.forward";
    assert(o.rows == q.rows && o.cols == q.cols && keys.cols == q.cols && values.cols == q.cols && first >= 0);
    assert(keys.rows >= first + q.rows && values.rows >= first + q.rows && topk >= 1 && topk <= LANDMARK_TOPK_MAX);
    int64_t blocks = (first + q.rows) / (shape.block + 1);
    size_t row_bytes = (size_t)blocks * (size_t)shape.heads * sizeof(float), scratch = device_cuda_scratch_bytes(dev);
    bool select = blocks > topk;
    int64_t most = select && (int64_t)(scratch / row_bytes) < LANDMARK_ROWS_MAX ? (int64_t)(scratch / row_bytes)
                                                                               : (int64_t)LANDMARK_ROWS_MAX;
    if (most == 0) device_cuda_fault(dev, op, "the text has too many blocks");
    for (int64_t row = 0; most > 0 && row < q.rows; row += most) {
        int64_t n = q.rows - row < most ? q.rows - row : most;
        struct landmark_sequences in = {mat_rows(q, row, n), keys, values, n, shape};
        landmark_task t = landmark_task_of(shape, in.q, first + row, n);
        float *scores = select ? (float *)device_cuda_scratch(dev, (size_t)n * row_bytes) : nullptr;
        t.topk = topk, t.scores = scores, t.blocks = blocks;
        landmark_forward_any(dev, op, t, &in, mat_rows(o, row, n), {}, scores);
    }
}

static void landmark_check(const struct landmark_sequences *in, struct mat o, struct mat lse) {
    assert(in->length > 0 && in->length % (in->shape.block + 1) == 0 && in->q.rows % in->length == 0);
    assert(in->k.rows == in->q.rows && in->v.rows == in->q.rows && o.rows == in->q.rows && o.cols == in->q.cols);
    assert(lse.type == DTYPE_F32 && lse.rows == in->q.rows && lse.cols == in->shape.heads);
    (void)in, (void)o, (void)lse;
}

static void landmark_attention_forward_sequences(struct device *dev, struct mat o, struct mat lse,
                                                 const struct landmark_sequences *in) {
    landmark_check(in, o, lse);
    landmark_forward_any(dev, "landmark_attention.forward_sequences",
                         landmark_task_of(in->shape, in->q, 0, in->length), in, o, lse, nullptr);
}

template <typename T, int ACC>
static void landmark_backward_launch(struct device *dev, const landmark_task &t, const landmark_backward_views<T> &m) {
    const char *op = "landmark_attention.backward_sequences";
    launch(dev, op, landmark_dq<T, ACC>, dim3((unsigned)t.n, (unsigned)t.heads), REFERENCE_THREADS, 0, t, m);
    launch(dev, op, landmark_dkv<T, ACC>,
           dim3((unsigned)blocks_for(t.n, REFERENCE_WARPS), (unsigned)t.heads), REFERENCE_THREADS, 0, t, m);
}

struct landmark_gradients {
    struct mat dq, dk, dv, dout, o, lse;
};

/* The sequences of these rows; memory: of their stat and own. */
template <typename T>
static void landmark_backward_typed(struct device *dev, const landmark_task &t, const landmark_gradients &g,
                                    const struct landmark_sequences *in, void *memory) {
    landmark_stat *stat = (landmark_stat *)memory;
    landmark_backward_views<T> m = {rows_of<T>(g.dq),
                                    rows_of<T>(g.dk),
                                    rows_of<T>(g.dv),
                                    rows_of<T>(g.dout),
                                    rows_of<T>(g.o),
                                    rows_of<T>(in->q),
                                    rows_of<T>(in->k),
                                    rows_of<T>(in->v),
                                    (const float *)g.lse.data,
                                    g.lse.stride,
                                    stat,
                                    (float2 *)(stat + t.n * t.heads * t.blocks),
                                    landmark_vectors(in->k, in->v, t.dim)};
    if (t.dim <= 64)
        landmark_backward_launch<T, 2>(dev, t, m);
    else if (t.dim <= 128)
        landmark_backward_launch<T, 4>(dev, t, m);
    else
        landmark_backward_launch<T, 16>(dev, t, m);
}

static void landmark_attention_backward(struct device *dev, struct mat dq, struct mat dk, struct mat dv,
                                        struct mat dout, struct mat o, struct mat lse,
                                        const struct landmark_sequences *in) {
    landmark_check(in, o, lse);
    assert(dq.rows == o.rows && dk.rows == o.rows && dv.rows == o.rows && dout.rows == o.rows);
    int64_t blocks = in->length / (in->shape.block + 1);
    size_t row_bytes = (size_t)in->shape.heads * ((size_t)blocks * sizeof(landmark_stat) + sizeof(float2));
    int64_t most = (int64_t)(device_cuda_scratch_bytes(dev) / row_bytes) / in->length * in->length;
    if (most == 0)
        device_cuda_fault(dev, "landmark_attention.backward_sequences", "a sequence is too long: lower length");
    for (int64_t row = 0; most > 0 && row < o.rows; row += most) {
        int64_t n = o.rows - row < most ? o.rows - row : most;
        auto part = [&](struct mat m) { return mat_rows(m, row, n); };
        struct landmark_sequences some = {part(in->q), part(in->k), part(in->v), in->length, in->shape};
        landmark_task t = landmark_task_of(in->shape, some.q, 0, in->length);
        t.blocks = blocks;
        landmark_gradients g = {part(dq), part(dk), part(dv), part(dout), part(o), part(lse)};
        void *memory = device_cuda_scratch(dev, (size_t)n * row_bytes);
        if (in->q.type == DTYPE_F32)
            landmark_backward_typed<float>(dev, t, g, &some, memory);
        else
            landmark_backward_typed<bf16>(dev, t, g, &some, memory);
    }
}

extern "C" const struct landmark_attention_ops landmark_attention_cuda = {
    .forward = landmark_attention_forward,
    .forward_sequences = landmark_attention_forward_sequences,
    .backward_sequences = landmark_attention_backward,
};
