/* device_lexical.h -- a copy of a view's lexical index in device memory: BM25 on the GPU.
 *
 * The postings of all segments are checked and copied once. The dictionaries stay on the CPU, which plans a query. The
 * contents of a view never change, so the copy is never stale. */
#pragma once
#include "kernels/device/device.h"
#include "store/lexical/lexical.h"

struct device_lexical;

struct device_lexical_config {
    struct device *device;
    const struct lexical *index;         /* must be open until device_lexical_free */
    struct store_dropped absent;         /* chunks that are never found; needed during creation only */
    uint64_t reserve;                    /* bytes of device memory to leave free */
};
/* Returns the bytes of device memory that postings and dropped chunks take. */
uint64_t device_lexical_bytes(const struct device_lexical_config *config);
/* STATUS_NO_MEMORY: that does not fit. STATUS_CORRUPT: a list is damaged. */
enum status device_lexical_create(struct device_lexical **out, const struct device_lexical_config *config);
void device_lexical_free(struct device_lexical *d);       /* call before device and index are closed; NULL is fine */

/* Searches as lexical_search does, with the same bits, and never returns chunks that were absent at creation;
 * how->absent is not read. A search with how->k above LEXICAL_SCAN_K_MAX runs on the CPU. Memory grows when a call
 * needs more than earlier calls. For one thread at a time. */
enum status device_lexical_search(struct device_lexical *d, struct store_hit *hits, const struct lexical_query *queries,
                                  int64_t n_queries, const struct lexical_search *how);

/* The search for one query in two parts. The caller may queue other ops of the device between them, but no other
 * search. _queue: *queued is false if the CPU would search; then nothing was queued. _collect: waits for the hits [k].
 */
enum status device_lexical_queue(struct device_lexical *d, bool *queued, const struct lexical_query *query,
                                 const struct lexical_search *how);
enum status device_lexical_collect(struct device_lexical *d, struct store_hit *hits);
/* Whether the device searches for k hits, and not the CPU. */
bool device_lexical_takes(const struct device_lexical *d, int k);
/* Chunks of which a search also computes the scores: chunk, score [n_queries * n], memory of the device. */
struct device_lexical_given { const int64_t *chunk; float *score; int n; };
enum { DEVICE_LEXICAL_BATCH = 64 };
/* The search for at most DEVICE_LEXICAL_BATCH queries whose hits are written to memory of the device: chunk, score
 * [n_queries * k], chunk -1 where fewer are found. Only if device_lexical_takes holds. given NULL: none. */
enum status device_lexical_queue_into(struct device_lexical *d, int64_t *chunk, float *score,
                                      const struct lexical_query *queries, int64_t n_queries,
                                      const struct lexical_search *how, const struct device_lexical_given *given);
/* Looks up a query's lists, so that the plan of the next search, if it has most of these ids, takes less time. A
 * failure has no effect: that search reports it. */
void device_lexical_prepare(struct device_lexical *d, const struct lexical_query *query,
                            const struct lexical_search *how);
