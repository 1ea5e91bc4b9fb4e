/* list_scan_internal.h -- our own search of an inverted file of 8-bit codes, over the lists that FAISS mapped.
 *
 * A query visits the nprobe lists whose centroids have the greatest product with it (equal: the smaller list), and gets
 * the k rows of them with the greatest product of query and decoded row (equal: the smaller id). Centroids are coded
 * with 8 bits, too: 2 * nprobe + 16 lists are found by the codes, then ordered by float32 centroids. Rows are scored
 * as list_codes_internal.h describes. Results depend on neither the threads nor which queries come together.
 *
 * The file's checks (segment_check_internal.h) must have passed. Ids are returned as the file has them. */
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
    const float *low, *step;             /* [dim]: number i of a decoded row is low[i] + step[i] * code[i] */
    bool residual;                       /* codes are of a row less its list's centroid */
};

struct list_scan;
/* Copies the arrays of `source` but not codes, ids and centroids, which must stay valid until list_scan_free. */
enum status list_scan_make(struct list_scan **out, const struct list_scan_source *source);
void list_scan_free(struct list_scan *x);                 /* NULL is fine */
/* Sums by this loop from here on: for tests. */
void list_scan_use(struct list_scan *x, code_sums *sums);

struct list_scan_search {
    int64_t n;
    const float *queries;                /* [n, dim] */
    int k, nprobe;                       /* 1 <= nprobe <= lists */
    const struct store_range *exclude;   /* [n]; NULL: none */
    struct threads *threads;
};
/* ids [n * k], best first, -1 where there are fewer; scores the same, NULL: not wanted. Several threads may search one
 * list_scan at once, with pools of their own. */
enum status list_scan_find(const struct list_scan *x, int64_t *ids, float *scores, const struct list_scan_search *how);
