/* frozen.c -- see frozen_internal.h. */
#include "base/crc32c.h"
#include "base/file.h"
#include "base/little_endian.h"
#include "store/catalog/frozen_internal.h"
#include <string.h>

enum { VERSION = 1, CHECKED_BYTES = 32, RECORD_BYTES = CHECKED_BYTES + 4 };
static const char magic[8] = {'d', 'r', 't', 'f', 'r', 'o', 'z', 'n'};

const char *const remedy_freeze = "make the snapshot again with drt-index freeze";

enum status frozen_read(struct frozen_record *out, bool *found, const char *folder) {
    char path[FILE_PATH_MAX], data[FILE_PATH_MAX];
    struct file_map map;
    uint64_t size;
    *found = false;
    TRY(file_join(path, folder, "frozen"));
    TRY(file_join(data, folder, "data.mdb"));
    if (!file_exists(path)) return STATUS_OK;
    *found = true;
    TRY(file_map(&map, path));
    const uint8_t *p = map.data;
    bool whole = map.size == RECORD_BYTES && memcmp(p, magic, sizeof magic) == 0 &&
                 little_endian_get(p + CHECKED_BYTES, 4) == crc32c(0, p, CHECKED_BYTES);
    uint64_t version = whole ? little_endian_get(p + 8, 4) : VERSION;
    if (whole)
        *out = (struct frozen_record){.generation = little_endian_get(p + 12, 8),
                                      .catalog_bytes = little_endian_get(p + 20, 8),
                                      .catalog_crc = (uint32_t)little_endian_get(p + 28, 4)};
    file_unmap(&map);
    if (!whole) return fail(STATUS_CORRUPT, "%s: is damaged: %s", path, remedy_freeze);
    if (version != VERSION)
        return fail(STATUS_VERSION, "%s: version %llu, this program reads version %d: use a newer program", path,
                    (unsigned long long)version, VERSION);
    TRY(file_size(&size, data));
    if (size == out->catalog_bytes) return STATUS_OK;
    return fail(STATUS_CORRUPT, "%s: has %llu bytes, %llu were frozen: %s", data, (unsigned long long)size,
                (unsigned long long)out->catalog_bytes, remedy_freeze);
}

enum status frozen_check(const struct frozen_record *r, const char *folder) {
    char data[FILE_PATH_MAX];
    uint32_t crc;
    TRY(file_join(data, folder, "data.mdb"));
    TRY(file_checksum(&crc, data));
    if (crc == r->catalog_crc) return STATUS_OK;
    return fail(STATUS_CORRUPT, "%s: its bytes changed: CRC32C %08x, frozen was %08x: %s", data, crc, r->catalog_crc,
                remedy_freeze);
}

enum status frozen_write(const char *folder, uint64_t generation) {
    char path[FILE_PATH_MAX], data[FILE_PATH_MAX];
    uint8_t bytes[RECORD_BYTES];
    uint64_t size;
    uint32_t crc;
    struct file_writer *file;
    TRY(file_join(path, folder, "frozen"));
    TRY(file_join(data, folder, "data.mdb"));
    TRY(file_size(&size, data));
    TRY(file_checksum(&crc, data));
    memcpy(bytes, magic, sizeof magic);
    little_endian_put(bytes + 8, VERSION, 4);
    little_endian_put(bytes + 12, generation, 8);
    little_endian_put(bytes + 20, size, 8);
    little_endian_put(bytes + 28, crc, 4);
    little_endian_put(bytes + CHECKED_BYTES, crc32c(0, bytes, CHECKED_BYTES), 4);
    TRY(file_create(&file, path));
    enum status s = file_write(file, bytes, sizeof bytes);
    if (s == STATUS_OK) return file_publish(file);
    file_discard(file);
    return s;
}

enum status frozen_refuse(const char *store) {
    char path[FILE_PATH_MAX];
    TRY(file_join(path, store, "catalog/frozen"));
    if (!file_exists(path)) return STATUS_OK;
    return fail(STATUS_READ_ONLY,
                "%s: is a frozen snapshot, which nothing may change: write to the store it was made of and freeze that "
                "again, or make a store of it with drt-index compact",
                store);
}
