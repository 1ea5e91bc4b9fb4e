/* test_store_index_plan.c -- the kind of index for a store's size and a memory limit; and one store that grows from
 * scanning to an inverted file. */
#include "store/index/index_plan_internal.h"
#include "store/index/vectors_internal.h"
#include "tests/store_fixture.h"

static const uint64_t gib = UINT64_C(1) << 30;

static struct index_plan plan(const char *wanted, const struct index_record *old, int64_t chunks, int dim,
                              uint64_t ram) {
    struct index_plan p;
    CHECK_OK(index_plan_make(&p, wanted, old, chunks, dim, STORE_LANDMARKS_F16, ram));
    return p;
}

static void sizes(void) {
    static const struct {
        const char *factory;
        int dim;
        int64_t lists, code;
    } cases[] = {
        {"IVF1024_HNSW32,SQ8", 384, 1024, 384},
        {"IVF64,SQfp16", 384, 64, 768},
        {"OPQ64_256,IVF4096_HNSW32,PQ64np", 384, 4096, 64},
        {"IVF8,PQ16x4np", 32, 8, 8},
        {"PCA24,IVF8,SQ8", 32, 8, 24},
        {"IVF8,Flat", 32, 8, 128},
        {"HNSW32,SQ8", 32, 0, 32},
        {"IVF8,SQ6", 32, 8, 24},
        {"IVF8,LSH", 32, 8, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct vectors_plan p = vectors_plan(cases[i].factory, cases[i].dim);
        if (strncmp(cases[i].factory, "HNSW", 4) == 0)
            CHECK_EQ(p.lists, 0);
        else {
            CHECK_EQ(p.lists, cases[i].lists);
            CHECK_EQ(p.code_bytes, cases[i].code);
        }
    }
}

static void choices(void) {
    struct index_record none = {.next_number = 1},
                        old = {.factory = "IVF1024_HNSW32,SQ8", .template_number = 1, .trained_chunks = 100000};
    CHECK_STR(plan("auto", &none, 349525, 384, gib).factory, "exact"); /* 2^28 bytes hold 349525.3 rows */
    CHECK_STR(plan(NULL, &none, 349526, 384, gib).factory, "IVF2048_HNSW32,SQ8");
    CHECK_STR(plan("auto", &none, 23400000, 1024, 64 * gib).factory, "IVF16384_HNSW32,SQ8");
    CHECK(strstr(plan("auto", &none, 23400000, 1024, 2 * gib).factory, "OPQ64_256,IVF"));
    struct index_plan p = plan("auto", &old, 1000000, 384, gib);
    CHECK_STR(p.factory, "IVF1024_HNSW32,SQ8");
    CHECK(!p.rebuild && !p.chosen);
    p = plan("auto", &old, 2000000, 384, gib); /* the store has outgrown it */
    CHECK_STR(p.factory, "IVF4096_HNSW32,SQ8");
    CHECK(p.rebuild);
    p = plan("IVF64,SQ8", &old, 2000000, 384, gib);
    CHECK(p.rebuild && p.chosen);
    /* The training of every planned index fits the limit, for any size. */
    for (int64_t chunks = 350000; chunks < 20000000; chunks *= 3)
        for (uint64_t ram = gib / 8; ram < 16 * gib; ram *= 2) {
            p = plan("auto", &none, chunks, 384, ram);
            CHECK((uint64_t)p.sample * 384 * 12 <= ram);
            CHECK(p.sample >= p.lists && p.sample <= chunks);
            CHECK(p.segment_rows >= 4096);
        }
    CHECK_FAILS(index_plan_make(&p, "IVF65536,SQ8", &none, 1000, 384, STORE_LANDMARKS_F16, gib), STATUS_INVALID,
                "cannot be trained from 1000 chunks");
    CHECK_FAILS(index_plan_make(&p, "IVF65536,SQ8", &none, 10000000, 1024, STORE_LANDMARKS_F16, gib / 8),
                STATUS_INVALID, "more than the limit of 128 MiB");
}

/* "auto" makes an index where the stored rows have more than 256 MiB. */
static void bytes_decide(void) {
    static const struct {
        int64_t chunks;
        int dim;
        enum store_landmarks type;
        bool exact;
    } cases[] = {
        {2097152, 64, STORE_LANDMARKS_F16, true},  {2097153, 64, STORE_LANDMARKS_F16, false},
        {131072, 1024, STORE_LANDMARKS_F16, true}, {131073, 1024, STORE_LANDMARKS_F16, false},
        {262144, 1024, STORE_LANDMARKS_I8, true},  {262145, 1024, STORE_LANDMARKS_I8, false},
        {1, 4096, STORE_LANDMARKS_F16, true},
    };
    struct index_record none = {.next_number = 1};
    struct index_plan p;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        CHECK_OK(index_plan_make(&p, "auto", &none, cases[i].chunks, cases[i].dim, cases[i].type, 16 * gib));
        if ((strcmp(p.factory, "exact") == 0) != cases[i].exact) fprintf(stderr, "case %zu: %s\n", i, p.reason);
        CHECK_EQ(strcmp(p.factory, "exact") == 0, cases[i].exact);
        CHECK(strstr(p.reason, "up to 268 MB are scanned"));
    }
    CHECK(plan("IVF64,SQ8", &none, 1000000, 384, gib).reason[0] == 0);
    /* an index that "auto" made stays while the rows have more bytes, and goes when they have fewer */
    struct index_record old = {.factory = "IVF1024_HNSW32,SQ8", .template_number = 1, .trained_chunks = 100000};
    CHECK_STR(plan("auto", &old, 349526, 384, gib).factory, "IVF1024_HNSW32,SQ8");
    p = plan("auto", &old, 349525, 384, gib);
    CHECK(strcmp(p.factory, "exact") == 0 && p.rebuild);
}

static void names(void) {
    static const char *good[] = {"Flat",
                                 "SQ8",
                                 "IVF4096,SQ8",
                                 "IVF65536_HNSW32,SQfp16",
                                 "OPQ64_256,IVF1024_HNSW32,PQ64np",
                                 "PCAR256,IVF64,SQ8",
                                 "RR384,IVF4,Flat",
                                 "IVF16(HNSW32,Flat),SQ4",
                                 "IMI2x10,PQ8",
                                 "L2norm,IVF9,PQ4x8np",
                                 "HNSW32,SQ8",
                                 "PCAW12,Flat"};
    static const char *bad[] = {"nonsense",         "",           "IVF,SQ8",         "IVF16,",
                                "IVF16,SQ9",        "IVF16,SQ88", "OPQ_64,IVF4,SQ8", "IVF16,PQ64xx",
                                "IVF16_HSNW32,SQ8", "ivf16,SQ8",  "PCA,Flat",        "IVF4096 ,SQ8"};
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        CHECK_OK(factory_check(good[i]));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK_FAILS(factory_check(bad[i]), STATUS_INVALID, "FAISS has no");
}

static void grown_store(void) {
    enum { DIM = 8, PER_DOCUMENT = 1000, DOCUMENTS = 101, K = 8 };
    struct store_writer_config c = fixture_config(DIM, 100);
    char dir[600];
    snprintf(dir, sizeof dir, "%s/grown", test_folder());
    struct store_writer *w;
    CHECK_OK(store_writer_open(&w, dir, &c, true));
    static int32_t ids[PER_DOCUMENT * FIXTURE_CHUNK];
    static float rows[PER_DOCUMENT * DIM];
    for (int64_t d = 0; d < DOCUMENTS; d++) {
        if (d % 20 == 0) CHECK_OK(store_shard_begin(w));
        struct store_new_document doc = {.ids = ids, .n_ids = ARRAY_LEN(ids), .source = "s", .key = "k"};
        fixture_hash(doc.hash, d);
        bool duplicate;
        CHECK_OK(store_shard_document(w, &doc, &duplicate));
        for (int64_t i = 0; i < PER_DOCUMENT; i++)
            fixture_vector(rows + i * DIM, DIM, (uint64_t)(d * PER_DOCUMENT + i), 0.5f);
        CHECK_OK(store_shard_landmarks(w, rows, PER_DOCUMENT));
        if (d % 20 == 19 || d == DOCUMENTS - 1) CHECK_OK(store_shard_seal(w, NULL, 0));
        if (d == 79) CHECK_OK(store_writer_publish(w, &(struct store_publish){.max_ram = 64 << 20}));
    }
    CHECK_OK(store_writer_publish(
        w, &(struct store_publish){.index = "IVF1024_HNSW32,SQ8",
                                   .max_ram = 34 << 20})); /* so little memory that two segments are needed */
    store_writer_close(w);
    struct store *s;
    struct store_view *v;
    CHECK_OK(store_open(&s, dir));
    CHECK_OK(store_view_open(&v, s));
    struct store_info info;
    store_view_info(v, &info);
    CHECK_STR(info.index, "IVF1024_HNSW32,SQ8");
    CHECK(info.segments >= 2);
    enum { Q = 50 };
    static float queries[Q * DIM];
    static struct store_hit exact[Q * K], hits[Q * K];
    for (int q = 0; q < Q; q++)
        fixture_vector(queries + q * DIM, DIM, 5000000 + (uint64_t)q, 0.5f);
    CHECK_OK(store_view_search(v, exact, queries, Q, &(struct store_search){.k = K, .exact = true}));
    CHECK_OK(store_view_search(v, hits, queries, Q, &(struct store_search){.k = K}));
    int found = 0;
    for (int q = 0; q < Q; q++)
        for (int i = 0; i < K; i++)
            for (int j = 0; j < K; j++)
                found += hits[q * K + i].chunk == exact[q * K + j].chunk;
    printf("auto at 101000 chunks: %s, %lld segments, recall@%d %.3f\n", info.index, (long long)info.segments, K,
           found / (double)(Q * K));
    CHECK(found >= Q * K * 9 / 10);
    store_view_close(v);
    store_close(s);
}

static void linked_library(void) {
    struct store_faiss_info info;
    CHECK_OK(store_faiss_info(&info));
    printf("FAISS %s, %s, %.0f MB/s\n", info.version, info.simd, info.scan_mb_s);
    CHECK(info.version[0] >= '1' && info.version[0] <= '9');
    CHECK(info.scan_mb_s > 1);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    sizes();
    choices();
    bytes_decide();
    names();
    grown_store();
    linked_library();
    return test_done();
}
