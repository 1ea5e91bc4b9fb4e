/* matmul_i8.h -- the CPU twin's products with 8-bit weights (matmul.h, DTYPE_I8).
 *
 * A panel has 16 outputs. For each block of 64 inputs it holds 16 vectors of [16 outputs][4 inputs] numbers, and then
 * 16 float32 scales. A number is the rounded weight + 128, so that one instruction multiplies it with a signed number.
 *
 * x is rounded, too: a block of a row is a float32 scale and 64 integers up to 32512. A block whose numbers are all
 * below 1e-30 counts as zero. An infinity or NaN in a block makes every y of the row NaN; in a weight, those of its
 * output.
 *
 * The sum of a block is an exact 32-bit integer. y is one chain of fused multiply-adds over the blocks, in order. So
 * all paths give the same bits, whatever rows, columns and threads a call has. */
#pragma once
#include "kernels/device/device.h"
#include "kernels/linear/matmul.h"
#include <math.h>
#include <string.h>

enum { I8_PANEL = MATMUL_I8_PANEL, I8_BLOCK = MATMUL_I8_BLOCK };
enum { I8_STEP = 4 * I8_PANEL, I8_STEPS = I8_BLOCK / 4, I8_BLOCK_BYTES = I8_STEPS * I8_STEP + 4 * I8_PANEL };

/* The scale of a block, and the factor that makes its numbers integers up to `limit`. bits: of its largest magnitude.
 * Factor 0: all integers are 0, because the numbers are zero, tiny, or not all finite (scale NaN). */
static inline float i8_scale(float *scale, int32_t bits, float limit) {
    float largest;
    memcpy(&largest, &bits, sizeof largest);
    const bool finite = bits < 0x7f800000, zero = !finite || largest < 1e-30f;
    *scale = !finite ? NAN : zero ? 0.0f : largest * (1.0f / limit);
    return zero ? 0.0f : limit / largest;
}
/* Panels of w by rows of x that were rounded. A row begins with its integers: int16, or, for a path with `split`, the
 * upper bytes of all and then the lower bytes, both signed. Then come the scales of its blocks, and -128 times the sum
 * of each block's integers. */
struct matmul_i8_rows {
    struct mat y;
    const unsigned char *x, *w;
    int64_t row_bytes, blocks;
    bool accumulate;
};
static inline const float *matmul_i8_scales(const struct matmul_i8_rows *p, const unsigned char *row) {
    return (const float *)(const void *)(row + 2 * I8_BLOCK * p->blocks);
}
static inline const int32_t *matmul_i8_offsets(const struct matmul_i8_rows *p, const unsigned char *row) {
    return (const int32_t *)(const void *)(row + (2 * I8_BLOCK + 4) * p->blocks);
}

/* Computes y's columns of the panels begin .. end-1. */
typedef void matmul_i8_panels(const struct matmul_i8_rows *p, int64_t begin, int64_t end);

/* A method to compute products, in order of preference. */
enum matmul_i8_path { I8_PLAIN, I8_AVX2, I8_AVX_VNNI, I8_AVX512_VNNI, I8_PATHS };
struct matmul_i8_method {
    matmul_i8_panels *panels;            /* NULL: the build or the processor does not have it */
    bool split;
};
/* matmul_vnni.c, or matmul_novnni.c: none. */
struct matmul_i8_method matmul_i8_vectors(enum matmul_i8_path path);

struct matmul_i8 {
    enum matmul_i8_path (*open)(void);   /* the best path of this processor */
    bool (*has)(enum matmul_i8_path path);
    void (*pack)(struct device *dev, void *packed, struct mat w);
    void (*unpack)(struct device *dev, uint16_t *numbers, struct mat w);
    void (*forward)(struct device *dev, struct mat y, struct mat x, struct mat w, bool accumulate);
    /* On this thread: the columns of y that begin at output `first`, a multiple of 16. scratch: scratch_bytes, aligned
     * to 64. */
    void (*some)(enum matmul_i8_path path, struct mat y, struct mat x, struct mat w, int64_t first, void *scratch);
    int64_t (*scratch_bytes)(int64_t rows, int64_t in);
};
extern const struct matmul_i8 matmul_i8;
