/* shard_files_internal.h -- the two data files of a shard.
 *
 *   tokens/NNNNN.tok     header, ids of its documents one after the other (u16 or u32, little-endian), footer
 *   landmarks/NNNNN.f16  header, one row of `dim` fp16 for each chunk, footer
 * Merged shards share one file, NNNNN-NNNNN.tok or .f16, named by the first and the last of them. Header (64 bytes):
 * magic, version, element bytes, elements a row, number of the first row in the store. Footer (32 bytes): magic, rows,
 * CRC32C of header and footer. The counts are in a footer because they are known last, and the writer computes the
 * file's CRC in the order of its bytes. */
#pragma once
#include "base/file.h"
#include "base/little_endian.h"
#include "store/catalog/records_internal.h"

enum shard_kind { SHARD_TOKENS, SHARD_LANDMARKS };
enum { SHARD_HEADER_BYTES = 64, SHARD_FOOTER_BYTES = 32 };

/* Name of the file that holds shards first to last: "NNNNN.tok", or "NNNNN-NNNNN.tok" for several. */
enum status shard_path(char out[FILE_PATH_MAX], const char *store, enum shard_kind kind, int64_t first, int64_t last);
int shard_token_bytes(const struct store_fingerprint *f); /* 2 or 4, by vocabulary */

struct shard_writer;
/* Begins a file. `r`: its shard numbers and first rows; its counts are not known yet. */
enum status shard_create(struct shard_writer **out, const char *store, enum shard_kind kind,
                         const struct shard_record *r, const struct store_fingerprint *f);
/* Ids are checked against the vocabulary, and row values against the range of fp16. */
enum status shard_write_ids(struct shard_writer *w, const int32_t *ids, size_t n);
enum status shard_write_rows(struct shard_writer *w, const float *rows, int64_t n);
/* Copies ids or rows of another shard unchanged. */
struct shard_map;
enum status shard_write_stored(struct shard_writer *w, const struct shard_map *from);
int64_t shard_rows(const struct shard_writer *w);
enum status shard_publish(struct shard_writer *w, struct stored_file *out);   /* w is freed, also on failure */
void shard_discard(struct shard_writer *w);               /* NULL is fine */

struct shard_map {
    struct file_map map;
    const uint8_t *rows;                 /* aligned to 64 bytes */
    int64_t first_row, count;
    int element_bytes;
};
/* Maps a recorded file. Checks size, header and footer against the record (rows: tokens or chunks). */
enum status shard_open(struct shard_map *out, const char *store, enum shard_kind kind, const struct shard_record *r,
                       const struct store_fingerprint *f);
/* Id `row` of a token shard, not checked against the vocabulary. */
static inline uint32_t shard_id(const struct shard_map *m, int64_t row) {
    const uint8_t *p = m->rows + (size_t)row * (size_t)m->element_bytes;
    return (uint32_t)(m->element_bytes == 2 ? little_endian_get(p, 2) : little_endian_get(p, 4));
}
void shard_close(struct shard_map *m);                    /* a zeroed one is fine */
/* The remedy for a damaged or missing file: lost tokens must come from the corpus, landmarks are made from the
 * tokens. */
enum { SHARD_REMEDY_MAX = 128 };
void shard_remedy(char out[SHARD_REMEDY_MAX], enum shard_kind kind, const struct shard_record *file);
/* STATUS_CORRUPT, with the remedy: the file is missing or has another size. */
enum status stored_file_check(const char *path, struct stored_file recorded, const char *remedy);
