/* ref_topk.h -- checks a row of best landmarks against scores in double: for the tests of both twins. */
#pragma once
#include "tests/test.h"
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* Row by row: order and ties, the right score for each landmark, and no better one missing. */
static inline void ref_check_topk(const int64_t *index, const float *score, const double *ref, int64_t visible, int k,
                                  double tolerance) {
    bool *taken = calloc((size_t)visible + 1, 1);
    int64_t wanted = visible < k ? visible : k;
    for (int64_t i = 0; i < k; i++) {
        if (i >= wanted) {
            CHECK_EQ(index[i], -1);
            CHECK(score[i] == -INFINITY);
            continue;
        }
        CHECK(index[i] >= 0 && index[i] < visible && !taken[index[i]]);
        taken[index[i]] = true;
        if (fabs((double)score[i] - ref[index[i]]) > tolerance)
            fprintf(stderr, "score %.9g, ref %.9g, tolerance %g\n", (double)score[i], ref[index[i]], tolerance);
        CHECK(fabs((double)score[i] - ref[index[i]]) <= tolerance);
        if (i) CHECK(score[i - 1] > score[i] || (score[i - 1] == score[i] && index[i - 1] < index[i]));
    }
    for (int64_t e = 0; e < visible && wanted == k; e++)
        if (!taken[e]) CHECK(ref[e] <= (double)score[k - 1] + tolerance);
    free(taken);
}
