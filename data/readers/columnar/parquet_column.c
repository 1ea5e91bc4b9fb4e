/* parquet_column.c -- reads the pages of one column of a row group: header, checksum, decompression, definition
 * levels. */
#include "base/little_endian.h"
#include "base/memory.h"
#include "data/readers/columnar/parquet_internal.h"
#include "data/readers/columnar/thrift.h"
#include <string.h>
#include <zlib.h>

enum { HEADER_FIRST = 512, HEADER_MAX = 16 << 20 };
enum { PAGE_DATA = 0, PAGE_INDEX = 1, PAGE_DICTIONARY = 2, PAGE_DATA_V2 = 3 };

static enum status page_fail(const struct parquet_column *c, const char *what) {
    return fail(STATUS_INVALID,
                "%s: row group %llu, column \"%s\", page at byte %llu: %s: write or fetch the file again",
                c->file->path, (unsigned long long)c->group, c->name, (unsigned long long)c->page_at, what);
}

void parquet_column_begin(struct parquet_column *c, const struct parquet_footer *f, size_t group, int column) {
    const struct parquet_chunk *chunk = &f->groups[group].chunks[column];
    c->group = group;
    c->type = f->leaves[column].type;
    c->levels = f->leaves[column].levels;
    c->codec = chunk->codec;
    c->at = chunk->at;
    c->end = chunk->end;
    c->rows_left = f->groups[group].rows;
    c->in_page = 0;
    c->has_dictionary = false;
}

void parquet_column_free(struct parquet_column *c) {
    struct reader_buffer *buffers[] = {&c->raw, &c->plain, &c->dictionary, &c->whole};
    for (size_t i = 0; i < ARRAY_LEN(buffers); i++)
        memory_free(buffers[i]->data);
    memory_free(c->entries);
    *c = (struct parquet_column){0};
}

/* ---- headers ---------------------------------------------------------------------------------------------------- */

/* Reads a DataPageHeader, DictionaryPageHeader or DataPageHeaderV2, whose fields differ. */
static void read_page_body(struct thrift *t, struct thrift_field in, struct parquet_page *p) {
    struct thrift_field f = {0};
    bool v2 = in.id == 8;
    p->has_body = thrift_struct(t, in);
    p->compressed = true;
    p->level_encoding = PARQUET_RLE;
    while (!t->bad && thrift_next(t, &f)) {
        int64_t *to = f.id == 1              ? &p->values
                      : f.id == (v2 ? 4 : 2) ? &p->encoding
                      : f.id == 3            ? (v2 ? &p->rows : &p->level_encoding)
                      : v2 && f.id == 5      ? &p->level_bytes
                      : v2 && f.id == 6      ? &p->repetition_bytes
                                             : NULL;
        if (in.id == 7 && f.id == 3) to = NULL; /* this member: whether the dictionary is sorted */
        if (to)
            *to = thrift_int(t, f);
        else if (v2 && f.id == 7)
            p->compressed = thrift_bool(t, f);
        else
            thrift_skip(t, f.type);
    }
}

static void read_page(struct thrift *t, struct parquet_page *p) {
    struct thrift_field f = {0};
    *p = (struct parquet_page){.type = -1, .plain_bytes = -1, .bytes = -1, .encoding = -1};
    while (thrift_next(t, &f)) {
        int body = p->type == PAGE_DATA ? 5 : p->type == PAGE_DICTIONARY ? 7 : p->type == PAGE_DATA_V2 ? 8 : -1;
        if (f.id == 1) {
            p->type = thrift_int(t, f);
        } else if (f.id == 2) {
            p->plain_bytes = thrift_int(t, f);
        } else if (f.id == 3) {
            p->bytes = thrift_int(t, f);
        } else if (f.id == 4) {
            p->crc = thrift_int(t, f);
            p->has_crc = true;
        } else if (f.id == body) {
            read_page_body(t, f, p);
        } else {
            thrift_skip(t, f.type);
        }
    }
}

/* Reads the header at c->at, whose length is unknown: statistics may make it long. Afterwards c->at is the start of its
 * data. */
static enum status next_header(struct parquet_column *c, struct parquet_page *p) {
    c->page_at = c->at;
    for (uint64_t most = HEADER_FIRST;; most *= 8) {
        uint64_t left = c->end - c->at;
        size_t bytes = (size_t)(left < most ? left : most);
        if (bytes == 0) return page_fail(c, "the column ends before its last row");
        TRY(memory_grow(&c->raw.data, &c->raw.capacity, bytes));
        TRY(columnar_file_read(c->file, c->raw.data, c->at, bytes));
        struct thrift t = {(uint8_t *)c->raw.data, (uint8_t *)c->raw.data + bytes, false};
        read_page(&t, p);
        if (!t.bad) {
            c->at += (uint64_t)(t.at - (uint8_t *)c->raw.data);
            break;
        }
        if (bytes == left || most >= HEADER_MAX) return page_fail(c, "its header is damaged");
    }
    if (p->bytes < 0 || p->plain_bytes < 0 || (uint64_t)p->bytes > c->end - c->at)
        return page_fail(c, "its length leads out of the column");
    if ((uint64_t)p->bytes > c->block_max || (uint64_t)p->plain_bytes > c->block_max)
        return fail(STATUS_UNSUPPORTED,
                    "%s: row group %llu, column \"%s\", page at byte %llu: it takes %lld bytes, more than the limit of "
                    "%llu: allow drt-index more memory (--max-ram), or write smaller pages",
                    c->file->path, (unsigned long long)c->group, c->name, (unsigned long long)c->page_at,
                    (long long)(p->bytes > p->plain_bytes ? p->bytes : p->plain_bytes),
                    (unsigned long long)c->block_max);
    bool known = p->type == PAGE_DATA || p->type == PAGE_DICTIONARY || p->type == PAGE_DATA_V2;
    if (known && (!p->has_body || p->values < 0 || p->values > UINT32_MAX))
        return page_fail(c, "its header is incomplete");
    return STATUS_OK;
}

/* ---- data ------------------------------------------------------------------------------------------------------- */

/* Reads the page's bytes into `to`. The first `apart` bytes are not compressed. */
static enum status page_data(struct parquet_column *c, const struct parquet_page *p, size_t apart,
                             struct reader_buffer *to) {
    size_t bytes = (size_t)p->bytes, plain = (size_t)p->plain_bytes;
    TRY(memory_grow(&c->raw.data, &c->raw.capacity, bytes + 1));
    TRY(columnar_file_read(c->file, c->raw.data, c->at, bytes));
    c->at += bytes;
    const uint8_t *raw = (const uint8_t *)c->raw.data;
    if (p->has_crc && (uint32_t)p->crc != (uint32_t)crc32(0, raw, (uInt)bytes))
        return page_fail(c, "its checksum is wrong");
    TRY(memory_grow(&to->data, &to->capacity, plain + 1));
    uint8_t *data = (uint8_t *)to->data;
    to->size = plain;
    if (apart > bytes || apart > plain) return page_fail(c, "its levels are longer than it");
    memcpy(data, raw, apart);
    if (c->codec == CODEC_NONE || !p->compressed) {
        if (bytes != plain) return page_fail(c, "its two lengths differ, but it is not compressed");
        memcpy(data + apart, raw + apart, bytes - apart);
    } else if (plain > apart || bytes > apart) {
        if (!codec_decompress(c->codec, data + apart, plain - apart, raw + apart, bytes - apart))
            return fail(STATUS_INVALID,
                        "%s: row group %llu, column \"%s\", page at byte %llu: its %s data is damaged: write or fetch "
                        "the file again",
                        c->file->path, (unsigned long long)c->group, c->name, (unsigned long long)c->page_at,
                        codec_name(c->codec));
    }
    return STATUS_OK;
}

static enum status read_dictionary(struct parquet_column *c, const struct parquet_page *p) {
    bool good;
    if (c->has_dictionary) return page_fail(c, "a second dictionary");
    if (p->encoding != PARQUET_PLAIN && p->encoding != PARQUET_PLAIN_DICTIONARY)
        return page_fail(c, "a dictionary of an unknown encoding");
    TRY(page_data(c, p, 0, &c->dictionary));
    TRY(parquet_dictionary_begin(c, (uint64_t)p->values, &good));
    if (!good) return page_fail(c, "its dictionary is damaged");
    c->has_dictionary = true;
    return STATUS_OK;
}

/* Opens a page's definition levels and values. Each value is a row. */
static enum status read_data(struct parquet_column *c, const struct parquet_page *p) {
    bool v2 = p->type == PAGE_DATA_V2;
    size_t apart = 0, levels = 0;
    int width = 0;
    while (c->levels >> width)
        width++;
    if ((uint64_t)p->values > c->rows_left || (v2 && p->rows != p->values))
        return page_fail(c, "it holds more values than the row group has rows");
    if (!parquet_encoding_known(c, p->encoding))
        return fail(
            STATUS_UNSUPPORTED,
            "%s: row group %llu, column \"%s\", page at byte %llu: encoding %lld is not supported for this type: "
            "write the column again as PLAIN",
            c->file->path, (unsigned long long)c->group, c->name, (unsigned long long)c->page_at,
            (long long)p->encoding);
    if (v2) {
        if (p->level_bytes < 0 || p->level_bytes > p->bytes || p->repetition_bytes != 0)
            return page_fail(c, "its levels are longer than it");
        apart = levels = (size_t)p->level_bytes;
    }
    TRY(page_data(c, p, apart, &c->plain));
    const uint8_t *at = (const uint8_t *)c->plain.data, *end = at + c->plain.size;
    if (!v2 && width > 0) {
        if (p->level_encoding != PARQUET_RLE) return page_fail(c, "its levels have an encoding that is not supported");
        if (end - at < 4) return page_fail(c, "it ends within its levels");
        levels = (size_t)little_endian_get(at, 4);
        at += 4;
        if (levels > (size_t)(end - at)) return page_fail(c, "it ends within its levels");
    }
    c->defined = parquet_runs_begin(at, at + levels, width);
    c->value = at + levels;
    c->value_end = end;
    c->encoding = p->encoding;
    if (!parquet_values_begin(c, (uint64_t)p->values)) return page_fail(c, "its values are damaged");
    c->in_page = (uint64_t)p->values;
    return STATUS_OK;
}

static enum status next_page(struct parquet_column *c) {
    struct parquet_page p;
    TRY(next_header(c, &p));
    if (p.type == PAGE_DICTIONARY) return read_dictionary(c, &p);
    if (p.type == PAGE_DATA || p.type == PAGE_DATA_V2) return read_data(c, &p);
    c->at += (uint64_t)p.bytes; /* the page is an index, or of a newer kind without rows */
    return STATUS_OK;
}

enum status parquet_column_next(struct parquet_column *c, struct columnar_value *value) {
    uint32_t level = 0;
    while (c->in_page == 0)
        TRY(next_page(c));
    *value = (struct columnar_value){0};
    c->in_page--;
    c->rows_left--;
    if (c->defined.width > 0 && (!parquet_runs_next(&c->defined, &level) || level > (uint32_t)c->levels))
        return page_fail(c, "its levels are damaged");
    value->null = c->defined.width > 0 && level < (uint32_t)c->levels;
    if (!value->null && !parquet_values_next(c, value)) return page_fail(c, "its values are damaged");
    return STATUS_OK;
}
