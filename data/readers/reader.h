/* reader.h -- reads documents from files: one stream of texts (or of token ids) over any number of inputs.
 *
 * Formats: jsonl (also .gz .zst .xz and stdin "-"), folders of text files (one document per file), raw u16/u32 token
 * files divided at an end-of-document id, Megatron .bin/.idx pairs, parquet, arrow (IPC files and streams, as the
 * Python package `datasets` saves them). `auto` uses the name, then the first bytes. docs/inputs.md describes each.
 *
 * Inputs are read in the given order, and the files of a folder in byte order of their paths, so a corpus has one order
 * of documents. Folders may be nested as deeply as a path is long, and may contain links; each folder is read once.
 * Memory is limited by the largest document. A text file that begins with UTF-16's byte order mark is decoded. For one
 * thread at a time. */
#pragma once
#include "base/progress.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum reader_format { READER_AUTO, READER_JSONL, READER_TXT, READER_U16, READER_U32, READER_MEGATRON,
                     READER_PARQUET, READER_ARROW };

/* A document that the caller has in memory, borrowed until the next call of `next`. key "": none. Other members as in
 * `document`; source may be NULL. */
struct source_document { const char *text; size_t bytes; const char *source, *key; };
/* Gets the next document; *more false: there is none. Called by one thread at a time, but not always
 * by the same one. */
struct reader_source {
    /* NULL: documents come from `inputs` */
    enum status (*next)(void *context, struct source_document *out, bool *more);
    void *context;
};

struct reader_config {
    struct reader_source source;         /* used instead of inputs; format and the options below then have no effect */
    const char *const *inputs;           /* files, folders, or "-" for standard input */
    int n_inputs;
    enum reader_format format;
    /* jsonl, parquet, arrow: name of the text's member or column; NULL: "text". Members of structs: a.b */
    const char *text_field;
    int64_t eod_id;                      /* u16/u32: document separator, dropped; < 0: the file is one document.
                                            Megatron: a trailing eod_id of a document is dropped */
    uint64_t max_document_bytes;         /* a larger document is an error that names it; 0: 1 GiB */
    /* skips and counts jsonl lines that are not documents and rows without text (null), which otherwise are errors */
    bool skip_bad_lines;
    bool no_follow;                      /* skips links in folders */
    uint64_t ahead_bytes;                /* of compressed jsonl: memory for files that are decompressed meanwhile */
    int part, parts;                     /* part 1 .. parts of the inputs (reader_part.c has the rule); parts 0: all */
    const struct progress *progress;     /* for reader_open and reader_seek; NULL is fine */
};

/* A document: either text (UTF-8, with invalid bytes replaced by U+FFFD) or ids. Borrowed until the next call. */
struct document {
    const char *text; size_t bytes;      /* NULL for token formats */
    const uint32_t *ids; size_t n_ids;   /* NULL for text formats */
    const char *source;                  /* path of the input file, as given or as found in a folder */
    /* jsonl, parquet, arrow: "id" of the object (row) or of its "meta"; otherwise "" */
    const char *key;
    uint64_t offset;                     /* byte offset in the (uncompressed) source where the document starts;
                                            parquet: row group, arrow: record batch, from 0 */
    uint64_t line;                       /* jsonl: line number from 1; parquet, arrow: row of the file from 1; else 0 */
    uint64_t replaced;                   /* invalid UTF-8 sequences that were replaced */
    bool unparsed;                       /* text is a line of jsonl, which document_parse has not seen yet */
};

/* Lists the files of the inputs. Opens each parquet and arrow file once, to check that it has the text column. */
struct reader;
enum status reader_open(struct reader **out, const struct reader_config *config);
void reader_close(struct reader *r);                      /* NULL is fine */
/* STATUS_INVALID: `out` would replace a file that is read, also one of a folder. NULL and a new file are fine. */
enum status reader_apart(const char *out, const struct reader_config *config);

/* Returns the next document; *more = 0 at the end (document unset). An empty document (bytes == 0) is returned, too. */
enum status reader_next(struct reader *r, struct document *document, int *more);

/* As reader_next, but lines of jsonl may be returned unparsed, so that other threads parse them while this one reads:
 * each with a parser of its own, which keeps the document's memory until its next call. Any other document stays as it
 * is. document_parse has the errors of reader_next for a bad line. */
enum status reader_next_unparsed(struct reader *r, struct document *document, int *more);
struct document_parser;
enum status document_parser_create(struct document_parser **out, const struct reader *r);
void document_parser_free(struct document_parser *p);     /* NULL is fine */
enum status document_parse(struct document_parser *p, struct document *d);

/* A reading position, from which another process can continue: number of documents returned so far; number of the input
 * file; (uncompressed) offset after the last document (Megatron: documents of the file; parquet, arrow: rows of the
 * file); line or row; bad lines or rows skipped so far; and hashes (XXH3) of the names, the order and the bytes that
 * were read (of rows: texts and keys). */
struct reader_position {
    uint64_t documents, file, offset, line, skipped;
    uint64_t files_hash;                 /* of the files before `file` */
    uint64_t part_hash;                  /* of `file` up to `offset` */
};
struct reader_position reader_position(const struct reader *r);
/* A mark: files_hash of an earlier position whose file was `file`. */
struct reader_mark { uint64_t file, files_hash; };

/* Moves to a position of an earlier reader. The data before it is read again and compared. STATUS_MISMATCH: a file has
 * changed; the message names it, or the first and last of the files between two of the marks (ascending by `file`; NULL
 * is fine). Data after the position may have changed. Text is not parsed again, but rows are decoded.
 * STATUS_INTERRUPTED: a stop was requested. STATUS_UNSUPPORTED: this reader has already read from standard input. */
enum status reader_seek(struct reader *r, struct reader_position position, const struct reader_mark *marks,
                        size_t n_marks);

/* Hash of names, formats and sizes of all inputs, which is equal for all parts; 0 without parts. */
uint64_t reader_list_hash(const struct reader *r);

/* Returns the number of files in folders that were skipped because they are not text (a NUL in the first KB). */
int64_t reader_passed_over(const struct reader *r);
/* Writes notes: how many files and bad lines were skipped since this reader started, and the first of each. */
void reader_note_left_out(const struct reader *r, const struct progress *progress);

/* Bytes on disk (compressed) that were read, and in total, for progress; total < 0: unknown (stdin). */
void reader_progress(const struct reader *r, int64_t *done, int64_t *total);

/* Unit of a document's `offset`, from its source's name: "row group" (parquet), "record batch" (arrow), "byte". */
const char *reader_offset_unit(const char *source);

enum status reader_format_parse(enum reader_format *out, const char *name);   /* "auto", "jsonl", ... */
