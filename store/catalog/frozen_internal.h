/* frozen_internal.h -- catalog/frozen: this store is a snapshot that nothing changes any more.
 *
 * A program that finds the file opens the catalog without LMDB's lock file and writes nothing, so any number of hosts
 * may read the snapshot on a network file system, whose locks they do not share. Every call that would write refuses.
 *
 * Bytes (little-endian): "drtfrozn", u32 version 1, u64 generation, u64 bytes of catalog/data.mdb, u32 CRC32C of all of
 * these bytes, u32 CRC32C of the 32 bytes before. `folder` is the store's catalog folder. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

struct frozen_record { uint64_t generation, catalog_bytes; uint32_t catalog_crc; };

/* *found false: a store that may change. With it: the record is whole, and the catalog has the recorded size. */
enum status frozen_read(struct frozen_record *out, bool *found, const char *folder);
/* STATUS_CORRUPT when a byte of the catalog changed. */
enum status frozen_check(const struct frozen_record *r, const char *folder);
/* Reads the catalog, which nothing writes to from here on, and makes the file durable. */
enum status frozen_write(const char *folder, uint64_t generation);
/* STATUS_READ_ONLY with the remedy when `store` (its own folder) is a snapshot. */
enum status frozen_refuse(const char *store);
/* What helps where a snapshot is damaged. */
extern const char *const remedy_freeze;
