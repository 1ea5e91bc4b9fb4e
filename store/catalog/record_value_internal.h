/* record_value_internal.h -- the bytes of a record's value: little-endian numbers, then a checksum.
 *
 * Every value ends with the CRC32C of its bytes, except that values of format 1 have no checksum, and the value of
 * "format" has one only since format 3. Values that an older program wrote are read without it until they are written
 * again. */
#pragma once
#include "base/crc32c.h"
#include "base/little_endian.h"
#include "store/catalog/records_internal.h"
#include <string.h>

enum { VALUE_FIXED_MAX = 256, VALUE_CRC_BYTES = 4 };

struct value_writer { uint8_t *at; };

static inline void value_put(struct value_writer *w, uint64_t value, int bytes) {
    little_endian_put(w->at, value, bytes);
    w->at += bytes;
}
static inline void value_put_i64(struct value_writer *w, int64_t value) {
    value_put(w, (uint64_t)value, 8);
}
static inline void value_put_file(struct value_writer *w, struct stored_file f) {
    value_put(w, f.bytes, 8);
    value_put(w, f.crc, 4);
}
/* Appends the checksum to the value that begins at `value`; returns its size. */
static inline size_t value_seal(struct value_writer *w, const uint8_t *value) {
    value_put(w, crc32c(0, value, (size_t)(w->at - value)), VALUE_CRC_BYTES);
    return (size_t)(w->at - value);
}

/* Reads past the end give zeros and set `good` to false. */
struct value_reader { const uint8_t *begin, *at, *end; bool good; };

static inline struct value_reader value_reader_of(struct bytes b) {
    return (struct value_reader){b.data, b.data, b.data + b.size, true};
}
static inline uint64_t value_get(struct value_reader *r, int bytes) {
    if (r->end - r->at < bytes) {
        r->good = false;
        return 0;
    }
    uint64_t value = little_endian_get(r->at, bytes);
    r->at += bytes;
    return value;
}
/* Reads a count or id. A negative or very large number is refused, because later sums could overflow. */
static inline int64_t value_get_count(struct value_reader *r) {
    uint64_t value = value_get(r, 8);
    if (value > (uint64_t)INT64_MAX / 1024) r->good = false;
    return r->good ? (int64_t)value : 0;
}
static inline struct stored_file value_get_file(struct value_reader *r) {
    struct stored_file f = {.bytes = value_get(r, 8)};
    f.crc = (uint32_t)value_get(r, 4);
    return f;
}
static inline const uint8_t *value_get_bytes(struct value_reader *r, size_t n) {
    if ((size_t)(r->end - r->at) < n) {
        r->good = false;
        return NULL;
    }
    const uint8_t *at = r->at;
    r->at += n;
    return at;
}
/* Whether all bytes were read, and the checksum is right. */
static inline bool value_finished(struct value_reader *r) {
    size_t size = (size_t)(r->at - r->begin);
    if (!r->good || r->at == r->end) return r->good;
    return value_get(r, VALUE_CRC_BYTES) == crc32c(0, r->begin, size) && r->good && r->at == r->end;
}

static inline enum status record_damaged(const struct catalog *c, const char *what, int64_t number) {
    return fail(STATUS_CORRUPT, "%s: record of %s %lld is missing or damaged, run drt-index verify", catalog_path(c),
                what, (long long)number);
}
static inline enum status record_append(struct catalog_txn *t, enum catalog_table table, int64_t number,
                                        const uint8_t *value, size_t bytes) {
    const struct catalog_key key = catalog_key((uint64_t)number);
    return catalog_append(t, table, key.bytes, sizeof key.bytes, value, bytes);
}
