/* ratio.c -- see ratio.h. */
#include "tools/shared/ratio.h"

#include <math.h>

/* Student's 97.5 % quantile by Cornish and Fisher's expansion; exact to 1 % from 3 degrees of freedom on, and for the
 * first two the table's values. */
static double student(size_t degrees) {
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
    double half = student(n - 1) * sqrt(squares * (double)n / (double)(n - 1)) / below;
    return (struct ratio){value, value - half, value + half};
}
