/* part_record_internal.h -- the meta records "part" (this store is a part), "joined" (of what it was joined), "indexed"
 * (of which plan its index was merged) and "encoded" (how often landmarks got other bytes). */
#pragma once
#include "store/catalog/records_internal.h"
#include "store/parts/parts.h"

struct part_record {
    struct store_part part;              /* parts 0: no record */
    bool finished;
    int64_t shards, documents, chunks;   /* of the finished part */
};
enum status record_get_part(struct catalog_txn *t, const struct catalog *c, struct part_record *out);
enum status record_put_part(struct catalog_txn *t, const struct part_record *r);

struct joined_record {
    int64_t parts;                       /* 0: no record */
    uint8_t corpus[16];
    uint32_t contents;                   /* CRC32C of the counts of all parts */
};
enum status record_get_joined(struct catalog_txn *t, const struct catalog *c, struct joined_record *out);
enum status record_put_joined(struct catalog_txn *t, const struct joined_record *r);

struct indexed_record {
    int64_t template_number;             /* 0: no record. An index with another template has replaced the merged one. */
    uint32_t plan;                       /* index_parts_plan.id */
};
enum status record_get_indexed(struct catalog_txn *t, const struct catalog *c, struct indexed_record *out);
enum status record_put_indexed(struct catalog_txn *t, const struct indexed_record *r);

/* Number of transactions that recorded other landmarks for published shards. An index that was filled before the last
 * of them may hold the old ones. */
enum status record_get_encoded(struct catalog_txn *t, const struct catalog *c, int64_t *out);
enum status record_add_encoded(struct catalog_txn *t, const struct catalog *c);
