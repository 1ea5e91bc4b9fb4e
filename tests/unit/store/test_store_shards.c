/* test_store_shards.c -- shards are mapped within a budget, and small ones are merged; no read may depend on it.
 */
#include "base/half.h"
#include "store/shards/known_hashes_internal.h"
#include "store/view_internal.h"
#include "tests/store_fixture.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

enum { DIM = 16, VOCAB = 500, QUERIES = 9, K = 6, MERGE_CHUNKS = 64 };
static struct store_writer_config config;
static char dir[600];

static const char *new_dir(const char *name) {
    snprintf(dir, sizeof dir, "%s/%s", test_folder(), name);
    return dir;
}

static void open_view(struct store **s, struct store_view **v) {
    CHECK_OK(store_open(s, dir));
    CHECK_OK(store_view_open(v, *s));
}

/* All that a view can return. */
struct contents {
    int64_t chunks;
    int32_t *ids;
    float *landmarks, *rows;
    struct store_hit one[K], scanned[QUERIES * K], found[QUERIES * K], filtered[QUERIES * K];
};

static struct contents read_contents(struct store_view *v, struct threads *threads) {
    struct store_info info;
    store_view_info(v, &info);
    struct contents c = {.chunks = info.chunks};
    c.ids = malloc((size_t)info.chunks * FIXTURE_CHUNK * sizeof *c.ids);
    c.landmarks = malloc((size_t)info.chunks * DIM * sizeof(float));
    c.rows = malloc((size_t)info.chunks * DIM * sizeof(float));
    for (int64_t i = 0; i < info.chunks; i++) {
        int64_t at = i * 37 % info.chunks; /* from one shard to another, and back */
        struct store_chunk chunk;
        CHECK_OK(store_view_chunk(v, &chunk, c.ids + at * FIXTURE_CHUNK, at));
        CHECK_OK(store_view_landmark(v, c.landmarks + at * DIM, at));
    }
    for (int64_t at = 0; at < info.chunks;) {
        struct store_rows rows;
        CHECK_OK(store_view_landmark_rows(v, &rows, at));
        CHECK(rows.n > 0 && at + rows.n <= info.chunks && rows.dim == DIM);
        store_rows_to_float(c.rows + at * DIM, &rows, 0, rows.n);
        at += rows.n;
    }
    CHECK(memcmp(c.rows, c.landmarks, (size_t)info.chunks * DIM * sizeof(float)) == 0);
    float queries[QUERIES * DIM];
    struct store_range ranges[QUERIES];
    for (int q = 0; q < QUERIES; q++) {
        fixture_vector(queries + q * DIM, DIM, (uint64_t)q * 31, 0.6f);
        ranges[q] = (struct store_range){q * 10, q * 10 + 25};
    }
    struct store_search how = {.k = K, .exact = true, .threads = threads};
    CHECK_OK(store_view_search(v, c.one, queries, 1, &how));
    CHECK_OK(store_view_search(v, c.scanned, queries, QUERIES, &how));
    how.exact = false;
    CHECK_OK(store_view_search(v, c.found, queries, QUERIES, &how));
    how.exclude = ranges;
    CHECK_OK(store_view_search(v, c.filtered, queries, QUERIES, &how));
    return c;
}

static void free_contents(struct contents *c) {
    free(c->ids);
    free(c->landmarks);
    free(c->rows);
}

static void check_equal(const struct contents *a, const struct contents *b) {
    CHECK_EQ(a->chunks, b->chunks);
    CHECK(memcmp(a->ids, b->ids, (size_t)a->chunks * FIXTURE_CHUNK * sizeof *a->ids) == 0);
    CHECK(memcmp(a->landmarks, b->landmarks, (size_t)a->chunks * DIM * sizeof(float)) == 0);
    CHECK(fixture_same_hits(a->one, b->one, K));
    CHECK(fixture_same_hits(a->scanned, b->scanned, QUERIES * K));
    CHECK(fixture_same_hits(a->found, b->found, QUERIES * K));
    CHECK(fixture_same_hits(a->filtered, b->filtered, QUERIES * K));
}

/* Many more files than can be mapped at once. */
static void small_budgets(struct threads *threads, const char *index) {
    new_dir(index);
    fixture_store(dir, &config, 0, 120, 3, index);
    struct store *s;
    struct store_view *v;
    open_view(&s, &v);
    CHECK_EQ(v->landmarks.maps.mapped + v->tokens.mapped, 0);
    struct contents wanted = read_contents(v, threads);
    CHECK_EQ(v->landmarks.maps.mapped, 40);
    store_view_close(v);
    static const int64_t budgets[] = {1, 2, 7, 39, 40};
    for (size_t i = 0; i < ARRAY_LEN(budgets); i++) {
        CHECK_OK(store_view_open(&v, s));
        view_limit_maps(v, budgets[i]);
        struct contents got = read_contents(v, threads);
        check_equal(&wanted, &got);
        CHECK_EQ(v->landmarks.maps.mapped, budgets[i]);
        CHECK_EQ(v->tokens.mapped, budgets[i]);
        free_contents(&got);
        store_view_close(v);
    }
    free_contents(&wanted);
    store_close(s);
}

static int64_t mapped_files(void) {
    FILE *f = fopen("/proc/self/maps", "r");
    char line[800];
    int64_t n = 0;
    while (fgets(line, sizeof line, f))
        n += strstr(line, "/landmarks/") != NULL;
    fclose(f);
    return n;
}

/* A round keeps the files that it reads; the least recently used file is unmapped for the next one. */
static void rounds(void) {
    new_dir("rounds");
    fixture_store(dir, &config, 0, 12, 2, "exact");
    struct store *s;
    struct store_view *v;
    open_view(&s, &v);
    view_limit_maps(v, 3);
    struct shard_maps *m = &v->landmarks.maps;
    bool full;
    shard_maps_begin(m);
    for (int64_t i = 0; i < 6; i++) {
        CHECK_OK(shard_maps_touch(m, &full, i));
        CHECK(full == (i >= 3));
    }
    CHECK_EQ(mapped_files(), 3);
    shard_maps_begin(m);
    CHECK_OK(shard_maps_touch(m, &full, 0));
    CHECK_OK(shard_maps_touch(m, &full, 5));
    CHECK(!full && shard_maps_get(m, 0) && shard_maps_get(m, 5) && shard_maps_get(m, 2) && !shard_maps_get(m, 1));
    CHECK_EQ(mapped_files(), 3);
    store_view_close(v);
    CHECK_EQ(mapped_files(), 0);
    store_close(s);
}

/* The call that needs a damaged file finds the damage; the other files can still be read. */
static void damage_at_first_read(void) {
    new_dir("damage");
    fixture_store(dir, &config, 0, 12, 2, "exact");
    struct store *s;
    struct store_view *v;
    open_view(&s, &v);
    char path[700];
    snprintf(path, sizeof path, "%s/%s", dir, fixture_file("landmarks/00004.f16"));
    CHECK(truncate(path, 100) == 0);
    float row[DIM], query[DIM] = {1};
    struct store_hit hits[K];
    struct store_search how = {.k = K};
    CHECK_OK(store_view_landmark(v, row, v->shards[3].first_chunk));
    CHECK_FAILS(store_view_landmark(v, row, v->shards[4].first_chunk), STATUS_CORRUPT,
                fixture_file("landmarks/00004.f16"));
    CHECK_FAILS(store_view_search(v, hits, query, 1, &how), STATUS_CORRUPT, fixture_file("landmarks/00004.f16"));
    CHECK_OK(store_view_landmark(v, row, v->shards[5].first_chunk));
    store_view_close(v);
    store_close(s);
}

#ifndef __SANITIZE_ADDRESS__
/* If the system refuses a mapping, files are unmapped as if the budget were smaller. */
static void no_address_space(void) {
    struct store_writer_config wide = fixture_config(16384, VOCAB);
    new_dir("wide");
    fixture_store_elsewhere(dir, &wide, 0, 40, 1, "exact");
    struct store *s;
    struct store_view *v;
    open_view(&s, &v);
    struct shard_maps *m = &v->landmarks.maps;
    struct rlimit before, limit;
    bool full;
    long long pages;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(fscanf(f, "%lld", &pages) == 1);
    fclose(f);
    CHECK(getrlimit(RLIMIT_AS, &before) == 0);
    limit = before;
    limit.rlim_cur = (rlim_t)pages * 4096 + (512 << 10);
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    int64_t most = 0, touched = 0;
    for (int64_t i = 0; i < m->files; i++) {
        shard_maps_begin(m);
        if (shard_maps_touch(m, &full, i) == STATUS_OK && shard_maps_get(m, i)) touched++;
        most = m->mapped > most ? m->mapped : most;
    }
    CHECK(setrlimit(RLIMIT_AS, &before) == 0);
    CHECK_EQ(touched, m->files);
    CHECK(most < m->files && m->budget < SHARD_MAPS_BUDGET);
    store_view_close(v);
    store_close(s);
}
#endif

/* ---- merging ---- */

static void add_one(int64_t document, int64_t merge_chunks, const char *index) {
    struct store_writer *w;
    CHECK_OK(store_writer_open(&w, dir, &config, true));
    CHECK_OK(fixture_shard(w, &config, document, document + 1));
    struct store_publish how = {.index = index, .seed = 1, .merge_chunks = merge_chunks};
    CHECK_OK(store_writer_publish(w, &how));
    store_writer_close(w);
}

static int64_t files_in(const char *folder) {
    char path[700];
    snprintf(path, sizeof path, "%s/%s", dir, folder);
    DIR *d = opendir(path);
    int64_t n = 0;
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static int64_t verify_deep(void) {
    int64_t problems = -1;
    CHECK_OK(store_verify(dir, true, NULL, NULL, NULL, &problems));
    return problems;
}

static struct contents adds(int64_t n, int64_t merge_chunks, const char *index, struct threads *threads) {
    for (int64_t i = 0; i < n; i++)
        add_one(i, merge_chunks, i < 8 ? "exact" : index);
    struct store *s;
    struct store_view *v;
    struct store_info info;
    open_view(&s, &v);
    store_view_info(v, &info);
    struct contents c = read_contents(v, threads);
    CHECK_EQ(info.documents, n);
    if (merge_chunks == 0) CHECK_EQ(info.shards, n);
    int64_t small = 0;
    for (int64_t i = 0; i < v->n_shards; i = v->shards[i].last_file_shard + 1) {
        struct shard_record file = record_of_shard_file(v->shards, i);
        if (merge_chunks) CHECK(file.chunks <= merge_chunks);
        small += file.chunks < merge_chunks / 2;
    }
    if (merge_chunks) CHECK(small <= 6); /* each is more than twice as large as the next one */
    CHECK_EQ(files_in("tokens"), info.shards);
    CHECK_EQ(files_in("landmarks"), info.shards);
    store_view_close(v);
    store_close(s);
    CHECK_EQ(verify_deep(), 0);
    return c;
}

static void merged_store_reads_the_same(struct threads *threads, const char *index) {
    new_dir("apart");
    struct contents apart = adds(60, 0, index, threads);
    new_dir("together");
    struct contents together = adds(60, MERGE_CHUNKS, index, threads);
    check_equal(&apart, &together);
    free_contents(&apart);
    free_contents(&together);
    char command[700];
    snprintf(command, sizeof command, "rm -rf '%s/apart' '%s/together'", test_folder(), test_folder());
    CHECK_EQ(system(command), 0);
}

/* A store of an earlier version with many small shards: each publishing merges a bounded part of them. */
static void older_small_shards(void) {
    new_dir("older");
    fixture_store(dir, &config, 0, 90, 1, "exact");
    int64_t before = files_in("tokens");
    for (int64_t i = 90; i < 100; i++) {
        add_one(i, MERGE_CHUNKS, "auto");
        int64_t now = files_in("tokens");
        CHECK(before + 1 - now <= 2 * MERGE_CHUNKS); /* two merges at most, of files of a chunk or more */
        before = now;
    }
    CHECK(before < 20);
    CHECK_EQ(verify_deep(), 0);
}

/* A view that was opened before keeps its generation, whether it had mapped a file or not. The first test, since
 * ThreadSanitizer ends a child that starts threads if its parent had some. */
static void view_beside_a_merge(void) {
    struct threads *threads;
    int go[2];
    char byte = 0;
    new_dir("beside");
    fixture_store_elsewhere(dir, &config, 0, 30, 1, "IVF2,SQ8");
    CHECK(pipe(go) == 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        close(go[1]);
        if (read(go[0], &byte, 1) != 1) _exit(1);
        for (int64_t i = 30; i < 36; i++)
            add_one(i, MERGE_CHUNKS, "auto");
        _exit(0);
    }
    close(go[0]);
    CHECK_OK(threads_create(&threads, 3));
    struct store *s;
    struct store_view *v, *reference;
    open_view(&s, &v);
    CHECK_OK(store_view_open(&reference, s));
    struct contents wanted = read_contents(reference, threads);
    store_view_close(reference);
    int32_t ids[FIXTURE_CHUNK];
    struct store_chunk chunk;
    CHECK_OK(store_view_chunk(v, &chunk, ids, 7));
    CHECK(write(go[1], &byte, 1) == 1);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(files_in("tokens") < 10);
    struct contents got = read_contents(v, threads);
    check_equal(&wanted, &got);
    struct store_info info;
    store_view_info(v, &info);
    CHECK_EQ(info.generation, 1);
    free_contents(&wanted);
    free_contents(&got);
    store_view_close(v);
    store_close(s);
    close(go[1]);
    threads_free(threads);
}

/* A shard with a changed byte is not merged, and the change is still found. */
static void damage_is_not_merged(void) {
    new_dir("laundry");
    fixture_store(dir, &config, 0, 1, 1, "exact");
    char path[700];
    snprintf(path, sizeof path, "%s/tokens/00000.tok", dir);
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pwrite(fd, "\7", 1, 64) == 1);
    close(fd);
    add_one(1, MERGE_CHUNKS, "auto");
    CHECK_EQ(files_in("tokens"), 2);
    CHECK_EQ(verify_deep(), 1);
}

/* ---- what is held until a shard is sealed ---- */

enum { HELD_FILES = 4, HELD_DIM = 1000, HELD_ROWS = 2500, HELD_IDS = 200000 };

static enum shard_kind held_kind(int file) {
    return file == 3 ? SHARD_LANDMARKS_I8 : file == 2 ? SHARD_TOKENS : SHARD_LANDMARKS_F16;
}

/* Two files of landmarks, of 5 MB and a smaller one, one of 4 MB of ids and one of 1 MB of 8-bit landmarks, which are
 * made at the same time, with a pool of `blocks` MiB. */
static void make_held(const char *name, uint64_t blocks, uint32_t crc[HELD_FILES]) {
    static float rows[HELD_ROWS / 10 * HELD_DIM];
    static uint16_t halves[ARRAY_LEN(rows)];
    static int32_t ids[HELD_IDS];
    const struct store_fingerprint f = {.dim = HELD_DIM, .vocab_size = VOCAB, .chunk_tokens = FIXTURE_CHUNK};
    struct held_pool *pool;
    struct shard_writer *w[HELD_FILES];
    char path[FILE_PATH_MAX];
    CHECK_OK(file_make_directory(new_dir(name)));
    CHECK_OK(file_join(path, dir, "landmarks"));
    CHECK_OK(file_make_directory(path));
    CHECK_OK(file_join(path, dir, "tokens"));
    CHECK_OK(file_make_directory(path));
    CHECK_OK(held_pool_create(&pool, blocks << 20));
    for (int i = 0; i < HELD_FILES; i++) {
        const struct shard_record r = {.number = i, .first_file_shard = i, .last_file_shard = i};
        CHECK_OK(shard_create(&w[i], dir, held_kind(i), &r, &f));
        shard_hold(w[i], pool);
    }
    for (int part = 0; part < 10; part++) {
        for (size_t k = 0; k < ARRAY_LEN(rows); k++)
            rows[k] = (float)((k * 31 + (size_t)part) % 2003);
        for (int k = 0; k < HELD_IDS; k++)
            ids[k] = (k * 7 + part) % VOCAB;
        CHECK_OK(shard_write_ids(w[2], ids, HELD_IDS));
        half_to_f16_row(halves, rows, ARRAY_LEN(rows));
        if ((part + blocks) % 2) /* the bytes are the same, converted here or by the caller */
            CHECK_OK(shard_write_rows(w[0], rows, HELD_ROWS / 10));
        else
            CHECK_OK(shard_write_halves(w[0], halves, HELD_ROWS / 10));
        CHECK_OK(shard_write_rows(w[1], rows, 1 + part * 20));
        CHECK_OK(shard_write_rows(w[3], rows, 100 + part));
    }
    for (int i = 0; i < HELD_FILES; i++) {
        struct stored_file stored;
        uint32_t written;
        char file[FILE_PATH_MAX];
        CHECK_OK(shard_publish(w[i], &stored));
        CHECK_OK(shard_path(file, dir, held_kind(i), i, i));
        CHECK_OK(file_checksum(&written, file));
        CHECK_EQ(written, stored.crc);
        crc[i] = written;
    }
    /* a file that is discarded returns its blocks */
    const struct shard_record r = {.number = 7, .first_file_shard = 7, .last_file_shard = 7};
    CHECK_OK(shard_create(&w[0], dir, SHARD_LANDMARKS_F16, &r, &f));
    shard_hold(w[0], pool);
    CHECK_OK(shard_write_rows(w[0], rows, HELD_ROWS / 10));
    CHECK(shard_is_f16(w[0]) && !shard_is_f16(NULL));
    const float broken[] = {65520.0f, -INFINITY, NAN};
    for (size_t i = 0; i < ARRAY_LEN(broken); i++) {
        rows[3 * HELD_DIM + 500] = broken[i];
        half_to_f16_row(halves, rows, ARRAY_LEN(rows));
        CHECK_FAILS(shard_write_halves(w[0], halves, 5), STATUS_INVALID, "row 253: value");
    }
    CHECK_FAILS(shard_write_rows(w[0], rows, 5), STATUS_INVALID, "row 253: value nan does not fit fp16");
    shard_discard(w[0]);
    held_pool_free(pool);
    held_pool_free(NULL);
}

/* The bytes of files do not depend on how much is held: nothing, a part, all. */
static void held_files_are_equal(void) {
    static const uint64_t blocks[] = {0, 1, 2, 3, 7, 11, 100};
    uint32_t first[HELD_FILES], crc[HELD_FILES];
    for (size_t i = 0; i < ARRAY_LEN(blocks); i++) {
        char name[40];
        snprintf(name, sizeof name, "held-%d", (int)blocks[i]);
        make_held(name, blocks[i], i == 0 ? first : crc);
        if (i > 0) CHECK(memcmp(first, crc, sizeof crc) == 0);
    }
}

/* Many shards that are complete at once are recorded several at a time. The journal and the store are those of shards
 * that were sealed one after another. */
static void queued_shards(struct threads *threads) {
    enum { SHARDS = 90 };
    struct contents contents[2];
    for (int queued = 0; queued < 2; queued++) {
        struct store_writer *w;
        struct store_journal journal;
        struct store *s;
        struct store_view *v;
        int64_t end = 0;
        bool duplicate;
        CHECK_OK(store_writer_open(&w, new_dir(queued ? "queued" : "one-by-one"), &config, true));
        for (int i = 0; i < SHARDS; i++) {
            CHECK_OK(store_shard_begin(w));
            for (const int64_t begin = end; end < begin + 1 + i % 4; end++)
                CHECK_OK(fixture_add(w, &config, end, &duplicate));
            struct store_shard *shard = store_shard_open(w);
            if (!queued) {
                CHECK_OK(store_shard_seal(w, &end, sizeof end));
                continue;
            }
            CHECK_OK(store_shard_end(w, &end, sizeof end));
            CHECK_OK(store_shard_complete(shard));
        }
        CHECK_OK(store_writer_wait(w));
        CHECK_OK(store_writer_journal(w, &journal));
        CHECK_EQ(journal.shards, SHARDS);
        CHECK_EQ(journal.documents, end);
        CHECK(journal.cursor_bytes == sizeof end && memcmp(journal.cursor, &end, sizeof end) == 0);
        CHECK_OK(store_writer_publish(w, &(struct store_publish){.index = "exact", .seed = 1}));
        store_writer_close(w);
        open_view(&s, &v);
        contents[queued] = read_contents(v, threads);
        store_view_close(v);
        store_close(s);
    }
    check_equal(&contents[0], &contents[1]);
    free_contents(&contents[0]);
    free_contents(&contents[1]);
}

/* All hashes that were added may be there; of others very few. */
static void known_hashes(void) {
    enum { HASHES = 200000 };
    struct known_hashes *k;
    struct rng rng = rng_make(test_seed(), 9), again = rng;
    int64_t others = 0;
    CHECK_OK(known_hashes_create(&k));
    for (int i = 0; i < 2 * HASHES; i++) {
        uint64_t hash[2] = {rng_u64(&rng), rng_u64(&rng)};
        if (i < HASHES)
            known_hashes_add(k, (uint8_t *)hash);
        else
            others += known_hashes_may_have(k, (uint8_t *)hash);
    }
    for (int i = 0; i < HASHES; i++) {
        uint64_t hash[2] = {rng_u64(&again), rng_u64(&again)};
        CHECK(known_hashes_may_have(k, (uint8_t *)hash));
        CHECK(known_hashes_may_have(NULL, (uint8_t *)hash));
    }
    CHECK(others < HASHES / 1000);
    known_hashes_add(NULL, (uint8_t[16]){0});
    known_hashes_free(k);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    config = fixture_config(DIM, VOCAB);
    if (access("/dev/shm", W_OK) == 0) setenv("DRT_TEST_TMP", "/dev/shm", 1);
    view_beside_a_merge();
    struct threads *threads;
    CHECK_OK(threads_create(&threads, 3));
    small_budgets(threads, "exact");
    small_budgets(threads, "IVF4,SQ8");
    rounds();
    damage_at_first_read();
#ifndef __SANITIZE_ADDRESS__
    no_address_space();
#endif
    merged_store_reads_the_same(threads, "IVF2,SQ8");
    older_small_shards();
    damage_is_not_merged();
    held_files_are_equal();
    queued_shards(threads);
    known_hashes();
    threads_free(threads);
    return test_done();
}
