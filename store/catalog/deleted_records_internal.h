/* deleted_records_internal.h -- documents that were deleted, or are copies of one in an earlier part of a joined store:
 * the table "deleted", by document id.
 *
 * Such a document keeps its records and its rows until the store is compacted, and has no hash, so its text can be
 * added again. A record of a document beyond the newest generation belongs to the journal, as that document does.
 * Formats 1 to 3 have no such table. */
#pragma once
#include "store/catalog/records_internal.h"

struct deleted_record { int64_t document, first_chunk, chunks, tokens; };

enum status record_put_deleted(struct catalog_txn *t, const struct deleted_record *r);
enum status record_is_deleted(struct catalog_txn *t, int64_t document, bool *yes);
enum status record_decode_deleted(struct bytes key, struct bytes value, const struct catalog *c,
                                  struct deleted_record *out);

/* What a generation does not have any more. */
struct deleted_list {
    struct store_range *ranges; int64_t n;                /* chunks; free with memory_free */
    int64_t documents, chunks, tokens;
};
/* Of the documents below `documents`. */
enum status record_list_deleted(struct catalog_txn *t, const struct catalog *c, struct deleted_list *out,
                                int64_t documents);
