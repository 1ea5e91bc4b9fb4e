/* test_store_search.c -- a search gets its k hits if the store has k chunks, also for landmarks that hardly differ.
 * Their centroids hardly differ either, so the lists nearest to a query are empty, and a graph over the centroids does
 * not reach all lists. */
#include "tests/store_fixture.h"

enum { DIM = 32, VOCAB = 100, DOCUMENTS = 25, PER_DOCUMENT = 100, CHUNKS = DOCUMENTS * PER_DOCUMENT, K = 8, Q = 40 };

/* One common direction, and a little noise. */
static void near_equal_row(float *out, uint64_t number, float noise) {
    struct rng r = rng_make(21, number), mean = rng_make(22, 0);
    for (int i = 0; i < DIM; i++)
        out[i] = rng_normal(&mean) + noise * rng_normal(&r);
}

static void make_store(const char *dir, const char *index) {
    struct store_writer_config c = fixture_config(DIM, VOCAB);
    struct store_writer *w;
    static int32_t ids[PER_DOCUMENT * FIXTURE_CHUNK];
    static float rows[PER_DOCUMENT * DIM];
    CHECK_OK(store_writer_open(&w, dir, &c, true));
    CHECK_OK(store_shard_begin(w));
    for (int64_t d = 0; d < DOCUMENTS; d++) {
        struct store_new_document doc = {.ids = ids, .n_ids = ARRAY_LEN(ids), .source = "s", .key = "k"};
        bool duplicate;
        fixture_hash(doc.hash, d);
        CHECK_OK(store_shard_document(w, &doc, &duplicate));
        for (int64_t i = 0; i < PER_DOCUMENT; i++)
            near_equal_row(rows + i * DIM, (uint64_t)(d * PER_DOCUMENT + i), 1e-3f);
        CHECK_OK(store_shard_landmarks(w, rows, PER_DOCUMENT));
    }
    CHECK_OK(store_shard_seal(w, NULL, 0));
    CHECK_OK(store_writer_publish(w, &(struct store_publish){.index = index, .seed = 1}));
    store_writer_close(w);
}

static int64_t hits_of(const struct store_hit *hits, int64_t n) {
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++)
        found += hits[i].chunk >= 0;
    return found;
}

/* Queries in a batch and one by one, with and without ranges, with few lists and with all. */
static void finds_k(const char *index) {
    char dir[700];
    struct store *s;
    struct store_view *v;
    static float queries[Q * DIM];
    static struct store_hit hits[Q * K], alone[K];
    static struct store_range ranges[Q];
    snprintf(dir, sizeof dir, "%s/%s", test_folder(), index);
    make_store(dir, index);
    CHECK_OK(store_open(&s, dir));
    CHECK_OK(store_view_open(&v, s));
    for (int q = 0; q < Q; q++) {
        near_equal_row(queries + q * DIM, 900000 + (uint64_t)q, q % 2 ? 1.0f : 0.1f);
        ranges[q] = (struct store_range){q * 50, q % 4 == 3 ? CHUNKS - 5 : q * 50 + 700};
    }
    for (int nprobe = 0; nprobe <= 1 << 20; nprobe = nprobe ? nprobe << 10 : 1) {
        struct store_search how = {.k = K, .nprobe = nprobe};
        CHECK_OK(store_view_search(v, hits, queries, Q, &how));
        CHECK_EQ(hits_of(hits, Q * K), Q * K);
        CHECK_OK(store_view_search(v, alone, queries + DIM, 1, &how));
        CHECK(fixture_same_hits(alone, hits + K, K));
        how.exclude = ranges;
        CHECK_OK(store_view_search(v, hits, queries, Q, &how));
        for (int q = 0; q < Q; q++) {
            CHECK_EQ(store_view_missing(v, hits + q * K, K, &ranges[q]), 0);
            CHECK_EQ(hits_of(hits + q * K, K), K);
            for (int i = 0; i < K; i++)
                CHECK(hits[q * K + i].chunk < ranges[q].begin || hits[q * K + i].chunk >= ranges[q].end);
        }
    }
    /* All lists together have all chunks. */
    static struct store_hit all[CHUNKS];
    const struct store_search whole = {.k = CHUNKS - 1, .nprobe = 1 << 20};
    for (int q = 0; q < 4; q++) {
        CHECK_OK(store_view_search(v, all, queries + q * DIM, 1, &whole));
        CHECK_EQ(hits_of(all, CHUNKS - 1), CHUNKS - 1);
    }
    store_view_close(v);
    store_close(s);
}

/* Missing hits count only as far as chunks exist that are not excluded. */
static void missing_hits(void) {
    char dir[700];
    struct store *s;
    struct store_view *v;
    snprintf(dir, sizeof dir, "%s/missing", test_folder());
    make_store(dir, "exact");
    CHECK_OK(store_open(&s, dir));
    CHECK_OK(store_view_open(&v, s));
    struct store_hit hits[K] = {{.chunk = 3},  {.chunk = 4},  {.chunk = -1}, {.chunk = -1},
                                {.chunk = -1}, {.chunk = -1}, {.chunk = -1}, {.chunk = -1}};
    CHECK_EQ(store_view_missing(v, hits, K, NULL), K - 2);
    CHECK_EQ(store_view_missing(v, hits, K, &(struct store_range){10, 10}), K - 2);
    CHECK_EQ(store_view_missing(v, hits, K, &(struct store_range){5, CHUNKS - 1}), K - 2 - 2);
    CHECK_EQ(store_view_missing(v, hits, K, &(struct store_range){-7, CHUNKS + 7}), 0);
    CHECK_EQ(store_view_missing(v, hits, 2, NULL), 0);
    store_view_close(v);
    store_close(s);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    missing_hits();
    finds_k("IVF64_HNSW4,SQ8");
    finds_k("IVF64,SQ8");
    finds_k("PCAR16,IVF32_HNSW16,SQ8"); /* queries are rotated before they are compared with the centroids */
    return test_done();
}
