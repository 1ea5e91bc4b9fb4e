/* flat_slices.h -- exact search over all landmarks of a store by several devices, each of which holds a slice.
 *
 * Slice i of n is the i-th of n equal ranges of rows, in memory of device i of the group. A search begins on every
 * device before the first one is waited for. The hits are merged by score; ties have the smaller id first, as in a
 * flat_index over all rows. One thread at a time, which enters the devices and then the first one again. */
#pragma once
#include "indexer/search/flat_index.h"
#include "kernels/device/device_group.h"

struct flat_slices;
/* The group is borrowed until flat_slices_free. STATUS_NO_MEMORY: as flat_index_create, of any device. */
enum status flat_slices_create(struct flat_slices **out, const struct device_group *group,
                               const struct landmark_source *source, uint64_t reserve);
void flat_slices_free(struct flat_slices *s);             /* NULL is fine */
int flat_slices_count(const struct flat_slices *s);
/* As flat_index_search_host. After a failure of one device nothing runs on the others. */
enum status flat_slices_search(struct flat_slices *s, struct store_hit *hits, const float *queries, int64_t n, int k,
                               const struct store_range *exclude);
