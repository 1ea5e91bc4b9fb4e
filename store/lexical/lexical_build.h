/* lexical_build.h -- makes one lexical segment from chunks in order.
 *
 * The file is written under a temporary name and then renamed (base/file.h). Its bytes depend only on the chunks, not
 * on max_ram or on the number of threads. Until then the file's folder contains temporary files without a name: as many
 * bytes as the segment, and 4 to 7 bytes per token if max_ram has too little for these. */
#pragma once
#include "store/lexical/lexical.h"

struct lexical_builder;
struct lexical_build {
    int vocab_size;                      /* at most LEXICAL_VOCAB_MAX */
    int64_t first_chunk;
    uint64_t max_ram;                    /* bytes for sorting; 0: 1 GiB; values below 1 MiB count as 1 MiB */
    const struct progress *progress;     /* used by lexical_builder_publish; borrowed until then */
    /* takes most of the file's space while chunks are added (file_reserve): for a builder that waits for its chunks */
    bool reserve;
    struct threads *threads;             /* that sort and make lists together; NULL: only the caller's; borrowed */
};
enum status lexical_builder_create(struct lexical_builder **out, const char *path, const struct lexical_build *how);
/* Adds the next chunk, with n >= 1 ids. STATUS_INVALID: an id is outside the vocabulary, or there are more than
 * LEXICAL_CHUNKS_MAX chunks. */
enum status lexical_builder_add(struct lexical_builder *b, const int32_t *ids, int n);
/* The same for n >= 1 ids in chunks of `chunk` ids each, the last of which may be shorter. */
enum status lexical_builder_add_chunks(struct lexical_builder *b, const int32_t *ids, int64_t n, int chunk);
int64_t lexical_builder_chunks(const struct lexical_builder *b);
/* Merges the occurrences, writes and syncs the file, and renames it. Frees b, also on failure. STATUS_INTERRUPTED: a
 * stop was requested. */
enum status lexical_builder_publish(struct lexical_builder *b, uint64_t *bytes, uint32_t *crc);
void lexical_builder_discard(struct lexical_builder *b);  /* NULL is fine */
