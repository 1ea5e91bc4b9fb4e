/* take_file_internal.h -- a second name for a data file of another store, or a checked copy of it. */
#pragma once
#include "base/progress.h"
#include "store/shards/shard_files_internal.h"

struct file_taking {
    bool *copy;                          /* files are copied; becomes true where links cannot be made */
    int64_t *linked, *copied;            /* counted here */
    const struct progress *progress;     /* for the note that files are copied */
};
/* Gives the file `from` the name `to`, which nothing has: a hard link, or a durable copy whose bytes are compared with
 * the recorded checksum. The name of a link is durable after file_sync_directory. STATUS_CORRUPT: `from` changed. */
enum status file_take(const char *to, const char *from, struct stored_file recorded, const struct file_taking *t);
