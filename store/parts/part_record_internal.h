/* part_record_internal.h -- the meta records "part" (this store is a part) and "joined" (of what it was joined). */
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
