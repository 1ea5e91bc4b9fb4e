/* freeze.h -- an immutable snapshot of a store, for readers on many hosts.
 *
 * A snapshot is a store of its own: the same ids, data files, index and lexical index, a catalog of the newest
 * generation alone, and the mark catalog/frozen. Programs read it without locks and write nothing into its folder, so
 * it may lie on read-only media and on network file systems, whose hosts do not see each other's locks. What would
 * change it is STATUS_READ_ONLY (add, delete, repair, ...); store_verify checks it. */
#pragma once
#include "store/store.h"

struct store_freeze {
    bool copy;                           /* files are copied and checked, not linked */
    const struct progress *progress;     /* NULL is fine */
};
struct store_freeze_report {
    uint64_t generation;
    int64_t chunks, documents;           /* of the generation, with deleted and dropped ones */
    int64_t linked, copied;              /* data files */
    bool already_frozen;                 /* nothing was done: `to` is this snapshot */
};
/* Makes folder `to`, which appears whole: until then the work is in `<to>.partial`, which a later call of the same
 * `to` removes first. Data files get second names (hard links) or are copied, where `to` is on another file system.
 * Takes the store's lock of writers: STATUS_BUSY while one is at work. `dir` may itself be a snapshot. Sealed shards
 * that are not published are left out. STATUS_MISMATCH: `to` is something else; STATUS_INTERRUPTED: nothing is left. */
enum status store_freeze(struct store_freeze_report *out, const char *dir, const char *to,
                         const struct store_freeze *how);
