/* frozen_internal.h -- catalog/frozen marks a store as an immutable snapshot.
 *
 * A program that finds the file opens the catalog without LMDB's lock file and writes nothing. So any number of hosts
 * may read the snapshot on a network file system, even if they do not share its locks. Every call that would write is
 * refused.
 *
 * Bytes (little-endian): "drtfrozn", u32 version 1, u64 generation, u64 bytes of catalog/data.mdb, u32 CRC32C of
 * data.mdb, u32 CRC32C of the 32 bytes before. `folder` is the store's catalog folder. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

struct frozen_record { uint64_t generation, catalog_bytes; uint32_t catalog_crc; };

/* *found false: the store is not a snapshot. Otherwise the record is complete and the catalog has the recorded size. */
enum status frozen_read(struct frozen_record *out, bool *found, const char *folder);
/* STATUS_CORRUPT: a byte of the catalog has changed. */
enum status frozen_check(const struct frozen_record *r, const char *folder);
/* Computes the checksum of the catalog and writes the file durably. Nothing may write to the catalog afterwards. */
enum status frozen_write(const char *folder, uint64_t generation);
/* Returns STATUS_READ_ONLY, with the remedy: `store` (its folder) is a snapshot. */
enum status frozen_refuse(const char *store);
/* The remedy for a damaged snapshot. */
extern const char *const remedy_freeze;
