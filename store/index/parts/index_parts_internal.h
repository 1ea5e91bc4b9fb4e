/* index_parts_internal.h -- the plan in a work folder, and checks that a store is the plan's. */
#pragma once
#include "store/catalog/record_format_internal.h"
#include "store/index/index_build_internal.h"
#include "store/index/parts/index_parts.h"

struct index_parts_plan {
    struct store_fingerprint fingerprint;
    uint64_t generation;                 /* at training */
    int64_t chunks, documents;           /* of that generation */
    uint32_t documents_crc; /* checksum of a sample of the documents' records, which identifies the store */
    struct stored_file template_file;
    bool chosen;                         /* the user chose the factory string */
    enum store_assign_method method;     /* by which the rows of all parts are assigned to lists */
    char factory[RECORD_INDEX_MAX];
    uint32_t id;                         /* CRC32C of the plan's bytes */
};
enum status index_parts_plan_write(struct index_parts_plan *p, const char *work);     /* sets p->id */
/* STATUS_NOT_FOUND: there is none. */
enum status index_parts_plan_read(struct index_parts_plan *out, const char *work);
enum status index_parts_plan_decode(struct index_parts_plan *out, const uint8_t *bytes, size_t size, const char *path);
enum status index_parts_template_path(char out[FILE_PATH_MAX], const char *work);
/* Returns the chunks of a part. The ranges are whole blocks (index_build_block), so that FAISS adds every row together
 * with the same other rows. */
struct store_range index_parts_range(const struct index_parts_plan *p, int part, int parts);

/* The newest generation of a store, opened for reading. */
struct index_parts_store {
    const char *dir;
    struct catalog *catalog;
    struct catalog_txn *t;
    struct store_fingerprint fingerprint;
    struct generation_record generation;
    struct shard_record *shards;
    enum store_landmarks type;
    struct landmarks landmarks;
    int64_t encoded;                     /* record_get_encoded */
};
enum status index_parts_store_open(struct index_parts_store *s, const char *dir);
void index_parts_store_close(struct index_parts_store *s);
/* Computes a checksum over a sample of the first n documents' records. These records never change. */
enum status index_parts_documents(uint32_t *crc, struct catalog_txn *t, const struct catalog *c, int64_t n);
/* STATUS_MISMATCH: the plan is not of this store. */
enum status index_parts_check_store(const struct index_parts_plan *p, const char *work, const char *dir,
                                    struct catalog_txn *t, const struct catalog *c,
                                    const struct store_fingerprint *fingerprint, const struct generation_record *g);
/* Computes a checksum of what a file of lists was filled from: the shards of its chunks, the number of times that
 * landmarks were encoded again, and the bytes of some rows. Merging shards changes none of these. None of the chunks
 * may be dropped. */
struct index_parts_rows {
    const struct shard_record *shards; int64_t n_shards;
    struct landmarks *landmarks;
    int64_t encoded;
};
enum status index_parts_rows_crc(uint32_t *crc, const struct index_parts_rows *r, struct store_range range);
