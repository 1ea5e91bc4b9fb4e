/* symmetric.h -- symmetric matrices on the host, for statistics of some hundred dimensions (OpenBLAS and its LAPACK).
 *
 * Only the lower halves of a and c are read and written. Row-major. Calls do not start threads. */
#pragma once
#include "base/status.h"
#include <stdint.h>

/* c [d, d] += by x' x for rows x [n, d], in float32. */
void symmetric_add(float *c, const float *x, int64_t n, int d, float by);
/* Eigenvalues of a [d, d], ascending, and its eigenvectors as the rows of vectors [d, d]; d is at most 8192.
 * STATUS_INVALID: a has a number that is not finite, or the iteration fails. */
enum status symmetric_eigen(double *values, double *vectors, const double *a, int d);
