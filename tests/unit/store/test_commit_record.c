/* test_commit_record.c -- catalog/commit and LMDB's meta pages: each flipped bit of these pages is found by open,
 * verify and add, nothing is deleted, and repair restores the generation. A record one commit short is accepted.
 *
 *   test_commit_record [all]     all: every bit that LMDB reads of both meta pages, instead of a sample */
#include "base/crc32c.h"
#include "base/file.h"
#include "store/catalog/catalog_internal.h"
#include "tests/unit/store/damage_fixture.h"
#include <dirent.h>
#include <lmdb.h>

enum { DIM = 16, VOCAB = 200, DOCUMENTS = 60, PAGE = 4096, META_BYTES = 152, TXN_AT = 144, LAST_PAGE_AT = 136 };
/* A process under AddressSanitizer exits slowly: fewer bits are tested there. */
#ifdef __SANITIZE_ADDRESS__
enum { SAMPLE = 101, SAMPLE_OF_THE_REST = 20011, BRANCH_BITS = 1 };
#else
enum { SAMPLE = 13, SAMPLE_OF_THE_REST = 4003, BRANCH_BITS = 3 };
#endif
static struct store_writer_config config;
static uint32_t pristine_contents;

static void fresh_store(const char *name) {
    fresh_copy(name, "pristine");
}

static size_t slurp(uint8_t *out, size_t max, const char *path) {
    FILE *file = fopen(path, "rb");
    CHECK(file);
    size_t n = fread(out, 1, max, file);
    CHECK(n < max && fclose(file) == 0);
    return n;
}

/* Names, sizes and bytes of all files except LMDB's table of readers. */
static uint32_t files_checksum(void) {
    static const char *const folders[] = {"catalog", "tokens", "landmarks", "index"};
    uint32_t sum = 0;
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        char folder[900], path[1200];
        snprintf(folder, sizeof folder, "%s/%s", dir, folders[i]);
        DIR *open = opendir(folder);
        CHECK(open);
        for (struct dirent *e; (e = readdir(open));) {
            uint32_t crc;
            if (e->d_name[0] == '.' || strcmp(e->d_name, "lock.mdb") == 0) continue;
            snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
            CHECK_OK(file_checksum(&crc, path));
            sum += crc32c(crc, e->d_name, strlen(e->d_name));
        }
        closedir(open);
    }
    return sum;
}

/* Generation, tokens, landmarks and documents of the store at dir. */
static enum status contents(uint32_t *out) {
    struct store *s;
    struct store_view *v;
    struct store_info info;
    TRY(store_open(&s, dir));
    enum status status = store_view_open(&v, s);
    if (status == STATUS_OK) {
        store_view_info(v, &info);
        uint32_t crc = crc32c(0, &info.generation, sizeof info.generation);
        for (int64_t i = 0; i < info.chunks && status == STATUS_OK; i++) {
            struct store_chunk chunk;
            int32_t ids[FIXTURE_CHUNK];
            float landmark[DIM];
            status = store_view_chunk(v, &chunk, ids, i);
            if (status == STATUS_OK) status = store_view_landmark(v, landmark, i);
            crc = crc32c(crc32c(crc, ids, sizeof ids), landmark, sizeof landmark);
        }
        for (int64_t i = 0; i < info.documents && status == STATUS_OK; i++) {
            struct store_document d;
            status = store_view_document(v, &d, i);
            if (status == STATUS_OK) crc = crc32c(crc, d.key, strlen(d.key));
        }
        *out = crc;
        store_view_close(v);
    }
    store_close(s);
    return status;
}

static enum status add_shard(int64_t begin, int64_t end) {
    struct store_writer *w;
    TRY(store_writer_open(&w, dir, &config, false));
    enum status s = fixture_shard(w, &config, begin, end);
    store_writer_close(w);
    return s;
}

/* ---- flipped bits ---- */

enum { OPEN_REFUSED = 1, VERIFY_FOUND = 2, ADD_REFUSED = 4, SAME_CONTENTS = 8, SAME_FILES = 16, BAD_LINE = 32 };

static bool names_the_meta_page(const char *message) {
    return strstr(message, "catalog/data.mdb: page ") && strstr(message, "byte ") &&
           strstr(message, "run drt-index repair") && !strchr(message, '\n');
}

/* Opens, verifies and, if requested, adds in a separate process, which an undetected bit may crash. */
static int outcome(bool with_add) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        struct found f;
        uint32_t now = 0, before = files_checksum();
        int bits = 0;
        enum status s = contents(&now);
        if (s == STATUS_CORRUPT) bits |= OPEN_REFUSED | (names_the_meta_page(status_message()) ? 0 : BAD_LINE);
        if (s == STATUS_OK && now == pristine_contents) bits |= SAME_CONTENTS;
        if (verify(true, &f) > 0) bits |= VERIFY_FOUND | (strcmp(f.remedy, "run drt-index repair") == 0 ? 0 : BAD_LINE);
        if (with_add && add_shard(DOCUMENTS, DOCUMENTS + 2) == STATUS_CORRUPT)
            bits |= ADD_REFUSED | (names_the_meta_page(status_message()) ? 0 : BAD_LINE);
        if (files_checksum() == before) bits |= SAME_FILES;
        _exit(64 + bits);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return WIFEXITED(status) && WEXITSTATUS(status) >= 64 ? WEXITSTATUS(status) - 64 : -1;
}

static void expect_outcome(int wanted, bool with_add, int page, long byte, int bit) {
    int got = outcome(with_add);
    if (got != wanted)
        fprintf(stderr, "page %d, byte %ld, bit %d: outcome %d, wanted %d\n", page, byte, bit, got, wanted);
    CHECK_EQ(got, wanted);
}

static void flipped_meta_pages(bool all) {
    const int found = OPEN_REFUSED | VERIFY_FOUND | ADD_REFUSED | SAME_FILES, none = SAME_CONTENTS | SAME_FILES;
    int flips = 0, harmless = 0;
    fresh_store("flips");
    for (int i = 0; i < 2 * 8 * META_BYTES; i += all ? 1 : SAMPLE, flips++) {
        int page = i / (8 * META_BYTES), byte = i / 8 % META_BYTES;
        flip(in_store("catalog/data.mdb"), page * PAGE + byte, i % 8);
        expect_outcome(found, true, page, byte, i % 8);
        flip(in_store("catalog/data.mdb"), page * PAGE + byte, i % 8);
    }
    /* LMDB never reads the rest of these pages. */
    for (int i = 0; i < 2 * 8 * PAGE; i += all ? 37 : SAMPLE_OF_THE_REST) {
        int page = i / (8 * PAGE), byte = i / 8 % PAGE;
        if (byte < META_BYTES) continue;
        flip(in_store("catalog/data.mdb"), page * PAGE + byte, i % 8);
        expect_outcome(none, false, page, byte, i % 8);
        flip(in_store("catalog/data.mdb"), page * PAGE + byte, i % 8);
        harmless++;
    }
    CHECK_EQ(outcome(false), none);
    /* Bit 1 makes the older page the newer one, or the reverse, depending on the numbers. */
    for (int commits = 1; commits <= 3; commits++) {
        CHECK_OK(add_shard(DOCUMENTS + commits, DOCUMENTS + commits + 1));
        for (int i = 0; i < 2 * 8; i++, flips++) {
            long byte = i / 8 * PAGE + TXN_AT;
            flip(in_store("catalog/data.mdb"), byte, i % 8);
            expect_outcome(found, true, i / 8, TXN_AT, i % 8);
            flip(in_store("catalog/data.mdb"), byte, i % 8);
        }
    }
    printf("meta pages: %d flipped bits found, %d in bytes that nothing reads\n", flips, harmless);
}

/* Keys of branch pages, which lead LMDB to the page of a record. A change of a key's low bits keeps the order of the
 * keys. */
static void flipped_branch_keys(void) {
    enum { BRANCH = 1, HEADER = 16 };
    static uint8_t data[1 << 20];
    uint32_t pristine = pristine_contents;
    int found = 0;
    snprintf(dir, sizeof dir, "%s/branches", test_folder());
    fixture_store_elsewhere(dir, &config, 0, 300, 100, "exact");
    CHECK_OK(contents(&pristine_contents));
    size_t size = slurp(data, sizeof data, in_store("catalog/data.mdb"));
    for (size_t page = 2 * PAGE; page < size; page += PAGE) {
        const uint8_t *p = data + page;
        if (p[10] != BRANCH) continue;
        for (int i = 1; i < (p[12] + 256 * p[13] - HEADER) / 2; i++) {
            int node = p[HEADER + 2 * i] + 256 * p[HEADER + 2 * i + 1], key_bytes = p[node + 6];
            long byte = (long)page + node + 8 + key_bytes - 1;
            for (int bit = 0; bit < BRANCH_BITS; bit++) {
                flip(in_store("catalog/data.mdb"), byte, bit);
                int got = outcome(false);
                flip(in_store("catalog/data.mdb"), byte, bit);
                found += (got & VERIFY_FOUND) != 0;
                if (!(got & VERIFY_FOUND)) CHECK_EQ(got, SAME_CONTENTS | SAME_FILES);
            }
        }
    }
    CHECK(found > 10);
    printf("branch pages: %d flipped bits found\n", found);
    pristine_contents = pristine;
}

/* Each kind of field, and pages of zeros: repair restores the published generation. */
static void repair_restores(void) {
    static const long bytes[] = {10,     17,        33, 40, 70, 81, 88, 120, 129, LAST_PAGE_AT, LAST_PAGE_AT + 2,
                                 TXN_AT, TXN_AT + 5};
    static const uint8_t zeros[META_BYTES];
    struct found f;
    uint32_t now;
    fresh_store("repair");
    for (size_t i = 0; i < 2 * ARRAY_LEN(bytes) * 2; i++) {
        size_t at = i / 4;
        long byte = (long)(i % 2) * PAGE + bytes[at];
        flip(in_store("catalog/data.mdb"), byte, (int)(i / 2 % 2));
        CHECK_EQ(repair_derived(&f), 0);
        CHECK_OK(contents(&now));
        CHECK_EQ(now, pristine_contents);
    }
    for (int pages = 1; pages <= 3; pages++) {
        int fd = open(in_store("catalog/data.mdb"), O_WRONLY);
        CHECK(fd >= 0);
        if (pages & 1) CHECK_EQ(pwrite(fd, zeros, META_BYTES, 0), META_BYTES);
        if (pages & 2) CHECK_EQ(pwrite(fd, zeros, META_BYTES, PAGE), META_BYTES);
        close(fd);
        CHECK_EQ(verify(false, &f), 1);
        CHECK_EQ(repair_derived(&f), 0);
        CHECK_EQ(verify(true, &f), 0);
    }
    CHECK_OK(contents(&now));
    CHECK_EQ(now, pristine_contents);
    CHECK_OK(add_shard(DOCUMENTS, DOCUMENTS + 2));
}

/* ---- the record ---- */

static void damaged_record(void) {
    static uint8_t before[1024], after[1024];
    struct found f;
    uint32_t now;
    fresh_store("record");
    size_t size = slurp(before, sizeof before, in_store("catalog/commit"));
    for (size_t i = 0; i < 8 * size; i += 101) {
        flip(in_store("catalog/commit"), (long)(i / 8), (int)(i % 8));
        CHECK_FAILS(contents(&now), STATUS_CORRUPT, "catalog/commit: the record of the last commit is damaged");
        CHECK_FAILS(add_shard(DOCUMENTS, DOCUMENTS + 1), STATUS_CORRUPT, "catalog/commit: the record");
        CHECK_EQ(verify(false, &f), 1);
        CHECK_STR(f.file, in_store("catalog/commit"));
        CHECK_STR(f.remedy, "run drt-index repair");
        CHECK_EQ(repair_derived(&f), 0);
        CHECK_EQ(slurp(after, sizeof after, in_store("catalog/commit")), size);
        CHECK(memcmp(before, after, size) == 0);
    }
    for (int empty = 0; empty < 2; empty++) {
        CHECK_EQ(empty ? truncate(in_store("catalog/commit"), 0) : unlink(in_store("catalog/commit")), 0);
        CHECK_FAILS(contents(&now), STATUS_CORRUPT, "run drt-index repair");
        CHECK_FAILS(add_shard(DOCUMENTS, DOCUMENTS + 1), STATUS_CORRUPT, "catalog/commit: the record");
        CHECK_EQ(verify(false, &f), 1);
        CHECK_STR(f.file, in_store("catalog/commit"));
        CHECK_STR(f.remedy, "run drt-index repair");
        CHECK_EQ(repair_derived(&f), 0);
        CHECK_EQ(verify(true, &f), 0);
    }
    CHECK_OK(contents(&now));
    CHECK_EQ(now, pristine_contents);
}

/* The state after a writer was killed between LMDB's commit and the record. */
static void record_one_commit_short(void) {
    static uint8_t whole[1024], after[1024];
    char old[900];
    struct found f;
    uint32_t now, wanted;
    fresh_store("short");
    snprintf(old, sizeof old, "%s/old-commit", test_folder());
    copy_store(old, in_store("catalog/commit"));
    struct store_writer *w;
    CHECK_OK(store_writer_open(&w, dir, &config, false));
    CHECK_OK(store_writer_publish(w, &(struct store_publish){.index = "exact", .seed = 1}));
    store_writer_close(w);
    CHECK_OK(contents(&wanted));
    size_t size = slurp(whole, sizeof whole, in_store("catalog/commit"));
    copy_store(in_store("catalog/commit"), old);
    CHECK_OK(contents(&now));
    CHECK_EQ(now, wanted);
    CHECK_EQ(verify(true, &f), 0);
    /* The transaction numbers are protected in this state, too, and repair does not return to the older commit of the
     * record. */
    for (int i = 0; i < 2 * 64; i += 5) {
        long byte = i / 64 * PAGE + TXN_AT + i % 64 / 8;
        copy_store(in_store("catalog/commit"), old);
        flip(in_store("catalog/data.mdb"), byte, i % 8);
        CHECK_FAILS(contents(&now), STATUS_CORRUPT, "run drt-index repair");
        CHECK_EQ(repair_derived(&f), 0);
        CHECK_OK(contents(&now));
        CHECK_EQ(now, wanted);
    }
    copy_store(in_store("catalog/commit"), old);
    CHECK_OK(store_writer_open(&w, dir, &config, false));
    store_writer_close(w);
    CHECK_EQ(slurp(after, sizeof after, in_store("catalog/commit")), size);
    CHECK(memcmp(whole, after, size) == 0);
}

/* The commit is durable anyway; the writer, which cannot know this, stops. */
static void record_cannot_be_written(void) {
    struct store_writer *w;
    struct store_journal j;
    struct found f;
    fresh_store("unwritten");
    CHECK_OK(store_writer_open(&w, dir, &config, false));
    CHECK_EQ(mkdir(in_store("catalog/commit.tmp"), 0777), 0);
    CHECK_FAILS(fixture_shard(w, &config, DOCUMENTS, DOCUMENTS + 1), STATUS_IO, "catalog/commit.tmp");
    CHECK_EQ(rmdir(in_store("catalog/commit.tmp")), 0);
    CHECK_FAILS(fixture_shard(w, &config, DOCUMENTS + 1, DOCUMENTS + 2), STATUS_IO, "run the command again");
    store_writer_close(w);
    CHECK_EQ(verify(true, &f), 0);
    CHECK_OK(store_writer_open(&w, dir, &config, false));
    CHECK_OK(store_writer_journal(w, &j));
    CHECK_EQ(j.documents, 1);
    CHECK_OK(fixture_shard(w, &config, DOCUMENTS + 1, DOCUMENTS + 2));
    store_writer_close(w);
    CHECK_EQ(verify(true, &f), 0);
}

/* data.mdb is older than the record: nothing is deleted, and repair does not accept it as a store. */
static void older_catalog(void) {
    char old[900];
    struct found f;
    uint32_t now;
    fresh_store("older");
    snprintf(old, sizeof old, "%s/old-data", test_folder());
    for (int commits = 1; commits <= 4; commits++) {
        fresh_store("older");
        copy_store(old, in_store("catalog/data.mdb"));
        for (int i = 0; i < commits; i++)
            CHECK_OK(add_shard(DOCUMENTS + i, DOCUMENTS + i + 1));
        copy_store(in_store("catalog/data.mdb"), old);
        uint32_t files = files_checksum();
        CHECK_FAILS(contents(&now), STATUS_CORRUPT, "catalog/data.mdb: page");
        CHECK_FAILS(add_shard(DOCUMENTS, DOCUMENTS + 1), STATUS_CORRUPT, "run drt-index repair");
        CHECK_EQ(verify(true, &f), 1);
        CHECK_EQ(repair_derived(&f), 1);
        CHECK_STR(f.remedy, "restore the store from a copy or build it again");
        CHECK_EQ(files_checksum(), files);
    }
    /* A user who wants the older catalog removes the record. */
    CHECK_EQ(unlink(in_store("catalog/commit")), 0);
    CHECK_EQ(repair_derived(&f), 0);
    CHECK_EQ(verify(true, &f), 0);
    CHECK_OK(contents(&now));
    CHECK_EQ(now, pristine_contents);
}

/* LMDB's compacting copy (mdb_copy -c) restarts the transaction numbers. */
static void compacted_catalog(void) {
    MDB_env *env;
    struct found f;
    uint32_t now;
    char other[900];
    fresh_store("compacted");
    snprintf(other, sizeof other, "%s/compact", test_folder());
    CHECK_EQ(mkdir(other, 0777), 0);
    CHECK_EQ(mdb_env_create(&env), 0);
    CHECK_EQ(mdb_env_open(env, in_store("catalog"), MDB_RDONLY, 0644), 0);
    CHECK_EQ(mdb_env_copy2(env, other, MDB_CP_COMPACT), 0);
    mdb_env_close(env);
    strcat(other, "/data.mdb");
    copy_store(in_store("catalog/data.mdb"), other);
    CHECK_EQ(verify(true, &f), 1);
    CHECK_EQ(unlink(in_store("catalog/commit")), 0);
    CHECK_EQ(repair_derived(&f), 0);
    CHECK_EQ(verify(true, &f), 0);
    CHECK_OK(contents(&now));
    CHECK_EQ(now, pristine_contents);
    CHECK_OK(add_shard(DOCUMENTS, DOCUMENTS + 2));
}

/* A program of format 2, which writes no record, continued after a newer program had been killed. */
static void record_many_commits_short(void) {
    char old[900];
    struct found f;
    uint32_t now, wanted;
    fresh_store("many");
    snprintf(old, sizeof old, "%s/old-commit", test_folder());
    copy_store(old, in_store("catalog/commit"));
    for (int i = 0; i < 3; i++)
        CHECK_OK(add_shard(DOCUMENTS + i, DOCUMENTS + i + 1));
    CHECK_OK(contents(&wanted));
    copy_store(in_store("catalog/commit"), old);
    CHECK_FAILS(contents(&now), STATUS_CORRUPT, "run drt-index repair");
    CHECK_EQ(repair_derived(&f), 0);
    CHECK_OK(contents(&now));
    CHECK_EQ(now, wanted);
    CHECK_EQ(verify(true, &f), 0);
}

/* ---- no false alarms ---- */

/* The check of pages accepts all pages that LMDB makes of random additions and deletions. */
static void random_catalog(void) {
    struct catalog *c;
    struct rng r = rng_make(1, 31);
    snprintf(dir, sizeof dir, "%s/random", test_folder());
    CHECK(mkdir(dir, 0777) == 0);
    CHECK_OK(catalog_open(&c, dir, true, 64 << 20));
    for (int i = 0; i < 120; i++) {
        struct catalog_txn *t;
        CHECK_OK(catalog_begin(&t, c, true));
        int n = (int)rng_below(&r, 400), adds = (int)rng_below(&r, 101);
        for (int k = 0; k < n; k++) {
            uint8_t value[300] = {0};
            struct catalog_key key = catalog_key(rng_below(&r, 5000) * UINT64_C(0x9e3779b97f4a7c15));
            enum catalog_table table = k % 2 ? TABLE_HASHES : TABLE_RUNS;
            if ((int)rng_below(&r, 100) < adds)
                CHECK_OK(catalog_put(t, table, key.bytes, sizeof key.bytes, value, rng_below(&r, sizeof value)));
            else
                CHECK_OK(catalog_delete(t, table, key.bytes, sizeof key.bytes));
        }
        CHECK_OK(catalog_commit(t));
        CHECK_OK(catalog_check(c));
    }
    catalog_close(c);
    CHECK_OK(catalog_open(&c, dir, false, 0));
    catalog_close(c);
}

/* ---- beside a writer ---- */

static void readers_beside_a_writer(void) {
    fresh_store("beside");
    fflush(NULL);
    pid_t writer = fork();
    if (writer == 0) {
        struct store_writer *w;
        enum status s = store_writer_open(&w, dir, &config, false);
        for (int64_t i = DOCUMENTS; i < DOCUMENTS + 250 && s == STATUS_OK; i++)
            s = fixture_shard(w, &config, i, i + 1);
        store_writer_close(w);
        _exit(s == STATUS_OK ? 0 : 1);
    }
    int status, opened = 0;
    while (waitpid(writer, &status, WNOHANG) == 0) {
        struct store *s;
        CHECK_OK(store_open(&s, dir));
        store_close(s);
        opened++;
    }
    CHECK_EQ(status, 0);
    printf("opened %d times beside 250 commits\n", opened);
    CHECK(opened > 20);
}

int main(int argc, char **argv) {
    bool all = argc > 1 && strcmp(argv[1], "all") == 0;
    test_start(1, argv, 1);
    if (access("/dev/shm", W_OK) == 0) setenv("DRT_TEST_TMP", "/dev/shm", 1);
    config = fixture_config(DIM, VOCAB);
    snprintf(dir, sizeof dir, "%s/pristine", test_folder());
    fixture_store_elsewhere(dir, &config, 0, DOCUMENTS / 2, 20, "IVF2,SQ8");
    fixture_store_elsewhere(dir, &config, DOCUMENTS / 2, DOCUMENTS, 20, "IVF2,SQ8");
    CHECK_OK(contents(&pristine_contents));
    flipped_meta_pages(all);
    flipped_branch_keys();
    repair_restores();
    damaged_record();
    record_one_commit_short();
    record_cannot_be_written();
    older_catalog();
    compacted_catalog();
    record_many_commits_short();
    random_catalog();
    readers_beside_a_writer();
    return test_done();
}
