/* join_lists_internal.h -- writes the pieces of all buckets to a segment's file: postings, dictionary, index. */
#pragma once
#include "base/progress.h"
#include "base/system/threads.h"
#include "store/lexical/build/lists_internal.h"

struct join_input {
    const struct lists_piece *pieces;    /* [n]: of tokens in the order of keys, then those of pairs */
    int64_t n;
    struct lists_writer *const *writers; /* by lists_piece.writer; flushed */
    int64_t tokens_end;                  /* the first piece of pairs */
    const char *folder;                  /* of the temporary files */
    size_t buffer;                       /* bytes of each of three buffers of a thread, at least 1 << 16 */
    struct threads *threads;
    const struct progress *progress;
    const char *path;                    /* for messages */
};
/* Appends them to the file, which has the header, and sets the counts, sizes and checksums of the frame.
 * STATUS_INTERRUPTED: a stop was requested. */
enum status join_write(struct file_writer *file, struct lexical_frame *frame, const struct join_input *input);
