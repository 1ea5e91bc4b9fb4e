/* landmark_load.h -- copies the landmarks of a store into memory of one or several devices, by several threads.
 *
 * Reading mapped files costs a page fault for each 4 KiB, so one thread reads slower than a GPU receives. Threads read
 * blocks of rows into pinned memory, for all devices in turns, and upload them. */
#pragma once
#include "base/system/threads.h"
#include "indexer/search/device_search.h"

/* All rows of `source` to `to`, which is dense device memory of landmark_source_type for as many rows. */
struct landmark_load { struct device *device; const struct landmark_source *source; struct mat to; };
/* Uses the threads of `pool` (NULL: the calling thread) if the source has `copy` and there are at least `least_bytes`
 * of rows in all; -1: LANDMARK_LOAD_BYTES. Otherwise the devices are loaded one after the other by `read`. The rows are
 * there when it returns. It enters the devices, the first one last. */
enum { LANDMARK_LOAD_BYTES = 1 << 28 };
enum status landmark_load(const struct landmark_load *all, int n, struct threads *pool, int64_t least_bytes);
