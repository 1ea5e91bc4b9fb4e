/* reader_stream.h -- reads the bytes of a plain, gzip, zstd or xz file (determined by its first bytes), or of standard
 * input: "-". For one thread at a time. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stream;
enum status stream_open(struct stream **out, const char *path);
void stream_close(struct stream *s);                      /* NULL is fine */
/* *got < bytes: the end. STATUS_INVALID: the data is damaged or incomplete; the message names the file. */
enum status stream_read(struct stream *s, void *data, size_t bytes, size_t *got);
/* Whether it is a compressed file of at least so many bytes, which another thread should decompress. */
enum { STREAM_SLOW_BYTES = 1 << 20 };
bool stream_is_slow(const struct stream *s);
/* Whether it is not compressed. */
enum status stream_is_plain(bool *plain, const char *path);
uint64_t stream_consumed(const struct stream *s);         /* bytes on disk */
