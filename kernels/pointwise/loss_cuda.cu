/* loss_cuda.cu -- log-likelihood under the tied head, and its gradients, over slices of rows.
 *
 *   slice of rows   logits [rows, V] float32 in the scratch      cuBLASLt
 *   a row: 1 block  softmax; logits become gradients in place    the row in registers up to 51,200 ids
 *   slice           dx, dtable +=                                cuBLASLt, two products
 *
 * Slices of rows, not of the vocabulary: softmax is complete within a slice, so nothing is computed twice, and dtable
 * is added to once a slice. Bound by arithmetic: 3 products of 2 n V d. The softmax kernels are bound by memory: 6
 * bytes a logit (bf16) besides the 4 that the product writes.
 *
 * bf16 on Hopper takes the path of exponentials, which stores neither logits nor gradients:
 *
 *   a row: 1 warp   shift = the target's logit
 *   slice           e = exp(logit - shift), bf16, and sums of e  exp_product_cuda.cuh
 *   a row: 1 warp   nll = log S, S = sum of e; e[target] -= S: the sum of the others; factor = scale / S; x' = factor x
 *   slice           dx = factor (e table); dtable += e^T x'      cuBLASLt, two products
 *
 * So the gradient of the logits, factor e, is never computed, and a logit costs the 2 bytes that e is. A row whose
 * target is so unlikely that e overflows (S above EXPONENTIALS_MAX) is computed again by its warp, relative to its
 * maximum. */
#include "kernels/cuda/cuda.cuh"
#include "kernels/linear/exp_product_cuda.cuh"
extern "C" {
#include "kernels/linear/blas_cuda_internal.h"
}

enum { THREADS = 1024, SLICE_STEP = 128 };

static __device__ __forceinline__ void store4(float *p, float4 x) {
    *(float4 *)p = x;
}
static __device__ __forceinline__ void store4(bf16 *p, float4 x) {
    __nv_bfloat162 pair[2] = {__floats2bfloat162_rn(x.x, x.y), __floats2bfloat162_rn(x.z, x.w)};
    *(uint2 *)p = *(const uint2 *)pair;
}

struct loss_running { /* of exp: sum exp(x - top) */
    float top, sum;
};

static __device__ loss_running loss_join(loss_running a, loss_running b) {
    float top = fmaxf(a.top, b.top);
    if (top == -INFINITY) return {top, 0.0f};
    return {top, a.sum * expf(a.top - top) + b.sum * expf(b.top - top)};
}

static __device__ loss_running loss_join_block(loss_running mine, loss_running *shared) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int step = 16; step; step /= 2) {
        loss_running other = {__shfl_xor_sync(~0u, mine.top, step), __shfl_xor_sync(~0u, mine.sum, step)};
        mine = lane & step ? loss_join(other, mine)
                           : loss_join(mine, other); /* the same order in both lanes: the same bits */
    }
    if (lane == 0) shared[warp] = mine;
    __syncthreads();
    loss_running all = shared[0];
    for (int w = 1; w < THREADS / 32; w++)
        all = loss_join(all, shared[w]);
    return all;
}

/* Maximum and sum of a row by the whole block; logits are 16-byte aligned. */
static __device__ loss_running loss_row_sum(const float *logits, int vocab, loss_running *shared) {
    loss_running mine = {-INFINITY, 0.0f};
    int whole = vocab / 4;
    for (int i = threadIdx.x; i < whole; i += THREADS) {
        float4 x = ((const float4 *)logits)[i];
        float top = fmaxf(fmaxf(x.x, x.y), fmaxf(x.z, x.w));
        if (top > mine.top) {
            mine.sum *= expf(mine.top - top);
            mine.top = top;
        }
        mine.sum += expf(x.x - mine.top) + expf(x.y - mine.top) + expf(x.z - mine.top) + expf(x.w - mine.top);
    }
    if (whole * 4 + (int)threadIdx.x < vocab) mine = loss_join(mine, {logits[whole * 4 + threadIdx.x], 1.0f});
    return loss_join_block(mine, shared);
}

/* Factor of the loss of the block's row in the gradient. */
static __device__ float loss_row_scale(loss_rows rows) {
    return rows.weight ? rows.scale * rows.weight[blockIdx.x] : rows.scale;
}

/* Writes in place: number i of type G lies at or before float i, so a tile is read completely before it is written, and
 * earlier tiles are not needed any more. */
template <typename G>
static __device__ void loss_row_gradient(float *logits, int vocab, loss_running all, int target, float scale) {
    G *out = (G *)(void *)logits;
    float inverse = 1.0f / all.sum;
    for (int base = 0; base < vocab; base += THREADS * 8) {
        int at = base + (int)threadIdx.x * 8;
        vec8 x;
        if (at + 8 <= vocab) x = load8(logits + at);
        else
            for (int i = 0; i < 8; i++)
                x.v[i] = at + i < vocab ? logits[at + i] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 8; i++)
            x.v[i] = target < 0 ? 0.0f : scale * (expf(x.v[i] - all.top) * inverse - (at + i == target ? 1.0f : 0.0f));
        if (at + 8 <= vocab) store8(out + at, x);
        else
            for (int i = 0; i < 8 && at + i < vocab; i++)
                out[at + i] = from_float<G>(x.v[i]);
    }
}

template <typename G, bool GRADIENT>
static __global__ void __launch_bounds__(THREADS)
    loss_softmax(float *nll, float *logits, int64_t stride, loss_rows rows, int vocab) {
    __shared__ loss_running shared[THREADS / 32];
    float *row = logits + blockIdx.x * stride;
    int target = rows.targets[blockIdx.x];
    loss_running all = loss_row_sum(row, vocab, shared);
    if (threadIdx.x == 0)
        nll[blockIdx.x] = target < 0 ? 0.0f : target < vocab ? all.top - row[target] + logf(all.sum) : NAN;
    __syncthreads();
    if (GRADIENT) loss_row_gradient<G>(row, vocab, all, target, loss_row_scale(rows));
}

/* The same with the row in registers: V float4 a thread, all loads issued before the first is used. Writes in place:
 * the whole row is read before anything is written. */
enum { ROW_THREADS = 512 };

template <typename G, int V>
static __global__ void __launch_bounds__(ROW_THREADS, V > 13 ? 1 : 2)
    loss_softmax_registers(float *nll, float *logits, int64_t stride, loss_rows rows, int vocab) {
    __shared__ float shared[ROW_THREADS / 32];
    float *row = logits + blockIdx.x * stride, scale = loss_row_scale(rows);
    int target = rows.targets[blockIdx.x];
    float4 x[V];
    float top = -INFINITY, sum = 0.0f, own = 0.0f;
    /* Rows are at least 16 floats apart: floats past the vocabulary belong to the row, and are not counted. */
#pragma unroll
    for (int v = 0; v < V; v++) {
        int at = (v * ROW_THREADS + (int)threadIdx.x) * 4;
        if (at < vocab) x[v] = *(const float4 *)(row + at);
    }
    if (threadIdx.x == 0 && target >= 0) own = target < vocab ? row[target] : NAN;
#pragma unroll
    for (int v = 0; v < V; v++) {
        int left = vocab - (v * ROW_THREADS + (int)threadIdx.x) * 4;
        if (left < 4) {
            if (left < 1) x[v].x = -INFINITY;
            if (left < 2) x[v].y = -INFINITY;
            if (left < 3) x[v].z = -INFINITY;
            x[v].w = -INFINITY;
        }
        top = fmaxf(top, fmaxf(fmaxf(x[v].x, x[v].y), fmaxf(x[v].z, x[v].w)));
    }
    top = block_max(top, shared);
#pragma unroll
    for (int v = 0; v < V; v++) {
        x[v] = make_float4(expf(x[v].x - top), expf(x[v].y - top), expf(x[v].z - top), expf(x[v].w - top));
        sum += (x[v].x + x[v].y) + (x[v].z + x[v].w);
    }
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0) nll[blockIdx.x] = target < 0 ? 0.0f : top - own + logf(sum);
    float factor = target < 0 ? 0.0f : scale / sum;
#pragma unroll
    for (int v = 0; v < V; v++) {
        int at = (v * ROW_THREADS + (int)threadIdx.x) * 4, hot = target - at;
        if (at >= vocab) continue;
        float4 g = make_float4(factor * x[v].x, factor * x[v].y, factor * x[v].z, factor * x[v].w);
        if (hot == 0) g.x -= scale;
        if (hot == 1) g.y -= scale;
        if (hot == 2) g.z -= scale;
        if (hot == 3) g.w -= scale;
        store4((G *)(void *)row + at, g);
    }
}

struct loss_slices {
    int64_t rows, stride; /* of a slice; floats from row to row */
};

static loss_slices loss_cut_slices(struct device *dev, int64_t n, int64_t vocab) {
    int64_t stride = (vocab + 15) / 16 * 16,
            most = (int64_t)device_cuda_scratch_bytes(dev) / (stride * (int64_t)sizeof(float));
    if (most >= SLICE_STEP) most = most / SLICE_STEP * SLICE_STEP;
    assert(most >= 1);
    int64_t each = blocks_for(n, blocks_for(n, most)); /* slices of nearly the same size */
    each = blocks_for(each, SLICE_STEP) * SLICE_STEP;
    return {each < most ? each : most, stride};
}

/* cuBLASLt's fast kernels need widths that are multiples of eight numbers (50265 ids take three times as long as
 * 50304): so the vocabulary is two parts, a wide one of whole WIDTHs, and the few that remain. */
enum { WIDTH = 64 };

static int64_t loss_wide_part(int64_t vocab) {
    return vocab < 2 * WIDTH ? vocab : vocab / WIDTH * WIDTH;
}

static struct mat loss_slice_logits(struct device *dev, const char *op, loss_slices s, struct mat x, struct mat table) {
    float *scratch = (float *)device_cuda_scratch(dev, (size_t)(s.rows * s.stride) * sizeof(float));
    struct mat logits = {scratch, DTYPE_F32, x.rows, table.rows, s.stride};
    int64_t most = loss_wide_part(table.rows), ends[] = {0, most, table.rows};
    for (int i = 0; i < 2; i++)
        blas_cuda_product(dev, op,
                          {.y = mat_cols(logits, ends[i], ends[i + 1] - ends[i]),
                           .a = x,
                           .b = mat_rows(table, ends[i], ends[i + 1] - ends[i]),
                           .b_transposed = true,
                           .scale = 1.0f});
    return logits;
}

/* dx = gradient table, dtable += gradient^T x; the remaining ids first, so that dx is rounded once at its full
 * size. */
static void loss_backward_products(struct device *dev, const char *op, struct mat dx, struct mat dtable,
                                   struct mat gradient, struct mat x, struct mat table) {
    int64_t most = loss_wide_part(table.rows), few = table.rows - most;
    struct mat left = mat_cols(gradient, most, few), right = mat_cols(gradient, 0, most);
    if (few) blas_cuda_product(dev, op, {.y = dx, .a = left, .b = mat_rows(table, most, few), .scale = 1.0f});
    blas_cuda_product(dev, op,
                      {.y = dx, .a = right, .b = mat_rows(table, 0, most), .accumulate = few != 0, .scale = 1.0f});
    blas_cuda_product(
        dev, op,
        {.y = mat_rows(dtable, most, few), .a = left, .b = x, .a_transposed = true, .accumulate = true, .scale = 1.0f});
    blas_cuda_product(
        dev, op,
        {.y = mat_rows(dtable, 0, most), .a = right, .b = x, .a_transposed = true, .accumulate = true, .scale = 1.0f});
}

/* ---- the path of exponentials ---- */

enum { ROW_WARPS = 8 };                     /* rows of a block */
#define EXPONENTIALS_MAX 1e20f

/* The scratch of a slice. */
struct loss_exponentials {
    struct mat e, raw, scaled; /* e [rows, stride]; raw: dx without factor [rows, d] float32; scaled: x' [rows, d] */
    float *part, *shift, *own, *factor;
};

/* The dot product of two rows, in each lane of a warp. */
static __device__ __forceinline__ float loss_row_product(const bf16 *a, const bf16 *b, int d) {
    float sum = 0.0f;
    for (int i = threadIdx.x % 32 * 8; i < d; i += 256) {
        vec8 x = load8(a + i), y = load8(b + i);
#pragma unroll
        for (int j = 0; j < 8; j++)
            sum = fmaf(x.v[j], y.v[j], sum);
    }
    return warp_sum(sum);
}

static __global__ void __launch_bounds__(ROW_WARPS * 32)
    loss_exponentials_shift(float *shift, rows<const bf16> x, rows<const bf16> table, const int32_t *targets, int64_t n,
                            int vocab, int d) {
    int64_t row = (int64_t)blockIdx.x * ROW_WARPS + threadIdx.x / 32;
    if (row >= n) return;
    int target = targets[row];
    float own = target >= 0 && target < vocab ? loss_row_product(x[row], table[target], d) : INFINITY;
    if (threadIdx.x % 32 == 0) shift[row] = own * 1.44269504f;
}

/* A row whose exponentials overflowed, by a warp: maximum and sum, and exponentials relative to the maximum. e NULL:
 * not stored. */
static __device__ loss_running loss_row_again(bf16 *e, const bf16 *x, rows<const bf16> table, int vocab, int d) {
    loss_running all = {-INFINITY, 0.0f};
    for (int v = 0; v < vocab; v++)
        all = loss_join(all, {loss_row_product(x, table[v], d), 1.0f});
    for (int v = 0; e && v < vocab; v++) {
        float own = expf(loss_row_product(x, table[v], d) - all.top);
        if (threadIdx.x % 32 == 0) e[v] = from_float<bf16>(own);
    }
    return all;
}

struct loss_exponentials_task {
    float *nll, *factor;
    const float *part, *own;
    int64_t n;
    int vocab, parts, d;
    loss_rows rows;
};

/* A warp is a row: joins the parts of its sum. e.data NULL: only nll. */
static __global__ void __launch_bounds__(ROW_WARPS * 32)
    loss_exponentials_finish(loss_exponentials_task t, rows<bf16> e, rows<bf16> scaled, rows<const bf16> x,
                             rows<const bf16> table) {
    int64_t row = (int64_t)blockIdx.x * ROW_WARPS + threadIdx.x / 32;
    if (row >= t.n) return;
    int lane = threadIdx.x % 32, target = t.rows.targets[row];
    bool counts = target >= 0 && target < t.vocab;
    float others = 0.0f, own = counts ? t.own[row] : 1.0f, nll; /* sums of e: without the target, of the target */
    for (int i = lane; i < t.parts; i += 32)
        others += t.part[row * t.parts + i];
    others = warp_sum(others);
    nll = log1pf(others / own);
    if (counts && others >= EXPONENTIALS_MAX) {
        loss_running all = loss_row_again(e.data ? e[row] : NULL, x[row], table, t.vocab, t.d);
        float less = loss_row_product(x[row], table[target], t.d) - all.top;
        own = expf(less), others = all.sum - own, nll = logf(all.sum) - less;
    }
    float scale = t.rows.weight ? t.rows.scale * t.rows.weight[row] : t.rows.scale;
    float factor = counts ? scale / (others + own) : 0.0f;
    if (lane == 0) t.nll[row] = target < 0 ? 0.0f : counts ? nll : NAN;
    if (!e.data) return;
    __syncwarp();
    if (lane == 0) {
        t.factor[row] = factor;
        if (counts) e[row][target] = from_float<bf16>(-others);
    }
    for (int i = lane * 8; i < t.d; i += 256) {
        vec8 v = load8(x[row] + i);
#pragma unroll
        for (int j = 0; j < 8; j++)
            v.v[j] *= factor;
        store8(scaled[row] + i, v);
    }
}

/* dx = factor raw: a thread is eight numbers. */
static __global__ void __launch_bounds__(256)
    loss_exponentials_scale(rows<bf16> dx, rows<const float> raw, const float *factor, int64_t n, int d) {
    int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x, row = i / (d / 8), column = i % (d / 8) * 8;
    if (row >= n) return;
    vec8 v = load8(raw[row] + column);
#pragma unroll
    for (int j = 0; j < 8; j++)
        v.v[j] *= factor[row];
    store8(dx[row] + column, v);
}

/* Divides the scratch; returns the rows of a slice. dx is computed in tiles of 128 x 256, so slices have so many rows
 * that its tiles are whole waves. */
static int64_t loss_exponentials_divide(struct device *dev, struct loss_exponentials *out, int64_t n, struct mat table,
                                        bool gradient) {
    int64_t stride = blocks_for(table.rows, WIDTH) * WIDTH, d = table.cols, parts = exp_product_parts(table.rows);
    int64_t row_bytes = (parts + 3) * 4 + (gradient ? stride * 2 + d * 6 : 0);
    int64_t most = ((int64_t)device_cuda_scratch_bytes(dev) - 8 * 256) / row_bytes, across = blocks_for(d, 256);
    int64_t wave = device_cuda_processors(dev) / across * SLICE_STEP;
    if (wave > 0 && most >= wave) most = most / wave * wave;
    else if (most >= 2 * SLICE_STEP) most = most / (2 * SLICE_STEP) * (2 * SLICE_STEP);
    if (most > n) most = n;
    unsigned char *at = (unsigned char *)device_cuda_scratch(dev, (size_t)(most * row_bytes) + 8 * 256);
    auto take = [&](int64_t bytes) {
        unsigned char *from = at;
        at += blocks_for(bytes, 256) * 256;
        return from;
    };
    *out = {};
    out->part = (float *)take(most * parts * 4);
    out->shift = (float *)take(most * 4);
    out->own = (float *)take(most * 4);
    out->factor = (float *)take(most * 4);
    if (!gradient) return most;
    out->e = {take(most * stride * 2), DTYPE_BF16, most, stride, stride};
    out->raw = {take(most * d * 4), DTYPE_F32, most, d, d};
    out->scaled = {take(most * d * 2), DTYPE_BF16, most, d, d};
    return most;
}

/* What a call computes. dx.data NULL: only nll. */
struct loss_call {
    float *nll;
    struct mat dx, dtable, x, table;
    loss_rows rows;
};

/* Rows first .. first + n - 1. False: this GPU or these matrices are not taken. */
static bool loss_exponentials_slice(struct device *dev, const char *op, const loss_call &c, loss_exponentials s,
                                    int64_t first, int64_t n) {
    struct mat x = mat_rows(c.x, first, n), table = c.table, e = s.e, raw = s.raw, scaled = s.scaled;
    const rows<const bf16> xs = {(const bf16 *)x.data, x.stride}, table_rows = {(const bf16 *)table.data, table.stride};
    loss_rows slice = {c.rows.targets + first, c.rows.weight ? c.rows.weight + first : nullptr, c.rows.scale};
    unsigned blocks = (unsigned)blocks_for(n, ROW_WARPS);
    int d = (int)x.cols;
    if (e.data) e.rows = raw.rows = scaled.rows = n;
    launch(dev, op, loss_exponentials_shift, blocks, ROW_WARPS * 32, 0, s.shift, xs, table_rows, slice.targets, n,
           (int)table.rows, d);
    if (!exp_product(dev, op, e, {s.shift, slice.targets, s.own, s.part}, x, table)) return false;
    loss_exponentials_task t = {c.nll + first,   s.factor, s.part, s.own, n, (int)table.rows,
                                (int)exp_product_parts(table.rows), d, slice};
    launch(dev, op, loss_exponentials_finish, blocks, ROW_WARPS * 32, 0, t, rows<bf16>{(bf16 *)e.data, e.stride},
           rows<bf16>{(bf16 *)scaled.data, scaled.stride}, xs, table_rows);
    if (!e.data) return true;
    loss_backward_products(dev, op, raw, c.dtable, mat_cols(e, 0, table.rows), scaled, table);
    launch(dev, op, loss_exponentials_scale, (unsigned)blocks_for(n * (d / 8), 256), 256, 0,
           rows_of<bf16>(mat_rows(c.dx, first, n)), rows<const float>{(const float *)raw.data, raw.stride}, s.factor, n,
           d);
    return true;
}

/* False: this GPU or these matrices are not taken, and nothing has been written. */
static bool loss_exponentials_run(struct device *dev, const char *op, const loss_call &c) {
    loss_exponentials s;
    if (c.x.type != DTYPE_BF16 || !device_cuda_hopper(dev) || !vectors_fit(c.x) || !vectors_fit(c.table) ||
        (c.dx.data && !vectors_fit(c.dx)))
        return false;
    int64_t most = loss_exponentials_divide(dev, &s, c.x.rows, c.table, c.dx.data != NULL);
    for (int64_t first = 0; most > 0 && first < c.x.rows; first += most)
        if (!loss_exponentials_slice(dev, op, c, s, first, c.x.rows - first < most ? c.x.rows - first : most))
            return false;
    return most > 0;
}

static void loss_forward(struct device *dev, float *nll, struct mat x, struct mat table, const int32_t *targets) {
    const char *op = "loss.forward";
    assert(x.cols == table.cols && table.rows >= 1 && table.rows < 1 << 28);
    if (x.rows == 0) return;
    if (loss_exponentials_run(dev, op, {nll, {}, {}, x, table, {targets, nullptr, 0.0f}})) return;
    loss_slices s = loss_cut_slices(dev, x.rows, table.rows);
    for (int64_t first = 0; first < x.rows; first += s.rows) {
        int64_t n = x.rows - first < s.rows ? x.rows - first : s.rows;
        struct mat logits = loss_slice_logits(dev, op, s, mat_rows(x, first, n), table);
        launch(dev, op, loss_softmax<float, false>, (unsigned)n, THREADS, 0, nll + first, (float *)logits.data,
               s.stride, loss_rows{targets + first, nullptr, 0.0f}, (int)table.rows);
    }
}

template <typename G>
static void loss_slice_softmax(struct device *dev, const char *op, float *nll, struct mat logits, loss_rows rows) {
    int64_t steps = blocks_for(logits.cols, 4 * ROW_THREADS);
    auto in_registers = steps <= 4    ? loss_softmax_registers<G, 4>
                        : steps <= 8  ? loss_softmax_registers<G, 8>
                        : steps <= 16 ? loss_softmax_registers<G, 16>
                                      : loss_softmax_registers<G, 25>;
    bool holds = steps <= 25;
    launch(dev, op, holds ? in_registers : loss_softmax<G, true>, (unsigned)logits.rows,
           holds ? (int)ROW_THREADS : (int)THREADS, 0, nll, (float *)logits.data, logits.stride, rows,
           (int)logits.cols);
}

static void loss_forward_backward(struct device *dev, float *nll, struct mat dx, struct mat dtable, struct mat x,
                                  struct mat table, struct loss_rows rows) {
    const char *op = "loss.forward_backward";
    assert(x.cols == table.cols && dx.rows == x.rows && dx.cols == x.cols && dtable.rows == table.rows);
    assert(dtable.type == DTYPE_F32 && x.type == table.type && table.rows >= 1 && table.rows < 1 << 28);
    if (x.rows == 0) return;
    if (loss_exponentials_run(dev, op, {nll, dx, dtable, x, table, rows})) return;
    loss_slices s = loss_cut_slices(dev, x.rows, table.rows);
    for (int64_t first = 0; first < x.rows; first += s.rows) {
        int64_t n = x.rows - first < s.rows ? x.rows - first : s.rows;
        struct mat part = mat_rows(x, first, n);
        struct mat logits = loss_slice_logits(dev, op, s, part, table);
        loss_rows slice = {rows.targets + first, rows.weight ? rows.weight + first : nullptr, rows.scale};
        if (x.type == DTYPE_F32) loss_slice_softmax<float>(dev, op, nll + first, logits, slice);
        else loss_slice_softmax<bf16>(dev, op, nll + first, logits, slice);
        struct mat gradient = logits;
        gradient.type = x.type;
        if (x.type == DTYPE_BF16) gradient.stride = 2 * s.stride;
        loss_backward_products(dev, op, mat_rows(dx, first, n), dtable, gradient, part, table);
    }
}

/* A row of the contrastive loss: as softmax, with one candidate left out, and whether the target is the best. */
template <typename G>
static __global__ void __launch_bounds__(THREADS)
    loss_contrastive_row(float *nll, float *hit, float *logits, int64_t stride, loss_contrast how, int columns) {
    __shared__ loss_running shared[THREADS / 32];
    float *row = logits + blockIdx.x * stride;
    int target = how.targets[blockIdx.x], excluded = how.excluded[blockIdx.x];
    if (threadIdx.x == 0 && excluded >= 0) row[excluded] = -INFINITY;
    for (int v = threadIdx.x; how.alone && v < columns; v += THREADS)
        if (how.alone[v] != 0.0f && v != target) row[v] = -INFINITY;
    __syncthreads();
    loss_running all = loss_row_sum(row, columns, shared);
    if (threadIdx.x == 0) {
        float own = target < 0 ? 0.0f : target < columns ? row[target] : NAN;
        nll[blockIdx.x] = target < 0 ? 0.0f : all.top - own + logf(all.sum);
        hit[blockIdx.x] = target >= 0 && own >= all.top ? 1.0f : 0.0f;
    }
    __syncthreads();
    loss_row_gradient<G>(row, columns, all, target, how.scale * how.weight);
}

static void loss_contrastive(struct device *dev, float *nll, float *hit, struct mat dx, struct mat dtable, struct mat x,
                             struct mat table, struct loss_contrast how) {
    const char *op = "loss.contrastive";
    assert(x.cols == table.cols && dx.rows == x.rows && dx.cols == x.cols && dtable.rows == table.rows);
    assert(dx.type == DTYPE_F32 && dtable.type == DTYPE_F32 && x.type == table.type && table.rows >= 1);
    if (x.rows == 0) return;
    loss_slices s = loss_cut_slices(dev, x.rows, table.rows);
    for (int64_t first = 0; first < x.rows; first += s.rows) {
        int64_t n = x.rows - first < s.rows ? x.rows - first : s.rows;
        float *scratch = (float *)device_cuda_scratch(dev, (size_t)(s.rows * s.stride) * sizeof(float));
        struct mat part = mat_rows(x, first, n), logits = {scratch, DTYPE_F32, n, table.rows, s.stride},
                   gradient = logits;
        blas_cuda_product(dev, op, {.y = logits, .a = part, .b = table, .b_transposed = true, .scale = how.scale});
        launch(dev, op, x.type == DTYPE_F32 ? loss_contrastive_row<float> : loss_contrastive_row<bf16>, (unsigned)n,
               THREADS, 0, nll + first, hit + first, scratch, s.stride,
               loss_contrast{how.targets + first, how.excluded + first, how.alone, how.scale, how.weight},
               (int)table.rows);
        gradient.type = x.type;
        if (x.type == DTYPE_BF16) gradient.stride = 2 * s.stride;
        blas_cuda_product(dev, op,
                          {.y = mat_rows(dx, first, n), .a = gradient, .b = table, .accumulate = true, .scale = 1.0f});
        blas_cuda_product(
            dev, op,
            {.y = dtable, .a = gradient, .b = part, .a_transposed = true, .accumulate = true, .scale = 1.0f});
    }
}

extern "C" const struct loss_ops loss_cuda = {
    .forward = loss_forward, .contrastive = loss_contrastive, .forward_backward = loss_forward_backward};
