/* loss.h -- negative log-likelihood of target ids under the tied head, logits never kept whole (model.md §1.7, §6.2).
 *
 * nll[r] = log sum_v exp(x[r].table[v]) - x[r].table[target[r]];  target < 0: nll 0. x [n, d], table [V, d]. */
#pragma once
#include "kernels/device.h"

struct loss_ops {
    void (*forward)(struct device *dev, float *nll, struct mat x, struct mat table, const int32_t *targets);
    /* Forward and backward in one go over the vocabulary: nll as above; dx = scale * d(sum nll)/dx is overwritten,
     * dtable += scale * d(sum nll)/dtable, float32. */
    void (*forward_backward)(struct device *dev, float *nll, struct mat dx, struct mat dtable, struct mat x, struct mat table,
                             const int32_t *targets, float scale);
};
extern const struct loss_ops loss_cpu;
