/* landmark_internal.h -- what forward and backward of Landmark Attention share on a CPU. */
#pragma once
#include "kernels/attention/attention.h"
#include "kernels/landmark/landmark_attention.h"
#include "kernels/pointwise/simd_internal.h"
#include <math.h>

/* far(c) of the query at position i: `landmark` is the key of position p. */
static inline float landmark_far(const float *query, const float *landmark, int dim, int64_t distance, int window,
                                 float slope) {
    int64_t seen = distance < window ? distance : window;
    return v_dot(query, landmark, dim) / sqrtf((float)dim) - slope * (float)seen;
}

void landmark_attention_backward(struct device *dev, struct mat dq, struct mat dk, struct mat dv, struct mat dout,
                                 struct mat o, struct mat lse, const struct landmark_sequences *in);
