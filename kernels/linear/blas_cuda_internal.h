/* blas_cuda_internal.h -- a product of two matrices by cuBLASLt, the same bits each time; for the twins that are made
 * of products. */
#pragma once
#include "kernels/device/device_cuda_internal.h"
#include <stdbool.h>

/* y = scale * a b (+ y), row-major: a is [n, k] (transposed: given as [k, n]), b is [k, m] (transposed: given as
 * [m, k]). a and b have one type, y that type or float32. Sums run in float32, never in TF32. */
struct blas_product {
    struct mat y, a, b, base; /* base: what is added when `accumulate`, of y's type and shape; data NULL: y itself */
    bool a_transposed, b_transposed, accumulate;
    float scale;
    int64_t rows_as;      /* 0, or: take the kernel that suits this number of rows, so that rows of y have the same bits
                           * however many there are */
};
void blas_cuda_product(struct device *dev, const char *op, struct blas_product p);
