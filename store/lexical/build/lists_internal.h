/* lists_internal.h -- writes the lists of keys, as a segment has them, with the data for their dictionary entries.
 *
 * A thread has a writer for its lists, and makes the lists of tokens and of pairs of one bucket after the other. The
 * lists of tokens of a bucket are a piece, and so are those of pairs. The keys of a piece ascend. */
#pragma once
#include "store/lexical/build/spool_internal.h"
#include "store/lexical/lexical_format_internal.h"

enum { LISTS_TOKENS, LISTS_PAIRS, LISTS_PARTS };
struct lists_piece {
    int64_t keys, postings;
    uint64_t bytes, entries;             /* of the lists, of their dictionary entries */
    uint64_t last_key;                   /* 0: there are no keys */
    uint64_t lists_at, entries_at;       /* where they begin in the writer's spools */
    int writer;
};
struct lists_part {
    /* An entry has, as varints: the step from the key before (of the first: from 0), the number of chunks with the key,
     * the length of its list, and the length of the rest of its dictionary entry; then that rest. */
    struct spool *lists, *entries;
    struct lists_piece piece;
};
enum { LISTS_ENTRY_BYTES = 8 * LEXICAL_VARINT_BYTES };    /* the most bytes of an entry */

struct lists_writer {
    int64_t chunks;                      /* of the segment */
    struct lists_part parts[LISTS_PARTS];
    uint8_t *skips; size_t skips_capacity;                /* of the current list */
    uint8_t *dense;                      /* 2 bits a chunk, in whole words of 64 bits; NULL: not needed yet */
};
/* buffer: bytes of each of four buffers, at least 1 << 16 */
enum status lists_create(struct lists_writer *w, const char *folder, int64_t chunks, size_t buffer);
void lists_free(struct lists_writer *w);
void lists_begin(struct lists_writer *w, int writer);     /* begins a piece of each part, of this writer's number */
enum status lists_flush(struct lists_writer *w);          /* after that any number of threads may read the spools */

/* Writes a list of n >= 1 postings. chunks[n] ascend; codes[n]: lexical_code of each. */
enum status lists_add(struct lists_writer *w, int part, uint64_t key, const uint32_t *chunks, const uint8_t *codes,
                      int64_t n);
/* Empties w->dense, for lists_add_dense. */
enum status lists_clear_dense(struct lists_writer *w);
/* Writes the list of the postings in w->dense, n >= 1 of them. */
enum status lists_add_dense(struct lists_writer *w, int part, uint64_t key, int64_t n);

/* Writes a list of one posting of frequency 1, by far the most frequent kind: see lists_add. */
static inline enum status lists_add_one(struct lists_writer *w, int part, uint64_t key, uint32_t chunk) {
    struct lists_part *p = &w->parts[part];
    uint8_t *list, *entry;
    TRY(spool_reserve(p->lists, 8, &list));
    TRY(spool_reserve(p->entries, LISTS_ENTRY_BYTES, &entry));
    const int width = chunk ? 32 - __builtin_clz(chunk) : 0, bytes = (width + 7) / 8;
    little_endian_put(list, chunk, 4);
    p->lists->buffered += (size_t)bytes;
    int n = lexical_put_varint(entry, key - p->piece.last_key);
    entry[n] = 1;
    entry[n + 1] = (uint8_t)bytes;
    entry[n + 2] = 1;
    entry[n + 3] = (uint8_t)width;
    p->entries->buffered += (size_t)n + 4;
    p->piece.last_key = key;
    p->piece.keys++;
    p->piece.postings++;
    p->piece.bytes += (uint64_t)bytes;
    p->piece.entries += (uint64_t)n + 4;
    return STATUS_OK;
}
