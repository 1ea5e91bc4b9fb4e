/* flat_index.h -- exact search over all landmarks of a store, in device memory ("gpu-flat").
 *
 * The rows of all shards of one view are copied to the device once. The contents of a view never change, so the index
 * is never stale. A newer generation needs a newer view and another index. The view is needed during creation only. */
#pragma once
#include "indexer/search/device_search.h"

struct flat_index;

/* STATUS_NO_MEMORY, with the bytes: the rows do not fit with `reserve` bytes left free, or they are more than max_bytes
 * (0: no such limit). The caller then uses the store's own search. */
struct flat_index_config { struct device *device; struct landmark_source source; uint64_t max_bytes, reserve; };
enum status flat_index_create(struct flat_index **out, const struct flat_index_config *config);
/* Creates out[n], of which each is on another device. The threads of the first device load all of them at the same
 * time. After a failure out[n] are NULL. It enters the devices, the first one last. */
enum status flat_index_create_all(struct flat_index **out, const struct flat_index_config *configs, int n);
void flat_index_free(struct flat_index *f);               /* call before the device is closed; NULL is fine */

/* Writes hits [n, k], which are those of store_view_search with `exact` except for the last bits of scores. queries [n,
 * dim]: float32 in device memory. hits and exclude [n] (NULL: none): memory of this process. The buffer of the hits
 * grows when a call needs more than earlier calls. For one thread at a time. */
enum status flat_index_search(struct flat_index *f, struct store_hit *hits, struct mat queries, int k,
                              const struct store_range *exclude);
/* The same for queries in memory of this process. */
enum status flat_index_search_host(struct flat_index *f, struct store_hit *hits, const float *queries, int64_t n, int k,
                                   const struct store_range *exclude);

/* All rows as one list, which is made at the first call; valid until flat_index_free. STATUS_UNSUPPORTED: the GPU's
 * scan of lists does not read rows of this width (kernels/search/ivf_scan.h), or there are none. */
enum status flat_index_lists(struct flat_index *f, struct landmark_lists *out);

/* A search in two steps. The device computes between them, so the caller can begin searches on other devices meanwhile.
 * An index can have one search at a time, of at most FLAT_INDEX_BATCH queries. A matrix of queries must not change
 * until the second step. Queries in the memory of this process may change after the first step. */
enum { FLAT_INDEX_BATCH = 1024 };
enum status flat_index_begin(struct flat_index *f, struct mat queries, int k, const struct store_range *exclude);
enum status flat_index_begin_host(struct flat_index *f, const float *queries, int64_t n, int k,
                                  const struct store_range *exclude);
enum status flat_index_end(struct flat_index *f, struct store_hit *hits);
