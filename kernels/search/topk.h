/* topk.h -- scores of landmarks and the best k of them (model.md §4.2-4.4): score = q.l / sqrt(d).
 *
 * Query row r sees landmarks 0 .. visible[r]-1. Results: index, score [n*k], best first, equal scores by smaller index.
 * Slots without a landmark get index -1, score -inf. queries [n, d], landmarks [E, d].
 *
 * On a GPU, float32 queries against 16-bit landmarks keep float32 accuracy whatever their magnitude: for k up to 32 the
 * scores are computed in float32, for greater k by tensor cores (within 2^-17 of the greatest). A query with a number
 * that is not finite may get any landmarks, or none; other queries are not affected.
 *
 * k is 1 .. TOPK_MAX, in sample and subsample 1 .. TOPK_SAMPLE_MAX (asserted). A GPU finds 32 results in each pass over
 * the landmarks. */
#pragma once
#include "kernels/device/device.h"
#include <stdbool.h>

enum { TOPK_MAX = 100000, TOPK_SAMPLE_MAX = 8192 };

/* The landmarks that a query row of a training step may sample (model.md §4.3; training.md): landmark e when
 *   own_begin[r] <= e < own_end[r]                                     its own past, always allowed; or
 *   other_begin[r] <= e < other_end[r], e outside of own_begin[r] .. sequence_end[r]-1, and the documents are disjoint.
 * Documents are disjoint when document_of[e] = {first, last} and document_barred[r] = {first, last} do not overlap;
 * both NULL: no check; a landmark of first -1 overlaps nothing. All arrays are memory of the device; other_begin NULL:
 * the text's own past alone. */
struct topk_rows {
    const int32_t *own_begin, *own_end, *sequence_end, *other_begin, *other_end;      /* [n] */
    const int32_t (*document_of)[2], (*document_barred)[2];                            /* [E], [n] */
};

/* queries and landmarks are of one type. */
struct topk_sampling {
    struct mat queries, landmarks;
    struct topk_rows rows;
    int k;
    bool gumbel;                         /* the key is score + g, g = -log(-log u), u from a hash of (seed, r, e) */
    uint64_t seed;
};

/* The landmarks that were found: their indexes and softmax weights, [n*k]. */
struct topk_weights { const float *weight; const int64_t *index; int k; };

struct topk_ops {
    void (*forward)(struct device *dev, int64_t *index, float *score, struct mat queries, struct mat landmarks,
                    const int64_t *visible, int k);
    /* Training's selection (model.md §4.4): the best k by key, which is the score, or score + noise. Both twins draw
     * the same noise, and another seed draws other noise. Returns raw scores; `slot` is index as int32 (-1 in empty
     * slots), NULL where not wanted. */
    void (*sample)(struct device *dev, int64_t *index, int32_t *slot, float *score,
                   const struct topk_sampling *sampling);
    /* The best k of `from` slots a row by score + noise, as sample draws it: [n*k] of [n*from]. Empty slots come
     * last. */
    void (*subsample)(struct device *dev, int64_t *index, const int64_t *from_index, const float *from_score, int64_t n,
                      int from, int k, uint64_t seed);
    /* out [n, cols] = the rows `index` of a table [rows, cols]; index < 0: the table's last row. */
    void (*gather)(struct device *dev, int32_t *out, const int32_t *table, int64_t rows, int64_t cols,
                   const int64_t *index, int64_t n);
    /* weight [n*k] = softmax of a row's scores (model.md §4.5): 0 in slots of score -inf, all 0 where every slot is
     * empty. */
    void (*softmax_weights)(struct device *dev, float *weight, const float *score, int64_t n, int k);
    /* From dweight [n*k] (model.md §4.7): dscore through the softmax, then dqueries[r] += sum_j dscore l_j / sqrt(d)
     * and, in the order of rows, dlandmarks[index] += dscore q_r / sqrt(d); both float32. */
    void (*backward)(struct device *dev, struct mat dqueries, struct mat dlandmarks, const float *dweight,
                     struct topk_weights found, struct mat queries, struct mat landmarks);
};
extern const struct topk_ops topk_cpu;
