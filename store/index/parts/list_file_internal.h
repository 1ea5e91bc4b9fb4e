/* list_file_internal.h -- a file of lists: an inverted file over a range of chunks, as one process filled it.
 *
 *   part-I-of-N.R.lists   of part I of N, the Rth file (a part has several if its lists do not fit in memory)
 *
 * bytes                 content (numbers little-endian)
 * 128                   header: magic, version, code bytes, lists, plan, rows, part, parts, first chunk, number of
 *                       rows, CRC32C
 * 8 each                sizes of the lists
 * code bytes each       codes of the first list, then of the second, ...; as FAISS has them in memory
 * 8 each                ids of the same rows: within a list they ascend
 * 16                    footer: CRC32C of sizes, of codes, of ids; CRC32C of these
 *
 * A file is read by three streams (list_stream), each from the beginning of its section to the end: sizes, codes,
 * ids. */
#pragma once
#include "base/file.h"
#include "store/index/vectors_internal.h"

struct list_file_head {
    int64_t lists, code_bytes;
    uint32_t plan;                       /* index_parts_plan.id */
    uint32_t rows_crc;                   /* index_parts_rows_crc */
    int part, parts;
    int64_t first_chunk, rows;
};
enum list_section { LIST_SIZES, LIST_CODES, LIST_IDS, LIST_SECTIONS };
struct list_file { struct list_file_head head; uint32_t crc[LIST_SECTIONS]; };

enum status list_file_path(char out[FILE_PATH_MAX], const char *dir, int part, int parts, int64_t run);
/* Parses the name of a file of lists. *run 0: the name is that of the part's lock. */
bool list_file_name(const char *name, int *part, int *parts, int64_t *run);
/* Writes a new file, which is durable and complete when the result is OK. `v` contains exactly these rows. */
enum status list_file_write(const char *path, const struct list_file_head *head, const struct vectors *v);
/* The same of rows that this program assigned; the threads of a pool write it. */
struct list_rows;
enum status list_file_write_rows(const char *path, const struct list_file_head *head, const struct list_rows *rows,
                                 struct threads *pool);
/* Reads and checks header, footer and size. STATUS_NOT_FOUND: there is no such file. STATUS_CORRUPT: it is damaged. */
enum status list_file_open(struct list_file *out, const char *path);
/* Compares every byte with the checksums. */
enum status list_file_verify(const struct list_file *f, const char *path);

/* Reads one section in order, through a buffer whose size is a multiple of 8 bytes. It opens the file for each block,
 * so any number of streams may exist. */
struct list_stream {
    uint64_t at, end;                    /* the bytes of the file that are not in the buffer yet */
    uint8_t *buffer; size_t capacity, filled, used;
    uint32_t crc;                        /* of what was read from the file */
};
void list_stream_begin(struct list_stream *s, const struct list_file *f, enum list_section section, uint8_t *buffer,
                       size_t capacity);
/* Gives *n bytes, from 1 to `wanted`, which are valid until the next call. STATUS_CORRUPT: no byte is left. */
enum status list_stream_read(struct list_stream *s, const uint8_t **bytes, size_t *n, size_t wanted, const char *path);
/* Copies `bytes` bytes to `out`. */
enum status list_stream_take(struct list_stream *s, uint8_t *out, uint64_t bytes, const char *path);
/* Call it after the last byte. STATUS_CORRUPT: the checksum differs. */
enum status list_stream_end(const struct list_stream *s, const struct list_file *f, enum list_section section,
                            const char *path);
