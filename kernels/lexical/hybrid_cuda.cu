/* hybrid_cuda.cu -- the query of a running text, and the merge of chunks found by words and by landmarks.
 *
 *   hybrid_query_kernel   one block                      a thread has every THREADS-th number of the states
 *   hybrid_sums_kernel    a warp for each candidate      its product with the query, its sum; NaN: it does not count
 *   hybrid_rank_kernel    block (64 candidates, query)   16 threads count the candidates that are better than theirs
 *
 * The order is total, so a candidate's rank is its slot in the results, and no list is sorted. Bound by latency: 1088
 * candidates have 0.8 MB of rows of 384 numbers. */
#include "kernels/cuda/launch_cuda.cuh"

enum {
    THREADS = 1024,
    SUM_WARPS = 4,
    SHARE = 16, /* threads of a candidate that is ranked */
    RANKED = THREADS / SHARE,
};

/* ---- the query ---- */

/* A column of the mean, less the centre. */
template <typename T>
static __device__ __forceinline__ double state_mean(rows<const T> ring, int64_t ring_rows, int64_t first, int64_t n,
                                                    const double *centre, int64_t column) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)to_float(ring[(first + i) % ring_rows][column]);
    return sum / (double)n - centre[column];
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    hybrid_query_kernel(float *out, rows<const T> ring, int64_t ring_rows, int64_t d, int64_t first, int64_t n,
                        const double *centre) {
    __shared__ double of_warp[THREADS / 32];
    double square = 0;
    for (int64_t j = threadIdx.x; j < d && n > 0; j += THREADS) {
        const double mean = state_mean(ring, ring_rows, first, n, centre, j);
        square += mean * mean;
    }
    for (int offset = 16; offset; offset /= 2)
        square += __shfl_xor_sync(~0u, square, offset);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = square;
    __syncthreads();
    square = of_warp[threadIdx.x % 32];
    for (int offset = 16; offset; offset /= 2)
        square += __shfl_xor_sync(~0u, square, offset);
    const double length = sqrt(square);
    for (int64_t j = threadIdx.x; j < d; j += THREADS) /* computed again: d has no limit */
        out[j] = square > 0 ? (float)(state_mean(ring, ring_rows, first, n, centre, j) / length) : 0.0f;
}

static void hybrid_query(struct device *dev, float *out, struct mat ring, int64_t first, int64_t n,
                         const double *centre) {
    const char *op = "hybrid.query";
    assert(n >= 0 && n <= ring.rows && (ring.type == DTYPE_F32 || ring.type == DTYPE_BF16));
    if (ring.type == DTYPE_F32)
        launch(dev, op, hybrid_query_kernel<float>, 1, THREADS, 0, out,
               rows<const float>{(const float *)ring.data, ring.stride}, ring.rows, ring.cols, first, n, centre);
    else
        launch(dev, op, hybrid_query_kernel<bf16>, 1, THREADS, 0, out,
               rows<const bf16>{(const bf16 *)ring.data, ring.stride}, ring.rows, ring.cols, first, n, centre);
}

/* ---- the merge ---- */

struct hybrid_task {
    struct hybrid_merge m;
    float *sum;     /* [queries, candidates] */
    float *product; /* the same, of its landmark; NULL: not wanted */
    int64_t *index;
    float *score;
    int k, candidates;
};

/* Candidate i of a query: those of the words, then those of the landmarks. */
static __device__ __forceinline__ int64_t candidate_chunk(const hybrid_task &t, int64_t q, int i) {
    const hybrid_list &words = t.m.words, &landmarks = t.m.landmarks;
    return i < words.n ? words.chunk[q * words.n + i] : landmarks.chunk[q * landmarks.n + i - words.n];
}
static __device__ __forceinline__ float candidate_bm25(const hybrid_task &t, int64_t q, int i) {
    const hybrid_list &words = t.m.words, &landmarks = t.m.landmarks;
    return i < words.n ? words.bm25[q * words.n + i] : landmarks.bm25[q * landmarks.n + i - words.n];
}

/* Whether the words found a chunk; every lane gets the result. */
static __device__ bool words_have(const hybrid_task &t, int64_t q, int64_t chunk) {
    bool mine = false;
    for (int i = threadIdx.x % 32; i < t.m.words.n; i += 32)
        mine |= t.m.words.chunk[q * t.m.words.n + i] == chunk;
    return __any_sync(~0u, mine);
}

static __device__ float landmark_score(rows<const float> queries, rows<const __half> landmarks, const hybrid_merge &m,
                                       int64_t q, int64_t chunk) {
    int64_t row = chunk < m.chunks ? (m.row_of ? m.row_of[chunk] : chunk) : -1, d = m.queries.cols;
    float sum = 0.0f;
    if (row < 0) return -INFINITY;
    for (int64_t j = threadIdx.x % 32 * 8; j < d; j += 32 * 8) {
        vec8 x = load8(queries[q] + j), y = load8(landmarks[row] + j);
#pragma unroll
        for (int i = 0; i < 8; i++)
            sum += x.v[i] * y.v[i];
    }
    return warp_sum(sum) / sqrtf((float)d);
}

static __global__ void __launch_bounds__(32 * SUM_WARPS)
    hybrid_sums_kernel(hybrid_task t, rows<const float> queries, rows<const __half> landmarks) {
    int i = blockIdx.x * SUM_WARPS + threadIdx.x / 32;
    int64_t q = blockIdx.y;
    launch_next();
    launch_wait();
    if (i >= t.candidates) return;
    int64_t chunk = candidate_chunk(t, q, i);
    float sum = NAN, product = -INFINITY;
    if (chunk >= 0 && !(i >= t.m.words.n && words_have(t, q, chunk))) {
        product = landmark_score(queries, landmarks, t.m, q, chunk);
        sum = fmaf(t.m.weight, product, candidate_bm25(t, q, i));
    }
    if (threadIdx.x % 32 != 0) return;
    t.sum[q * t.candidates + i] = sum;
    if (t.product) t.product[q * t.candidates + i] = product;
}

static __global__ void __launch_bounds__(THREADS) hybrid_rank_kernel(hybrid_task t) {
    __shared__ float sum[HYBRID_CANDIDATES_MAX];
    __shared__ int64_t chunk[HYBRID_CANDIDATES_MAX];
    int64_t q = blockIdx.y;
    int own = blockIdx.x * RANKED + threadIdx.x / SHARE, valid = 0, better = 0;
    launch_wait();
    for (int i = threadIdx.x; i < t.candidates; i += THREADS) {
        sum[i] = t.sum[q * t.candidates + i];
        chunk[i] = candidate_chunk(t, q, i);
    }
    __syncthreads();
    float mine = own < t.candidates ? sum[own] : NAN;
    int64_t my_chunk = own < t.candidates ? chunk[own] : -1;
    for (int i = threadIdx.x % SHARE; i < t.candidates; i += SHARE) { /* a comparison with NaN is false */
        float other = sum[i];
        valid += other == other;
        better += other > mine || (other == mine && chunk[i] < my_chunk);
    }
#pragma unroll
    for (int offset = SHARE / 2; offset; offset /= 2) {
        valid += __shfl_xor_sync(~0u, valid, offset);
        better += __shfl_xor_sync(~0u, better, offset);
    }
    if (threadIdx.x % SHARE == 0 && mine == mine && better < t.k) {
        t.index[q * t.k + better] = my_chunk;
        t.score[q * t.k + better] = candidate_bm25(t, q, own);
        if (t.product) t.m.product[q * t.k + better] = t.product[q * t.candidates + own];
    }
    for (int i = valid + (int)threadIdx.x; i < t.k && blockIdx.x == 0; i += THREADS) {
        t.index[q * t.k + i] = -1;
        t.score[q * t.k + i] = -INFINITY;
        if (t.product) t.m.product[q * t.k + i] = -INFINITY;
    }
}

static void hybrid_merge_all(struct device *dev, int64_t *index, float *score, const struct hybrid_merge *m, int k) {
    const char *op = "hybrid.merge";
    const int candidates = m->words.n + m->landmarks.n;
    const unsigned n = (unsigned)m->queries.rows;
    assert(k >= 1 && m->weight > 0 && candidates >= 1 && candidates <= HYBRID_CANDIDATES_MAX && n <= 65535);
    assert(m->queries.type == DTYPE_F32 && m->rows.type == DTYPE_F16 && m->rows.cols == m->queries.cols);
    assert(vectors_fit(m->queries) && vectors_fit(m->rows));
    const size_t sums = (size_t)n * (size_t)candidates;
    float *sum = (float *)device_cuda_scratch(dev, (m->product ? 2 : 1) * sums * sizeof *sum);
    const hybrid_task t = {*m, sum, m->product ? sum + sums : NULL, index, score, k, candidates};
    launch_dependent(dev, op, hybrid_sums_kernel, dim3((unsigned)blocks_for(candidates, SUM_WARPS), n), 32 * SUM_WARPS,
                     0, t, rows<const float>{(const float *)m->queries.data, m->queries.stride},
                     rows<const __half>{(const __half *)m->rows.data, m->rows.stride});
    launch_dependent(dev, op, hybrid_rank_kernel, dim3((unsigned)blocks_for(candidates, RANKED), n), THREADS, 0, t);
}

extern "C" const struct hybrid_ops hybrid_cuda = {.query = hybrid_query, .merge = hybrid_merge_all};
