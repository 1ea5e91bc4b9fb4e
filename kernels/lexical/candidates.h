/* candidates.h -- orders the chunks that a search found by weighted sums of features (candidate_features.h), and takes
 * the best, where the ids of all chunks are in memory of the device.
 *
 * Features and sums have the same bits on every device: float32 and float64 in a fixed order, without fused
 * multiply-add. The best sum is first; of equal sums the chunk that was found first. */
#pragma once
#include "kernels/device/device.h"
#include "kernels/lexical/candidate_features.h"
#include "kernels/memory/packed_keys.h"

enum { CANDIDATES_MAX = 1024, CANDIDATES_ROWS_MAX = 64 };

/* A trained order. weights [CANDIDATE_FEATURES]: memory of this process, and so small that sums are numbers. idf
 * [vocab]: finite. landmark_by: as `by` of candidate_cosine. */
struct candidate_terms { const double *weights; const float *idf; int vocab; float landmark_by; };

struct candidates {
    /* [n] memory of the device; chunk -1: none. landmark: landmark scores; NULL: the cosine is 0 */
    const int64_t *chunk;
    const float *score, *landmark;
    int n;                               /* 1 .. CANDIDATES_MAX */
    const int32_t *query;                /* [query_ids] of this process, free after the call */
    int query_ids;
    struct candidate_terms terms;        /* idf: memory of the device */
    const struct packed_chunks *of;      /* values and first ids; chunk_rows is at most CANDIDATES_ROWS_MAX */
};

struct candidates_ops {
    /* chunk and score [k], k <= n: the best k of those that were found, with their scores of the search. Chunks of -1
     * are last, as they were found. The outputs do not overlap the inputs. */
    void (*order)(struct device *dev, int64_t *chunk, float *score, const struct candidates *c, int k);
};
extern const struct candidates_ops candidates_cpu;
