/* list_file.c -- see list_file_internal.h. */
#include "base/crc32c.h"
#include "base/little_endian.h"
#include "base/memory.h"
#include "base/system/fault.h"
#include "store/index/list_rows_internal.h"
#include "store/index/parts/list_file_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { VERSION = 1, HEADER_BYTES = 128, FOOTER_BYTES = 16, CRC_AT = HEADER_BYTES - 4, VERIFY_BUFFER = 1 << 20 };
static const char magic[9] = "drtlists";
static const int64_t lists_max = INT64_C(1) << 40, rows_max = INT64_C(1) << 40, code_bytes_max = INT64_C(1) << 20;

/* ---- names ---- */

enum status list_file_path(char out[FILE_PATH_MAX], const char *dir, int part, int parts, int64_t run) {
    char name[96];
    snprintf(name, sizeof name, "part-%d-of-%d.%lld.lists", part, parts, (long long)run);
    return file_join(out, dir, name);
}

bool list_file_name(const char *name, int *part, int *parts, int64_t *run) {
    char again[96];
    long long number;
    if (sscanf(name, "part-%d-of-%d.%lld.lists", part, parts, &number) != 3) return false;
    *run = number;
    snprintf(again, sizeof again, "part-%d-of-%d.%lld.lists", *part, *parts, number);
    return strcmp(name, again) == 0;
}

/* ---- header and footer ---- */

static void put_header(uint8_t out[HEADER_BYTES], const struct list_file_head *h) {
    memset(out, 0, HEADER_BYTES);
    memcpy(out, magic, 8);
    little_endian_put(out + 8, VERSION, 4);
    little_endian_put(out + 12, (uint64_t)h->code_bytes, 4);
    little_endian_put(out + 16, (uint64_t)h->lists, 8);
    little_endian_put(out + 24, h->plan, 4);
    little_endian_put(out + 28, h->rows_crc, 4);
    little_endian_put(out + 32, (uint64_t)h->part, 4);
    little_endian_put(out + 36, (uint64_t)h->parts, 4);
    little_endian_put(out + 40, (uint64_t)h->first_chunk, 8);
    little_endian_put(out + 48, (uint64_t)h->rows, 8);
    little_endian_put(out + CRC_AT, crc32c(0, out, CRC_AT), 4);
}

static enum status list_file_damaged(const char *path, const char *what) {
    return fail(STATUS_CORRUPT, "%s: %s", path, what);
}

static enum status get_header(struct list_file_head *h, const uint8_t in[HEADER_BYTES], const char *path) {
    if (memcmp(in, magic, 8) != 0) return list_file_damaged(path, "is not a file of lists");
    uint64_t version = little_endian_get(in + 8, 4);
    if (little_endian_get(in + CRC_AT, 4) != crc32c(0, in, CRC_AT))
        return list_file_damaged(path, "its header is damaged");
    if (version != VERSION)
        return fail(STATUS_VERSION, "%s: has version %llu of files of lists, this program reads %d: use that program",
                    path, (unsigned long long)version, VERSION);
    *h = (struct list_file_head){.code_bytes = (int64_t)little_endian_get(in + 12, 4),
                                 .lists = (int64_t)little_endian_get(in + 16, 8),
                                 .plan = (uint32_t)little_endian_get(in + 24, 4),
                                 .rows_crc = (uint32_t)little_endian_get(in + 28, 4),
                                 .part = (int)little_endian_get(in + 32, 4),
                                 .parts = (int)little_endian_get(in + 36, 4),
                                 .first_chunk = (int64_t)little_endian_get(in + 40, 8),
                                 .rows = (int64_t)little_endian_get(in + 48, 8)};
    bool good = h->lists >= 1 && h->lists <= lists_max && h->rows >= 1 && h->rows <= rows_max && h->code_bytes >= 1 &&
                h->code_bytes <= code_bytes_max && h->part >= 1 && h->part <= h->parts && h->first_chunk >= 0 &&
                h->first_chunk <= rows_max;
    return good ? STATUS_OK : list_file_damaged(path, "its header has impossible numbers");
}

static uint64_t section_bytes(const struct list_file_head *h, enum list_section section) {
    switch (section) {
    case LIST_SIZES:
        return 8 * (uint64_t)h->lists;
    case LIST_CODES:
        return (uint64_t)h->rows * (uint64_t)h->code_bytes;
    default:
        return 8 * (uint64_t)h->rows;
    }
}

static uint64_t section_at(const struct list_file_head *h, enum list_section section) {
    uint64_t at = HEADER_BYTES;
    for (enum list_section i = LIST_SIZES; i < section; i++)
        at += section_bytes(h, i);
    return at;
}

/* ---- writing ---- */

static enum status write_part(struct file_writer *w, uint32_t *crc, const void *data, size_t bytes) {
    if (bytes == 0) return STATUS_OK; /* an empty list has no pointer */
    *crc = crc32c(*crc, data, bytes);
    return file_write(w, data, bytes);
}

static enum status write_sections(struct file_writer *w, uint32_t crc[LIST_SECTIONS], const struct list_file_head *h,
                                  const struct vectors *v) {
    for (int64_t l = 0; l < h->lists; l++) {
        uint8_t size[8];
        little_endian_put(size, (uint64_t)vectors_list_of(v, l).n, 8);
        TRY(write_part(w, &crc[LIST_SIZES], size, sizeof size));
    }
    for (int64_t l = 0; l < h->lists; l++) {
        const struct vectors_list list = vectors_list_of(v, l);
        TRY(write_part(w, &crc[LIST_CODES], list.codes, (size_t)(list.n * h->code_bytes)));
    }
    for (int64_t l = 0; l < h->lists; l++) {
        const struct vectors_list list = vectors_list_of(v, l);
        TRY(write_part(w, &crc[LIST_IDS], list.ids, (size_t)list.n * sizeof *list.ids));
    }
    return STATUS_OK;
}

static enum status write_rows(struct file_writer *w, uint32_t crc[LIST_SECTIONS], const struct list_file_head *h,
                              const struct list_rows *r, struct threads *pool) {
    for (int64_t l = 0; l < h->lists; l++) {
        uint8_t size[8];
        little_endian_put(size, (uint64_t)(r->begin[l + 1] - r->begin[l]), 8);
        TRY(write_part(w, &crc[LIST_SIZES], size, sizeof size));
    }
    TRY(list_rows_write_codes(r, w, pool, &crc[LIST_CODES]));
    return list_rows_write_ids(r, w, pool, &crc[LIST_IDS]);
}

/* Of `v` or of `rows`. */
static enum status write_file(const char *path, const struct list_file_head *head, const struct vectors *v,
                              const struct list_rows *rows, struct threads *pool) {
    uint8_t header[HEADER_BYTES], footer[FOOTER_BYTES];
    uint32_t crc[LIST_SECTIONS] = {0};
    struct file_writer *w;
    put_header(header, head);
    TRY(file_create(&w, path));
    enum status s = file_write(w, header, sizeof header);
    if (s == STATUS_OK) s = rows ? write_rows(w, crc, head, rows, pool) : write_sections(w, crc, head, v);
    for (int i = 0; i < LIST_SECTIONS; i++)
        little_endian_put(footer + 4 * i, crc[i], 4);
    little_endian_put(footer + 12, crc32c(0, footer, 12), 4);
    if (s == STATUS_OK) s = file_write(w, footer, sizeof footer);
    if (s == STATUS_OK) s = fault_point("store:parts:lists-written");
    if (s == STATUS_OK) return file_publish(w);
    file_discard(w);
    return s;
}

enum status list_file_write(const char *path, const struct list_file_head *head, const struct vectors *v) {
    return write_file(path, head, v, NULL, NULL);
}

enum status list_file_write_rows(const char *path, const struct list_file_head *head, const struct list_rows *rows,
                                 struct threads *pool) {
    return write_file(path, head, NULL, rows, pool);
}

/* ---- reading ---- */

/* Reads exactly `bytes` bytes at offset `at`. */
static enum status read_at(const char *path, void *out, size_t bytes, uint64_t at) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail_errno("%s", path);
    enum status s = STATUS_OK;
    for (size_t done = 0; done < bytes && s == STATUS_OK;) {
        ssize_t n = pread(fd, (uint8_t *)out + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) s = fail_errno("%s: cannot read", path);
        if (n == 0) s = list_file_damaged(path, "is shorter than its header states");
        if (n > 0) done += (size_t)n;
    }
    close(fd);
    return s;
}

enum status list_file_open(struct list_file *out, const char *path) {
    uint8_t header[HEADER_BYTES], footer[FOOTER_BYTES];
    uint64_t size;
    TRY(file_size(&size, path));
    if (size < HEADER_BYTES + FOOTER_BYTES) return list_file_damaged(path, "is cut short");
    TRY(read_at(path, header, sizeof header, 0));
    TRY(get_header(&out->head, header, path));
    if (size != section_at(&out->head, LIST_SECTIONS) + FOOTER_BYTES)
        return list_file_damaged(path, "has another size than its header states");
    TRY(read_at(path, footer, sizeof footer, size - FOOTER_BYTES));
    if (little_endian_get(footer + 12, 4) != crc32c(0, footer, 12))
        return list_file_damaged(path, "its footer is damaged");
    for (int i = 0; i < LIST_SECTIONS; i++)
        out->crc[i] = (uint32_t)little_endian_get(footer + 4 * i, 4);
    return STATUS_OK;
}

void list_stream_begin(struct list_stream *s, const struct list_file *f, enum list_section section, uint8_t *buffer,
                       size_t capacity) {
    const uint64_t at = section_at(&f->head, section);
    *s = (struct list_stream){
        .at = at, .end = at + section_bytes(&f->head, section), .buffer = buffer, .capacity = capacity};
}

enum status list_stream_read(struct list_stream *s, const uint8_t **bytes, size_t *n, size_t wanted, const char *path) {
    if (s->used == s->filled) {
        size_t some = s->end - s->at < s->capacity ? (size_t)(s->end - s->at) : s->capacity;
        if (some == 0) return list_file_damaged(path, "its lists are longer than they should be together");
        TRY(read_at(path, s->buffer, some, s->at));
        s->crc = crc32c(s->crc, s->buffer, some);
        s->at += some;
        s->filled = some;
        s->used = 0;
    }
    *n = s->filled - s->used < wanted ? s->filled - s->used : wanted;
    *bytes = s->buffer + s->used;
    s->used += *n;
    return STATUS_OK;
}

enum status list_stream_take(struct list_stream *s, uint8_t *out, uint64_t bytes, const char *path) {
    while (bytes > 0) {
        size_t some = s->filled - s->used;
        if (some > bytes) some = (size_t)bytes;
        if (some > 0) {
            memcpy(out, s->buffer + s->used, some);
            s->used += some;
        } else {
            some = bytes < VERIFY_BUFFER ? (size_t)bytes : VERIFY_BUFFER; /* its checksum is computed in the cache */
            if (some > s->end - s->at)
                return list_file_damaged(path, "its lists are longer than they should be together");
            TRY(read_at(path, out, some, s->at));
            s->crc = crc32c(s->crc, out, some);
            s->at += some;
        }
        out += some;
        bytes -= some;
    }
    return STATUS_OK;
}

enum status list_stream_end(const struct list_stream *s, const struct list_file *f, enum list_section section,
                            const char *path) {
    static const char *const names[LIST_SECTIONS] = {"sizes", "codes", "ids"};
    if (s->used != s->filled || s->at != s->end) return list_file_damaged(path, "its lists are shorter than the rest");
    if (s->crc == f->crc[section]) return STATUS_OK;
    return fail(STATUS_CORRUPT, "%s: its %s changed: CRC32C %08x, recorded %08x", path, names[section], s->crc,
                f->crc[section]);
}

enum status list_file_verify(const struct list_file *f, const char *path) {
    uint8_t *buffer;
    TRY(memory_allocate(&buffer, VERIFY_BUFFER));
    enum status s = STATUS_OK;
    for (enum list_section i = LIST_SIZES; i < LIST_SECTIONS && s == STATUS_OK; i++) {
        struct list_stream stream;
        list_stream_begin(&stream, f, i, buffer, VERIFY_BUFFER);
        while (s == STATUS_OK && (stream.at < stream.end || stream.used < stream.filled)) {
            const uint8_t *ignored;
            size_t n;
            s = list_stream_read(&stream, &ignored, &n, VERIFY_BUFFER, path);
        }
        if (s == STATUS_OK) s = list_stream_end(&stream, f, i, path);
    }
    memory_free(buffer);
    return s;
}
