/* topk.h -- landmark scores and the best k of them (model.md §4.2-4.4): score = q.l / sqrt(d), key = score.
 *
 * Query row r sees landmarks 0 .. visible[r]-1. index, score [n*k], best first, ties by smaller index; places
 * without a landmark get index -1, score -inf. landmarks [E, d]. */
#pragma once
#include "kernels/device.h"

struct topk_ops {
    void (*forward)(struct device *dev, int64_t *index, float *score, struct mat queries, struct mat landmarks,
                    const int64_t *visible, int k);
};
extern const struct topk_ops topk_cpu;
