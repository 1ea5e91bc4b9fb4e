/* blas_cpu.h -- a product of two views on the caller's thread: by OpenBLAS, or by this program's loop if OpenBLAS
 * selects kernels for narrower registers than this build uses. Debian 12's OpenBLAS 0.3.21 does so on processors that
 * it does not know: its SSE kernels reach a quarter of the speed on an Emerald Rapids Xeon. */
#pragma once
#include "kernels/device/device.h"
#include <assert.h>
#include <stdbool.h>

/* y = scale * a b + keep * y: a is [n, k] (transposed: given as [k, n]), b is [k, m] (transposed: given as [m, k]).
 * With keep 0 the old y is not read. */
struct blas_product { struct mat y, a, b; bool a_transposed, b_transposed; float scale, keep; };

/* keeps OpenBLAS from making threads; any thread may call it */
void blas_cpu_open(void);
const char *blas_cpu_name(void);                          /* a readable name of what computes products here */
/* The value of OPENBLAS_CORETYPE that suits this build; NULL: OpenBLAS's own choice suits it. */
const char *blas_cpu_wanted(void);
void blas_cpu_product(struct blas_product p);
void blas_cpu_product_own(struct blas_product p);         /* always without OpenBLAS */
