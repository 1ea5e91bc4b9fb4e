/* reader_source.c -- documents that the caller has in memory. The reader treats them as one file, whose offset is the
 * number of documents so far. They can be read only once, so a position is reached by reading and hashing all documents
 * before it. */
#include "base/memory.h"
#include "data/readers/reader_internal.h"
#include "data/tokenizer/utf8.h"
#include <string.h>

enum status source_next(struct reader *r, struct document *d, int *more) {
    struct source_document next = {.source = d->source, .key = ""};
    bool any = true;
    TRY(r->source.next(r->source.context, &next, &any));
    *more = any;
    if (!any) return STATUS_OK;
    const unsigned long long number = r->position.offset + 1;
    if (next.bytes > r->max_bytes)
        return fail(STATUS_UNSUPPORTED,
                    "%s: document %llu of %zu bytes is larger than the limit of %llu bytes for a document: split it, "
                    "or allow more memory (max_ram)",
                    next.source, number, next.bytes, (unsigned long long)r->max_bytes);
    reader_part_add(r, next.key, strlen(next.key) + 1);
    reader_part_add(r, &next.bytes, sizeof next.bytes);
    reader_part_add(r, next.text, next.bytes);
    d->text = next.text;
    d->bytes = next.bytes;
    d->source = next.source;
    d->key = next.key;
    d->line = number;
    r->position.offset++;
    if (utf8_valid_prefix(d->text, d->bytes) == d->bytes) return STATUS_OK;
    struct reader_buffer *to = &r->repaired;
    TRY(utf8_repair(&to->data, &to->capacity, &to->size, &d->replaced, next.text, next.bytes));
    d->text = to->data;
    d->bytes = to->size;
    return STATUS_OK;
}

enum status source_pass(struct reader *r, uint64_t offset) {
    struct document d = {.source = reader_file(r)->path};
    for (int more = 1; more && r->position.offset < offset;) {
        TRY(source_next(r, &d, &more));
        if (progress_stop_requested(r->progress))
            return fail(STATUS_INTERRUPTED, "stopped: the same call resumes the build");
    }
    return STATUS_OK;
}
