/* spool.c -- see spool_internal.h. */
#include "base/memory.h"
#include "store/lexical/build/spool_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum status spool_create(struct spool **out, const char *folder, size_t capacity) {
    struct spool *s = NULL;
    enum status status;
    TRY(memory_allocate_zero(&s, 1));
    s->capacity = capacity;
    snprintf(s->folder, sizeof s->folder, "%s", folder);
    s->fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (s->fd < 0) { /* the file system has no files without names */
        char name[FILE_PATH_MAX];
        int n = snprintf(name, sizeof name, "%s/lexical.XXXXXX", folder);
        s->fd = n < (int)sizeof name ? mkostemp(name, O_CLOEXEC) : -1;
        if (s->fd >= 0) unlink(name);
    }
    status = s->fd < 0 ? fail_errno("%s: cannot make a temporary file in this folder", folder)
                       : memory_allocate(&s->buffer, capacity);
    if (status != STATUS_OK)
        spool_free(s);
    else
        *out = s;
    return status;
}

void spool_free(struct spool *s) {
    if (!s) return;
    if (s->fd >= 0) close(s->fd);
    memory_free(s->buffer);
    memory_free(s);
}

enum status spool_write_at(struct spool *s, const void *data, size_t bytes, uint64_t offset) {
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pwrite(s->fd, (const uint8_t *)data + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_errno("%s: cannot write a temporary file in this folder", s->folder);
        done += (size_t)n;
    }
    return STATUS_OK;
}

uint64_t spool_extend(struct spool *s, uint64_t bytes) {
    const uint64_t at = s->written;
    s->written += bytes;
    return at;
}

enum status spool_flush(struct spool *s) {
    TRY(spool_write_at(s, s->buffer, s->buffered, s->written));
    s->written += s->buffered;
    s->buffered = 0;
    return STATUS_OK;
}

enum status spool_write(struct spool *s, const void *data, size_t bytes) {
    for (const uint8_t *p = data; bytes > 0;) {
        size_t n = s->capacity - s->buffered < bytes ? s->capacity - s->buffered : bytes;
        memcpy(s->buffer + s->buffered, p, n);
        s->buffered += n;
        p += n;
        bytes -= n;
        if (s->buffered == s->capacity) TRY(spool_flush(s));
    }
    return STATUS_OK;
}

enum status spool_read(struct spool *s, void *out, size_t bytes, uint64_t offset) {
    if (s->buffered > 0) TRY(spool_flush(s));
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(s->fd, (uint8_t *)out + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_errno("%s: cannot read a temporary file in this folder", s->folder);
        if (n == 0) return fail(STATUS_IO, "%s: a temporary file in this folder was cut short", s->folder);
        done += (size_t)n;
    }
    return STATUS_OK;
}
