/* commit_record_internal.h -- catalog/commit: a checksummed copy of LMDB's two meta pages, made after every commit.
 *
 * LMDB uses the meta page with the higher transaction number, and neither page has a checksum. With a flipped bit in
 * one of these numbers LMDB would read an older state. LMDB's commit remains the commit point, and the record is
 * written after it. So the data file has the meta pages of the record, or is one transaction ahead of it, because a
 * writer is between the two steps or was killed there. Any other difference is damage, which commit_record_restore
 * repairs.
 *
 * Bytes (little-endian): "drtcommt", u32 version 1, u64 generation, u32 CRC32C of the root pages, meta page 0, meta
 * page 1 (the first CATALOG_META_BYTES of each), u32 CRC32C of all bytes before. `folder` is the store's catalog
 * folder. */
#pragma once
#include "store/catalog/catalog_internal.h"

/* Compares the data file with the record. The record is read first, so that an active writer does not look like damage.
 * *found false: there is no record (a store of format 1 or 2, or a new one). STATUS_CORRUPT names file, page, byte and
 * remedy. Nothing is changed. */
enum status commit_record_check(bool *found, const char *folder);

/* Writes the record of the data file's state. Only the writer calls this. STATUS_CORRUPT: the data file is not the old
 * record's state or one transaction ahead of it. */
enum status commit_record_renew(const char *folder, uint64_t generation);

/* Restores a damaged state before LMDB opens the file. Only the writer calls this. It writes the meta pages from the
 * record, or the record from the meta pages, whichever state has all of its pages undamaged. *what: which of the
 * two was written, for a note; NULL: nothing had to be restored. STATUS_CORRUPT: neither state is undamaged; nothing
 * was changed. */
enum status commit_record_restore(const char **what, const char *folder);
