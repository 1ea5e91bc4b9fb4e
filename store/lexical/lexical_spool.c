/* lexical_spool.c -- a file without a name: see lexical_runs_internal.h. */
#include "base/memory.h"
#include "store/lexical/lexical_runs_internal.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SPOOL_BUFFER = 1 << 16 };

struct spool {
    int fd;
    uint64_t written; /* bytes that are in the file; the buffer follows them */
    size_t buffered;
    char folder[FILE_PATH_MAX];
    uint8_t buffer[SPOOL_BUFFER];
};

enum status spool_create(struct spool **out, const char *folder) {
    struct spool *s = NULL;
    TRY(memory_allocate(&s, 1));
    s->written = 0;
    s->buffered = 0;
    snprintf(s->folder, sizeof s->folder, "%s", folder);
    s->fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (s->fd < 0) { /* the file system has no files without names */
        char name[FILE_PATH_MAX];
        int n = snprintf(name, sizeof name, "%s/lexical.XXXXXX", folder);
        s->fd = n < (int)sizeof name ? mkostemp(name, O_CLOEXEC) : -1;
        if (s->fd >= 0) unlink(name);
    }
    if (s->fd < 0) {
        enum status status = fail_errno("%s: cannot make a temporary file in this folder", folder);
        memory_free(s);
        return status;
    }
    *out = s;
    return STATUS_OK;
}

void spool_free(struct spool *s) {
    if (!s) return;
    close(s->fd);
    memory_free(s);
}

enum status spool_flush(struct spool *s) {
    if (s->buffered == 0) return STATUS_OK;
    for (size_t done = 0; done < s->buffered;) {
        ssize_t n = pwrite(s->fd, s->buffer + done, s->buffered - done, (off_t)(s->written + done));
        if (n < 0) return fail_errno("%s: cannot write a temporary file in this folder", s->folder);
        done += (size_t)n;
    }
    s->written += s->buffered;
    s->buffered = 0;
    return STATUS_OK;
}

enum status spool_write(struct spool *s, const void *data, size_t bytes) {
    for (const uint8_t *p = data; bytes > 0;) {
        size_t n = SPOOL_BUFFER - s->buffered < bytes ? SPOOL_BUFFER - s->buffered : bytes;
        memcpy(s->buffer + s->buffered, p, n);
        s->buffered += n;
        p += n;
        bytes -= n;
        if (s->buffered == SPOOL_BUFFER) TRY(spool_flush(s));
    }
    return STATUS_OK;
}

uint64_t spool_bytes(const struct spool *s) {
    return s->written + s->buffered;
}

enum status spool_read(struct spool *s, void *out, size_t bytes, uint64_t offset) {
    TRY(spool_flush(s));
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(s->fd, (uint8_t *)out + done, bytes - done, (off_t)(offset + done));
        if (n < 0) return fail_errno("%s: cannot read a temporary file in this folder", s->folder);
        if (n == 0) return fail(STATUS_IO, "%s: a temporary file in this folder was cut short", s->folder);
        done += (size_t)n;
    }
    return STATUS_OK;
}
