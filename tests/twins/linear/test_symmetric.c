/* test_symmetric.c -- sums of products and eigenvectors of symmetric matrices against plain loops; matrices that are
 * refused. */
#include "base/rng.h"
#include "kernels/linear/symmetric.h"
#include "tests/test.h"
#include <math.h>
#include <string.h>

enum { D = 70, N = 300 };
static float x[N * D], c[D * D];
static double a[D * D], values[D], vectors[D * D];

static void test_add(void) {
    struct rng rng = rng_make(3, 0);
    double worst = 0;
    for (int i = 0; i < N * D; i++)
        x[i] = rng_normal(&rng);
    for (int i = 0; i < D * D; i++)
        c[i] = (float)(i % 7);
    symmetric_add(c, x, N, D, 0.5F);
    for (int i = 0; i < D; i++)
        for (int j = 0; j < D; j++) {
            double sum = (double)((i * D + j) % 7);
            for (int r = 0; r < N && j <= i; r++)
                sum += 0.5 * (double)x[r * D + i] * (double)x[r * D + j];
            worst = fmax(worst, fabs(sum - (double)c[i * D + j])); /* the upper half is as it was */
        }
    CHECK(worst < 1e-3);
}

/* a v = value v, with orthonormal vectors and rising values; the same bits again. */
static void check_eigen(int d) {
    static double again[D * D], values_again[D];
    CHECK_OK(symmetric_eigen(values, vectors, a, d));
    CHECK_OK(symmetric_eigen(values_again, again, a, d));
    CHECK_EQ(memcmp(vectors, again, (size_t)(d * d) * sizeof *again), 0);
    for (int v = 0; v < d; v++) {
        CHECK(v == 0 || values[v] >= values[v - 1]);
        for (int i = 0; i < d; i++) {
            double product = 0, dot = 0;
            for (int j = 0; j < d; j++) {
                product += a[j <= i ? i * d + j : j * d + i] * vectors[v * d + j];
                dot += vectors[v * d + j] * vectors[i * d + j];
            }
            CHECK(fabs(product - values[v] * vectors[v * d + i]) < 1e-9 * (1 + fabs(values[d - 1])));
            CHECK(fabs(dot - (i == v)) < 1e-9);
        }
    }
}

static void test_eigen(void) {
    struct rng rng = rng_make(4, 0);
    for (int d = 1; d <= D; d += 23) {
        for (int i = 0; i < d * d; i++)
            a[i] = (double)rng_normal(&rng);
        check_eigen(d);
    }
    memset(a, 0, sizeof a); /* all values equal */
    check_eigen(D);
    a[3 * D + 5] = NAN; /* above the diagonal: not read */
    CHECK_OK(symmetric_eigen(values, vectors, a, D));
    a[5 * D + 3] = NAN;
    CHECK_FAILS(symmetric_eigen(values, vectors, a, D), STATUS_INVALID, "at 5, 3");
}

int main(void) {
    test_add();
    test_eigen();
    return 0;
}
