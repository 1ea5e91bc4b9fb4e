/* test_memory_search.c -- how a token memory finds chunks: each kind of search against plain loops over the store's
 * landmarks and the lexical index, with query vectors from the decoder's states; scores of random chunks; every
 * refusal. */
#include "session/memory_search.h"
#include "session/text_query.h"
#include "store/lexical/hybrid_hits.h"
#include "tests/unit/session/memory_world_fixture.h"

enum { K = 5 };

static struct memory_search_config search_config(struct world *w, enum memory_searcher kind) {
    return (struct memory_search_config){.engine = &w->engine, .kind = kind, .store = w->store};
}

static struct memory_source *open_source(struct world *w, struct memory_search *search) {
    struct memory_source *source;
    const struct memory_source_config config = {.device = w->engine.device,
                                                .model = &w->engine.model.config,
                                                .decoder = w->engine.decoder,
                                                .view = w->engine.view,
                                                .finder = memory_search_finder(search),
                                                .k = K,
                                                .key_layer = 2};
    CHECK_OK(memory_source_create(&source, &config));
    return source;
}

/* ---- the expected hits ---- */

/* Scores of all chunks by the landmark of the text before `at`, whose products a query may round. Its sketch is that of
 * the last 128 ids, and zeros where words are ranked apart. */
static void plain_scores(struct world *w, struct memory_search *search, double scores[CHUNKS], int64_t at) {
    const int n = (int)(at < CHUNK ? at : CHUNK), words = (int)(at < 128 ? at : 128);
    const bool both = memory_search_kind(memory_search_finder(search).searcher) == MEMORY_HYBRID;
    float query[D + SKETCH], row[D + SKETCH], plain[D + SKETCH];
    double dot = 0;
    const struct memory_finder finder = memory_search_finder(search);
    CHECK_OK(finder.vectors(finder.context, query, &(struct lexical_query){w->text, (int)at}, 1));
    plain_landmark(plain, &w->engine, w->text + at - n, n);
    for (int j = 0; j < D; j++)
        dot += (double)plain[j] * (double)query[j];
    CHECK(dot >= 0.999 && dot <= 1.00001);
    if (w->dim > D) plain_sketch(plain + D, &w->engine, w->text + at - words, both ? 0 : words, true);
    for (int j = D; j < w->dim; j++)
        CHECK(fabsf(plain[j] - query[j]) <= 1e-6F);
    for (int c = 0; c < CHUNKS; c++) {
        CHECK_OK(store_view_landmark(w->engine.view, row, c));
        scores[c] = 0;
        for (int j = 0; j < w->dim; j++)
            scores[c] += (double)row[j] * (double)query[j] / sqrt(w->dim);
    }
}

static bool outside(int64_t chunk, struct memory_scope scope) {
    return (chunk >= scope.exclude.begin && chunk < scope.exclude.end) || (scope.end && chunk >= scope.end);
}

/* The chunks of a scope by falling score. */
static void ranked(struct store_hit hits[CHUNKS], const double scores[CHUNKS], struct memory_scope scope) {
    int n = 0;
    for (int c = 0; c < CHUNKS; c++) {
        if (outside(c, scope)) continue;
        int i = n++;
        for (; i > 0 && (double)hits[i - 1].score < scores[c]; i--)
            hits[i] = hits[i - 1];
        hits[i] = (struct store_hit){.chunk = c, .score = (float)scores[c]};
    }
    for (; n < CHUNKS; n++)
        hits[n] = (struct store_hit){.chunk = -1, .score = -INFINITY};
}

/* Of all chunks in the order of BM25, those of the scope. */
static void ranked_by_words(struct store_hit hits[CHUNKS], const struct lexical *x, const struct lexical_query *query,
                            struct memory_scope scope) {
    int n = 0;
    const struct lexical_search how = {.k = CHUNKS, .pair_weight = LEXICAL_PAIR_WEIGHT};
    CHECK_OK(lexical_search(x, hits, query, 1, &how));
    for (int i = 0; i < CHUNKS; i++)
        if (hits[i].chunk >= 0 && !outside(hits[i].chunk, scope)) hits[n++] = hits[i];
    for (; n < CHUNKS; n++)
        hits[n] = (struct store_hit){.chunk = -1, .score = -INFINITY};
}

/* By BM25 and 120 times the cosine. */
static void ranked_by_both(struct store_hit hits[K], const struct world *w, const float words[CHUNKS],
                           const double landmark[CHUNKS], struct memory_scope scope) {
    int64_t ids[CHUNKS], n = 0;
    float a[CHUNKS], b[CHUNKS];
    for (int64_t c = 0; c < CHUNKS; c++)
        if (!outside(c, scope)) ids[n] = c, a[n] = words[c], b[n++] = (float)landmark[c];
    CHECK_OK(hybrid_weighted(hits, K, ids, a, b, n, 120 * sqrtf((float)w->dim)));
}

static void check_search(struct world *w, enum memory_searcher kind, struct memory_scope scope) {
    const struct memory_search_config config = search_config(w, kind);
    struct memory_search *search;
    const struct lexical *lexical;
    int64_t chunks[N * K], random[N * K];
    float scores[N * K], random_scores[N * K];
    CHECK_OK(store_view_lexical(&lexical, w->engine.view));
    CHECK_OK(memory_search_open(&search, &config));
    struct memory_source *source = open_source(w, search);
    CHECK_OK(memory_source_find(source, chunks, scores, w->text, w->at, (struct mat){0}, N, scope));
    CHECK_OK(memory_source_draw(source, random, w->at, N, scope.exclude, 5));
    CHECK_OK(memory_source_score(source, random_scores, random, w->text, w->at, (struct mat){0}, N));
    for (int i = 0; i < N; i++) {
        struct store_hit by_rows[CHUNKS], by_words[CHUNKS], merged[K];
        double landmark[CHUNKS], best = -1e9;
        float words[CHUNKS];
        const int64_t n = w->at[i] < SEARCHER_TOKENS ? w->at[i] : SEARCHER_TOKENS;
        const struct lexical_query query = {w->text + w->at[i] - n, (int)n};
        const struct lexical_search how = {.k = CHUNKS, .pair_weight = LEXICAL_PAIR_WEIGHT};
        if (kind != MEMORY_LEXICAL) plain_scores(w, search, landmark, w->at[i]);
        if (kind != MEMORY_LEXICAL) ranked(by_rows, landmark, scope);
        ranked_by_words(by_words, lexical, &query, scope);
        for (int64_t c = 0; c < CHUNKS; c++)
            CHECK_OK(lexical_score(lexical, words + c, &c, 1, &query, &how));
        if (kind == MEMORY_LANDMARK) memcpy(merged, by_rows, sizeof merged);
        if (kind == MEMORY_LEXICAL) memcpy(merged, by_words, sizeof merged);
        if (kind == MEMORY_HYBRID) ranked_by_both(merged, w, words, landmark, scope);
        for (int j = 0; j < K; j++) {
            const int64_t c = chunks[i * K + j], r = random[i * K + j];
            CHECK_EQ(c, merged[j].chunk);
            CHECK(c < 0 || !outside(c, scope));
            CHECK(fabs((double)scores[i * K + j] - (c < 0                     ? 0
                                                    : kind == MEMORY_LANDMARK ? landmark[c]
                                                                              : (double)words[c])) < 1e-4);
            CHECK(fabs((double)random_scores[i * K + j] - (kind == MEMORY_LANDMARK ? landmark[r] : (double)words[r])) <
                  1e-4);
        }
        const struct memory_marks marks = memory_source_marks(source, chunks + i * K, scores + i * K, n);
        for (int j = 0; j < K; j++)
            best = fmax(best, (double)scores[i * K + j]);
        CHECK(fabs((double)marks.best - (kind == MEMORY_LANDMARK ? best : best / (double)n)) < 1e-6);
    }
    CHECK_EQ(memory_search_kind(memory_search_finder(search).searcher), kind);
    memory_source_free(source);
    memory_search_close(search);
}

/* ---- a trained order ---- */

/* The sums of the features of a search's candidates, in the order of the search, from the weights of `order`. */
static void plain_order(struct store_hit *hits, const struct order_weights *order, const float *features, int n) {
    double sum[CHUNKS];
    for (int i = 0; i < n; i++) {
        sum[i] = 0;
        for (int f = 0; f < CANDIDATE_FEATURES; f++)
            sum[i] += order->weights[f] * (double)features[i * CANDIDATE_FEATURES + f];
    }
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && hits[j].chunk >= 0 && (float)sum[j] > (float)sum[j - 1]; j--) {
            const double s = sum[j];
            const struct store_hit h = hits[j];
            sum[j] = sum[j - 1], sum[j - 1] = s;
            hits[j] = hits[j - 1], hits[j - 1] = h;
        }
}

/* The cosine of a candidate is that of the states: without a sketch the score times the root of the size. */
static void check_cosine(struct world *w, struct memory_search *search, float cosine, float score, int64_t at,
                         int64_t chunk) {
    const struct memory_finder finder = memory_search_finder(search);
    float query[D + SKETCH], row[D + SKETCH];
    double dot = 0, all;
    CHECK_OK(finder.vectors(finder.context, query, &(struct lexical_query){w->text, (int)at}, 1));
    CHECK_OK(store_view_landmark(w->engine.view, row, chunk));
    for (int j = 0; j < D; j++)
        dot += (double)row[j] * (double)query[j];
    all = dot;
    for (int j = D; j < w->dim; j++)
        all += (double)row[j] * (double)query[j];
    CHECK(fabs((double)cosine - dot) < 1e-5 && fabs((double)score * sqrt(w->dim) - all) < 1e-4);
}

/* A search of a memory with an order finds the first K of its candidates by these sums, with the search's scores. The
 * candidates are those of a search without an order. */
static void check_order(struct world *w, enum memory_searcher kind, struct store_range out) {
    enum { CANDIDATES = 16 };
    const struct memory_search_config config = search_config(w, kind);
    struct order_weights order = {.candidates = CANDIDATES};
    struct memory_search *search;
    struct memory_source *source;
    struct store_hit hits[CANDIDATES];
    float features[CANDIDATES * CANDIDATE_FEATURES], scores[K], all_scores[CANDIDATES];
    int64_t chunks[K], all[CANDIDATES];
    struct rng rng = rng_make(6, (uint64_t)kind);
    for (int f = 0; f < CANDIDATE_FEATURES; f++)
        order.weights[f] = (double)rng_uniform(&rng) - 0.5;
    CHECK_OK(memory_search_open(&search, &config));
    struct memory_source_config how = {.device = w->engine.device,
                                       .model = &w->engine.model.config,
                                       .decoder = w->engine.decoder,
                                       .view = w->engine.view,
                                       .finder = memory_search_finder(search),
                                       .k = K,
                                       .key_layer = 2,
                                       .order = &order};
    CHECK_OK(memory_source_create(&source, &how));
    how.k = CANDIDATES, how.order = NULL;
    struct memory_source *plain;
    CHECK_OK(memory_source_create(&plain, &how));
    CHECK_EQ(memory_source_candidates(source), CANDIDATES);
    CHECK_EQ(memory_source_candidates(plain), 0);
    for (int i = 0; i < N; i++) {
        const struct memory_scope scope = {.exclude = out};
        CHECK_OK(memory_source_find_candidates(source, hits, features, w->text, w->at[i], (struct mat){0}, out));
        CHECK_OK(memory_source_find(plain, all, all_scores, w->text, &w->at[i], (struct mat){0}, 1, scope));
        for (int j = 0; j < CANDIDATES; j++) {
            CHECK_EQ(hits[j].chunk, all[j]);
            if (all[j] < 0) continue;
            int length = CHUNK;
            while (w->ids[all[j]][length - 1] < 0)
                length--;
            const float *f = features + j * CANDIDATE_FEATURES;
            CHECK(f[CANDIDATE_SCORE] == all_scores[j] && f[CANDIDATE_LENGTH] == (float)length);
            if (kind == MEMORY_LANDMARK) check_cosine(w, search, f[CANDIDATE_COSINE], all_scores[j], w->at[i], all[j]);
            if (kind == MEMORY_LEXICAL) CHECK(f[CANDIDATE_COSINE] == 0);
        }
        plain_order(hits, &order, features, CANDIDATES);
        CHECK_OK(memory_source_find(source, chunks, scores, w->text, &w->at[i], (struct mat){0}, 1, scope));
        for (int j = 0; j < K; j++) {
            CHECK_EQ(chunks[j], hits[j].chunk);
            CHECK(chunks[j] < 0 || scores[j] == hits[j].score);
        }
    }
    memory_source_free(plain);
    memory_source_free(source);
    memory_search_close(search);
}

static void test_order(bool sketch) {
    static struct world w;
    open_world_of(&w, sketch ? "order-sketch" : "order", true, sketch, STORE_LEXICAL_ON);
    for (int kind = 0; kind < MEMORY_SEARCHERS; kind++) {
        check_order(&w, (enum memory_searcher)kind, (struct store_range){0});
        check_order(&w, (enum memory_searcher)kind, (struct store_range){w.first_chunk[4], w.first_chunk[5]});
    }
    engine_close(&w.engine);
}

/* The oracle searches with the next chunk: a chunk of the store finds itself, with the score of a vector and itself. */
static void test_ahead(struct world *w) {
    const struct memory_search_config config = search_config(w, MEMORY_LANDMARK);
    struct memory_search *search;
    int64_t chunks[K];
    const int64_t at = 0;
    float scores[K];
    CHECK_OK(memory_search_open(&search, &config));
    struct memory_source *source = open_source(w, search);
    for (int c = 0; c < CHUNKS; c += 4) {
        int length = CHUNK;
        while (w->ids[c][length - 1] < 0)
            length--;
        CHECK_OK(memory_source_find_ahead(source, chunks, scores, w->ids[c], length, &at, 1, (struct memory_scope){0}));
        CHECK_EQ(chunks[0], c);
        CHECK(fabs((double)scores[0] - 1 / sqrt(D)) < 1e-3);
    }
    memory_source_free(source);
    memory_search_close(search);
}

static void test_kinds(bool sketch) {
    static struct world w;
    open_world_of(&w, sketch ? "sketch" : "base", true, sketch, STORE_LEXICAL_ON);
    for (int kind = 0; kind < MEMORY_SEARCHERS; kind++) {
        const struct store_range document = {w.first_chunk[4], w.first_chunk[5]};
        check_search(&w, (enum memory_searcher)kind, (struct memory_scope){0});
        check_search(&w, (enum memory_searcher)kind, (struct memory_scope){document, 0});
        check_search(&w, (enum memory_searcher)kind, (struct memory_scope){{0}, 9});
        /* Ranges after the end, across it, and two that are not adjacent. */
        check_search(&w, (enum memory_searcher)kind, (struct memory_scope){document, 8});
        check_search(&w, (enum memory_searcher)kind, (struct memory_scope){document, 12});
        if (kind != MEMORY_HYBRID) check_search(&w, (enum memory_searcher)kind, (struct memory_scope){document, 18});
    }
    if (!sketch) test_ahead(&w);
    engine_close(&w.engine);
}

/* A model with an encoder uses the query of its own retrieval. */
static void test_queries_of_model(void) {
    static struct world w;
    struct memory_search *search;
    struct store_hit hits[K];
    float vector[D], scores[K];
    int64_t chunks[K];
    open_world(&w, "drt", false, STORE_LEXICAL_OFF);
    const struct memory_search_config config = search_config(&w, MEMORY_LANDMARK);
    CHECK_OK(memory_search_open(&search, &config));
    CHECK_STR(memory_search_describe(search, K).kind, "exact");
    struct memory_source *source = open_source(&w, search);
    const struct text_query_model model = {w.engine.device, w.engine.decoder, &w.engine.model.config, NULL};
    CHECK_OK(memory_source_find(source, chunks, scores, w.text, w.at, (struct mat){0}, 1, (struct memory_scope){0}));
    CHECK_OK(text_query(vector, &model, w.text + LENGTH - MEMORY_LOOK_BACK, MEMORY_LOOK_BACK));
    CHECK_OK(store_view_search(w.engine.view, hits, vector, 1, &(struct store_search){.k = K, .exact = true}));
    for (int i = 0; i < K; i++)
        CHECK(hits[i].chunk == chunks[i] && hits[i].score == scores[i]);
    memory_source_free(source);
    memory_search_close(search);
    /* This store has no lexical index. */
    for (int kind = 0; kind < MEMORY_SEARCHERS; kind++) {
        const struct memory_search_config other = search_config(&w, (enum memory_searcher)kind);
        if (kind == MEMORY_LANDMARK) continue;
        CHECK_FAILS(memory_search_open(&search, &other), STATUS_UNSUPPORTED, "has no lexical index");
    }
    engine_close(&w.engine);
}

/* Landmarks of other weights: a search by words works. */
static void test_other_model(void) {
    static struct world w;
    struct memory_search *search;
    open_world(&w, "first", true, STORE_LEXICAL_ON);
    engine_close(&w.engine);
    snprintf(w.model, sizeof w.model, "%s/other-model", test_folder());
    make_model(w.model, true, 4);
    open_engine(&w, w.store);
    check_search(&w, MEMORY_LEXICAL, (struct memory_scope){0});
    for (int kind = MEMORY_LANDMARK; kind < MEMORY_SEARCHERS; kind++) {
        const struct memory_search_config config = search_config(&w, (enum memory_searcher)kind);
        CHECK_FAILS(memory_search_open(&search, &config), STATUS_MISMATCH, "needs those of its own model");
    }
    engine_close(&w.engine);
}

int main(void) {
    for (int sketch = 0; sketch < 2; sketch++) {
        test_kinds(sketch);
        test_order(sketch);
    }
    test_queries_of_model();
    test_other_model();
    return 0;
}
