/* reader_internal.h -- for the files of the reader: the list of files, a decompressing stream, buffers. One input file
 * is open at a time. Each format has open, next and close, and adds what it reads to the hash r->part. */
#pragma once
#include "base/file.h"
#include "data/readers/files_ahead.h"
#include "data/readers/jsonl_line_internal.h"
#include <stdbool.h>

struct reader_span { uint64_t begin, end; };
/* Inputs that were skipped. All are counted, and the first READER_NAMED are named. */
enum { READER_NAMED = 5 };
struct left_out { int64_t count; char *named[READER_NAMED]; };

struct input_file {
    char *path;
    enum reader_format format;
    bool from_folder;                        /* binary files are then skipped */
    int64_t bytes;                           /* on disk; < 0: unknown */
    uint64_t begin, end;                     /* only records that begin in these bytes are read; end UINT64_MAX: all */
};

struct jsonl {
    struct stream *stream;
    struct stream_ahead *ahead;              /* of a compressed file; NULL: `stream` is read */
    struct reader_buffer buffer;
    struct jsonl_parser parser;
    size_t at;                               /* start of the next line in buffer */
    bool ended;                              /* the stream has ended */
};

struct tokens {                              /* raw u16/u32 */
    struct file_map map;
    int width; uint32_t *ids; size_t ids_capacity;
};

struct megatron {
    struct file_map index, data;
    char *data_path;
    int width, code;
    uint64_t n_sequences, n_documents;
    const uint8_t *lengths, *pointers, *documents;       /* into the index; unaligned */
    uint64_t next, last;                     /* documents next .. last-1 are not read yet */
    uint32_t *ids; size_t ids_capacity;
};

struct reader {
    struct input_file *files;
    size_t n_files, files_capacity;
    char *text_field;
    int64_t eod_id;
    uint64_t max_bytes;
    bool skip_bad_lines, no_follow;
    const struct progress *progress;
    struct reader_source source;             /* next NULL: documents come from files */
    struct reader_position position;         /* without part_hash, which comes from `part` */
    struct XXH3_state_s *part; /* state of a hash of the open file's path and of the bytes that were read of it */
    bool open;
    int64_t done_bytes;                      /* sizes of the files before the open one */
    struct left_out passed_over, bad_lines;
    uint64_t list_hash;                      /* see reader_list_hash */
    int64_t links_out;                       /* links that lead out of their folder */
    struct jsonl jsonl; struct files_ahead following;
    struct reader_buffer text, repaired, columnar_key;
    struct tokens tokens;
    struct megatron megatron;
    struct parquet *parquet;                 /* columnar/reader_parquet.c */
    struct arrow *arrow;                     /* columnar/reader_arrow.c */
    bool passing;                            /* whether data that an earlier run has read is read again */
    bool unparsed;                           /* whether lines of jsonl are returned as they are */
};

static inline const struct input_file *reader_file(const struct reader *r) { return &r->files[r->position.file]; }

/* reader.c */
enum status reader_open_file(struct reader *r);           /* opens the file at r->position from its start */
enum status reader_next_in_file(struct reader *r, struct document *d, int *more);   /* reads from the open file */
void reader_close_file(struct reader *r);
void reader_end_file(struct reader *r);                   /* moves to the next file, after the end of the open one */
enum status left_out_add(struct left_out *l, const char *text);

/* In reader_seek.c: the hash of the bytes that were read of the open file. */
enum status reader_part_create(struct reader *r);
void reader_part_begin(struct reader *r);                 /* begins with the file's path */
void reader_part_add(struct reader *r, const void *data, size_t bytes);
uint64_t reader_part_hash(const struct reader *r);
uint64_t reader_part_chain(uint64_t files_hash, uint64_t part_hash);   /* files_hash including one more file */

/* In reader_part.c: reduces r->files to the files and bytes of one part. */
enum status reader_take_part(struct reader *r, int part, int parts);

/* In reader_files.c: makes r->files from the inputs. */
enum status reader_list(struct reader *r, const struct reader_config *config);
bool reader_is_stdin(const char *path);
/* Returns the format by name, without the suffix of a compressor. READER_AUTO: the name does not determine it. */
enum reader_format reader_format_of_name(const char *name);
enum reader_format reader_format_of_path(const char *path);   /* by name, or by the .idx beside a .bin */
enum status reader_add_file(struct reader *r, const char *path, enum reader_format format, bool from_folder,
                            int64_t bytes);
/* In reader_folders.c: adds the files of a folder and of the folders in it, in any order. */
enum status reader_walk(struct reader *r, const char *path, enum reader_format format);

/* The formats. *more = 0: the file has no further document. They move r->position within the file. */
enum status source_next(struct reader *r, struct document *d, int *more);
enum status source_pass(struct reader *r, uint64_t offset);
enum status jsonl_open(struct reader *r);
/* Skips this number of bytes without parsing them; *got < bytes: the end. */
enum status jsonl_pass(struct reader *r, uint64_t bytes, uint64_t *got);
enum status jsonl_next(struct reader *r, struct document *d, int *more);
void jsonl_close(struct reader *r);
uint64_t jsonl_consumed(const struct jsonl *j);            /* bytes on disk */
enum status text_next(struct reader *r, struct document *d, int *more);
enum status tokens_open(struct reader *r);
enum status tokens_pass(struct reader *r, uint64_t offset);
enum status tokens_next(struct reader *r, struct document *d, int *more);
void tokens_close(struct reader *r);
enum status megatron_open(struct reader *r);
enum status megatron_next(struct reader *r, struct document *d, int *more);
void megatron_close(struct reader *r);
/* Writes "<prefix>.bin" or "<prefix>.idx" for a prefix, a .bin or an .idx. Returns false if it does not fit. */
bool megatron_path(char out[FILE_PATH_MAX], const char *input, const char *suffix);
