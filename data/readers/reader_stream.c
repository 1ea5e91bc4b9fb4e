/* reader_stream.c -- reads plain, gzip, zstd and xz data from a file or from standard input.
 *
 * The first bytes determine the kind. If the name has the suffix of a compressor, the kind must match it. Several
 * consecutive members or frames are one stream, as in the compressors' tools. Data that ends within a member is an
 * error that names the file, so that part of a corpus is not read as the whole. */
#include "base/memory.h"
#include "data/readers/reader_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <lzma.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

enum { INPUT_BYTES = 256 << 10 };
enum stream_kind { STREAM_PLAIN, STREAM_GZIP, STREAM_ZSTD, STREAM_XZ };
static const char *const kind_names[] = {"plain", "gzip", "zstd", "xz"};

struct stream {
    char *path;
    int fd;
    enum stream_kind kind;
    bool input_ended, inside; /* inside: within a member */
    bool begun;               /* whether the first member has begun */
    uint8_t *input;
    size_t at, size;   /* the part of `input` that is not read yet */
    uint64_t consumed; /* bytes read from the file */
    z_stream gzip;
    ZSTD_DCtx *zstd;
    lzma_stream xz;
};

static bool has_suffix(const char *name, const char *suffix) {
    size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0;
}

/* Refills the input when all of it is used. */
static enum status reader_stream_refill(struct stream *s) {
    if (s->at < s->size || s->input_ended) return STATUS_OK;
    s->at = s->size = 0;
    for (;;) {
        ssize_t got = read(s->fd, s->input, INPUT_BYTES);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail_errno("%s: cannot read at byte %llu", s->path, (unsigned long long)s->consumed);
        s->size = (size_t)got;
        s->consumed += (uint64_t)got;
        s->input_ended = got == 0;
        return STATUS_OK;
    }
}

static enum stream_kind kind_of(const uint8_t *p, size_t n) {
    if (n >= 2 && p[0] == 0x1F && p[1] == 0x8B) return STREAM_GZIP;
    if (n >= 4 && memcmp(p, "\x28\xB5\x2F\xFD", 4) == 0) return STREAM_ZSTD;
    /* a skippable frame */
    if (n >= 4 && (p[0] & 0xF0) == 0x50 && memcmp(p + 1, "\x2A\x4D\x18", 3) == 0) return STREAM_ZSTD;
    if (n >= 6 && memcmp(p,
                         "\xFD"
                         "7zXZ\0",
                         6) == 0)
        return STREAM_XZ;
    return STREAM_PLAIN;
}

static enum stream_kind kind_promised(const char *path) {
    return has_suffix(path, ".gz")    ? STREAM_GZIP
           : has_suffix(path, ".zst") ? STREAM_ZSTD
           : has_suffix(path, ".xz")  ? STREAM_XZ
                                      : STREAM_PLAIN;
}

static enum status start_decoder(struct stream *s) {
    bool good = true;
    if (s->kind == STREAM_GZIP) good = inflateInit2(&s->gzip, 15 + 16) == Z_OK;
    if (s->kind == STREAM_ZSTD) good = (s->zstd = ZSTD_createDCtx()) != NULL;
    return good ? STATUS_OK : fail(STATUS_NO_MEMORY, "%s: out of memory for decompression", s->path);
}

/* Determines the kind by the first bytes, which a pipe may return one at a time. */
static enum status reader_stream_detect(struct stream *s) {
    while (s->size < 6 && !s->input_ended) {
        ssize_t got = read(s->fd, s->input + s->size, INPUT_BYTES - s->size);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail_errno("%s: cannot read", s->path);
        s->size += (size_t)got;
        s->consumed += (uint64_t)got;
        s->input_ended = got == 0;
    }
    s->kind = kind_of(s->input, s->size);
    enum stream_kind promised = kind_promised(s->path);
    if (promised != STREAM_PLAIN && s->kind != promised)
        return fail(STATUS_INVALID, "%s: is not %s data, although its name states it (%s)", s->path,
                    kind_names[promised], s->size == 0 ? "the file is empty" : "its first bytes differ");
    return start_decoder(s);
}

enum status stream_open(struct stream **out, const char *path) {
    struct stream *s;
    TRY(memory_allocate_zero(&s, 1));
    s->fd = -1;
    s->xz = (lzma_stream)LZMA_STREAM_INIT;
    enum status status;
    TRY_GOTO(status, memory_copy_string(&s->path, reader_is_stdin(path) ? "standard input" : path), out);
    TRY_GOTO(status, memory_allocate(&s->input, INPUT_BYTES), out);
    s->fd = reader_is_stdin(path) ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (s->fd < 0) {
        status = fail_errno("%s: cannot open", path);
        goto out;
    }
    TRY_GOTO(status, reader_stream_detect(s), out);
    *out = s;
out:
    if (status != STATUS_OK) stream_close(s);
    return status;
}

void stream_close(struct stream *s) {
    if (!s) return;
    if (s->kind == STREAM_GZIP) inflateEnd(&s->gzip);
    ZSTD_freeDCtx(s->zstd);
    lzma_end(&s->xz);
    if (s->fd > STDERR_FILENO) close(s->fd);
    memory_free(s->input);
    memory_free(s->path);
    memory_free(s);
}

static enum status cut_short(const struct stream *s) {
    return fail(STATUS_INVALID, "%s: the %s data ends too early, after %llu bytes; the file is cut short", s->path,
                kind_names[s->kind], (unsigned long long)s->consumed);
}

static enum status reader_stream_damaged(const struct stream *s, const char *what) {
    return fail(STATUS_INVALID, "%s: damaged %s data before byte %llu: %s", s->path, kind_names[s->kind],
                (unsigned long long)s->consumed, what);
}

/* Called after a complete member. Fails for bytes that are neither another member nor padding that the tools allow. */
static enum status reader_stream_trailing(const struct stream *s) {
    uint64_t end = stream_consumed(s);
    return fail(STATUS_INVALID,
                "%s: bytes that are not %s data follow its end at byte %llu: cut them off (truncate -s %llu)", s->path,
                kind_names[s->kind], (unsigned long long)end, (unsigned long long)end);
}

/* Each of these decompresses once, from input to data; *got may be 0 before the end. */
static enum status step_gzip(struct stream *s, uint8_t *data, size_t bytes, size_t *got) {
    if (!s->inside) { /* between members: another one, zero padding, or the end */
        while (s->at < s->size && s->input[s->at] == 0)
            s->at++;
        if (s->at == s->size) return STATUS_OK;
        if (s->input[s->at] != 0x1F) return reader_stream_trailing(s);
        if (inflateReset(&s->gzip) != Z_OK) return reader_stream_damaged(s, "cannot start again");
        s->inside = true;
    }
    size_t limit = bytes < UINT32_MAX ? bytes : UINT32_MAX;
    s->gzip.next_in = s->input + s->at;
    s->gzip.avail_in = (uInt)(s->size - s->at);
    s->gzip.next_out = data;
    s->gzip.avail_out = (uInt)limit;
    int result = inflate(&s->gzip, Z_NO_FLUSH);
    s->at = s->size - s->gzip.avail_in;
    *got = limit - s->gzip.avail_out;
    if (result == Z_STREAM_END)
        s->inside = false;
    else if (result != Z_OK && result != Z_BUF_ERROR)
        return reader_stream_damaged(s, s->gzip.msg ? s->gzip.msg : "unreadable");
    return STATUS_OK;
}

static enum status step_zstd(struct stream *s, uint8_t *data, size_t bytes, size_t *got) {
    ZSTD_inBuffer in = {s->input, s->size, s->at};
    ZSTD_outBuffer to = {data, bytes, 0};
    if (!s->inside && s->at == s->size) return STATUS_OK;
    size_t result = ZSTD_decompressStream(s->zstd, &to, &in);
    if (ZSTD_isError(result) && !s->inside && s->begun && ZSTD_getErrorCode(result) == ZSTD_error_prefix_unknown)
        return reader_stream_trailing(s);
    if (ZSTD_isError(result) && ZSTD_getErrorCode(result) == ZSTD_error_frameParameter_windowTooLarge)
        return fail(STATUS_UNSUPPORTED,
                    "%s: zstd data with a window of more than 128 MiB (zstd --long): compress it again without "
                    "--long (zstd -dc --long=31 OLD | zstd -o NEW)",
                    s->path);
    if (ZSTD_isError(result)) return reader_stream_damaged(s, ZSTD_getErrorName(result));
    s->begun = true;
    s->at = in.pos;
    *got = to.pos;
    s->inside = result != 0;
    return STATUS_OK;
}

static enum status step_xz(struct stream *s, uint8_t *data, size_t bytes, size_t *got) {
    if (!s->inside) { /* between streams: another one, zero padding, or the end */
        while (s->begun && s->at < s->size && s->input[s->at] == 0)
            s->at++;
        if (s->at == s->size) return STATUS_OK;
        if (s->input[s->at] != 0xFD) return reader_stream_trailing(s);
        if (lzma_stream_decoder(&s->xz, UINT64_MAX, 0) != LZMA_OK)
            return reader_stream_damaged(s, "cannot start again");
        s->inside = s->begun = true;
    }
    s->xz.next_in = s->input + s->at;
    s->xz.avail_in = s->size - s->at;
    s->xz.next_out = data;
    s->xz.avail_out = bytes;
    lzma_ret result = lzma_code(&s->xz, s->input_ended ? LZMA_FINISH : LZMA_RUN);
    s->at = s->size - s->xz.avail_in;
    *got = bytes - s->xz.avail_out;
    s->inside = result != LZMA_STREAM_END;
    if (result == LZMA_BUF_ERROR && s->input_ended) return cut_short(s);
    if (result == LZMA_MEM_ERROR) return fail(STATUS_NO_MEMORY, "%s: out of memory for decompression", s->path);
    if (result != LZMA_OK && result != LZMA_STREAM_END && result != LZMA_BUF_ERROR)
        return reader_stream_damaged(s, "xz reports an error");
    return STATUS_OK;
}

static enum status step_plain(struct stream *s, uint8_t *data, size_t bytes, size_t *got) {
    *got = s->size - s->at < bytes ? s->size - s->at : bytes;
    memcpy(data, s->input + s->at, *got);
    s->at += *got;
    return STATUS_OK;
}

enum status stream_read(struct stream *s, void *data, size_t bytes, size_t *got) {
    *got = 0;
    while (*got < bytes) {
        TRY(reader_stream_refill(s));
        size_t made = 0, before = s->at;
        uint8_t *to = (uint8_t *)data + *got;
        switch (s->kind) {
        case STREAM_PLAIN:
            TRY(step_plain(s, to, bytes - *got, &made));
            break;
        case STREAM_GZIP:
            TRY(step_gzip(s, to, bytes - *got, &made));
            break;
        case STREAM_ZSTD:
            TRY(step_zstd(s, to, bytes - *got, &made));
            break;
        case STREAM_XZ:
            TRY(step_xz(s, to, bytes - *got, &made));
            break;
        }
        *got += made;
        if (made == 0 && s->at == before && s->at == s->size && s->input_ended) {
            if (s->inside) return cut_short(s);
            break;
        }
    }
    return STATUS_OK;
}

enum status stream_is_plain(bool *plain, const char *path) {
    struct stream *s;
    TRY(stream_open(&s, path));
    *plain = s->kind == STREAM_PLAIN;
    stream_close(s);
    return STATUS_OK;
}

bool stream_is_slow(const struct stream *s) {
    struct stat file;
    return s->kind != STREAM_PLAIN && fstat(s->fd, &file) == 0 && S_ISREG(file.st_mode) &&
           file.st_size >= STREAM_SLOW_BYTES;
}

uint64_t stream_consumed(const struct stream *s) {
    return s->consumed - (s->size - s->at);
}
