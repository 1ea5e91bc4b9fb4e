/* columnar.c -- see columnar.h. */
#include "data/readers/columnar/columnar.h"
#include "base/little_endian.h"
#include "base/memory.h"
#include "data/tokenizer/utf8.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint64_t block_min = 64 << 20;

enum status columnar_file_open(struct columnar_file *out, const char *path) {
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail_errno("%s: cannot open", path);
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return fail(STATUS_INVALID, "%s: parquet and arrow are read at positions, from plain files only: save it first",
                    path);
    }
    *out = (struct columnar_file){fd, (uint64_t)info.st_size, path};
    return STATUS_OK;
}

void columnar_file_close(struct columnar_file *f) {
    if (f->path) close(f->fd);
    *f = (struct columnar_file){0};
}

enum status columnar_file_read(const struct columnar_file *f, void *data, uint64_t at, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(f->fd, (char *)data + done, bytes - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail_errno("%s: cannot read at byte %llu", f->path, (unsigned long long)(at + done));
        if (got == 0)
            return fail(STATUS_INVALID, "%s: ends at byte %llu, shorter than when it was opened", f->path,
                        (unsigned long long)(at + done));
        done += (size_t)got;
    }
    return STATUS_OK;
}

uint64_t columnar_block_max(const struct reader *r) {
    return r->max_bytes > block_min ? r->max_bytes : block_min;
}

/* ---- columns ---------------------------------------------------------------------------------------------------- */

void columnar_choice_begin(struct columnar_choice *c, const char *text_field) {
    *c = (struct columnar_choice){.text_field = text_field, .number = {-1, -1}};
}

static void name_add(char names[COLUMNAR_NAMES_MAX], size_t *size, const char *name) {
    int n = snprintf(names + *size, COLUMNAR_NAMES_MAX - *size, "%s\"%s\"", *size ? ", " : "", name);
    if (n > 0 && *size + (size_t)n < COLUMNAR_NAMES_MAX - 6) {
        *size += (size_t)n;
        return;
    }
    if (*size + 6 < COLUMNAR_NAMES_MAX) memcpy(names + *size, ", ...", 6);
    *size = COLUMNAR_NAMES_MAX - 1; /* the list is full */
}

void columnar_choice_add(struct columnar_choice *c, const char *path, enum columnar_kind kind, const char *type,
                         int number) {
    bool id = strcmp(path, "id") == 0, meta = strcmp(path, "meta.id") == 0;
    if (kind == COLUMN_TEXT && c->names_size < COLUMNAR_NAMES_MAX - 1) name_add(c->names, &c->names_size, path);
    if (c->others_size < COLUMNAR_NAMES_MAX - 1) name_add(c->others, &c->others_size, path);
    if (!c->text_type && strcmp(path, c->text_field) == 0) {
        c->text_type = type;
        if (kind == COLUMN_TEXT) {
            c->number[COLUMNAR_TEXT] = number;
            c->kind[COLUMNAR_TEXT] = kind;
        }
    }
    bool better = c->number[COLUMNAR_KEY] < 0 || (id && c->key_is_meta);
    if ((id || meta) && kind != COLUMN_OTHER && better) {
        c->number[COLUMNAR_KEY] = number;
        c->kind[COLUMNAR_KEY] = kind;
        c->key_is_meta = meta;
    }
}

enum status columnar_choice_check(const struct columnar_choice *c, const char *path) {
    if (c->number[COLUMNAR_TEXT] >= 0) return STATUS_OK;
    char what[80] = "is missing";
    if (c->text_type) snprintf(what, sizeof what, "holds no text but %s", c->text_type);
    if (c->names_size)
        return fail(STATUS_INVALID, "%s: the column \"%s\" %s; the columns of text are %s: name one with --text-field",
                    path, c->text_field, what, c->names);
    return fail(STATUS_INVALID, "%s: the column \"%s\" %s, and no other column is text; there are %s", path,
                c->text_field, what, c->others_size ? c->others : "none");
}

size_t columnar_path_add(char path[COLUMNAR_PATH_MAX], size_t length, const void *name, size_t bytes) {
    size_t free_bytes = COLUMNAR_PATH_MAX - 1 - length;
    if (length > 0 && free_bytes > 0) path[length++] = '.', free_bytes--;
    size_t n = bytes < free_bytes ? bytes : free_bytes;
    if (n > 0) memcpy(path + length, name, n);
    path[length + n] = '\0';
    return length + n;
}

/* ---- rows ------------------------------------------------------------------------------------------------------- */

static void hash_value(struct reader *r, const struct columnar_value *v) {
    uint64_t size = v->null ? UINT64_MAX : v->size;
    reader_part_add(r, &size, sizeof size);
    if (!v->null) reader_part_add(r, v->data, v->size);
}

/* Repairs a text to valid UTF-8 with a NUL at its end. */
static enum status columnar_text(struct reader_buffer *to, uint64_t *replaced, const struct columnar_value *v) {
    const char *text = (const char *)v->data;
    *replaced = 0;
    if (v->size > 0 && utf8_valid_prefix(text, v->size) != v->size) {
        TRY(utf8_repair(&to->data, &to->capacity, &to->size, replaced, text, v->size));
    } else {
        TRY(memory_grow(&to->data, &to->capacity, v->size + 1));
        if (v->size > 0) memcpy(to->data, text, v->size);
        to->size = v->size;
    }
    TRY(memory_grow(&to->data, &to->capacity, to->size + 1));
    to->data[to->size] = '\0';
    return STATUS_OK;
}

static enum status columnar_key(struct reader *r, const struct columnar_value *v, enum columnar_kind kind) {
    struct reader_buffer *to = &r->columnar_key;
    uint64_t replaced, number = 0;
    if (!v->null && kind == COLUMN_TEXT) {
        TRY(columnar_text(to, &replaced, v));
        return reader_key_repair(to, &r->repaired);
    }
    TRY(memory_grow(&to->data, &to->capacity, 32));
    to->data[to->size = 0] = '\0';
    if (v->null || kind == COLUMN_OTHER) return STATUS_OK;
    number = little_endian_get(v->data, (int)v->size);
    int shift = 64 - 8 * (int)v->size;
    int n = kind == COLUMN_UNSIGNED ? snprintf(to->data, 32, "%llu", (unsigned long long)number)
                                    : snprintf(to->data, 32, "%lld", (long long)((int64_t)(number << shift) >> shift));
    to->size = (size_t)n;
    return STATUS_OK;
}

enum status columnar_row(struct reader *r, struct document *d, bool *skipped,
                         const struct columnar_value values[COLUMNAR_COLUMNS],
                         const enum columnar_kind kinds[COLUMNAR_COLUMNS], struct columnar_part part) {
    const struct columnar_value *text = &values[COLUMNAR_TEXT];
    const char *path = reader_file(r)->path;
    unsigned long long row = ++r->position.offset; /* number of the row in the file */
    r->position.line = row;
    *skipped = false;
    if (text->size > r->max_bytes)
        return fail(STATUS_UNSUPPORTED,
                    "%s: %s %llu, row %llu: the text of %zu bytes is longer than the limit of %llu bytes for a "
                    "document: split it, or allow drt-index more memory (--max-ram)",
                    path, part.name, (unsigned long long)part.number, row, text->size,
                    (unsigned long long)r->max_bytes);
    hash_value(r, text);
    hash_value(r, &values[COLUMNAR_KEY]);
    if (text->null) {
        enum status status =
            fail(STATUS_INVALID, "%s: %s %llu, row %llu: the column \"%s\" is null: --skip-bad-lines leaves it out",
                 path, part.name, (unsigned long long)part.number, row, r->text_field);
        if (!r->skip_bad_lines) return status;
        *skipped = true;
        r->position.skipped++;
        return r->passing ? STATUS_OK : left_out_add(&r->bad_lines, status_message());
    }
    TRY(columnar_text(&r->text, &d->replaced, text));
    TRY(columnar_key(r, &values[COLUMNAR_KEY], kinds[COLUMNAR_KEY]));
    d->text = r->text.data;
    d->bytes = r->text.size;
    d->key = r->columnar_key.data;
    d->offset = part.number;
    d->line = row;
    return STATUS_OK;
}
