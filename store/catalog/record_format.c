/* record_format.c -- see record_format_internal.h. Numbers are little-endian; a value ends with its CRC32C. */
#include "base/crc32c.h"
#include "base/little_endian.h"
#include "store/catalog/record_format_internal.h"
#include <string.h>

enum { FORMAT_BYTES = 4, TYPE_BYTES = 1, CRC_BYTES = 4, TYPE_I8 = 1, TYPE_NONE = 2 };

int record_format_of(enum store_landmarks type) {
    return type == STORE_LANDMARKS_F16 ? STORE_FORMAT_F16 : STORE_FORMAT_VERSION;
}

enum status record_get_checked(struct catalog_txn *t, const struct catalog *c, const char *name, const uint8_t **value,
                               size_t bytes, bool *found) {
    struct bytes v;
    enum status s = catalog_get(t, &v, TABLE_META, name, strlen(name));
    *found = s == STATUS_OK;
    if (s == STATUS_NOT_FOUND) return STATUS_OK;
    TRY(s);
    *value = v.data;
    if (v.size == bytes + CRC_BYTES && little_endian_get(v.data + bytes, CRC_BYTES) == crc32c(0, v.data, bytes))
        return STATUS_OK;
    return fail(STATUS_CORRUPT, "%s: record %s is damaged, run drt-index verify", catalog_path(c), name);
}

enum status record_put_checked(struct catalog_txn *t, const char *name, uint8_t *value, size_t bytes) {
    little_endian_put(value + bytes, crc32c(0, value, bytes), CRC_BYTES);
    return catalog_put(t, TABLE_META, name, strlen(name), value, bytes + CRC_BYTES);
}

/* The version comes first, so that an older program can report a newer version. */
enum status record_put_format(struct catalog_txn *t, enum store_landmarks type) {
    uint8_t format[FORMAT_BYTES + CRC_BYTES], value[TYPE_BYTES + CRC_BYTES];
    value[0] = type == STORE_LANDMARKS_I8 ? TYPE_I8 : TYPE_NONE;
    little_endian_put(format, (uint64_t)record_format_of(type), FORMAT_BYTES);
    TRY(record_put_checked(t, "format", format, FORMAT_BYTES));
    return type == STORE_LANDMARKS_F16 ? STATUS_OK : record_put_checked(t, "landmarks", value, TYPE_BYTES);
}

enum status record_get_identity(struct catalog_txn *t, const struct catalog *c, struct store_fingerprint *fingerprint,
                                int *format, enum store_landmarks *type) {
    const uint8_t *value = NULL;
    bool found;
    TRY(record_get_fingerprint(t, c, fingerprint, format));
    *type = STORE_LANDMARKS_F16;
    if (*format <= STORE_FORMAT_F16) return STATUS_OK;
    enum status s = record_get_checked(t, c, "landmarks", &value, TYPE_BYTES, &found);
    if (s == STATUS_CORRUPT || (s == STATUS_OK && !found))
        return fail(STATUS_CORRUPT, "%s: record landmarks is missing or damaged, run drt-index verify",
                    catalog_path(c));
    TRY(s);
    if (value[0] != TYPE_I8 && value[0] != TYPE_NONE)
        return fail(STATUS_VERSION,
                    "%s: the store has landmarks of type %d, which this program does not know: use a newer program",
                    catalog_path(c), value[0]);
    *type = value[0] == TYPE_I8 ? STORE_LANDMARKS_I8 : STORE_LANDMARKS_NONE;
    if ((fingerprint->dim == 0) == (*type == STORE_LANDMARKS_NONE)) return STATUS_OK;
    return fail(STATUS_CORRUPT, "%s: landmarks of type %s have %d dimensions, run drt-index verify", catalog_path(c),
                store_landmarks_name(*type), fingerprint->dim);
}
