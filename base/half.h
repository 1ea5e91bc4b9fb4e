/* half.h -- 16-bit floats to float and back, scalar and by rows. Rounding is to nearest even; float to fp16
 * beyond 65504 becomes infinity, NaN stays NaN. */
#pragma once
#include <stddef.h>
#include <stdint.h>

float half_from_f16(uint16_t bits);
uint16_t half_to_f16(float value);
float half_from_bf16(uint16_t bits);
uint16_t half_to_bf16(float value);

void half_from_f16_row(float *out, const uint16_t *in, size_t n);
void half_to_f16_row(uint16_t *out, const float *in, size_t n);
void half_from_bf16_row(float *out, const uint16_t *in, size_t n);
void half_to_bf16_row(uint16_t *out, const float *in, size_t n);
