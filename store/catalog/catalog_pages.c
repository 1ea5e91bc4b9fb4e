/* catalog_pages.c -- reads LMDB's data file (format 1) without LMDB, to find damage before LMDB reads it.
 *
 * LMDB does not check its file: a flipped bit in a page header or page number makes it read outside the map, and the
 * process crashes. This walk visits every page of the newest trees once. It checks every number that LMDB follows: page
 * numbers, offsets, sizes, the order of keys within a table, and counts. It also checks that no page is both in use and
 * free. It does not find a flipped bit in a key or value; store_verify reads these as records.
 *
 * Layout: page = {u64 number, u16 pad, u16 flags, u16 lower, u16 upper | u32 pages}, then u16 offsets of nodes. Node
 * = {u16 lo, u16 hi, u16 flags, u16 key bytes, key, data}. In a branch, lo/hi/flags are the child's number; in a
 * leaf, lo/hi are the value's size. Table = {u32 pad, u16 flags, u16 depth, u64 branch, leaf, overflow pages,
 * entries, root}. */
#include "base/file.h"
#include "base/little_endian.h"
#include "base/memory.h"
#include "store/catalog/catalog_internal.h"
#include <string.h>

enum {
    PAGE_HEADER = 16,
    NODE_HEADER = 8,
    TABLE_BYTES = 48,
    DEPTH_MAX = 32,
    KEY_MAX = 511,
    META_RETRIES = 3,
    UNWRITTEN_PAGES = 1024
};
enum { PAGE_BRANCH = 1, PAGE_LEAF = 2, PAGE_OVERFLOW = 4, PAGE_META = 8, PAGE_DIRTY = 16 };
enum { NODE_BIG = 1, NODE_TABLE = 2, TABLE_INTEGER_KEY = 8 };
enum role { ROLE_FREE, ROLE_MAIN, ROLE_RECORDS };
static const uint32_t lmdb_magic = 0xBEEFC0DE;
static const uint64_t no_page = UINT64_MAX;

struct table {
    unsigned flags, depth;
    uint64_t entries, root;
};
struct meta {
    uint64_t map_bytes, last_page, txn;
    uint32_t page_bytes;
    struct table free, main;
};
struct check {
    const char *path;
    struct file_map map;
    const uint8_t (*metas)[CATALOG_META_BYTES]; /* used instead of the file's meta pages, if not NULL */
    struct meta meta;
    uint64_t pages;        /* whole pages in the file */
    uint8_t *seen;         /* one bit for each page */
    uint64_t entries;      /* of the current table */
    const uint8_t *before; /* the node with the previous key of the current table */
    bool before_is_branch;
    uint64_t freed_by; /* highest key of the free table: the last transaction that freed pages */
};

static enum status catalog_pages_damaged(const struct check *c, uint64_t page, const char *what) {
    return fail(
        STATUS_CORRUPT,
        "%s: page %llu: %s: the catalog is damaged, restore it from a copy or build the store again in a new folder",
        c->path, (unsigned long long)page, what);
}

static struct table table_of(const uint8_t *at) {
    return (struct table){(unsigned)little_endian_get(at + 4, 2), (unsigned)little_endian_get(at + 6, 2),
                          little_endian_get(at + 32, 8), little_endian_get(at + 40, 8)};
}

static enum status read_meta(const struct check *c, uint64_t page, uint64_t offset, struct meta *out) {
    if (c->map.size < offset + CATALOG_META_BYTES) return catalog_pages_damaged(c, page, "the file ends in it");
    const uint8_t *p = c->metas ? c->metas[page] : c->map.data + offset, *m = p + PAGE_HEADER;
    if (!(little_endian_get(p + 10, 2) & PAGE_META) || little_endian_get(m, 4) != lmdb_magic)
        return catalog_pages_damaged(c, page, "not a meta page");
    if (little_endian_get(m + 4, 4) != 1)
        return fail(STATUS_VERSION, "%s: LMDB data format %llu, this program reads 1", c->path,
                    (unsigned long long)little_endian_get(m + 4, 4));
    *out =
        (struct meta){.map_bytes = little_endian_get(m + 16, 8), .page_bytes = (uint32_t)little_endian_get(m + 24, 4)};
    out->free = table_of(m + 24);
    out->main = table_of(m + 24 + TABLE_BYTES);
    out->last_page = little_endian_get(m + 24 + 2 * TABLE_BYTES, 8);
    out->txn = little_endian_get(m + 32 + 2 * TABLE_BYTES, 8);
    uint32_t size = out->page_bytes;
    if (size < 512 || size > 32768 || (size & (size - 1))) return catalog_pages_damaged(c, page, "page size");
    if (out->free.flags != TABLE_INTEGER_KEY || out->main.flags != 0)
        return catalog_pages_damaged(c, page, "table flags");
    if (out->map_bytes >> 47 || out->last_page >= out->map_bytes / size)
        return catalog_pages_damaged(c, page, "map size or last page");
    return STATUS_OK;
}

/* Both meta pages must be valid, as for LMDB. Returns the newer one, or that of `txn` (STATUS_NOT_FOUND: a writer has
 * committed meanwhile). */
static enum status read_metas(struct check *c, uint64_t txn) {
    struct meta a, b;
    TRY(read_meta(c, 0, 0, &a));
    TRY(read_meta(c, 1, a.page_bytes, &b));
    if (b.page_bytes != a.page_bytes) return catalog_pages_damaged(c, 1, "page size");
    c->meta = b.txn > a.txn ? b : a;
    if (txn && a.txn == txn) c->meta = a;
    if (txn && b.txn == txn) c->meta = b;
    c->pages = c->map.size / a.page_bytes;
    /* The file may end before the last page, because LMDB does not write a page that one transaction takes and
     * frees. */
    if (c->meta.last_page >= 2 * c->pages + UNWRITTEN_PAGES)
        return catalog_pages_damaged(c, c->meta.txn & 1, "the last page is far beyond the end of the file");
    return txn && c->meta.txn != txn ? STATUS_NOT_FOUND : STATUS_OK;
}

/* Marks a page as visited. A second visit means a cycle, or a page with two owners. */
static enum status catalog_pages_visit(struct check *c, uint64_t page) {
    if (page < 2 || page >= c->pages || page > c->meta.last_page)
        return catalog_pages_damaged(c, page, "a link points outside the file");
    uint8_t bit = (uint8_t)(1u << (page & 7));
    if (c->seen[page >> 3] & bit) return catalog_pages_damaged(c, page, "reached twice");
    c->seen[page >> 3] |= bit;
    return STATUS_OK;
}

static const uint8_t *page_at(const struct check *c, uint64_t page) {
    return c->map.data + page * c->meta.page_bytes;
}

static enum status check_overflow(struct check *c, uint64_t page, uint64_t bytes) {
    TRY(catalog_pages_visit(c, page));
    const uint8_t *p = page_at(c, page);
    uint64_t count = little_endian_get(p + 12, 4),
             needed = (bytes + PAGE_HEADER + c->meta.page_bytes - 1) / c->meta.page_bytes;
    if (little_endian_get(p, 8) != page || little_endian_get(p + 10, 2) != PAGE_OVERFLOW || count < needed ||
        count > c->pages - page)
        return catalog_pages_damaged(c, page, "overflow header");
    for (uint64_t i = 1; i < count; i++)
        TRY(catalog_pages_visit(c, page + i));
    return STATUS_OK;
}

/* Checks a record of the free table: the length of a list, then its pages in descending order. */
static enum status check_free_list(struct check *c, uint64_t page, const uint8_t *list, uint64_t bytes) {
    uint64_t count = bytes >= 8 ? little_endian_get(list, 8) : no_page, before = no_page;
    if (bytes < 8 || count > bytes / 8 - 1) return catalog_pages_damaged(c, page, "length of a free list");
    for (uint64_t i = 1; i <= count; i++) {
        uint64_t free_page = little_endian_get(list + 8 * i, 8);
        if (free_page < 2 || free_page > c->meta.last_page || free_page >= before)
            return catalog_pages_damaged(c, page, "a free list");
        before = free_page;
        if (free_page >= c->pages) continue; /* allocated and freed before it was ever written */
        TRY(catalog_pages_visit(c, free_page));
    }
    return STATUS_OK;
}

static enum status check_tree(struct check *c, const struct table *t, enum role role);

static enum status check_leaf_node(struct check *c, uint64_t page, const uint8_t *node, size_t limit, enum role role) {
    uint64_t key_bytes = little_endian_get(node + 6, 2),
             bytes = little_endian_get(node, 2) | little_endian_get(node + 2, 2) << 16,
             flags = little_endian_get(node + 4, 2);
    bool big = flags & NODE_BIG;
    if (NODE_HEADER + key_bytes + (big ? 8 : bytes) > limit) return catalog_pages_damaged(c, page, "size of a record");
    const uint8_t *data = node + NODE_HEADER + key_bytes;
    if (flags & ~(uint64_t)(NODE_BIG | (role == ROLE_MAIN ? NODE_TABLE : 0)))
        return catalog_pages_damaged(c, page, "flags of a record");
    if (key_bytes == 0 || key_bytes > KEY_MAX || (role == ROLE_FREE && key_bytes != 8))
        return catalog_pages_damaged(c, page, "size of a key");
    c->entries++;
    if (role == ROLE_FREE && little_endian_get(node + NODE_HEADER, 8) > c->freed_by)
        c->freed_by = little_endian_get(node + NODE_HEADER, 8);
    if (role == ROLE_MAIN) {
        if (flags != NODE_TABLE || bytes != TABLE_BYTES) return catalog_pages_damaged(c, page, "the record of a table");
        struct table t = table_of(data);
        if (t.flags != 0) return catalog_pages_damaged(c, page, "flags of a table");
        uint64_t entries = c->entries;
        TRY(check_tree(c, &t, ROLE_RECORDS));
        c->entries = entries;
        c->before = node;
        c->before_is_branch = false;
        return STATUS_OK;
    }
    if (big) {
        uint64_t first = little_endian_get(data, 8);
        TRY(check_overflow(c, first, bytes));
        data = page_at(c, first) + PAGE_HEADER;
    }
    return role == ROLE_FREE ? check_free_list(c, page, data, bytes) : STATUS_OK;
}

/* Keys of a page ascend. LMDB does not read the first key of a branch, which may be empty. */
static bool keys_rise(const uint8_t *a, const uint8_t *b, enum role role) {
    size_t na = little_endian_get(a + 6, 2), nb = little_endian_get(b + 6, 2);
    if (role == ROLE_FREE)
        return na == 8 && nb == 8 && little_endian_get(a + NODE_HEADER, 8) < little_endian_get(b + NODE_HEADER, 8);
    int order = memcmp(a + NODE_HEADER, b + NODE_HEADER, na < nb ? na : nb);
    return order < 0 || (order == 0 && na < nb);
}

/* Checks the order of keys over the whole tree: a branch's key must be greater than all keys left of it, and at most
 * the first key right of it. Otherwise LMDB would search for a key in the wrong page. */
static bool catalog_pages_follows(struct check *c, const uint8_t *node, bool leaf, enum role role) {
    const uint8_t *before = c->before;
    bool good =
        !before || (leaf && c->before_is_branch ? !keys_rise(node, before, role) : keys_rise(before, node, role));
    c->before = node;
    c->before_is_branch = !leaf;
    return good;
}

static enum status check_page(struct check *c, uint64_t page, unsigned level, unsigned depth, enum role role) {
    TRY(catalog_pages_visit(c, page));
    const uint8_t *p = page_at(c, page);
    size_t size = c->meta.page_bytes, lower = little_endian_get(p + 12, 2), upper = little_endian_get(p + 14, 2);
    uint64_t flags = little_endian_get(p + 10, 2) & ~(uint64_t)PAGE_DIRTY;
    bool leaf = level == depth;
    if (little_endian_get(p, 8) != page || flags != (leaf ? PAGE_LEAF : PAGE_BRANCH))
        return catalog_pages_damaged(c, page, "page header");
    if (lower < PAGE_HEADER || lower % 2 || lower > upper || upper > size)
        return catalog_pages_damaged(c, page, "bounds of a page");
    size_t count = (lower - PAGE_HEADER) / 2;
    if (count < (leaf ? 1u : 2u)) return catalog_pages_damaged(c, page, "too few records in a page");
    for (size_t i = 0; i < count; i++) {
        size_t at = little_endian_get(p + PAGE_HEADER + 2 * i, 2);
        if (at < upper || at % 2 || at + NODE_HEADER > size)
            return catalog_pages_damaged(c, page, "offset of a record");
        const uint8_t *node = p + at;
        if (at + NODE_HEADER + little_endian_get(node + 6, 2) > size)
            return catalog_pages_damaged(c, page, "size of a key");
        if ((leaf || i > 0) && !catalog_pages_follows(c, node, leaf, role))
            return catalog_pages_damaged(c, page, "order of keys");
        if (leaf)
            TRY(check_leaf_node(c, page, node, size - at, role));
        else
            TRY(check_page(c,
                           little_endian_get(node, 2) | little_endian_get(node + 2, 2) << 16 |
                               little_endian_get(node + 4, 2) << 32,
                           level + 1, depth, role));
    }
    return STATUS_OK;
}

static enum status check_tree(struct check *c, const struct table *t, enum role role) {
    c->entries = 0;
    c->before = NULL;
    if (t->root == no_page)
        return t->depth == 0 && t->entries == 0 ? STATUS_OK
                                                : catalog_pages_damaged(c, 0, "an empty table with records");
    if (t->depth < 1 || t->depth > DEPTH_MAX) return catalog_pages_damaged(c, t->root, "depth of a table");
    TRY(check_page(c, t->root, 1, t->depth, role));
    return c->entries == t->entries ? STATUS_OK : catalog_pages_damaged(c, t->root, "number of records of a table");
}

static enum status check_all(struct check *c) {
    TRY(memory_allocate_zero(&c->seen, (size_t)(c->pages / 8 + 1)));
    TRY(check_tree(c, &c->meta.main, ROLE_MAIN));
    return check_tree(c, &c->meta.free, ROLE_FREE);
}

enum status catalog_check_meta(const char *path) {
    struct check c = {.path = path};
    enum status s = STATUS_OK;
    /* A writer may replace a meta page during the read, so a page that looks torn is read again. */
    for (int i = 0; i < META_RETRIES; i++) {
        TRY(file_map(&c.map, path));
        s = read_metas(&c, 0);
        file_unmap(&c.map);
        if (s != STATUS_CORRUPT) break;
    }
    return s;
}

enum status catalog_is_unwritten(bool *unwritten, const char *folder) {
    char path[FILE_PATH_MAX], record[FILE_PATH_MAX];
    struct check c = {.path = path};
    struct meta first;
    TRY(file_join(path, folder, "data.mdb"));
    TRY(file_join(record, folder, "commit"));
    *unwritten = !file_exists(path);
    if (*unwritten) return STATUS_OK;
    TRY(file_map(&c.map, path));
    /* A file with a recorded commit has lost its end. So has a file whose first page is of a later transaction. */
    *unwritten = c.map.size == 0 || (!file_exists(record) && read_meta(&c, 0, 0, &first) == STATUS_OK &&
                                     first.txn == 0 && c.map.size < 2 * (uint64_t)first.page_bytes);
    file_unmap(&c.map);
    return STATUS_OK;
}

enum status catalog_check_pages(const char *path, uint64_t txn, uint64_t pages_max) {
    struct check c = {.path = path};
    TRY(file_map(&c.map, path));
    enum status s = read_metas(&c, txn);
    if (s == STATUS_OK && !(pages_max && c.pages > pages_max)) s = check_all(&c);
    memory_free(c.seen);
    file_unmap(&c.map);
    return s;
}

enum status catalog_check_pages_under(uint64_t *freed_by, const char *path,
                                      const uint8_t metas[2][CATALOG_META_BYTES]) {
    struct check c = {.path = path, .metas = metas};
    TRY(file_map(&c.map, path));
    enum status s = read_metas(&c, 0);
    if (s == STATUS_OK) s = check_all(&c);
    *freed_by = c.freed_by;
    memory_free(c.seen);
    file_unmap(&c.map);
    return s;
}
