/* blas_cpu.h -- a product of two views on the caller's thread: by OpenBLAS, or by a loop of our own where
 * OpenBLAS takes kernels for narrower registers than this build has. Debian 12's OpenBLAS 0.3.21 does so on processors
 * that it does not know: its SSE kernels reach a quarter of the speed on an Emerald Rapids Xeon. */
#pragma once
#include "kernels/device/device.h"
#include <assert.h>
#include <stdbool.h>

/* y = scale * a b + keep * y: a is [n, k] (transposed: given as [k, n]), b is [k, m] (transposed: given as [m, k]).
 * With keep 0 what stands in y is not read. */
struct blas_product { struct mat y, a, b; bool a_transposed, b_transposed; float scale, keep; };

void blas_cpu_open(void);                                 /* OpenBLAS is to make no threads of its own. Any thread */
const char *blas_cpu_name(void);                          /* what computes products here, for people */
/* The value of OPENBLAS_CORETYPE that suits this build; NULL: what OpenBLAS took does. */
const char *blas_cpu_wanted(void);
void blas_cpu_product(struct blas_product p);
void blas_cpu_product_own(struct blas_product p);         /* without OpenBLAS, whatever was chosen */
