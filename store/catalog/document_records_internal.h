/* document_records_internal.h -- the records of documents: tables runs, documents and hashes. As records_internal.h. */
#pragma once
#include "store/catalog/catalog_internal.h"
#include "store/store.h"

struct run_record { int64_t document, shard, token_offset, tokens, chunks; };
struct document_record {
    int64_t first_chunk, chunks, tokens, shard, token_offset;
    uint64_t offset, line, bytes;
    uint8_t hash[16];
    const char *source, *key; size_t source_bytes, key_bytes;   /* borrowed, without NUL */
};

/* Copies the record of document `number`. The strings of `out` point into *text, which grows as in memory_grow. */
enum status document_record_copy(struct store_document *out, char **text, size_t *capacity, int64_t number,
                                 const struct document_record *r);

/* The values of records, as the append functions below write them. DOCUMENT_RECORD_FIXED: without its strings. */
enum { RUN_RECORD_BYTES = 5 * 8 + 4, DOCUMENT_RECORD_FIXED = 8 * 8 + 16 + 2 * 4 + 4 };
size_t run_record_encode(uint8_t out[RUN_RECORD_BYTES], const struct run_record *r);
size_t document_record_bytes(const struct document_record *r);
size_t document_record_encode(uint8_t *out, const struct document_record *r); /* returns document_record_bytes */

/* Gets the run that contains the chunk, and its first chunk. */
enum status record_find_run(struct catalog_txn *t, const struct catalog *c, int64_t *first_chunk,
                            struct run_record *out, int64_t chunk);
enum status record_decode_run(struct bytes value, const struct catalog *c, struct run_record *out);
enum status record_append_run(struct catalog_txn *t, int64_t first_chunk, const struct run_record *r);

enum status record_get_document(struct catalog_txn *t, const struct catalog *c, struct document_record *out,
                                int64_t document);
enum status record_decode_document(struct bytes value, const struct catalog *c, struct document_record *out);
enum status record_append_document(struct catalog_txn *t, int64_t document, const struct document_record *r);

enum status record_find_hash(struct catalog_txn *t, const uint8_t hash[16], bool *found, int64_t *document);
enum status record_put_hash(struct catalog_txn *t, const uint8_t hash[16], int64_t document);
enum status record_add_hash(struct catalog_txn *t, const uint8_t hash[16], int64_t document); /* if there is none yet */
/* Hashes must ascend, as byte strings. */
enum status record_append_hash(struct catalog_txn *t, const uint8_t hash[16], int64_t document);
