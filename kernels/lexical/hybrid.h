/* hybrid.h -- a search by words and landmarks, besides its two scans: the query of a running text, and the merge.
 *
 * The merge ranks the chunks that either scan found by bm25 + weight * (q.row / sqrt(d)), rounded once; ties by smaller
 * id. Products are float32, whatever the type of rows. A chunk of both lists counts once. A sum that is not a number
 * never enters the results. */
#pragma once
#include "kernels/device/device.h"

enum { HYBRID_CANDIDATES_MAX = 2048 };   /* of a query, from both lists */

/* chunk [queries, n], -1 where there is none; bm25 [queries, n]. */
struct hybrid_list { const int64_t *chunk; const float *bm25; int n; };

struct hybrid_merge {
    struct mat queries;                  /* [queries, d] float32 */
    struct hybrid_list words, landmarks; /* what each scan found; a list has a chunk at most once */
    struct mat rows;                     /* landmarks, fp16 on a GPU, float32 on the CPU; d is a multiple of 8 */
    const int32_t *row_of;               /* [chunks]: the row of each chunk, -1: none; NULL: chunk c has row c */
    int64_t chunks;                      /* other chunks, and those without a row, have the product -infinity */
    float weight;                        /* above 0 */
    float *product;                      /* out [queries*k]: q.row / sqrt(d) of each result; NULL: not wanted */
};

struct hybrid_ops {
    /* out [d] float32 = the direction of the mean of n states less `centre` [d], with length 1; 0 if n is 0 or that is
     * 0. The states are rows of a ring buffer, float32 or bf16: first % rows, (first + 1) % rows, ... Sums and the
     * centre are float64. */
    void (*query)(struct device *dev, float *out, struct mat ring, int64_t first, int64_t n, const double *centre);
    /* index and score [queries*k], best first; -1, -inf where there are fewer, and -inf in m->product. The score is the
     * chunk's BM25. Results are written once and never read: they may be memory of this process that the device can
     * reach. */
    void (*merge)(struct device *dev, int64_t *index, float *score, const struct hybrid_merge *m, int k);
};
extern const struct hybrid_ops hybrid_cpu;
