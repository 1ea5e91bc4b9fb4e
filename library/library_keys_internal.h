/* library_keys_internal.h -- the keys of a store for a token memory, made by a build or an addition. The rules are
 * those of drt-index (indexer/build/keys_follow.h). */
#pragma once
#include "indexer/build/keys_follow.h"
#include "library/library_internal.h"

struct library_keys {
    bool wanted;                         /* also keys of chunks that had none */
    int64_t lacking;                     /* chunks that the store's keys lack in the end */
    struct stored_keys_report made;
};
/* Call both with the model's lock. STATUS_MISMATCH, _UNSUPPORTED: the model cannot make the keys of the store at
 * `path`, if there is one. */
enum status library_keys_check(const char *path, const struct drt_model *m);
/* After a build or an addition. */
enum status library_keys_follow(struct library_keys *keys, const char *path, struct drt_model *m,
                                const struct progress *progress);
