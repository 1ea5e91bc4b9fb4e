/* test_store_damage.c -- damaged, foreign, full and read-only stores: found, named, refused or repaired. */
#include "tests/unit/store/damage_fixture.h"
#include <dirent.h>
#include <lmdb.h>
#include <sys/mount.h>

enum { DIM = 16, VOCAB = 200 };
static struct store_writer_config config;

static void fresh_store(const char *name) {
    fresh_copy(name, "pristine");
}

static void search_all(struct store_hit *hits, int n) {
    struct store *s;
    struct store_view *v;
    CHECK_OK(store_open(&s, dir));
    CHECK_OK(store_view_open(&v, s));
    for (int i = 0; i < n; i++) {
        float query[DIM];
        fixture_vector(query, DIM, (uint64_t)i * 3, 0.6f);
        struct store_search how = {.k = 1};
        CHECK_OK(store_view_search(v, &hits[i], query, 1, &how));
    }
    store_view_close(v);
    store_close(s);
}

/* Each data file in turn is missing, shorter, longer, or has a flipped byte. */
static void data_files(void) {
    static const struct {
        const char *name, *remedy;
        bool derived;
    } files[] = {
        {"tokens/00001.tok", "run drt-index drop --shard 1, then add its documents again", false},
        {"landmarks/00000.f16", "run drt-index repair --model with the model that made the store", false},
        {"index/00001.faiss", "run drt-index repair", true},
        {"index/00002.faiss", "run drt-index repair", true},
    };
    struct found f;
    struct store_hit before[10], after[10];
    fresh_store("files");
    CHECK_EQ(verify(true, &f), 0);
    search_all(before, 10);
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        for (int damage = 0; damage < 4; damage++) {
            fresh_store("files");
            const char *path = in_store(files[i].name);
            struct stat st;
            CHECK(stat(path, &st) == 0);
            if (damage == 0) CHECK(unlink(path) == 0);
            if (damage == 1) CHECK(truncate(path, st.st_size - 7) == 0);
            if (damage == 2) CHECK(truncate(path, st.st_size + 7) == 0);
            if (damage == 3) flip(path, st.st_size / 2, 4);
            CHECK_EQ(verify(false, &f), damage < 3 ? 1 : 0); /* checks sizes only */
            CHECK_EQ(verify(true, &f), 1);
            CHECK_STR(f.file, path);
            CHECK(strstr(f.problem, damage == 0 ? "missing" : damage == 3 ? "CRC32C" : "are recorded"));
            CHECK_STR(f.remedy, files[i].remedy);
            struct store *s;
            if (damage < 3 && !files[i].derived) CHECK_FAILS(store_open(&s, dir), STATUS_CORRUPT, files[i].remedy);
            struct found left = {0};
            int64_t problems;
            CHECK_OK(store_repair(dir, NULL, NULL, remember, &left, &problems));
            CHECK_EQ(problems, files[i].derived ? 0 : 1);
            CHECK_EQ(verify(true, &f), files[i].derived ? 0 : 1);
            if (!files[i].derived) CHECK_STR(left.file, path);
            if (!files[i].derived) CHECK_STR(left.remedy, files[i].remedy);
            if (files[i].derived) {
                search_all(after, 10);
                CHECK(fixture_same_hits(before, after, 10));
            }
        }
}

static void orphan_files_are_harmless(void) {
    struct found f;
    fresh_store("orphans");
    fclose(fopen(in_store("tokens/00077.tok"), "w"));
    fclose(fopen(in_store("index/00099.faiss.tmp"), "w"));
    fclose(fopen(in_store("index/NOTE"), "w"));
    CHECK_EQ(verify(true, &f), 0);
    struct store_writer *w;
    CHECK_OK(store_writer_open(&w, dir, &config, false));
    store_writer_close(w);
    CHECK(access(in_store("tokens/00077.tok"), F_OK) != 0);
    CHECK(access(in_store("index/00099.faiss.tmp"), F_OK) != 0);
    CHECK(access(in_store("index/NOTE"), F_OK) == 0);
}

/* ---- the catalog, changed through LMDB itself ---- */

static void edit(const char *table, const void *key, size_t key_bytes, const void *value, size_t bytes) {
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    MDB_val k = {key_bytes, (void *)(uintptr_t)key}, v = {bytes, (void *)(uintptr_t)value};
    CHECK(mdb_env_create(&env) == 0);
    mdb_env_set_maxdbs(env, 16);
    CHECK(mdb_env_open(env, in_store("catalog"), 0, 0644) == 0);
    CHECK(mdb_txn_begin(env, NULL, 0, &txn) == 0);
    CHECK(mdb_dbi_open(txn, table, 0, &dbi) == 0);
    if (!key)
        CHECK(mdb_drop(txn, dbi, 0) == 0);
    else if (value)
        CHECK(mdb_put(txn, dbi, &k, &v, 0) == 0);
    else
        CHECK(mdb_del(txn, dbi, &k, NULL) == 0);
    CHECK(mdb_txn_commit(txn) == 0);
    mdb_env_close(env);
}

static void records(void) {
    struct found f;
    int64_t problems;
    static const char *const derived[] = {"hashes", "runs", "segments"};
    for (size_t i = 0; i < ARRAY_LEN(derived); i++) {
        fresh_store("records");
        edit(derived[i], NULL, 0, NULL, 0);
        CHECK_EQ(verify(false, &f), 1);
        CHECK(strstr(f.file, "catalog/data.mdb"));
        CHECK_STR(f.remedy, "run drt-index repair");
        CHECK_OK(store_repair(dir, NULL, NULL, remember, &f, &problems));
        CHECK_EQ(problems, 0);
        CHECK_EQ(verify(true, &f), 0);
    }
    /* The record of the current index: it is written again, and until then the files that it may name are kept. */
    fresh_store("records");
    edit("meta", "index", 5, "short", 5);
    CHECK(verify(true, &f) >= 1);
    CHECK_STR(f.remedy, "run drt-index repair");
    CHECK_OK(store_repair(dir, &(struct store_publish){.index = "IVF4,SQ8", .seed = 1}, NULL, remember, &f, &problems));
    CHECK_EQ(problems, 0);
    CHECK_EQ(verify(true, &f), 0);
    /* With a dropped shard the hashes are those of the remaining documents. */
    const struct store_range shard = {1, 2};
    struct store_drop_report report;
    fresh_store("records");
    CHECK_OK(store_drop(&report, dir, &(struct store_drop){.ranges = &shard, .n_ranges = 1}));
    CHECK_EQ(report.documents, 50);
    for (size_t i = 0; i < ARRAY_LEN(derived); i++) {
        edit(derived[i], NULL, 0, NULL, 0);
        CHECK_EQ(verify(true, &f), 1);
        CHECK_OK(store_repair(dir, NULL, NULL, remember, &f, &problems));
        CHECK_EQ(problems, 0);
        CHECK_EQ(verify(true, &f), 0);
    }
    /* A document's record cannot be restored from other data. */
    const uint8_t key[8] = {0, 0, 0, 0, 0, 0, 0, 5};
    fresh_store("records");
    edit("documents", key, 8, "short", 5);
    CHECK_EQ(verify(false, &f), 0);
    CHECK(verify(true, &f) >= 1);
    CHECK_OK(store_repair(dir, NULL, NULL, remember, &f, &problems));
    CHECK_EQ(problems, 1);
    CHECK_STR(f.remedy, "build the store again in a new folder");
    struct store *s;
    struct store_view *v;
    struct store_document d;
    CHECK_OK(store_open(&s, dir));
    CHECK_OK(store_view_open(&v, s));
    CHECK_FAILS(store_view_document(v, &d, 5), STATUS_CORRUPT, "run drt-index");
    CHECK_OK(store_view_document(v, &d, 6));
    store_view_close(v);
    store_close(s);
    /* A newer format is refused, naming both versions. */
    fresh_store("records");
    edit("meta", "format", 6, "\x09\0\0\0", 4);
    struct store_writer *w;
    CHECK_FAILS(store_open(&s, dir), STATUS_VERSION, "format version 9, this program reads up to 5");
    CHECK_FAILS(store_writer_open(&w, dir, &config, false), STATUS_VERSION, "format version 9");
    CHECK_FAILS(store_verify(dir, true, NULL, remember, &f, &problems), STATUS_VERSION, "format version 9");
}

static bool sources_are(const char *wanted) {
    struct store *s;
    struct store_view *v;
    struct store_info info;
    CHECK_OK(store_open(&s, dir));
    CHECK_OK(store_view_open(&v, s));
    store_view_info(v, &info);
    bool same = true;
    for (int64_t i = 0; i < info.documents; i++) {
        struct store_document d;
        CHECK_OK(store_view_document(v, &d, i));
        same = same && strcmp(d.source, wanted) == 0;
    }
    store_view_close(v);
    store_close(s);
    return same;
}

/* A byte that no other record repeats, such as one of a source's name: every reader finds the damage. */
static void flipped_record(void) {
    static const char source[] = "corpus.jsonl";
    static char data[1 << 22];
    struct found f;
    fresh_store("flipped");
    FILE *file = fopen(in_store("catalog/data.mdb"), "rb");
    CHECK(file);
    size_t size = fread(data, 1, sizeof data, file);
    fclose(file);
    int flips = 0, found = 0;
    for (char *at = data; (at = memmem(at, size - (size_t)(at - data), source, strlen(source))); at++) {
        if (flips++ % 5) continue;
        fresh_store("flipped");
        flip(in_store("catalog/data.mdb"), at - data + 3, 4);
        if (verify(true, &f) > 0) {
            CHECK_STR(f.file, in_store("catalog/data.mdb"));
            found++;
        } else {
            CHECK(sources_are(source)); /* it was in a page that LMDB has freed */
        }
    }
    CHECK(found >= 150 / 5);
}

/* The store as a program of format 1 made it: no checksums in the catalog, no catalog/commit. */
static void older_format(void) {
    static const char *const tables[] = {"meta", "runs", "documents", "hashes", "shards", "segments", "generations"};
    fresh_store("older");
    MDB_env *env;
    MDB_txn *txn;
    CHECK(mdb_env_create(&env) == 0);
    mdb_env_set_maxdbs(env, 16);
    CHECK(mdb_env_open(env, in_store("catalog"), 0, 0644) == 0);
    CHECK(mdb_txn_begin(env, NULL, 0, &txn) == 0);
    for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
        MDB_dbi dbi;
        MDB_cursor *cursor;
        MDB_val key, value;
        CHECK(mdb_dbi_open(txn, tables[i], 0, &dbi) == 0);
        CHECK(mdb_cursor_open(txn, dbi, &cursor) == 0);
        while (mdb_cursor_get(cursor, &key, &value, MDB_NEXT) == 0) {
            uint8_t copy[1000], key_copy[16]; /* LMDB moves the node that contains both */
            bool version = key.mv_size == 6 && memcmp(key.mv_data, "format", 6) == 0;
            CHECK(value.mv_size > 4);
            value.mv_size -= 4;
            memcpy(copy, version ? "\1\0\0" : value.mv_data, value.mv_size);
            memcpy(key_copy, key.mv_data, key.mv_size);
            key.mv_data = key_copy;
            value.mv_data = copy;
            CHECK(mdb_cursor_put(cursor, &key, &value, MDB_CURRENT) == 0);
        }
        mdb_cursor_close(cursor);
    }
    CHECK(mdb_txn_commit(txn) == 0);
    mdb_env_close(env);
    CHECK(unlink(in_store("catalog/commit")) == 0);

    struct found f;
    struct store_hit before[10], after[10];
    search_all(before, 10);
    static const int formats[] = {1, STORE_FORMAT_F16}; /* the second time: a writer has opened it */
    for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
        struct store *s;
        struct store_view *v;
        struct store_info info;
        CHECK_EQ(verify(true, &f), 0);
        CHECK_OK(store_open(&s, dir));
        CHECK_OK(store_view_open(&v, s));
        store_view_info(v, &info);
        CHECK_EQ(info.format, formats[i]);
        store_view_close(v);
        store_close(s);
        struct store_writer *w;
        CHECK_OK(store_writer_open(&w, dir, &config, false));
        store_writer_close(w);
    }
    search_all(after, 10);
    CHECK(fixture_same_hits(before, after, 10));
}

/* Without the catalog, or with an empty one, no record names the shards; a new store does not remove them. */
static void lost_catalog(void) {
    struct store_writer *w;
    for (int empty = 0; empty < 2; empty++) {
        fresh_store("lost");
        const char *path = in_store("catalog/data.mdb");
        CHECK(empty ? truncate(path, 0) == 0 : unlink(path) == 0);
        CHECK_FAILS(store_writer_open(&w, dir, &config, true), STATUS_CORRUPT,
                    "tokens: is not empty, but catalog/data.mdb");
        CHECK(access(in_store("tokens/00000.tok"), F_OK) == 0);
        CHECK(access(in_store("index/00001.faiss"), F_OK) == 0);
    }
}

/* LMDB writes both meta pages of a new file with one call; a process that is killed during it may leave the first. */
static void half_created_catalog(void) {
    MDB_env *env;
    struct store *s;
    struct store_writer *w;
    struct found f;
    snprintf(dir, sizeof dir, "%s/half-created", test_folder());
    CHECK(mkdir(dir, 0777) == 0 && mkdir(in_store("catalog"), 0777) == 0);
    CHECK(mdb_env_create(&env) == 0 && mdb_env_open(env, in_store("catalog"), 0, 0644) == 0);
    mdb_env_close(env);
    CHECK(truncate(in_store("catalog/data.mdb"), sysconf(_SC_PAGESIZE)) == 0);
    CHECK_FAILS(store_open(&s, dir), STATUS_NOT_FOUND, "no contents yet");
    int64_t problems = 0;
    CHECK_FAILS(store_verify(dir, true, NULL, remember, &f, &problems), STATUS_NOT_FOUND, "no contents yet");
    /* With a recorded commit the file has lost its end. */
    int fd = open(in_store("catalog/commit"), O_WRONLY | O_CREAT, 0644);
    CHECK(fd >= 0 && close(fd) == 0);
    CHECK_FAILS(store_open(&s, dir), STATUS_CORRUPT, "catalog/");
    CHECK_FAILS(store_writer_open(&w, dir, &config, true), STATUS_CORRUPT, "catalog/");
    CHECK(unlink(in_store("catalog/commit")) == 0);
    CHECK_OK(store_writer_open(&w, dir, &config, true));
    CHECK_OK(fixture_shard(w, &config, 0, 10));
    CHECK_OK(store_writer_publish(w, &(struct store_publish){0}));
    store_writer_close(w);
    CHECK_EQ(verify(true, &f), 0);
}

/* ---- a writer at work during verify ---- */

/* In another process, as LMDB requires: publishes other indexes, and removes the files of the previous ones. */
static void replace_index(void *context, const struct progress_event *e) {
    bool *done = context;
    if (*done || !e->stage) return;
    *done = true;
    pid_t child = fork();
    if (child == 0) {
        struct found f;
        int64_t problems;
        for (int lists = 5; lists < 8; lists++) {
            char index[32];
            snprintf(index, sizeof index, "IVF%d,SQ8", lists);
            if (store_repair(dir, &(struct store_publish){.index = index}, NULL, remember, &f, &problems) != STATUS_OK)
                _exit(1);
        }
        _exit(0);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static void verify_beside_a_writer(void) {
    struct found f = {0};
    int64_t problems = -1;
    bool done = false;
    fresh_store("beside");
    const struct progress progress = {.report = replace_index, .context = &done};
    CHECK_OK(store_verify(dir, true, &progress, remember, &f, &problems));
    CHECK(done && access(in_store("index/00001.faiss"), F_OK) != 0);
    CHECK_EQ(problems, 0);
}

/* ---- readers that were killed ---- */

static bool child_reads(void) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        struct store *s;
        struct store_view *v;
        _exit(store_open(&s, dir) == STATUS_OK && store_view_open(&v, s) == STATUS_OK ? 0 : 1); /* closes nothing */
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return status == 0;
}

/* The next reader clears their slots in LMDB's lock file while another process (here one with few reader slots) has
 * that file open. */
static void killed_readers(void) {
    int ready[2], done[2];
    char byte = 0;
    fresh_store("readers");
    CHECK(unlink(in_store("catalog/lock.mdb")) == 0);
    CHECK(pipe(ready) == 0 && pipe(done) == 0);
    pid_t holder = fork();
    if (holder == 0) {
        MDB_env *env;
        close(done[1]);
        bool good = mdb_env_create(&env) == 0 && mdb_env_set_maxreaders(env, 4) == 0 &&
                    mdb_env_open(env, in_store("catalog"), MDB_RDONLY, 0644) == 0;
        _exit(write(ready[1], &byte, 1) == 1 && read(done[0], &byte, 1) == 0 && good ? 0 : 1);
    }
    CHECK(holder > 0 && read(ready[0], &byte, 1) == 1);
    close(done[0]);
    for (int i = 0; i < 12; i++)
        CHECK(child_reads());
    close(done[1]);
    int status;
    CHECK(waitpid(holder, &status, 0) == holder && status == 0);
}

/* ---- media ---- */

static void full_disk(void) {
    char mount_point[700];
    snprintf(mount_point, sizeof mount_point, "%s/small", test_folder());
    mkdir(mount_point, 0777);
    if (mount("tmpfs", mount_point, "tmpfs", 0, "size=1m") != 0) {
        printf("full disk: skipped, mounting a tmpfs needs root\n");
        return;
    }
    snprintf(dir, sizeof dir, "%s/store", mount_point);
    struct store_writer *w;
    CHECK_OK(store_writer_open(&w, dir, &config, true));
    int64_t n = 0;
    enum status s;
    while ((s = fixture_shard(w, &config, n, n + 200)) == STATUS_OK)
        n += 200;
    CHECK_FAILS(s, STATUS_NO_SPACE, "free disk space");
    CHECK(n > 0);
    store_writer_close(w);
    CHECK_OK(store_writer_open(&w, dir, &config, true));
    struct store_journal j;
    CHECK_OK(store_writer_journal(w, &j));
    CHECK_EQ(j.documents, n);
    /* The index does not fit either: nothing is published, nothing is lost, and the run continues when there is
     * space. */
    enum status published = store_writer_publish(w, &(struct store_publish){.index = "IVF16,Flat", .seed = 1});
    CHECK_FAILS(published, STATUS_NO_SPACE, "free disk space");
    store_writer_close(w);
    CHECK(mount("tmpfs", mount_point, "tmpfs", MS_REMOUNT, "size=8m") == 0);
    CHECK_OK(store_writer_open(&w, dir, &config, true));
    CHECK_OK(store_writer_publish(w, &(struct store_publish){.index = "IVF16,Flat", .seed = 1}));
    store_writer_close(w);
    struct found f;
    CHECK_EQ(verify(true, &f), 0);
    /* The same mount is read-only: readers work, a writer is refused. */
    CHECK(mount("tmpfs", mount_point, "tmpfs", MS_REMOUNT | MS_RDONLY, NULL) == 0);
    struct store_hit hits[3];
    search_all(hits, 3);
    CHECK(hits[0].chunk >= 0);
    CHECK_EQ(verify(true, &f), 0);
    CHECK_FAILS(store_writer_open(&w, dir, &config, false), STATUS_READ_ONLY, "");
    CHECK(umount2(mount_point, MNT_DETACH) == 0);
}

static void small_map(void) {
    snprintf(dir, sizeof dir, "%s/small-map", test_folder());
    struct store_writer_config c = config;
    c.max_catalog_bytes = 128 << 10;
    struct store_writer *w;
    CHECK_OK(store_writer_open(&w, dir, &c, true));
    int64_t n = 0;
    enum status s;
    while ((s = fixture_shard(w, &c, n, n + 100)) == STATUS_OK)
        n += 100;
    CHECK_FAILS(s, STATUS_NO_SPACE, "larger max_catalog_bytes");
    store_writer_close(w);
    CHECK_OK(store_writer_open(&w, dir, &config, false));
    CHECK_OK(fixture_shard(w, &config, n, n + 100));
    CHECK_OK(store_writer_publish(w, &(struct store_publish){0}));
    store_writer_close(w);
    struct found f;
    CHECK_EQ(verify(true, &f), 0);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    config = fixture_config(DIM, VOCAB);
    char pristine[600];
    snprintf(pristine, sizeof pristine, "%s/pristine", test_folder());
    fixture_store(pristine, &config, 0, 150, 50, "IVF4,SQ8");
    data_files();
    orphan_files_are_harmless();
    records();
    flipped_record();
    if (config.landmarks == STORE_LANDMARKS_F16) older_format(); /* older formats have no other type */
    lost_catalog();
    half_created_catalog();
    verify_beside_a_writer();
    killed_readers();
    full_disk();
    small_map();
    return test_done();
}
