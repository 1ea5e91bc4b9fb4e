/* commit_record.c -- see commit_record_internal.h.
 *
 * The record is replaced as a whole (written, synced, renamed, the folder synced), so a kill or a power cut cannot
 * damage it. A commit differs from damage as follows. LMDB writes transaction T into meta page T & 1 and does not
 * change the other page. So after T + 1 the page of T equals the one in the record of T. The page of T + 1 has another
 * root than the page of T - 1 had, because LMDB reuses no page of T - 1 before T + 2. If a flipped bit changes the
 * number T - 1 to T + 1, the root is still the old one. */
#include "base/crc32c.h"
#include "base/file.h"
#include "base/little_endian.h"
#include "base/memory.h"
#include "store/catalog/commit_record_internal.h"
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { VERSION = 1, HEAD_BYTES = 24, RECORD_BYTES = HEAD_BYTES + 2 * CATALOG_META_BYTES + 4, READ_TRIES = 4 };
enum {
    META_PAGE_SIZE = 40,
    META_FREE_ROOT = 80,
    META_ROOT = 128,
    META_TXN = 144,
    PAGE_SIZE_MIN = 512,
    PAGE_SIZE_MAX = 32768
};
static const char magic[8] = {'d', 'r', 't', 'c', 'o', 'm', 'm', 't'};
static const struct timespec pause_before_last = {.tv_nsec = 1000000};

struct metas {
    uint8_t page[2][CATALOG_META_BYTES];
};
struct record {
    uint64_t generation;
    uint32_t roots; /* CRC32C of the two root pages: a page number may be used again, but its contents then differ */
    struct metas metas;
};
/* How the data file relates to a record. */
enum relation { RELATION_SAME, RELATION_NEXT, RELATION_DIFFERENT };

static uint64_t txn_of(const struct metas *m, int page) {
    return little_endian_get(m->page[page] + META_TXN, 8);
}

static int newer_page(const struct metas *m) {
    return txn_of(m, 1) > txn_of(m, 0);
}

/* ---- reading and writing ---- */

static enum status read_record(struct record *out, const char *folder) {
    char path[FILE_PATH_MAX];
    struct file_map map;
    TRY(file_join(path, folder, "commit"));
    TRY(file_map(&map, path));
    const uint8_t *p = map.data;
    enum status s = STATUS_OK;
    bool whole = map.size >= HEAD_BYTES && memcmp(p, magic, sizeof magic) == 0 &&
                 little_endian_get(p + map.size - 4, 4) == crc32c(0, p, map.size - 4);
    if (whole && little_endian_get(p + 8, 4) != VERSION)
        s = fail(STATUS_VERSION, "%s: version %llu, this program reads %d: use a newer program", path,
                 (unsigned long long)little_endian_get(p + 8, 4), VERSION);
    else if (!whole || map.size != RECORD_BYTES)
        s = fail(STATUS_CORRUPT, "%s: the record of the last commit is damaged, run drt-index repair", path);
    if (s == STATUS_OK) {
        out->generation = little_endian_get(p + 12, 8);
        out->roots = (uint32_t)little_endian_get(p + 20, 4);
        memcpy(&out->metas, p + HEAD_BYTES, sizeof out->metas);
    }
    file_unmap(&map);
    return s;
}

static enum status write_record(const struct record *r, const char *folder) {
    char path[FILE_PATH_MAX];
    uint8_t bytes[RECORD_BYTES];
    memcpy(bytes, magic, sizeof magic);
    little_endian_put(bytes + 8, VERSION, 4);
    little_endian_put(bytes + 12, r->generation, 8);
    little_endian_put(bytes + 20, r->roots, 4);
    memcpy(bytes + HEAD_BYTES, &r->metas, sizeof r->metas);
    little_endian_put(bytes + RECORD_BYTES - 4, crc32c(0, bytes, RECORD_BYTES - 4), 4);
    TRY(file_join(path, folder, "commit"));
    return file_save(path, bytes, sizeof bytes);
}

/* Returns the page size in meta page 0, or the smallest size if this number is damaged. */
static uint64_t page_bytes(const struct metas *m) {
    uint64_t size = little_endian_get(m->page[0] + META_PAGE_SIZE, 4);
    return size >= PAGE_SIZE_MIN && size <= PAGE_SIZE_MAX ? size : PAGE_SIZE_MIN;
}

/* like: the page size of these metas is used, because the number in the file may be damaged; NULL: the number in
 * the file is used. */
static enum status read_metas(struct metas *out, const struct metas *like, const char *folder) {
    char path[FILE_PATH_MAX];
    TRY(file_join(path, folder, "data.mdb"));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail_errno("%s", path);
    ssize_t first = pread(fd, out->page[0], CATALOG_META_BYTES, 0);
    ssize_t second = pread(fd, out->page[1], CATALOG_META_BYTES, (off_t)page_bytes(like ? like : out));
    close(fd);
    if (first < 0 || second < 0) return fail_errno("%s: cannot read", path);
    if (first < CATALOG_META_BYTES || second < CATALOG_META_BYTES)
        return fail(STATUS_CORRUPT, "%s: page %d: the file ends in it: restore the store from a copy or build it again",
                    path, first == CATALOG_META_BYTES);
    return STATUS_OK;
}

/* Computes the checksum of the roots of the newer tree of `m`: the root of free pages, then that of tables. An empty
 * tree has none. The pages are read, not mapped, because a writer may lack the address space to map the file twice. */
static enum status roots_checksum(uint32_t *out, const struct metas *m, const char *folder) {
    static const int at[2] = {META_FREE_ROOT, META_ROOT};
    char path[FILE_PATH_MAX];
    uint8_t *page; /* on the heap, because a page may be as large as a small stack */
    TRY(file_join(path, folder, "data.mdb"));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail_errno("%s", path);
    uint64_t size = page_bytes(m);
    uint32_t crc = 0;
    enum status s = memory_allocate(&page, size);
    if (s != STATUS_OK) page = NULL;
    for (int i = 0; i < 2 && s == STATUS_OK; i++) {
        uint64_t root = little_endian_get(m->page[newer_page(m)] + at[i], 8);
        if (root == UINT64_MAX) continue;
        ssize_t n = root < INT64_MAX / PAGE_SIZE_MAX ? pread(fd, page, size, (off_t)(root * size)) : 0;
        if (n < 0)
            s = fail_errno("%s: cannot read", path);
        else if ((uint64_t)n < size)
            s = fail(STATUS_CORRUPT, "%s: page %llu: beyond the end of the file, run drt-index repair", path,
                     (unsigned long long)root);
        else
            crc = crc32c(crc, page, size);
    }
    close(fd);
    memory_free(page);
    *out = crc;
    return s;
}

/* ---- comparing ---- */

/* Whether the two meta pages are as LMDB's commits leave them: transaction T in page T & 1 and T - 1 in the other page,
 * or 0 in both before the first commit. */
static bool is_pair(const struct metas *m) {
    uint64_t a = txn_of(m, 0), b = txn_of(m, 1);
    return (a == 0 && b == 0) || (a % 2 == 0 && b % 2 == 1 && (a + 1 == b || b + 1 == a));
}

/* Whether the data file is one transaction ahead of the record, in page `page`. */
static bool is_next(const struct record *r, const struct metas *m, int page) {
    return txn_of(m, page) == txn_of(&r->metas, !page) + 1 &&
           memcmp(m->page[page] + META_ROOT, r->metas.page[page] + META_ROOT, 8) != 0;
}

static enum relation relation_of(const struct record *r, const struct metas *m) {
    if (memcmp(m, &r->metas, sizeof *m) == 0) return RELATION_SAME;
    int newer = newer_page(&r->metas);
    bool next = memcmp(m->page[newer], r->metas.page[newer], CATALOG_META_BYTES) == 0 && is_next(r, m, !newer);
    return next ? RELATION_NEXT : RELATION_DIFFERENT;
}

static enum status commit_record_different(const struct record *r, const struct metas *m, const char *folder) {
    int page = newer_page(&r->metas), at = 0;
    if (memcmp(m->page[page], r->metas.page[page], CATALOG_META_BYTES) == 0) page = !page;
    while (m->page[page][at] == r->metas.page[page][at])
        at++;
    return fail(STATUS_CORRUPT,
                "%s/data.mdb: page %d, byte %d: is not what catalog/commit recorded of transaction %llu (generation "
                "%llu), run drt-index repair",
                folder, page, at, (unsigned long long)txn_of(&r->metas, newer_page(&r->metas)),
                (unsigned long long)r->generation);
}

enum status commit_record_check(bool *found, const char *folder) {
    char path[FILE_PATH_MAX];
    TRY(file_join(path, folder, "commit"));
    *found = file_exists(path);
    if (!*found) return STATUS_OK;
    struct record r;
    struct metas m;
    /* Reads record and meta pages again on a mismatch: a writer may replace a meta page during the read, or commit
     * twice between the two reads. */
    for (int i = 0; i < READ_TRIES; i++) {
        if (i == READ_TRIES - 1) nanosleep(&pause_before_last, NULL);
        TRY(read_record(&r, folder));
        TRY(read_metas(&m, &r.metas, folder));
        if (relation_of(&r, &m) != RELATION_DIFFERENT) return STATUS_OK;
    }
    return commit_record_different(&r, &m, folder);
}

enum status commit_record_renew(const char *folder, uint64_t generation) {
    struct record r;
    struct metas m;
    bool found;
    TRY(commit_record_check(&found, folder));
    if (found) TRY(read_record(&r, folder));
    TRY(read_metas(&m, found ? &r.metas : NULL, folder));
    if (found && r.generation == generation && relation_of(&r, &m) == RELATION_SAME) return STATUS_OK;
    r = (struct record){.generation = generation, .metas = m};
    TRY(roots_checksum(&r.roots, &m, folder));
    return write_record(&r, folder);
}

/* ---- restoring ---- */

static enum status write_metas(const struct metas *m, const char *folder) {
    char path[FILE_PATH_MAX];
    TRY(file_join(path, folder, "data.mdb"));
    int fd = open(path, O_WRONLY | O_CLOEXEC), newer = newer_page(m);
    if (fd < 0) return fail_errno("%s", path);
    enum status s = STATUS_OK;
    for (int i = 0; i < 2 && s == STATUS_OK; i++) {
        int page = i ? !newer : newer;
        if (pwrite(fd, m->page[page], CATALOG_META_BYTES, page ? (off_t)page_bytes(m) : 0) != CATALOG_META_BYTES ||
            fsync(fd) != 0)
            s = fail_errno("%s: cannot write page %d", path, page);
    }
    close(fd);
    return s;
}

/* Checks that every page of a state is undamaged, and that it is the state that the meta pages name. Pages are reused,
 * so old pages can look valid under newer meta pages. For the record's own state the recorded roots are compared. For
 * another state the free table names the transaction. */
static enum status check_state(const struct metas *m, const struct record *r, const char *folder, const char *path) {
    uint64_t freed_by;
    uint32_t roots;
    TRY(catalog_check_pages_under(&freed_by, path, m->page));
    TRY(roots_checksum(&roots, m, folder));
    bool recorded = memcmp(m, &r->metas, sizeof *m) == 0;
    if (recorded ? roots == r->roots : freed_by == txn_of(m, newer_page(m))) return STATUS_OK;
    return fail(STATUS_CORRUPT, "%s: its pages are not of transaction %llu", path,
                (unsigned long long)txn_of(m, newer_page(m)));
}

/* The states that the record and the data file allow, the newest first. Returns the index of the first possible one. */
static int commit_record_states(struct metas out[3], const struct record *r, const struct metas *m) {
    int newer = newer_page(&r->metas);
    /* the data file's own state: a program that writes no record may have committed it */
    out[0] = *m;
    /* the commit after the record's, with the transaction number that it must have */
    out[1] = *m;
    memcpy(out[1].page[newer], r->metas.page[newer], CATALOG_META_BYTES);
    little_endian_put(out[1].page[!newer] + META_TXN, txn_of(&r->metas, newer) + 1, 8);
    out[2] = r->metas;
    return is_pair(m) && txn_of(m, newer_page(m)) > txn_of(&r->metas, newer) ? 0 : 1;
}

/* Does not set the generation: the writer opens the catalog next and renews the record. */
static enum status accept_metas(const struct metas *m, const char *folder, const char *path) {
    if (!is_pair(m))
        return fail(STATUS_CORRUPT,
                    "%s: page 0 or 1, byte %d: transactions %llu and %llu do not follow each other, and catalog/commit "
                    "is lost: restore the store from a copy or build it again",
                    path, META_TXN, (unsigned long long)txn_of(m, 0), (unsigned long long)txn_of(m, 1));
    uint64_t freed_by;
    TRY(catalog_check_pages_under(&freed_by, path, m->page));
    struct record fresh = {.metas = *m};
    TRY(roots_checksum(&fresh.roots, m, folder));
    return write_record(&fresh, folder);
}

enum status commit_record_restore(const char **what, const char *folder) {
    char path[FILE_PATH_MAX];
    struct record r;
    struct metas m, list[3];
    *what = NULL;
    TRY(file_join(path, folder, "data.mdb"));
    enum status s = read_record(&r, folder);
    if (s != STATUS_OK && s != STATUS_CORRUPT && s != STATUS_NOT_FOUND) return s;
    bool found = s == STATUS_OK;
    TRY(read_metas(&m, found ? &r.metas : NULL, folder));
    if (!found) {
        *what = "catalog/commit was written anew from catalog/data.mdb";
        return accept_metas(&m, folder, path);
    }
    if (relation_of(&r, &m) != RELATION_DIFFERENT) return STATUS_OK;
    for (int i = commit_record_states(list, &r, &m); i < 3; i++) {
        s = check_state(&list[i], &r, folder, path);
        if (s != STATUS_OK && s != STATUS_CORRUPT) return s;
        if (s == STATUS_CORRUPT) continue;
        *what = "the meta pages of catalog/data.mdb were restored from catalog/commit";
        TRY(write_metas(&list[i], folder));
        return memcmp(&list[i], &m, sizeof m) == 0 ? accept_metas(&m, folder, path) : STATUS_OK;
    }
    return fail(STATUS_CORRUPT,
                "%s: neither its meta pages nor those of catalog/commit lead to a whole state: restore the store from "
                "a copy or build it again",
                path);
}
