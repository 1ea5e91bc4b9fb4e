/* take_file_internal.h -- links a data file of another store into a store, or copies and checks it. */
#pragma once
#include "base/progress.h"
#include "store/shards/shard_files_internal.h"

struct file_taking {
    bool *copy;                          /* files are copied; set to true when a link cannot be made */
    int64_t *linked, *copied;            /* incremented for each file */
    const struct progress *progress;     /* for the note that files are copied */
};
/* Links or copies the file `from` to the path `to`, which must not exist. A link is durable after file_sync_directory.
 * A copy is durable, and its bytes are compared with the recorded checksum. STATUS_CORRUPT: `from` has other bytes. */
enum status file_take(const char *to, const char *from, struct stored_file recorded, const struct file_taking *t);
