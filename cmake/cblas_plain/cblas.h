/* cblas.h -- the part of CBLAS that kernels/ calls, for machines without OpenBLAS (cmake/kernels_only.cmake). */
#pragma once
enum CBLAS_ORDER { CblasRowMajor = 101, CblasColMajor = 102 };
enum CBLAS_TRANSPOSE { CblasNoTrans = 111, CblasTrans = 112 };

void cblas_sgemm(enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE transpose_a, enum CBLAS_TRANSPOSE transpose_b, int m,
                 int n, int k, float alpha, const float *a, int lda, const float *b, int ldb, float beta, float *c,
                 int ldc);
void openblas_set_num_threads(int threads);
