/* lexical_follow_internal.h -- makes the lexical index of a store in which nothing is published while its shards are
 * being made, so that publishing need not read all tokens.
 *
 * A thread takes the ids of each document that is added to a shard, also of shards that are not sealed yet, and adds
 * its chunks to a builder, with a pool of threads of its own. Shards that an earlier, killed process recorded are read
 * from their files before. After the last document the thread makes the file of the segment, while the landmarks of the
 * last shards are made. No record names the file until the store is published. */
#pragma once
#include "store/publish_lexical_internal.h"

struct lexical_follower;
/* *out NULL: the store has a published generation or a too large vocabulary, so there is nothing to follow. */
enum status lexical_follower_create(struct lexical_follower **out, struct store_writer *w, uint64_t max_ram,
                                    int threads, bool yielding);
/* Adds the next document of the store. Failures are kept for lexical_follower_finish. The calls are of one thread; NULL
 * is fine. */
void lexical_follower_add(struct lexical_follower *f, const int32_t *ids, size_t n);
/* There are no more documents. Returns at once. */
void lexical_follower_end(struct lexical_follower *f);
/* Waits for the file of the segment. *done false: it was not made, because the tokens are damaged or the chunks do not
 * fit in one segment. out->chunks: also those of shards that were discarded; then the file is of no use. Call it once.
 * STATUS_INTERRUPTED: a stop was requested. */
enum status lexical_follower_finish(struct lexical_follower *f, struct lexical_segment_record *out, bool *done,
                                    const struct progress *progress);
/* Removes the file, unless lexical_follower_finish returned it. NULL is fine. */
void lexical_follower_free(struct lexical_follower *f);
