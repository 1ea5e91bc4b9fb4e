/* exact_internal.h -- scores computed from the stored rows: a scan of all rows, or scores of given chunks.
 *
 * score = sum over i of q[i] * float(row[i]), in one fixed order of float32 operations, times the row's scale if the
 * row has 8-bit codes, times 1/sqrt(dim). The order does not depend on the number of queries or threads, so a chunk's
 * score has the same bits in every search. */
#pragma once
#include "base/system/threads.h"
#include "store/shards/landmarks_internal.h"

/* Finds the best k of these chunks' rows for queries [n, dim]. exclude [n], or NULL. hits as in store_view_search. */
enum status exact_scan(struct landmarks *l, struct store_hit *hits, const float *queries, int64_t n, int k,
                       const struct store_range *exclude, struct store_range rows, struct threads *threads);

/* ids [query][n]: the same number of candidates for each query. Ignored are -1, ids outside the store, and ids that are
 * dropped or excluded. */
struct exact_candidates { const int64_t *ids; int64_t n; };
/* Finds the best k of each query's candidates. */
enum status exact_rescore(struct landmarks *l, struct store_hit *hits, const float *queries, int64_t n, int k,
                          struct exact_candidates candidates, const struct store_range *exclude,
                          struct threads *threads);

/* Computes out[n]: dot products with float32 rows in memory, by the same loop; dim is a multiple of 8. The speed of the
 * linked FAISS is compared with it. */
void exact_dots(float *out, const float *rows, int64_t n, const float *query, int dim);
