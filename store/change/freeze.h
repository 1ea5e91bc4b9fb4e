/* freeze.h -- makes an immutable snapshot of a store, for readers on many hosts.
 *
 * A snapshot is a complete store with the same ids, data files, indexes and keys. Its catalog has only the
 * newest generation. The file catalog/frozen marks it. Programs read it without locks and write nothing into its
 * folder. So it may be on read-only media, and on network file systems whose hosts do not share locks. Functions that
 * would change it (add, delete, repair, ...) return STATUS_READ_ONLY; store_verify checks it. */
#pragma once
#include "store/store.h"

struct store_freeze {
    bool copy;                           /* copies and checks files instead of linking them */
    const struct progress *progress;     /* NULL is fine */
};
struct store_freeze_report {
    uint64_t generation;
    int64_t chunks, documents;           /* of the generation, including deleted and dropped ones */
    int64_t linked, copied;              /* numbers of data files */
    bool already_frozen;                 /* `to` is this snapshot already, and nothing was done */
};
/* Makes the folder `to`. It is made as `<to>.partial` and renamed when it is complete. A later call with the same `to`
 * first removes an incomplete one. Data files are linked (hard links), or copied if `to` is on another file system.
 * Sealed shards that are not published are left out. `dir` may itself be a snapshot. Takes the writer's lock of the
 * store. STATUS_BUSY: a writer is active. STATUS_MISMATCH: `to` exists and is not this snapshot. STATUS_INTERRUPTED:
 * stopped; no file remains. */
enum status store_freeze(struct store_freeze_report *out, const char *dir, const char *to,
                         const struct store_freeze *how);
