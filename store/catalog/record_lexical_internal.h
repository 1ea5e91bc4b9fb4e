/* record_lexical_internal.h -- the catalog's record of the lexical index: one value, so that it changes as a whole.
 *
 * Table meta, key "lexical", little-endian: wanted (1 byte), next file number (8), count (8); for each segment number
 * (8), first chunk (8), chunks (8), bytes (8) and CRC32C (4) of its file; CRC32C of all that. A store without the
 * record has no lexical index. */
#pragma once
#include "base/file.h"
#include "store/catalog/records_internal.h"

struct lexical_segment_record { int64_t number, first_chunk, chunks; struct stored_file file; };
struct lexical_record {
    bool wanted;                         /* chunks that are published later are indexed too */
    int64_t next_number;                 /* of the next file: numbers of files are never used twice */
    struct lexical_segment_record *list; int64_t n;       /* ascending ranges; allocated: lexical_record_free */
};
/* Gets the record. Without one the result is empty, and numbers start at 1. STATUS_CORRUPT names the catalog. */
enum status record_get_lexical(struct catalog_txn *t, const struct catalog *c, struct lexical_record *out);
enum status record_put_lexical(struct catalog_txn *t, const struct lexical_record *r);
void lexical_record_free(struct lexical_record *r);       /* a zeroed one is fine */

/* Whether each of the first `chunks` ids is in exactly one segment, except dropped ids, which must be in none. */
bool lexical_record_covers(const struct lexical_record *r, struct store_dropped d, int64_t chunks);
uint64_t lexical_record_bytes(const struct lexical_record *r);

/* Writes the path "lexical/00007.lex" of a store. */
enum status lexical_path(char out[FILE_PATH_MAX], const char *store, int64_t number);
