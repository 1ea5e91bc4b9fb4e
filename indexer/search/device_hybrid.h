/* device_hybrid.h -- a search by words and landmarks on a device: both scans, both scores of what they find, and the
 * merge (kernels/lexical/hybrid.h). After the plan of the words this process does nothing. The hits are those of
 * searcher_search with bm25, except where the last bits of landmark scores decide. Fewer landmarks than requested may
 * be found: no more lists are visited then. */
#pragma once
#include "indexer/search/searcher.h"

struct device_hybrid;
/* Borrowed until device_hybrid_free. */
struct device_hybrid_config {
    struct device *device;
    struct device_lexical *lexical;
    struct landmark_lists landmarks;
};
enum status device_hybrid_create(struct device_hybrid **out, const struct device_hybrid_config *config);
void device_hybrid_free(struct device_hybrid *h);         /* NULL is fine */

/* words: k is their number of candidates, which device_lexical_takes. landmarks: the same of landmarks, at most 1024.
 * nprobe 0: the index's default. */
struct device_hybrid_how { struct lexical_search words; int landmarks, nprobe; float weight; };
/* Queues the search for at most DEVICE_LEXICAL_BATCH queries with bm25. The hits are written to memory of the device
 * [n * k]. Query vectors on the device must not change until the ops are complete. */
enum status device_hybrid_queue(struct device_hybrid *h, struct searcher_found out, const struct searcher_query *q,
                                const struct device_hybrid_how *how);
/* The same for any number of queries, with hits [n * k] in memory of this process. */
enum status device_hybrid_search(struct device_hybrid *h, struct store_hit *hits, const struct searcher_query *q,
                                 const struct device_hybrid_how *how);
