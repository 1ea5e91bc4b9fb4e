/* zip.h -- the members of a zip archive in memory, for archives whose members are stored uncompressed (as torch.save
 * writes them). Zip64 is supported; reading a compressed or encrypted member is an error.
 *
 * Opening checks the central directory against the archive; zip_read checks a member's local header, its range and
 * its CRC-32. Names and data are borrowed from the archive's bytes. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct zip_member {
    const char *name; size_t name_bytes;                  /* without a NUL at its end */
    uint64_t local_offset, stored_bytes, bytes; /* offset of the local header; compressed size; uncompressed size */
    uint32_t crc32;
    uint16_t method, flags;
};
struct zip;
/* `name` is for messages; it and the bytes are borrowed until zip_close. */
enum status zip_open(struct zip **out, const char *name, const void *data, size_t bytes);
void zip_close(struct zip *z);                            /* NULL is fine */
int64_t zip_count(const struct zip *z);
const struct zip_member *zip_at(const struct zip *z, int64_t index);             /* sorted by name */
const struct zip_member *zip_find(const struct zip *z, const char *name, size_t name_bytes);   /* NULL: none */
/* Returns the m->bytes bytes of a member, which are not copied. STATUS_UNSUPPORTED: compressed or encrypted.
 * STATUS_CORRUPT: wrong range or CRC-32. */
enum status zip_read(const uint8_t **out, const struct zip *z, const struct zip_member *m);
/* Computes CRC-32 as zip and zlib do. */
uint32_t zip_crc32(const void *data, size_t bytes);
