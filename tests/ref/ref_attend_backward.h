/* ref_attend_backward.h -- oracles of attention's gradients, as ref.h. For attention s.first is 0: one whole
 * sequence. */
#pragma once
#include "tests/ref/ref.h"

/* dq, dk, dv of attention and chunk_attention are overwritten; gca adds to dk and dv, and reads s.weight. */
#define REF_ATTEND_BACKWARD_DECLARE(prefix, real) \
    void prefix##_attention_lse(real *lse, const float *q, const float *k, struct ref_attention s); \
    void prefix##_attention_backward(real *dq, real *dk, real *dv, const float *dout, const float *q, const float *k, \
                                     const float *v, struct ref_attention s); \
    void prefix##_chunk_attention_backward(real *dq, real *dk, real *dv, const float *dout, const float *q, \
                                           const float *k, const float *v, struct ref_chunk_attention s); \
    void prefix##_gca_backward(real *dq, real *dk, real *dv, real *dweight, const float *dout, const float *q, \
                               const float *k, const float *v, struct ref_gca s);

REF_ATTEND_BACKWARD_DECLARE(ref, double)
REF_ATTEND_BACKWARD_DECLARE(naive, float)
