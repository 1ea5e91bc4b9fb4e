/* catalog_internal.h -- the store's LMDB environment: tables of bytes, transactions, cursors. The layouts of records
 * are in records_internal.h. LMDB's types are used in catalog.c only. Keys are big-endian, so that they sort as
 * numbers.
 *
 * A process has one store's catalog open only once at a time (open_once.h). */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum catalog_table {
    TABLE_META,        /* single records by name: "format", "fingerprint", "index", "template" */
    TABLE_RUNS,        /* first chunk id -> where the document's tokens are */
    TABLE_DOCUMENTS,   /* document id -> source, key, position, hash */
    TABLE_HASHES,      /* 16 bytes of content hash -> document id; derived from documents */
    TABLE_SHARDS,      /* shard number -> its two files, id ranges, the caller's cursor */
    TABLE_SEGMENTS,    /* segment number -> its file and id range; only segments of the newest generation */
    TABLE_GENERATIONS,                   /* generation number -> the counts that it made visible */
    TABLE_DELETED,     /* document id -> the chunks that it had; formats 1 to 3 lack this table */
    TABLE_COUNT
};
const char *catalog_table_name(enum catalog_table table);

struct catalog;
struct catalog_txn;
struct bytes { const uint8_t *data; size_t size; };

/* Opens the catalog. `write`: creates catalog/ and the tables if they are missing. STATUS_NOT_FOUND, for reading only:
 * there is no catalog. STATUS_BUSY: this process has it open. Both check the meta pages first, and the page structure
 * of small catalogs (catalog_pages.c), because LMDB does not check its file. */
enum status catalog_open(struct catalog **out, const char *store, bool write, uint64_t max_bytes);
enum status catalog_check(struct catalog *c);             /* checks every page, as catalog_check_pages does */
/* STATUS_CORRUPT: the store format requires the record catalog/commit, and it was missing when the catalog was
 * opened. */
enum status catalog_check_record(const struct catalog *c, int format);
void catalog_close(struct catalog *c);                    /* call after the end of its transactions; NULL is fine */
/* STATUS_NOT_FOUND: the store's folder was moved, replaced or removed after the catalog was opened, so that its path
 * does not lead to the files of this catalog. Call it before opening one. */
enum status catalog_check_folder(const struct catalog *c);
const char *catalog_path(const struct catalog *c);        /* path of the data file, for messages */
uint64_t catalog_bytes(const struct catalog *c);          /* number of bytes of the data file that are in use */
bool catalog_is_frozen(const struct catalog *c);          /* whether the store is a snapshot (frozen_internal.h) */
/* Writes a durable copy of the newest snapshot, without unused pages and with its commit record, into the empty folder
 * `folder`. */
enum status catalog_copy(struct catalog *c, const char *folder);

/* One write transaction at a time, and any number of read transactions, each used by one thread at a time. A commit
 * also writes catalog/commit (commit_record_internal.h); it is durable and recorded when the result is OK. If only the
 * record failed, the commit is durable although the call fails; after that, c refuses further write transactions. */
enum status catalog_begin(struct catalog_txn **out, struct catalog *c, bool write);
enum status catalog_commit(struct catalog_txn *t);        /* t is freed, also on failure */
/* Returns the error that catalog_begin would return for writing. Call it before writing files. */
enum status catalog_check_writable(const struct catalog *c);
/* Writes the record of a commit that lacks one because its writer was killed. Only the writer calls this. */
enum status catalog_renew_record(struct catalog *c);
void catalog_abort(struct catalog_txn *t);                /* NULL is fine */
/* Pause releases the snapshot of a read transaction. Renew takes the newest snapshot. */
void catalog_pause(struct catalog_txn *t);
enum status catalog_renew(struct catalog_txn *t);

/* Values are borrowed until the transaction ends or writes. STATUS_NOT_FOUND, without a message: there is no such
 * record. */
enum status catalog_get(struct catalog_txn *t, struct bytes *value, enum catalog_table table, const void *key,
                        size_t key_bytes);
/* Gets the record with the largest key <= key. */
enum status catalog_get_floor(struct catalog_txn *t, uint64_t *found, struct bytes *value, enum catalog_table table,
                              uint64_t key);
enum status catalog_get_last(struct catalog_txn *t, uint64_t *key, struct bytes *value, enum catalog_table table);
enum status catalog_put(struct catalog_txn *t, enum catalog_table table, const void *key, size_t key_bytes,
                        const void *value, size_t bytes);
/* Appends a record. Keys must ascend, which is faster and fills pages. */
enum status catalog_append(struct catalog_txn *t, enum catalog_table table, const void *key, size_t key_bytes,
                           const void *value, size_t bytes);
/* Puts a record unless there is one with this key; fastest if the keys of a transaction ascend. */
enum status catalog_add(struct catalog_txn *t, enum catalog_table table, const void *key, size_t key_bytes,
                        const void *value, size_t bytes);
/* Returns STATUS_OK also if there is no such record. */
enum status catalog_delete(struct catalog_txn *t, enum catalog_table table, const void *key, size_t key_bytes);
enum status catalog_empty(struct catalog_txn *t, enum catalog_table table);
uint64_t catalog_count(struct catalog_txn *t, enum catalog_table table);

/* Walks over a table in key order, from the number `begin` on. At the end the result is STATUS_OK and *more is
 * false. */
struct catalog_walk;
enum status catalog_walk_begin(struct catalog_walk **out, struct catalog_txn *t, enum catalog_table table,
                               uint64_t begin);
enum status catalog_walk_next(struct catalog_walk *w, bool *more, struct bytes *key, struct bytes *value);
void catalog_walk_end(struct catalog_walk *w);            /* call before its transaction ends; NULL is fine */

struct catalog_key { uint8_t bytes[8]; };
struct catalog_key catalog_key(uint64_t number);
uint64_t catalog_key_number(struct bytes key);            /* UINT64_MAX if the key does not have 8 bytes */

enum { CATALOG_META_BYTES = 152 };   /* the bytes of a meta page that LMDB reads and writes */
/* Checks the data file without LMDB (catalog_pages.c): the meta pages, and every page that the newest committed tree
 * reaches. STATUS_CORRUPT names file and page. If `pages_max` > 0 and the file has more pages, only the meta pages are
 * checked. While a writer may be active, the caller must hold a read transaction and pass its number as `txn` (0: the
 * newest). */
enum status catalog_check_meta(const char *path);
/* *unwritten: no transaction was ever committed to the data file of the catalog folder `folder`. There is no file, it
 * is empty, or its creator was killed between the two meta pages, which LMDB writes with one call. */
enum status catalog_is_unwritten(bool *unwritten, const char *folder);
enum status catalog_check_pages(const char *path, uint64_t txn, uint64_t pages_max);
/* Checks every page that the newer of these two meta pages reaches; the file's own meta pages are not used. *freed_by:
 * the last transaction that freed pages. That transaction made the tree, unless the file was empty before. */
enum status catalog_check_pages_under(uint64_t *freed_by, const char *path, const uint8_t metas[2][CATALOG_META_BYTES]);
