/* reader.h -- documents out of files: one stream of texts (or of token ids) over any number of inputs.
 *
 * Formats: jsonl (also .gz .zst .xz and stdin "-"), folders of text files (one document a file), raw u16/u32 token
 * files cut at an end-of-document id, Megatron .bin/.idx pairs, parquet, arrow (IPC files and streams, as the Python
 * package `datasets` saves them). `auto` looks at the name, then at the first bytes. docs/inputs.md describes each.
 * Inputs are read in the order given, a folder's files in byte order of their paths, so a corpus has one document
 * order. Folders may be nested as deeply as a path is long, and linked: each is read once. Memory is bounded by the
 * largest document. One thread at a time. A text file that begins with UTF-16's byte order mark is decoded. */
#pragma once
#include "base/progress.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum reader_format { READER_AUTO, READER_JSONL, READER_TXT, READER_U16, READER_U32, READER_MEGATRON,
                     READER_PARQUET, READER_ARROW };

/* Documents that the caller has in memory, borrowed until `next` is called again. key "": none; as `document`, source
 * need not be given. */
struct source_document { const char *text; size_t bytes; const char *source, *key; };
/* *more false: there are no more. Called by one thread at a time, not always the same. */
struct reader_source {
    enum status (*next)(void *context, struct source_document *out, bool *more);   /* NULL: none, but inputs */
    void *context;
};

struct reader_config {
    struct reader_source source;         /* in place of inputs; format and what follows then do not matter */
    const char *const *inputs;           /* files, folders, or "-" for standard input */
    int n_inputs;
    enum reader_format format;
    const char *text_field;              /* jsonl, parquet, arrow; NULL: "text". Columns in structs: a.b */
    int64_t eod_id;                      /* u16/u32: document separator, dropped; < 0: the file is one document.
                                            Megatron: a trailing eod_id of a document is dropped */
    uint64_t max_document_bytes;         /* larger ones are refused by name; 0: 1 GiB */
    bool skip_bad_lines;                 /* a jsonl line that is no document, or a row without text (null), is counted
                                            and left out, not an error */
    bool no_follow;                      /* links in folders are left out */
    int part, parts;                     /* part 1 .. parts of the inputs (reader_part.c has the rule); parts 0: all */
    const struct progress *progress;     /* of reader_open and reader_seek; NULL is fine */
};

/* A document: either text (UTF-8, invalid bytes replaced by U+FFFD) or ids. Borrowed until the next call. */
struct document {
    const char *text; size_t bytes;      /* NULL for token formats */
    const uint32_t *ids; size_t n_ids;   /* NULL for text formats */
    const char *source;                  /* the input file's path as given (folder inputs: path of the file) */
    const char *key;                     /* jsonl, parquet, arrow: "id" of the object (row) or of its "meta", else "" */
    uint64_t offset;                     /* byte offset in the (uncompressed) source where the document starts;
                                            parquet: row group, arrow: record batch, from 0 */
    uint64_t line;                       /* jsonl: line number from 1; parquet, arrow: row of the file from 1; else 0 */
    uint64_t replaced;                   /* invalid UTF-8 sequences replaced in it */
};

/* Lists the inputs' files; opens each parquet and arrow file once, to check that it has the column of text. */
struct reader;
enum status reader_open(struct reader **out, const struct reader_config *config);
void reader_close(struct reader *r);                      /* NULL is fine */

/* The next document; *more = 0 at the end (document unset). Empty documents are passed on (bytes == 0). */
enum status reader_next(struct reader *r, struct document *document, int *more);

/* The reading position, from which a new process can continue: the number of documents returned so far, the input
 * file's number, the (uncompressed) offset after the last document (Megatron: documents of the file; parquet, arrow:
 * rows of the file), the line or row, bad lines or rows skipped so far, and hashes (XXH3) of what was read: names,
 * order and bytes (of rows: texts and keys). */
struct reader_position {
    uint64_t documents, file, offset, line, skipped;
    uint64_t files_hash;                 /* of the files before `file` */
    uint64_t part_hash;                  /* of `file` up to `offset` */
};
struct reader_position reader_position(const struct reader *r);
/* files_hash of an earlier position that had this `file`. */
struct reader_mark { uint64_t file, files_hash; };

/* Goes to a position that an earlier reader had. What lies before it is read again and must be what it was:
 * STATUS_MISMATCH names the file that changed; where several files were read between two of the marks (ordered by
 * `file`; NULL is fine), the first and the last of them. What lies after it may have changed. Text is not parsed again
 * (rows are decoded). STATUS_INTERRUPTED on a stop request; STATUS_UNSUPPORTED when this reader has read from standard
 * input. */
enum status reader_seek(struct reader *r, struct reader_position position, const struct reader_mark *marks,
                        size_t n_marks);

/* The files that the inputs came to, folders walked, in reading order: i < reader_files. *bytes on disk; < 0:
 * unknown. */
size_t reader_files(const struct reader *r);
const char *reader_file_at(const struct reader *r, size_t i, int64_t *bytes);
/* Of names, formats and sizes of all inputs: the same in every part. 0 without parts. */
uint64_t reader_list_hash(const struct reader *r);

/* Files of folders that were passed over so far, since they are not text (a NUL in the first KB). */
int64_t reader_passed_over(const struct reader *r);
/* Notes how many files were passed over and how many bad lines skipped since reading began here, and the first of
 * each. */
void reader_note_left_out(const struct reader *r, const struct progress *progress);

/* Bytes read and in all, on disk (compressed), for progress; total < 0 when unknown (stdin). */
void reader_progress(const struct reader *r, int64_t *done, int64_t *total);

/* What a document's `offset` counts, by its source's name: "row group" (parquet), "record batch" (arrow), "byte". */
const char *reader_offset_unit(const char *source);

enum status reader_format_parse(enum reader_format *out, const char *name);   /* "auto", "jsonl", ... */
