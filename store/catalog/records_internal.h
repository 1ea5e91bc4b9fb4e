/* records_internal.h -- the contents of the catalog's records, and their bytes (little-endian, no padding). Those of
 * documents are in document_records_internal.h.
 *
 * Each function that decodes a record checks its length, its checksum and the plausibility of its fields.
 * STATUS_CORRUPT names the catalog. A get function returns it for a missing record too, unless stated otherwise. */
#pragma once
#include "store/catalog/document_records_internal.h"

enum { RECORD_INDEX_MAX = 256 };

struct generation_record { int64_t number, chunks, documents, tokens, shards, duplicates; };
struct stored_file { uint64_t bytes; uint32_t crc; };     /* crc: CRC32C of the whole file */
struct shard_record {
    int64_t number, first_file_shard, last_file_shard;    /* the shard's two files hold these shards, in order */
    int64_t first_chunk, chunks, first_document, documents;
    int64_t first_token, tokens;         /* first_token: number, in the store, of the shard's first token */
    int64_t duplicates;                  /* duplicates that were skipped while this shard was open */
    struct stored_file token_file, landmark_file;         /* the same for all shards of one file that are not dropped */
    const uint8_t *cursor; size_t cursor_bytes;           /* borrowed from the transaction */
    /* The files are those of a joined part: their headers have the numbers and first rows of the part's store. */
    bool foreign;
    int64_t file_number, file_chunk, file_token;
};
/* A dropped shard's record keeps its ranges of ids; its files are zero. A file stays while one of its shards does. */
static inline bool shard_is_dropped(const struct shard_record *r) {
    return r->token_file.bytes == 0 && r->landmark_file.bytes == 0;
}
struct segment_record {
    int64_t number, first_chunk, chunks;
    /* head: the part of the file that FAISS does not check; its checksum is compared at every opening */
    struct stored_file file, head;
};
/* The kind of index, and the trained template that its segments share (number 0: none). */
struct index_record {
    char factory[RECORD_INDEX_MAX];      /* "exact", or a FAISS factory string */
    bool chosen;                         /* the user chose it, so that "auto" keeps it */
    int64_t template_number, trained_chunks;              /* trained_chunks: size of the store at training */
    struct stored_file template_file;
    int64_t next_number; /* of the next segment or template file: numbers of files are never used twice */
};

/* `format`: may be NULL. STATUS_NOT_FOUND: the catalog is empty. STATUS_VERSION: a newer format. */
enum status record_get_fingerprint(struct catalog_txn *t, const struct catalog *c, struct store_fingerprint *out,
                                   int *format);
enum status record_put_fingerprint(struct catalog_txn *t, const struct store_fingerprint *f);

/* Gets the record of the index. Without one the result is zeroed, and numbers start at 1. */
enum status record_get_index(struct catalog_txn *t, const struct catalog *c, struct index_record *out);
enum status record_put_index(struct catalog_txn *t, const struct index_record *r);

/* Gets the newest generation; its number is 0 if nothing was published. */
enum status record_get_generation(struct catalog_txn *t, const struct catalog *c, struct generation_record *out);
enum status record_put_generation(struct catalog_txn *t, const struct generation_record *r);
enum status record_decode_generation(struct bytes key, struct bytes value, const struct catalog *c,
                                     struct generation_record *out);

/* Gets the totals of all sealed shards, published or not. `number` is the count of shards. loose (NULL: not wanted):
 * the duplicates of a published generation that are in no record of its shards. */
enum status record_get_sealed(struct catalog_txn *t, const struct catalog *c, struct generation_record *out,
                              const struct generation_record *published, int64_t *loose);

enum status record_decode_shard(struct bytes key, struct bytes value, const struct catalog *c,
                                struct shard_record *out);
/* STATUS_NOT_FOUND, without a message: there is no such record. */
enum status record_get_shard(struct catalog_txn *t, const struct catalog *c, struct shard_record *out, int64_t number);
enum status record_put_shard(struct catalog_txn *t, const struct shard_record *r);
enum status record_put_segment(struct catalog_txn *t, const struct segment_record *r);

/* Describes the file of list[i] as one shard, whose number and ranges are those of all shards in the file, dropped ones
 * included. If all are dropped the result is a dropped shard, because the file is removed. */
struct shard_record record_of_shard_file(const struct shard_record *list, int64_t i);
/* Whether one of the shards from first to last uses their common file: a shard that is not dropped, or whose record
 * cannot be read. */
enum status record_names_shard_file(struct catalog_txn *t, const struct catalog *c, int64_t first, int64_t last,
                                    bool *yes);
/* Returns the number of chunks of all shards in a list that begins with shard 0. */
int64_t shard_records_chunks(const struct shard_record *list, int64_t count);
/* Read all shards below `count`, or all segments, without cursors. Free the lists with memory_free. */
enum status record_list_shards(struct catalog_txn *t, const struct catalog *c, struct shard_record **out,
                               int64_t count);
enum status record_list_segments(struct catalog_txn *t, const struct catalog *c, struct segment_record **out,
                                 int64_t *count);
/* Lists the chunk ids of the dropped shards in `shards` (dropped.c). Free the list with memory_free. */
enum status record_list_dropped(struct store_range **out, int64_t *n, const struct shard_record *shards,
                                int64_t n_shards);
/* Merges two ascending lists of ranges into one whose ranges do not touch. */
struct store_ranges { const struct store_range *list; int64_t n; };
enum status record_list_holes(struct store_hole **out, int64_t *n, struct store_ranges a, struct store_ranges b);
/* Lists the chunk ids of dropped shards only, without those of deleted documents. */
enum status record_dropped_holes(struct store_hole **out, int64_t *n, const struct shard_record *shards,
                                 int64_t n_shards);
/* Whether each chunk of a generation is in one segment, except chunks of dropped shards, which must be in none. */
enum status segments_cover(bool *out, const struct segment_record *list, int64_t n, const struct shard_record *shards,
                           const struct generation_record *g);
