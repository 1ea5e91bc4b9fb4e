/* test_store_large_ids.c -- ids beyond 2^32: chunks, tokens and positions, in lookups, every search, additions,
 * deletions, join, compact, freeze, repair and verify. The first shard is a dropped one of 4.4 * 10^9 chunks, so that
 * the files are small. */
#include "store/change/freeze.h"
#include "tests/lexical_fixture.h"
#include "tests/unit/store/catalog_fixture.h"

enum { DIM = 8, VOCAB = 60, K = 5 };
static const int64_t HOLE = INT64_C(4400000000);

static const char *in_folder(const char *name) {
    static char paths[10][600];
    static int used;
    CHECK(used < (int)ARRAY_LEN(paths));
    char *path = paths[used++];
    snprintf(path, sizeof paths[0], "%s/%s", test_folder(), name);
    return path;
}

static struct catalog_shards hole(const char *dir, int part) {
    const struct store_writer_config config = fixture_config(DIM, VOCAB);
    return (struct catalog_shards){.dir = dir,
                                   .fingerprint = config.fingerprint,
                                   .shards = 1,
                                   .chunks = HOLE,
                                   .files = CATALOG_DROPPED,
                                   .part = {.part = part, .parts = part ? 2 : 0}};
}

static void add(const char *dir, int64_t begin, int64_t end, const char *index) {
    const struct store_writer_config config = fixture_config(DIM, VOCAB);
    struct store_writer *w;
    CHECK_OK(store_writer_open(&w, dir, &config, false));
    for (int64_t i = begin; i < end; i += 50)
        CHECK_OK(fixture_shard(w, &config, i, i + 50 < end ? i + 50 : end));
    CHECK_OK(store_writer_publish(
        w, &(struct store_publish){.index = index, .seed = 1, .lexical = STORE_LEXICAL_ON, .merge_chunks = 500}));
    store_writer_close(w);
}

static void verify(const char *dir) {
    fixture_verify(dir, true);
}

/* The store has documents [begin, end) of the fixture, with these ids and no others, and each search finds them. */
static void check_contents(const char *dir, int64_t first_chunk, int64_t first_document, int64_t begin, int64_t end) {
    struct store *s;
    struct store_view *v;
    CHECK_OK(store_open(&s, dir));
    CHECK_OK(store_view_open(&v, s));
    int64_t chunk = first_chunk;
    for (int64_t i = begin; i < end; i++) {
        int32_t ids[FIXTURE_IDS_MAX], got[FIXTURE_CHUNK];
        float row[DIM], want[DIM];
        uint8_t hash[16];
        struct store_document d;
        size_t n = fixture_ids(ids, i, VOCAB);
        fixture_hash(hash, i);
        int64_t number;
        CHECK_OK(store_view_find_document(v, &number, hash));
        CHECK_OK(store_view_document(v, &d, number));
        CHECK(number == first_document + i - begin && d.first_chunk == chunk && d.tokens == (int64_t)n);
        for (int64_t j = 0; j < d.chunks; j++, chunk++) {
            struct store_chunk c;
            CHECK_OK(store_view_chunk(v, &c, got, chunk));
            CHECK(c.id == chunk && c.document == number && c.in_document == j &&
                  memcmp(got, ids + j * FIXTURE_CHUNK, (size_t)c.n_tokens * sizeof *ids) == 0);
            fixture_landmark(want, DIM, i, j);
            CHECK_OK(store_view_landmark(v, row, chunk));
            for (int x = 0; x < DIM; x++)
                CHECK(fabsf(row[x] - want[x]) < 0.02f);
            struct store_hit exact[K], found[K];
            CHECK_OK(store_view_search(v, exact, want, 1, &(struct store_search){.k = K, .exact = true}));
            CHECK_OK(
                store_view_search(v, found, want, 1, &(struct store_search){.k = K, .nprobe = 8, .candidates = 400}));
            CHECK(fixture_same_hits(exact, found, K));
            CHECK(exact[0].chunk >= HOLE);
            const struct store_range all = {0, HOLE}, self = {exact[0].chunk, exact[0].chunk + 1};
            CHECK_OK(
                store_view_search(v, found, want, 1, &(struct store_search){.k = K, .exact = true, .exclude = &all}));
            CHECK(fixture_same_hits(exact, found, K));
            CHECK_OK(store_view_search(
                v, found, want, 1, &(struct store_search){.k = K, .nprobe = 8, .candidates = 400, .exclude = &self}));
            CHECK(fixture_same_hits(exact + 1, found, K - 1));
            float score;
            CHECK_OK(store_view_scores(v, &score, want, &exact[0].chunk, 1));
            CHECK(memcmp(&score, &exact[0].score, sizeof score) == 0);
        }
        const struct lexical *x;
        struct store_hit hits[K];
        CHECK_OK(store_view_lexical(&x, v));
        CHECK_OK(lexical_search(x, hits, &(struct lexical_query){ids, n < 8 ? (int)n : 8}, 1,
                                &(struct lexical_search){.k = K, .pair_weight = LEXICAL_PAIR_WEIGHT}));
        CHECK(hits[0].chunk >= HOLE);
    }
    CHECK(chunk > first_chunk);
    store_view_close(v);
    store_close(s);
}

static void test_changes(void) {
    const char *dir = in_folder("store"), *snap = in_folder("snap"), *compact = in_folder("compact");
    const struct catalog_shards c = hole(dir, 0);
    catalog_make(&c);
    add(dir, 0, 60, "IVF4,SQ8");
    check_contents(dir, HOLE, 1, 0, 60);
    verify(dir);
    add(dir, 60, 90, "auto");
    check_contents(dir, HOLE, 1, 0, 90);
    int64_t problems;
    CHECK_OK(store_repair(dir, &(struct store_publish){.index = "IVF8,SQ8", .seed = 1}, NULL, fixture_print_problem,
                          NULL, &problems));
    CHECK(problems == 0);
    check_contents(dir, HOLE, 1, 0, 90);
    struct store_freeze_report frozen;
    CHECK_OK(store_freeze(&frozen, dir, snap, &(struct store_freeze){0}));
    CHECK(frozen.chunks > HOLE);
    check_contents(snap, HOLE, 1, 0, 90);
    verify(snap);

    /* Documents 10 to 19 of the fixture are deleted; their chunks are amid ids beyond 2^32. */
    int64_t gone[10];
    for (int i = 0; i < 10; i++)
        gone[i] = 11 + i;
    struct store_delete_report deleted;
    CHECK_OK(store_delete(&deleted, dir, &(struct store_delete){.documents = gone, .n_documents = 10}));
    CHECK(deleted.documents == 10);
    verify(dir);
    struct store *s;
    struct store_view *v;
    struct store_document d;
    struct store_info info;
    CHECK_OK(store_open(&s, dir));
    CHECK_OK(store_view_open(&v, s));
    store_view_info(v, &info);
    CHECK(store_view_document(v, &d, 11) == STATUS_NOT_FOUND && store_view_document(v, &d, 21) == STATUS_OK);
    CHECK(info.chunks - info.dropped_chunks < 400);
    const struct store_dropped dropped = store_view_dropped(v);
    int64_t left = info.chunks - info.dropped_chunks;
    CHECK(store_dropped_nth(dropped, 0) == HOLE && store_dropped_nth(dropped, left - 1) == info.chunks - 1);
    CHECK(store_dropped_rank(dropped, info.chunks) == left);
    store_view_close(v);
    store_close(s);
    struct store_compact_report report;
    CHECK_OK(store_compact(&report, dir, compact, &(struct store_compact){.publish = {.seed = 1}}));
    CHECK(report.documents == 80 && report.chunks == left);
    verify(compact);
}

/* Two parts with ids beyond 2^32 each: after a join the second one's ids begin beyond 2^33. */
static void test_join(void) {
    const char *parts[2] = {in_folder("part1"), in_folder("part2")}, *dir = in_folder("joined");
    int64_t chunks[2];
    for (int i = 0; i < 2; i++) {
        const struct catalog_shards c = hole(parts[i], i + 1);
        catalog_make(&c);
        const struct store_writer_config config = fixture_config(DIM, VOCAB);
        struct store_writer *w;
        struct store_journal journal;
        bool finished;
        CHECK_OK(store_writer_open(&w, parts[i], &config, false));
        CHECK_OK(store_writer_part(w, &c.part, &finished));
        CHECK_OK(fixture_shard(w, &config, 40 * i, 40 * i + 40));
        CHECK_OK(store_writer_journal(w, &journal));
        chunks[i] = HOLE + journal.chunks;
        CHECK_OK(store_writer_publish(w, &(struct store_publish){.index = "exact"}));
        store_writer_close(w);
    }
    struct store_join_report report;
    const struct store_join how = {
        .parts = parts, .n_parts = 2, .publish = {.index = "IVF2,SQ8", .seed = 1, .lexical = STORE_LEXICAL_ON}};
    CHECK_OK(store_join(&report, dir, &how));
    CHECK(report.chunks == chunks[0] + chunks[1] && report.chunks > 2 * HOLE);
    check_contents(dir, HOLE, 1, 0, 40);
    check_contents(dir, chunks[0] + HOLE, 42, 40, 80);
    verify(dir);
}

/* One shard whose files have 4.4 * 10^9 rows, sparse: rows and tokens beyond 2^32 in one file. */
static void test_sparse(void) {
    const char *dir = in_folder("sparse");
    struct catalog_shards c = hole(dir, 0);
    c.files = CATALOG_SPARSE;
    char path[FILE_PATH_MAX];
    snprintf(path, sizeof path, "%s.can", dir);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    bool can =
        fd >= 0 && ftruncate(fd, (off_t)(2 * DIM * HOLE)) == 0 && memory_has_address_space((uint64_t)HOLE * DIM * 8);
    CHECK(fd < 0 || close(fd) == 0);
    CHECK(unlink(path) == 0);
    if (!can) {
        fprintf(stderr, "  no sparse files of 70 GB here: not tested\n");
        return;
    }
    catalog_make(&c);
    /* The landmark and the first token of the last chunk but one. */
    const int64_t chunk = HOLE - 2;
    catalog_path_of(path, &c, SHARD_LANDMARKS_F16, 0);
    const uint16_t one = 0x3c00;
    const uint16_t id = 57;
    fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pwrite(fd, &one, 2, (off_t)(SHARD_HEADER_BYTES + chunk * DIM * 2)) == 2 && close(fd) == 0);
    catalog_path_of(path, &c, SHARD_TOKENS, 0);
    fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pwrite(fd, &id, 2, (off_t)(SHARD_HEADER_BYTES + chunk * FIXTURE_CHUNK * 2)) == 2 &&
          close(fd) == 0);
    struct store *s;
    struct store_view *v;
    struct store_chunk found;
    struct store_info info;
    int32_t ids[FIXTURE_CHUNK];
    float row[DIM], query[DIM] = {1}, score;
    CHECK_OK(store_open(&s, dir));
    CHECK_OK(store_view_open(&v, s));
    store_view_info(v, &info);
    CHECK(info.chunks == HOLE && info.landmark_bytes == (uint64_t)HOLE * DIM * 2 + 96);
    CHECK_OK(store_view_chunk(v, &found, ids, chunk));
    CHECK(found.in_document == chunk && found.token_offset == chunk * FIXTURE_CHUNK && ids[0] == 57 && ids[1] == 0);
    CHECK_OK(store_view_landmark(v, row, chunk));
    CHECK(row[0] == 1 && row[1] == 0);
    CHECK_OK(store_view_scores(v, &score, query, &chunk, 1));
    CHECK(fabsf(score - 1 / sqrtf(DIM)) < 1e-6f);
    struct store_rows rows;
    CHECK_OK(store_view_landmark_rows(v, &rows, chunk));
    CHECK(rows.n == 2 && rows.half[0] == one && rows.half[DIM] == 0 && !rows.codes);
    CHECK(store_view_chunk(v, &found, ids, HOLE) == STATUS_NOT_FOUND);
    store_view_close(v);
    store_close(s);
    fixture_verify(dir, false);
}

/* 3,000 shards of 1.5 * 10^6 chunks each, twice that after a join. */
static void check_many(const char *dir, int64_t shards, int64_t chunks) {
    struct store *s;
    struct store_view *v;
    struct store_info info;
    int32_t ids[FIXTURE_CHUNK];
    float row[DIM];
    struct rng r = rng_make(21, 0);
    CHECK_OK(store_open(&s, dir));
    CHECK_OK(store_view_open(&v, s));
    store_view_info(v, &info);
    CHECK(info.chunks == shards * chunks && info.shards == shards && info.documents == shards);
    for (int i = 0; i < 400; i++) {
        struct store_chunk c;
        const int64_t chunk = i == 0 ? 0 : i == 1 ? info.chunks - 1 : (int64_t)rng_below(&r, (uint64_t)info.chunks);
        enum status status = store_view_chunk(v, &c, ids, chunk);
        CHECK(status == (store_dropped_live(store_view_dropped(v), chunk) ? STATUS_OK : STATUS_NOT_FOUND));
        CHECK(store_view_landmark(v, row, chunk) == status);
        if (status != STATUS_OK) continue;
        CHECK(c.document == chunk / chunks && c.in_document == chunk % chunks && ids[0] == 0 && row[0] == 0);
    }
    store_view_close(v);
    store_close(s);
    fixture_verify(dir, false);
}

static void test_many(void) {
    const char *parts[2] = {in_folder("many1"), in_folder("many2")}, *dir = in_folder("many");
    for (int i = 0; i < 2; i++) {
        struct catalog_shards c = hole(parts[i], i + 1);
        c.shards = 3000;
        c.chunks = 1500000;
        c.files = CATALOG_LINKED;
        catalog_make(&c);
        check_many(parts[i], c.shards, c.chunks);
    }
    struct store_join_report report;
    const struct store_join how = {.parts = parts, .n_parts = 2, .publish = {.index = "exact"}};
    CHECK_OK(store_join(&report, dir, &how));
    CHECK(report.copied == 0 && report.copies == 3000 && report.chunks == INT64_C(9000000000));
    check_many(dir, 6000, 1500000);
    /* A missing file is found when it is read, and by verify. */
    char path[FILE_PATH_MAX];
    struct store *s;
    struct store_view *v;
    float row[DIM];
    CHECK_OK(shard_path(path, dir, SHARD_LANDMARKS_F16, 2999, 2999));
    CHECK(unlink(path) == 0);
    CHECK_OK(store_open(&s, dir));
    CHECK_OK(store_view_open(&v, s));
    CHECK_OK(store_view_landmark(v, row, INT64_C(2998) * 1500000));
    CHECK_FAILS(store_view_landmark(v, row, INT64_C(2999) * 1500000 + 7), STATUS_CORRUPT, "missing");
    store_view_close(v);
    store_close(s);
    int64_t problems;
    CHECK_OK(store_verify(dir, false, NULL, NULL, NULL, &problems));
    CHECK(problems == 1);
}

int main(void) {
    test_changes();
    test_join();
    test_sparse();
    test_many();
    return test_done();
}
