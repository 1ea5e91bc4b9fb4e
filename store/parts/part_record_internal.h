/* part_record_internal.h -- four records of the table meta. "part": the store is a part of a larger one. "joined": the
 * parts that the store was joined from. "indexed": the plan whose index was merged. "encoded": how often landmarks got
 * other bytes. */
#pragma once
#include "store/catalog/records_internal.h"
#include "store/parts/parts.h"

struct part_record {
    struct store_part part;              /* parts 0: no record */
    bool finished;
    int64_t shards, documents, chunks;   /* of the part when it is finished */
};
enum status record_get_part(struct catalog_txn *t, const struct catalog *c, struct part_record *out);
enum status record_put_part(struct catalog_txn *t, const struct part_record *r);

struct joined_record {
    int64_t parts;                       /* 0: no record */
    uint8_t corpus[16];
    uint32_t contents;                   /* CRC32C of all parts' counts */
};
enum status record_get_joined(struct catalog_txn *t, const struct catalog *c, struct joined_record *out);
enum status record_put_joined(struct catalog_txn *t, const struct joined_record *r);

struct indexed_record {
    int64_t template_number; /* 0: no record. If the index has another template, it has replaced the merged one. */
    uint32_t plan;                       /* index_parts_plan.id */
};
enum status record_get_indexed(struct catalog_txn *t, const struct catalog *c, struct indexed_record *out);
enum status record_put_indexed(struct catalog_txn *t, const struct indexed_record *r);

/* Gets the number of transactions that recorded other landmarks for published shards. An index that was filled before
 * the last of them may contain the old landmarks. */
enum status record_get_encoded(struct catalog_txn *t, const struct catalog *c, int64_t *out);
enum status record_add_encoded(struct catalog_txn *t, const struct catalog *c);
