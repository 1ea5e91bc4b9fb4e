/* record_lexical.c -- see record_lexical_internal.h. */
#include "base/crc32c.h"
#include "base/little_endian.h"
#include "base/memory.h"
#include "store/catalog/record_lexical_internal.h"
#include "store/lexical/lexical.h"
#include <stdio.h>
#include <string.h>

enum { HEAD_BYTES = 17, SEGMENT_BYTES = 36, CRC_BYTES = 4 };
static const char key[] = "lexical";

static enum status record_lexical_damaged(const struct catalog *c) {
    return fail(STATUS_CORRUPT, "%s: record of the lexical index is damaged, run drt-index repair", catalog_path(c));
}

/* Ranges ascend, and numbers of files are unique. Sums of counts that pass this check cannot overflow. */
static bool segment_follows(const struct lexical_record *r, int64_t i) {
    static const int64_t most = INT64_MAX / 1024;
    const struct lexical_segment_record *s = &r->list[i];
    int64_t end = i ? s[-1].first_chunk + s[-1].chunks : 0;
    return s->number >= 1 && s->number < r->next_number && s->first_chunk >= end && s->first_chunk <= most &&
           s->chunks >= 1 && s->chunks <= LEXICAL_CHUNKS_MAX;
}

static bool record_lexical_decode(struct lexical_record *out, const uint8_t *at) {
    out->wanted = at[0] != 0;
    out->next_number = (int64_t)little_endian_get(at + 1, 8);
    at += HEAD_BYTES;
    if (at[-HEAD_BYTES] > 1 || out->next_number < 1 || out->next_number > INT64_MAX / 1024) return false;
    for (int64_t i = 0; i < out->n; i++, at += SEGMENT_BYTES) {
        out->list[i] = (struct lexical_segment_record){
            .number = (int64_t)little_endian_get(at, 8),
            .first_chunk = (int64_t)little_endian_get(at + 8, 8),
            .chunks = (int64_t)little_endian_get(at + 16, 8),
            .file = {little_endian_get(at + 24, 8), (uint32_t)little_endian_get(at + 32, 4)}};
        if (!segment_follows(out, i)) return false;
    }
    return out->wanted || out->n == 0;
}

enum status record_get_lexical(struct catalog_txn *t, const struct catalog *c, struct lexical_record *out) {
    struct bytes value;
    *out = (struct lexical_record){.next_number = 1};
    enum status s = catalog_get(t, &value, TABLE_META, key, sizeof key - 1);
    if (s == STATUS_NOT_FOUND) return STATUS_OK;
    TRY(s);
    if (value.size < HEAD_BYTES + CRC_BYTES) return record_lexical_damaged(c);
    size_t body = value.size - CRC_BYTES;
    uint64_t n = little_endian_get(value.data + 9, 8);
    if (little_endian_get(value.data + body, CRC_BYTES) != crc32c(0, value.data, body) ||
        n != (body - HEAD_BYTES) / SEGMENT_BYTES || (body - HEAD_BYTES) % SEGMENT_BYTES != 0)
        return record_lexical_damaged(c);
    TRY(memory_allocate(&out->list, (size_t)n + 1));
    out->n = (int64_t)n;
    if (record_lexical_decode(out, value.data)) return STATUS_OK;
    lexical_record_free(out);
    return record_lexical_damaged(c);
}

enum status record_put_lexical(struct catalog_txn *t, const struct lexical_record *r) {
    uint8_t *value;
    size_t body = HEAD_BYTES + (size_t)r->n * SEGMENT_BYTES;
    TRY(memory_allocate(&value, body + CRC_BYTES));
    value[0] = r->wanted;
    little_endian_put(value + 1, (uint64_t)r->next_number, 8);
    little_endian_put(value + 9, (uint64_t)r->n, 8);
    uint8_t *at = value + HEAD_BYTES;
    for (int64_t i = 0; i < r->n; i++, at += SEGMENT_BYTES) {
        const struct lexical_segment_record *s = &r->list[i];
        little_endian_put(at, (uint64_t)s->number, 8);
        little_endian_put(at + 8, (uint64_t)s->first_chunk, 8);
        little_endian_put(at + 16, (uint64_t)s->chunks, 8);
        little_endian_put(at + 24, s->file.bytes, 8);
        little_endian_put(at + 32, s->file.crc, 4);
    }
    little_endian_put(at, crc32c(0, value, body), CRC_BYTES);
    enum status s = catalog_put(t, TABLE_META, key, sizeof key - 1, value, body + CRC_BYTES);
    memory_free(value);
    return s;
}

void lexical_record_free(struct lexical_record *r) {
    memory_free(r->list);
    *r = (struct lexical_record){.next_number = 1};
}

bool lexical_record_covers(const struct lexical_record *r, struct store_dropped d, int64_t chunks) {
    int64_t at = 0;
    for (int64_t i = 0; i < r->n; i++) {
        struct store_range span = store_dropped_span(d, at, chunks);
        if (r->list[i].first_chunk != span.begin || r->list[i].chunks > span.end - span.begin) return false;
        at = r->list[i].first_chunk + r->list[i].chunks;
    }
    struct store_range left = store_dropped_span(d, at, chunks);
    return left.begin == left.end;
}

uint64_t lexical_record_bytes(const struct lexical_record *r) {
    uint64_t bytes = 0;
    for (int64_t i = 0; i < r->n; i++)
        bytes += r->list[i].file.bytes;
    return bytes;
}

enum status lexical_path(char out[FILE_PATH_MAX], const char *store, int64_t number) {
    char name[64];
    snprintf(name, sizeof name, "lexical/%05lld.lex", (long long)number);
    return file_join(out, store, name);
}
