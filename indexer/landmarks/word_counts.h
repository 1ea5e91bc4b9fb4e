/* word_counts.h -- how many chunks of a store have each id, as the idf of BM25 (store/lexical/lexical.h). It reads the
 * chunks themselves, so it is the same with every index of the store, and needs none.
 *
 * For one thread at a time, as the view is. */
#pragma once
#include "base/progress.h"
#include "store/store.h"

/* Makes the idf of each id, [vocab_size], which memory_free frees, from the chunks that exist. most > 0: from at most
 * about so many of them, at equal distances. *chunks: number of chunks that were counted; 0: the store has none, and
 * all ids have the idf ln 2. progress may be NULL. STATUS_INTERRUPTED: a stop was requested. */
enum status word_counts_idf(float **out, int64_t *chunks, struct store_view *view, int64_t most,
                            const struct progress *progress);
