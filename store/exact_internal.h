/* exact_internal.h -- scores computed from the fp16 rows: a scan of all of them, or of chosen ones.
 *
 * score = sum over i of q[i] * float(row[i]), in one fixed order of float32 operations, times 1/sqrt(dim). The order
 * is the same however many queries or threads there are, so a chunk's score has the same bits in every search. */
#pragma once
#include "base/system/threads.h"
#include "store/shards/landmarks_internal.h"

/* Best k of the rows of these chunks (queries [n, dim]); exclude [n] or NULL. hits as store_view_search. */
enum status exact_scan(struct landmarks *l, struct store_hit *hits, const float *queries, int64_t n, int k,
                       const struct store_range *exclude, struct store_range rows, struct threads *threads);

/* ids[query][n]: the same number for each query; -1 and ids outside, dropped or excluded are passed over. */
struct exact_candidates { const int64_t *ids; int64_t n; };
/* Best k of each query's candidates. */
enum status exact_rescore(struct landmarks *l, struct store_hit *hits, const float *queries, int64_t n, int k,
                          struct exact_candidates candidates, const struct store_range *exclude,
                          struct threads *threads);

/* out[n]: the same dot products over float32 rows in memory, dim a multiple of 8 (to compare the linked FAISS with). */
void exact_dots(float *out, const float *rows, int64_t n, const float *query, int dim);
