/* decode_rows_internal.h -- single kernels of a pass, for tests. Included inside extern "C". */
#pragma once
#include "kernels/decode_rows/decode_rows.h"

/* rows: 8, 16, 32 or 64, of which those without a text keep what o has. texts [rows], all else: memory of the device.
 * o [rows, d] bf16; q: float32, window [rows, 3d] (query, key, value), chunks [rows, d]. */
struct decode_rows_attention {
    void *o;
    const float *q;
    const struct decode_row *texts;
    int rows, d, heads, window, layer, group;
};
void decode_rows_run_window(struct device *dev, const struct decode_rows_attention *a);
void decode_rows_run_chunks(struct device *dev, const struct decode_rows_attention *a);

/* y = RMSNorm(x) w^T in float32 (norm given: x is float32), or y = base + x w^T (norm NULL: x is bf16).
 * x [rows, k], w [out, k] bf16, norm [k] bf16, base and y [rows, out] float32; y may be base. */
struct decode_rows_product_call {
    float *y;
    const float *base;
    const void *x, *norm, *w;
    int rows, k, out;
    float eps;
};
void decode_rows_run_product(struct device *dev, const struct decode_rows_product_call *c);
/* y [rows, f] bf16 = silu(gate) * up of RMSNorm(x) w^T; w [2 f, k]; c->out is f, c->y is not written. */
void decode_rows_run_swiglu(struct device *dev, void *y, const struct decode_rows_product_call *c);
