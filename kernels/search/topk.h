/* topk.h -- landmark scores and the best k of them (model.md §4.2-4.4): score = q.l / sqrt(d), key = score.
 *
 * Query row r sees landmarks 0 .. visible[r]-1. index, score [n*k], best first, ties by smaller index; places
 * without a landmark get index -1, score -inf. landmarks [E, d]. float32 queries lose nothing to a GPU's 16-bit
 * products, whatever their magnitude; there, up to 32 places hold float32 scores, and more than 32 those of the tensor cores (within
 * 2^-17 of the greatest). A query with a number that is not finite: its own places may hold any landmarks, or none.
 *
 * k is 1 .. TOPK_PLACES_MAX, that of choose 1 .. TOPK_CHOOSE_MAX; more is a caller's mistake. A GPU finds 32 places a reading of
 * the landmarks. */
#pragma once
#include "kernels/device/device.h"
#include <stdbool.h>

enum { TOPK_PLACES_MAX = 100000, TOPK_CHOOSE_MAX = 8192 };

/* What each query row of a training step may choose (model.md §4.3; training.md): landmark e when
 *   own_begin[r] <= e < own_end[r]                                     its own past, always allowed; or
 *   other_begin[r] <= e < other_end[r], e outside of own_begin[r] .. sequence_end[r]-1, and the documents apart.
 * Documents are apart when document_of[e] = {first, last} and document_barred[r] = {first, last} do not overlap; both NULL:
 * no check; a landmark of first -1 overlaps nothing. All arrays are memory of the device; other_begin NULL: own past alone. */
struct topk_rows {
    const int32_t *own_begin, *own_end, *sequence_end, *other_begin, *other_end;      /* [n] */
    const int32_t (*document_of)[2], (*document_barred)[2];                            /* [E], [n] */
};

struct topk_ops {
    void (*forward)(struct device *dev, int64_t *index, float *score, struct mat queries, struct mat landmarks,
                    const int64_t *visible, int k);
    /* Training's selection (model.md §4.4). With `gumbel` the key is score + g, g = -log(-log u), u from a hash of
     * (seed, r, e): the same on both twins, fresh for every seed. Outputs the raw score; `slot` is index as int32 (-1 at
     * empty places), NULL where not wanted. queries and landmarks are of one type. */
    void (*sample)(struct device *dev, int64_t *index, int32_t *slot, float *score, struct mat queries, struct mat landmarks,
                   struct topk_rows rows, int k, bool gumbel, uint64_t seed);
    /* The k best of `from` places a row by score + noise as choose draws it: [n*k] of [n*from]. Empty places stay behind. */
    void (*subsample)(struct device *dev, int64_t *index, const int64_t *from_index, const float *from_score, int64_t n, int from, int k,
                 uint64_t seed);
    /* out [n, cols] = the rows `index` of a table [rows, cols]; index < 0: the last row, which the caller keeps for that. */
    void (*gather)(struct device *dev, int32_t *out, const int32_t *table, int64_t rows, int64_t cols, const int64_t *index, int64_t n);
    /* The weights of chosen landmarks and their way back (model.md §4.5, §4.7): weight [n*k] = softmax of a row's scores,
     * 0 at places with score -inf, all 0 where every place is empty. */
    void (*softmax_weights)(struct device *dev, float *weight, const float *score, int64_t n, int k);
    /* From dweight: dscore through the softmax, then dqueries[r] += sum_j dscore l_j / sqrt(d) and, in the order of rows,
     * dlandmarks[index] += dscore q_r / sqrt(d); both float32. */
    void (*backward)(struct device *dev, struct mat dqueries, struct mat dlandmarks, const float *dweight, const float *weight,
                     const int64_t *index, struct mat queries, struct mat landmarks, int k);
};
extern const struct topk_ops topk_cpu;
