/* matmul_bf16_plain.c -- the rounded products of matmul_bf16.c in plain C, with the same bits, for processors without
 * AVX512_BF16.
 *
 * VDPBF16PS adds two products to a sum by two fused multiply-adds, first that of the second inputs of the pair, each
 * rounded to nearest even. It takes subnormal inputs as zeros and flushes subnormal sums; a program's rounding mode has
 * no effect. (Intel's manual; an AMD Zen 5 gave these bits for 16 million random pairs.) Weights are packed and sums
 * are divided as there. A task is a range of rows of y. Bound by arithmetic: docs/kernels/linear.md. */
#include "base/half.h"
#include "base/minmax.h"
#include "kernels/device/device_internal.h"
#include "kernels/linear/matmul_bf16.h"
#include <string.h>

enum { PANEL = 64, DEPTH_MAX = 4096 }; /* as in matmul_bf16.c */
_Static_assert(DEPTH_MAX * sizeof(float) <= DEVICE_SCRATCH_BYTES, "a row's scratch");

static bool plain_open(void) {
    return true;
}

static int64_t plain_pairs(int64_t in) {
    return (in + 1) / 2;
}

static int64_t plain_panels(int64_t out) {
    return (out + PANEL - 1) / PANEL;
}

/* Of bits: a subnormal number becomes a zero of its sign. */
static inline uint32_t plain_flush(uint32_t bits) {
    return bits & 0x7f800000u ? bits : bits & 0x80000000u;
}

static inline float plain_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t plain_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline uint32_t plain_round(float x) {
    return half_to_bf16(plain_float(plain_flush(plain_bits(x))));
}

/* ---- packing: [panels][pairs][PANEL] ---- */

static int64_t plain_packed_elements(int64_t out, int64_t in) {
    return plain_panels(out) * PANEL * plain_pairs(in);
}

static void plain_pack(float *packed, struct mat w) {
    uint32_t *to = (uint32_t *)(void *)packed;
    for (int64_t first = 0; first < w.rows; first += PANEL)
        for (int64_t i = 0; i < w.cols; i += 2)
            for (int64_t o = first; o < first + PANEL; o++) {
                const float *row = o < w.rows ? mat_row(w, o) : NULL;
                const uint32_t low = row ? plain_round(row[i]) : 0,
                               high = row && i + 1 < w.cols ? plain_round(row[i + 1]) : 0;
                *to++ = low | high << 16;
            }
}

/* ---- products ---- */

struct plain_task {
    struct device *dev;
    struct mat y, x;
    const uint32_t *packed;
    bool accumulate;
};

/* sums [PANEL] of `pairs` pairs, which begin at zero. */
static void plain_panel(float *sums, const float *x, const uint32_t *w, int64_t pairs) {
    memset(sums, 0, PANEL * sizeof *sums);
    for (int64_t i = 0; i < pairs; i++, w += PANEL)
        for (int o = 0; o < PANEL; o++) {
            const float high = plain_float(w[o] & 0xffff0000u), low = plain_float(w[o] << 16);
            const float sum = plain_float(plain_flush(plain_bits(__builtin_fmaf(x[2 * i + 1], high, sums[o]))));
            sums[o] = plain_float(plain_flush(plain_bits(__builtin_fmaf(x[2 * i], low, sum))));
        }
}

static void plain_row(const struct plain_task *t, float *x, int64_t row) {
    const int64_t in = t->x.cols, pairs = plain_pairs(in);
    float *y = mat_row(t->y, row), sums[PANEL];
    const float *from = mat_row(t->x, row);
    for (int64_t at = 0; at < in; at += DEPTH_MAX) {
        const int64_t depth = min_i64(DEPTH_MAX, in - at);
        for (int64_t i = 0; i < depth; i++)
            x[i] = plain_float(plain_round(from[at + i]) << 16);
        if (depth % 2) x[depth] = 0;
        for (int64_t p = 0; p < plain_panels(t->y.cols); p++) {
            plain_panel(sums, x, t->packed + (p * pairs + at / 2) * PANEL, plain_pairs(depth));
            for (int64_t o = 0; o < min_i64(PANEL, t->y.cols - p * PANEL); o++)
                y[p * PANEL + o] = t->accumulate || at > 0 ? y[p * PANEL + o] + sums[o] : sums[o];
        }
    }
}

static void plain_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct plain_task *t = context;
    for (int64_t row = begin; row < end; row++)
        plain_row(t, (float *)(void *)device_scratch(t->dev, worker), row);
}

static void plain_forward_packed(struct device *dev, struct mat y, struct mat x, const float *packed, bool accumulate) {
    struct plain_task t = {
        .dev = dev, .y = y, .x = x, .packed = (const uint32_t *)(const void *)packed, .accumulate = accumulate};
    threads_for(dev->threads, y.rows, 1, plain_rows, &t);
}

const struct matmul_bf16 matmul_bf16_plain = {.open = plain_open,
                                              .packed_elements = plain_packed_elements,
                                              .pack = plain_pack,
                                              .forward_packed = plain_forward_packed};
