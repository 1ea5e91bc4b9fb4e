/* list_codes_internal.h -- inner products of queries with rows of 8-bit codes, in integers.
 *
 * Element i of a row is low[i] + step[i] * code[i]. So q . row = base + unit * sum_i weight[i] * code[i], where
 * weight[i] is q[i] * step[i] / unit, rounded to an integer of 15 bits and a sign. `unit` is the smallest one for which
 * the largest weight fits and no sum exceeds 31 bits. The sum of integers does not depend on their order, so all
 * processors find the same rows. Rounding a weight loses 1 / 32,000 of the largest one; the codes themselves lose 1 /
 * 510 of an element's range. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CODE_PAD = 64 };                  /* the weights are padded with zeros to a multiple of this */

struct code_range { const float *low, *step; };           /* [dim] */

struct code_query {
    int16_t *weight;                     /* [padded] */
    int8_t *high, *low;                  /* [padded]; weight = 128 * high + low, -64 <= low < 64 */
    double base, unit;
    bool alone;                          /* the only query that reads the rows: they come from memory, in order */
};
static inline size_t code_padded(int dim) { return ((size_t)dim + CODE_PAD - 1) / CODE_PAD * CODE_PAD; }
/* Bytes of weight, high and low together. */
static inline size_t code_query_bytes(int dim) { return 4 * code_padded(dim); }

/* Prepares a query in `memory` (code_query_bytes(dim) bytes, aligned to 64), into which *out points. A query with an
 * element that is not finite gets weights 0. `alone` is false. */
void code_query_make(struct code_query *out, void *memory, const float *query, struct code_range range, int dim);

/* out[r] = sum_i weight[i] * codes[r * dim + i] for n rows. Reads no byte outside codes[n * dim]; `alone`: it
 * prefetches those that follow. */
typedef void code_sums(int32_t *out, const uint8_t *codes, int64_t n, const struct code_query *query, int dim);

/* Returns the loop of one level, for tests: level 0 is plain C, each further level uses wider vectors. NULL: the
 * processor cannot run it. */
enum { CODE_SUMS_LEVELS = 3 };
code_sums *code_sums_at(int level);
code_sums *code_sums_best(void);
