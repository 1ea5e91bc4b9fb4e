/* catalog.c -- the only file that includes LMDB.
 *
 * Durability is LMDB's default: a commit returns after its fsync. The data files that a record names are synced before
 * the commit, so every file that a durable record names is durable. WRITEMAP is not used: a stray write could damage
 * the map, and a full disk would raise SIGBUS instead of an error.
 *
 * The map is 64 GiB of address space, so that it need not grow. If less is allowed (ulimit -v), it is somewhat larger
 * than the file and grows: a reader's when a writer has enlarged the file, a writer's before a transaction. LMDB moves
 * a map only while no transaction is active, so active transactions are counted under a lock. */
#include "base/file.h"
#include "base/memory.h"
#include "base/system/fault.h"
#include "store/catalog/commit_record_internal.h"
#include "store/catalog/frozen_internal.h"
#include "store/catalog/open_once.h"
#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const uint64_t map_bytes_default = UINT64_C(64) << 30, mib = 1 << 20;
/* Opening checks the whole page structure of a catalog of up to OPEN_CHECK_PAGES pages (64 MiB), which takes some
 * milliseconds. */
enum { OPEN_CHECK_PAGES = 16384, READERS_MAX = 1024, LOCK_BYTES = 72 * READERS_MAX };
enum { SNAPSHOT_TRIES = 8, OPEN_TRIES = 20, DISK_FULL_BYTES = 1 << 16, FORMAT_WITH_RECORD = 3, RECORD_TRIES = 50 };

struct catalog {
    MDB_env *env;
    MDB_dbi tables[TABLE_COUNT];
    bool absent[TABLE_COUNT]; /* the format is older than this table, which readers see as empty */
    bool write;
    uint64_t wanted; /* bytes of the map, if the address space suffices */
    bool fixed;      /* the caller set `wanted`; otherwise the map has at least twice the file's size */
    bool narrow;     /* the address space is smaller than `wanted` */
    pthread_mutex_t lock;
    int active;             /* active transactions; protected by `lock` */
    bool record_found;      /* catalog/commit existed when the catalog was opened */
    bool frozen;            /* the store is a snapshot: there is no lock file, and nothing is written */
    atomic_bool unrecorded; /* the last commit succeeded, but writing its record failed */
    char folder[FILE_PATH_MAX], path[FILE_PATH_MAX];
};
struct catalog_txn {
    struct catalog *c;
    MDB_txn *txn;
    bool active; /* whether the transaction is not paused */
    /* at the last record that was appended or added, so that the next one is not searched for from the root; LMDB
     * closes them with the transaction */
    MDB_cursor *last[TABLE_COUNT];
};
struct catalog_walk {
    struct catalog_txn *t;
    MDB_cursor *cursor;
    enum catalog_table table;
    MDB_cursor_op next;
    struct catalog_key begin;
};

const char *catalog_table_name(enum catalog_table table) {
    static const char *const names[TABLE_COUNT] = {"meta",   "runs",     "documents",   "hashes",
                                                   "shards", "segments", "generations", "deleted"};
    return names[table];
}

struct catalog_key catalog_key(uint64_t number) {
    struct catalog_key key;
    for (int i = 0; i < 8; i++)
        key.bytes[i] = (uint8_t)(number >> (56 - 8 * i));
    return key;
}

uint64_t catalog_key_number(struct bytes key) {
    if (key.size != 8) return UINT64_MAX;
    uint64_t n = 0;
    for (int i = 0; i < 8; i++)
        n = n << 8 | key.data[i];
    return n;
}

/* LMDB reports EIO for a short write, which happens when the disk fills in the middle of a page. */
static bool disk_is_full(const struct catalog *c) {
    uint64_t left = 0;
    return file_free_space(&left, c->path) == STATUS_OK && left < DISK_FULL_BYTES;
}

/* LMDB reports EIO for a file that reaches ulimit -f too; for a new file it reports a full disk. */
static bool is_at_limit(const struct catalog *c) {
    struct rlimit limit;
    uint64_t size;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && file_size(&size, c->path) == STATUS_OK && size >= limit.rlim_cur;
}

/* Translates LMDB's codes; no other function uses them. */
static enum status catalog_translate(const struct catalog *c, int rc, const char *what) {
    if ((rc == EIO || rc == ENOSPC) && is_at_limit(c)) rc = EFBIG;
    if (rc == EIO && disk_is_full(c)) rc = ENOSPC;
    switch (rc) {
    case MDB_SUCCESS:
        return STATUS_OK;
    case MDB_NOTFOUND:
        return STATUS_NOT_FOUND;
    case MDB_MAP_FULL:
        return fail(STATUS_NO_SPACE, "%s: the catalog's map is full, %s", c->path,
                    c->narrow  ? "there is no address space for more: raise ulimit -v"
                    : c->fixed ? "open the writer with a larger max_catalog_bytes"
                               : "run the command again, which maps more");
    case ENOSPC:
    case EDQUOT:
        return fail(STATUS_NO_SPACE, "%s: %s: no space left on the device (free disk space)", c->path, what);
    case EFBIG:
        return fail(STATUS_NO_SPACE, "%s: %s: larger than ulimit -f, or the file system, allows: raise it", c->path,
                    what);
    case ENOMEM:
        return fail(STATUS_NO_MEMORY, "%s: %s: no memory or address space for the catalog's map: raise ulimit -v",
                    c->path, what);
    case MDB_VERSION_MISMATCH:
        return fail(STATUS_VERSION, "%s: made by an incompatible LMDB, use the program version that wrote it", c->path);
    case MDB_INVALID:
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_BAD_TXN:
        return fail(STATUS_CORRUPT, "%s: %s: the catalog is damaged (%s), run drt-index verify", c->path, what,
                    mdb_strerror(rc));
    case MDB_BAD_RSLOT:
        return fail(STATUS_BUSY, "%s: this process opened the store a second time; a process opens it once at a time",
                    c->path);
    case MDB_READERS_FULL:
        return fail(STATUS_BUSY, "%s: more than %d readers are open", c->path, READERS_MAX);
    case MDB_MAP_RESIZED:
        return fail(STATUS_BUSY,
                    "%s: another process enlarged the catalog beyond this one's map: open the store again%s", c->path,
                    c->narrow ? ", or raise ulimit -v" : "");
    case MDB_KEYEXIST:
        return fail(STATUS_CORRUPT, "%s: %s: the key exists already", c->path, what);
    case EROFS:
    case EACCES:
        return fail(STATUS_READ_ONLY, "%s: %s: %s", c->path, what, strerror(rc));
    default:
        return fail(STATUS_IO, "%s: %s: %s", c->path, what, mdb_strerror(rc));
    }
}

/* Size of the map for a file of `size` bytes. With little address space a reader adds little spare space, and a writer
 * as much as it can get. If nothing fits, the result is `wanted`, and LMDB reports the error. */
static uint64_t map_bytes(struct catalog *c, uint64_t size) {
    uint64_t least = c->fixed ? size : 2 * size, wanted = c->wanted > least ? c->wanted : least;
    c->narrow = !memory_has_address_space(wanted);
    for (uint64_t spare = (c->write ? 1024 : 16) * mib; c->narrow && spare >= mib; spare /= 4) {
        uint64_t bytes = (size / mib + 1) * mib * (c->write ? 2 : 1) + spare;
        if (bytes < wanted && memory_has_address_space(bytes)) return bytes;
    }
    return wanted;
}

/* Enlarges the map. LMDB unmaps the old map before it makes the new one. If that failed, no map would be left. So the
 * function requires address space for both maps. */
static bool enlarge_map(struct catalog *c, uint64_t size) {
    MDB_envinfo info;
    if (c->active > 0 || mdb_env_info(c->env, &info) != MDB_SUCCESS) return false;
    uint64_t bytes = map_bytes(c, size);
    if (bytes <= info.me_mapsize || !memory_has_address_space(bytes)) return false;
    return mdb_env_set_mapsize(c->env, (size_t)bytes) == MDB_SUCCESS;
}

uint64_t catalog_bytes(const struct catalog *c) {
    MDB_envinfo info;
    MDB_stat stat;
    if (mdb_env_info(c->env, &info) != MDB_SUCCESS || mdb_env_stat(c->env, &stat) != MDB_SUCCESS) return 0;
    return ((uint64_t)info.me_last_pgno + 1) * stat.ms_psize;
}

static void enlarge_narrow_map(struct catalog *c) {
    MDB_envinfo info;
    uint64_t used = catalog_bytes(c);
    if (c->narrow && mdb_env_info(c->env, &info) == MDB_SUCCESS && info.me_mapsize - used < used + 32 * mib)
        (void)enlarge_map(c, used);
}

/* *txn NULL: begins a transaction; otherwise renews one that was reset. */
static int catalog_mdb_begin(struct catalog *c, MDB_txn **txn, bool write) {
    pthread_mutex_lock(&c->lock);
    if (write) enlarge_narrow_map(c);
    int rc = MDB_MAP_RESIZED;
    for (int i = 0; rc == MDB_MAP_RESIZED && i < SNAPSHOT_TRIES; i++) {
        rc = *txn ? mdb_txn_renew(*txn) : mdb_txn_begin(c->env, NULL, write ? 0 : MDB_RDONLY, txn);
        uint64_t size = 0;
        if (rc == MDB_MAP_RESIZED && (file_size(&size, c->path) != STATUS_OK || !enlarge_map(c, size))) break;
    }
    c->active += rc == MDB_SUCCESS;
    pthread_mutex_unlock(&c->lock);
    return rc;
}

static void catalog_ended(struct catalog *c) {
    pthread_mutex_lock(&c->lock);
    c->active--;
    pthread_mutex_unlock(&c->lock);
}

static void abort_txn(struct catalog *c, MDB_txn *txn) {
    mdb_txn_abort(txn);
    catalog_ended(c);
}

static int commit_txn(struct catalog *c, MDB_txn *txn) {
    int rc = mdb_txn_commit(txn);
    catalog_ended(c);
    return rc;
}

static enum status open_tables(struct catalog *c) {
    MDB_txn *txn = NULL;
    TRY(catalog_translate(c, catalog_mdb_begin(c, &txn, c->write), "begin"));
    for (int i = 0; i < TABLE_COUNT; i++) {
        int rc = mdb_dbi_open(txn, catalog_table_name((enum catalog_table)i), c->write ? MDB_CREATE : 0, &c->tables[i]);
        c->absent[i] = rc == MDB_NOTFOUND && i >= TABLE_DELETED;
        if (rc != MDB_SUCCESS && !c->absent[i]) {
            abort_txn(c, txn);
            if (rc == MDB_NOTFOUND)
                return fail(STATUS_NOT_FOUND, "%s: the store has no contents yet, build it first", c->path);
            return catalog_translate(c, rc, catalog_table_name((enum catalog_table)i));
        }
    }
    return catalog_translate(c, commit_txn(c, txn), "commit");
}

/* LMDB writes its table of readers through a map. On a full disk, writing a page without a disk block raises SIGBUS. So
 * this function allocates the blocks. It returns ENOSPC, or 0 if they exist or if LMDB itself will report the error. It
 * must be called before LMDB opens the file, because closing a file drops its locks. */
static int reserve_lock_file(const char *folder) {
    char path[FILE_PATH_MAX];
    if (file_join(path, folder, "lock.mdb") != STATUS_OK) return 0;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return 0;
    bool full = fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, LOCK_BYTES) != 0 && (errno == ENOSPC || errno == EDQUOT);
    close(fd);
    return full ? ENOSPC : 0;
}

/* LMDB 0.9.3x destroys the mutexes of its lock file when the last process closes it. If another process opens the file
 * at that moment, its first transaction fails with EINVAL. That process opens the environment again. */
static bool mutexes_destroyed(MDB_env *env) {
    MDB_txn *txn;
    int rc = mdb_txn_begin(env, NULL, MDB_RDONLY, &txn);
    if (rc == MDB_SUCCESS) mdb_txn_abort(txn);
    return rc == EINVAL;
}

static enum status open_environment(struct catalog *c, const char *folder, uint64_t size) {
    unsigned flags = MDB_NOTLS | (c->write ? 0 : MDB_RDONLY) | (c->frozen ? MDB_NOLOCK : 0);
    for (int tries = 1;; tries++) {
        TRY(catalog_translate(c, mdb_env_create(&c->env), "create"));
        mdb_env_set_maxdbs(c->env, TABLE_COUNT);
        mdb_env_set_maxreaders(c->env, READERS_MAX);
        uint64_t bytes = map_bytes(c, size);
        if (c->write || c->narrow)
            mdb_env_set_mapsize(c->env, (size_t)bytes); /* without this call a reader would use the writer's map size */
        int rc = flags & MDB_NOLOCK ? 0 : reserve_lock_file(folder);
        if (rc == 0) rc = mdb_env_open(c->env, folder, flags, 0644);
        bool again = rc == MDB_SUCCESS && !(flags & MDB_NOLOCK) && tries < OPEN_TRIES && mutexes_destroyed(c->env);
        if (rc == MDB_SUCCESS && !again) return STATUS_OK;
        mdb_env_close(c->env);
        c->env = NULL;
        if (again) {
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
            continue;
        }
        /* LMDB cannot create or write its lock file here (a read-only or full disk, another user's store): read without
         * it. A writer does not see such a reader. That is safe: a view holds its snapshot only during one call, and
         * the next commit does not change the snapshot's pages. */
        bool no_lock_file = !c->write && !(flags & MDB_NOLOCK) &&
                            (rc == EACCES || rc == EROFS || rc == ENOENT || rc == ENOSPC || rc == EFBIG);
        if (!no_lock_file) return catalog_translate(c, rc, "open");
        flags |= MDB_NOLOCK;
    }
}

static enum status open_once(struct catalog *c, const char *store, uint64_t size) {
    if (c->frozen) return open_environment(c, c->folder, size);
    const int turn = catalog_turn_begin(c->folder);
    enum status s = catalog_not_open(store);
    if (s == STATUS_OK) s = open_environment(c, c->folder, size);
    catalog_turn_end(turn);
    return s;
}

/* Checks the pages of the newest snapshot. A transaction holds the snapshot meanwhile, so that a writer does not reuse
 * its pages. If a writer commits two transactions meanwhile, it replaces the snapshot's meta page, and the next
 * snapshot is checked. */
static enum status check_structure(struct catalog *c, uint64_t pages_max) {
    enum status s = STATUS_OK;
    for (int i = 0; i < SNAPSHOT_TRIES; i++) {
        MDB_txn *txn = NULL;
        TRY(catalog_translate(c, catalog_mdb_begin(c, &txn, false), "begin"));
        s = catalog_check_pages(c->path, mdb_txn_id(txn), pages_max);
        abort_txn(c, txn);
        if (s != STATUS_NOT_FOUND) return s;
    }
    return STATUS_OK;
}

enum status catalog_check(struct catalog *c) {
    return check_structure(c, 0);
}

static enum status open_catalog(struct catalog *c, const char *store) {
    const char *folder = c->folder;
    uint64_t size = 0;
    TRY(file_join(c->folder, store, "catalog"));
    TRY(file_join(c->path, folder, "data.mdb"));
    bool exists = file_exists(c->path), unwritten;
    struct frozen_record frozen;
    TRY(frozen_read(&frozen, &c->frozen, folder));
    if (c->write) TRY(frozen_refuse(store));
    if (!exists && !c->write) return fail(STATUS_NOT_FOUND, "%s: no store here (no catalog/data.mdb)", store);
    if (c->write) TRY(file_make_directory(folder));
    if (exists) {
        TRY(catalog_is_unwritten(&unwritten, folder));
        if (unwritten && !c->write)
            return fail(STATUS_NOT_FOUND, "%s: the store has no contents yet, build it first", store);
        if (unwritten) TRY(file_remove(c->path));
        exists = !unwritten;
    }
    if (exists) {
        TRY(file_size(&size, c->path));
        TRY(commit_record_check(&c->record_found, folder));
        TRY(catalog_check_meta(c->path));
    }
    TRY(open_once(c, store, size));
    int dead = 0;
    /* Frees the slots of killed readers. They would keep their pages from being reused, and fill the
     * table of readers. */
    mdb_reader_check(c->env, &dead);
    if (c->write && !exists) TRY(file_sync_directory(folder));
    if (exists) TRY(check_structure(c, OPEN_CHECK_PAGES));
    return open_tables(c);
}

enum status catalog_open(struct catalog **out, const char *store, bool write, uint64_t max_bytes) {
    struct catalog *c;
    TRY(memory_allocate_zero(&c, 1));
    c->write = write;
    c->fixed = max_bytes > 0;
    c->wanted = max_bytes ? max_bytes : map_bytes_default;
    pthread_mutex_init(&c->lock, NULL);
    enum status s = open_catalog(c, store);
    if (s != STATUS_OK) {
        catalog_close(c);
        return s;
    }
    *out = c;
    return STATUS_OK;
}

void catalog_close(struct catalog *c) {
    if (!c) return;
    if (c->env) mdb_env_close(c->env);
    pthread_mutex_destroy(&c->lock);
    memory_free(c);
}

enum status catalog_check_folder(const struct catalog *c) {
    struct stat opened, there;
    int fd;
    if (mdb_env_get_fd(c->env, &fd) != MDB_SUCCESS || fstat(fd, &opened) != 0) return STATUS_OK;
    if (stat(c->path, &there) == 0 && there.st_ino == opened.st_ino && there.st_dev == opened.st_dev) return STATUS_OK;
    return fail(STATUS_NOT_FOUND, "%s: was moved or replaced while the store was open: open the store again", c->path);
}

const char *catalog_path(const struct catalog *c) {
    return c->path;
}

bool catalog_is_frozen(const struct catalog *c) {
    return c->frozen;
}

enum status catalog_copy(struct catalog *c, const char *folder) {
    char path[FILE_PATH_MAX];
    const char *what;
    TRY(file_join(path, folder, "data.mdb"));
    TRY(catalog_translate(c, mdb_env_copy2(c->env, folder, MDB_CP_COMPACT), "copy"));
    TRY(file_sync(path));
    TRY(file_sync_directory(folder));
    return commit_record_restore(&what, folder);
}

static enum status newest_generation(uint64_t *number, struct catalog *c) {
    struct catalog_txn *t;
    struct bytes value;
    *number = 0;
    TRY(catalog_begin(&t, c, false));
    enum status s = catalog_get_last(t, number, &value, TABLE_GENERATIONS);
    catalog_abort(t);
    return s == STATUS_NOT_FOUND ? STATUS_OK : s;
}

enum status catalog_check_record(const struct catalog *c, int format) {
    /* A new store's record follows its first commit, and a failed build removes both: another process may be at it. */
    bool found = c->record_found || format < FORMAT_WITH_RECORD;
    for (int i = 0; i < RECORD_TRIES && !found; i++) {
        TRY(catalog_check_folder(c));
        TRY(commit_record_check(&found, c->folder));
        if (!found) usleep(10 * 1000);
    }
    if (found) return STATUS_OK;
    return fail(STATUS_CORRUPT, "%s/commit: the record of the last commit is missing, run drt-index repair", c->folder);
}

enum status catalog_check_writable(const struct catalog *c) {
    if (!c->unrecorded) return STATUS_OK;
    return fail(STATUS_IO, "%s/commit: the last commit could not be recorded: run the command again", c->folder);
}

enum status catalog_renew_record(struct catalog *c) {
    uint64_t generation;
    TRY(newest_generation(&generation, c));
    return commit_record_renew(c->folder, generation);
}

enum status catalog_begin(struct catalog_txn **out, struct catalog *c, bool write) {
    struct catalog_txn *t;
    if (write) TRY(catalog_check_writable(c));
    if (write) TRY(catalog_renew_record(c));
    TRY(memory_allocate_zero(&t, 1));
    t->c = c;
    enum status s = catalog_translate(c, catalog_mdb_begin(c, &t->txn, write), "begin");
    if (s != STATUS_OK) {
        memory_free(t);
        return s;
    }
    t->active = true;
    *out = t;
    return STATUS_OK;
}

enum status catalog_commit(struct catalog_txn *t) {
    struct catalog *c = t->c;
    enum status s = catalog_translate(c, commit_txn(c, t->txn), "commit");
    memory_free(t);
    TRY(s);
    s = fault_point("catalog:commit:before-record");
    if (s == STATUS_OK) s = catalog_renew_record(c);
    c->unrecorded = s != STATUS_OK;
    if (!c->unrecorded) return STATUS_OK;
    return fail(s, "%s; the change itself is made, and the next command that writes records it", status_message());
}

void catalog_abort(struct catalog_txn *t) {
    if (!t) return;
    mdb_txn_abort(t->txn);
    if (t->active) catalog_ended(t->c);
    memory_free(t);
}

void catalog_pause(struct catalog_txn *t) {
    if (!t->active) return;
    mdb_txn_reset(t->txn);
    t->active = false;
    catalog_ended(t->c);
}

enum status catalog_renew(struct catalog_txn *t) {
    int rc = catalog_mdb_begin(t->c, &t->txn, false);
    t->active = rc == MDB_SUCCESS;
    return catalog_translate(t->c, rc, "renew");
}

static struct bytes to_bytes(MDB_val v) {
    return (struct bytes){v.mv_data, v.mv_size};
}

enum status catalog_get(struct catalog_txn *t, struct bytes *value, enum catalog_table table, const void *key,
                        size_t key_bytes) {
    if (t->c->absent[table]) return STATUS_NOT_FOUND;
    MDB_val k = {key_bytes, (void *)key}, v;
    int rc = mdb_get(t->txn, t->c->tables[table], &k, &v);
    if (rc == MDB_SUCCESS) *value = to_bytes(v);
    return catalog_translate(t->c, rc, catalog_table_name(table));
}

/* Positions a cursor by `op`. With `step_back`, the cursor moves to the previous record if it is at a larger
 * key or at the end. */
static enum status catalog_seek(struct catalog_txn *t, uint64_t *found, struct bytes *value, enum catalog_table table,
                                const struct catalog_key *key, bool step_back) {
    if (t->c->absent[table]) return STATUS_NOT_FOUND;
    MDB_cursor *cursor;
    TRY(catalog_translate(t->c, mdb_cursor_open(t->txn, t->c->tables[table], &cursor), catalog_table_name(table)));
    MDB_val k = {0, NULL}, v = {0, NULL};
    int rc;
    if (step_back) {
        k = (MDB_val){8, (void *)key->bytes};
        rc = mdb_cursor_get(cursor, &k, &v, MDB_SET_RANGE);
        if (rc == MDB_NOTFOUND)
            rc = mdb_cursor_get(cursor, &k, &v, MDB_LAST);
        else if (rc == MDB_SUCCESS && (k.mv_size != 8 || memcmp(k.mv_data, key->bytes, 8) != 0))
            rc = mdb_cursor_get(cursor, &k, &v, MDB_PREV);
    } else {
        rc = mdb_cursor_get(cursor, &k, &v, MDB_LAST);
    }
    mdb_cursor_close(cursor);
    if (rc == MDB_SUCCESS) {
        *found = catalog_key_number(to_bytes(k));
        *value = to_bytes(v);
    }
    return catalog_translate(t->c, rc, catalog_table_name(table));
}

enum status catalog_get_floor(struct catalog_txn *t, uint64_t *found, struct bytes *value, enum catalog_table table,
                              uint64_t key) {
    struct catalog_key k = catalog_key(key);
    return catalog_seek(t, found, value, table, &k, true);
}

enum status catalog_get_last(struct catalog_txn *t, uint64_t *key, struct bytes *value, enum catalog_table table) {
    return catalog_seek(t, key, value, table, NULL, false);
}

enum status catalog_put(struct catalog_txn *t, enum catalog_table table, const void *key, size_t key_bytes,
                        const void *value, size_t bytes) {
    MDB_val k = {key_bytes, (void *)key}, v = {bytes, (void *)value};
    return catalog_translate(t->c, mdb_put(t->txn, t->c->tables[table], &k, &v, 0), catalog_table_name(table));
}

static int put_at_cursor(struct catalog_txn *t, enum catalog_table table, MDB_val key, MDB_val value, unsigned flags) {
    MDB_cursor **last = &t->last[table];
    const int rc = *last ? MDB_SUCCESS : mdb_cursor_open(t->txn, t->c->tables[table], last);
    return rc == MDB_SUCCESS ? mdb_cursor_put(*last, &key, &value, flags) : rc;
}

enum status catalog_append(struct catalog_txn *t, enum catalog_table table, const void *key, size_t key_bytes,
                           const void *value, size_t bytes) {
    const MDB_val k = {key_bytes, (void *)key}, v = {bytes, (void *)value};
    return catalog_translate(t->c, put_at_cursor(t, table, k, v, MDB_APPEND), catalog_table_name(table));
}

enum status catalog_add(struct catalog_txn *t, enum catalog_table table, const void *key, size_t key_bytes,
                        const void *value, size_t bytes) {
    const MDB_val k = {key_bytes, (void *)key}, v = {bytes, (void *)value};
    const int rc = put_at_cursor(t, table, k, v, MDB_NOOVERWRITE);
    return rc == MDB_KEYEXIST ? STATUS_OK : catalog_translate(t->c, rc, catalog_table_name(table));
}

enum status catalog_delete(struct catalog_txn *t, enum catalog_table table, const void *key, size_t key_bytes) {
    MDB_val k = {key_bytes, (void *)key};
    int rc = mdb_del(t->txn, t->c->tables[table], &k, NULL);
    return rc == MDB_NOTFOUND ? STATUS_OK : catalog_translate(t->c, rc, catalog_table_name(table));
}

enum status catalog_empty(struct catalog_txn *t, enum catalog_table table) {
    return catalog_translate(t->c, mdb_drop(t->txn, t->c->tables[table], 0), catalog_table_name(table));
}

uint64_t catalog_count(struct catalog_txn *t, enum catalog_table table) {
    MDB_stat stat;
    if (t->c->absent[table]) return 0;
    return mdb_stat(t->txn, t->c->tables[table], &stat) == MDB_SUCCESS ? stat.ms_entries : 0;
}

enum status catalog_walk_begin(struct catalog_walk **out, struct catalog_txn *t, enum catalog_table table,
                               uint64_t begin) {
    struct catalog_walk *w;
    TRY(memory_allocate_zero(&w, 1));
    w->t = t;
    w->table = table;
    w->begin = catalog_key(begin);
    w->next = begin ? MDB_SET_RANGE : MDB_FIRST;
    const int rc = t->c->absent[table] ? MDB_SUCCESS : mdb_cursor_open(t->txn, t->c->tables[table], &w->cursor);
    if (rc == MDB_SUCCESS)
        *out = w;
    else
        memory_free(w);
    return catalog_translate(t->c, rc, catalog_table_name(table));
}

enum status catalog_walk_next(struct catalog_walk *w, bool *more, struct bytes *key, struct bytes *value) {
    *more = false;
    if (!w->cursor) return STATUS_OK;
    MDB_val k = {sizeof w->begin.bytes, w->begin.bytes}, v;
    int rc = mdb_cursor_get(w->cursor, &k, &v, w->next);
    w->next = MDB_NEXT;
    *more = rc == MDB_SUCCESS;
    if (rc == MDB_NOTFOUND) return STATUS_OK;
    TRY(catalog_translate(w->t->c, rc, catalog_table_name(w->table)));
    *key = to_bytes(k);
    *value = to_bytes(v);
    return STATUS_OK;
}

void catalog_walk_end(struct catalog_walk *w) {
    if (!w) return;
    if (w->cursor) mdb_cursor_close(w->cursor);
    memory_free(w);
}
