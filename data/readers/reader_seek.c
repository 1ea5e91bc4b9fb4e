/* reader_seek.c -- the hash of the data that was read, and the continuation after it in another process.
 *
 * A corpus may change between a stopped build and its resumption. The data read before the stop is read again, hashed
 * without being parsed, and compared; otherwise two corpora could be mixed unnoticed. The data after it may have
 * changed. */
#define XXH_STATIC_LINKING_ONLY
#include "base/memory.h"
#include "data/readers/columnar/columnar.h"
#include <string.h>
#include <xxhash.h>

enum { BLOCK = 1 << 20, STEP_ROWS = 1024 };

/* ---- the hash ------------------------------------------------------------------------------------------- */

enum status reader_part_create(struct reader *r) {
    TRY(memory_allocate_aligned(&r->part, 1));
    XXH3_INITSTATE(r->part);
    return STATUS_OK;
}

void reader_part_begin(struct reader *r) {
    const char *path = reader_file(r)->path;
    XXH3_64bits_reset(r->part);
    XXH3_64bits_update(r->part, path, strlen(path) + 1);
}

void reader_part_add(struct reader *r, const void *data, size_t bytes) {
    if (bytes > 0) XXH3_64bits_update(r->part, data, bytes);
}

uint64_t reader_part_hash(const struct reader *r) {
    return XXH3_64bits_digest(r->part);
}

uint64_t reader_part_chain(uint64_t files_hash, uint64_t part_hash) {
    uint8_t pair[16];
    for (int i = 0; i < 8; i++) {
        pair[i] = (uint8_t)(files_hash >> (8 * i));
        pair[8 + i] = (uint8_t)(part_hash >> (8 * i));
    }
    return XXH3_64bits(pair, sizeof pair);
}

/* ---- reading again --------------------------------------------------------------------------------------- */

static enum status reader_seek_step(const struct reader *r) {
    int64_t done, total;
    reader_progress(r, &done, &total);
    progress_step(r->progress, "compare what was read", "bytes", done, total);
    if (progress_stop_requested(r->progress))
        return fail(STATUS_INTERRUPTED, "stopped: run the same command again to resume");
    return STATUS_OK;
}

static enum status reader_seek_changed(const char *first, const char *last, uint64_t files) {
    const char *remedy = "restore it, or start again from the beginning (--restart)";
    if (files <= 1)
        return fail(STATUS_MISMATCH, "%s: the part of it that was read has changed since: %s", first, remedy);
    return fail(STATUS_MISMATCH, "%s ... %s: one of these %llu files has changed since it was read: %s", first, last,
                (unsigned long long)files, remedy);
}

/* Decodes rows again, because texts and keys are compared. Bad rows are not named, because the first run named them. */
static enum status pass_rows(struct reader *r, uint64_t offset) {
    struct document d;
    enum status status = STATUS_OK;
    r->passing = true;
    for (int more = 1; status == STATUS_OK && more && r->position.offset < offset;) {
        status = reader_next_in_file(r, &d, &more);
        if (status == STATUS_OK && r->position.offset % STEP_ROWS == 0) status = reader_seek_step(r);
    }
    r->passing = false;
    return status;
}

/* Reads the open file again, up to `offset` in the units of its format (UINT64_MAX: to its end). */
static enum status reader_seek_pass(struct reader *r, uint64_t offset) {
    struct document d;
    int more = 1;
    if (r->source.next) return source_pass(r, offset);
    /* the end of this file's part is found only by reading it */
    if (reader_file(r)->end != UINT64_MAX && offset == UINT64_MAX) {
        while (more)
            TRY(reader_next_in_file(r, &d, &more));
        return STATUS_OK;
    }
    switch (reader_file(r)->format) {
    case READER_JSONL:
        for (uint64_t got = BLOCK; got == BLOCK && r->position.offset < offset;) {
            uint64_t left = offset - r->position.offset;
            TRY(jsonl_pass(r, left < BLOCK ? left : BLOCK, &got));
            TRY(reader_seek_step(r));
        }
        return STATUS_OK;
    case READER_U16:
    case READER_U32:
        return tokens_pass(r, offset);
    case READER_MEGATRON:
        while (more && r->position.offset < offset)
            TRY(megatron_next(r, &d, &more));
        return STATUS_OK;
    case READER_PARQUET:
    case READER_ARROW:
        return pass_rows(r, offset);
    case READER_TXT:
    case READER_AUTO:
        break;
    }
    return text_next(r, &d, &more);
}

/* Compares the files before the position. */
static enum status pass_files(struct reader *r, const struct reader_position *to, const struct reader_mark *marks,
                              size_t n_marks) {
    uint64_t first = 0; /* the file after the last matching mark */
    for (size_t mark = 0; r->position.file < to->file;) {
        TRY(reader_open_file(r));
        TRY(reader_seek_pass(r, UINT64_MAX));
        reader_end_file(r);
        TRY(reader_seek_step(r));
        uint64_t file = r->position.file, wanted = to->files_hash;
        while (mark < n_marks && marks[mark].file < file)
            mark++;
        if (mark < n_marks && marks[mark].file == file)
            wanted = marks[mark].files_hash;
        else if (file != to->file)
            continue;
        if (r->position.files_hash != wanted)
            return reader_seek_changed(r->files[first].path, r->files[file - 1].path, file - first);
        first = file;
    }
    return STATUS_OK;
}

static enum status pass_all(struct reader *r, const struct reader_position *to, const struct reader_mark *marks,
                            size_t n_marks) {
    TRY(pass_files(r, to, marks, n_marks));
    if (to->offset == 0) return STATUS_OK;
    const char *path = reader_file(r)->path;
    TRY(reader_open_file(r));
    TRY(reader_seek_pass(r, to->offset));
    if (r->position.offset != to->offset || reader_part_hash(r) != to->part_hash)
        return reader_seek_changed(path, path, 1);
    return STATUS_OK;
}

static void reader_seek_restart(struct reader *r) {
    reader_close_file(r);
    r->position = (struct reader_position){0};
    r->done_bytes = 0;
}

static void reader_seek_forget(struct left_out *l) {
    for (int i = 0; i < READER_NAMED; i++)
        memory_free(l->named[i]);
    *l = (struct left_out){0};
}

enum status reader_seek(struct reader *r, struct reader_position position, const struct reader_mark *marks,
                        size_t n_marks) {
    uint64_t files = position.file + (position.offset > 0);
    if (files > r->n_files)
        return fail(STATUS_MISMATCH,
                    "%llu files were read before, and the inputs have %zu now: give the same inputs, or start again "
                    "from the beginning (--restart)",
                    (unsigned long long)files, r->n_files);
    for (size_t i = 0; i < r->n_files; i++) {
        bool touched = i < r->position.file || (i == r->position.file && (r->open || r->position.offset > 0));
        if (touched && reader_is_stdin(r->files[i].path))
            return fail(STATUS_UNSUPPORTED, "standard input cannot be read twice; use a file");
        if (touched && r->source.next)
            return fail(STATUS_UNSUPPORTED, "documents in memory cannot be read twice; give them from the first");
    }
    reader_seek_restart(r);
    enum status status = pass_all(r, &position, marks, n_marks);
    if (status != STATUS_OK) {
        reader_seek_restart(r);
        return status;
    }
    reader_seek_forget(&r->passed_over); /* the run that first read these files has named them */
    r->position = position;
    return STATUS_OK;
}
