/* stream_ahead.h -- a thread that decompresses a stream ahead of its reader. Reads return the same bytes, ends and
 * errors as stream_read of the same numbers of bytes. */
#pragma once
#include "data/readers/reader_stream.h"

enum { STREAM_AHEAD_BLOCK = 256 << 10 }; /* bytes; reads should be of as many */
struct stream_ahead;
/* Uses the stream alone until stream_ahead_free. blocks: the most that wait; they are allocated when they are first
 * used. */
enum status stream_ahead_start(struct stream_ahead **out, struct stream *s, int blocks);
void stream_ahead_free(struct stream_ahead *a);           /* NULL is fine */
enum status stream_ahead_read(struct stream_ahead *a, void *data, size_t bytes, size_t *got);
uint64_t stream_ahead_consumed(const struct stream_ahead *a);   /* stream_consumed, of what was returned */
