/* spool_internal.h -- a file without a name in a folder. Bytes are appended, then read at any offset. The system
 * removes the file when the process ends, so a killed program leaves nothing. */
#pragma once
#include "base/file.h"
#include <assert.h>

struct spool {
    int fd;
    uint64_t written;                    /* bytes that are in the file; the buffer follows them */
    size_t buffered, capacity;
    uint8_t *buffer;                     /* [capacity] */
    char folder[FILE_PATH_MAX];
};
/* capacity: bytes of the buffer */
enum status spool_create(struct spool **out, const char *folder, size_t capacity);
void spool_free(struct spool *s);                         /* NULL is fine */
enum status spool_write(struct spool *s, const void *data, size_t bytes);
/* Writes what is in the buffer. After that, and until spool_write, any number of threads may read. */
enum status spool_flush(struct spool *s);
/* The range must have been written. */
enum status spool_read(struct spool *s, void *out, size_t bytes, uint64_t offset);

static inline uint64_t spool_bytes(const struct spool *s) { return s->written + s->buffered; }
/* Ensures that the buffer has at least this number of free bytes, which is at most its capacity. *at: the first. The
 * caller writes there, and adds what it wrote to s->buffered. */
static inline enum status spool_reserve(struct spool *s, size_t bytes, uint8_t **at) {
    assert(bytes <= s->capacity);
    if (s->capacity - s->buffered < bytes) TRY(spool_flush(s));
    *at = s->buffer + s->buffered;
    return STATUS_OK;
}

/* For any number of threads at a time, of a spool that is written by these two functions alone: */
uint64_t spool_extend(struct spool *s, uint64_t bytes);   /* one thread: adds a range, returns its offset */
enum status spool_write_at(struct spool *s, const void *data, size_t bytes, uint64_t offset);
