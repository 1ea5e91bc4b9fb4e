/* ratio.h -- a ratio of two sums over documents, with a 95 % interval.
 *
 * Documents are the sample. The tokens of one document are not independent, so an interval over tokens would be far too
 * narrow. The variance is that of the ratio estimator (linearised), the quantile is Student's. */
#pragma once
#include "base/formats/json.h"
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

struct ratio { double value, low, high; };                /* low > high: fewer than two documents, so no interval */
struct ratio ratio_of(const double *numerator, const double *denominator, size_t n);

/* A share of n >= 1 samples, with Wilson's score interval: it has a width also if all samples, or none, were found. */
struct ratio ratio_share(int64_t found, int64_t n);

/* The mean over groups of the ratio of each group's sums. Each group counts once; groups without a sample are left out.
 * The interval is a bootstrap of 2,000 draws over the samples of each group, with a fixed seed. low > high: no group
 * has two samples. */
struct group_sample { int group; double numerator, denominator; };
enum status ratio_mean_of_groups(struct ratio *out, const struct group_sample *samples, size_t n, int groups);

/* Writes two members of an object: `key` with the value, and `interval` with [low, high]; both are null if there is no
 * interval. */
void ratio_write(struct json_writer *w, const char *key, const char *interval, struct ratio r);
