/* list_index.h -- the landmarks of a store in memory of a device, list by list ("gpu-ivf"): for corpora that take
 * too long to be scanned. A query visits the lists whose centroids are nearest to it, and scores all of their rows
 * exactly: a neighbour can be lost, a score cannot change.
 *
 * Centroids are our own (kernels/search/kmeans.h), from a sample of the rows, whatever index the store has; they
 * are made when the index is, on the device. Rows are read twice: first in their order, then into the slots of
 * their lists. Of one view, as a flat_index. */
#pragma once
#include "indexer/search/device_search.h"

struct list_index;

struct list_index_config {
    struct device *device;
    struct landmark_source source;       /* needed during creation only */
    int64_t lists;                       /* 0: a power of two near 8 times the root of the rows */
    int nprobe;                          /* lists that a query visits; 0: twice the root of their number, at least 8 */
    uint64_t reserve;                    /* bytes of device memory to be left for others */
    uint64_t seed;                       /* of the centroids */
    bool (*stop)(void *context);         /* called between steps; true: STATUS_INTERRUPTED; NULL: never */
    void *context;
};
/* Bytes of device memory that rows, ids and centroids take (creation: up to 200 MB more). */
uint64_t list_index_bytes(const struct list_index_config *config);
/* STATUS_NO_MEMORY when that does not fit; STATUS_UNSUPPORTED for a width that the GPU's search does not take
 * (kernels/search/ivf_scan.h). */
enum status list_index_create(struct list_index **out, const struct list_index_config *config);
void list_index_free(struct list_index *f);               /* before the device is closed; NULL is fine */

struct list_index_info { int64_t rows, lists, largest; int nprobe; };      /* largest: rows of the largest list */
struct list_index_info list_index_info(const struct list_index *f);

/* hits [n, k] as store_view_search gives for the rows visited, but for the last bits of scores. queries [n, dim]
 * float32, memory of the device; hits and exclude [n] (NULL: none) memory of this process. nprobe 0: the index's
 * own; a query whose lists hold fewer than k rows visits all of them. One thread at a time. */
enum status list_index_search(struct list_index *f, struct store_hit *hits, struct mat queries, int k, int nprobe,
                              const struct store_range *exclude);
/* The same for queries in memory of this process. */
enum status list_index_search_host(struct list_index *f, struct store_hit *hits, const float *queries, int64_t n, int k,
                                   int nprobe, const struct store_range *exclude);
