/* test_index_parts.c -- an index that was filled in parts against the index of one process: the same bytes of the
 * template and of every segment, the same hits for random queries, numbers of lists, candidates and excluded ranges.
 * Random stores, types, numbers of parts and limits of memory; with dropped shards and deleted documents. */
#include "tests/property/index_parts_fixture.h"

enum { VOCAB = 200, QUERIES = 40, K = 7 };
/* 1,100 lists: more than a block of FAISS's products. The rotation is learned with one codebook: four take two thirds
 * of the test's time. */
static const char *const types[] = {"IVF32,SQ8",          "IVF24_HNSW8,SQ8", "IVF16,Flat",        "IVF300_HNSW16,PQ4np",
                                    "OPQ1_8,IVF16,PQ4np", "PCAR8,IVF20,SQ4", "IVF1100_HNSW32,SQ8"};

/* Compares the files of index/ in the order of their numbers. */
static int same_index_files(const char *a, const char *b, int first) {
    int n = 0;
    for (;; n++) {
        char left[900], right[900];
        snprintf(left, sizeof left, "%s/index/%05d.faiss", a, first + n);
        snprintf(right, sizeof right, "%s/index/%05d.faiss", b, first + n);
        CHECK_EQ(file_exists(left), file_exists(right));
        if (!file_exists(left)) return n;
        CHECK(parts_same_file(left, right));
    }
}

static void change_store(const char *dir, struct rng *r, bool drop, bool delete) {
    struct store_drop_report dropped;
    struct store_delete_report deleted;
    const int64_t shard = 1 + (int64_t)rng_below(r, 3);
    const struct store_range range = {shard, shard + 1};
    const struct store_drop how = {.ranges = &range, .n_ranges = 1, .publish = parts_how};
    if (drop) CHECK_OK(store_drop(&dropped, dir, &how));
    int64_t documents[50], all = 2500;
    for (int64_t i = 0, at = 0; i < 50; i++, at++)
        documents[i] = at += (int64_t)rng_below(r, (uint64_t)(all / 50 - 1));
    const struct store_delete delete_how = {.documents = documents, .n_documents = 50};
    if (delete) CHECK_OK(store_delete(&deleted, dir, &delete_how));
}

static void copy_store(const char *to, const char *from) {
    char command[1500];
    snprintf(command, sizeof command, "cp -r '%s' '%s'", from, to);
    CHECK(system(command) == 0);
}

static void try(uint64_t seed, int number) {
    struct rng r = rng_make(seed, 0);
    const int dim = number % 3 == 0 ? 16 : 8 + 4 * (int)rng_below(&r, 4), parts = 1 + (int)rng_below(&r, 7);
    const char *type = types[(size_t)number % ARRAY_LEN(types)];
    const struct store_writer_config config = fixture_config(dim, VOCAB);
    char one[700], many[700], work[700];
    snprintf(one, sizeof one, "%s", test_path("one"));
    snprintf(many, sizeof many, "%s", test_path("many"));
    snprintf(work, sizeof work, "%s", test_path("work"));
    const int64_t documents = 2600 + (int64_t)rng_below(&r, 800);
    fixture_store_elsewhere(many, &config, 0, documents, 300 + (int64_t)rng_below(&r, 400), "exact");
    const bool drop = rng_below(&r, 3) == 0, delete = rng_below(&r, 2) == 0;
    change_store(many, &r, drop, delete);
    copy_store(one, many);

    struct store_publish how = parts_how;
    how.index = type;
    int64_t problems;
    CHECK_OK(store_repair(one, &how, NULL, fixture_print_problem, NULL, &problems)); /* one process makes the index */
    /* As little as is allowed: some 4,100 rows are a file. */
    const uint64_t little = (UINT64_C(32) << 20) + 2000 * ((uint64_t)dim * 8 + 512) + 3000000;
    struct store_index_parts_report report;
    parts_make(&report, many, work, type, parts, rng_below(&r, 2) ? 0 : little, &r);
    printf("%s, %d dimensions, %lld chunks, %d parts%s%s: %lld segments\n", type, dim, (long long)report.chunks, parts,
           drop ? ", dropped" : "", delete ? ", deleted" : "", (long long)report.segments);
    CHECK_EQ(report.segments, drop ? 2 : 1);
    CHECK_EQ(same_index_files(one, many, 1), 1 + report.segments);
    parts_verify(many);

    struct store_hit *a = malloc(QUERIES * K * sizeof *a), *b = malloc(QUERIES * K * sizeof *b);
    parts_search(a, one, QUERIES, K, seed);
    parts_search(b, many, QUERIES, K, seed);
    CHECK(fixture_same_hits(a, b, QUERIES * K));
    free(a);
    free(b);
    CHECK_OK(store_index_parts_remove(work, type));
    CHECK(!file_exists(work));
    char command[2200];
    snprintf(command, sizeof command, "rm -rf '%s' '%s'", one, many);
    CHECK(system(command) == 0);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 20261);
    if (access("/dev/shm", W_OK) == 0) setenv("DRT_TEST_TMP", "/dev/shm", 1); /* without syncs of a disk */
    const int step = TEST_SANITIZED ? 3 : 1; /* tests/cli/index_recut.sh has a rotation there */
    for (int i = 0; i < (int)ARRAY_LEN(types); i += step)
        try(test_seed() + (uint64_t)i * 1000, i);
    return test_done();
}
