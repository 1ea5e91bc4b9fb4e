/* test_store_mend_merged.c -- dropped shards, and landmarks encoded again, if shards share files. */
#include "tests/mend_fixture.h"
#include <fcntl.h>
#include <sys/stat.h>

enum { DIM = 16, VOCAB = 200, EACH = 25, SHARDS = 4, DOCUMENTS = SHARDS * EACH, QUERIES = 12, K = 8 };
enum { MERGE = 100000, CHUNKS_MAX = 2000 };
static struct found verified; /* findings of verify */
static const char tokens_file[] = "tokens/00000-00003.tok", landmarks_file[] = "landmarks/00000-00003.f16";
static struct store_writer_config config;

static bool exists(const char *name) {
    return access(in_store(name), F_OK) == 0;
}

/* A store of SHARDS shards of EACH documents, in one pair of files if merge_chunks > 0. Made once for each kind, then
 * copied. */
static void new_store(const char *index, int64_t merge_chunks) {
    static int number;
    char made[700];
    snprintf(made, sizeof made, "%s/made-%.4s-%d", test_folder(), index, merge_chunks > 0);
    snprintf(dir, sizeof dir, "%s/store-%d", test_folder(), number++);
    if (access(made, F_OK) != 0) CHECK_OK(mend_add(made, &config, 0, DOCUMENTS, EACH, index, merge_chunks));
    copy_store(dir, made);
    CHECK_EQ(exists(tokens_file), merge_chunks > 0);
}

static enum status drop(int64_t begin, int64_t end) {
    struct store_drop_report report;
    const struct store_range range = {begin, end};
    return store_drop(&report, dir, &(struct store_drop){.ranges = &range, .n_ranges = 1, .publish = {.seed = 1}});
}

/* All its chunks fit struct contents. */
static void open_small(struct opened *o) {
    open_view(o);
    CHECK(o->info.chunks <= CHUNKS_MAX);
}

/* Tokens and landmarks of the existing chunks, by id. */
struct contents {
    int64_t chunks;
    bool there[CHUNKS_MAX];
    int32_t ids[CHUNKS_MAX][FIXTURE_CHUNK];
    float rows[CHUNKS_MAX][DIM];
};

/* Both searches find the same hits, all chunks that exist, and none that was dropped. */
static void check_search(struct store_view *v, const struct contents *c) {
    float queries[QUERIES * DIM];
    struct store_hit hits[2][QUERIES * K];
    for (int q = 0; q < QUERIES; q++)
        fixture_vector(queries + q * DIM, DIM, (uint64_t)q * 3, 0.6f);
    for (int exact = 0; exact < 2; exact++) {
        const struct store_search how = {.k = K, .nprobe = 4, .candidates = 4000, .exact = exact};
        CHECK_OK(store_view_search(v, hits[exact], queries, QUERIES, &how));
        for (int q = 0; q < QUERIES; q++)
            CHECK_EQ(store_view_missing(v, hits[exact] + q * K, K, NULL), 0);
        for (int i = 0; i < QUERIES * K; i++)
            CHECK(hits[exact][i].chunk < 0 || c->there[hits[exact][i].chunk]);
    }
    CHECK(fixture_same_hits(hits[0], hits[1], QUERIES * K));
    /* k larger than the store, with an excluded range that has some dropped chunks: these do not count as missing. */
    static struct store_hit all[CHUNKS_MAX];
    const struct store_range half = {0, c->chunks / 2};
    int64_t left = 0;
    for (int64_t i = half.end; i < c->chunks; i++)
        left += c->there[i];
    CHECK_OK(store_view_search(v, all, queries, 1, &(struct store_search){.k = (int)c->chunks, .exclude = &half}));
    CHECK(left == 0 || all[left - 1].chunk >= 0);
    CHECK_EQ(all[left].chunk, -1);
    CHECK_EQ(store_view_missing(v, all, (int)c->chunks, &half), 0);
}

static void read_contents(struct contents *c, struct store_view *v) {
    struct store_info info;
    struct store_chunk chunk;
    struct store_rows rows;
    int64_t live = 0;
    store_view_info(v, &info);
    *c = (struct contents){.chunks = info.chunks};
    for (int64_t i = 0; i < info.chunks; i++) {
        enum status s = store_view_chunk(v, &chunk, c->ids[i], i);
        c->there[i] = s == STATUS_OK;
        CHECK(s == STATUS_OK || s == STATUS_NOT_FOUND);
        CHECK_EQ((int)store_view_landmark(v, c->rows[i], i), (int)s);
        CHECK_EQ((int)store_view_landmark_rows(v, &rows, i), (int)s);
        live += s == STATUS_OK;
    }
    for (int64_t i = 0; i < info.chunks; i++) /* a run of rows ends at a dropped chunk */
        if (c->there[i]) {
            CHECK_OK(store_view_landmark_rows(v, &rows, i));
            for (int64_t j = i; j < i + rows.n; j++)
                CHECK(c->there[j]);
        }
    CHECK_EQ(live, info.chunks - info.dropped_chunks);
    check_search(v, c);
}

static void read_store(struct contents *c) {
    struct opened o;
    CHECK_EQ(verify(true, &verified), 0);
    open_small(&o);
    read_contents(c, o.v);
    close_view(&o);
}

/* The contents of `now` are unchanged, except that chunks begin .. end-1 are missing. */
static void check_hole(const struct contents *before, const struct contents *now, int64_t begin, int64_t end) {
    for (int64_t i = 0; i < before->chunks; i++) {
        CHECK_EQ(now->there[i], i < begin || i >= end);
        if (!now->there[i]) continue;
        CHECK(memcmp(before->ids[i], now->ids[i], sizeof now->ids[i]) == 0);
        CHECK(memcmp(before->rows[i], now->rows[i], sizeof now->rows[i]) == 0);
    }
}

static struct store_range chunks_of(int64_t shard) {
    struct opened o;
    struct store_document first, last;
    open_small(&o);
    CHECK_OK(store_view_document(o.v, &first, shard * EACH));
    CHECK_OK(store_view_document(o.v, &last, (shard + 1) * EACH - 1));
    close_view(&o);
    return (struct store_range){first.first_chunk, last.first_chunk + last.chunks};
}

static struct contents before, now;

/* One of the shards of a file is dropped; the others still use the file, until the last is dropped. */
static void drop_from_a_merged_file(const char *index) {
    new_store(index, MERGE);
    read_store(&before);
    for (int64_t shard = 0; shard < SHARDS; shard++) { /* the first, a middle one, the last */
        new_store(index, MERGE);
        struct store_range hole = chunks_of(shard);
        CHECK_OK(drop(shard, shard + 1));
        CHECK_EQ(mend_repair(&config, 0, NULL), 0); /* a writer, which removes files that nothing names */
        CHECK(exists(tokens_file) && exists(landmarks_file));
        read_store(&now);
        check_hole(&before, &now, hole.begin, hole.end);
    }
    CHECK_OK(drop(0, SHARDS)); /* the last of them was dropped before */
    CHECK(exists(tokens_file));
    CHECK_EQ(verify(true, &verified), 0);
    CHECK_EQ(mend_repair(&config, 0, NULL), 0);
    CHECK(!exists(tokens_file) && !exists(landmarks_file));
    struct opened o;
    open_small(&o);
    CHECK_EQ(o.info.shards, 0);
    CHECK_EQ(o.info.dropped_shards, SHARDS);
    CHECK_EQ(o.info.dropped_chunks, o.info.chunks);
    close_view(&o);
    CHECK_OK(mend_add(dir, &config, 0, DOCUMENTS, EACH, index, MERGE));
    read_store(&now);
    CHECK_EQ(now.chunks, 2 * before.chunks);
    CHECK(memcmp(now.ids[before.chunks], before.ids[0], sizeof before.ids[0] * (size_t)before.chunks) == 0);
}

/* It is unknown which shard of a file is damaged: the remedy names all, and works. */
static void lost_tokens_of_a_merged_file(void) {
    struct opened o;
    new_store("IVF4,Flat", MERGE);
    flip(in_store(tokens_file), 80, 5);
    CHECK_EQ(verify(true, &verified), 1);
    CHECK_STR(verified.remedy, "run drt-index drop --shard 0-3, then add their documents again");
    CHECK_OK(drop(1, 2)); /* one is not enough */
    CHECK_EQ(verify(true, &verified), 1);
    CHECK_STR(verified.remedy, "run drt-index drop --shard 0-3, then add their documents again");
    CHECK(unlink(in_store(tokens_file)) == 0);
    CHECK_FAILS(store_open(&o.s, dir), STATUS_CORRUPT, "run drt-index drop --shard 0-3");
    CHECK_OK(drop(0, SHARDS));
    CHECK_EQ(verify(true, &verified), 0);
    CHECK_OK(mend_add(dir, &config, 0, DOCUMENTS, EACH, "IVF4,Flat", MERGE));
    read_store(&now);
    CHECK_FAILS(drop(3, 9), STATUS_NOT_FOUND, "there is no shard 8, the store has 8");
}

/* All shards of the file are encoded again, and all that are not dropped get its new checksum. */
static void landmarks_of_a_merged_file(const char *index, bool dropped) {
    struct opened o;
    new_store(index, MERGE);
    struct store_range hole = chunks_of(1);
    if (dropped) CHECK_OK(drop(1, 2));
    read_store(&before);
    for (int kind = 0; kind < 2; kind++) {
        if (kind == 0) flip(in_store(landmarks_file), 2000, 5);
        if (kind == 1) CHECK(unlink(in_store(landmarks_file)) == 0);
        CHECK_EQ(verify(true, &verified), 1);
        CHECK_STR(verified.remedy, "run drt-index repair --model with the model that made the store");
        CHECK_EQ(mend_repair(&config, 0, NULL), 0);
        read_store(&now);
        if (dropped) check_hole(&before, &now, hole.begin, hole.end);
        if (!dropped) check_hole(&before, &now, 0, 0);
        open_small(&o);
        CHECK_EQ(o.info.generation, dropped ? 2 : 1); /* equal bytes: nothing was recorded */
        close_view(&o);
    }
    flip(in_store(landmarks_file), 2000, 5);
    CHECK_EQ(mend_repair(&config, 3.0f, NULL), 0);
    read_store(&now);
    for (int64_t i = 0; i < now.chunks; i++) {
        CHECK_EQ(now.there[i], before.there[i]);
        if (now.there[i]) CHECK(fabsf(now.rows[i][0] - before.rows[i][0] - 3.0f) < 0.1f);
    }
    open_small(&o);
    CHECK_EQ(o.info.generation, dropped ? 3 : 2);
    close_view(&o);
}

/* Merging skips a dropped shard, and a file that has one. */
static void merge_beside_a_hole(const char *index) {
    struct opened o;
    new_store(index, 0);
    struct store_range hole = chunks_of(1);
    read_store(&before);
    CHECK_OK(drop(1, 2));
    CHECK_OK(mend_add(dir, &config, 0, DOCUMENTS, EACH, index, MERGE)); /* the dropped documents: shard 4 */
    CHECK(exists("tokens/00000.tok") && exists("tokens/00002-00004.tok") && !exists("tokens/00001.tok"));
    read_store(&now);
    check_hole(&before, &now, hole.begin, hole.end);
    before = now;
    CHECK_OK(drop(3, 4));                                                          /* of a merged file */
    CHECK_OK(mend_add(dir, &config, 0, DOCUMENTS + 2 * EACH, EACH, index, MERGE)); /* shards 5, 6, 7 */
    CHECK(exists("tokens/00002-00004.tok") && exists("tokens/00005-00007.tok"));
    open_small(&o);
    CHECK_EQ(o.info.shards, 3);
    CHECK_EQ(o.info.dropped_shards, 2);
    CHECK_EQ(o.info.documents - o.info.dropped_documents, DOCUMENTS + 2 * EACH);
    close_view(&o);
    read_store(&now);
    for (int64_t i = 0; i < before.chunks; i++) {
        if (!now.there[i]) continue;
        CHECK(before.there[i] && memcmp(before.ids[i], now.ids[i], sizeof now.ids[i]) == 0);
        CHECK(memcmp(before.rows[i], now.rows[i], sizeof now.rows[i]) == 0);
    }
}

/* A view that was opened before, and whose files are deleted when it needs them. */
static void view_beside_a_drop(const char *index) {
    struct opened o;
    struct store_chunk chunk;
    struct store_document d;
    int32_t ids[FIXTURE_CHUNK];
    new_store(index, 0);
    struct store_range hole = chunks_of(1);
    read_store(&before);
    open_small(&o);
    pid_t child = fork();
    if (child == 0)
        _exit(drop(1, 2) == STATUS_OK && mend_repair(&config, 0, NULL) == 0 ? 0 : 1); /* removes the files */
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0 && !exists("landmarks/00001.f16"));
    CHECK_OK(store_view_document(o.v, &d, EACH)); /* reads no file */
    float row[DIM];
    CHECK_FAILS(store_view_landmark(o.v, row, hole.begin), STATUS_NOT_FOUND, "was dropped with its shard");
    CHECK_FAILS(store_view_chunk(o.v, &chunk, ids, hole.begin), STATUS_NOT_FOUND, "was dropped with shard 1");
    CHECK_EQ(store_view_dropped(o.v).n, 0); /* a reader that has mapped the list keeps it */
    close_view(&o);
    read_store(&now);
    check_hole(&before, &now, hole.begin, hole.end);
}

/* The same, if a search is the first to need them. */
static void search_beside_a_drop(const char *index) {
    struct opened o;
    new_store(index, 0);
    struct store_range hole = chunks_of(2);
    read_store(&before);
    open_small(&o);
    pid_t child = fork();
    if (child == 0) _exit(drop(2, 3) == STATUS_OK && mend_repair(&config, 0, NULL) == 0 ? 0 : 1);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    for (int64_t i = hole.begin; i < hole.end; i++)
        before.there[i] = false;
    check_search(o.v, &before);
    close_view(&o);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    config = fixture_config(DIM, VOCAB);
    static const char *const indexes[] = {"exact", "IVF4,Flat"};
    for (size_t i = 0; i < ARRAY_LEN(indexes); i++) {
        drop_from_a_merged_file(indexes[i]);
        landmarks_of_a_merged_file(indexes[i], false);
        landmarks_of_a_merged_file(indexes[i], true);
        merge_beside_a_hole(indexes[i]);
        view_beside_a_drop(indexes[i]);
        search_beside_a_drop(indexes[i]);
    }
    lost_tokens_of_a_merged_file();
    return test_done();
}
