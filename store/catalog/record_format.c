/* record_format.c -- see record_format_internal.h. Numbers are little-endian; a value ends with its CRC32C. */
#include "base/crc32c.h"
#include "base/little_endian.h"
#include "store/catalog/record_format_internal.h"

enum { FORMAT_BYTES = 4, TYPE_BYTES = 1, CRC_BYTES = 4, TYPE_I8 = 1, TYPE_NONE = 2 };

int record_format_of(enum store_landmarks type) {
    return type == STORE_LANDMARKS_F16 ? STORE_FORMAT_F16 : STORE_FORMAT_VERSION;
}

static size_t seal(uint8_t *value, size_t bytes) {
    little_endian_put(value + bytes, crc32c(0, value, bytes), CRC_BYTES);
    return bytes + CRC_BYTES;
}

/* The version comes first, so that an older program can report a version that it does not know. */
enum status record_put_format(struct catalog_txn *t, enum store_landmarks type) {
    uint8_t format[FORMAT_BYTES + CRC_BYTES], value[TYPE_BYTES + CRC_BYTES];
    value[0] = type == STORE_LANDMARKS_I8 ? TYPE_I8 : TYPE_NONE;
    little_endian_put(format, (uint64_t)record_format_of(type), FORMAT_BYTES);
    TRY(catalog_put(t, TABLE_META, "format", 6, format, seal(format, FORMAT_BYTES)));
    if (type == STORE_LANDMARKS_F16) return STATUS_OK;
    return catalog_put(t, TABLE_META, "landmarks", 9, value, seal(value, TYPE_BYTES));
}

enum status record_get_landmarks(struct catalog_txn *t, const struct catalog *c, int format,
                                 enum store_landmarks *out) {
    struct bytes value = {0};
    *out = STORE_LANDMARKS_F16;
    if (format <= STORE_FORMAT_F16) return STATUS_OK;
    enum status s = catalog_get(t, &value, TABLE_META, "landmarks", 9);
    if (s != STATUS_OK && s != STATUS_NOT_FOUND) return s;
    if (s == STATUS_NOT_FOUND || value.size != TYPE_BYTES + CRC_BYTES ||
        little_endian_get(value.data + TYPE_BYTES, CRC_BYTES) != crc32c(0, value.data, TYPE_BYTES))
        return fail(STATUS_CORRUPT, "%s: record landmarks is missing or damaged, run drt-index verify",
                    catalog_path(c));
    if (value.data[0] != TYPE_I8 && value.data[0] != TYPE_NONE)
        return fail(STATUS_VERSION,
                    "%s: the store has landmarks of type %d, which this program does not know: use a newer program",
                    catalog_path(c), value.data[0]);
    *out = value.data[0] == TYPE_I8 ? STORE_LANDMARKS_I8 : STORE_LANDMARKS_NONE;
    struct store_fingerprint fingerprint;
    TRY(record_get_fingerprint(t, c, &fingerprint, NULL));
    if ((fingerprint.dim == 0) == (*out == STORE_LANDMARKS_NONE)) return STATUS_OK;
    return fail(STATUS_CORRUPT, "%s: landmarks of type %s have %d dimensions, run drt-index verify", catalog_path(c),
                store_landmarks_name(*out), fingerprint.dim);
}
