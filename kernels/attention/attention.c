/* attention.c -- what the CPU and the CUDA code of attention share. */
#include "kernels/attention/attention.h"
#include <math.h>

float attention_alibi_slope(int head, int heads) {
    return (float)exp2(-8.0 * (head + 1) / heads);
}
