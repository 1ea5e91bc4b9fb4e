/* drt_index_recall.h -- the measurement of drt-index recall: queries from the store itself, exact and indexed hits. */
#pragma once
#include "indexer/search/searcher.h"
#include "tools/index/drt_index.h"
#include "tools/shared/exclude.h"

struct recall {
    struct opened_store store;
    struct device *device;
    int64_t n, k;                        /* queries, hits of each */
    float *queries;                      /* [n, dim] */
    struct store_range *exclude;         /* [n] */
    struct store_hit *exact, *found;     /* [n, k] */
    int32_t *ids;                        /* scratch */
    double *took;                        /* [n] */
};
struct recall_figures { double recall, gap, mass; };

/* Selects the landmarks of n random chunks as queries; `exclude` as in tools/shared/exclude.h. */
enum status recall_prepare(struct recall *r, uint64_t seed, int64_t exclude);
void recall_free(struct recall *r);                       /* frees what recall_prepare allocated */

/* Milliseconds of a call: mean, median and 99th percentile. */
struct recall_times { double mean, p50, p99; };
/* Measures with one query per call, as in generation. */
enum status recall_search(struct recall *r, struct store_hit *hits, struct searcher *searcher, int nprobe,
                          struct recall_times *ms);
/* Computes means over the queries: the share of the exact hits that the index finds, the share of their softmax weight,
 * and the mean loss of score at each rank. */
struct recall_figures recall_compare(const struct recall *r);
