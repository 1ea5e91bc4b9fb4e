/* twins.h -- shared by the tests of ops: random inputs, outputs between guard bands (guarded.h), and the tolerance.
 *
 * An op is right when |twin - ref| <= 2 |naive float loop - ref| + 1e-6 (of the value, if it is above 1), with the
 * naive loop's largest error over the tensor: a tolerance is derived, not tuned. Attention adds the effect of one
 * rounding of a float score on its exponential (score_slack), which exceeds the rest for scores in the hundreds. Each
 * case runs on 1 and on 2 threads, and must give equal bits. */
#pragma once
#include "base/rng.h"
#include "kernels/ops.h"
#include "tests/ref/ref.h"
#include "tests/test.h"
#include "tests/twins/guarded.h"

enum { DEVICES = 2 };

static struct device *twin_device[DEVICES];      /* 1 thread, 2 threads */
static struct rng twin_rng;

static inline void twins_open(int argc, char **argv) {
    test_start(argc, argv, 1);
    twin_rng = rng_make(test_seed(), 7);
    for (int i = 0; i < DEVICES; i++) CHECK_OK(device_open(&twin_device[i], "cpu", i + 1));
}
static inline int twins_close(void) {
    for (int i = 0; i < DEVICES; i++) device_close(twin_device[i]);
    return test_done();
}

static inline float *random_array(int64_t n, float scale) {
    float *a = malloc((size_t)(n + 1) * sizeof *a);
    for (int64_t i = 0; i < n; i++) a[i] = scale * rng_normal(&twin_rng);
    return a;
}
static inline float *zero_array(int64_t n) { return calloc((size_t)n + 1, sizeof(float)); }
static inline double *double_array(int64_t n) { return calloc((size_t)n + 1, sizeof(double)); }

/* Rounds towards zero to numbers that are exact in bf16, and returns them as bf16. */
static inline uint16_t *truncate_to_bf16(float *a, int64_t n) {
    uint16_t *halves = calloc((size_t)n + 1, sizeof *halves);
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, a + i, sizeof bits);
        halves[i] = (uint16_t)(bits >> 16);
        bits &= 0xffff0000u;
        memcpy(a + i, &bits, sizeof bits);
    }
    return halves;
}

/* Gradients of a softmax or a norm are differences of terms that may be far larger than the result. The twin has
 * rounded the values that forward kept (lse, rstd) and its exponents (2 ulp); the naive loop has not. So the tolerance
 * is doubled, and its constant is proportional to the size of the numbers. */
struct tolerance { double factor, constant, relative, slack; };   /* slack: of score_slack */
static const struct tolerance tolerance_gradient = {4.0, 2e-6, 1e-6, 0.0};

static inline void check_twin(const char *file, int line, const float *twin, const float *naive, const double *ref,
                              int64_t n, struct tolerance t) {
    double worst = 0.0, largest = 0.0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(ref[i]))
            worst = fmax(worst, fabs((double)naive[i] - ref[i])), largest = fmax(largest, fabs(ref[i]));
    double tolerance = t.factor * worst + t.relative * largest + t.slack;
    for (int64_t i = 0; i < n; i++) {
        double own = isfinite(ref[i]) ? t.constant * fmax(1.0, fabs(ref[i])) : 0.0;
        bool good = isfinite(ref[i]) ? fabs((double)twin[i] - ref[i]) <= tolerance + own : (double)twin[i] == ref[i];
        if (good) continue;
        fprintf(stderr, "index %lld of %lld: %.9g, ref %.9g, tolerance %g\n", (long long)i, (long long)n,
                (double)twin[i], ref[i], tolerance + own);
        test_fail(file, line, "op differs from its reference");
    }
}
/* Queries and keys drawn with this scale have scores of deviation scale^2; 5 deviations, one rounding. */
static inline double score_slack(float scale) { return 5.0 * scale * scale * 0x1p-23; }
static inline struct tolerance tolerance_forward(double slack) { return (struct tolerance){2.0, 1e-6, 0.0, slack}; }
#define CHECK_TWIN(twin, naive, ref, n) check_twin(__FILE__, __LINE__, twin, naive, ref, n, tolerance_forward(0.0))
#define CHECK_ATTENTION(twin, naive, ref, n, scale)                                                                    \
    check_twin(__FILE__, __LINE__, twin, naive, ref, n, tolerance_forward(score_slack(scale)))
#define CHECK_GRADIENT(twin, naive, ref, n) check_twin(__FILE__, __LINE__, twin, naive, ref, n, tolerance_gradient)
#define CHECK_BITS(a, b, n) CHECK(memcmp(a, b, (size_t)(n) * sizeof *(a)) == 0)
