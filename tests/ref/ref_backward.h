/* ref_backward.h -- oracles of gradients, of the softmax over selected landmarks, and of AdamW; as in ref.h, from the
 * headers' equations, all arrays dense. If an op adds to its output, so does its oracle: fill the output first. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct ref_adamw { float lr, beta1, beta2, eps, decay, clip; int64_t step; };

/* `store`: rounds a number as a program of that storage type does (NULL: no rounding). */
#define REF_BACKWARD_DECLARE(prefix, real) \
    void prefix##_norm_backward(real *dx, real *dw, const float *dy, const float *x, const float *w, int64_t n, \
                                int64_t d, \
                                float eps); \
    void prefix##_rope_backward(real *dx, const float *dy, int64_t n, int heads, int dim, int period, float theta); \
    void prefix##_swiglu_backward(real *dgate, real *dup, const float *dy, const float *gate, const float *up, \
                                  int64_t n); \
    void prefix##_embed_backward(real *dtable, const float *dx, const int32_t *ids, int32_t pad_id, int64_t n, \
                                 int64_t d); \
    void prefix##_loss_backward(real *dx, real *dtable, const float *x, const float *table, const int32_t *targets, \
                                int64_t n, \
                                int64_t d, int64_t words, float scale, float (*store)(float)); \
    /* As kernels/pointwise/loss.h; `store`: of the logits' gradients. dx, dtable are added to. */ \
    void prefix##_contrastive(real *nll, real *dx, real *dtable, const float *x, const float *table, \
                              const int32_t *targets, const int32_t *excluded, const float *alone, \
                              int64_t n, int64_t d, int64_t words, float scale, float weight, \
                              float (*store)(float)); \
    void prefix##_softmax_weights(real *weight, const float *score, int64_t n, int k); \
    void prefix##_topk_backward(real *dq, real *dl, const float *dweight, const float *weight, const int64_t *index, \
                                const float *q, const float *l, int64_t n, int64_t d, int k); \
    real prefix##_squares(const float *g, int64_t n); \
    void prefix##_adamw(real *p, real *m, real *v, const float *g, int64_t n, struct ref_adamw s);

REF_BACKWARD_DECLARE(ref, double)
REF_BACKWARD_DECLARE(naive, float)
