/* landmark_attention.h -- Landmark Attention with ALiBi (Mohtashami and Jaggi, NeurIPS 2023; model.md §10.2).
 *
 * Positions are divided into blocks of `block` tokens and a landmark, S = block + 1. The row of position i in block b
 * reads tokens of its own block by a score each, and an earlier block c by the score of its landmark at position p_c:
 *
 *   own(j)   = q_i.k_j / sqrt(dh) - slope (i - j)                    tokens j of block b, j <= i
 *   far(c)   = q_i.k_{p_c} / sqrt(dh) - slope min(i - p_c, window)   blocks c < b
 *   in(c, j) = q_i.k_j / sqrt(dh) - slope (p_c - j)                  tokens j of block c
 *   o_i = sum_j P_j v_j + sum_c P_c sum_j softmax_j(in(c, .)) v_j    P: one softmax over all own(j) and far(c)
 *
 * slope as in attention.h. A landmark's row reads all tokens of its block; no row reads its value. Softmax in
 * float32. Heads as in attention.h; block up to LANDMARK_BLOCK_MAX. */
#pragma once
#include "kernels/device/device.h"

enum { LANDMARK_BLOCK_MAX = 64, LANDMARK_TOPK_MAX = 64 };

struct landmark_shape { int heads, block, window; };

/* Whole sequences of `length` rows, a multiple of S, one after the other in q, k, v [n, h*dh] (views with a stride are
 * fine). */
struct landmark_sequences { struct mat q, k, v; int64_t length; struct landmark_shape shape; };

struct landmark_attention_ops {
    /* q, o [n, h*dh]: positions first .. first+n-1 of one text. keys, values [>= first+n, h*dh]: position p in row p.
     * Each row of a head reads the topk earlier blocks of the highest far(c) alone (of equal ones the earlier block), 1
     * <= topk <= LANDMARK_TOPK_MAX. o may be q. */
    void (*forward)(struct device *dev, struct mat o, struct mat q, struct mat keys, struct mat values, int64_t first,
                    struct landmark_shape shape, int topk);
    /* Training: every row reads all earlier blocks. o [n, h*dh]; lse [n, h] float32: log sum exp of own and far. */
    void (*forward_sequences)(struct device *dev, struct mat o, struct mat lse, const struct landmark_sequences *in);
    /* o, lse: what forward_sequences wrote. dq, dk, dv are overwritten. The result has the same bits each time. */
    void (*backward_sequences)(struct device *dev, struct mat dq, struct mat dk, struct mat dv, struct mat dout,
                               struct mat o, struct mat lse, const struct landmark_sequences *in);
};
extern const struct landmark_attention_ops landmark_attention_cpu;
