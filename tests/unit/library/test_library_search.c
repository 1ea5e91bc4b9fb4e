/* test_library_search.c -- drt.h: searches of vectors, texts and ids against scores computed here. */
#include "tests/library_fixture.h"

enum { DIM = 32, CHUNK = 63, K = 7, N = 5 };

static struct library_world w;
static float *all; /* [chunks, DIM] as stored */
static int64_t chunks;

static void read_all(void) {
    struct drt_store_info info = {.size = sizeof info};
    CALL_OK(drt_store_info(w.store, &info));
    chunks = info.chunks;
    all = malloc((size_t)(chunks * DIM) * sizeof *all);
    int64_t *ids = malloc((size_t)chunks * sizeof *ids);
    CHECK(all && ids);
    for (int64_t i = 0; i < chunks; i++)
        ids[i] = i;
    CALL_OK(drt_store_chunks(w.store, NULL, NULL, all, ids, chunks));
    free(ids);
}

static float score_of(const float *query, int64_t chunk) {
    double sum = 0;
    for (int i = 0; i < DIM; i++)
        sum += (double)query[i] * (double)all[chunk * DIM + i];
    return (float)(sum / sqrt(DIM));
}

/* hits: the best k of the chunks outside of `not`, found by plain loops. */
static void check_hits(const struct drt_hit *hits, int k, const float *query, struct drt_range not ) {
    for (int i = 0; i < k; i++) {
        const int64_t c = hits[i].chunk;
        CHECK(c >= 0 && c < chunks && (c < not .begin || c >= not .end));
        float score = score_of(query, c);
        CHECK_CLOSE(&hits[i].score, &score, 1, 1e-4);
        CHECK(i == 0 || hits[i].score <= hits[i - 1].score);
    }
    int better = 0;
    for (int64_t c = 0; c < chunks; c++)
        better += (c < not .begin || c >= not .end) && (double)score_of(query, c) > (double)hits[k - 1].score + 1e-4;
    CHECK(better < k);
}

static void searches(struct drt_model *model) {
    const char *const texts[N] = {"the river and the stone", "seven lights", "Document 7.", "winding north under the",
                                  "harbour of a table on sand"};
    struct drt_searcher *s = NULL, *vectors_only = NULL;
    struct drt_hit hits[N * K], again[N * K];
    struct drt_range exclude[N];
    float queries[N * DIM];
    int32_t *ids[N];
    int64_t n_ids[N];
    struct drt_searcher_info info = {.size = sizeof info};
    CALL_OK(drt_searcher_open(&s, w.store, model, NULL));
    CALL_OK(drt_searcher_info(s, &info));
    CHECK(info.exact && info.queries == 0 && info.text[0]);
    for (int i = 0; i < N; i++) {
        size_t n;
        CALL_OK(drt_tokenizer_encode(drt_model_tokenizer(model), &ids[i], &n, texts[i], strlen(texts[i]), false));
        n_ids[i] = (int64_t)n;
        CALL_OK(drt_model_query(model, queries + i * DIM, ids[i], n_ids[i]));
    }
    struct drt_search how = {.size = sizeof how, .k = K};
    CALL_OK(drt_search_texts(s, hits, texts, NULL, N, &how));
    for (int i = 0; i < N; i++) {
        check_hits(hits + i * K, K, queries + i * DIM, (struct drt_range){0, 0});
        exclude[i] =
            (struct drt_range){hits[i * K].chunk, hits[i * K].chunk + 2 < chunks ? hits[i * K].chunk + 2 : chunks};
    }
    CALL_OK(drt_search_ids(s, again, (const int32_t *const *)ids, n_ids, N, &how));
    CHECK(memcmp(hits, again, sizeof hits) == 0);
    CALL_OK(drt_searcher_open(&vectors_only, w.store, NULL, NULL));
    CALL_OK(drt_search_vectors(vectors_only, again, queries, N, &how));
    CHECK(memcmp(hits, again, sizeof hits) == 0);
    how.exclude = exclude;
    CALL_OK(drt_search_vectors(s, again, queries, N, &how));
    for (int i = 0; i < N; i++)
        check_hits(again + i * K, K, queries + i * DIM, exclude[i]);
    how.exclude = NULL;
    struct drt_hit *many = malloc((size_t)(chunks + 3) * sizeof *many);
    CHECK(many);
    how.k = (int)chunks + 3; /* more than the store has */
    CALL_OK(drt_search_vectors(s, many, queries, 1, &how));
    CHECK(many[chunks - 1].chunk >= 0 && many[chunks].chunk == -1 && many[chunks + 2].chunk == -1);
    free(many);
    CALL_OK(drt_search_texts(s, hits, texts, (const size_t[]){5}, 1, NULL)); /* k 10 is more than K * 1 */
    CALL_OK(drt_searcher_info(s, &info));
    CHECK(info.queries > 2 * N);
    for (int i = 0; i < N; i++)
        drt_free(ids[i]);
    drt_searcher_close(vectors_only);
    drt_searcher_close(s);
}

/* The kinds that search words find the document that a text was taken from, in the same order each time. */
static void words(enum drt_search_kind kind, const char *name) {
    const struct drt_searcher_config config = {.size = sizeof config, .kind = kind};
    const char *const texts[] = {"Document 7. the river and the stone"};
    struct drt_searcher_info info = {.size = sizeof info};
    struct drt_searcher *s = NULL;
    struct drt_hit hits[K], again[K];
    float query[DIM] = {0};
    CALL_OK(drt_searcher_open(&s, w.store, w.model, &config));
    CALL_OK(drt_searcher_info(s, &info));
    CHECK(strstr(info.text, name));
    const struct drt_search how = {.size = sizeof how, .k = K};
    CALL_OK(drt_search_texts(s, hits, texts, NULL, 1, &how));
    CALL_OK(drt_search_texts(s, again, texts, NULL, 1, &how));
    for (int i = 0; i < K; i++)
        CHECK(hits[i].chunk >= 0 && hits[i].chunk < chunks && hits[i].chunk == again[i].chunk);
    CALL_FAILS(drt_search_vectors(s, hits, query, 1, &how), DRT_INVALID, "texts or ids");
    drt_searcher_close(s);
}

static void failures(void) {
    struct drt_searcher *s = NULL, *vectors_only = NULL;
    struct drt_searcher_config config = {.size = sizeof config, .kind = DRT_SEARCH_LEXICAL};
    struct drt_model *other = NULL;
    struct drt_hit hits[10];
    float query[DIM] = {0};
    const char *const texts[] = {"", NULL};
    const int32_t wrong[] = {9999}, *const ids[] = {wrong};
    char folder[700];
    struct drt_search how = {.size = sizeof how};
    CALL_FAILS(drt_searcher_open(&s, w.store, NULL, &config), DRT_INVALID, "needs a model");
    config.kind = (enum drt_search_kind)9;
    CALL_FAILS(drt_searcher_open(&s, w.store, w.model, &config), DRT_INVALID, "9");
    config.kind = DRT_SEARCH_AUTO, config.nprobe = -1;
    CALL_FAILS(drt_searcher_open(&s, w.store, w.model, &config), DRT_INVALID, "nprobe");
    CALL_FAILS(drt_searcher_open(&s, NULL, w.model, NULL), DRT_INVALID, "store is NULL");
    CALL_FAILS(drt_searcher_open(NULL, w.store, w.model, NULL), DRT_INVALID, "out is NULL");
    snprintf(folder, sizeof folder, "%s/other", test_folder());
    model_fixture(folder, 4);
    other = library_model(folder);
    CALL_FAILS(drt_searcher_open(&s, w.store, other, NULL), DRT_MISMATCH, "encoder weights");
    drt_model_close(other);
    CALL_OK(drt_searcher_open(&s, w.store, w.model, NULL));
    CALL_OK(drt_searcher_open(&vectors_only, w.store, NULL, NULL));
    CALL_FAILS(drt_search_texts(s, hits, texts, NULL, 1, NULL), DRT_INVALID, "empty");
    CALL_FAILS(drt_search_texts(s, hits, texts + 1, NULL, 1, NULL), DRT_INVALID, "texts[0]");
    CALL_FAILS(drt_search_texts(vectors_only, hits, texts, NULL, 1, NULL), DRT_INVALID, "vectors only");
    CALL_FAILS(drt_search_ids(s, hits, ids, (const int64_t[]){1}, 1, NULL), DRT_INVALID, "9999");
    CALL_FAILS(drt_search_ids(s, hits, ids, (const int64_t[]){-1}, 1, NULL), DRT_INVALID, "negative");
    CALL_FAILS(drt_search_vectors(NULL, hits, query, 1, NULL), DRT_INVALID, "searcher is NULL");
    CALL_FAILS(drt_search_vectors(s, NULL, query, 1, NULL), DRT_INVALID, "NULL");
    CALL_FAILS(drt_search_vectors(s, hits, query, -1, NULL), DRT_INVALID, "-1");
    CALL_OK(drt_search_vectors(s, NULL, NULL, 0, NULL));
    how.k = -1;
    CALL_FAILS(drt_search_vectors(s, hits, query, 1, &how), DRT_INVALID, "k -1");
    how.k = 0, how.nprobe = -2;
    CALL_FAILS(drt_search_vectors(s, hits, query, 1, &how), DRT_INVALID, "nprobe");
    how.nprobe = 0, how.exclude = &(const struct drt_range){5, chunks + 1};
    CALL_FAILS(drt_search_vectors(s, hits, query, 1, &how), DRT_INVALID, "exclude[0]");
    query[3] = NAN;
    CALL_FAILS(drt_search_vectors(s, hits, query, 1, NULL), DRT_INVALID, "finite");
    CALL_FAILS(drt_searcher_info(NULL, &(struct drt_searcher_info){.size = 8}), DRT_INVALID, "searcher is NULL");
    drt_searcher_close(vectors_only);
    drt_searcher_close(s);
    drt_searcher_close(NULL);
}

/* A searcher keeps its store and model open. */
static void lifetimes(void) {
    struct drt_searcher *s = NULL;
    struct drt_hit hits[10];
    const char *const texts[] = {"the river"};
    CALL_OK(drt_searcher_open(&s, w.store, w.model, NULL));
    library_world_close(&w);
    CALL_OK(drt_search_texts(s, hits, texts, NULL, 1, NULL));
    CHECK(hits[0].chunk >= 0);
    drt_searcher_close(s);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    library_world_open(&w);
    read_all();
    searches(w.model);
    words(DRT_SEARCH_LEXICAL, "lexical");
    words(DRT_SEARCH_HYBRID, "hybrid");
    failures();
    lifetimes();
    free(all);
    return test_done();
}
