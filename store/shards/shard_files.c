/* shard_files.c -- see shard_files_internal.h. */
#include "base/crc32c.h"
#include "base/half.h"
#include "base/little_endian.h"
#include "base/memory.h"
#include "store/shards/row_codes_internal.h"
#include "store/shards/shard_files_internal.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FILE_VERSION = 1, BLOCK_BYTES = 16384, ALIGN = 64 };
/* the number of element bytes tells the types apart */
static const char header_magic[][8] = {"DRTTOKEN", "DRTLANDM", "DRTLANDM"};
static const char footer_magic[8] = "DRTSHEND";

struct shard_writer {
    struct file_writer *file;
    enum shard_kind kind;
    int64_t rows;
    int dim, vocab_size, element_bytes;
    uint32_t header_crc;
    char path[FILE_PATH_MAX];
    uint8_t block[BLOCK_BYTES];
    struct held held; /* bytes that follow those in `file` */
    /* of 8-bit landmarks: the codes of one row, and the scales of all rows, which are written after all codes */
    int8_t *codes;
    float *scales;
    size_t n_scales, scales_capacity;
};

int shard_token_bytes(const struct store_fingerprint *f) {
    return f->vocab_size <= 65536 ? 2 : 4;
}

enum status shard_path(char out[FILE_PATH_MAX], const char *store, enum shard_kind kind, int64_t first, int64_t last) {
    static const char *const folders[] = {"tokens", "landmarks", "landmarks"}, *const suffixes[] = {"tok", "f16", "i8"};
    char name[96];
    if (first == last)
        snprintf(name, sizeof name, "%s/%05lld.%s", folders[kind], (long long)first, suffixes[kind]);
    else
        snprintf(name, sizeof name, "%s/%05lld-%05lld.%s", folders[kind], (long long)first, (long long)last,
                 suffixes[kind]);
    return file_join(out, store, name);
}

static int element_bytes(enum shard_kind kind, const struct store_fingerprint *f) {
    return kind == SHARD_TOKENS ? shard_token_bytes(f) : kind == SHARD_LANDMARKS_F16 ? 2 : 1;
}

/* Returns the number of zeros between this many bytes of codes and the scales. */
static size_t shard_files_padding(uint64_t bytes) {
    return (size_t)(-bytes % ALIGN);
}

/* Bytes between the header and the footer. */
static uint64_t body_bytes(enum shard_kind kind, int64_t rows, int dim, int element) {
    uint64_t bytes = (uint64_t)rows * (uint64_t)dim * (uint64_t)element;
    return kind == SHARD_LANDMARKS_I8 ? bytes + shard_files_padding(bytes) + (uint64_t)rows * sizeof(float) : bytes;
}

static void make_header(uint8_t out[SHARD_HEADER_BYTES], enum shard_kind kind, int element_bytes, int row_elements,
                        int64_t number, int64_t first_row) {
    memset(out, 0, SHARD_HEADER_BYTES);
    memcpy(out, header_magic[kind], 8);
    little_endian_put(out + 8, FILE_VERSION, 4);
    little_endian_put(out + 12, (uint64_t)element_bytes, 4);
    little_endian_put(out + 16, (uint64_t)row_elements, 8);
    little_endian_put(out + 24, (uint64_t)number, 8);
    little_endian_put(out + 32, (uint64_t)first_row, 8);
}

static int64_t shard_first_row(enum shard_kind kind, const struct shard_record *r) {
    return kind == SHARD_TOKENS ? r->first_token : r->first_chunk;
}

/* Returns the number in the header, which is that of the store that made the file. */
static int64_t header_number(const struct shard_record *r) {
    return r->foreign ? r->file_number : r->number;
}
static int64_t header_first_row(enum shard_kind kind, const struct shard_record *r) {
    if (!r->foreign) return shard_first_row(kind, r);
    return kind == SHARD_TOKENS ? r->file_token : r->file_chunk;
}

static void make_footer(uint8_t out[SHARD_FOOTER_BYTES], uint32_t header_crc, int64_t rows) {
    memset(out, 0, SHARD_FOOTER_BYTES);
    memcpy(out, footer_magic, 8);
    little_endian_put(out + 8, (uint64_t)rows, 8);
    little_endian_put(out + 16, crc32c(header_crc, out, 16), 4);
}

enum status shard_create(struct shard_writer **out, const char *store, enum shard_kind kind,
                         const struct shard_record *r, const struct store_fingerprint *f) {
    struct shard_writer *w;
    TRY(memory_allocate_zero(&w, 1));
    w->kind = kind;
    w->dim = kind == SHARD_TOKENS ? 1 : f->dim;
    w->vocab_size = f->vocab_size;
    w->element_bytes = element_bytes(kind, f);
    uint8_t header[SHARD_HEADER_BYTES];
    make_header(header, kind, w->element_bytes, w->dim, header_number(r), header_first_row(kind, r));
    w->header_crc = crc32c(0, header, sizeof header);
    enum status s = STATUS_OK;
    if (kind == SHARD_LANDMARKS_I8) TRY_GOTO(s, memory_allocate(&w->codes, (size_t)w->dim), out);
    TRY_GOTO(s, shard_path(w->path, store, kind, r->first_file_shard, r->last_file_shard), out);
    TRY_GOTO(s, file_create(&w->file, w->path), out);
    TRY_GOTO(s, file_write(w->file, header, sizeof header), out);
    *out = w;
out:
    if (s != STATUS_OK) shard_discard(w);
    return s;
}

void shard_hold(struct shard_writer *w, struct held_pool *pool) {
    enum { TOKENS_SHARE = 4 }; /* landmarks, which come later and are more, always find the rest */
    w->held.pool = pool;
    w->held.share = w->kind == SHARD_TOKENS ? TOKENS_SHARE : 0;
}

/* Where up to `bytes` next bytes of the file are made. Returns their number, which is even if `bytes` is; shard_add
 * follows. */
static size_t shard_space(struct shard_writer *w, size_t bytes, uint8_t **at) {
    size_t n = held_space(&w->held, at);
    if (n == 0) {
        n = sizeof w->block;
        *at = w->block;
    }
    return n < bytes ? n : bytes;
}

/* If no block is free, all that is held is written here, too. */
static enum status shard_add(struct shard_writer *w, const uint8_t *at, size_t bytes) {
    if (at != w->block) {
        w->held.used += bytes;
        return STATUS_OK;
    }
    TRY(held_write(&w->held, w->file));
    return file_write(w->file, at, bytes);
}

/* A function of its own, so that compilers use vector instructions for the loop. */
static void put_short_ids(uint8_t *out, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = (uint8_t)ids[i];
        out[2 * i + 1] = (uint8_t)(ids[i] >> 8);
    }
}

enum status shard_check_ids(const struct shard_writer *w, const int32_t *ids, size_t n) {
    uint32_t largest = 0; /* as an unsigned number, a negative id is larger than all others */
    for (size_t i = 0; i < n; i++)
        largest = (uint32_t)ids[i] > largest ? (uint32_t)ids[i] : largest;
    for (size_t i = 0; i < n && largest >= (uint32_t)w->vocab_size; i++)
        if (ids[i] < 0 || ids[i] >= w->vocab_size)
            return fail(STATUS_INVALID, "%s: token id %d is outside the vocabulary of %d", w->path, ids[i],
                        w->vocab_size);
    return STATUS_OK;
}

enum status shard_write_ids(struct shard_writer *w, const int32_t *ids, size_t n) {
    const size_t bytes = (size_t)w->element_bytes;
    for (size_t done = 0; done < n;) {
        uint8_t *at;
        const size_t m = shard_space(w, (n - done) * bytes, &at) / bytes;
        if (bytes == 2)
            put_short_ids(at, ids + done, m);
        else
            for (size_t i = 0; i < m; i++)
                little_endian_put(at + i * 4, (uint64_t)ids[done + i], 4);
        TRY(shard_add(w, at, m * bytes));
        done += m;
    }
    w->rows += (int64_t)n;
    return STATUS_OK;
}

static enum status refuse_value(const struct shard_writer *w, int64_t row, float value) {
    return fail(STATUS_INVALID, "%s: row %lld: value %g does not fit fp16, the model's landmark is broken", w->path,
                (long long)row, (double)value);
}

static enum status check_row(const struct shard_writer *w, const float *row, int64_t number) {
    int bad = 0;
    for (int i = 0; i < w->dim; i++)
        bad |= !(fabsf(row[i]) < 65520.0f);
    for (int i = 0; i < w->dim && bad; i++)
        if (!(fabsf(row[i]) < 65520.0f)) return refuse_value(w, number, row[i]);
    return STATUS_OK;
}

static bool is_broken(uint16_t half) { /* infinite, or no number */
    return (half & 0x7C00) == 0x7C00;
}

/* The values are `first` and later ones of the next rows. */
static enum status check_halves(const struct shard_writer *w, const uint16_t *halves, size_t first, size_t n) {
    uint16_t bad = 0;
    for (size_t i = 0; i < n; i++)
        bad |= (uint16_t)-is_broken(halves[i]);
    for (size_t i = 0; i < n && bad; i++)
        if (is_broken(halves[i]))
            return refuse_value(w, w->rows + (int64_t)((first + i) / (size_t)w->dim), half_from_f16(halves[i]));
    return STATUS_OK;
}

enum status shard_write_halves(struct shard_writer *w, const uint16_t *rows, int64_t n) {
    const size_t all = (size_t)n * (size_t)w->dim;
    for (size_t done = 0; done < all;) {
        uint8_t *at;
        const size_t bytes = shard_space(w, (all - done) * sizeof *rows, &at), m = bytes / sizeof *rows;
        memcpy(at, rows + done, bytes);
        TRY(check_halves(w, rows + done, done, m));
        TRY(shard_add(w, at, bytes));
        done += m;
    }
    w->rows += n;
    return STATUS_OK;
}

bool shard_is_f16(const struct shard_writer *w) {
    return w && w->kind == SHARD_LANDMARKS_F16;
}

static enum status write_half(struct shard_writer *w, const float *row) {
    for (size_t done = 0, n = (size_t)w->dim; done < n;) {
        uint8_t *at;
        const size_t m = shard_space(w, (n - done) * sizeof(uint16_t), &at) / sizeof(uint16_t);
        half_to_f16_row((uint16_t *)(void *)at, row + done, m);
        TRY(shard_add(w, at, m * sizeof(uint16_t)));
        done += m;
    }
    return STATUS_OK;
}

static enum status write_codes(struct shard_writer *w, const float *row) {
    TRY(memory_grow(&w->scales, &w->scales_capacity, w->n_scales + 1));
    row_codes_make(w->codes, &w->scales[w->n_scales++], row, w->dim);
    for (size_t done = 0, n = (size_t)w->dim; done < n;) {
        uint8_t *at;
        const size_t m = shard_space(w, n - done, &at);
        memcpy(at, w->codes + done, m);
        TRY(shard_add(w, at, m));
        done += m;
    }
    return STATUS_OK;
}

enum status shard_write_rows(struct shard_writer *w, const float *rows, int64_t n) {
    for (int64_t r = 0; r < n; r++) {
        const float *row = rows + (size_t)r * (size_t)w->dim;
        TRY(check_row(w, row, w->rows + r));
        TRY(w->kind == SHARD_LANDMARKS_I8 ? write_codes(w, row) : write_half(w, row));
    }
    w->rows += n;
    return STATUS_OK;
}

enum status shard_write_stored(struct shard_writer *w, const struct shard_map *from) {
    size_t count = (size_t)from->count;
    if (from->scales) {
        TRY(memory_grow(&w->scales, &w->scales_capacity, w->n_scales + count));
        memcpy(w->scales + w->n_scales, from->scales, count * sizeof *w->scales);
        w->n_scales += count;
    }
    TRY(file_write(w->file, from->rows, count * (size_t)w->dim * (size_t)w->element_bytes));
    w->rows += from->count;
    return STATUS_OK;
}

static enum status write_scales(struct shard_writer *w) {
    static const uint8_t zeros[ALIGN];
    if (w->n_scales == 0) return STATUS_OK;
    TRY(file_write(w->file, zeros, shard_files_padding((uint64_t)w->rows * (uint64_t)w->dim)));
    return file_write(w->file, w->scales, w->n_scales * sizeof *w->scales);
}

static void free_writer(struct shard_writer *w) {
    held_free(&w->held);
    memory_free(w->codes);
    memory_free(w->scales);
    memory_free(w);
}

int64_t shard_rows(const struct shard_writer *w) {
    return w->rows;
}

enum status shard_publish(struct shard_writer *w, struct stored_file *out) {
    uint8_t footer[SHARD_FOOTER_BYTES];
    make_footer(footer, w->header_crc, w->rows);
    enum status s = held_write(&w->held, w->file);
    if (s == STATUS_OK) s = write_scales(w);
    if (s == STATUS_OK) s = file_write(w->file, footer, sizeof footer);
    if (s != STATUS_OK) {
        shard_discard(w);
        return s;
    }
    *out = (struct stored_file){file_written(w->file), file_crc32c(w->file)};
    s = file_publish(w->file);
    free_writer(w);
    return s;
}

void shard_discard(struct shard_writer *w) {
    if (!w) return;
    file_discard(w->file);
    free_writer(w);
}

void shard_remedy(char out[SHARD_REMEDY_MAX], enum shard_kind kind, const struct shard_record *file) {
    long long first = file->first_file_shard, last = file->last_file_shard;
    if (kind == SHARD_TOKENS && first == last)
        snprintf(out, SHARD_REMEDY_MAX, "run drt-index drop --shard %lld, then add its documents again", first);
    else if (kind == SHARD_TOKENS)
        snprintf(out, SHARD_REMEDY_MAX, "run drt-index drop --shard %lld-%lld, then add their documents again", first,
                 last);
    else
        snprintf(out, SHARD_REMEDY_MAX, "run drt-index repair --model with the model that made the store");
}

enum status stored_file_check(const char *path, struct stored_file recorded, const char *remedy) {
    uint64_t size = 0;
    enum status s = file_size(&size, path);
    if (s == STATUS_NOT_FOUND) return fail(STATUS_CORRUPT, "%s: the file is missing, %s", path, remedy);
    TRY(s);
    if (size != recorded.bytes)
        return fail(STATUS_CORRUPT, "%s: %llu bytes, but %llu are recorded, %s", path, (unsigned long long)size,
                    (unsigned long long)recorded.bytes, remedy);
    return STATUS_OK;
}

static enum status check_map(const struct shard_map *m, const char *path, enum shard_kind kind,
                             const struct shard_record *r, const struct store_fingerprint *f) {
    int64_t rows = kind == SHARD_TOKENS ? r->tokens : r->chunks;
    int dim = kind == SHARD_TOKENS ? 1 : f->dim;
    uint8_t header[SHARD_HEADER_BYTES], footer[SHARD_FOOTER_BYTES];
    make_header(header, kind, m->element_bytes, dim, header_number(r), header_first_row(kind, r));
    make_footer(footer, crc32c(0, header, sizeof header), rows);
    char remedy[SHARD_REMEDY_MAX];
    shard_remedy(remedy, kind, r);
    uint64_t body = m->map.size - SHARD_HEADER_BYTES - SHARD_FOOTER_BYTES;
    if (m->map.size < SHARD_HEADER_BYTES + SHARD_FOOTER_BYTES || (dim > 0 && (uint64_t)rows > body) ||
        body != body_bytes(kind, rows, dim, m->element_bytes))
        return fail(STATUS_CORRUPT, "%s: its size does not fit its record, %s", path, remedy);
    if (memcmp(m->map.data, header, sizeof header) != 0)
        return fail(STATUS_CORRUPT, "%s: header is damaged, or of another shard, %s", path, remedy);
    if (memcmp(m->map.data + m->map.size - sizeof footer, footer, sizeof footer) != 0)
        return fail(STATUS_CORRUPT, "%s: footer is damaged, %s", path, remedy);
    return STATUS_OK;
}

enum status shard_open(struct shard_map *out, const char *store, enum shard_kind kind, const struct shard_record *r,
                       const struct store_fingerprint *f) {
    struct stored_file recorded = kind == SHARD_TOKENS ? r->token_file : r->landmark_file;
    char path[FILE_PATH_MAX], remedy[SHARD_REMEDY_MAX];
    shard_remedy(remedy, kind, r);
    TRY(shard_path(path, store, kind, r->first_file_shard, r->last_file_shard));
    TRY(stored_file_check(path, recorded, remedy));
    struct shard_map m = {.element_bytes = element_bytes(kind, f)};
    TRY(file_map(&m.map, path));
    enum status s = m.map.size == recorded.bytes
                        ? check_map(&m, path, kind, r, f)
                        : fail(STATUS_CORRUPT, "%s: changed its size while it was opened, %s", path, remedy);
    if (s != STATUS_OK) {
        file_unmap(&m.map);
        return s;
    }
    m.rows = m.map.data + SHARD_HEADER_BYTES;
    m.first_row = shard_first_row(kind, r);
    m.count = kind == SHARD_TOKENS ? r->tokens : r->chunks;
    if (kind == SHARD_LANDMARKS_I8) {
        const uint64_t bytes = (uint64_t)m.count * (uint64_t)f->dim;
        m.scales = (const float *)(const void *)(m.rows + bytes + shard_files_padding(bytes));
    }
    *out = m;
    return STATUS_OK;
}

struct store_rows shard_map_rows(const struct shard_map *m, int64_t first, int dim) {
    const size_t at = (size_t)first * (size_t)dim;
    struct store_rows rows = {.n = m->count - first, .dim = dim};
    if (m->scales) {
        rows.codes = (const int8_t *)m->rows + at;
        rows.scales = m->scales + first;
    } else
        rows.half = (const uint16_t *)(const void *)m->rows + at;
    return rows;
}

void shard_close(struct shard_map *m) {
    file_unmap(&m->map);
    *m = (struct shard_map){0};
}
