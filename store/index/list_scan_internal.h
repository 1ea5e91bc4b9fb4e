/* list_scan_internal.h -- searches an inverted file of 8-bit codes, over the lists that FAISS has mapped.
 *
 * A query visits the nprobe lists whose centroids have the largest product with it (ties: the smaller list). The result
 * is the k rows of these lists with the largest product of query and decoded row (ties: the smaller id). The centroids
 * have 8-bit codes, too. The codes select 2 * nprobe + 16 lists, of which the float32 centroids select nprobe. Rows are
 * scored as list_codes_internal.h describes. Results depend neither on the threads nor on the other queries of a call.
 *
 * The file must have passed the check of segment_check_internal.h. Ids are returned as stored in the file. */
#pragma once
#include "base/system/threads.h"
#include "store/index/list_codes_internal.h"
#include "store/store.h"

struct list_scan_list { const uint8_t *codes; const void *ids; int64_t n; };  /* ids: int64_t, not aligned */

struct list_scan_source {
    int dim;
    int64_t lists;
    const float *centroids;              /* [lists, dim] */
    struct list_scan_list *list;         /* [lists] */
    const float *low, *step;             /* [dim]: element i of a decoded row is low[i] + step[i] * code[i] */
    bool residual;                       /* codes are those of a row minus its list's centroid */
};

struct list_scan;
/* Copies the arrays of `source`, except codes, ids and centroids, which must stay valid until list_scan_free. */
enum status list_scan_make(struct list_scan **out, const struct list_scan_source *source);
void list_scan_free(struct list_scan *x);                 /* NULL is fine */
/* Selects the loop for all later sums, for tests. */
void list_scan_use(struct list_scan *x, code_sums *sums);

struct list_scan_search {
    int64_t n;
    const float *queries;                /* [n, dim] */
    int k, nprobe;                       /* 1 <= nprobe <= lists */
    const struct store_range *exclude;   /* [n]; NULL: none */
    struct threads *threads;
    /* range of list numbers: of the lists to visit, only those in it are scanned; end 0: all */
    struct store_range lists;
};
/* Divides the lists into slice.of ranges with about equal numbers of rows, and returns the range slice.number, from
 * 0. */
struct store_range list_scan_share(const struct list_scan *x, struct store_slice slice);
/* Writes ids [n * k], best first (-1: fewer were found), and their scores (NULL: not wanted). Several threads may
 * search one list_scan at the same time, each with its own `threads`. */
enum status list_scan_find(const struct list_scan *x, int64_t *ids, float *scores, const struct list_scan_search *how);
