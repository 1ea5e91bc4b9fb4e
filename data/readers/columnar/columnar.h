/* columnar.h -- for the readers of parquet and arrow: a file that is read at positions, the columns that form a
 * document, and a row of them as a document.
 *
 * The text is the column named by --text-field (members of structs with dots: a.b). The key is the column "id",
 * otherwise "meta.id": text or a whole number. Only data/readers includes it. */
#pragma once
#include "data/readers/reader_internal.h"

/* Functions of reader_parquet.c and reader_arrow.c, as the formats of reader_internal.h. */
enum status parquet_open(struct reader *r);
enum status parquet_next(struct reader *r, struct document *d, int *more);
void parquet_close(struct reader *r);
uint64_t parquet_done(const struct reader *r);            /* bytes of the file that were read, for progress */
enum status arrow_open(struct reader *r);
enum status arrow_next(struct reader *r, struct document *d, int *more);
void arrow_close(struct reader *r);
uint64_t arrow_done(const struct reader *r);

/* A file that is read at positions. It is not mapped, because a mapping raises a signal instead of an error if another
 * program truncates the file. */
struct columnar_file { int fd; uint64_t size; const char *path; };
/* path is borrowed until columnar_file_close */
enum status columnar_file_open(struct columnar_file *out, const char *path);
void columnar_file_close(struct columnar_file *f);                             /* a closed one is fine */
/* Reads exactly this many bytes; the range must be within the file. */
enum status columnar_file_read(const struct columnar_file *f, void *data, uint64_t at, size_t bytes);

/* Returns the size of the largest block (page, buffer, footer) that may be in memory. */
uint64_t columnar_block_max(const struct reader *r);

enum columnar_kind { COLUMN_OTHER, COLUMN_TEXT, COLUMN_SIGNED, COLUMN_UNSIGNED };
enum { COLUMNAR_TEXT, COLUMNAR_KEY, COLUMNAR_COLUMNS };
enum { COLUMNAR_NAMES_MAX = 400, COLUMNAR_PATH_MAX = 1024, COLUMNAR_DEPTH_MAX = 64 };

/* The columns that form a document, found while the schema is read. */
struct columnar_choice {
    const char *text_field;
    const char *text_type; /* type of the column with that name, a constant string; NULL: there is no such column */
    int number[COLUMNAR_COLUMNS];            /* their numbers, as passed to columnar_choice_add; -1: none */
    enum columnar_kind kind[COLUMNAR_COLUMNS];
    bool key_is_meta;
    char names[COLUMNAR_NAMES_MAX];      /* names of the text columns, or of all columns if there is no text column */
    size_t names_size;
    char others[COLUMNAR_NAMES_MAX];
    size_t others_size;
};
void columnar_choice_begin(struct columnar_choice *c, const char *text_field);
/* Adds a column: its dotted path, its contents (COLUMN_OTHER, also for lists of texts), the name of its type,
 * and its number. */
void columnar_choice_add(struct columnar_choice *c, const char *path, enum columnar_kind kind, const char *type,
                         int number);
/* STATUS_INVALID: there is no text column of that name; the message lists the text columns. */
enum status columnar_choice_check(const struct columnar_choice *c, const char *path);

/* Appends a member's name to a dotted path, which is cut if it does not fit. Returns the new length. */
size_t columnar_path_add(char path[COLUMNAR_PATH_MAX], size_t length, const void *name, size_t bytes);

struct columnar_value { const uint8_t *data; size_t size; bool null; };
/* The part of the file that a row is in: "row group" or "record batch", and its number, from 0. */
struct columnar_part { const char *name; uint64_t number; };
/* Makes a document from one row: the text's bytes (not read if there are more than r->max_bytes, which is an error) and
 * the key's (numbers: little-endian). Adds the row to the part's hash, and moves r->position by one row. *skipped: the
 * text is null and such rows are skipped. The row was counted, and d is unset. A note is written, unless `passing`,
 * when an earlier run has read the row. */
enum status columnar_row(struct reader *r, struct document *d, bool *skipped,
                         const struct columnar_value values[COLUMNAR_COLUMNS],
                         const enum columnar_kind kinds[COLUMNAR_COLUMNS], struct columnar_part part);
