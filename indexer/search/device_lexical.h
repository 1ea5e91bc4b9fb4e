/* device_lexical.h -- the lexical index of a view in memory of a device: BM25 on the GPU.
 *
 * The postings of all segments are checked and copied once; the dictionaries stay on the CPU, which makes the plan of a
 * query. What a view sees never changes, so the copy is never stale. */
#pragma once
#include "kernels/device/device.h"
#include "store/lexical/lexical.h"

struct device_lexical;

struct device_lexical_config {
    struct device *device;
    const struct lexical *index;         /* open as long as this */
    struct store_dropped absent;         /* chunks never to be found; needed during creation only */
    uint64_t reserve;                    /* bytes of device memory to be left for others */
};
/* Bytes of device memory that postings and dropped chunks take. */
uint64_t device_lexical_bytes(const struct device_lexical_config *config);
/* STATUS_NO_MEMORY when that does not fit, STATUS_CORRUPT when a list is damaged. */
enum status device_lexical_create(struct device_lexical **out, const struct device_lexical_config *config);
void device_lexical_free(struct device_lexical *d);       /* before device and index are closed; NULL is fine */

/* As lexical_search, to the last bit, without the chunks that were absent at creation; how->absent is not read. How->k
 * above LEXICAL_SCAN_K_MAX is searched by the CPU. Memory grows when a call needs more than those before it. One thread
 * at a time. */
enum status device_lexical_search(struct device_lexical *d, struct store_hit *hits, const struct lexical_query *queries,
                                  int64_t n_queries, const struct lexical_search *how);
