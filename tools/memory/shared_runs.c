/* shared_runs.c -- a token lies in a shared run of L tokens or more if, and only if, it lies in L tokens in a row that
 * are shared. So the texts' rows of 9, 13, 17 and 33 tokens are put into a table by their hash, the store's are looked
 * up in it, and what was found is marked. The longer rows of the store are only looked up where the 9 tokens at their
 * end are in the table. */
#include "tools/memory/shared_runs.h"
#include "base/memory.h"
#include <string.h>

enum { LEVELS = RUN_CLASSES - 1, LONGEST = 33 };
const int run_lengths[LEVELS] = {9, 13, 17, LONGEST};

struct shared_runs {
    int32_t *ids; /* of all texts, each followed by -1 */
    int64_t n;
    size_t ids_capacity;
    int64_t *excluded;
    int64_t n_excluded;
    size_t excluded_capacity;
    uint64_t *table; /* [mask + 1] hashes, 0: free; the lowest bit: found in the store */
    uint64_t mask;
    uint8_t *class;
};

enum status shared_runs_create(struct shared_runs **out) {
    return memory_allocate_zero(out, 1);
}

void shared_runs_free(struct shared_runs *r) {
    if (!r) return;
    memory_free(r->ids);
    memory_free(r->excluded);
    memory_free(r->table);
    memory_free(r->class);
    memory_free(r);
}

enum status shared_runs_add(struct shared_runs *r, int64_t *first, const int32_t *ids, int64_t n) {
    TRY(memory_grow(&r->ids, &r->ids_capacity, (size_t)(r->n + n + 1)));
    memcpy(r->ids + r->n, ids, (size_t)n * sizeof *ids);
    *first = r->n;
    r->n += n;
    r->ids[r->n++] = -1;
    return STATUS_OK;
}

enum status shared_runs_exclude(struct shared_runs *r, int64_t document) {
    TRY(memory_grow(&r->excluded, &r->excluded_capacity, (size_t)r->n_excluded + 1));
    r->excluded[r->n_excluded++] = document;
    return STATUS_OK;
}

/* ---- hashes of the last tokens ---- */

static uint64_t rotate(uint64_t x, int bits) {
    return x << (bits & 63) | x >> (-bits & 63);
}
static uint64_t token_hash(int32_t id) {
    uint64_t x = (uint64_t)id + 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

/* The last tokens of a running text, and a cyclic hash of the last run_lengths[level] of them. */
struct run_window {
    uint64_t last[LONGEST], hash[LEVELS];
    int64_t n; /* tokens since the last break */
};

static void window_push(struct run_window *w, int32_t id) {
    if (id < 0) {
        *w = (struct run_window){0};
        return;
    }
    uint64_t h = token_hash(id);
    for (int level = 0; level < LEVELS; level++) {
        int length = run_lengths[level];
        w->hash[level] = rotate(w->hash[level], 1) ^ h;
        if (w->n >= length) w->hash[level] ^= rotate(w->last[(w->n - length) % LONGEST], length);
    }
    w->last[w->n++ % LONGEST] = h;
}

/* Never 0; the lowest bit is free. */
static uint64_t window_key(const struct run_window *w, int level) {
    uint64_t key = (w->hash[level] + (uint64_t)level) * 0x9E3779B97F4A7C15u;
    return (key ^ key >> 29) & ~1ull ? (key ^ key >> 29) & ~1ull : 2;
}

/* ---- the table ---- */

static uint64_t *table_cell(const struct shared_runs *r, uint64_t key) {
    uint64_t i = key >> 1 & r->mask;
    while (r->table[i] && (r->table[i] & ~1ull) != key)
        i = (i + 1) & r->mask;
    return &r->table[i];
}

static enum status table_fill(struct shared_runs *r) {
    struct run_window w = {0};
    uint64_t size = 1024;
    while (size < 2 * LEVELS * (uint64_t)r->n)
        size *= 2;
    r->mask = size - 1;
    TRY(memory_allocate_zero(&r->table, size));
    for (int64_t i = 0; i < r->n; i++) {
        window_push(&w, r->ids[i]);
        for (int level = 0; level < LEVELS; level++)
            if (w.n >= run_lengths[level]) {
                uint64_t key = window_key(&w, level);
                *table_cell(r, key) = key;
            }
    }
    return STATUS_OK;
}

static void table_find(const struct shared_runs *r, const struct run_window *w) {
    for (int level = 0; level < LEVELS && w->n >= run_lengths[level]; level++) {
        uint64_t *cell = table_cell(r, window_key(w, level));
        if (*cell) *cell |= 1;
        if (!*cell && level == 0) return;
    }
}

/* ---- the store ---- */

static bool is_excluded(const struct shared_runs *r, int64_t document) {
    for (int64_t i = 0; i < r->n_excluded; i++)
        if (r->excluded[i] == document) return true;
    return false;
}

static enum status scan_store(const struct shared_runs *r, struct store_view *view, const struct progress *progress) {
    struct store_info info;
    struct store_chunk c;
    struct run_window w = {0};
    int32_t *ids = NULL;
    int64_t document = -1;
    bool excluded = false;
    enum status s = STATUS_OK;
    store_view_info(view, &info);
    const int length = info.fingerprint.chunk_tokens;
    TRY(memory_allocate(&ids, (size_t)length));
    for (int64_t chunk = 0; chunk < info.chunks && s == STATUS_OK; chunk++) {
        if (chunk % 4096 == 0 && progress_stop_requested(progress)) s = fail(STATUS_INTERRUPTED, "stopped by a signal");
        if (s == STATUS_OK) s = store_view_chunk(view, &c, ids, chunk);
        if (s == STATUS_NOT_FOUND) { /* of a shard that was taken out */
            s = STATUS_OK;
            continue;
        }
        if (s != STATUS_OK) break;
        if (c.document != document) {
            w = (struct run_window){0};
            document = c.document;
            excluded = is_excluded(r, document);
        }
        for (int i = 0; i < length && !excluded; i++) {
            window_push(&w, ids[i]);
            table_find(r, &w);
        }
    }
    memory_free(ids);
    return s;
}

enum status shared_runs_find(struct shared_runs *r, struct store_view *view, const struct progress *progress) {
    struct run_window w = {0};
    int64_t covered[LEVELS] = {0}; /* tokens before these numbers are marked */
    TRY(table_fill(r));
    TRY(scan_store(r, view, progress));
    TRY(memory_allocate_zero(&r->class, (size_t)r->n + 1));
    for (int64_t i = 0; i < r->n; i++) {
        window_push(&w, r->ids[i]);
        for (int level = 0; level < LEVELS && w.n >= run_lengths[level]; level++) {
            if (!(*table_cell(r, window_key(&w, level)) & 1)) continue;
            int64_t at = i + 1 - run_lengths[level];
            for (at = at > covered[level] ? at : covered[level]; at <= i; at++)
                if (r->class[at] < level + 1) r->class[at] = (uint8_t)(level + 1);
            covered[level] = i + 1;
        }
    }
    return STATUS_OK;
}

int shared_runs_class(const struct shared_runs *r, int64_t token) {
    return r->class ? r->class[token] : 0;
}
