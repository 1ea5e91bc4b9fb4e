/* exact_internal.h -- scores computed from the fp16 rows: a scan of all of them, or of chosen ones.
 *
 * score = sum over i of q[i] * float(row[i]), in one fixed order of float32 operations, times 1/sqrt(dim). The order
 * is the same however many queries or threads there are, so a chunk's score has the same bits in every search. */
#pragma once
#include "base/system/threads.h"
#include "store/shard_files_internal.h"

struct landmarks {
    struct shard_map *shards;            /* in order of ids, none overlapping; a dropped one has no rows */
    int64_t n_shards, chunks;
    struct store_range *dropped; int64_t n_dropped;
    int dim;
};
static inline struct store_dropped landmarks_dropped(const struct landmarks *l) { return (struct store_dropped){l->dropped, l->n_dropped}; }
/* Chunks are of shards that are there. */
const uint16_t *landmarks_row(const struct landmarks *l, int64_t chunk);
const uint16_t *landmarks_rows(const struct landmarks *l, int64_t *n, int64_t first);      /* to the end of its shard */
void landmarks_to_float(float *out, const struct landmarks *l, int64_t first, int64_t n);   /* [n, dim] */
/* Pages of shards that hold rows first .. first+n-1 count no longer as this process's memory: for a pass over a store
 * larger than what may be resident. */
void landmarks_let_go(const struct landmarks *l, int64_t first, int64_t n);

/* Best k of all rows (queries [n, dim]); exclude [n] or NULL. hits as store_view_search. */
enum status exact_scan(const struct landmarks *l, struct store_hit *hits, const float *queries, int64_t n, int k,
                       const struct store_range *exclude, struct threads *threads);

/* Best k of each query's candidates[n_candidates] (-1 and ids outside, dropped or excluded are passed over). */
enum status exact_rescore(const struct landmarks *l, struct store_hit *hits, const float *queries, int64_t n, int k,
                          const int64_t *candidates, int64_t n_candidates, const struct store_range *exclude,
                          struct threads *threads);

/* out[n]: the same dot products over float32 rows in memory, dim a multiple of 8 (to compare the linked FAISS with). */
void exact_dots(float *out, const float *rows, int64_t n, const float *query, int dim);
