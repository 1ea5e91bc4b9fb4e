/* attention.h -- causal sliding-window attention with ALiBi over a ring of keys and values (model.md §2.3, §2.4).
 *
 * logit(i, j) = q_i.k_j / sqrt(dh) - slope_head * (i - j) for i - window <= j <= i, both ends inclusive;
 * slope_head = 2^(-8 (head+1) / h), a geometric series for every h. Softmax in float32.
 *
 * q, o [n, h*dh]: positions first .. first+n-1. keys, values [ring, h*dh]: position p lies in row p % ring; the rows
 * of positions max(0, first - window) .. first+n-1 are filled before the call, so ring >= window + n.
 * o may be q. On a CPU keys and values of forward may both be bf16. */
#pragma once
#include "kernels/device/device.h"

/* Whole sequences of `length` rows, one after the other in q, k, v [n, h*dh] (views with a stride are fine). Each
 * begins at position 0. */
struct attention_sequences {
    struct mat q, k, v;
    int64_t length;
    int heads, window;
};

struct attention_ops {
    void (*forward)(struct device *dev, struct mat o, struct mat q, struct mat keys, struct mat values, int64_t first,
                    int heads, int window);
    /* Training. o [n, h*dh]; lse [n, h] float32: log sum exp of each row's scores, kept for backward. */
    void (*forward_sequences)(struct device *dev, struct mat o, struct mat lse, const struct attention_sequences *in);
    /* o, lse: what forward_sequences wrote. dq, dk, dv are overwritten. Deterministic. */
    void (*backward_sequences)(struct device *dev, struct mat dq, struct mat dk, struct mat dv, struct mat dout,
                               struct mat o, struct mat lse, const struct attention_sequences *in);
};
extern const struct attention_ops attention_cpu;
float attention_alibi_slope(int head, int heads);
