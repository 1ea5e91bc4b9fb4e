/* reader.c -- from file to file, and the place where reading stands. */
#include "base/memory.h"
#include "data/readers/reader_internal.h"
#include <string.h>

static const uint64_t default_max_bytes = 1u << 30;

enum status reader_format_parse(enum reader_format *out, const char *name) {
    static const char *const names[] = {"auto", "jsonl", "txt", "u16", "u32", "megatron"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(names[i], name) == 0) {
            *out = (enum reader_format)i;
            return STATUS_OK;
        }
    return fail(STATUS_INVALID, "unknown format \"%s\": one of auto, jsonl, txt, u16, u32, megatron", name);
}

enum status reader_open(struct reader **out, const struct reader_config *config) {
    void *memory;
    TRY(memory_allocate_zero(&memory, 1, sizeof(struct reader)));
    struct reader *r = memory;
    r->eod_id = config->eod_id;
    r->max_bytes = config->max_document_bytes ? config->max_document_bytes : default_max_bytes;
    enum status status = memory_copy_string(&r->text_field, config->text_field ? config->text_field : "text");
    if (status == STATUS_OK) status = reader_list(r, config);
    if (status == STATUS_OK)
        *out = r;
    else
        reader_close(r);
    return status;
}

static void close_file(struct reader *r) {
    jsonl_close(r);
    tokens_close(r);
    megatron_close(r);
    r->open = false;
}

static void free_buffer(struct reader_buffer *b) {
    memory_free(b->data);
}

void reader_close(struct reader *r) {
    if (!r) return;
    close_file(r);
    for (size_t i = 0; i < r->n_files; i++)
        memory_free(r->files[i].path);
    memory_free(r->files);
    memory_free(r->text_field);
    free_buffer(&r->text);
    free_buffer(&r->repaired);
    free_buffer(&r->jsonl.buffer);
    free_buffer(&r->jsonl.text);
    free_buffer(&r->jsonl.repaired);
    free_buffer(&r->jsonl.key);
    memory_free(r->tokens.ids);
    memory_free(r->megatron.ids);
    memory_free(r);
}

static enum status open_file(struct reader *r) {
    switch (reader_file(r)->format) {
    case READER_JSONL:
        return jsonl_open(r);
    case READER_U16:
    case READER_U32:
        return tokens_open(r);
    case READER_MEGATRON:
        return megatron_open(r);
    case READER_TXT:
    case READER_AUTO:
        break; /* opened and read at once by text_next; auto was settled by the list */
    }
    return STATUS_OK;
}

static enum status next_in_file(struct reader *r, struct document *d, int *more) {
    switch (reader_file(r)->format) {
    case READER_JSONL:
        return jsonl_next(r, d, more);
    case READER_U16:
    case READER_U32:
        return tokens_next(r, d, more);
    case READER_MEGATRON:
        return megatron_next(r, d, more);
    case READER_TXT:
    case READER_AUTO:
        break;
    }
    return text_next(r, d, more);
}

enum status reader_next(struct reader *r, struct document *document, int *more) {
    while (r->position.file < r->n_files) {
        struct document d = {.source = reader_file(r)->path, .key = ""};
        if (!r->open) {
            enum status status = open_file(r);
            if (status != STATUS_OK) {
                close_file(r);
                return status;
            }
            r->open = true;
        }
        TRY(next_in_file(r, &d, more));
        if (*more) {
            r->position.documents++;
            *document = d;
            return STATUS_OK;
        }
        close_file(r);
        r->done_bytes += reader_file(r)->bytes > 0 ? reader_file(r)->bytes : 0;
        r->position = (struct reader_position){.documents = r->position.documents, .file = r->position.file + 1};
    }
    *more = 0;
    return STATUS_OK;
}

struct reader_position reader_position(const struct reader *r) {
    return r->position;
}

enum status reader_seek(struct reader *r, struct reader_position position) {
    if (position.file > r->n_files || (position.file == r->n_files && position.offset > 0))
        return fail(STATUS_MISMATCH, "the place to go on from is in input %llu of %zu; are these the same inputs?",
                    (unsigned long long)position.file + 1, r->n_files);
    for (size_t i = 0; i < r->n_files; i++) {
        bool touched = i < position.file || (i == position.file && position.offset > 0) || i < r->position.file ||
                       (i == r->position.file && (r->open || r->position.offset > 0));
        if (touched && reader_is_stdin(r->files[i].path))
            return fail(STATUS_UNSUPPORTED, "standard input cannot be read again from another place; use a file");
    }
    close_file(r);
    r->position = position;
    r->done_bytes = 0;
    for (size_t i = 0; i < position.file; i++)
        r->done_bytes += r->files[i].bytes > 0 ? r->files[i].bytes : 0;
    return STATUS_OK;
}

size_t reader_files(const struct reader *r) {
    return r->n_files;
}
const char *reader_file_at(const struct reader *r, size_t i, int64_t *bytes) {
    *bytes = r->files[i].bytes;
    return r->files[i].path;
}

int64_t reader_passed_over(const struct reader *r) {
    return r->passed_over;
}

void reader_note_passed_over(const struct reader *r, const struct progress *progress) {
    if (r->passed_over)
        progress_note(progress, "%lld files that are not text were passed over", (long long)r->passed_over);
}

void reader_progress(const struct reader *r, int64_t *done, int64_t *total) {
    *done = r->done_bytes;
    *total = 0;
    for (size_t i = 0; i < r->n_files; i++) {
        if (r->files[i].bytes < 0) *total = -1;
        if (*total >= 0) *total += r->files[i].bytes;
    }
    if (r->position.file == r->n_files) return;
    if (r->jsonl.stream) *done += (int64_t)stream_consumed(r->jsonl.stream);
    if (r->tokens.map.data) *done += (int64_t)r->position.offset;
    if (r->megatron.data.data && r->megatron.n_documents > 0)
        *done += (int64_t)((double)r->megatron.data.size * (double)r->megatron.next / (double)r->megatron.n_documents);
}
