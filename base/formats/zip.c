/* zip.c -- the central directory at the archive's end is authoritative. Local headers are used only for the
 * offset of the data. */
#include "base/formats/zip.h"
#include "base/little_endian.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum {
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR64_BYTES = 20,
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30,
    COMMENT_MAX = 65535,
    FLAG_ENCRYPTED = 1,
    EXTRA_ZIP64 = 1,
};
static const uint32_t END_MAGIC = 0x06054b50, END64_MAGIC = 0x06064b50, LOCATOR64_MAGIC = 0x07064b50,
                      ENTRY_MAGIC = 0x02014b50, LOCAL_MAGIC = 0x04034b50;

struct zip {
    const char *name;
    const uint8_t *data;
    size_t bytes;
    struct zip_member *members;
    int64_t count;
};

/* Whether [offset, offset + need) lies within the archive. */
static bool zip_inside(const struct zip *z, uint64_t offset, uint64_t need) {
    return offset <= z->bytes && need <= z->bytes - offset;
}

static int compare_names(const char *a, size_t n, const char *b, size_t m) {
    int order = memcmp(a, b, n < m ? n : m);
    return order ? order : (n > m) - (n < m);
}
static int compare_members(const void *a, const void *b) {
    const struct zip_member *x = a, *y = b;
    return compare_names(x->name, x->name_bytes, y->name, y->name_bytes);
}

struct directory {
    uint64_t offset, bytes, count;
};

/* Finds the end record by searching backwards: only a comment may follow it. */
static enum status find_directory(const struct zip *z, struct directory *out) {
    if (z->bytes < END_BYTES) return fail(STATUS_INVALID, "%s: not a zip archive: only %zu bytes", z->name, z->bytes);
    size_t lowest = z->bytes - END_BYTES > COMMENT_MAX ? z->bytes - END_BYTES - COMMENT_MAX : 0;
    for (size_t at = z->bytes - END_BYTES + 1; at-- > lowest;) {
        const uint8_t *end = z->data + at;
        if (little_endian_get(end, 4) != END_MAGIC || at + END_BYTES + little_endian_get(end + 20, 2) > z->bytes)
            continue;
        *out = (struct directory){little_endian_get(end + 16, 4), little_endian_get(end + 12, 4),
                                  little_endian_get(end + 10, 2)};
        if (at < LOCATOR64_BYTES || little_endian_get(end - LOCATOR64_BYTES, 4) != LOCATOR64_MAGIC) return STATUS_OK;
        uint64_t end64 = little_endian_get(end - LOCATOR64_BYTES + 8, 8);
        if (!zip_inside(z, end64, END64_BYTES) || little_endian_get(z->data + end64, 4) != END64_MAGIC)
            return fail(STATUS_INVALID, "%s: byte %zu: the zip64 end record is not where the locator says", z->name,
                        at);
        const uint8_t *record = z->data + end64;
        *out = (struct directory){little_endian_get(record + 48, 8), little_endian_get(record + 40, 8),
                                  little_endian_get(record + 32, 8)};
        return STATUS_OK;
    }
    return fail(STATUS_INVALID, "%s: not a zip archive, or cut short: there is no end record", z->name);
}

/* Reads the zip64 extra field, which has the sizes and the offset that did not fit into 32 bits, in this order. */
static bool read_zip64(struct zip_member *m, const uint8_t *extra, size_t bytes) {
    while (bytes >= 4) {
        size_t id = little_endian_get(extra, 2), size = little_endian_get(extra + 2, 2);
        if (size > bytes - 4) return false;
        if (id == EXTRA_ZIP64) {
            const uint8_t *at = extra + 4;
            uint64_t *fields[] = {&m->bytes, &m->stored_bytes, &m->local_offset};
            for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
                if (*fields[i] != UINT32_MAX) continue;
                if (at + 8 > extra + 4 + size) return false;
                *fields[i] = little_endian_get(at, 8);
                at += 8;
            }
            return true;
        }
        extra += 4 + size;
        bytes -= 4 + size;
    }
    return true;
}

static enum status read_directory(struct zip *z) {
    struct directory directory = {0};
    TRY(find_directory(z, &directory));
    if (!zip_inside(z, directory.offset, directory.bytes) || directory.count > directory.bytes / ENTRY_BYTES)
        return fail(STATUS_INVALID, "%s: the zip directory does not fit into the file: cut short or damaged", z->name);
    TRY(memory_allocate(&z->members, directory.count));
    const uint8_t *at = z->data + directory.offset, *end = at + directory.bytes;
    for (uint64_t i = 0; i < directory.count; i++) {
        if (end - at < ENTRY_BYTES || little_endian_get(at, 4) != ENTRY_MAGIC)
            return fail(STATUS_INVALID, "%s: byte %td: zip directory entry %llu is damaged", z->name, at - z->data,
                        (unsigned long long)i);
        size_t name = little_endian_get(at + 28, 2), extra = little_endian_get(at + 30, 2),
               comment = little_endian_get(at + 32, 2);
        struct zip_member *m = &z->members[i];
        *m = (struct zip_member){.name = (const char *)at + ENTRY_BYTES,
                                 .name_bytes = name,
                                 .local_offset = little_endian_get(at + 42, 4),
                                 .stored_bytes = little_endian_get(at + 20, 4),
                                 .bytes = little_endian_get(at + 24, 4),
                                 .crc32 = (uint32_t)little_endian_get(at + 16, 4),
                                 .method = (uint16_t)little_endian_get(at + 10, 2),
                                 .flags = (uint16_t)little_endian_get(at + 8, 2)};
        if ((size_t)(end - at) < ENTRY_BYTES + name + extra + comment || !read_zip64(m, at + ENTRY_BYTES + name, extra))
            return fail(STATUS_INVALID, "%s: byte %td: zip directory entry %llu is damaged", z->name, at - z->data,
                        (unsigned long long)i);
        at += ENTRY_BYTES + name + extra + comment;
    }
    z->count = (int64_t)directory.count;
    qsort(z->members, (size_t)z->count, sizeof *z->members, compare_members);
    for (int64_t i = 1; i < z->count; i++)
        if (compare_members(&z->members[i - 1], &z->members[i]) == 0)
            return fail(STATUS_INVALID, "%s: zip member '%.*s' is there twice", z->name, (int)z->members[i].name_bytes,
                        z->members[i].name);
    return STATUS_OK;
}

enum status zip_open(struct zip **out, const char *name, const void *data, size_t bytes) {
    struct zip *z;
    TRY(memory_allocate_zero(&z, 1));
    z->name = name;
    z->data = data;
    z->bytes = bytes;
    enum status status = read_directory(z);
    if (status != STATUS_OK) {
        zip_close(z);
        return status;
    }
    *out = z;
    return STATUS_OK;
}

void zip_close(struct zip *z) {
    if (!z) return;
    memory_free(z->members);
    memory_free(z);
}

int64_t zip_count(const struct zip *z) {
    return z->count;
}
const struct zip_member *zip_at(const struct zip *z, int64_t index) {
    return &z->members[index];
}

const struct zip_member *zip_find(const struct zip *z, const char *name, size_t name_bytes) {
    struct zip_member key = {.name = name, .name_bytes = name_bytes};
    return z->count ? bsearch(&key, z->members, (size_t)z->count, sizeof key, compare_members) : NULL;
}

enum status zip_read(const uint8_t **out, const struct zip *z, const struct zip_member *m) {
    int length = m->name_bytes < 200 ? (int)m->name_bytes : 200;
    if (m->flags & FLAG_ENCRYPTED)
        return fail(STATUS_UNSUPPORTED, "%s: zip member '%.*s' is encrypted", z->name, length, m->name);
    if (m->method != 0)
        return fail(STATUS_UNSUPPORTED,
                    "%s: zip member '%.*s' is compressed (method %d), and only stored members are "
                    "read: unpack the archive and pack it again with zip -0",
                    z->name, length, m->name, m->method);
    if (!zip_inside(z, m->local_offset, LOCAL_BYTES) || little_endian_get(z->data + m->local_offset, 4) != LOCAL_MAGIC)
        return fail(STATUS_INVALID, "%s: byte %llu: zip member '%.*s' has no local header there: damaged", z->name,
                    (unsigned long long)m->local_offset, length, m->name);
    const uint8_t *local = z->data + m->local_offset;
    uint64_t begin =
        m->local_offset + LOCAL_BYTES + little_endian_get(local + 26, 2) + little_endian_get(local + 28, 2);
    if (m->bytes != m->stored_bytes || !zip_inside(z, begin, m->bytes))
        return fail(STATUS_INVALID,
                    "%s: zip member '%.*s' (%llu bytes at %llu) does not fit into the file of %zu bytes: "
                    "cut short or damaged",
                    z->name, length, m->name, (unsigned long long)m->bytes, (unsigned long long)begin, z->bytes);
    if (zip_crc32(z->data + begin, m->bytes) != m->crc32)
        return fail(STATUS_CORRUPT,
                    "%s: zip member '%.*s' does not match its CRC-32: the file is damaged, copy it again", z->name,
                    length, m->name);
    *out = z->data + begin;
    return STATUS_OK;
}

/* Slicing by four. The 4 KiB table is made on the stack, so that no global needs a lock. */
uint32_t zip_crc32(const void *data, size_t bytes) {
    uint32_t table[4][256], crc = 0xffffffffu;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = c >> 1 ^ (0xedb88320u & (0u - (c & 1)));
        table[0][i] = c;
    }
    for (int i = 0; i < 256; i++)
        for (int t = 1; t < 4; t++)
            table[t][i] = table[t - 1][i] >> 8 ^ table[0][table[t - 1][i] & 255];
    const uint8_t *p = data;
    for (; bytes >= 4; bytes -= 4, p += 4) {
        crc ^= (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        crc = table[3][crc & 255] ^ table[2][crc >> 8 & 255] ^ table[1][crc >> 16 & 255] ^ table[0][crc >> 24];
    }
    for (; bytes; bytes--)
        crc = crc >> 8 ^ table[0][(crc ^ *p++) & 255];
    return ~crc;
}
