/* ratio.h -- a ratio of two sums over documents, with a 95 % interval.
 *
 * Documents are the sample: tokens of one document are not independent, so an interval over tokens would be far too
 * narrow. The variance is the ratio estimator's (linearised), the quantile Student's. */
#pragma once
#include <stddef.h>

struct ratio { double value, low, high; };                /* low > high: fewer than two documents, no interval */
struct ratio ratio_of(const double *numerator, const double *denominator, size_t n);
