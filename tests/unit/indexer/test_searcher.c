/* test_searcher.c -- every kind of searcher over one store: equal hits, common rules, descriptions. */
#include "base/half.h"
#include "indexer/search/device_hybrid.h"
#include "indexer/search/searcher.h"
#include "kernels/device/device_internal.h"
#include "kernels/ops.h"
#include "kernels/search/topk.h"
#include "store/lexical/hybrid_hits.h"
#include "store/lexical/lexical.h"
#include "tests/store_fixture.h"

enum { DIM = 32, VOCAB = 300, DOCUMENTS = 60, N = 7, K = 9 };

struct world {
    struct device *dev;
    struct store *store;
    struct store_view *view;
    struct store_info info;
    struct list_index *lists; /* 6 lists, all visited */
    const struct lexical *lexical;
    float queries[N * DIM];
    int32_t ids[N][FIXTURE_CHUNK];
    struct lexical_query tokens[N];
    struct store_range exclude[N];
};

static void open_world(struct world *w, const char *name, const char *index) {
    char dir[600];
    struct store_writer_config config = fixture_config(DIM, VOCAB);
    snprintf(dir, sizeof dir, "%s/%s", test_folder(), name);
    fixture_store(dir, &config, 0, DOCUMENTS, 20, index);
    CHECK_OK(store_lexical(dir, &(struct store_publish){.lexical = STORE_LEXICAL_ON}));
    CHECK_OK(device_open(&w->dev, "cpu", 2));
    CHECK_OK(store_open(&w->store, dir));
    CHECK_OK(store_view_open(&w->view, w->store));
    store_view_info(w->view, &w->info);
    CHECK_OK(store_view_lexical(&w->lexical, w->view));
    const struct list_index_config six = {
        .device = w->dev, .source = landmark_source_of(w->view), .lists = 6, .nprobe = 6, .seed = 1};
    CHECK_OK(list_index_create(&w->lists, &six));
    struct store_chunk chunk;
    for (int64_t i = 0; i < N; i++) {
        int64_t from = i * w->info.chunks / N;
        fixture_vector(w->queries + i * DIM, DIM, (uint64_t)i, 1);
        CHECK_OK(store_view_chunk(w->view, &chunk, w->ids[i], from));
        w->tokens[i] = (struct lexical_query){.ids = w->ids[i], .n = chunk.n_tokens};
        w->exclude[i] = (struct store_range){.begin = from, .end = from + i};
    }
}

static void close_world(struct world *w) {
    list_index_free(w->lists);
    store_view_close(w->view);
    store_close(w->store);
    device_close(w->dev);
}

static struct searcher *open_kind(const struct world *w, struct searcher_config config) {
    struct searcher *s;
    config.device = w->dev, config.view = w->view;
    if (config.kind == SEARCHER_LISTS) config.lists = w->lists;
    CHECK_OK(searcher_open(&s, &config));
    return s;
}

static struct searcher_query query_of(const struct world *w, bool on_device) {
    struct searcher_query q = {.n = N, .k = K, .tokens = w->tokens, .exclude = w->exclude};
    if (on_device)
        q.device_vectors = mat_f32((void *)(uintptr_t)w->queries, N, DIM);
    else
        q.vectors = w->queries;
    return q;
}

static void check_score(const struct world *w, struct store_hit hit, const float *query) {
    float row[DIM];
    double dot = 0;
    CHECK_OK(store_view_landmark(w->view, row, hit.chunk));
    for (int i = 0; i < DIM; i++)
        dot += (double)row[i] * (double)query[i];
    CHECK(fabs((double)hit.score - dot / sqrt(DIM)) < 1e-5);
}

/* Every kind, with vectors in either memory, finds the k nearest chunks outside of the excluded ones, scored by their
 * rows. */
static void test_equal_hits(const struct world *w) {
    static const struct searcher_config kinds[] = {{.kind = SEARCHER_AUTO, .exact = true},
                                                   {.kind = SEARCHER_STORE, .nprobe = 1000, .candidates = 1000},
                                                   {.kind = SEARCHER_FLAT},
                                                   {.kind = SEARCHER_LISTS}};
    struct store_hit expected[N * K], hits[N * K];
    const struct store_search scan = {.k = K, .exact = true, .exclude = w->exclude};
    CHECK_OK(store_view_search(w->view, expected, w->queries, N, &scan));
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        for (int on_device = 0; on_device < 2; on_device++) {
            struct searcher *s = open_kind(w, kinds[i]);
            struct searcher_query q = query_of(w, on_device);
            CHECK_EQ(searcher_tokens(s), 0);
            CHECK_OK(searcher_search(s, hits, &q));
            for (int j = 0; j < N * K; j++) {
                CHECK_EQ(hits[j].chunk, expected[j].chunk);
                CHECK(fabsf(hits[j].score - expected[j].score) < 1e-5f);
            }
            struct searcher_counts counts = searcher_counts(s);
            CHECK(counts.queries == N && counts.missing == 0 && !searcher_fallback(s));
            searcher_close(s);
        }
}

/* The order is that of BM25, and the scores are those of the landmarks. */
static void test_lexical(const struct world *w) {
    struct searcher *s = open_kind(w, (struct searcher_config){.kind = SEARCHER_LEXICAL});
    const struct lexical *x = w->lexical;
    struct store_hit expected[N * K], hits[N * K];
    struct searcher_query q = query_of(w, false);
    const struct lexical_search how = {.k = K, .pair_weight = LEXICAL_PAIR_WEIGHT, .exclude = w->exclude};
    CHECK_OK(lexical_search(x, expected, w->tokens, N, &how));
    CHECK_EQ(searcher_tokens(s), SEARCHER_TOKENS);
    CHECK_OK(searcher_search(s, hits, &q));
    int found = 0;
    for (int i = 0; i < N * K; i++) {
        CHECK_EQ(hits[i].chunk, expected[i].chunk);
        if (hits[i].chunk >= 0) check_score(w, hits[i], w->queries + i / K * DIM);
        found += hits[i].chunk >= 0;
    }
    CHECK(found > N);
    searcher_close(s);
}

/* BM25 scores on request have the bits of the search, LEXICAL reads no vector, and the order does not change. */
static void test_bm25(const struct world *w) {
    const struct lexical_search how = {.k = K, .pair_weight = LEXICAL_PAIR_WEIGHT, .exclude = w->exclude};
    struct store_hit expected[N * K], hits[N * K], ranked[N * K];
    struct searcher *words = open_kind(w, (struct searcher_config){.kind = SEARCHER_LEXICAL}),
                    *hybrid = open_kind(w, (struct searcher_config){.kind = SEARCHER_HYBRID, .exact = true}),
                    *rows = open_kind(w, (struct searcher_config){.kind = SEARCHER_STORE});
    struct searcher_query q = {.n = N, .k = K, .tokens = w->tokens, .exclude = w->exclude, .bm25 = true};
    CHECK(!searcher_ranks_vectors(words) && searcher_ranks_vectors(hybrid) && searcher_ranks_vectors(rows));
    CHECK_OK(lexical_search(w->lexical, expected, w->tokens, N, &how));
    CHECK_OK(searcher_search(words, hits, &q));
    for (int i = 0; i < N * K; i++) {
        CHECK_EQ(hits[i].chunk, expected[i].chunk);
        if (hits[i].chunk >= 0) CHECK(hits[i].score == expected[i].score);
    }
    q = query_of(w, true);
    CHECK_OK(searcher_search(hybrid, ranked, &q));
    q.bm25 = true;
    CHECK_OK(searcher_search(hybrid, hits, &q));
    for (int i = 0; i < N * K; i++) {
        float score;
        CHECK_EQ(hits[i].chunk, ranked[i].chunk);
        if (hits[i].chunk < 0) continue;
        CHECK_OK(lexical_score(w->lexical, &score, &hits[i].chunk, 1, w->tokens + i / K, &how));
        CHECK(hits[i].score == score);
    }
    searcher_close(words);
    searcher_close(hybrid);
    searcher_close(rows);
}

/* The parts' hits, merged by rank, or by the weighted sum of both scores. */
static void test_hybrid(const struct world *w) {
    enum { DEPTH = 64 };
    const struct lexical *x = w->lexical;
    for (int weighted = 0; weighted < 2; weighted++) {
        struct searcher *s = open_kind(
            w, (struct searcher_config){.kind = SEARCHER_HYBRID, .exact = true, .landmark_weight = weighted ? 3 : 0});
        struct searcher_query q = query_of(w, true);
        struct store_hit hits[N * K];
        CHECK_OK(searcher_search(s, hits, &q));
        for (int i = 0; i < N; i++) {
            struct store_hit by_ids[DEPTH], by_rows[DEPTH], merged[K];
            int64_t ids[2 * DEPTH];
            float a[2 * DEPTH], b[2 * DEPTH];
            const float *vector = w->queries + i * DIM;
            const struct lexical_search how = {
                .k = DEPTH, .pair_weight = LEXICAL_PAIR_WEIGHT, .exclude = w->exclude + i};
            const struct store_search scan = {.k = DEPTH, .exact = true, .exclude = w->exclude + i};
            CHECK_OK(lexical_search(x, by_ids, w->tokens + i, 1, &how));
            CHECK_OK(store_view_search(w->view, by_rows, vector, 1, &scan));
            int64_t n = hybrid_candidates(ids, by_ids, DEPTH, by_rows, DEPTH);
            CHECK_OK(lexical_score(x, a, ids, n, w->tokens + i, &how));
            CHECK_OK(store_view_scores(w->view, b, vector, ids, n));
            if (weighted)
                CHECK_OK(hybrid_weighted(merged, K, ids, a, b, n, 3));
            else
                CHECK_OK(hybrid_reciprocal_rank(merged, K, by_ids, DEPTH, by_rows, DEPTH, 1, 60));
            for (int j = 0; j < K; j++) {
                CHECK_EQ(hits[i * K + j].chunk, merged[j].chunk);
                check_score(w, hits[i * K + j], vector);
            }
        }
        CHECK_EQ(searcher_counts(s).queries, N);
        searcher_close(s);
    }
}

/* A query with a weight, of a token memory: 64 candidates by landmarks, however many by words; hits with BM25. */
static void test_hybrid_of_memory(const struct world *w) {
    enum { MORE = 20, WORDS = 4 * MORE, LANDMARKS = 64 };
    const struct lexical *x = w->lexical;
    struct searcher *s = open_kind(w, (struct searcher_config){.kind = SEARCHER_HYBRID, .exact = true});
    struct searcher_query q = query_of(w, true);
    struct store_hit hits[N * MORE];
    int64_t by_words = 0;
    q.k = MORE, q.bm25 = x, q.landmark_weight = 3;
    CHECK(w->info.chunks > WORDS);
    CHECK_OK(searcher_search(s, hits, &q));
    for (int i = 0; i < N; i++) {
        struct store_hit by_ids[WORDS], by_rows[LANDMARKS], merged[MORE];
        int64_t ids[WORDS + LANDMARKS];
        float a[WORDS + LANDMARKS], b[WORDS + LANDMARKS];
        const float *vector = w->queries + i * DIM;
        const struct lexical_search how = {.k = WORDS, .pair_weight = LEXICAL_PAIR_WEIGHT, .exclude = w->exclude + i};
        const struct store_search scan = {.k = LANDMARKS, .exact = true, .exclude = w->exclude + i};
        CHECK_OK(lexical_search(x, by_ids, w->tokens + i, 1, &how));
        CHECK_OK(store_view_search(w->view, by_rows, vector, 1, &scan));
        const int64_t n = hybrid_candidates(ids, by_ids, WORDS, by_rows, LANDMARKS);
        CHECK_OK(lexical_score(x, a, ids, n, w->tokens + i, &how));
        CHECK_OK(store_view_scores(w->view, b, vector, ids, n));
        CHECK_OK(hybrid_weighted(merged, MORE, ids, a, b, n, 3));
        for (int j = 0; j < MORE; j++) {
            const struct store_hit hit = hits[i * MORE + j];
            CHECK_EQ(hit.chunk, merged[j].chunk);
            for (int64_t c = 0; c < n; c++)
                if (ids[c] == hit.chunk) CHECK(hit.score == a[c]);
            by_words += hit.score > 0;
        }
    }
    CHECK(by_words > 0 && by_words < N * MORE);
    searcher_close(s);
}

/* The hits of a search that is all on the device, here by the CPU twins, are those of one that this process merges: of
 * more queries than a batch, with vectors in either memory, all rows as one list or by lists. */
static void test_hybrid_on_device(const struct world *w) {
    enum { MORE = 20, MANY = 70 };
    static struct store_hit expected[MANY * MORE], hits[MANY * MORE];
    static float vectors[MANY * DIM];
    struct searcher *s = open_kind(w, (struct searcher_config){.kind = SEARCHER_HYBRID, .exact = true});
    struct lexical_query tokens[MANY];
    struct store_range exclude[MANY];
    struct device_lexical *words;
    struct flat_index *flat;
    const struct device_lexical_config copy = {.device = w->dev, .index = w->lexical};
    const struct flat_index_config rows = {.device = w->dev, .source = landmark_source_of(w->view)};
    CHECK_OK(device_lexical_create(&words, &copy));
    CHECK_OK(flat_index_create(&flat, &rows));
    for (int i = 0; i < MANY; i++) {
        memcpy(vectors + i * DIM, w->queries + (i + i / N) % N * DIM, DIM * sizeof *vectors);
        tokens[i] = w->tokens[i % N], exclude[i] = w->exclude[(i + i / 9) % N];
    }
    for (int by_lists = 0; by_lists < 2; by_lists++) {
        struct device_hybrid *h;
        struct device_hybrid_config config = {.device = w->dev, .lexical = words};
        CHECK_OK(by_lists ? list_index_lists(w->lists, &config.landmarks) : flat_index_lists(flat, &config.landmarks));
        CHECK_OK(device_hybrid_create(&h, &config));
        for (int kind = 0; kind < 4; kind++) {
            struct searcher_query q = {.n = MANY, .k = MORE, .tokens = tokens, .bm25 = true, .landmark_weight = 3};
            const struct device_hybrid_how how = {
                .words = {.k = 4 * MORE, .pair_weight = LEXICAL_PAIR_WEIGHT}, .landmarks = 64, .weight = 3};
            if (kind % 2) q.exclude = exclude;
            if (kind / 2)
                q.vectors = vectors;
            else
                q.device_vectors = mat_f32(vectors, MANY, DIM);
            CHECK_OK(searcher_search(s, expected, &q));
            CHECK_OK(device_hybrid_search(h, hits, &q, &how));
            CHECK(fixture_same_hits(hits, expected, MANY * MORE));
        }
        device_hybrid_free(h);
    }
    flat_index_free(flat);
    device_lexical_free(words);
    searcher_close(s);
}

static void test_scores(const struct world *w) {
    struct store_hit hits[K];
    int64_t chunks[K + 2];
    float scores[K + 2];
    const struct store_search scan = {.k = K, .exact = true};
    CHECK_OK(store_view_search(w->view, hits, w->queries, 1, &scan));
    for (int i = 0; i < K; i++)
        chunks[i] = hits[K - 1 - i].chunk;
    chunks[K] = w->info.chunks, chunks[K + 1] = chunks[0];
    CHECK_OK(store_view_scores(w->view, scores, w->queries, chunks, K + 2));
    for (int i = 0; i < K; i++)
        CHECK(memcmp(&scores[i], &hits[K - 1 - i].score, sizeof *scores) == 0);
    CHECK(scores[K] == -INFINITY && scores[K + 1] == scores[0]);
}

static void check_described(const struct world *w, struct searcher_config config, const char *text, const char *json) {
    struct searcher *s = open_kind(w, config);
    const struct searcher_description d = searcher_describe(s, K, 0);
    CHECK_STR(d.text, text);
    char *written = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&written, &bytes);
    struct json_writer writer;
    CHECK(file);
    json_write_open(&writer, file, 0);
    searcher_describe_json(&writer, &d);
    fclose(file);
    CHECK_STR(written, json);
    free(written);
    searcher_close(s);
}

static void test_describe(const struct world *w) {
    char json[300];
    check_described(w, (struct searcher_config){.exact = true}, "exact scan",
                    "{\"kind\":\"exact\",\"text\":\"exact scan\",\"exact\":true,\"visited\":0,\"lists\":0,"
                    "\"device_bytes\":0}");
    check_described(w, (struct searcher_config){.nprobe = 2}, "index IVF4,Flat, 2 of 4 lists",
                    "{\"kind\":\"index\",\"text\":\"index IVF4,Flat, 2 of 4 lists\",\"exact\":false,\"visited\":2,"
                    "\"lists\":4,\"device_bytes\":0}");
    snprintf(json, sizeof json,
             "{\"kind\":\"gpu-flat\",\"text\":\"gpu-flat, exact\",\"exact\":true,\"visited\":0,\"lists\":0,"
             "\"device_bytes\":%lld}",
             (long long)w->info.chunks * DIM * 4);
    check_described(w, (struct searcher_config){.kind = SEARCHER_FLAT}, "gpu-flat, exact", json);
    struct searcher *s = open_kind(w, (struct searcher_config){.kind = SEARCHER_LISTS});
    struct searcher_description d = searcher_describe(s, K, 4);
    CHECK_STR(d.text, "gpu-ivf, 4 of 6 lists");
    CHECK(!d.exact && d.visited == 4 && d.lists == 6 && searcher_describe(s, K, 0).exact);
    searcher_close(s);
    check_described(w, (struct searcher_config){.kind = SEARCHER_LEXICAL}, "lexical, 1 segment",
                    "{\"kind\":\"lexical\",\"text\":\"lexical, 1 segment\",\"exact\":true,\"visited\":0,\"lists\":0,"
                    "\"device_bytes\":0}");
    check_described(w, (struct searcher_config){.kind = SEARCHER_HYBRID, .exact = true},
                    "hybrid of lexical, 1 segment; exact scan",
                    "{\"kind\":\"hybrid\",\"text\":\"hybrid of lexical, 1 segment; exact scan\",\"exact\":true,"
                    "\"visited\":0,\"lists\":0,\"device_bytes\":0}");
}

/* A store without a lexical index, and one whose segment lost a byte: searches that need it fail with a remedy, others
 * work. */
static void test_refusals(void) {
    static const char *const messages[] = {"drt-index lexical --store", "run drt-index repair"};
    for (int damaged = 0; damaged < 2; damaged++) {
        struct world w = {0};
        char dir[600], path[700];
        struct store_writer_config fixture = fixture_config(DIM, VOCAB);
        snprintf(dir, sizeof dir, "%s/refused%d", test_folder(), damaged);
        fixture_store(dir, &fixture, 0, DOCUMENTS, 20, "exact");
        if (damaged) {
            CHECK_OK(store_lexical(dir, &(struct store_publish){.lexical = STORE_LEXICAL_ON}));
            snprintf(path, sizeof path, "%s/lexical/00001.lex", dir);
            CHECK(truncate(path, 1000) == 0);
        }
        CHECK_OK(device_open(&w.dev, "cpu", 1));
        CHECK_OK(store_open(&w.store, dir));
        CHECK_OK(store_view_open(&w.view, w.store));
        struct searcher *s;
        struct searcher_config config = {.device = w.dev, .view = w.view};
        enum status wanted = damaged ? STATUS_CORRUPT : STATUS_UNSUPPORTED;
        config.kind = SEARCHER_HYBRID;
        CHECK_FAILS(searcher_open(&s, &config), wanted, messages[damaged]);
        config.kind = SEARCHER_LEXICAL;
        CHECK_FAILS(searcher_open(&s, &config), wanted, messages[damaged]);
        config.kind = SEARCHER_AUTO;
        CHECK_OK(searcher_open(&s, &config));
        struct store_hit hits[K];
        fixture_vector(w.queries, DIM, 1, 1);
        CHECK_OK(searcher_search(s, hits, &(struct searcher_query){.n = 1, .k = K, .vectors = w.queries}));
        CHECK(hits[K - 1].chunk >= 0);
        searcher_close(s);
        close_world(&w);
    }
}

/* The CPU's op takes float32 only. */
static void topk_of_f16(struct device *dev, int64_t *index, float *score, struct mat queries, struct mat landmarks,
                        const int64_t *visible, int k) {
    size_t count = (size_t)(landmarks.rows * landmarks.cols);
    float *wide = malloc(count * sizeof *wide);
    CHECK(wide && landmarks.type == DTYPE_F16);
    half_from_f16_row(wide, landmarks.data, count);
    topk_cpu.forward(dev, index, score, queries, mat_f32(wide, landmarks.rows, landmarks.cols), visible, k);
    free(wide);
}

static enum status no_memory(struct device *dev, void **out, size_t bytes) {
    (void)dev, (void)out;
    return fail(STATUS_NO_MEMORY, "no %zu bytes", bytes);
}

/* A device that has separate memory from the searchers' point of view. */
struct apart {
    struct device device;
    struct device_runtime runtime;
    struct ops ops;
    struct topk_ops topk;
};
static void apart_make(struct apart *a, const struct device *shared) {
    *a = (struct apart){*shared, *shared->runtime, *shared->ops, topk_cpu};
    a->topk.forward = topk_of_f16;
    a->ops.topk = &a->topk;
    a->device.ops = &a->ops;
    a->device.runtime = &a->runtime;
    a->device.shares_memory = false;
}

/* If the device has separate memory, the landmarks are copied there, and vectors are copied in both directions. If they
 * do not fit, the store searches, and the reason is kept. */
static void test_separate_memory(struct world *w) {
    static const struct {
        struct searcher_config config;
        const char *kind, *without_memory;
    } rows[] = {
        {{.nprobe = 0}, "gpu-flat", "index"},
        {{.nprobe = 1000}, "gpu-ivf", "index"},
        {{.exact = true, .nprobe = 3}, "gpu-flat", "exact"},
        {{.kind = SEARCHER_STORE, .nprobe = 1000, .candidates = 1000}, "index", "index"},
    };
    struct apart apart;
    struct device *shared = w->dev;
    struct store_hit expected[N * K], hits[N * K];
    const struct store_search scan = {.k = K, .exact = true, .exclude = w->exclude};
    CHECK_OK(store_view_search(w->view, expected, w->queries, N, &scan));
    apart_make(&apart, shared);
    w->dev = &apart.device;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (int memory = 0; memory < 2; memory++) {
            apart.runtime.allocate = memory ? shared->runtime->allocate : no_memory;
            struct searcher_config config = rows[i].config;
            config.device = &apart.device, config.view = w->view;
            config.lists = memory ? w->lists : NULL; /* created for the CPU, whose op takes float32 only */
            struct searcher *s;
            CHECK_OK(searcher_open(&s, &config));
            CHECK_STR(searcher_describe(s, K, 0).kind, memory ? rows[i].kind : rows[i].without_memory);
            CHECK((searcher_fallback(s) != NULL) == (!memory && config.kind == SEARCHER_AUTO));
            if (searcher_fallback(s)) CHECK(strstr(searcher_fallback(s), "cannot be searched on the device: no "));
            for (int on_device = 0; on_device < 2 && memory; on_device++) {
                struct searcher_query q = query_of(w, on_device);
                CHECK_OK(searcher_search(s, hits, &q));
                for (int j = 0; j < N * K; j++)
                    CHECK_EQ(hits[j].chunk, expected[j].chunk);
            }
            searcher_close(s);
        }
    w->dev = shared;
}

/* Words are searched in a copy on the device, or in the copy that the caller passes; the hits are those of the CPU.
 * Without memory for a copy the CPU searches, and the reason is kept. */
static void test_words_on_device(struct world *w) {
    static const enum searcher_kind kinds[] = {SEARCHER_LEXICAL, SEARCHER_HYBRID};
    enum { COPIED, BORROWED, NO_MEMORY, MODES };
    struct device *shared = w->dev;
    struct device_lexical *copy;
    struct apart apart;
    const struct device_lexical_config config = {
        .device = shared, .index = w->lexical, .absent = store_view_dropped(w->view)};
    CHECK_OK(device_lexical_create(&copy, &config));
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        for (int mode = 0; mode < MODES; mode++) {
            struct store_hit expected[N * K], hits[N * K];
            struct searcher *s;
            struct searcher_query q = query_of(w, false);
            q.bm25 = true; /* scores of landmarks differ in their last bits */
            w->dev = shared;
            s = open_kind(w, (struct searcher_config){.kind = kinds[i], .exact = true});
            CHECK_OK(searcher_search(s, expected, &q));
            searcher_close(s);
            apart_make(&apart, shared);
            if (mode == NO_MEMORY) apart.runtime.allocate = no_memory;
            if (mode != BORROWED) w->dev = &apart.device;
            s = open_kind(w, (struct searcher_config){
                                 .kind = kinds[i], .exact = true, .lexical = mode == BORROWED ? copy : NULL});
            CHECK_OK(searcher_search(s, hits, &q));
            CHECK(fixture_same_hits(hits, expected, N * K));
            const struct searcher_description d = searcher_describe(s, K, 0);
            CHECK((strstr(d.text, "lexical, 1 segment, BM25 on the GPU") != NULL) == (mode != NO_MEMORY));
            CHECK(mode == NO_MEMORY ? d.device_bytes == 0 : d.device_bytes >= device_lexical_bytes(&config));
            const char *why = searcher_fallback(s);
            CHECK(mode == NO_MEMORY ? why && strstr(why, "the lexical index of 0.00 GiB cannot be searched") : !why);
            searcher_close(s);
        }
    w->dev = shared;
    device_lexical_free(copy);
}

/* An index that misses neighbours: they are counted, and the fallback finds them. */
static void test_missing(void) {
    enum { MANY = 120 };
    struct world w = {0};
    open_world(&w, "missing", "HNSW2,SQ8");
    struct store_hit hits[MANY], expected[MANY];
    const struct store_search scan = {.k = MANY, .exact = true};
    CHECK(w.info.chunks > MANY);
    for (int i = 0; i < N; i++) {
        int64_t missing = 0;
        for (int fallback = 0; fallback < 2; fallback++) {
            struct searcher *s = open_kind(&w, (struct searcher_config){.exact_fallback = fallback});
            const struct searcher_query q = {.n = 1, .k = MANY, .vectors = w.queries + i * DIM};
            CHECK_OK(searcher_search(s, hits, &q));
            struct searcher_counts counts = searcher_counts(s);
            CHECK(counts.queries == 1 && counts.missing == 1 && counts.missing_hits > 0);
            if (!fallback) missing = store_view_missing(w.view, hits, MANY, NULL);
            CHECK_EQ(counts.missing_hits, missing);
            searcher_close(s);
        }
        CHECK_OK(store_view_search(w.view, expected, w.queries + i * DIM, 1, &scan));
        CHECK(fixture_same_hits(hits, expected, MANY));
    }
    close_world(&w);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    struct world w = {0};
    open_world(&w, "store", "IVF4,Flat");
    test_equal_hits(&w);
    test_scores(&w);
    test_lexical(&w);
    test_bm25(&w);
    test_hybrid(&w);
    test_hybrid_of_memory(&w);
    test_hybrid_on_device(&w);
    test_describe(&w);
    test_separate_memory(&w);
    test_words_on_device(&w);
    close_world(&w);
    test_missing();
    test_refusals();
    return test_done();
}
