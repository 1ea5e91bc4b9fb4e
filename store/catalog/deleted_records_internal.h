/* deleted_records_internal.h -- the table "deleted", by document id: deleted documents, and in a joined store the
 * copies of a document of an earlier part.
 *
 * Such a document keeps its records and rows until the store is compacted. It has no hash, so its text can be added
 * again. A record of a document beyond the newest generation belongs to the journal, like the document itself. Formats
 * 1 to 3 do not have this table. */
#pragma once
#include "store/catalog/records_internal.h"

struct deleted_record { int64_t document, first_chunk, chunks, tokens; };

enum status record_put_deleted(struct catalog_txn *t, const struct deleted_record *r);
enum status record_is_deleted(struct catalog_txn *t, int64_t document, bool *yes);

/* The documents and chunks that were deleted from a generation. */
struct deleted_list {
    struct store_range *ranges; int64_t n;                /* chunks; free with memory_free */
    int64_t documents, chunks, tokens;
};
/* Counts the deleted documents below `documents`. */
enum status record_list_deleted(struct catalog_txn *t, const struct catalog *c, struct deleted_list *out,
                                int64_t documents);
