/* norm_cuda.cu -- RMSNorm, forward and backward.
 *
 * Mapping: a warp takes a row and holds it in registers, eight numbers a lane and step, so each matrix is read once. dw
 * is summed in two stages of fixed order: each warp over its rows in registers, a block over its warps, then one small
 * kernel over the blocks. Rows whose width or alignment does not fit vectors, or wider than 2048, take the norm_*_any
 * kernels, at a third of the speed. Bound by memory: forward reads x and writes y; backward reads x and dy, and writes
 * dx (reads it too when it adds). Best measured (H100, 65536 x 768): forward 94 % of a copy's rate, backward 93 %
 * (docs/kernels/pointwise.md). */
#include "kernels/cuda/cuda.cuh"

enum { WARPS = 8, THREADS = 32 * WARPS, CHUNK = 256 /* columns a warp reads in one step */, BLOCKS_MAX = 1024 };

/* The norm's weight, in either type: read from the cache, so the branch costs nothing. */
struct norm_weight {
    const void *data;
    bool is_float;
    __device__ vec8 at8(int64_t i) const {
        return is_float ? load8((const float *)data + i) : load8((const bf16 *)data + i);
    }
    __device__ float at(int64_t i) const {
        return is_float ? ((const float *)data)[i] : to_float(((const bf16 *)data)[i]);
    }
};

template <typename TX, typename TY, int V>
static __global__ void __launch_bounds__(THREADS)
    norm_forward_rows(rows<TY> y, rows<float> rstd, rows<const TX> x, norm_weight w, int64_t n, int d, float eps) {
    int lane = threadIdx.x % 32;
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= n) return;
    vec8 in[V];
    float sum = 0.0f;
#pragma unroll
    for (int v = 0; v < V; v++)
        if (v * CHUNK + lane * 8 < d) in[v] = load8(x[row] + v * CHUNK + lane * 8);
#pragma unroll
    for (int v = 0; v < V; v++)
        if (v * CHUNK + lane * 8 < d)
#pragma unroll
            for (int i = 0; i < 8; i++)
                sum += in[v].v[i] * in[v].v[i];
    float scale = __frsqrt_rn(warp_sum(sum) / (float)d + eps);
#pragma unroll
    for (int v = 0; v < V; v++) {
        int at = v * CHUNK + lane * 8;
        if (at >= d) continue;
        vec8 by = w.at8(at);
#pragma unroll
        for (int i = 0; i < 8; i++)
            by.v[i] *= in[v].v[i] * scale;
        store8(y[row] + at, by);
    }
    if (rstd.data && lane == 0) *rstd[row] = scale;
}

template <typename TX, typename TY>
static __global__ void __launch_bounds__(THREADS)
    norm_forward_any(rows<TY> y, rows<float> rstd, rows<const TX> x, norm_weight w, int64_t n, int d, float eps) {
    int lane = threadIdx.x % 32;
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= n) return;
    float sum = 0.0f;
    for (int i = lane; i < d; i += 32)
        sum += to_float(x[row][i]) * to_float(x[row][i]);
    float scale = __frsqrt_rn(warp_sum(sum) / (float)d + eps);
    for (int i = lane; i < d; i += 32)
        y[row][i] = from_float<TY>(to_float(x[row][i]) * scale * w.at(i));
    if (rstd.data && lane == 0) *rstd[row] = scale;
}

/* partial [gridDim.x, d]: this block's part of dw. dx = rstd (w dy - xh mean(w dy xh)), xh = x rstd. */
template <typename TX, typename TY, typename TD, int V>
static __global__ void __launch_bounds__(THREADS, V <= 4 ? 2 : 1)
    norm_backward_rows(rows<TD> dx, float *partial, rows<const TY> dy, rows<const TX> x, norm_weight w,
                       rows<const float> rstd, int64_t n, int d, bool accumulate) {
    __shared__ float part[WARPS][CHUNK];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float dw[V][8] = {};
    for (int64_t row = (int64_t)blockIdx.x * WARPS + warp; row < n; row += (int64_t)gridDim.x * WARPS) {
        vec8 hat[V], out[V], old[V];
        float scale = *rstd[row], dot = 0.0f;
#pragma unroll
        for (int v = 0; v < V; v++)
            if (v * CHUNK + lane * 8 < d) {
                hat[v] = load8(x[row] + v * CHUNK + lane * 8);
                out[v] = load8(dy[row] + v * CHUNK + lane * 8);
                old[v] = accumulate ? load8(dx[row] + v * CHUNK + lane * 8) : vec8{}; /* loaded with the others */
            }
#pragma unroll
        for (int v = 0; v < V; v++)
            if (v * CHUNK + lane * 8 < d) {
                vec8 by = w.at8(v * CHUNK + lane * 8);
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    hat[v].v[i] *= scale;
                    dw[v][i] += out[v].v[i] * hat[v].v[i];
                    out[v].v[i] *= by.v[i];
                    dot += out[v].v[i] * hat[v].v[i];
                }
            }
        float mean = warp_sum(dot) / (float)d;
#pragma unroll
        for (int v = 0; v < V; v++)
            if (v * CHUNK + lane * 8 < d) {
                TD *to = dx[row] + v * CHUNK + lane * 8;
#pragma unroll
                for (int i = 0; i < 8; i++)
                    out[v].v[i] = scale * (out[v].v[i] - hat[v].v[i] * mean) + old[v].v[i];
                store8(to, out[v]);
            }
    }
#pragma unroll
    for (int v = 0; v < V; v++) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 8; i++)
            part[warp][lane * 8 + i] = dw[v][i];
        __syncthreads();
        float sum = 0.0f;
        for (int i = 0; i < WARPS; i++)
            sum += part[i][threadIdx.x];
        if (v * CHUNK + (int)threadIdx.x < d) partial[(int64_t)blockIdx.x * d + v * CHUNK + threadIdx.x] = sum;
    }
}

/* dx alone, and below dw alone: any width, any alignment. dx may be dy, so dw is computed first. */
template <typename TX, typename TY, typename TD>
static __global__ void __launch_bounds__(THREADS)
    norm_backward_any(rows<TD> dx, rows<const TY> dy, rows<const TX> x, norm_weight w, rows<const float> rstd,
                      int64_t n, int d, bool accumulate) {
    int lane = threadIdx.x % 32;
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= n) return;
    float scale = *rstd[row], dot = 0.0f;
    for (int i = lane; i < d; i += 32)
        dot += to_float(dy[row][i]) * w.at(i) * to_float(x[row][i]) * scale;
    float mean = warp_sum(dot) / (float)d;
    for (int i = lane; i < d; i += 32) {
        float g = scale * (to_float(dy[row][i]) * w.at(i) - to_float(x[row][i]) * scale * mean);
        dx[row][i] = from_float<TD>(accumulate ? to_float(dx[row][i]) + g : g);
    }
}

template <typename TX, typename TY>
static __global__ void __launch_bounds__(THREADS)
    norm_backward_weight_any(float *partial, rows<const TY> dy, rows<const TX> x, rows<const float> rstd, int64_t n,
                             int d) {
    int column = blockIdx.y * THREADS + threadIdx.x;
    if (column >= d) return;
    float sum = 0.0f;
    for (int64_t row = blockIdx.x; row < n; row += gridDim.x)
        sum += to_float(dy[row][column]) * to_float(x[row][column]) * *rstd[row];
    partial[(int64_t)blockIdx.x * d + column] = sum;
}

/* dw += the sum over the blocks' parts: 32 columns a block, each by 8 threads. */
static __global__ void __launch_bounds__(THREADS) norm_join_parts(float *dw, const float *partial, int parts, int d) {
    __shared__ float group[WARPS][32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = blockIdx.x * 32 + lane;
    float sum = 0.0f;
    for (int i = warp; i < parts && column < d; i += WARPS)
        sum += partial[(int64_t)i * d + column];
    group[warp][lane] = sum;
    __syncthreads();
    if (warp || column >= d) return;
    sum = 0.0f;
    for (int i = 0; i < WARPS; i++)
        sum += group[i][lane];
    dw[column] += sum;
}

static norm_weight norm_weight_of(struct mat w) {
    return {w.data, w.type == DTYPE_F32};
}

static rows<float> norm_rstd_rows(struct mat rstd) {
    return {(float *)rstd.data, rstd.stride};
}

template <typename TX, typename TY>
static void norm_forward_typed(struct device *dev, struct mat y, struct mat rstd, struct mat x, struct mat w,
                               float eps) {
    const char *op = "norm.forward";
    unsigned blocks = (unsigned)blocks_for(x.rows, WARPS);
    int d = (int)x.cols;
    int steps = vectors_fit(x) && vectors_fit(y) && (uintptr_t)w.data % 16 == 0 ? (int)blocks_for(d, CHUNK) : 99;
    auto kernel = steps == 1   ? norm_forward_rows<TX, TY, 1>
                  : steps == 2 ? norm_forward_rows<TX, TY, 2>
                  : steps == 3 ? norm_forward_rows<TX, TY, 3>
                  : steps == 4 ? norm_forward_rows<TX, TY, 4>
                  : steps <= 8 ? norm_forward_rows<TX, TY, 8>
                               : norm_forward_any<TX, TY>;
    launch(dev, op, kernel, blocks, THREADS, 0, rows_of<TY>(y), norm_rstd_rows(rstd),
           rows<const TX>{(const TX *)x.data, x.stride}, norm_weight_of(w), x.rows, d, eps);
}

static void norm_forward(struct device *dev, struct mat y, struct mat rstd, struct mat x, struct mat w, float eps) {
    assert(y.rows == x.rows && y.cols == x.cols && w.rows == 1 && w.cols == x.cols && x.cols > 0);
    assert(!rstd.data || (rstd.rows == x.rows && rstd.cols == 1 && rstd.type == DTYPE_F32));
    if (x.type == DTYPE_F32 && y.type == DTYPE_F32) norm_forward_typed<float, float>(dev, y, rstd, x, w, eps);
    else if (x.type == DTYPE_F32) norm_forward_typed<float, bf16>(dev, y, rstd, x, w, eps);
    else if (y.type == DTYPE_F32) norm_forward_typed<bf16, float>(dev, y, rstd, x, w, eps);
    else norm_forward_typed<bf16, bf16>(dev, y, rstd, x, w, eps);
}

template <typename TX, typename TY, typename TD>
static void norm_backward_typed(struct device *dev, struct mat dx, struct mat dw, struct mat dy, struct mat x,
                                struct mat w, struct mat rstd, bool accumulate) {
    const char *op = "norm.backward";
    int64_t n = x.rows;
    int d = (int)x.cols, parts = 2 * device_cuda_processors(dev);
    if (parts > BLOCKS_MAX) parts = BLOCKS_MAX;
    if (parts > blocks_for(n, WARPS)) parts = (int)blocks_for(n, WARPS);
    float *partial = (float *)device_cuda_scratch(dev, (size_t)parts * (size_t)d * sizeof(float));
    rows<const TX> xs = {(const TX *)x.data, x.stride};
    rows<const TY> dys = {(const TY *)dy.data, dy.stride};
    rows<const float> rs = {(const float *)rstd.data, rstd.stride};
    bool fits = vectors_fit(x) && vectors_fit(dy) && vectors_fit(dx) && (uintptr_t)w.data % 16 == 0;
    int steps = fits ? (int)blocks_for(d, CHUNK) : 99;
    auto kernel = steps == 1   ? norm_backward_rows<TX, TY, TD, 1>
                  : steps == 2 ? norm_backward_rows<TX, TY, TD, 2>
                  : steps == 3 ? norm_backward_rows<TX, TY, TD, 3>
                  : steps == 4 ? norm_backward_rows<TX, TY, TD, 4>
                               : norm_backward_rows<TX, TY, TD, 8>;
    if (steps <= 8) {
        launch(dev, op, kernel, parts, THREADS, 0, rows_of<TD>(dx), partial, dys, xs, norm_weight_of(w), rs, n, d,
               accumulate);
    } else {
        dim3 grid((unsigned)parts, (unsigned)blocks_for(d, THREADS));
        launch(dev, op, norm_backward_weight_any<TX, TY>, grid, THREADS, 0, partial, dys, xs, rs, n, d);
        launch(dev, op, norm_backward_any<TX, TY, TD>, (unsigned)blocks_for(n, WARPS), THREADS, 0, rows_of<TD>(dx), dys,
               xs, norm_weight_of(w), rs, n, d, accumulate);
    }
    launch(dev, op, norm_join_parts, (unsigned)blocks_for(d, 32), THREADS, 0, (float *)dw.data, partial, parts, d);
}

static void norm_backward(struct device *dev, struct mat dx, struct mat dw, struct mat dy, struct mat x, struct mat w,
                     struct mat rstd, bool accumulate) {
    assert(dx.rows == x.rows && dx.cols == x.cols && dy.rows == x.rows && dy.cols == x.cols && w.cols == x.cols);
    assert(dw.cols == x.cols && dw.type == DTYPE_F32 && rstd.rows == x.rows && rstd.type == DTYPE_F32);
    if (x.rows == 0) return;
    if (x.type == DTYPE_F32 && dy.type == DTYPE_F32)
        norm_backward_typed<float, float, float>(dev, dx, dw, dy, x, w, rstd, accumulate);
    else if (x.type == DTYPE_F32)
        norm_backward_typed<float, bf16, float>(dev, dx, dw, dy, x, w, rstd, accumulate);
    else
        norm_backward_typed<bf16, bf16, bf16>(dev, dx, dw, dy, x, w, rstd, accumulate);
}

extern "C" const struct norm_ops norm_cuda = {.forward = norm_forward, .backward = norm_backward};
