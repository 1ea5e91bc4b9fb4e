/* row_codes_internal.h -- a landmark as 8-bit codes and one scale: number i of the row is codes[i] * scale.
 *
 * The codes are symmetric, -127 to 127. The scale is the least number of four significant bits that covers the row's
 * largest number, and a multiple of 2^-24. So each product has at most 11 significant bits: it is an fp16 number, and
 * is exact in fp16 and in float32. Encoding a decoded row gives the same codes and scale again. Codes depend only on
 * their row. */
#pragma once
#include <stdint.h>

enum { ROW_CODE_MAX = 127 };

/* Encodes row [dim], whose numbers must be finite as fp16. If all of them round to zero, the scale is 0. */
void row_codes_make(int8_t *codes, float *scale, const float *row, int dim);
void row_codes_to_float(float *out, const int8_t *codes, float scale, int dim);
