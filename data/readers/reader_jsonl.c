/* reader_jsonl.c -- one JSON object per line, streamed: memory has one line and the bytes read after it. If bad lines
 * are to be skipped, they are counted and the first ones are named. */
#include "base/memory.h"
#include "data/readers/reader_internal.h"
#include "data/tokenizer/utf8.h"
#include <string.h>

enum { BLOCK = STREAM_AHEAD_BLOCK };

static enum status jsonl_skip_to(struct reader *r, uint64_t begin);

enum status jsonl_open(struct reader *r) {
    struct jsonl *j = &r->jsonl;
    uint64_t begin = reader_file(r)->begin;
    j->buffer.size = j->at = 0;
    j->ended = false;
    TRY(memory_grow(&j->buffer.data, &j->buffer.capacity, BLOCK));
    if (!files_ahead_take(r, &j->stream, &j->ahead)) {
        TRY(stream_open(&j->stream, reader_file(r)->path));
        if (stream_is_slow(j->stream)) TRY(stream_ahead_start(&j->ahead, j->stream, files_ahead_blocks(r)));
    }
    files_ahead_begin(r);
    return begin > 0 ? jsonl_skip_to(r, begin) : STATUS_OK;
}

static enum status read_bytes(struct jsonl *j, void *data, size_t bytes, size_t *got) {
    return j->ahead ? stream_ahead_read(j->ahead, data, bytes, got) : stream_read(j->stream, data, bytes, got);
}

uint64_t jsonl_consumed(const struct jsonl *j) {
    return j->ahead ? stream_ahead_consumed(j->ahead) : stream_consumed(j->stream);
}

enum status jsonl_pass(struct reader *r, uint64_t bytes, uint64_t *got) {
    struct jsonl *j = &r->jsonl;
    size_t have = j->buffer.size - j->at; /* bytes that are read already */
    *got = have < bytes ? have : bytes;
    reader_part_add(r, j->buffer.data + j->at, *got);
    r->position.offset += *got;
    j->at += *got;
    while (*got < bytes) {
        size_t want = bytes - *got < BLOCK ? (size_t)(bytes - *got) : BLOCK, n;
        TRY(read_bytes(j, j->buffer.data, want, &n));
        reader_part_add(r, j->buffer.data, n);
        r->position.offset += n;
        *got += n;
        if (n < want) break;
    }
    return STATUS_OK;
}

void jsonl_close(struct reader *r) {
    stream_ahead_free(r->jsonl.ahead);
    r->jsonl.ahead = NULL;
    stream_close(r->jsonl.stream);
    r->jsonl.stream = NULL;
}

static enum status too_long(const struct reader *r) {
    return fail(STATUS_UNSUPPORTED,
                "%s:%llu: the line is longer than the limit of %llu bytes for a document: split it, or allow drt-index "
                "more memory (--max-ram)",
                reader_file(r)->path, (unsigned long long)r->position.line + 1, (unsigned long long)r->max_bytes);
}

/* Returns the next line in the buffer, without its newline; *more = 0 at the end. */
static enum status next_line(struct reader *r, const char **line, size_t *bytes, size_t *with_newline, int *more) {
    struct jsonl *j = &r->jsonl;
    size_t searched = 0;
    for (;;) {
        char *start = j->buffer.data + j->at;
        size_t have = j->buffer.size - j->at;
        char *end = have > searched ? memchr(start + searched, '\n', have - searched) : NULL;
        if (end || (j->ended && have > 0)) {
            *line = start;
            *bytes = end ? (size_t)(end - start) : have;
            *with_newline = *bytes + (end != NULL);
            *more = 1;
            return *bytes > r->max_bytes ? too_long(r) : STATUS_OK;
        }
        *more = 0;
        if (j->ended) return STATUS_OK;
        if (have > r->max_bytes) return too_long(r);
        searched = have;
        if (j->at > 0) memmove(j->buffer.data, start, have);
        j->buffer.size = have;
        j->at = 0;
        TRY(memory_grow(&j->buffer.data, &j->buffer.capacity, have + BLOCK));
        size_t got;
        TRY(read_bytes(j, j->buffer.data + have, BLOCK, &got));
        j->buffer.size += got;
        j->ended = got < BLOCK;
    }
}

/* Moves to the first line that begins at or after this byte. */
static enum status jsonl_skip_to(struct reader *r, uint64_t begin) {
    struct jsonl *j = &r->jsonl;
    while (r->position.offset < begin - 1) { /* the byte before `begin` may be the newline of the previous line */
        uint64_t left = begin - 1 - r->position.offset, got;
        const char *data = j->buffer.data, *newline;
        TRY(jsonl_pass(r, left < BLOCK ? left : BLOCK, &got));
        for (const char *at = data; (newline = memchr(at, '\n', (size_t)(data + got - at))); at = newline + 1)
            r->position.line++;
        if (got == 0) return STATUS_OK;
        if (progress_stop_requested(r->progress))
            return fail(STATUS_INTERRUPTED, "stopped: run the same command again to resume");
    }
    const char *line;
    size_t bytes, all;
    int more;
    TRY(next_line(r, &line, &bytes, &all, &more));
    if (!more) return STATUS_OK;
    reader_part_add(r, line, all);
    r->position.offset += all;
    r->position.line++;
    j->at += all;
    return STATUS_OK;
}

static bool is_blank(const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r') return false;
    return true;
}

enum status jsonl_next(struct reader *r, struct document *d, int *more) {
    for (;;) {
        const char *line = NULL;
        size_t bytes = 0, all = 0;
        *more = 0;
        if (r->position.offset >= reader_file(r)->end) return STATUS_OK;
        TRY(next_line(r, &line, &bytes, &all, more));
        if (!*more) return STATUS_OK;
        uint64_t start = r->position.offset;
        reader_part_add(r, line, all);
        r->position.offset += all;
        r->position.line++;
        r->jsonl.at += all;
        if (start == 0) {
            const size_t mark = utf8_mark(line, bytes);
            line += mark;
            bytes -= mark;
        }
        if (is_blank(line, bytes)) continue;
        d->offset = start;
        d->line = r->position.line;
        if (r->unparsed && !r->skip_bad_lines) {
            d->text = line;
            d->bytes = bytes;
            d->unparsed = true;
            return STATUS_OK;
        }
        enum status status = jsonl_parse(&r->jsonl.parser, d, line, bytes);
        if (status != STATUS_INVALID || !r->skip_bad_lines) return status;
        r->position.skipped++;
        TRY(left_out_add(&r->bad_lines, status_message()));
    }
}
