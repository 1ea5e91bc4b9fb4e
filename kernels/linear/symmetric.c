/* symmetric.c -- see symmetric.h. LAPACK is column-major: its upper half is the lower half of a row-major matrix, and
 * its columns are rows. */
#include "kernels/linear/symmetric.h"
#include "base/memory.h"
#ifdef DRT_OPENBLAS
#include <cblas.h>
#include <math.h>
#include <string.h>

/* Declared here, because not every OpenBLAS has the header of LAPACK's interface for C. */
extern void dsyevd_(const char *job, const char *half, const int *n, double *a, const int *stride, double *values,
                    double *work, const int *work_size, int *whole, const int *whole_size, int *info);

void symmetric_add(float *c, const float *x, int64_t n, int d, float by) {
    enum { ROWS = 1 << 20 }; /* of a call: its counts are int */
    for (int64_t at = 0, part; at < n; at += part) {
        part = n - at < ROWS ? n - at : ROWS;
        cblas_ssyrk(CblasRowMajor, CblasLower, CblasTrans, d, (int)part, by, x + at * d, d, 1, c, d);
    }
}

enum status symmetric_eigen(double *values, double *vectors, const double *a, int d) {
    const int size = 1 + 6 * d + 2 * d * d, whole_size = 3 + 5 * d;
    double *work = NULL;
    int *whole = NULL, info = 0;
    for (int i = 0; i < d; i++)
        for (int j = 0; j <= i; j++)
            if (!isfinite(a[(int64_t)i * d + j]))
                return fail(STATUS_INVALID, "a symmetric matrix has the number %g at %d, %d", a[(int64_t)i * d + j], i,
                            j);
    enum status s = memory_allocate(&work, (size_t)size);
    if (s == STATUS_OK) s = memory_allocate(&whole, (size_t)whole_size);
    if (s == STATUS_OK) {
        memcpy(vectors, a, (size_t)d * (size_t)d * sizeof *a);
        dsyevd_("V", "U", &d, vectors, &d, values, work, &size, whole, &whole_size, &info);
        if (info != 0) s = fail(STATUS_INVALID, "the eigenvalues of a matrix of %d rows were not found", d);
    }
    memory_free(work);
    memory_free(whole);
    return s;
}
#else /* kernels alone, on a machine without OpenBLAS */
void symmetric_add(float *c, const float *x, int64_t n, int d, float by) {
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < d; i++)
            for (int64_t j = 0; j <= i; j++)
                c[i * d + j] += by * x[r * d + i] * x[r * d + j];
}

enum status symmetric_eigen(double *values, double *vectors, const double *a, int d) {
    (void)values, (void)vectors, (void)a;
    return fail(STATUS_UNSUPPORTED, "eigenvalues of a matrix of %d rows: this program was built without OpenBLAS", d);
}
#endif
