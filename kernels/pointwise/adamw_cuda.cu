/* adamw_cuda.cu -- the AdamW update, and the sum of squares that clips the gradient.
 *
 * Mapping: a thread updates four parameters. The sum has two stages of fixed order: each block sums a stride of the
 * array, then one block sums the blocks, in double, so that the error does not grow with n.
 * Bound by memory: the update reads p, m, v, g and writes p, m, v and the copy, 30 bytes a parameter with a bf16 copy;
 * the norm reads 4 bytes. Best measured: update 99 % of a copy's rate, norm 96 % (docs/kernels/pointwise.md). */
#include "kernels/cuda/cuda.cuh"

enum { THREADS = 256, PARTS = 1024 };

static __device__ double block_sum_double(double x) {
    __shared__ double shared[THREADS];
    shared[threadIdx.x] = x;
    for (int step = THREADS / 2; step; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step) shared[threadIdx.x] += shared[threadIdx.x + step];
    }
    __syncthreads();
    return shared[0];
}

static __global__ void __launch_bounds__(THREADS) adamw_squares(double *part, const float *g, int64_t n, bool vectors) {
    double all = 0.0;
    if (vectors) {
        for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n / 4; i += (int64_t)PARTS * THREADS) {
            float4 x = ((const float4 *)g)[i];
            all += (double)(x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w);
        }
        if (blockIdx.x == 0 && threadIdx.x < n % 4) {
            float x = g[n / 4 * 4 + threadIdx.x];
            all += (double)(x * x);
        }
    } else {
        for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (int64_t)PARTS * THREADS)
            all += (double)(g[i] * g[i]);
    }
    all = block_sum_double(all);
    if (threadIdx.x == 0) part[blockIdx.x] = all;
}

static __global__ void __launch_bounds__(THREADS) adamw_join_parts(float *sum, const double *part) {
    double all = 0.0;
    for (int i = threadIdx.x; i < PARTS; i += THREADS)
        all += part[i];
    all = block_sum_double(all);
    if (threadIdx.x == 0) *sum = (float)all;
}

static void adamw_norm(struct device *dev, float *sum_of_squares, const float *gradient, int64_t n) {
    double *part = (double *)device_cuda_scratch(dev, PARTS * sizeof(double));
    launch(dev, "adamw.norm", adamw_squares, PARTS, THREADS, 0, part, gradient, n, (uintptr_t)gradient % 16 == 0);
    launch(dev, "adamw.norm", adamw_join_parts, 1, THREADS, 0, sum_of_squares, part);
}

struct adamw_task {
    float *p, *m, *v;
    const float *g, *sum_of_squares;
    float clip, lr, beta1, beta2, eps, decay, correction1, correction2; /* corrections: 1 / (1 - beta^step) */
};

struct adamw_value {
    float p, m, v;
};

static __device__ adamw_value adamw_value_step(const adamw_task &t, adamw_value s, float g) {
    s.m = t.beta1 * s.m + (1.0f - t.beta1) * g;
    s.v = t.beta2 * s.v + (1.0f - t.beta2) * g * g;
    s.p -= t.lr * (s.m * t.correction1 / (sqrtf(s.v * t.correction2) + t.eps) + t.decay * s.p);
    return s;
}

static __device__ bool adamw_gradient_broken(const adamw_task &t) {
    return t.sum_of_squares && !isfinite(*t.sum_of_squares);
}

static __device__ float adamw_scale(const adamw_task &t) {
    if (t.clip == 0.0f) return 1.0f;
    float norm = sqrtf(*t.sum_of_squares);
    return norm > t.clip ? t.clip / norm : 1.0f;
}

/* C: type of the copy; copy NULL: none. `copy` is dense: its rows follow each other as p's. */
template <typename C>
static __global__ void __launch_bounds__(THREADS) adamw_update4(adamw_task t, C *copy, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n / 4 || adamw_gradient_broken(t)) return;
    float scale = adamw_scale(t);
    float4 p = ((float4 *)t.p)[i], m = ((float4 *)t.m)[i], v = ((float4 *)t.v)[i], g = ((const float4 *)t.g)[i];
    adamw_value a = adamw_value_step(t, {p.x, m.x, v.x}, g.x * scale),
                b = adamw_value_step(t, {p.y, m.y, v.y}, g.y * scale);
    adamw_value c = adamw_value_step(t, {p.z, m.z, v.z}, g.z * scale),
                d = adamw_value_step(t, {p.w, m.w, v.w}, g.w * scale);
    ((float4 *)t.p)[i] = make_float4(a.p, b.p, c.p, d.p);
    ((float4 *)t.m)[i] = make_float4(a.m, b.m, c.m, d.m);
    ((float4 *)t.v)[i] = make_float4(a.v, b.v, c.v, d.v);
    if (!copy) return;
    union {
        C numbers[4];
        uint2 raw; /* bf16: one access; a float copy uses plain stores */
    } out = {{from_float<C>(a.p), from_float<C>(b.p), from_float<C>(c.p), from_float<C>(d.p)}};
    if (sizeof(C) == 2) ((uint2 *)copy)[i] = out.raw;
    else
        for (int j = 0; j < 4; j++)
            copy[4 * i + j] = out.numbers[j];
}

template <typename C>
static __global__ void __launch_bounds__(THREADS) adamw_update1(adamw_task t, C *copy, int64_t first, int64_t n) {
    int64_t i = first + (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n || adamw_gradient_broken(t)) return;
    adamw_value s = adamw_value_step(t, {t.p[i], t.m[i], t.v[i]}, t.g[i] * adamw_scale(t));
    t.p[i] = s.p;
    t.m[i] = s.m;
    t.v[i] = s.v;
    if (copy) copy[i] = from_float<C>(s.p);
}

template <typename C> static void adamw_launch(struct device *dev, adamw_task t, void *copy, int64_t n) {
    uintptr_t all = (uintptr_t)t.p | (uintptr_t)t.m | (uintptr_t)t.v | (uintptr_t)t.g | (uintptr_t)copy << 1;
    int64_t first = all % 16 == 0 ? n / 4 * 4 : 0;
    launch(dev, "adamw.update", adamw_update4<C>, (unsigned)blocks_for(first / 4, THREADS), THREADS, 0, t, (C *)copy,
           n);
    launch(dev, "adamw.update", adamw_update1<C>, (unsigned)blocks_for(n - first, THREADS), THREADS, 0, t, (C *)copy,
           first, n);
}

static void adamw_update(struct device *dev, struct adamw_state state, const float *gradient, int64_t n,
                         const float *sum_of_squares, float clip, struct adamw_step how) {
    struct mat copy = state.copy;
    assert(how.step >= 1 && (!copy.data || (copy.rows * copy.cols == n && copy.stride == copy.cols)));
    assert(clip == 0.0f || sum_of_squares);
    adamw_task t = {state.p, state.m, state.v, gradient, sum_of_squares, clip, how.lr, how.beta1, how.beta2, how.eps,
                    how.decay,
                     (float)(1.0 / (1.0 - pow((double)how.beta1, (double)how.step))),
                     (float)(1.0 / (1.0 - pow((double)how.beta2, (double)how.step)))};
    copy.data && copy.type == DTYPE_F32 ? adamw_launch<float>(dev, t, copy.data, n)
                                       : adamw_launch<bf16>(dev, t, copy.data, n);
}

extern "C" const struct adamw_ops adamw_cuda = {.norm = adamw_norm, .update = adamw_update};
