/* lexical_build.h -- makes one lexical segment from chunks in order.
 *
 * The file is written under a temporary name and appears whole (base/file.h). Its bytes depend on the chunks alone, not
 * on max_ram. Temporary files without a name, about 3 bytes an occurrence, lie in the file's folder meanwhile. */
#pragma once
#include "store/lexical/lexical.h"

struct lexical_builder;
struct lexical_build {
    int vocab_size;                      /* at most LEXICAL_VOCAB_MAX */
    int64_t first_chunk;
    uint64_t max_ram;                    /* bytes for sorting; 0: 1 GiB; below 1 MiB counts as 1 MiB */
    const struct progress *progress;     /* of lexical_builder_publish; borrowed until then */
};
enum status lexical_builder_create(struct lexical_builder **out, const char *path, const struct lexical_build *how);
/* The next chunk; n at least 1. STATUS_INVALID: id outside the vocabulary, or above LEXICAL_CHUNKS_MAX chunks. */
enum status lexical_builder_add(struct lexical_builder *b, const int32_t *ids, int n);
int64_t lexical_builder_chunks(const struct lexical_builder *b);
/* Merges, writes, syncs, renames; frees b, also on failure. STATUS_INTERRUPTED when a stop was requested. */
enum status lexical_builder_publish(struct lexical_builder *b, uint64_t *bytes, uint32_t *crc);
void lexical_builder_discard(struct lexical_builder *b);  /* NULL is fine */
