/* bert_cuda.cu -- the ops of BERT-type encoders on a GPU.
 *
 * Mapping: LayerNorm gives a row to a warp, and each lane its columns lane, lane + 32, ...; it reads them three times
 * (sum, squares, result), the second and third time from the first-level cache. A lane writes only columns that no
 * other lane reads, so y may be x or residual. Bias and GELU: a thread computes eight neighbours of a row, or one
 * number if vectors do not fit. mean: a block computes one result, its threads the columns. Bound by memory; not
 * measured. */
#include "kernels/cuda/cuda.cuh"

enum { THREADS = 256, WARPS = THREADS / 32 };

/* residual.data, bias NULL: nothing is added. */
template <typename T> struct bert_norm_task {
    rows<T> y;
    rows<const T> x, residual;
    const T *bias, *w, *b;
    int64_t n;
    int d;
    float eps;
    __device__ float at(int64_t row, int c) const {
        float v = to_float(x[row][c]);
        if (residual.data) v += to_float(residual[row][c]);
        if (bias) v += to_float(bias[c]);
        return v;
    }
};

template <typename T> static __global__ void __launch_bounds__(THREADS) bert_norm_rows(bert_norm_task<T> t) {
    int lane = threadIdx.x % 32;
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= t.n) return;
    float sum = 0.0f, squares = 0.0f;
    for (int c = lane; c < t.d; c += 32)
        sum += t.at(row, c);
    float mean = warp_sum(sum) / (float)t.d;
    for (int c = lane; c < t.d; c += 32)
        squares += (t.at(row, c) - mean) * (t.at(row, c) - mean);
    float scale = 1.0f / sqrtf(warp_sum(squares) / (float)t.d + t.eps);
    for (int c = lane; c < t.d; c += 32)
        t.y[row][c] = from_float<T>((t.at(row, c) - mean) * scale * to_float(t.w[c]) + to_float(t.b[c]));
}

template <typename T>
static void bert_norm_typed(struct device *dev, struct mat y, struct mat x, struct mat residual, struct mat bias,
                            struct bert_norm norm) {
    bert_norm_task<T> t = {rows_of<T>(y),
                           {(const T *)x.data, x.stride},
                           {(const T *)residual.data, residual.stride},
                           (const T *)bias.data,
                           (const T *)norm.w.data,
                           (const T *)norm.b.data,
                           x.rows,
                           (int)x.cols,
                           norm.eps};
    launch(dev, "bert.layer_norm", bert_norm_rows<T>, (unsigned)blocks_for(x.rows, WARPS), THREADS, 0, t);
}

static void bert_layer_norm(struct device *dev, struct mat y, struct mat x, struct mat residual, struct mat bias,
                            struct bert_norm norm) {
    assert(y.rows == x.rows && y.cols == x.cols && x.cols > 0 && norm.w.cols == x.cols && norm.b.cols == x.cols);
    assert(y.type == x.type && norm.w.type == x.type && norm.b.type == x.type);
    assert(!residual.data || (residual.rows == x.rows && residual.cols == x.cols && residual.type == x.type));
    assert(!bias.data || (bias.cols == x.cols && bias.type == x.type));
    if (x.rows == 0) return;
    if (x.type == DTYPE_F32) bert_norm_typed<float>(dev, y, x, residual, bias, norm);
    else bert_norm_typed<bf16>(dev, y, x, residual, bias, norm);
}

/* GELU: whether it follows the sum. */
template <typename T, bool GELU> struct bert_biased {
    rows<T> y, x;
    const T *bias;
    static __device__ float one(float z) { return GELU ? 0.5f * z * erfcf(-0.70710678118654752f * z) : z; }
    __device__ void at8(int64_t r, int64_t c) const {
        vec8 u = load8(x[r] + c), v = load8(bias + c);
#pragma unroll
        for (int i = 0; i < 8; i++)
            u.v[i] = one(u.v[i] + v.v[i]);
        store8(y[r] + c, u);
    }
    __device__ void at(int64_t r, int64_t c) const {
        y[r][c] = from_float<T>(one(to_float(x[r][c]) + to_float(bias[c])));
    }
};

template <typename F>
static __global__ void __launch_bounds__(THREADS) bert_kernel8(F f, int64_t n, int64_t across) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n * across) f.at8(i / across, i % across * 8);
}
template <typename F>
static __global__ void __launch_bounds__(THREADS) bert_kernel1(F f, int64_t n, int64_t across) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n * across) f.at(i / across, i % across);
}

template <typename T, bool GELU>
static void bert_biased_typed(struct device *dev, const char *op, struct mat y, struct mat x, struct mat bias) {
    using F = bert_biased<T, GELU>;
    bool vectors = vectors_fit(y) && vectors_fit(x) && (uintptr_t)bias.data % 16 == 0;
    int64_t across = vectors ? x.cols / 8 : x.cols;
    launch(dev, op, vectors ? bert_kernel8<F> : bert_kernel1<F>, (unsigned)blocks_for(x.rows * across, THREADS),
           THREADS, 0, F{rows_of<T>(y), rows_of<T>(x), (const T *)bias.data}, x.rows, across);
}

template <bool GELU>
static void bert_biased_any(struct device *dev, const char *op, struct mat y, struct mat x, struct mat bias) {
    assert(y.rows == x.rows && y.cols == x.cols && x.cols > 0 && bias.cols == x.cols && bias.type == x.type);
    if (x.rows == 0) return;
    if (x.type == DTYPE_F32) bert_biased_typed<float, GELU>(dev, op, y, x, bias);
    else bert_biased_typed<bf16, GELU>(dev, op, y, x, bias);
}

static void bert_add_bias(struct device *dev, struct mat y, struct mat x, struct mat bias) {
    bert_biased_any<false>(dev, "bert.add_bias", y, x, bias);
}

static void bert_gelu(struct device *dev, struct mat y, struct mat x, struct mat bias) {
    bert_biased_any<true>(dev, "bert.gelu", y, x, bias);
}

/* Sums the block's numbers in a fixed order; every thread gets the result. */
static __device__ float bert_block_sum(float x) {
    __shared__ float part[WARPS];
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    float sum = 0.0f;
    for (int i = 0; i < WARPS; i++)
        sum += part[i];
    return sum;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    bert_mean_rows(rows<float> y, rows<const T> x, const int64_t *begin, int d, bool unit) {
    int64_t first = begin[blockIdx.x], end = begin[blockIdx.x + 1];
    float *out = y[blockIdx.x], squares = 0.0f;
    for (int c = threadIdx.x; c < d; c += THREADS) {
        float sum = 0.0f;
        for (int64_t row = first; row < end; row++)
            sum += to_float(x[row][c]);
        sum /= (float)(end - first);
        squares += sum * sum;
        out[c] = sum;
    }
    if (!unit) return;
    float length = sqrtf(bert_block_sum(squares));
    for (int c = threadIdx.x; c < d && length > 0.0f; c += THREADS)
        out[c] /= length;
}

static void bert_mean(struct device *dev, struct mat y, struct mat x, const int64_t *begin, bool unit) {
    assert(y.cols == x.cols && x.cols > 0 && y.type == DTYPE_F32);
    if (y.rows == 0) return;
    if (x.type == DTYPE_F32)
        launch(dev, "bert.mean", bert_mean_rows<float>, (unsigned)y.rows, THREADS, 0, rows_of<float>(y),
               rows<const float>{(const float *)x.data, x.stride}, begin, (int)x.cols, unit);
    else
        launch(dev, "bert.mean", bert_mean_rows<bf16>, (unsigned)y.rows, THREADS, 0, rows_of<float>(y),
               rows<const bf16>{(const bf16 *)x.data, x.stride}, begin, (int)x.cols, unit);
}

extern "C" const struct bert_ops bert_cuda = {
    .layer_norm = bert_layer_norm, .add_bias = bert_add_bias, .gelu = bert_gelu, .mean = bert_mean};
