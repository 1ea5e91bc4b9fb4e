/* cblas_plain.c -- row-major products in plain loops: right, and slow. */
#include "cblas.h"
#include <assert.h>
#include <stddef.h>

void cblas_sgemm(enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE transpose_a, enum CBLAS_TRANSPOSE transpose_b, int m,
                 int n, int k, float alpha, const float *a, int lda, const float *b, int ldb, float beta, float *c,
                 int ldc) {
    assert(order == CblasRowMajor);
    for (size_t i = 0; i < (size_t)m; i++)
        for (size_t j = 0; j < (size_t)n; j++) {
            float sum = 0.0f, *out = c + i * (size_t)ldc + j;
            for (size_t t = 0; t < (size_t)k; t++)
                sum += (transpose_a == CblasTrans ? a[t * (size_t)lda + i] : a[i * (size_t)lda + t]) *
                       (transpose_b == CblasTrans ? b[j * (size_t)ldb + t] : b[t * (size_t)ldb + j]);
            *out = alpha * sum + (beta == 0.0f ? 0.0f : beta * *out);
        }
}

void openblas_set_num_threads(int threads) {
    (void)threads;
}
