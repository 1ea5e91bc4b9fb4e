/* commit_record_internal.h -- catalog/commit: a checksummed copy of LMDB's two meta pages, made after every commit.
 *
 * LMDB takes the meta page with the higher transaction number, and neither page has a checksum: with a flipped bit in
 * one of these numbers LMDB would read an older state. LMDB's commit stays the commit point; the record follows it. So
 * the data file has the meta pages of the record, or is one transaction ahead (a writer was killed between the two, or
 * is between them now). Anything else is damage, which commit_record_restore repairs.
 *
 * Bytes (little-endian): "drtcommt", u32 version 1, u64 generation, u32 CRC32C of the root pages, meta page 0, meta
 * page 1 (the first CATALOG_META_BYTES of each), u32 CRC32C of all before. `folder` is the store's catalog folder. */
#pragma once
#include "store/catalog/catalog_internal.h"

/* Reads the record before the meta pages, so that a writer at work is not taken for damage. *found false: no record (a
 * store of format 1 or 2, or a new one). STATUS_CORRUPT names file, page, byte and remedy; nothing is changed. */
enum status commit_record_check(bool *found, const char *folder);

/* For the one writer: makes the record equal to the data file. STATUS_CORRUPT when the data file does not follow it. */
enum status commit_record_renew(const char *folder, uint64_t generation);

/* For the one writer, before LMDB opens the file: writes the meta pages anew from the record, or the record from the
 * meta pages, where every page of that state is whole. *what: which of them, for a note; NULL: nothing was to be done.
 * STATUS_CORRUPT: no whole state is left; nothing was changed. */
enum status commit_record_restore(const char **what, const char *folder);
