/* test_join.c -- the catalog of a joined store against one that plain loops make of the parts' catalogs, record by
 * record. Its bytes must not depend on the order of the arguments or on the threads.
 *
 * Random parts have documents of earlier parts, deleted documents, dropped and merged shards, or no document. Other
 * cases: more documents than the threads hold at a time, hashes that are sorted in many passes, a join that was stopped
 * and continues, and one that an older program began, which recorded hashes beside the documents. */
#include "base/crc32c.h"
#include "base/memory.h"
#include "base/system/threads.h"
#include "store/parts/join_hashes_internal.h"
#include "store/writer_internal.h"
#include "tests/store_fixture.h"

enum { DIM = 4, VOCAB = 100, PARTS_MAX = 6, ROUNDS = TEST_RACES ? 2 : 6, DOCUMENTS_MAX = 400, POOL = 700 };

/* ---- records ---- */

struct entry {
    uint8_t key[16], *value;
    size_t key_bytes, value_bytes;
};
struct table {
    struct entry *at;
    size_t n, capacity;
};
struct tables {
    struct table of[TABLE_COUNT];
};

static void table_add(struct table *t, struct bytes key, struct bytes value) {
    CHECK_OK(memory_grow(&t->at, &t->capacity, t->n + 1));
    struct entry *e = &t->at[t->n++];
    CHECK(key.size <= sizeof e->key);
    memcpy(e->key, key.data, key.size);
    e->key_bytes = key.size;
    e->value_bytes = value.size;
    CHECK((e->value = malloc(value.size)) != NULL);
    memcpy(e->value, value.data, value.size);
}

static void tables_free(struct tables *t) {
    for (int i = 0; i < TABLE_COUNT; i++) {
        for (size_t k = 0; k < t->of[i].n; k++)
            free(t->of[i].at[k].value);
        memory_free(t->of[i].at);
    }
    *t = (struct tables){0};
}

static void tables_read(struct tables *out, const char *dir) {
    struct catalog *c;
    struct catalog_txn *t;
    *out = (struct tables){0};
    CHECK_OK(catalog_open(&c, dir, false, 0));
    CHECK_OK(catalog_begin(&t, c, false));
    for (int i = 0; i < TABLE_COUNT; i++) {
        struct catalog_walk *walk;
        struct bytes key, value;
        bool more = true;
        CHECK_OK(catalog_walk_begin(&walk, t, (enum catalog_table)i, 0));
        for (;;) {
            CHECK_OK(catalog_walk_next(walk, &more, &key, &value));
            if (!more) break;
            table_add(&out->of[i], key, value);
        }
        catalog_walk_end(walk);
    }
    catalog_abort(t);
    catalog_close(c);
}

static void tables_compare(const struct tables *a, const struct tables *b, enum catalog_table table) {
    const struct table *x = &a->of[table], *y = &b->of[table];
    if (x->n != y->n) fprintf(stderr, "table %s\n", catalog_table_name(table));
    CHECK_EQ(x->n, y->n);
    for (size_t i = 0; i < x->n; i++) {
        const struct entry *e = &x->at[i], *f = &y->at[i];
        const bool same = e->key_bytes == f->key_bytes && e->value_bytes == f->value_bytes &&
                          memcmp(e->key, f->key, e->key_bytes) == 0 && memcmp(e->value, f->value, e->value_bytes) == 0;
        if (!same) fprintf(stderr, "table %s, record %zu of %zu\n", catalog_table_name(table), i, x->n);
        CHECK(same);
    }
}

/* ---- the oracle, from the bytes of the parts' records (docs/store-format.md) ---- */

static void shift_number(uint8_t *at, int64_t by) {
    little_endian_put(at, little_endian_get(at, 8) + (uint64_t)by, 8);
}

/* Adds a copy of a record with other numbers: of the key, and of the value at these offsets (-1: none). */
static const struct entry *add_shifted(struct table *to, const struct entry *from, int64_t key_by, const int at[2],
                                       const int64_t by[2]) {
    const struct catalog_key key = catalog_key(catalog_key_number((struct bytes){from->key, 8}) + (uint64_t)key_by);
    table_add(to, (struct bytes){key.bytes, 8}, (struct bytes){from->value, from->value_bytes});
    struct entry *e = &to->at[to->n - 1];
    for (int i = 0; i < 2; i++)
        if (at[i] >= 0) shift_number(e->value + at[i], by[i]);
    little_endian_put(e->value + e->value_bytes - 4, crc32c(0, e->value, e->value_bytes - 4), 4);
    return e;
}

static const struct entry *find(const struct table *t, const uint8_t *key, size_t bytes) {
    size_t low = 0, high = t->n;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        const int order = memcmp(t->at[middle].key, key, bytes);
        if (order == 0) return &t->at[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static int by_key(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    return memcmp(x->key, y->key, x->key_bytes);
}
static int by_key_and_document(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    const int order = memcmp(x->key, y->key, 16);
    const uint64_t i = little_endian_get(x->value, 8), k = little_endian_get(y->value, 8);
    return order ? order : (i > k) - (i < k);
}

static void add_deleted(struct table *to, const struct entry *document) {
    enum { BYTES = 24 };
    uint8_t value[BYTES + 4];
    memcpy(value, document->value, BYTES); /* first chunk, chunks, tokens */
    little_endian_put(value + BYTES, crc32c(0, value, BYTES), 4);
    table_add(to, (struct bytes){document->key, 8}, (struct bytes){value, sizeof value});
}

/* All documents in view have an entry in hashes: keeps the first one of each hash. */
static void keep_first(struct tables *t) {
    struct table *hashes = &t->of[TABLE_HASHES];
    size_t kept = 0;
    if (hashes->n) qsort(hashes->at, hashes->n, sizeof *hashes->at, by_key_and_document);
    for (size_t i = 0; i < hashes->n; i++) {
        struct entry *e = &hashes->at[i];
        if (kept == 0 || memcmp(hashes->at[kept - 1].key, e->key, 16) != 0) {
            hashes->at[kept++] = *e;
            continue;
        }
        const struct catalog_key key = catalog_key(little_endian_get(e->value, 8));
        const struct entry *document = find(&t->of[TABLE_DOCUMENTS], key.bytes, 8);
        CHECK(document != NULL);
        add_deleted(&t->of[TABLE_DELETED], document);
        free(e->value);
    }
    hashes->n = kept;
    struct table *deleted = &t->of[TABLE_DELETED];
    if (deleted->n) qsort(deleted->at, deleted->n, sizeof *deleted->at, by_key);
}

static void add_hash(struct table *to, const struct entry *document) {
    enum { HASH_AT = 64 };
    uint8_t value[12];
    little_endian_put(value, catalog_key_number((struct bytes){document->key, 8}), 8);
    little_endian_put(value + 8, crc32c(0, value, 8), 4);
    table_add(to, (struct bytes){document->value + HASH_AT, 16}, (struct bytes){value, sizeof value});
}

static bool is_dropped(const struct tables *part, const struct entry *document) {
    enum { SHARD_AT = 24, FILES_AT = 56 };
    const struct catalog_key key = catalog_key(little_endian_get(document->value + SHARD_AT, 8));
    const struct entry *shard = find(&part->of[TABLE_SHARDS], key.bytes, 8);
    static const uint8_t zeros[24];
    CHECK(shard != NULL);
    return memcmp(shard->value + FILES_AT, zeros, sizeof zeros) == 0;
}

static void expect(struct tables *out, char parts[][FILE_PATH_MAX], int n_parts) {
    int64_t documents = 0, chunks = 0, shards = 0;
    *out = (struct tables){0};
    for (int p = 0; p < n_parts; p++) {
        struct tables part;
        struct generation_record g = {0};
        tables_read(&part, parts[p]);
        for (size_t i = 0; i < part.of[TABLE_DOCUMENTS].n; i++) {
            const struct entry *from = &part.of[TABLE_DOCUMENTS].at[i];
            const struct entry e =
                *add_shifted(&out->of[TABLE_DOCUMENTS], from, documents, (int[]){0, 24}, (int64_t[]){chunks, shards});
            g.documents++;
            g.chunks += (int64_t)little_endian_get(from->value + 8, 8);
            if (is_dropped(&part, from)) continue;
            if (find(&part.of[TABLE_DELETED], from->key, 8))
                add_deleted(&out->of[TABLE_DELETED], &e);
            else
                add_hash(&out->of[TABLE_HASHES], &e);
        }
        for (size_t i = 0; i < part.of[TABLE_RUNS].n; i++)
            add_shifted(&out->of[TABLE_RUNS], &part.of[TABLE_RUNS].at[i], chunks, (int[]){0, 8},
                        (int64_t[]){documents, shards});
        documents += g.documents;
        chunks += g.chunks;
        shards += (int64_t)part.of[TABLE_SHARDS].n;
        tables_free(&part);
    }
    keep_first(out);
}

static void check_records(const struct tables *want, const char *joined) {
    static const enum catalog_table tables[] = {TABLE_DOCUMENTS, TABLE_RUNS, TABLE_HASHES, TABLE_DELETED};
    struct tables got;
    tables_read(&got, joined);
    for (size_t i = 0; i < ARRAY_LEN(tables); i++)
        tables_compare(want, &got, tables[i]);
    tables_free(&got);
}

static void check_no_problem(const char *dir) {
    fixture_verify(dir, true);
}

/* ---- joins ---- */

static char part_paths[PARTS_MAX][FILE_PATH_MAX];

static void name_parts(const char *what, int round) {
    for (int i = 0; i < PARTS_MAX; i++)
        snprintf(part_paths[i], sizeof part_paths[i], "%s/%s-%d-%d", test_folder(), what, round, i);
}

/* order: that of the arguments, a number that seeds it; 0: as numbered. */
static enum status join_parts(const char *to, int n, uint64_t order, int threads, const struct progress *progress) {
    const char *given[PARTS_MAX];
    struct threads *pool;
    struct store_join_report report;
    struct rng r = rng_make(order, 1);
    for (int i = 0; i < n; i++)
        given[i] = part_paths[i];
    for (int i = n - 1; i > 0 && order; i--) {
        const int k = (int)rng_below(&r, (uint64_t)i + 1);
        const char *other = given[k];
        given[k] = given[i];
        given[i] = other;
    }
    CHECK_OK(threads_create(&pool, threads));
    const struct store_join how = {
        .parts = given, .n_parts = n, .publish = {.index = "exact", .threads = pool, .progress = progress}};
    const enum status s = store_join(&report, to, &how);
    threads_free(pool);
    return s;
}

static void check_same_file(const char *a, const char *b, const char *name) {
    char path[2][FILE_PATH_MAX];
    struct file_map map[2];
    CHECK_OK(file_join(path[0], a, name));
    CHECK_OK(file_join(path[1], b, name));
    for (int i = 0; i < 2; i++)
        CHECK_OK(file_map(&map[i], path[i]));
    CHECK_EQ(map[0].size, map[1].size);
    CHECK(memcmp(map[0].data, map[1].data, map[0].size) == 0);
    for (int i = 0; i < 2; i++)
        file_unmap(&map[i]);
}

/* Joins them several times, and compares each time. Returns the first joined store. */
static const char *check_join(const char *what, int n) {
    static const int threads[] = {1, 2, 3, 8};
    static char first[FILE_PATH_MAX];
    struct tables want;
    expect(&want, part_paths, n);
    for (size_t i = 0; i < ARRAY_LEN(threads); i += TEST_RACES ? 3 : 1) {
        char to[FILE_PATH_MAX];
        snprintf(to, sizeof to, "%s/%s-joined-%zu", test_folder(), what, i);
        CHECK_OK(join_parts(to, n, i, threads[i], NULL));
        check_records(&want, to);
        if (i == 0) snprintf(first, sizeof first, "%s", to);
        check_same_file(first, to, "catalog/data.mdb");
    }
    tables_free(&want);
    return first;
}

/* ---- random parts ---- */

static struct store_part part_of(int i, int n) {
    return (struct store_part){.part = i + 1, .parts = n};
}

static void make_part(const char *dir, int i, int n, struct rng *r, int64_t documents) {
    const struct store_writer_config config = fixture_config(DIM, VOCAB);
    const struct store_part part = part_of(i, n);
    struct store_writer *w;
    bool finished;
    CHECK_OK(store_writer_open(&w, dir, &config, true));
    CHECK_OK(store_writer_part(w, &part, &finished));
    for (int64_t done = 0; done < documents;) {
        const int64_t here = 1 + (int64_t)rng_below(r, 90);
        bool duplicate;
        CHECK_OK(store_shard_begin(w));
        /* the first is new, because a shard without documents cannot be sealed */
        CHECK_OK(fixture_add(w, &config, POOL + i * DOCUMENTS_MAX + done, &duplicate));
        for (int64_t k = 1; k < here; k++)
            CHECK_OK(fixture_add(w, &config, (int64_t)rng_below(r, POOL), &duplicate));
        CHECK_OK(store_shard_seal(w, &done, sizeof done));
        done += here;
    }
    if (documents == 0)
        CHECK_OK(store_writer_part_empty(w));
    else
        CHECK_OK(store_writer_publish(
            w, &(struct store_publish){.index = "exact", .merge_chunks = rng_below(r, 2) ? 0 : 200}));
    store_writer_close(w);
}

static void change_part(const char *dir, struct rng *r) {
    struct tables t;
    tables_read(&t, dir);
    const int64_t documents = (int64_t)t.of[TABLE_DOCUMENTS].n, shards = (int64_t)t.of[TABLE_SHARDS].n;
    tables_free(&t);
    if (rng_below(r, 2)) {
        int64_t numbers[8], n = 0;
        struct store_delete_report report;
        for (int i = 0; i < 8; i++)
            numbers[n++] = (int64_t)rng_below(r, (uint64_t)documents);
        CHECK_OK(store_delete(&report, dir, &(struct store_delete){.documents = numbers, .n_documents = n}));
    }
    if (shards > 2 && rng_below(r, 3) == 0) {
        struct store_drop_report report;
        const int64_t shard = (int64_t)rng_below(r, (uint64_t)shards);
        const struct store_range range = {shard, shard + 1};
        CHECK_OK(store_drop(&report, dir,
                            &(struct store_drop){.ranges = &range, .n_ranges = 1, .publish = {.index = "exact"}}));
    }
}

static void random_parts(void) {
    for (int round = 0; round < ROUNDS; round++) {
        struct rng r = rng_make(test_seed(), (uint64_t)round);
        const int n = 1 + (int)rng_below(&r, PARTS_MAX), full = (int)rng_below(&r, (uint64_t)n);
        char what[32];
        name_parts("random", round);
        for (int i = 0; i < n; i++) {
            const int64_t documents = i == full || rng_below(&r, 4) ? 1 + (int64_t)rng_below(&r, DOCUMENTS_MAX) : 0;
            make_part(part_paths[i], i, n, &r, documents);
            if (documents > 0 && rng_below(&r, 2)) change_part(part_paths[i], &r);
        }
        snprintf(what, sizeof what, "random-%d", round);
        check_no_problem(check_join(what, n));
    }
}

/* ---- many documents ---- */

enum { MANY = 17000, MANY_SHARD = 3000, MANY_PARTS = 2 };

/* Both parts have the same documents, so that all of the second one but the last are copies. */
static void make_many(void) {
    const struct store_writer_config config = fixture_config(DIM, VOCAB);
    name_parts("many", 0);
    for (int i = 0; i < MANY_PARTS; i++) {
        const struct store_part part = part_of(i, MANY_PARTS);
        const int64_t end = MANY + 1000 * i;
        struct store_writer *w;
        bool finished;
        CHECK_OK(store_writer_open(&w, part_paths[i], &config, true));
        CHECK_OK(store_writer_part(w, &part, &finished));
        for (int64_t at = 0; at < end; at += MANY_SHARD)
            CHECK_OK(fixture_shard(w, &config, at, at + MANY_SHARD < end ? at + MANY_SHARD : end));
        CHECK_OK(store_writer_publish(w, &(struct store_publish){.index = "exact"}));
        store_writer_close(w);
    }
}

/* Removes hashes and copies of a joined store, and makes them again from the documents, in passes of `most`. */
static void make_hashes_again(const char *dir, int64_t most, int threads) {
    const struct store_writer_config config = fixture_config(DIM, VOCAB);
    struct store_writer *w;
    struct catalog_txn *t;
    struct threads *pool;
    CHECK_OK(store_writer_open(&w, dir, &config, false));
    CHECK_OK(catalog_begin(&t, w->catalog, true));
    CHECK_OK(catalog_empty(t, TABLE_HASHES));
    CHECK_OK(catalog_empty(t, TABLE_DELETED)); /* the parts have no deleted documents */
    CHECK_OK(catalog_commit(t));
    CHECK_OK(threads_create(&pool, threads));
    CHECK_OK(join_hashes(w, NULL, most, &(struct store_publish){.threads = pool}));
    threads_free(pool);
    store_writer_close(w);
}

static void many_documents(void) {
    static const struct {
        int64_t most;
        int threads;
    } cases[] = {{1 << 22, 1}, {1 << 22, 3}, {MANY, 2}, {1999, 4}, {100, 2}};
    struct tables want;
    make_many();
    const char *joined = check_join("many", MANY_PARTS);
    expect(&want, part_paths, MANY_PARTS);
    CHECK_EQ(want.of[TABLE_DELETED].n, MANY);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        if (TEST_RACES && i != 1 && i != 3) continue; /* more threads, one pass and many */
        make_hashes_again(joined, cases[i].most, cases[i].threads);
        check_records(&want, joined);
    }
    tables_free(&want);
}

/* ---- stopped joins ---- */

struct stop {
    int after, calls;
};

static bool stop_requested(void *context) {
    struct stop *s = context;
    return ++s->calls > s->after;
}

/* Puts what a program that recorded hashes beside documents would have left. */
static void put_old_hashes(const char *dir) {
    const struct store_writer_config config = fixture_config(DIM, VOCAB);
    struct store_writer *w;
    struct catalog_txn *t;
    CHECK_OK(store_writer_open(&w, dir, &config, false));
    CHECK_OK(catalog_begin(&t, w->catalog, true));
    CHECK(w->sealed.documents > 0);
    const bool hashed = catalog_count(t, TABLE_HASHES) > 0; /* stopped after all documents, in either program */
    for (int64_t i = 0; i < w->sealed.documents && !hashed; i++) {
        struct document_record d;
        bool found, deleted;
        int64_t other;
        CHECK_OK(record_get_document(t, w->catalog, &d, i));
        CHECK_OK(record_is_deleted(t, i, &deleted));
        CHECK_OK(record_find_hash(t, d.hash, &found, &other));
        const struct deleted_record copy = {i, d.first_chunk, d.chunks, d.tokens};
        if (!deleted) CHECK_OK(found ? record_put_deleted(t, &copy) : record_put_hash(t, d.hash, i));
    }
    CHECK_OK(catalog_commit(t));
    store_writer_close(w);
}

static void stopped_joins(void) {
    struct rng r = rng_make(test_seed(), 1000);
    struct tables want;
    int stopped = 0;
    name_parts("stopped", 0);
    for (int i = 0; i < 4; i++)
        make_part(part_paths[i], i, 4, &r, 100);
    expect(&want, part_paths, 4);
    for (int after = 0, done = 0; !done; after += TEST_RACES ? 3 : 1) {
        for (int old = 0; old < 2; old++) {
            char to[FILE_PATH_MAX];
            struct stop stop = {.after = after};
            const struct progress progress = {.stop_requested = stop_requested, .context = &stop};
            snprintf(to, sizeof to, "%s/continued-%d-%d", test_folder(), after, old);
            const enum status s = join_parts(to, 4, 0, 2, &progress);
            done = s == STATUS_OK;
            if (!done) CHECK_FAILS(s, STATUS_INTERRUPTED, "run the same command again");
            stopped += !done;
            if (!done && old) put_old_hashes(to);
            if (!done) CHECK_OK(join_parts(to, 4, 3, 2, NULL));
            check_records(&want, to);
            check_no_problem(to);
        }
    }
    CHECK(TEST_RACES || stopped >= 2 * 5); /* after each part, and after the hashes */
    tables_free(&want);
}

/* A damaged document is named, by any number of threads. */
static void damaged_part(void) {
    struct rng r = rng_make(test_seed(), 2000);
    name_parts("damaged", 0);
    for (int i = 0; i < 2; i++)
        make_part(part_paths[i], i, 2, &r, 200);
    const struct store_writer_config config = fixture_config(DIM, VOCAB);
    struct store_writer *w;
    struct catalog_txn *t;
    CHECK_OK(store_writer_open(&w, part_paths[1], &config, false));
    CHECK_OK(catalog_begin(&t, w->catalog, true));
    for (uint64_t i = 50; i < 53; i++) {
        const struct catalog_key key = catalog_key(i);
        CHECK_OK(catalog_delete(t, TABLE_DOCUMENTS, key.bytes, sizeof key.bytes));
    }
    CHECK_OK(catalog_commit(t));
    store_writer_close(w);
    for (int threads = 1; threads < 4; threads++) {
        char to[FILE_PATH_MAX];
        snprintf(to, sizeof to, "%s/damaged-%d", test_folder(), threads);
        CHECK_FAILS(join_parts(to, 2, 0, threads, NULL), STATUS_CORRUPT,
                    "document 50 is missing, run drt-index verify");
        CHECK(strstr(status_message(), part_paths[1]));
    }
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    random_parts();
    many_documents();
    stopped_joins();
    damaged_part();
    return test_done();
}
