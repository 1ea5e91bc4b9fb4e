/* blas_library_internal.h -- loads cuBLASLt while a GPU is opened. */
#pragma once

/* Loads the library, as blas_cuda_open does otherwise. For any thread. */
void blas_cuda_load(void);
