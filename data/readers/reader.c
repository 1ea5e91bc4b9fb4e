/* reader.c -- reads one file after another and keeps the reading position. */
#include "base/memory.h"
#include "data/readers/columnar/columnar.h"
#include <string.h>

static const uint64_t default_max_bytes = 1u << 30;

enum status reader_format_parse(enum reader_format *out, const char *name) {
    static const char *const names[] = {"auto", "jsonl", "txt", "u16", "u32", "megatron", "parquet", "arrow"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(names[i], name) == 0) {
            *out = (enum reader_format)i;
            return STATUS_OK;
        }
    return fail(STATUS_INVALID, "unknown format \"%s\": one of auto, jsonl, txt, u16, u32, megatron, parquet, arrow",
                name);
}

enum status reader_open(struct reader **out, const struct reader_config *config) {
    struct reader *r;
    TRY(memory_allocate_zero(&r, 1));
    r->eod_id = config->eod_id;
    r->max_bytes = config->max_document_bytes ? config->max_document_bytes : default_max_bytes;
    r->skip_bad_lines = config->skip_bad_lines;
    r->no_follow = config->no_follow;
    r->following.bytes = config->ahead_bytes;
    r->progress = config->progress;
    r->source = config->source;
    enum status status;
    TRY_GOTO(status, memory_copy_string(&r->text_field, config->text_field ? config->text_field : "text"), out);
    r->jsonl.parser.text_field = r->text_field;
    TRY_GOTO(status, reader_part_create(r), out);
    TRY_GOTO(status, reader_list(r, config), out);
    if (config->parts > 0) TRY_GOTO(status, reader_take_part(r, config->part, config->parts), out);
    *out = r;
out:
    if (status != STATUS_OK) reader_close(r);
    return status;
}

enum status reader_apart(const char *out, const struct reader_config *config) {
    struct reader *r;
    if (!out || !file_exists(out)) return STATUS_OK;
    TRY(reader_open(&r, config));
    enum status status = STATUS_OK;
    for (size_t i = 0; i < r->n_files && status == STATUS_OK; i++)
        status = file_apart(out, (const char *const[]){r->files[i].path}, 1);
    reader_close(r);
    return status;
}

void reader_close_file(struct reader *r) {
    jsonl_close(r);
    tokens_close(r);
    megatron_close(r);
    parquet_close(r);
    arrow_close(r);
    r->open = false;
}

enum status left_out_add(struct left_out *l, const char *text) {
    if (l->count < READER_NAMED) TRY(memory_copy_string(&l->named[l->count], text));
    l->count++;
    return STATUS_OK;
}

static void free_buffer(struct reader_buffer *b) {
    memory_free(b->data);
}

void reader_close(struct reader *r) {
    if (!r) return;
    reader_close_file(r);
    files_ahead_close(r);
    for (size_t i = 0; i < r->n_files; i++)
        memory_free(r->files[i].path);
    memory_free(r->files);
    memory_free(r->text_field);
    memory_free(r->part);
    for (int i = 0; i < READER_NAMED; i++) {
        memory_free(r->passed_over.named[i]);
        memory_free(r->bad_lines.named[i]);
    }
    free_buffer(&r->text);
    free_buffer(&r->repaired);
    free_buffer(&r->jsonl.buffer);
    jsonl_parser_close(&r->jsonl.parser);
    free_buffer(&r->columnar_key);
    memory_free(r->tokens.ids);
    memory_free(r->megatron.ids);
    memory_free(r);
}

static enum status open_format(struct reader *r) {
    if (r->source.next) return STATUS_OK;
    switch (reader_file(r)->format) {
    case READER_JSONL:
        return jsonl_open(r);
    case READER_U16:
    case READER_U32:
        return tokens_open(r);
    case READER_MEGATRON:
        return megatron_open(r);
    case READER_PARQUET:
        return parquet_open(r);
    case READER_ARROW:
        return arrow_open(r);
    case READER_TXT:
    case READER_AUTO:
        break; /* not reached for auto, which reader_list has resolved; text files are opened and read by text_next */
    }
    return STATUS_OK;
}

enum status reader_open_file(struct reader *r) {
    reader_part_begin(r);
    enum status status = open_format(r);
    r->open = status == STATUS_OK;
    if (!r->open) reader_close_file(r);
    return status;
}

/* Bytes of the file that are of this reader's part. */
static int64_t file_share(const struct input_file *f) {
    return f->bytes > 0 ? f->bytes - (int64_t)f->begin : 0;
}

void reader_end_file(struct reader *r) {
    const struct reader_position at = reader_position(r);
    reader_close_file(r);
    r->done_bytes += file_share(reader_file(r));
    r->position = (struct reader_position){.documents = at.documents,
                                           .file = at.file + 1,
                                           .skipped = at.skipped,
                                           .files_hash = reader_part_chain(at.files_hash, at.part_hash)};
}

enum status reader_next_in_file(struct reader *r, struct document *d, int *more) {
    if (r->source.next) return source_next(r, d, more);
    switch (reader_file(r)->format) {
    case READER_JSONL:
        return jsonl_next(r, d, more);
    case READER_U16:
    case READER_U32:
        return tokens_next(r, d, more);
    case READER_MEGATRON:
        return megatron_next(r, d, more);
    case READER_PARQUET:
        return parquet_next(r, d, more);
    case READER_ARROW:
        return arrow_next(r, d, more);
    case READER_TXT:
    case READER_AUTO:
        break;
    }
    return text_next(r, d, more);
}

enum status reader_next(struct reader *r, struct document *document, int *more) {
    while (r->position.file < r->n_files) {
        struct document d = {.source = reader_file(r)->path, .key = ""};
        if (!r->open) TRY(reader_open_file(r));
        TRY(reader_next_in_file(r, &d, more));
        if (*more) {
            r->position.documents++;
            *document = d;
            return STATUS_OK;
        }
        reader_end_file(r);
    }
    *more = 0;
    return STATUS_OK;
}

enum status reader_next_unparsed(struct reader *r, struct document *document, int *more) {
    r->unparsed = true;
    const enum status s = reader_next(r, document, more);
    r->unparsed = false;
    return s;
}

struct reader_position reader_position(const struct reader *r) {
    struct reader_position position = r->position;
    position.part_hash = r->open ? reader_part_hash(r) : 0;
    return position;
}

int64_t reader_passed_over(const struct reader *r) {
    return r->passed_over.count;
}

static void note_left_out(const struct left_out *l, const char *what, const struct progress *progress) {
    if (l->count == 0) return;
    progress_note(progress, "%lld %s:", (long long)l->count, what);
    for (int i = 0; i < READER_NAMED && i < l->count; i++)
        progress_note(progress, "  %s", l->named[i]);
    if (l->count > READER_NAMED) progress_note(progress, "  and %lld more", (long long)l->count - READER_NAMED);
}

void reader_note_left_out(const struct reader *r, const struct progress *progress) {
    note_left_out(&r->passed_over, "files that are not text were passed over", progress);
    note_left_out(&r->bad_lines, "lines or rows without a document were skipped", progress);
}

/* Bytes of the open file, from its start. */
static int64_t file_done(const struct reader *r) {
    if (r->jsonl.stream) return (int64_t)jsonl_consumed(&r->jsonl);
    if (r->parquet) return (int64_t)parquet_done(r);
    if (r->arrow) return (int64_t)arrow_done(r);
    if (r->tokens.map.data) return (int64_t)r->position.offset;
    if (!r->megatron.data.data || r->megatron.n_documents == 0) return 0;
    return (int64_t)((double)r->megatron.data.size * (double)r->megatron.next / (double)r->megatron.n_documents);
}

void reader_progress(const struct reader *r, int64_t *done, int64_t *total) {
    *done = r->done_bytes;
    *total = 0;
    for (size_t i = 0; i < r->n_files; i++) {
        if (r->files[i].bytes < 0) *total = -1;
        if (*total >= 0) *total += file_share(&r->files[i]);
    }
    if (r->position.file == r->n_files) return;
    const struct input_file *f = reader_file(r);
    int64_t here = file_done(r);
    if (f->bytes >= 0) { /* blocks are read beyond the share, and lines before it are counted */
        here -= (int64_t)f->begin;
        here = here < 0 ? 0 : here;
        if (here > file_share(f)) here = file_share(f);
    }
    *done += here;
}
