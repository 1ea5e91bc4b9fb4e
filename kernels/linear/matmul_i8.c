/* matmul_i8.c -- products with 8-bit weights: rounding of w and x, the tasks, and the loop for any processor
 * (matmul_i8.h has the layout, matmul_vnni.c the loops for x86).
 *
 * Few rows of x are rounded once by the calling thread, and a task is a range of panels: w is read once, in order. With
 * more rows a task is 64 rows and 32 panels, and rounds its rows itself. Bound by reading w for few rows. */
#include "kernels/linear/matmul_i8.h"
#include "base/half.h"
#include "kernels/device/device_internal.h"
#include "kernels/pointwise/simd_internal.h"
#include <assert.h>
#include <math.h>
#include <string.h>

enum {
    LIMIT = 32512,
    HALF = 128,
    ROWS = 64,
    I8_TILE_ROWS = 16,
    PANELS = 32,
    SHARED_BYTES = 1 << 18,
    RANGE_BYTES = 1 << 18
};
enum { ROUND_TOGETHER = 16 }; /* so many rows are rounded by all threads */
_Static_assert(I8_BLOCK % LANES == 0, "a block is whole vectors");

static int64_t i8_blocks(int64_t in) {
    return (in + I8_BLOCK - 1) / I8_BLOCK;
}

static int64_t i8_panels(int64_t out) {
    return (out + I8_PANEL - 1) / I8_PANEL;
}

static int64_t i8_row_bytes(int64_t in) {
    return ((2 * I8_BLOCK + 8) * i8_blocks(in) + 63) / 64 * 64;
}

/* Rows that a task rounds into its scratch, whole tiles of 16: 64 up to 7,936 inputs. */
static int64_t i8_rows(int64_t row_bytes) {
    const int64_t fit = (int64_t)DEVICE_SCRATCH_BYTES / row_bytes / I8_TILE_ROWS * I8_TILE_ROWS;
    return fit < ROWS ? fit : ROWS;
}

static int64_t i8_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* The largest absolute value, as bits: of positive floats they have the order of the numbers, and NaN is above all. */
SIMD int32_t largest_bits(const float *x) {
    vi most = {0};
    for (int i = 0; i < I8_BLOCK; i += LANES) {
        vi bits = (vi)v_load(x + i) & 0x7fffffff;
        const vi more = bits > most;
        most = (more & bits) | (~more & most);
    }
    int32_t best = 0;
    for (int i = 0; i < LANES; i++)
        best = most[i] > best ? most[i] : best;
    return best;
}

/* ---- x ---- */

typedef int8_t v_bytes __attribute__((vector_size(LANES)));
typedef int16_t v_shorts __attribute__((vector_size(LANES * 2)));

struct rounded_block {
    unsigned char *high, *low; /* not split: low is NULL */
    float *scale;
    int32_t *offset;
};

/* LANES integers of a block; 1.5 * 2^23 rounds to the nearest integer, halves to even. The product is rounded before: a
 * compiler that fuses it with the sum, or does not, would make other integers at some halves. */
SIMD vi round_lanes(const float *x, float factor) {
    const float shift = 12582912.0f;
    vf steps = v_load(x) * factor;
#if defined(__x86_64__)
    __asm__("" : "+v"(steps));
#elif defined(__aarch64__)
    __asm__("" : "+w"(steps));
#endif
    return (vi)(steps + shift) - (vi)v_set(shift);
}

SIMD void round_block(struct rounded_block to, const float *x, bool split) {
    const int32_t bits = largest_bits(x);
    const float factor = i8_scale(to.scale, bits, LIMIT);
    vi sum = {0};
    for (int i = 0; i < I8_BLOCK; i += LANES) {
        const vi q = factor == 0.0f ? (vi){0} : round_lanes(x + i, factor);
        sum += q;
        if (split) {
            const v_bytes high = __builtin_convertvector((q + HALF) >> 8, v_bytes),
                          low = __builtin_convertvector(q, v_bytes);
            memcpy(to.high + i, &high, sizeof high);
            memcpy(to.low + i, &low, sizeof low);
        } else {
            const v_shorts number = __builtin_convertvector(q, v_shorts);
            memcpy(to.high + 2 * (size_t)i, &number, sizeof number);
        }
    }
    int32_t all = 0;
    for (int i = 0; i < LANES; i++)
        all += sum[i];
    *to.offset = -HALF * all;
}

SIMD void round_row(unsigned char *to, const float *x, int64_t in, bool split) {
    const int64_t blocks = i8_blocks(in);
    float *scale = (float *)(void *)(to + 2 * I8_BLOCK * blocks);
    int32_t *offset = (int32_t *)(void *)(scale + blocks);
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t at = b * I8_BLOCK, n = in - at;
        _Alignas(64) float part[I8_BLOCK];
        const float *from = x + at;
        if (n < I8_BLOCK) {
            memset(part, 0, sizeof part);
            memcpy(part, from, (size_t)n * sizeof *part);
            from = part;
        }
        const struct rounded_block block = {to + (split ? at : 2 * at), to + I8_BLOCK * blocks + at, scale + b,
                                            offset + b};
        round_block(block, from, split);
    }
}

static void round_rows(unsigned char *to, struct mat x, struct matmul_i8_method method) {
    const int64_t size = i8_row_bytes(x.cols);
    for (int64_t r = 0; r < x.rows; r++, to += size)
        if (method.split)
            round_row(to, mat_row(x, r), x.cols, true);
        else
            round_row(to, mat_row(x, r), x.cols, false);
}

/* ---- w ---- */

struct pack_task {
    unsigned char *to;
    struct mat w;
};

static void pack_block(unsigned char *to, float *scale, const float *w, int64_t in) {
    _Alignas(64) float part[I8_BLOCK] = {0};
    memcpy(part, w, (size_t)i8_min(in, I8_BLOCK) * sizeof *part);
    const int32_t bits = largest_bits(part);
    const float factor = i8_scale(scale, bits, 127);
    for (int i = 0; i < I8_BLOCK; i++) {
        const int32_t q = factor > 0.0f ? (int32_t)lrintf(part[i] * factor) : 0;
        to[i / 4 * I8_STEP + i % 4] = (unsigned char)(q + HALF);
    }
}

static void pack_panels(void *context, int64_t begin, int64_t end, int worker) {
    const struct pack_task *t = context;
    const int64_t blocks = i8_blocks(t->w.cols);
    (void)worker;
    for (int64_t p = begin; p < end; p++)
        for (int64_t b = 0; b < blocks; b++) {
            unsigned char *block = t->to + (p * blocks + b) * I8_BLOCK_BYTES;
            float *scale = (float *)(void *)(block + I8_STEPS * I8_STEP);
            for (int64_t o = 0; o < I8_PANEL; o++) {
                const bool there = p * I8_PANEL + o < t->w.rows;
                const int64_t at = b * I8_BLOCK;
                const float *from = there ? mat_row(t->w, p * I8_PANEL + o) + at : NULL;
                const float none = 0.0f;
                pack_block(block + 4 * o, scale + o, there ? from : &none, there ? t->w.cols - at : 1);
            }
        }
}

static void i8_pack(struct device *dev, void *packed, struct mat w) {
    assert(w.type == DTYPE_F32);
    threads_for(dev->threads, i8_panels(w.rows), 16, pack_panels, &(struct pack_task){packed, w});
}

struct unpack_task {
    uint16_t *to; /* [rows, cols] */
    struct mat w;
};

static void unpack_panels(void *context, int64_t begin, int64_t end, int worker) {
    const struct unpack_task *t = context;
    const int64_t blocks = i8_blocks(t->w.cols), cols = t->w.cols;
    (void)worker;
    for (int64_t row = begin * I8_PANEL; row < i8_min(end * I8_PANEL, t->w.rows); row++)
        for (int64_t b = 0; b < blocks; b++) {
            const unsigned char *block =
                (const unsigned char *)t->w.data + (row / I8_PANEL * blocks + b) * I8_BLOCK_BYTES;
            const float scale = ((const float *)(const void *)(block + I8_STEPS * I8_STEP))[row % I8_PANEL];
            const unsigned char *from = block + row % I8_PANEL * 4;
            for (int64_t i = 0; i < i8_min(I8_BLOCK, cols - b * I8_BLOCK); i++)
                t->to[row * cols + b * I8_BLOCK + i] =
                    half_to_bf16(scale * (float)(from[i / 4 * I8_STEP + i % 4] - HALF));
        }
}

static void i8_unpack(struct device *dev, uint16_t *numbers, struct mat w) {
    assert(w.type == DTYPE_I8);
    threads_for(dev->threads, i8_panels(w.rows), 16, unpack_panels, &(struct unpack_task){numbers, w});
}

/* ---- products ---- */

static void plain_panel(const struct matmul_i8_rows *p, int64_t row, int64_t panel) {
    const unsigned char *x = p->x + row * p->row_bytes, *w = p->w + panel * p->blocks * I8_BLOCK_BYTES;
    const int16_t *number = (const int16_t *)(const void *)x;
    const float *x_scale = matmul_i8_scales(p, x);
    const int32_t *offset = matmul_i8_offsets(p, x);
    float total[I8_PANEL] = {0};
    for (int64_t b = 0; b < p->blocks; b++, w += I8_BLOCK_BYTES, number += I8_BLOCK) {
        const float *w_scale = (const float *)(const void *)(w + I8_STEPS * I8_STEP);
        int32_t sum[I8_PANEL];
        for (int o = 0; o < I8_PANEL; o++)
            sum[o] = offset[b];
        for (int s = 0; s < I8_STEPS; s++)
            for (int o = 0; o < I8_PANEL; o++)
                for (int i = 0; i < 4; i++)
                    sum[o] += w[s * I8_STEP + 4 * o + i] * number[4 * s + i];
        for (int o = 0; o < I8_PANEL; o++)
            total[o] = fmaf((float)sum[o], w_scale[o] * x_scale[b], total[o]);
    }
    float *y = mat_row(p->y, row) + panel * I8_PANEL;
    const int64_t n = i8_min(I8_PANEL, p->y.cols - panel * I8_PANEL);
    for (int64_t o = 0; o < n; o++)
        y[o] = p->accumulate ? y[o] + total[o] : total[o];
}

static void plain_panels(const struct matmul_i8_rows *p, int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; panel++)
        for (int64_t row = 0; row < p->y.rows; row++)
            plain_panel(p, row, panel);
}

static struct matmul_i8_method i8_method(enum matmul_i8_path path) {
    if (path == I8_PLAIN) return (struct matmul_i8_method){.panels = plain_panels};
    return matmul_i8_vectors(path);
}

static bool i8_has(enum matmul_i8_path path) {
    return i8_method(path).panels != NULL;
}

static enum matmul_i8_path i8_open(void) {
    enum matmul_i8_path best = I8_PATHS - 1;
    while (!i8_has(best))
        best--;
    return best;
}

struct i8_task {
    struct device *dev;
    struct matmul_i8_method method;
    struct matmul_i8_rows rows; /* x: rounded, or NULL */
    struct mat x;
};

static void i8_round(void *context, int64_t begin, int64_t end, int worker) {
    const struct i8_task *t = context;
    (void)worker;
    round_rows((unsigned char *)device_scratch(t->dev, 0) + begin * t->rows.row_bytes,
               mat_rows(t->x, begin, end - begin), t->method);
}

static void i8_range(void *context, int64_t begin, int64_t end, int worker) {
    const struct i8_task *t = context;
    (void)worker;
    t->method.panels(&t->rows, begin, end);
}

static void i8_tasks(void *context, int64_t begin, int64_t end, int worker) {
    const struct i8_task *t = context;
    const int64_t panels = i8_panels(t->rows.y.cols), across = (panels + PANELS - 1) / PANELS;
    const int64_t rows = i8_rows(t->rows.row_bytes);
    unsigned char *scratch = device_scratch(t->dev, worker);
    int64_t rounded = -1;
    for (int64_t i = begin; i < end; i++) {
        const int64_t down = i / across * rows, n = i8_min(rows, t->x.rows - down), first = i % across * PANELS;
        struct matmul_i8_rows part = t->rows;
        part.y = mat_rows(part.y, down, n);
        part.x = scratch;
        if (down != rounded) round_rows(scratch, mat_rows(t->x, down, n), t->method);
        rounded = down;
        t->method.panels(&part, first, i8_min(first + PANELS, panels));
    }
}

static void i8_forward(struct device *dev, struct mat y, struct mat x, struct mat w, bool accumulate) {
    const int64_t row_bytes = i8_row_bytes(x.cols), blocks = i8_blocks(x.cols), panels = i8_panels(y.cols);
    const int64_t panel_bytes = blocks * I8_BLOCK_BYTES, threads = threads_count(dev->threads);
    const int64_t rows = i8_rows(row_bytes);
    assert(rows > 0); /* matmul.h: at most 31,744 inputs */
    struct i8_task t = {dev, i8_method(device_cpu(dev)->i8), {y, NULL, w.data, row_bytes, blocks, accumulate}, x};
    if (y.rows == 0) return;
    if (y.rows <= ROWS && y.rows * row_bytes <= SHARED_BYTES) {
        const int64_t ranges = threads * (panels * panel_bytes / (threads * RANGE_BYTES) + 1);
        const int64_t share = (panels + ranges - 1) / ranges;
        t.rows.x = device_scratch(dev, 0);
        threads_for(y.rows < ROUND_TOGETHER ? NULL : dev->threads, y.rows, (y.rows + threads - 1) / threads, i8_round,
                    &t);
        threads_for(dev->threads, panels, share, i8_range, &t);
    } else {
        threads_for(dev->threads, (y.rows + rows - 1) / rows * ((panels + PANELS - 1) / PANELS), 1, i8_tasks, &t);
    }
}

static int64_t i8_scratch_bytes(int64_t rows, int64_t in) {
    return rows * i8_row_bytes(in);
}

static void i8_some(enum matmul_i8_path path, struct mat y, struct mat x, struct mat w, int64_t first, void *scratch) {
    const struct matmul_i8_method method = i8_method(path);
    const int64_t blocks = i8_blocks(x.cols);
    const unsigned char *from = (const unsigned char *)w.data + first / I8_PANEL * blocks * I8_BLOCK_BYTES;
    const struct matmul_i8_rows rows = {y, scratch, from, i8_row_bytes(x.cols), blocks, false};
    assert(first % I8_PANEL == 0 && x.cols == w.cols);
    round_rows(scratch, x, method);
    method.panels(&rows, 0, i8_panels(y.cols));
}

const struct matmul_i8 matmul_i8 = {.open = i8_open,
                                    .has = i8_has,
                                    .pack = i8_pack,
                                    .unpack = i8_unpack,
                                    .forward = i8_forward,
                                    .some = i8_some,
                                    .scratch_bytes = i8_scratch_bytes};
