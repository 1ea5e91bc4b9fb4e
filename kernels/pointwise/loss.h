/* loss.h -- negative log-likelihood of target ids under the tied head (model.md §1.7, §6.2). Logits are never all kept.
 *
 * nll[r] = log sum_v exp(x[r].table[v]) - x[r].table[target[r]];  target < 0: nll 0. x [n, d], table [V, d];
 * on a CPU the table of forward may be DTYPE_I8 (matmul.h). */
#pragma once
#include "kernels/device/device.h"

struct loss_contrast {
    const int32_t *targets, *excluded;   /* [n]; < 0: none */
    const float *alone;                  /* [V]; not 0: a candidate only of rows whose target it is; NULL: 0 */
    float scale, weight;
};

/* The id that each row predicts, and the factor scale * weight[r] of its loss in the gradient. */
struct loss_rows {
    const int32_t *targets;              /* [n]; < 0: none */
    const float *weight;                 /* [n], memory of the device; NULL: 1 */
    float scale;
};

struct loss_ops {
    void (*forward)(struct device *dev, float *nll, struct mat x, struct mat table, const int32_t *targets);
    /* Contrastive loss (InfoNCE; training.md): the table's rows are the candidates. logit = scale * x.table[v]; row
     * excluded[r] is left out of row r's sum; no target: nll 0. hit[r] = 1 where the target has the largest logit, else
     * 0. dx [n, d] and dtable [V, d] float32 get weight * d(sum nll) added. n and V up to a few thousand. */
    void (*contrastive)(struct device *dev, float *nll, float *hit, struct mat dx, struct mat dtable, struct mat x,
                        struct mat table, struct loss_contrast how);
    /* Forward and backward in one pass over the vocabulary: nll as above, without scale and weight;
     * dx = scale * d(sum of weight * nll)/dx is overwritten, the same for dtable is added to it, float32. */
    void (*forward_backward)(struct device *dev, float *nll, struct mat dx, struct mat dtable, struct mat x,
                             struct mat table, struct loss_rows rows);
};
extern const struct loss_ops loss_cpu;
