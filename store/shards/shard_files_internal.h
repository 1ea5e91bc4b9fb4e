/* shard_files_internal.h -- the two data files of a shard.
 *
 *   tokens/NNNNN.tok     header, ids of its documents one after the other (u16 or u32, little-endian), footer
 *   landmarks/NNNNN.f16  header, one row of `dim` fp16 for each chunk, footer
 *   landmarks/NNNNN.i8   header, one row of `dim` codes for each chunk, zeros up to a multiple of 64 bytes, a float32
 *                        scale for each chunk, footer (row_codes_internal.h)
 * Merged shards share one file, NNNNN-NNNNN.tok, .f16 or .i8, named after the first and the last of them. Header (64
 * bytes): magic, version, element bytes, elements a row, number of the first row in the store. Footer (32 bytes):
 * magic, rows, CRC32C of header and footer. Counts and scales are at the end because they are known last, and the
 * writer computes the file's CRC in the order of its bytes. */
#pragma once
#include "base/file.h"
#include "base/little_endian.h"
#include "store/catalog/records_internal.h"
#include "store/shards/held_bytes_internal.h"

enum shard_kind { SHARD_TOKENS, SHARD_LANDMARKS_F16, SHARD_LANDMARKS_I8 };
/* The two files of a shard: shard_file_kind(type, 0) holds its tokens, shard_file_kind(type, 1) its landmarks. */
enum { SHARD_FILES = 2 };
static inline enum shard_kind shard_landmark_kind(enum store_landmarks type) {
    return type == STORE_LANDMARKS_I8 ? SHARD_LANDMARKS_I8 : SHARD_LANDMARKS_F16;
}
static inline enum shard_kind shard_file_kind(enum store_landmarks type, int file) {
    return file == 0 ? SHARD_TOKENS : shard_landmark_kind(type);
}
enum { SHARD_HEADER_BYTES = 64, SHARD_FOOTER_BYTES = 32 };

/* Makes the name of the file that contains shards first to last: "NNNNN.tok", or "NNNNN-NNNNN.tok" for several. */
enum status shard_path(char out[FILE_PATH_MAX], const char *store, enum shard_kind kind, int64_t first, int64_t last);
int shard_token_bytes(const struct store_fingerprint *f); /* 2 or 4, by the size of the vocabulary */

struct shard_writer;
/* Begins a file. `r`: its shard numbers and first rows; its counts are not known yet. */
enum status shard_create(struct shard_writer **out, const char *store, enum shard_kind kind,
                         const struct shard_record *r, const struct store_fingerprint *f);
/* Ids and fp16 rows stay in blocks of the pool, as far as it has some (ids: in a quarter of them), and shard_publish
 * writes them. */
void shard_hold(struct shard_writer *w, struct held_pool *pool);
/* STATUS_INVALID: an id is outside the vocabulary. Ids are checked before any of them is written, so that bad input
 * does not write part of a document. */
enum status shard_check_ids(const struct shard_writer *w, const int32_t *ids, size_t n);
/* Writes checked ids, or rows. Numbers of rows must be in the range of fp16, for either type of landmarks. */
enum status shard_write_ids(struct shard_writer *w, const int32_t *ids, size_t n);
enum status shard_write_rows(struct shard_writer *w, const float *rows, int64_t n);
/* rows: fp16 already, of a file of fp16 */
enum status shard_write_halves(struct shard_writer *w, const uint16_t *rows, int64_t n);
bool shard_is_f16(const struct shard_writer *w);          /* NULL: false */
/* Copies ids or rows of another shard unchanged. */
struct shard_map;
enum status shard_write_stored(struct shard_writer *w, const struct shard_map *from);
int64_t shard_rows(const struct shard_writer *w);
enum status shard_publish(struct shard_writer *w, struct stored_file *out);   /* w is freed, also on failure */
void shard_discard(struct shard_writer *w);               /* NULL is fine */

struct shard_map {
    struct file_map map;
    const uint8_t *rows;                 /* aligned to 64 bytes */
    const float *scales;                 /* of 8-bit landmarks, aligned to 64 bytes; else NULL */
    int64_t first_row, count;
    int element_bytes;
};
/* Maps a recorded file. Checks size, header and footer against the record (rows: tokens or chunks). */
enum status shard_open(struct shard_map *out, const char *store, enum shard_kind kind, const struct shard_record *r,
                       const struct store_fingerprint *f);
/* Returns id `row` of a token shard. It is not checked against the vocabulary. */
static inline uint32_t shard_id(const struct shard_map *m, int64_t row) {
    const uint8_t *p = m->rows + (size_t)row * (size_t)m->element_bytes;
    return (uint32_t)(m->element_bytes == 2 ? little_endian_get(p, 2) : little_endian_get(p, 4));
}
/* Returns the rows of a landmark file, from row `first` of the file to its end. */
struct store_rows shard_map_rows(const struct shard_map *m, int64_t first, int dim);
void shard_close(struct shard_map *m);                    /* a zeroed one is fine */
/* The remedy for a damaged or missing file: tokens must be read from the corpus again; landmarks are made from the
 * tokens. */
enum { SHARD_REMEDY_MAX = 128 };
void shard_remedy(char out[SHARD_REMEDY_MAX], enum shard_kind kind, const struct shard_record *file);
/* STATUS_CORRUPT, with the remedy: the file is missing or has another size. */
enum status stored_file_check(const char *path, struct stored_file recorded, const char *remedy);
