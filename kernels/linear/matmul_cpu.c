/* matmul_cpu.c -- y = x w^T.
 *
 *   more than 8 rows        a task is a tile of y (256 x 1024 or less), by OpenBLAS, or AMX (matmul_amx.c)
 *   1 to 8 rows (decoding)  a task is a range of w's rows; every weight is read once, in order, and used n times
 *   each (1 to many rows)   a task is a range of w's rows, which stay in the first-level cache for groups of rows of x
 *   packed                  a task is 128 rows and 8 panels of outputs
 *   8-bit weights           matmul_i8.c
 *   packed, rounded to bf16 AMX, or vectors of pairs (matmul_bf16.c); as packed where the processor has neither, or in
 *                           plain C (matmul_bf16_plain.c)
 *
 * Bound by arithmetic for many rows, by reading w for few. Tiles depend on the shapes alone, and each output of few
 * rows is summed in one order whatever range it is in, so the bits of y do not depend on the number of threads.
 * Measured: docs/kernels/linear.md. */
#include "base/system/thread_checks.h"
#include "kernels/device/device_internal.h"
#include "kernels/linear/blas_cpu.h"
#include "kernels/linear/matmul.h"
#include "kernels/linear/matmul_amx.h"
#include "kernels/linear/matmul_bf16.h"
#include "kernels/linear/matmul_i8.h"
#include "kernels/ops.h"
#include "kernels/pointwise/simd_internal.h"
#include <assert.h>
#include <string.h>

enum { FEW_ROWS = MATMUL_FEW_ROWS, TILE_ROWS = 256, TILE_COLS = 1024, RANGE_BYTES = 1 << 19 };
enum { LINE = 64, AHEAD = 8192 }; /* bytes */
enum { TILES_WANTED = 16, TILE_ROWS_MIN = 128, TILE_COLS_MIN = 192 };

/* A product in tiles of y: large ones, for OpenBLAS's speed, but enough of them for a machine with many cores. Tiles of
 * 256 x 192 have full speed; at 128 x 192 a core loses some 6 %. */
struct matmul_tiles {
    struct blas_product all;
    int64_t rows, cols, across, tiles;
};

static struct matmul_tiles matmul_cut(struct blas_product all) {
    struct matmul_tiles t = {all, TILE_ROWS, TILE_COLS, 0, 0};
    for (;;) {
        t.across = (all.y.cols + t.cols - 1) / t.cols;
        t.tiles = (all.y.rows + t.rows - 1) / t.rows * t.across;
        if (t.tiles >= TILES_WANTED) return t;
        int64_t cols = t.cols < all.y.cols ? t.cols : all.y.cols, half = (cols / 2 + 15) / 16 * 16;
        if (half >= TILE_COLS_MIN)
            t.cols = half;
        else if (t.rows / 2 >= TILE_ROWS_MIN)
            t.rows /= 2;
        else
            return t;
    }
}

static void matmul_tile_range(void *context, int64_t begin, int64_t end, int worker) {
    const struct matmul_tiles *t = context;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        struct blas_product p = t->all;
        int64_t row = i / t->across * t->rows, col = i % t->across * t->cols;
        int64_t rows = p.y.rows - row < t->rows ? p.y.rows - row : t->rows;
        int64_t cols = p.y.cols - col < t->cols ? p.y.cols - col : t->cols;
        p.y = mat_cols(mat_rows(p.y, row, rows), col, cols);
        p.a = p.a_transposed ? mat_cols(p.a, row, rows) : mat_rows(p.a, row, rows);
        p.b = p.b_transposed ? mat_rows(p.b, col, cols) : mat_cols(p.b, col, cols);
        blas_cpu_product(p);
    }
}

static void matmul_product(struct device *dev, struct blas_product p, bool accumulate) {
    p.scale = 1.0f;
    p.keep = accumulate ? 1.0f : 0.0f;
    struct matmul_tiles t = matmul_cut(p);
    threads_for(dev->threads, t.tiles, 1, matmul_tile_range, &t);
}

struct matmul_few_task {
    struct mat y, x, w;
    bool accumulate;
};

/* LANES weights (or the first n of them) of output `col`, float32 or bf16: the same numbers are the same bits. */
SIMD vf weights_at(const struct matmul_few_task *t, int64_t col, int64_t i, int64_t n, bool bf16) {
    int64_t at = col * t->w.stride + i;
    if (bf16) {
        const uint16_t *w = (const uint16_t *)t->w.data + at;
        return n == LANES ? v_load_bf16(w) : v_load_bf16_part(w, n);
    }
    const float *w = (const float *)t->w.data + at;
    return n == LANES ? v_load(w) : v_load_part(w, n);
}

/* One output for one row of x. w is one stream, prefetched AHEAD bytes: the hardware's prefetchers stop at each page's
 * end, and between the rows of a block. */
SIMD float one_output(const struct matmul_few_task *t, int64_t col, bool bf16) {
    vf sum[4] = {0};
    int64_t in = t->x.cols, i = 0, bytes = bf16 ? (int64_t)sizeof(uint16_t) : (int64_t)sizeof(float);
    const float *x = t->x.data;
    const char *ahead = (const char *)t->w.data + col * t->w.stride * bytes + AHEAD;
    for (; i + 4 * LANES <= in; i += 4 * LANES) {
        for (int64_t b = 0; b < 4 * LANES * bytes; b += LINE)
            __builtin_prefetch(ahead + i * bytes + b, 0, 3);
        for (int v = 0; v < 4; v++)
            sum[v] += weights_at(t, col, i + v * LANES, LANES, bf16) * v_load(x + i + v * LANES);
    }
    for (int64_t n; i < in; i += n) {
        n = in - i < LANES ? in - i : LANES;
        sum[0] += weights_at(t, col, i, n, bf16) * v_load_part(x + i, n);
    }
    return v_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

SIMD void one_row(const struct matmul_few_task *t, int64_t begin, int64_t end, bool bf16) {
    float *y = t->y.data;
    for (int64_t col = begin; col < end; col++)
        y[col] = one_output(t, col, bf16) + (t->accumulate ? y[col] : 0.0f);
}

/* y[0..n][col..col+block] for constant n and block: block * n sums in registers, each vector of w used n times. */
SIMD void few_block(const struct matmul_few_task *t, int64_t col, int block, int n, bool bf16) {
    vf sum[8][FEW_ROWS] = {0};
    int64_t in = t->x.cols, i = 0;
    const float *x = t->x.data;
    for (; i + LANES <= in; i += LANES) {
        vf xs[FEW_ROWS];
        for (int r = 0; r < n; r++)
            xs[r] = v_load(x + r * t->x.stride + i);
        for (int b = 0; b < block; b++) {
            vf weight = weights_at(t, col + b, i, LANES, bf16);
            for (int r = 0; r < n; r++)
                sum[b][r] += weight * xs[r];
        }
    }
    if (i < in)
        for (int b = 0; b < block; b++)
            for (int r = 0; r < n; r++)
                sum[b][r] += weights_at(t, col + b, i, in - i, bf16) * v_load_part(x + r * t->x.stride + i, in - i);
    for (int r = 0; r < n; r++)
        for (int b = 0; b < block; b++) {
            float *y = mat_row(t->y, r) + col + b;
            *y = v_sum(sum[b][r]) + (t->accumulate ? *y : 0.0f);
        }
}

enum { MORE = SIMD_SUMS == 16 ? 4 : 2, LESS = MORE / 2 }; /* outputs at a time: 16 sums in registers, or 8 */

SIMD void few_range(const struct matmul_few_task *t, int64_t begin, int64_t end, int block, int n, bool bf16) {
    for (; begin + block <= end; begin += block)
        few_block(t, begin, block, n, bf16);
    for (; begin < end; begin++)
        few_block(t, begin, 1, n, bf16);
}

SIMD void few_rows(const struct matmul_few_task *t, int64_t begin, int64_t end, bool bf16) {
    switch (t->x.rows) {
    case 1:
        one_row(t, begin, end, bf16);
        break;
    case 2:
        few_range(t, begin, end, MORE, 2, bf16);
        break;
    case 3:
        few_range(t, begin, end, MORE, 3, bf16);
        break;
    case 4:
        few_range(t, begin, end, MORE, 4, bf16);
        break;
    case 5:
        few_range(t, begin, end, LESS, 5, bf16);
        break;
    case 6:
        few_range(t, begin, end, LESS, 6, bf16);
        break;
    case 7:
        few_range(t, begin, end, LESS, 7, bf16);
        break;
    default:
        few_range(t, begin, end, LESS, 8, bf16);
        break;
    }
}

static void matmul_few_columns(void *context, int64_t begin, int64_t end, int worker) {
    const struct matmul_few_task *t = context;
    (void)worker;
    if (t->w.type == DTYPE_BF16)
        few_rows(t, begin, end, true);
    else
        few_rows(t, begin, end, false);
}

/* Long ranges, because each begins with a wait for memory; equally many for each thread. */
static int64_t outputs_at_once(const struct device *dev, struct mat w) {
    int64_t threads = threads_count(dev->threads);
    int64_t each = w.rows * w.cols * dtype_bytes(w.type) / (threads * RANGE_BYTES) + 1, ranges = threads * each;
    return ((w.rows + ranges - 1) / ranges + 7) / 8 * 8;
}

static void matmul_forward(struct device *dev, struct mat y, struct mat x, struct mat w, bool accumulate) {
    assert(y.rows == x.rows && y.cols == w.rows && x.cols == w.cols && x.cols > 0);
    assert(w.type == DTYPE_F32 || w.type == DTYPE_I8 || x.rows <= FEW_ROWS);
    if (y.rows == 0 || y.cols == 0) return;
    if (w.type == DTYPE_I8) {
        matmul_i8.forward(dev, y, x, w, accumulate);
    } else if (x.rows <= FEW_ROWS) {
        struct matmul_few_task t = {y, x, w, accumulate};
        threads_for(dev->threads, y.cols, outputs_at_once(dev, w), matmul_few_columns, &t);
    } else if (device_cpu(dev)->amx) {
        matmul_amx.forward(dev, y, x, w, accumulate);
    } else {
        matmul_product(dev, (struct blas_product){.y = y, .a = x, .b = w, .b_transposed = true}, accumulate);
    }
}

/* ---- forward_each: the sums of one_output, for several rows of x ---- */

/* 16 or 8 sums in registers; bytes of weights in the cache */
enum { EACH_ROWS = SIMD_SUMS == 16 ? 4 : 2, EACH_BYTES = 1 << 14 };

/* y[row .. row+n)[col] for constant n: each sum as in one_output, in the same order. */
SIMD void each_output(const struct matmul_few_task *t, int64_t row, int64_t col, int n, bool bf16) {
    vf sum[EACH_ROWS][4] = {0};
    const int64_t in = t->x.cols;
    const float *x = mat_row(t->x, row);
    int64_t i = 0;
    for (; i + 4 * LANES <= in; i += 4 * LANES)
        for (int v = 0; v < 4; v++) {
            vf weight = weights_at(t, col, i + v * LANES, LANES, bf16);
            for (int r = 0; r < n; r++)
                sum[r][v] += weight * v_load(x + r * t->x.stride + i + v * LANES);
        }
    for (int64_t part; i < in; i += part) {
        part = in - i < LANES ? in - i : LANES;
        vf weight = weights_at(t, col, i, part, bf16);
        for (int r = 0; r < n; r++)
            sum[r][0] += weight * v_load_part(x + r * t->x.stride + i, part);
    }
    for (int r = 0; r < n; r++) {
        float *y = mat_row(t->y, row + r) + col;
        *y = v_sum((sum[r][0] + sum[r][1]) + (sum[r][2] + sum[r][3])) + (t->accumulate ? *y : 0.0f);
    }
}

SIMD void each_range(const struct matmul_few_task *t, int64_t begin, int64_t end, bool bf16) {
    const int64_t bytes = t->x.cols * (bf16 ? (int64_t)sizeof(uint16_t) : (int64_t)sizeof(float));
    const int64_t most = EACH_BYTES / bytes < 1 ? 1 : EACH_BYTES / bytes;
    for (int64_t first = begin, last; first < end; first = last) {
        last = end - first < most ? end : first + most;
        int64_t row = 0;
        for (; row + EACH_ROWS <= t->x.rows; row += EACH_ROWS)
            for (int64_t col = first; col < last; col++)
                each_output(t, row, col, EACH_ROWS, bf16);
        for (; row < t->x.rows; row++)
            for (int64_t col = first; col < last; col++)
                each_output(t, row, col, 1, bf16);
    }
}

static void matmul_each_columns(void *context, int64_t begin, int64_t end, int worker) {
    const struct matmul_few_task *t = context;
    (void)worker;
    if (t->w.type == DTYPE_BF16)
        each_range(t, begin, end, true);
    else
        each_range(t, begin, end, false);
}

static void matmul_forward_each(struct device *dev, struct mat y, struct mat x, struct mat w, bool accumulate) {
    assert(y.rows == x.rows && y.cols == w.rows && x.cols == w.cols && x.cols > 0);
    if (y.rows == 0 || y.cols == 0) return;
    if (w.type == DTYPE_I8) {
        matmul_i8.forward(dev, y, x, w, accumulate);
        return;
    }
    struct matmul_few_task t = {y, x, w, accumulate};
    threads_for(dev->threads, y.cols, outputs_at_once(dev, w), x.rows == 1 ? matmul_few_columns : matmul_each_columns,
                &t);
}

static void matmul_backward_input(struct device *dev, struct mat dx, struct mat dy, struct mat w, bool accumulate) {
    assert(dx.rows == dy.rows && dx.cols == w.cols && dy.cols == w.rows && dy.cols > 0);
    matmul_product(dev, (struct blas_product){.y = dx, .a = dy, .b = w}, accumulate);
}

static void matmul_backward_weight(struct device *dev, struct mat dw, struct mat dy, struct mat x) {
    assert(dw.rows == dy.cols && dw.cols == x.cols && dy.rows == x.rows);
    if (x.rows > 0) matmul_product(dev, (struct blas_product){.y = dw, .a = dy, .b = x, .a_transposed = true}, true);
}

/* Packed: panels of PANEL outputs; a panel holds, for each of the `in` inputs, the PANEL weights side by side. */
enum { PANEL = SIMD_VECTORS * LANES, DEPTH = 128, PACKED_ROWS = 128 };

struct matmul_packed_task {
    struct mat y, x;
    const float *packed;
    bool accumulate;
};

static int64_t matmul_packed_elements(int64_t out, int64_t in) {
    int64_t floats = (out + PANEL - 1) / PANEL * PANEL * in, tiles = matmul_amx.packed_elements(out, in);
    int64_t pairs = matmul_bf16_plain.packed_elements(out, in), most = floats > tiles ? floats : tiles;
    return most > pairs ? most : pairs;
}

static void matmul_pack(struct device *dev, float *packed, struct mat w) {
    if (device_cpu(dev)->amx) {
        matmul_amx.pack(packed, w);
        return;
    }
    for (int64_t first = 0; first < w.rows; first += PANEL)
        for (int64_t i = 0; i < w.cols; i++)
            for (int64_t o = first; o < first + PANEL; o++)
                *packed++ = o < w.rows ? mat_row(w, o)[i] : 0.0f;
}

/* A block of `rows` rows and one panel, over inputs first .. first+depth-1. The sums are kept in `sums` between depths,
 * so that every y is one chain of fused multiply-adds in order of `in`, whatever the blocks. */
SIMD void packed_block(float (*sums)[PANEL], const float *x, int64_t stride, const float *panel, int64_t depth,
                       int rows) {
    vf sum[SIMD_ROWS][SIMD_VECTORS];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < SIMD_VECTORS; v++)
            sum[r][v] = v_load(sums[r] + v * LANES);
    for (int64_t i = 0; i < depth; i++) {
        vf w[SIMD_VECTORS];
        for (int v = 0; v < SIMD_VECTORS; v++)
            w[v] = v_load(panel + i * PANEL + v * LANES);
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < SIMD_VECTORS; v++)
                sum[r][v] += x[r * stride + i] * w[v];
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < SIMD_VECTORS; v++)
            v_store(sums[r] + v * LANES, sum[r][v]);
}

THREAD_UNCHECKED static void packed_rows(float (*sums)[PANEL], const float *x, int64_t stride, const float *panel,
                                         int64_t depth, int64_t rows) {
    int64_t r = 0;
    for (; r + SIMD_ROWS <= rows; r += SIMD_ROWS)
        packed_block(sums + r, x + r * stride, stride, panel, depth, SIMD_ROWS);
    for (; r + 2 <= rows; r += 2)
        packed_block(sums + r, x + r * stride, stride, panel, depth, 2);
    for (; r < rows; r++)
        packed_block(sums + r, x + r * stride, stride, panel, depth, 1);
}

THREAD_UNCHECKED static void packed_store(float *y, const float *sums, int64_t cols, bool accumulate) {
    for (int64_t c = 0; c < cols; c++)
        y[c] = accumulate ? y[c] + sums[c] : sums[c];
}

/* One block of rows, the panels begin .. end-1. A slice of a panel (DEPTH inputs) stays in the first-level cache while
 * all rows of the block pass over it. */
static void packed_panels(const struct matmul_packed_task *t, int64_t row, int64_t begin, int64_t end) {
    _Alignas(64) float sums[PACKED_ROWS][PANEL];
    int64_t rows = t->x.rows - row < PACKED_ROWS ? t->x.rows - row : PACKED_ROWS, in = t->x.cols;
    for (int64_t r = 0; r < rows; r++)
        thread_reads(mat_row(t->x, row + r), (size_t)in * sizeof(float));
    for (int64_t p = begin; p < end; p++) {
        int64_t cols = t->y.cols - p * PANEL < PANEL ? t->y.cols - p * PANEL : PANEL;
        thread_reads(t->packed + p * in * PANEL, (size_t)(in * PANEL) * sizeof(float));
        memset(sums, 0, (size_t)rows * sizeof sums[0]);
        for (int64_t i = 0; i < in; i += DEPTH)
            packed_rows(sums, mat_row(t->x, row) + i, t->x.stride, t->packed + (p * in + i) * PANEL,
                        in - i < DEPTH ? in - i : DEPTH, rows);
        for (int64_t r = 0; r < rows; r++) {
            float *y = mat_row(t->y, row + r) + p * PANEL;
            thread_writes(y, (size_t)cols * sizeof *y);
            packed_store(y, sums[r], cols, t->accumulate);
        }
    }
}

enum { PANELS_A_TASK = 8 };

static void matmul_packed_tasks(void *context, int64_t begin, int64_t end, int worker) {
    const struct matmul_packed_task *t = context;
    int64_t panels = (t->y.cols + PANEL - 1) / PANEL, across = (panels + PANELS_A_TASK - 1) / PANELS_A_TASK;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        int64_t first = i % across * PANELS_A_TASK;
        packed_panels(t, i / across * PACKED_ROWS, first,
                      first + PANELS_A_TASK < panels ? first + PANELS_A_TASK : panels);
    }
}

static void matmul_forward_packed(struct device *dev, struct mat y, struct mat x, const float *packed,
                                  bool accumulate) {
    assert(y.rows == x.rows && x.cols > 0);
    if (device_cpu(dev)->amx) {
        matmul_amx.forward_packed(dev, y, x, packed, accumulate);
        return;
    }
    struct matmul_packed_task t = {y, x, packed, accumulate};
    int64_t panels = (y.cols + PANEL - 1) / PANEL, across = (panels + PANELS_A_TASK - 1) / PANELS_A_TASK;
    threads_for(dev->threads, (y.rows + PACKED_ROWS - 1) / PACKED_ROWS * across, 1, matmul_packed_tasks, &t);
}

/* A tile of AMX; half of the rows of the blocks of bf16. */
static int64_t matmul_rows_together(struct device *dev) {
    return device_cpu(dev)->amx ? 16 : 3;
}

static void matmul_pack_i8(struct device *dev, void *packed, struct mat w) {
    matmul_i8.pack(dev, packed, w);
}

static void matmul_unpack_i8(struct device *dev, uint16_t *numbers, struct mat w) {
    matmul_i8.unpack(dev, numbers, w);
}

static bool matmul_rounds(struct device *dev) {
    return device_cpu(dev)->bf16;
}

void matmul_round_plainly(struct device *dev) {
    if (dev->shares_memory && !device_cpu(dev)->bf16) device_cpu_use_bf16(dev, true, true);
}

static void matmul_pack_rounded(struct device *dev, float *packed, struct mat w) {
    if (!device_cpu(dev)->bf16)
        matmul_pack(dev, packed, w);
    else if (device_cpu(dev)->bf16_plain)
        matmul_bf16_plain.pack(packed, w);
    else if (device_cpu(dev)->amx)
        matmul_amx.pack_rounded(packed, w);
    else
        matmul_bf16.pack(packed, w);
}

static void matmul_forward_rounded(struct device *dev, struct mat y, struct mat x, const float *packed,
                                   bool accumulate) {
    assert(y.rows == x.rows && x.cols > 0);
    if (!device_cpu(dev)->bf16)
        matmul_forward_packed(dev, y, x, packed, accumulate);
    else if (device_cpu(dev)->bf16_plain)
        matmul_bf16_plain.forward_packed(dev, y, x, packed, accumulate);
    else if (device_cpu(dev)->amx)
        matmul_amx.forward_rounded(dev, y, x, packed, accumulate);
    else
        (device_cpu(dev)->bf16_fused ? matmul_bf16_fused : matmul_bf16).forward_packed(dev, y, x, packed, accumulate);
}

/* The copy takes little time compared with the product. */
static void matmul_forward_add(struct device *dev, struct mat y, struct mat base, struct mat x, struct mat w) {
    assert(base.rows == y.rows && base.cols == y.cols);
    for (int64_t row = 0; row < y.rows && y.data != base.data; row++)
        memcpy(mat_row(y, row), mat_row(base, row), (size_t)y.cols * sizeof(float));
    matmul_forward(dev, y, x, w, true);
}

static void matmul_forward_gated(struct device *dev, struct mat gated, struct mat both, struct mat x, struct mat w) {
    int64_t f = gated.cols;
    assert(gated.rows == both.rows && both.cols == 2 * f);
    matmul_forward(dev, both, x, w, false);
    dev->ops->elementwise->swiglu(dev, gated, mat_cols(both, 0, f), mat_cols(both, f, f));
}

static void matmul_backward_gated(struct device *dev, struct mat both, struct mat dgated, struct mat dy, struct mat w) {
    int64_t f = dgated.cols;
    struct mat gate = mat_cols(both, 0, f), up = mat_cols(both, f, f);
    assert(dgated.rows == both.rows && both.cols == 2 * f && w.cols == f);
    matmul_backward_input(dev, dgated, dy, w, false);
    dev->ops->elementwise->swiglu_backward(dev, gate, up, dgated, gate, up);
}

const struct matmul_ops matmul_cpu = {
    .forward = matmul_forward,
    .forward_each = matmul_forward_each,
    .forward_add = matmul_forward_add,
    .forward_gated = matmul_forward_gated,
    .backward_input = matmul_backward_input,
    .backward_gated = matmul_backward_gated,
    .backward_weight = matmul_backward_weight,
    .packed_elements = matmul_packed_elements,
    .pack = matmul_pack,
    .forward_packed = matmul_forward_packed,
    .rows_together = matmul_rows_together,
    .pack_i8 = matmul_pack_i8,
    .unpack_i8 = matmul_unpack_i8,
    .rounds = matmul_rounds,
    .pack_rounded = matmul_pack_rounded,
    .forward_rounded = matmul_forward_rounded,
};
