/* reader_text.c -- each file is a document: UTF-8, or UTF-16 with its byte order mark. */
#include "base/memory.h"
#include "data/readers/reader_internal.h"
#include "data/tokenizer/utf8.h"
#include <string.h>

enum { BLOCK = 64 << 10, HEAD = 1024 };

/* Whether the text begins with UTF-16's byte order mark, and not with UTF-32's. */
static bool is_utf16(const char *text, size_t bytes) {
    if (bytes >= 4 && memcmp(text, "\xFF\xFE\0\0", 4) == 0) return false;
    return bytes >= 2 && (memcmp(text, "\xFF\xFE", 2) == 0 || memcmp(text, "\xFE\xFF", 2) == 0);
}

/* Reads the whole file. *binary: its first KB contains a NUL, and the rest was not read. */
static enum status read_all(struct reader *r, struct stream *s, bool *binary) {
    struct reader_buffer *b = &r->text;
    b->size = 0;
    *binary = false;
    for (size_t got = BLOCK; got == BLOCK;) {
        TRY(memory_grow(&b->data, &b->capacity, b->size + BLOCK));
        TRY(stream_read(s, b->data + b->size, BLOCK, &got));
        reader_part_add(r, b->data + b->size, got);
        if (b->size == 0 && !is_utf16(b->data, got) && memchr(b->data, '\0', got < HEAD ? got : HEAD)) {
            *binary = true;
            return STATUS_OK;
        }
        b->size += got;
        if (b->size > r->max_bytes)
            return fail(STATUS_UNSUPPORTED,
                        "%s: is larger than the limit of %llu bytes for a document: split it, or allow drt-index more "
                        "memory (--max-ram)",
                        reader_file(r)->path, (unsigned long long)r->max_bytes);
    }
    b->data[b->size] = '\0'; /* valid because the last block was not full */
    return STATUS_OK;
}

enum status text_next(struct reader *r, struct document *d, int *more) {
    *more = 0;
    if (r->position.offset > 0) return STATUS_OK;
    struct stream *s;
    bool binary;
    TRY(stream_open(&s, reader_file(r)->path));
    enum status status = read_all(r, s, &binary);
    stream_close(s);
    TRY(status);
    if (binary && reader_file(r)->from_folder) return left_out_add(&r->passed_over, reader_file(r)->path);
    if (binary) return fail(STATUS_INVALID, "%s: is not text: a NUL byte in the first KB", reader_file(r)->path);
    const char *text = r->text.data;
    size_t bytes = r->text.size;
    const size_t mark = utf8_mark(text, bytes);
    text += mark;
    bytes -= mark;
    struct reader_buffer *to = &r->repaired;
    if (text == r->text.data && is_utf16(text, bytes)) {
        TRY(utf8_from_utf16(&to->data, &to->capacity, &to->size, &d->replaced, text, bytes));
        text = to->data;
        bytes = to->size;
    } else if (utf8_valid_prefix(text, bytes) != bytes) {
        TRY(utf8_repair(&to->data, &to->capacity, &to->size, &d->replaced, text, bytes));
        text = to->data;
        bytes = to->size;
    }
    d->text = text;
    d->bytes = bytes;
    /* An empty file moves the position by 1, so that the position after a document differs from the one before it. */
    r->position.offset = r->text.size > 0 ? r->text.size : 1;
    *more = 1;
    return STATUS_OK;
}
