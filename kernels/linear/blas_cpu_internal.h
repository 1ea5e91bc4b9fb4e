/* blas_cpu_internal.h -- a product of two views by OpenBLAS, on the caller's thread. */
#pragma once
#include "kernels/device/device.h"
#include <assert.h>
#include <cblas.h>
#include <limits.h>
#include <stdbool.h>

/* y = scale * a b + keep * y: a is [n, k] (transposed: given as [k, n]), b is [k, m] (transposed: given as [m, k]).
 * With keep 0 what stands in y is not read. */
struct blas_product { struct mat y, a, b; bool a_transposed, b_transposed; float scale, keep; };

static inline void blas_cpu_product(struct blas_product p) {
    int64_t depth = p.a_transposed ? p.a.rows : p.a.cols;
    assert(depth == (p.b_transposed ? p.b.cols : p.b.rows) && p.y.rows == (p.a_transposed ? p.a.cols : p.a.rows) &&
           p.y.cols == (p.b_transposed ? p.b.rows : p.b.cols));
    assert(depth <= INT_MAX && p.y.rows <= INT_MAX && p.y.stride <= INT_MAX && p.a.stride <= INT_MAX &&
           p.b.stride <= INT_MAX);
    cblas_sgemm(CblasRowMajor, p.a_transposed ? CblasTrans : CblasNoTrans, p.b_transposed ? CblasTrans : CblasNoTrans,
                (int)p.y.rows, (int)p.y.cols, (int)depth, p.scale, (const float *)p.a.data, (int)p.a.stride,
                (const float *)p.b.data, (int)p.b.stride, p.keep, (float *)p.y.data, (int)p.y.stride);
}
