/* flat_slices.h -- exact search over all landmarks of a store by several devices, each of which holds a slice.
 *
 * Slice i of n is the i-th of n equal ranges of rows, in memory of device i of the group. The search begins on all
 * devices before it waits for the first of them. The hits are merged by score; ties have the smaller id first, as in a
 * flat_index over all rows. Only one thread may call at a time. It enters the devices (device_enter), the first one
 * last. */
#pragma once
#include "indexer/search/flat_index.h"
#include "kernels/device/device_group.h"

struct flat_slices;
/* The group is borrowed until flat_slices_free. STATUS_NO_MEMORY: one of the devices has no memory for its slice, as
 * for flat_index_create. */
enum status flat_slices_create(struct flat_slices **out, const struct device_group *group,
                               const struct landmark_source *source, uint64_t reserve);
void flat_slices_free(struct flat_slices *s);             /* NULL is fine */
int flat_slices_count(const struct flat_slices *s);
/* Searches as flat_index_search_host does. Also after a failure no device still computes when this returns. */
enum status flat_slices_search(struct flat_slices *s, struct store_hit *hits, const float *queries, int64_t n, int k,
                               const struct store_range *exclude);
