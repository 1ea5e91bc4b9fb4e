/* chunk_cache.h -- encoded chunks in a pool of slots, with least-recently-used replacement.
 *
 * A slot holds the K and V of one chunk in the layout of kernels/attention/gca.h, in the encoder's type, in device
 * memory. A key (source, id) always names the same chunk. Pinned slots are not replaced. A lookup that needs a slot
 * fails if all are pinned, so the cache must have at least as many slots as are pinned at the same time. For one thread
 * at a time. */
#pragma once
#include "encoder/encoder.h"
#include "kernels/attention/gca.h"

struct chunk_cache;
struct chunk_key { int32_t source; int64_t id; };

/* Reads the tokens of the missing keys into ids [n, chunk]. After the last id of a short chunk, the rest is -1. */
typedef enum status chunk_tokens(void *context, int32_t *ids, const struct chunk_key *keys, int64_t n);

enum status chunk_cache_create(struct chunk_cache **out, struct device *dev, const struct model_config *config,
                               struct encoder *encoder, int64_t slots);
void chunk_cache_free(struct chunk_cache *c);             /* NULL is fine */
struct gca_pool chunk_cache_pool(const struct chunk_cache *c);

/* Sets slot[i] to the slot of keys[i] (id < 0: -1) and pins it once more. Missing chunks are read and encoded in one
 * batch; a repeated key is encoded once. On failure nothing is pinned. */
enum status chunk_cache_get(struct chunk_cache *c, int32_t *slot, const struct chunk_key *keys, int64_t n,
                            chunk_tokens *tokens, void *context);
/* Adds a chunk whose K and V the caller computes (decoder variant): *slot is pinned, and the caller fills it. */
enum status chunk_cache_put(struct chunk_cache *c, int32_t *slot, struct chunk_key key);
void chunk_cache_unpin(struct chunk_cache *c, const int32_t *slot, int64_t n);   /* slot -1 is skipped */

struct chunk_cache_stats { int64_t hits, misses; double read_seconds, encode_seconds; };
struct chunk_cache_stats chunk_cache_stats(const struct chunk_cache *c);
