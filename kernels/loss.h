/* loss.h -- negative log-likelihood of target ids under the tied head, logits never kept whole (model.md §1.7, §6.2).
 *
 * nll[r] = log sum_v exp(x[r].table[v]) - x[r].table[target[r]];  target < 0: nll 0. x [n, d], table [V, d]. */
#pragma once
#include "kernels/device.h"

struct loss_ops {
    void (*forward)(struct device *dev, float *nll, struct mat x, struct mat table, const int32_t *targets);
};
extern const struct loss_ops loss_cpu;
