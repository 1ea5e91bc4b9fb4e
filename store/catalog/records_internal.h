/* records_internal.h -- what the catalog's records hold, and their bytes (little-endian, no padding).
 *
 * Every decode checks the length, the checksum and the plausibility of its fields; STATUS_CORRUPT names the catalog. A
 * get function that finds no record gives STATUS_CORRUPT too, for a requested record must exist, except
 * where it says otherwise. */
#pragma once
#include "store/catalog/catalog_internal.h"
#include "store/store.h"

enum { RECORD_INDEX_MAX = 256 };

struct generation_record { int64_t number, chunks, documents, tokens, shards, duplicates; };
struct stored_file { uint64_t bytes; uint32_t crc; };     /* crc: CRC32C of the whole file */
struct shard_record {
    int64_t number, first_file_shard, last_file_shard;    /* its two files hold these shards, one after the other */
    int64_t first_chunk, chunks, first_document, documents;
    int64_t first_token, tokens;         /* counted over the store */
    int64_t duplicates;                  /* skipped while this shard was open */
    struct stored_file token_file, landmark_file;         /* the same in all records of one file, but in dropped ones */
    const uint8_t *cursor; size_t cursor_bytes;           /* borrowed from the transaction */
    /* Files that another store made, as a part of this one: number and first rows in their headers are those there. */
    bool foreign;
    int64_t file_number, file_chunk, file_token;
};
/* A dropped shard keeps its record, for its ranges of ids, with both files zero. Other shards of its file keep them. */
static inline bool shard_is_dropped(const struct shard_record *r) {
    return r->token_file.bytes == 0 && r->landmark_file.bytes == 0;
}
struct segment_record {
    int64_t number, first_chunk, chunks;
    struct stored_file file, head;       /* head: the part that FAISS does not check; checked at every opening */
};
/* Which index there is, and the trained template that its segments share (number 0: none). */
struct index_record {
    char factory[RECORD_INDEX_MAX];      /* "exact", or for FAISS */
    bool chosen;                         /* by the user, so that "auto" keeps it */
    int64_t template_number, trained_chunks;              /* trained_chunks: the store's size at that time */
    struct stored_file template_file;
    int64_t next_number;                 /* of the next segment or template file: names are never used twice */
};
struct run_record { int64_t document, shard, token_offset, tokens, chunks; };
struct document_record {
    int64_t first_chunk, chunks, tokens, shard, token_offset;
    uint64_t offset, line, bytes;
    uint8_t hash[16];
    const char *source, *key; size_t source_bytes, key_bytes;   /* borrowed, without NUL */
};

/* `out` borrows from *text, which grows as memory_grow has it. */
enum status document_record_copy(struct store_document *out, char **text, size_t *capacity, int64_t number,
                                 const struct document_record *r);

/* "format" (NULL: not wanted) and "fingerprint". NOT_FOUND: a catalog without contents; VERSION: a newer format. */
enum status record_get_fingerprint(struct catalog_txn *t, const struct catalog *c, struct store_fingerprint *out,
                                   int *format);
enum status record_put_format(struct catalog_txn *t);
enum status record_put_fingerprint(struct catalog_txn *t, const struct store_fingerprint *f);

/* none: zeroed, numbers from 1 */
enum status record_get_index(struct catalog_txn *t, const struct catalog *c, struct index_record *out);
enum status record_put_index(struct catalog_txn *t, const struct index_record *r);

/* The newest generation; number 0 when nothing was published. */
enum status record_get_generation(struct catalog_txn *t, const struct catalog *c, struct generation_record *out);
enum status record_put_generation(struct catalog_txn *t, const struct generation_record *r);
enum status record_decode_generation(struct bytes key, struct bytes value, const struct catalog *c,
                                     struct generation_record *out);

/* The totals of all sealed shards, published or not; number = how many shards. */
enum status record_get_sealed(struct catalog_txn *t, const struct catalog *c, struct generation_record *out);

enum status record_decode_shard(struct bytes key, struct bytes value, const struct catalog *c,
                                struct shard_record *out);
/* STATUS_NOT_FOUND without a message when there is none. */
enum status record_get_shard(struct catalog_txn *t, const struct catalog *c, struct shard_record *out, int64_t number);
enum status record_put_shard(struct catalog_txn *t, const struct shard_record *r);
enum status record_decode_segment(struct bytes key, struct bytes value, const struct catalog *c,
                                  struct segment_record *out);
enum status record_put_segment(struct catalog_txn *t, const struct segment_record *r);

/* The contents of the file of list[i] as one shard: number and ranges of all its shards, dropped ones too. Where all
 * are dropped the result is a dropped shard, for the file is removed. */
struct shard_record record_of_shard_file(const struct shard_record *list, int64_t i);
/* Whether a shard that is not dropped, or whose record cannot be read, has the file of shards first to last. */
enum status record_names_shard_file(struct catalog_txn *t, const struct catalog *c, int64_t first, int64_t last,
                                    bool *yes);
/* Chunks of a whole list. */
int64_t shard_records_chunks(const struct shard_record *list, int64_t count);
/* All shards below `count`, all segments: allocated, free with memory_free. Cursors are not kept. */
enum status record_list_shards(struct catalog_txn *t, const struct catalog *c, struct shard_record **out,
                               int64_t count);
enum status record_list_segments(struct catalog_txn *t, const struct catalog *c, struct segment_record **out,
                                 int64_t *count);
/* dropped.c; lists are allocated, free with memory_free. Chunk ids of the dropped ones of `shards`. */
enum status record_list_dropped(struct store_range **out, int64_t *n, const struct shard_record *shards,
                                int64_t n_shards);
/* Two lists of ranges that rise, as one whose ranges do not touch. */
struct store_ranges { const struct store_range *list; int64_t n; };
enum status record_list_holes(struct store_hole **out, int64_t *n, struct store_ranges a, struct store_ranges b);
/* Those of dropped shards alone. */
enum status record_dropped_holes(struct store_hole **out, int64_t *n, const struct shard_record *shards,
                                 int64_t n_shards);
/* Whether the segments hold each of a generation's chunks whose shard is not dropped once, and no other. */
enum status segments_cover(bool *out, const struct segment_record *list, int64_t n, const struct shard_record *shards,
                           const struct generation_record *g);

/* The run that holds the chunk, and where it begins. */
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
enum status record_add_hash(struct catalog_txn *t, const uint8_t hash[16], int64_t document); /* where is none */
