/* lexical_follow_internal.h -- makes the lexical index of a store in which nothing is published while its shards are
 * being made, so that publishing need not read all tokens.
 *
 * A thread waits for shards that are recorded. It reads their tokens from their files and adds their chunks to a
 * builder, with a pool of threads of its own. Nothing else uses what it makes until lexical_follower_finish. Shards
 * that an earlier, killed process recorded are read, too. */
#pragma once
#include "store/publish_lexical_internal.h"

struct lexical_follower;
/* *out NULL: the store has a published generation or a too large vocabulary, so there is nothing to follow. */
enum status lexical_follower_create(struct lexical_follower **out, struct store_writer *w, uint64_t max_ram,
                                    int threads);
/* One more shard is recorded. NULL is fine. From any thread. */
void lexical_follower_sealed(struct lexical_follower *f);
/* Waits for the chunks of all recorded shards and makes the file of their segment, with the threads of `how`. *done
 * false: it was not made, because the tokens are damaged or the chunks do not fit in one segment. Call it once. */
enum status lexical_follower_finish(struct lexical_follower *f, struct lexical_segment_record *out, bool *done,
                                    const struct store_publish *how);
void lexical_follower_free(struct lexical_follower *f);   /* NULL is fine */
