/* reader_jsonl.c -- one JSON object per line, streamed: memory has one line and the bytes read after it. Every line is
 * parsed strictly and completely, so a bad line is an error with its number, and not a missing document. If bad lines
 * are to be skipped, they are counted and the first ones are named. */
#include "base/formats/json.h"
#include "base/memory.h"
#include "data/readers/reader_internal.h"
#include "data/tokenizer/utf8.h"
#include <string.h>

enum { BLOCK = 256 << 10 };

static enum status jsonl_skip_to(struct reader *r, uint64_t begin);

enum status jsonl_open(struct reader *r) {
    struct jsonl *j = &r->jsonl;
    uint64_t begin = reader_file(r)->begin;
    j->buffer.size = j->at = 0;
    j->ended = false;
    TRY(memory_grow(&j->buffer.data, &j->buffer.capacity, BLOCK));
    TRY(stream_open(&j->stream, reader_file(r)->path));
    return begin > 0 ? jsonl_skip_to(r, begin) : STATUS_OK;
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
        TRY(stream_read(j->stream, j->buffer.data, want, &n));
        reader_part_add(r, j->buffer.data, n);
        r->position.offset += n;
        *got += n;
        if (n < want) break;
    }
    return STATUS_OK;
}

void jsonl_close(struct reader *r) {
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
        TRY(stream_read(j->stream, j->buffer.data + have, BLOCK, &got));
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

static enum status line_fail(const struct reader *r, const char *what) {
    return fail(STATUS_INVALID, "%s:%llu: %s", reader_file(r)->path, (unsigned long long)r->position.line, what);
}

static enum status bad_json(const struct reader *r, const struct json *j) {
    bool deep = j->depth == JSON_DEPTH_MAX && j->at < j->end && (*j->at == '[' || *j->at == '{');
    /* the input seems to be plain text, such as words on standard input */
    bool text = r->position.line == 1 && j->at == j->begin;
    return fail(STATUS_INVALID, "%s:%llu: %s at column %zu%s", reader_file(r)->path,
                (unsigned long long)r->position.line, deep ? "JSON nested deeper than is read" : "not valid JSON",
                (size_t)(j->at - j->begin) + 1, text ? "; if this is plain text, give --format txt" : "");
}

static enum status unescape(const struct json *j, struct reader_buffer *out) {
    TRY(memory_grow(&out->data, &out->capacity, j->length + 1));
    return json_string(j, out->data, out->capacity, &out->size);
}

/* Reads a string or number named "id". */
static enum status read_id(struct reader *r, struct json *j) {
    struct reader_buffer *key = &r->jsonl.key;
    struct json value = *j;
    enum json_event event = json_next(&value);
    if (event == JSON_STRING) {
        TRY(unescape(&value, key));
    } else if (event == JSON_NUMBER) {
        TRY(memory_grow(&key->data, &key->capacity, value.length + 1));
        memcpy(key->data, value.text, value.length);
        key->data[key->size = value.length] = '\0';
    }
    return json_skip(j) == STATUS_OK ? STATUS_OK : bad_json(r, j);
}

/* Reads the "id" of the object in "meta". */
static enum status read_meta(struct reader *r, struct json *j, bool has_id) {
    struct json inside = *j;
    if (json_skip(j) != STATUS_OK) return bad_json(r, j);
    if (has_id || json_next(&inside) != JSON_OBJECT) return STATUS_OK;
    while (json_next(&inside) == JSON_KEY) {
        if (json_equals(&inside, "id"))
            TRY(read_id(r, &inside));
        else
            TRY(json_skip(&inside));
    }
    return STATUS_OK;
}

static enum status read_text(struct reader *r, struct json *j, bool *found) {
    struct jsonl *l = &r->jsonl;
    enum json_event event = json_next(j);
    if (event == JSON_ERROR) return bad_json(r, j);
    if (event != JSON_STRING)
        return fail(STATUS_INVALID,
                    "%s:%llu: the field \"%s\" is not a string; name the field that holds the text with --text-field",
                    reader_file(r)->path, (unsigned long long)r->position.line, r->text_field);
    *found = true;
    return unescape(j, &l->text);
}

/* Makes a document from one line. If a name occurs twice, the last member is used, as in Python. */
static enum status parse(struct reader *r, struct document *d, const char *line, size_t bytes) {
    struct jsonl *l = &r->jsonl;
    struct json j;
    json_open(&j, reader_file(r)->path, line, bytes);
    enum json_event event = json_next(&j);
    if (event == JSON_ERROR) return bad_json(r, &j);
    if (event != JSON_OBJECT) return line_fail(r, "not a JSON object; jsonl wants one object a line");
    bool found = false, has_id = false;
    TRY(memory_grow(&l->key.data, &l->key.capacity, 1));
    l->key.data[l->key.size = 0] = '\0';
    while ((event = json_next(&j)) == JSON_KEY) {
        if (json_equals(&j, r->text_field)) {
            TRY(read_text(r, &j, &found));
        } else if (json_equals(&j, "id")) {
            TRY(read_id(r, &j));
            has_id = true;
        } else if (json_equals(&j, "meta")) {
            TRY(read_meta(r, &j, has_id));
        } else if (json_skip(&j) != STATUS_OK) {
            return bad_json(r, &j);
        }
    }
    if (event != JSON_OBJECT_END || json_next(&j) != JSON_END) return bad_json(r, &j);
    if (!found)
        return fail(STATUS_INVALID, "%s:%llu: no field \"%s\"; name the field that holds the text with --text-field",
                    reader_file(r)->path, (unsigned long long)r->position.line, r->text_field);
    d->text = l->text.data;
    d->bytes = l->text.size;
    d->key = l->key.data;
    if (utf8_valid_prefix(d->text, d->bytes) != d->bytes) {
        struct reader_buffer *to = &l->repaired;
        TRY(utf8_repair(&to->data, &to->capacity, &to->size, &d->replaced, d->text, d->bytes));
        d->text = to->data;
        d->bytes = to->size;
    }
    return STATUS_OK;
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
        if (start == 0 && bytes >= 3 && memcmp(line, "\xEF\xBB\xBF", 3) == 0) {
            line += 3;
            bytes -= 3;
        }
        if (is_blank(line, bytes)) continue;
        d->offset = start;
        d->line = r->position.line;
        enum status status = parse(r, d, line, bytes);
        if (status != STATUS_INVALID || !r->skip_bad_lines) return status;
        r->position.skipped++;
        TRY(left_out_add(&r->bad_lines, status_message()));
    }
}
