/* ratio.c -- see ratio.h. */
#include "tools/shared/ratio.h"

#include "base/memory.h"
#include "base/rng.h"
#include <math.h>
#include <stdlib.h>

/* Computes Student's 97.5 % quantile by Cornish and Fisher's expansion. It is exact to 1 % from 3 degrees of freedom
 * on; the first two come from a table. */
static double ratio_student(size_t degrees) {
    static const double FEW[] = {12.706, 4.303};
    if (degrees <= 2) return FEW[degrees - 1];
    const double z = 1.959964, v = (double)degrees, z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;
    return z + (z3 + z) / (4 * v) + (5 * z5 + 16 * z3 + 3 * z) / (96 * v * v) +
           (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * v * v * v);
}

struct ratio ratio_of(const double *numerator, const double *denominator, size_t n) {
    double above = 0, below = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        above += numerator[i];
        below += denominator[i];
    }
    double value = below > 0 ? above / below : NAN;
    if (n < 2) return (struct ratio){value, 1, 0};
    for (size_t i = 0; i < n; i++) {
        double residual = numerator[i] - value * denominator[i];
        squares += residual * residual;
    }
    double half = ratio_student(n - 1) * sqrt(squares * (double)n / (double)(n - 1)) / below;
    return (struct ratio){value, value - half, value + half};
}

struct ratio ratio_share(int64_t found, int64_t n) {
    const double z = 1.959963985, m = (double)n, p = (double)found / m;
    const double centre = p + z * z / (2 * m), spread = z * sqrt(p * (1 - p) / m + z * z / (4 * m * m));
    return (struct ratio){p, fmax(0, (centre - spread) / (1 + z * z / m)),
                          fmin(1, (centre + spread) / (1 + z * z / m))};
}

/* ---- mean over groups ---- */

enum { DRAWS = 2000 };

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Samples of group g are first[g] .. first[g+1]-1. rng NULL: each is used once; otherwise as many are drawn. */
static double mean_of_ratios(const struct group_sample *samples, const size_t *first, int groups, struct rng *rng) {
    double sum = 0;
    int counted = 0;
    for (int g = 0; g < groups; g++) {
        double above = 0, below = 0;
        size_t n = first[g + 1] - first[g];
        for (size_t i = 0; i < n; i++) {
            const struct group_sample *s = &samples[first[g] + (rng ? (size_t)rng_below(rng, n) : i)];
            above += s->numerator;
            below += s->denominator;
        }
        if (below > 0) {
            sum += above / below;
            counted++;
        }
    }
    return counted > 0 ? sum / counted : NAN;
}

enum status ratio_mean_of_groups(struct ratio *out, const struct group_sample *samples, size_t n, int groups) {
    struct group_sample *sorted = NULL;
    size_t *first = NULL, at = 0;
    double *drawn = NULL;
    bool several = false;
    struct rng rng = rng_make(1, 0);
    enum status s;
    TRY_GOTO(s, memory_allocate(&sorted, n), out);
    TRY_GOTO(s, memory_allocate(&first, (size_t)groups + 1), out);
    TRY_GOTO(s, memory_allocate(&drawn, (size_t)DRAWS), out);
    for (int g = 0; g < groups; g++) {
        first[g] = at;
        for (size_t i = 0; i < n; i++)
            if (samples[i].group == g) sorted[at++] = samples[i];
        several = several || at - first[g] > 1;
    }
    first[groups] = at;
    *out = (struct ratio){mean_of_ratios(sorted, first, groups, NULL), 1, 0};
    for (int i = 0; i < DRAWS && several; i++)
        drawn[i] = mean_of_ratios(sorted, first, groups, &rng);
    if (several) {
        qsort(drawn, DRAWS, sizeof *drawn, by_value);
        out->low = drawn[DRAWS / 40];
        out->high = drawn[DRAWS - 1 - DRAWS / 40];
    }
out:
    memory_free(sorted);
    memory_free(first);
    memory_free(drawn);
    return s;
}

void ratio_write(struct json_writer *w, const char *key, const char *interval, struct ratio r) {
    const bool there = r.low <= r.high;
    json_write_key(w, key);
    json_write_double(w, r.value);
    json_write_key(w, interval);
    json_write_array(w);
    json_write_double(w, there ? r.low : NAN);
    json_write_double(w, there ? r.high : NAN);
    json_write_array_end(w);
}
