/* row_codes.c -- see row_codes_internal.h. */
#include "base/half_lanes.h"
#include "store/shards/row_codes_internal.h"
#include <math.h>
#include <string.h>

enum { SCALE_BITS = 4, SCALE_EXPONENT_MIN = -24, LANES = 8 };
static const float half_max = 65504.0f, rounding = 0x1.8p23f; /* adding and subtracting it rounds, as rintf does */

/* Returns the least number that is not less than `value`, has four significant bits and is a multiple of 2^-24. */
static float scale_up(float value) {
    int exponent;
    frexpf(value, &exponent);
    exponent -= SCALE_BITS;
    if (exponent < SCALE_EXPONENT_MIN) exponent = SCALE_EXPONENT_MIN;
    return ldexpf(ceilf(ldexpf(value, -exponent)), exponent);
}

/* The second step is needed if the largest number's code, after rounding, also fits the next smaller scale: without it,
 * encoding the decoded row would give that smaller scale. */
static float scale_of(float largest) {
    float scale = scale_up(largest / ROW_CODE_MAX);
    return scale > 0 ? scale_up(rintf(largest / scale) * scale / ROW_CODE_MAX) : 0;
}

/* The bits of positive numbers are in the order of the numbers, and loops over integers use vector instructions. */
static float row_largest(const float *row, int dim) {
    uint32_t largest = 0;
    for (int i = 0; i < dim; i++) {
        uint32_t bits;
        memcpy(&bits, row + i, sizeof bits);
        bits &= INT32_MAX;
        largest = bits > largest ? bits : largest;
    }
    float value;
    memcpy(&value, &largest, sizeof value);
    return value;
}

void row_codes_make(int8_t *codes, float *scale, const float *row, int dim) {
    const float by = *scale = scale_of(row_largest(row, dim));
    if (by == 0) {
        memset(codes, 0, (size_t)dim);
        return;
    }
    const float most = floorf(half_max / by); /* keeps products in the range of fp16 if the scale was rounded up */
    const int32_t limit = most > ROW_CODE_MAX ? ROW_CODE_MAX : (int32_t)most;
    for (int i = 0; i < dim; i++) {
        int32_t code = (int32_t)(row[i] / by + rounding - rounding);
        code = code > limit ? limit : code;
        codes[i] = (int8_t)(code < -limit ? -limit : code);
    }
}

void row_codes_to_float(float *out, const int8_t *codes, float scale, int dim) {
    int i = 0;
    for (; i + LANES <= dim; i += LANES) {
        half_lanes x = half_lanes_from_i8(codes + i) * scale;
        memcpy(out + i, &x, sizeof x);
    }
    for (; i < dim; i++)
        out[i] = (float)codes[i] * scale;
}
