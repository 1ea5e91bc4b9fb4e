/* ref_landmark.h -- the oracle of Landmark Attention, as ref.h: the matrix of the paper's grouped softmax row by row,
 * in plain loops. */
#pragma once
#include "tests/ref/ref.h"

/* n rows at positions first ..; k and v from position 0. topk 0: all blocks. */
struct ref_landmark { int64_t n, first; int heads, dim, block, window, topk; };

/* backward: first is 0, topk 0; dq, dk, dv are overwritten. */
#define REF_LANDMARK_DECLARE(prefix, real) \
    void prefix##_landmark(real *o, real *lse, const float *q, const float *k, const float *v, \
                           struct ref_landmark s); \
    void prefix##_landmark_backward(real *dq, real *dk, real *dv, const float *dout, const float *q, const float *k, \
                                    const float *v, struct ref_landmark s);

REF_LANDMARK_DECLARE(ref, double)
REF_LANDMARK_DECLARE(naive, float)
