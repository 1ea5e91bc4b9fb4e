/* freeze.h -- makes an immutable snapshot of a store, for readers on many hosts.
 *
 * A snapshot is a complete store with the same ids, data files, index and lexical index, a catalog of the newest
 * generation alone, and the mark catalog/frozen. Programs read it without locks and write nothing into its folder. So
 * it may be on read-only media, and on network file systems whose hosts do not share locks. Functions that would change
 * it (add, delete, repair, ...) return STATUS_READ_ONLY; store_verify checks it. */
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
    bool already_frozen;                 /* nothing was done: `to` is this snapshot already */
};
/* Makes the folder `to`, which appears complete: the work is done in `<to>.partial`, which a later call with the same
 * `to` removes first. Data files get second names (hard links), or are copied if `to` is on another file system. Sealed
 * shards that are not published are left out. `dir` may itself be a snapshot. Takes the writer's lock of the store.
 * STATUS_BUSY: a writer is active. STATUS_MISMATCH: `to` is something else. STATUS_INTERRUPTED: stopped; nothing is
 * left. */
enum status store_freeze(struct store_freeze_report *out, const char *dir, const char *to,
                         const struct store_freeze *how);
