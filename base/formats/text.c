/* text.c -- see text.h. */
#include "base/formats/text.h"
#include "base/memory.h"
#include <assert.h>
#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ---- */

/* The locale "C" is part of the C library: newlocale finds it without a file and cannot fail. */
static locale_t plain_locale(void) {
    const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    assert(plain != (locale_t)0);
    return plain;
}

double text_read_number(const char *text) {
    const locale_t plain = plain_locale();
    const double value = strtod_l(text, NULL, plain);
    freelocale(plain);
    return value;
}

void text_write_number(char *out, size_t capacity, int digits, double value) {
    const locale_t plain = plain_locale(), before = uselocale(plain);
    snprintf(out, capacity, "%.*g", digits, value);
    uselocale(before);
    freelocale(plain);
}

/* ---- streams: glibc's, with functions of their own ---- */

struct text_stream {
    char **text;
    size_t *bytes, capacity;
    bool failed;
};

static ssize_t stream_write(void *cookie, const char *data, size_t bytes) {
    struct text_stream *s = cookie;
    if (s->failed || memory_grow(s->text, &s->capacity, *s->bytes + bytes + 1) != STATUS_OK) {
        s->failed = true;
        errno = ENOMEM;
        return 0;
    }
    memcpy(*s->text + *s->bytes, data, bytes);
    *s->bytes += bytes;
    (*s->text)[*s->bytes] = 0;
    return (ssize_t)bytes;
}

/* Only for ftell. */
static int stream_seek(void *cookie, off64_t *offset, int from) {
    const struct text_stream *s = cookie;
    if (from != SEEK_CUR || *offset != 0) return -1;
    *offset = (off64_t)*s->bytes;
    return 0;
}

static int stream_close(void *cookie) {
    struct text_stream *s = cookie;
    const bool failed = s->failed;
    memory_free(s);
    if (failed) errno = ENOMEM;
    return failed ? -1 : 0;
}

FILE *text_stream_open(char **text, size_t *bytes) {
    struct text_stream *s = NULL;
    *text = NULL, *bytes = 0;
    if (memory_allocate_zero(&s, 1) != STATUS_OK) return NULL;
    s->text = text, s->bytes = bytes;
    FILE *file = NULL;
    if (memory_grow(text, &s->capacity, 1) == STATUS_OK)
        file = fopencookie(s, "w", (cookie_io_functions_t){NULL, stream_write, stream_seek, stream_close});
    if (file) {
        **text = 0;
        return file;
    }
    memory_free(*text);
    memory_free(s);
    *text = NULL;
    return NULL;
}
