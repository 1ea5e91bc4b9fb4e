/* chunk_attention.h -- full attention inside each chunk, no mask, no bias (model.md §3.2).
 *
 * q, k, v, o [C*S, h*dh]: rows of chunk c are c*S .. c*S+S-1, S = positions. Scale 1/sqrt(dh). o may be q. */
#pragma once
#include "kernels/device/device.h"

/* The operands of forward, as backward reads them: o and lse are results of forward_keep. */
struct chunk_attention_kept {
    struct mat o, lse, q, k, v;
    int heads, positions;
};

struct chunk_attention_ops {
    void (*forward)(struct device *dev, struct mat o, struct mat q, struct mat k, struct mat v, int heads,
                    int positions);
    /* Training: the same; lse [C*S, h] float32: log sum exp of each row's scores, kept for backward. */
    void (*forward_keep)(struct device *dev, struct mat o, struct mat lse, struct mat q, struct mat k, struct mat v,
                         int heads, int positions);
    /* dq, dk, dv are overwritten. */
    void (*backward)(struct device *dev, struct mat dq, struct mat dk, struct mat dv, struct mat dout,
                     const struct chunk_attention_kept *kept);
};
extern const struct chunk_attention_ops chunk_attention_cpu;
