/* attend_backward_internal.h -- gradients of softmax(q K^T / sqrt(dh) + bias) V for a tile of queries and a tile of
 * keys of one head: the core of backward of attention, chunk_attention and gca on a CPU. Products by OpenBLAS. */
#pragma once
#include "kernels/attention/attend_internal.h"

/* Views of one head's columns; rows of `keys` as dk, dv. */
struct attend_grad {
    struct mat q, k, v, dout, dq, dk, dv;
    float *p, *dp;                        /* [rows][keys] of the current tile: P, and dP (later dS) */
};

/* P = exp(score - lse) from row `query` and key `key` on; dP = dout V^T. lse of row r: lse[r * lse_stride].
 * bias NULL: none. */
void attend_grad_weights(const struct attend_grad *g, int64_t query, int rows, int64_t key, int keys, const float *lse,
                         int64_t lse_stride, const struct attend_bias *bias);
/* dS = factor P (dP - delta[r]) / sqrt(dh), in place of dP. */
void attend_grad_scores(const struct attend_grad *g, int rows, int keys, const float *delta, float factor);
/* dq += dS K. */
void attend_grad_queries(const struct attend_grad *g, int64_t query, int rows, int64_t key, int keys);
/* dk += dS^T q, dv += factor P^T dout. */
void attend_grad_keys(const struct attend_grad *g, int64_t query, int rows, int64_t key, int keys, float factor);
/* A whole backward call. Rows are sequences of `length`, and a row reads its own sequence only. out: the result of
 * forward. window < 0: no bias and no mask, every row reads its whole sequence. dq, dk, dv are overwritten. */
struct attend_gradients {
    struct device *dev;
    struct mat dq, dk, dv, dout, out, lse, q, k, v;
    int64_t length;
    int heads, window;
};
void attend_gradients(const struct attend_gradients *all);
