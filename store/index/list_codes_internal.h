/* list_codes_internal.h -- inner products of queries with rows of 8-bit codes, in integers.
 *
 * Number i of a row is low[i] + step[i] * code[i]. So q . row = base + unit * sum_i weight[i] * code[i], where
 * weight[i] = q[i] * step[i] / unit rounded to an integer of 15 bits and a sign. `unit` is the smallest with which the
 * greatest weight fits and no sum leaves 31 bits. Sums of integers have one value in whatever order they are made: all
 * processors find the same rows. The rounding of weights is 1 / 32,000 of the greatest one, beside 1 / 510 of a
 * number's range that the codes lose. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CODE_PAD = 64 };                  /* weights are followed by zeros up to a multiple of it */

struct code_range { const float *low, *step; };           /* [dim] */

struct code_query {
    int16_t *weight;                     /* [padded] */
    int8_t *high, *low;                  /* [padded]; weight = 128 * high + low, -64 <= low < 64 */
    double base, unit;
};
static inline size_t code_padded(int dim) { return ((size_t)dim + CODE_PAD - 1) / CODE_PAD * CODE_PAD; }
/* Of weight, high and low together. */
static inline size_t code_query_bytes(int dim) { return 4 * code_padded(dim); }

/* `memory`: code_query_bytes(dim), aligned at 64; *out points into it. A query with a number that is not finite gets
 * weights 0. */
void code_query_make(struct code_query *out, void *memory, const float *query, struct code_range range, int dim);

/* out[r] = sum_i weight[i] * codes[r * dim + i] for n rows. Reads no byte outside of codes[n * dim]. */
typedef void code_sums(int32_t *out, const uint8_t *codes, int64_t n, const struct code_query *query, int dim);

/* How wide a loop to use, for tests: 0 is plain C, each further one is faster. NULL: the processor cannot run it. */
enum { CODE_SUMS_LEVELS = 3 };
code_sums *code_sums_at(int level);
code_sums *code_sums_best(void);
