/* test_ratio.c -- the interval of a ratio of sums: by hand, and by how often it contains the true ratio. */
#include "base/rng.h"
#include "tools/shared/ratio.h"

#include "tests/test.h"

static void test_by_hand(void) {
    /* R: n = 3, r = 6/12, residuals 0.5, -1, 0.5: se = sqrt(1.5 * 3/2) / 12 = 0.125; t(2) = 4.303. */
    struct ratio r = ratio_of((double[]){1.5, 1, 3.5}, (double[]){2, 4, 6}, 3);
    CHECK(fabs(r.value - 0.5) < 1e-12);
    CHECK(fabs(r.low - (0.5 - 4.303 * 0.125)) < 1e-9);
    CHECK(fabs(r.high - (0.5 + 4.303 * 0.125)) < 1e-9);
    r = ratio_of((double[]){3}, (double[]){4}, 1);
    CHECK(r.value == 0.75 && r.low > r.high);
    r = ratio_of((double[]){1, 2, 3}, (double[]){2, 4, 6}, 3); /* no spread, no width */
    CHECK(fabs(r.high - r.low) < 1e-12);
    r = ratio_of(NULL, NULL, 0);
    CHECK(isnan(r.value) && r.low > r.high);
    /* statsmodels: proportion_confint(8, 10, method="wilson"); of 10 of 10 it is 10 / (10 + z * z) .. 1 */
    r = ratio_share(8, 10);
    CHECK(r.value == 0.8 && fabs(r.low - 0.490162) < 1e-6 && fabs(r.high - 0.943318) < 1e-6);
    r = ratio_share(10, 10);
    CHECK(r.value == 1 && fabs(r.low - 0.722467) < 1e-6 && r.high == 1);
    r = ratio_share(0, 1);
    CHECK(r.value == 0 && r.low < 1e-12 && fabs(r.high - 0.793451) < 1e-6);
}

/* Documents of random length and difficulty: the interval must contain the true ratio in about 95 % of samples. 4000
 * samples: standard error 0.35 %. */
static void test_coverage(size_t n, double least, double most) {
    struct rng rng = rng_make(test_seed(), n);
    double a[64], b[64];
    int held = 0, samples = 4000;
    for (int s = 0; s < samples; s++) {
        for (size_t i = 0; i < n; i++) {
            b[i] = 200 + 1000 * (double)rng_uniform(&rng);
            a[i] = b[i] * (3 + 0.4 * (double)rng_normal(&rng));
        }
        struct ratio r = ratio_of(a, b, n);
        held += r.low <= 3 && 3 <= r.high;
    }
    double share = (double)held / samples;
    if (share < least || share > most) fprintf(stderr, "%zu documents: %.3f\n", n, share);
    CHECK(share >= least && share <= most);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 11);
    test_by_hand();
    test_coverage(5, 0.90, 0.97);
    test_coverage(12, 0.92, 0.97);
    test_coverage(60, 0.935, 0.965);
    return test_done();
}
