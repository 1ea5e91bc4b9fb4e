/* columnar.h -- what parquet and arrow files share: a file read at positions, the columns that a document comes from,
 * and a row of them as a document.
 *
 * Text is the column named by --text-field (members of structs with dots: a.b). The key is the column "id", else
 * "meta.id": text or a whole number. Internal to data/readers. */
#pragma once
#include "data/readers/reader_internal.h"

/* reader_parquet.c, reader_arrow.c: as the formats of reader_internal.h. */
enum status parquet_open(struct reader *r);
enum status parquet_next(struct reader *r, struct document *d, int *more);
void parquet_close(struct reader *r);
uint64_t parquet_done(const struct reader *r);            /* bytes of the file, for progress */
enum status arrow_open(struct reader *r);
enum status arrow_next(struct reader *r, struct document *d, int *more);
void arrow_close(struct reader *r);
uint64_t arrow_done(const struct reader *r);

/* Bytes that are read at positions. Not mapped: a file that another program cuts short gives an error, not a signal. */
struct columnar_file { int fd; uint64_t size; const char *path; };
enum status columnar_file_open(struct columnar_file *out, const char *path);   /* path must outlive it */
void columnar_file_close(struct columnar_file *f);                             /* a closed one is fine */
/* Exactly so many bytes; the range must lie within the file. */
enum status columnar_file_read(const struct columnar_file *f, void *data, uint64_t at, size_t bytes);

/* The largest block (page, buffer, footer) that is held in memory. */
uint64_t columnar_block_max(const struct reader *r);

enum columnar_kind { COLUMN_OTHER, COLUMN_TEXT, COLUMN_SIGNED, COLUMN_UNSIGNED };
enum { COLUMNAR_TEXT, COLUMNAR_KEY, COLUMNAR_COLUMNS };
enum { COLUMNAR_NAMES_MAX = 400, COLUMNAR_PATH_MAX = 1024, COLUMNAR_DEPTH_MAX = 64 };

/* The columns of a file, added one after the other while its schema is read. */
struct columnar_choice {
    const char *text_field;
    const char *text_type;                   /* of the column of that name; NULL: none was seen. Static */
    int number[COLUMNAR_COLUMNS];            /* as given to columnar_choice_add; -1: none */
    enum columnar_kind kind[COLUMNAR_COLUMNS];
    bool key_is_meta;
    char names[COLUMNAR_NAMES_MAX];          /* of the text columns; of all columns if there is none */
    size_t names_size;
    char others[COLUMNAR_NAMES_MAX];
    size_t others_size;
};
void columnar_choice_begin(struct columnar_choice *c, const char *text_field);
/* A column: its dotted path, what it holds (COLUMN_OTHER: also lists of texts), its type's name and its number. */
void columnar_choice_add(struct columnar_choice *c, const char *path, enum columnar_kind kind, const char *type,
                         int number);
/* STATUS_INVALID when there is no column of texts under the name; names the text columns there are. */
enum status columnar_choice_check(const struct columnar_choice *c, const char *path);

/* Appends a member's name to a dotted path; a path that does not fit is cut. Returns the new length. */
size_t columnar_path_add(char path[COLUMNAR_PATH_MAX], size_t length, const void *name, size_t bytes);

struct columnar_value { const uint8_t *data; size_t size; bool null; };
/* Where a row stands: the number of its row group or record batch, from 0, and what such a part is called. */
struct columnar_part { const char *name; uint64_t number; };
/* One row, with the text's bytes (not read when there are more than r->max_bytes: then it fails) and the key's
 * (numbers: little-endian), as a document. Adds the row to the part's hash
 * and moves r->position by one row. *skipped: the text is null and bad rows are skipped: it was counted, d is unset.
 * Unless `passing` (rows that an earlier run has read), such a row is also noted. */
enum status columnar_row(struct reader *r, struct document *d, bool *skipped,
                         const struct columnar_value values[COLUMNAR_COLUMNS],
                         const enum columnar_kind kinds[COLUMNAR_COLUMNS], struct columnar_part part);
