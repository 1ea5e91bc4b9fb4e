/* list_index.h -- the landmarks of a store in device memory, list by list ("gpu-ivf"), for corpora that take too long
 * to scan. A query visits the lists whose centroids are nearest to it, and scores all of their rows exactly. So it can
 * miss a neighbour, but scores are exact.
 *
 * The centroids are computed on the device from a sample of the rows (kernels/search/kmeans.h). The store's own index
 * is not used. Rows are read twice: first in their order, then into the slots of their lists. Like a flat_index, the
 * index is of one view and never stale. */
#pragma once
#include "indexer/search/device_search.h"

struct list_index;

struct list_index_config {
    struct device *device;
    struct landmark_source source;       /* needed during creation only */
    int64_t lists;                       /* 0: a power of two near 8 times the square root of the number of rows */
    int nprobe; /* lists that a query visits; 0: twice the square root of their number, at least 8 */
    uint64_t reserve;                    /* bytes of device memory to leave free */
    uint64_t seed;                       /* of the centroids */
    bool (*stop)(void *context);         /* called between steps; true: stop with STATUS_INTERRUPTED; NULL: never */
    void *context;
};
/* Returns the bytes of device memory that rows, ids and centroids take. Creation needs up to 200 MB more. */
uint64_t list_index_bytes(const struct list_index_config *config);
/* STATUS_NO_MEMORY: that does not fit. STATUS_UNSUPPORTED: the GPU's search does not support this width
 * (kernels/search/ivf_scan.h). */
enum status list_index_create(struct list_index **out, const struct list_index_config *config);
void list_index_free(struct list_index *f);               /* call before the device is closed; NULL is fine */

struct list_index_info { int64_t rows, lists, largest; int nprobe; };      /* largest: rows of the largest list */
struct list_index_info list_index_info(const struct list_index *f);

/* Writes hits [n, k], which are those of store_view_search for the visited rows except for the last bits of scores.
 * queries [n, dim]: float32 in device memory. hits and exclude [n] (NULL: none): memory of this process. nprobe 0: the
 * index's default. A query whose lists have fewer than k rows visits all lists. For one thread at a time. */
enum status list_index_search(struct list_index *f, struct store_hit *hits, struct mat queries, int k, int nprobe,
                              const struct store_range *exclude);
/* The same for queries in memory of this process. */
enum status list_index_search_host(struct list_index *f, struct store_hit *hits, const float *queries, int64_t n, int k,
                                   int nprobe, const struct store_range *exclude);

/* What the index consists of, with the row of each chunk, which is made at the first call; valid until
 * list_index_free. */
enum status list_index_lists(struct list_index *f, struct landmark_lists *out);
