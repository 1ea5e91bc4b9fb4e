/* decode_rows_nocuda.c -- stands in for decode_rows_cuda.cu in a build without CUDA: no device has the kernels. */
#include "kernels/decode_rows/decode_rows_internal.h"
#include <assert.h>

enum status decode_rows_create(struct decode_rows **out, struct device *dev, const struct decode_step_config *config) {
    (void)dev, (void)config;
    *out = NULL;
    return STATUS_OK;
}

void decode_rows_free(struct decode_rows *r) {
    assert(!r);
}

void decode_rows_run(struct decode_rows *r, const struct decode_row *rows, int n) {
    (void)r, (void)rows, (void)n;
    assert(!"decode_rows_create gave none");
}

void decode_rows_run_window(struct device *dev, const struct decode_rows_attention *a) {
    (void)dev, (void)a;
    assert(!"decode_rows_create gave none");
}

void decode_rows_run_chunks(struct device *dev, const struct decode_rows_attention *a) {
    (void)dev, (void)a;
    assert(!"decode_rows_create gave none");
}

void decode_rows_run_product(struct device *dev, const struct decode_rows_product_call *c) {
    (void)dev, (void)c;
    assert(!"decode_rows_create gave none");
}

void decode_rows_run_swiglu(struct device *dev, void *y, const struct decode_rows_product_call *c) {
    (void)dev, (void)y, (void)c;
    assert(!"decode_rows_create gave none");
}
