/* tolerance.h -- a result of a GPU is right if |twin - ref| <= 3 |naive - ref| + 1e-6, with the naive loop's result
 * rounded to the output's storage type, plus one rounding of the largest result. (tests/twins/twins.h has 2. A GPU sums
 * in another order than the loop, and its largest error was 2.3 times the loop's largest.) */
#pragma once
#include "base/half.h"
#include "kernels/device/device.h"
#include "tests/ref/ref.h"
#include "tests/ref/ref_backward.h"
#include "tests/test.h"

static inline float as_type(float x, enum dtype type) {
    return type == DTYPE_BF16 ? half_from_bf16(half_to_bf16(x)) : type == DTYPE_F16 ? half_from_f16(half_to_f16(x)) : x;
}
static inline float store_bf16(float x) { return as_type(x, DTYPE_BF16); }

static inline void check_on(const char *file, int line, const char *what, const float *twin, const float *naive,
                            const double *ref, int64_t n, enum dtype type) {
    double worst = 0.0, error = 0.0, largest = 0.0;
    int64_t position = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(ref[i])) continue;
        worst = fmax(worst, fabs((double)as_type(naive[i], type) - ref[i])), largest = fmax(largest, fabs(ref[i]));
    }
    for (int64_t i = 0; i < n; i++) {
        double e = fabs((double)twin[i] - ref[i]);
        if (!(e <= error)) error = e, position = i;
        if (isnan(e)) break;
    }
    double tolerance = 3.0 * worst + 1e-6 + 0x1p-24 * largest;
    if (error <= tolerance) return;
    fprintf(stderr, "%s: index %lld of %lld: %.9g, ref %.9g, tolerance %g\n", what, (long long)position, (long long)n,
            (double)twin[position], ref[position], tolerance);
    test_fail(file, line, "op differs from its reference");
}
#define CHECK_ON(what, twin, naive, ref, n, type) check_on(__FILE__, __LINE__, what, twin, naive, ref, n, type)
#define CHECK_SAME(a, b, n) CHECK(memcmp(a, b, (size_t)(n) * sizeof *(a)) == 0)

/* Each number within `part` of the greatest reference. */
static inline void check_part(const char *what, const float *twin, const double *ref, int64_t n, double part) {
    double largest = 0, error = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(ref[i]));
    for (int64_t i = 0; i < n; i++) {
        double e = fabs((double)twin[i] - ref[i]);
        if (!(e <= error)) error = e, at = i;
        if (isnan(e)) break;
    }
    if (error <= part * largest) return;
    fprintf(stderr, "%s: index %lld of %lld: %.9g, ref %.9g, tolerance %g\n", what, (long long)at, (long long)n,
            (double)twin[at], ref[at], part * largest);
    test_fail(__FILE__, __LINE__, "a result differs from its reference");
}
