/* topk.h -- landmark scores and the best k of them (model.md §4.2-4.4): score = q.l / sqrt(d), key = score.
 *
 * Query row r sees landmarks 0 .. visible[r]-1. index, score [n*k], best first, ties by smaller index; places
 * without a landmark get index -1, score -inf. landmarks [E, d]. */
#pragma once
#include "kernels/device.h"

struct topk_ops {
    void (*forward)(struct device *dev, int64_t *index, float *score, struct mat queries, struct mat landmarks,
                    const int64_t *visible, int k);
    /* The weights of chosen landmarks and their way back (model.md §4.5, §4.7): weight [n*k] = softmax of a row's scores,
     * 0 at places with score -inf, all 0 where every place is empty. */
    void (*weigh)(struct device *dev, float *weight, const float *score, int64_t n, int k);
    /* From dweight: dscore through the softmax, then dqueries[r] += sum_j dscore l_j / sqrt(d) and, in the order of rows,
     * dlandmarks[index] += dscore q_r / sqrt(d); both float32. */
    void (*backward)(struct device *dev, struct mat dqueries, struct mat dlandmarks, const float *dweight, const float *weight,
                     const int64_t *index, struct mat queries, struct mat landmarks, int k);
};
extern const struct topk_ops topk_cpu;
