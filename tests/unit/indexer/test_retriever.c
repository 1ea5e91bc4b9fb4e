/* test_retriever.c -- the retriever against brute force: own past, a real store, both; exclusions, random, lifetimes.
 */
#include "base/rng.h"
#include "decoder/neighbours.h"
#include "indexer/retrieve/retriever.h"
#include "model/params.h"
#include "store/lexical/lexical.h"
#include "tests/test.h"
#include "tests/unit/indexer/retriever_fixture.h"

enum { D = RETRIEVER_D, CHUNK = RETRIEVER_CHUNK, K = 4, DOCUMENTS = 12, VOCAB = RETRIEVER_VOCAB };

struct world {
    struct device *dev;
    struct model_config config;
    struct params *params;
    struct encoder *encoder;
    struct store *store;
    struct store_view *view;
    struct searcher *searcher; /* of the corpus */
    int64_t chunks;            /* of the corpus */
    int32_t *ids;              /* [chunks, CHUNK], -1 after the ids of a short chunk */
    int64_t first_chunk[DOCUMENTS + 1];
    float *landmarks; /* as in the store */
};

static void fill_ids(int32_t *ids, int64_t n, struct rng *rng) {
    int32_t topic = (int32_t)rng_below(rng, 440);
    for (int64_t i = 0; i < n; i++)
        ids[i] = topic + (int32_t)rng_below(rng, 40);
}

static void write_document(struct world *w, struct store_writer *writer, int number, struct rng *rng) {
    int64_t chunks = 2 + number, tokens = chunks * CHUNK - (number % 3 == 0 ? 20 : 0);
    int32_t *ids = w->ids + w->chunks * CHUNK;
    for (int64_t c = 0; c < chunks; c++)
        fill_ids(ids + c * CHUNK, CHUNK, rng);
    struct store_new_document d = {.ids = ids, .n_ids = (size_t)tokens, .source = "memory", .key = ""};
    memcpy(d.hash, &number, sizeof number);
    bool duplicate;
    CHECK_OK(store_shard_document(writer, &d, &duplicate));
    CHECK(!duplicate);
    for (int64_t i = tokens; i < chunks * CHUNK; i++)
        ids[i] = -1;
    float *rows = w->landmarks + w->chunks * D;
    struct encoder_output out = {.landmarks = rows};
    encoder_encode(w->encoder, &out, ids, chunks);
    CHECK_OK(store_shard_landmarks(writer, rows, chunks));
    w->first_chunk[number] = w->chunks;
    w->chunks += chunks;
    w->first_chunk[number + 1] = w->chunks;
}

static void make_store(struct world *w) {
    char path[600];
    snprintf(path, sizeof path, "%s/store", test_folder());
    struct store_writer_config config = {.fingerprint = {.chunk_tokens = CHUNK, .dim = D, .vocab_size = VOCAB},
                                         .max_catalog_bytes = 1 << 26};
    struct store_writer *writer;
    struct rng rng = rng_make(8, 0);
    w->ids = calloc(200 * CHUNK, sizeof *w->ids);
    w->landmarks = calloc(200 * D, sizeof *w->landmarks);
    CHECK(w->ids && w->landmarks);
    CHECK_OK(store_writer_open(&writer, path, &config, true));
    CHECK_OK(store_shard_begin(writer));
    for (int i = 0; i < DOCUMENTS; i++)
        write_document(w, writer, i, &rng);
    CHECK_OK(store_shard_seal(writer, "", 0));
    CHECK_OK(store_writer_publish(writer, &(struct store_publish){.index = "exact", .lexical = STORE_LEXICAL_ON}));
    store_writer_close(writer);
    CHECK_OK(store_open(&w->store, path));
    CHECK_OK(store_view_open(&w->view, w->store));
    for (int64_t c = 0; c < w->chunks; c++)
        CHECK_OK(store_view_landmark(w->view, w->landmarks + c * D, c));
}

static struct chunk_retriever_config config_of(struct world *w, bool own_past, bool corpus) {
    return (struct chunk_retriever_config){.device = w->dev,
                                           .model = &w->config,
                                           .encoder = w->encoder,
                                           .own_past = own_past,
                                           .corpus = corpus ? w->view : NULL,
                                           .searcher = corpus ? w->searcher : NULL,
                                           .max_queries = 6,
                                           .cache_chunks = 1,
                                           .exclude_document = -1,
                                           .exclude_window = -1};
}

static struct retriever *make(const struct chunk_retriever_config *config) {
    struct retriever *r;
    CHECK_OK(chunk_retriever_create(&r, config));
    return r;
}

static double dot(const float *a, const float *b) {
    double sum = 0;
    for (int i = 0; i < D; i++)
        sum += (double)a[i] * (double)b[i];
    return sum / sqrt(D);
}

/* Checks a row against all candidates in double precision: the k best, their weights, and the contents of their
 * slots. */
struct truth {
    const float *own, *corpus;
    const int32_t *own_ids, *corpus_ids;
    int64_t own_seen, corpus_chunks;
    struct store_range hole;
};

static void check_slot(struct world *w, const struct neighbours *n, int64_t at, const int32_t *ids) {
    float k[64 * D], v[64 * D];
    struct encoder_output out = {.keys = mat_dense(k, DTYPE_F32, 64, D), .values = mat_dense(v, DTYPE_F32, 64, D)};
    encoder_encode(w->encoder, &out, ids, 1);
    CHECK(n->slot[at] >= 0 && n->pool.live_rows == CHUNK && n->pool.off_by_one);
    int64_t row = (int64_t)n->slot[at] * n->pool.slot_rows;
    CHECK_CLOSE(mat_row(n->pool.keys, row), k, CHUNK * D, 1e-4);
    CHECK_CLOSE(mat_row(n->pool.values, row), v, CHUNK * D, 1e-4);
}

static void check_row(struct world *w, const struct neighbours *n, int64_t row, const float *query,
                      const struct truth *t) {
    double best[K], total = 0, previous = INFINITY;
    int64_t seen = 0;
    for (int i = 0; i < K; i++) { /* the best of the remaining scores */
        best[i] = -INFINITY;
        for (int64_t c = 0; c < t->own_seen + t->corpus_chunks; c++) {
            bool own = c < t->own_seen;
            int64_t id = own ? c : c - t->own_seen;
            if (!own && id >= t->hole.begin && id < t->hole.end) continue;
            double score = dot(query, (own ? t->own : t->corpus) + id * D);
            if (score < previous && score > best[i]) best[i] = score;
        }
        seen += best[i] > -INFINITY;
        previous = best[i];
        total += exp(best[i] - best[0]);
    }
    for (int i = 0; i < K; i++) {
        int64_t at = row * K + i;
        if (i >= seen) {
            CHECK(n->id[at] == -1 && n->slot[at] == -1 && n->weight[at] == 0 && n->score[at] == -INFINITY &&
                  n->source[at] == NEIGHBOUR_NONE);
            continue;
        }
        bool own = n->source[at] == NEIGHBOUR_OWN_PAST;
        CHECK(own ? n->id[at] >= 0 && n->id[at] < t->own_seen : n->id[at] >= 0 && n->id[at] < t->corpus_chunks);
        CHECK(own || n->id[at] < t->hole.begin || n->id[at] >= t->hole.end);
        CHECK(fabs((double)n->score[at] - best[i]) < 2e-4);
        CHECK(fabs(dot(query, (own ? t->own : t->corpus) + n->id[at] * D) - best[i]) < 2e-4);
        CHECK(fabs((double)n->weight[at] - exp(best[i] - best[0]) / total) < 2e-4);
        check_slot(w, n, at, (own ? t->own_ids : t->corpus_ids) + n->id[at] * CHUNK);
    }
}

/* Own chunks arrive one by one and several at once; each queries in both groups; every row is checked, and the rows of
 * the call before. */
static void test_against_truth(struct world *w, bool own_past, bool corpus) {
    enum { OWN = 40 };
    struct chunk_retriever_config config = config_of(w, own_past, corpus);
    struct retriever *r = make(&config);
    struct rng rng = rng_make(5, own_past + 2 * corpus);
    int32_t *ids = calloc(OWN * CHUNK, sizeof *ids);
    float *own = calloc(OWN * D, sizeof *own), *queries = calloc(2 * OWN * D, sizeof *queries);
    CHECK(ids && own && queries);
    for (int c = 0; c < OWN; c++)
        fill_ids(ids + c * CHUNK, CHUNK, &rng);
    ids[3 * CHUNK + 7] = -100; /* negative: a pad */
    for (int i = 0; i < 2 * OWN * D; i++)
        queries[i] = rng_normal(&rng);
    struct encoder_output out = {.landmarks = own};
    encoder_encode(w->encoder, &out, ids, OWN);
    struct truth t = {.own = own,
                      .corpus = w->landmarks,
                      .own_ids = ids,
                      .corpus_ids = w->ids,
                      .corpus_chunks = corpus ? w->chunks : 0};
    struct neighbours last[2];
    int64_t last_first = -1;
    for (int64_t first = 0, n; first < OWN; first += n) {
        n = 1 + (int64_t)rng_below(&rng, 6);
        if (n > OWN - first) n = OWN - first;
        CHECK_OK(r->append(r, first, ids + first * CHUNK, (struct mat){0}, n));
        for (int g = 0; g < 2; g++) {
            struct neighbours found;
            const float *q = queries + (g * OWN + first) * D;
            CHECK_OK(r->retrieve(r, &found, g, first, mat_f32(q, n, D), n));
            CHECK(found.n == n && found.k == K);
            for (int64_t i = 0; i < n; i++) {
                t.own_seen = own_past ? first + i : 0;
                check_row(w, &found, i, q + i * D, &t);
            }
            if (last_first >= 0) { /* valid until the call after this one */
                t.own_seen = own_past ? last_first + last[g].n - 1 : 0;
                check_row(w, &last[g], last[g].n - 1, queries + (g * OWN + last_first + last[g].n - 1) * D, &t);
            }
            last[g] = found;
        }
        last_first = first;
    }
    struct chunk_retriever_times times = chunk_retriever_times(r);
    CHECK_EQ(times.queries, 2 * OWN);
    CHECK(times.cache_misses > 0 && times.encode > 0);
    r->free(r);
    free(ids), free(own), free(queries);
}

static bool is_in(const int64_t *list, int n, int64_t id) {
    for (int i = 0; i < n; i++)
        if (list[i] == id) return true;
    return false;
}

/* The chunks of a row with a continuation, by brute force. Returns their number. */
static int continued(const struct world *w, int64_t expected[K], const float *query, int continuation,
                     struct store_range hole) {
    int64_t ranked[200];
    int n = 0, count = 0;
    for (int64_t c = 0; c < w->chunks; c++) { /* insertion sort, the best first */
        if (c >= hole.begin && c < hole.end) continue;
        int at = count++;
        for (; at > 0 && dot(query, w->landmarks + ranked[at - 1] * D) < dot(query, w->landmarks + c * D); at--)
            ranked[at] = ranked[at - 1];
        ranked[at] = c;
    }
    for (int i = 0; i < K && n < K; i++) {
        int document = 0;
        while (w->first_chunk[document + 1] <= ranked[i])
            document++;
        for (int64_t c = ranked[i]; c <= ranked[i] + continuation && c < w->first_chunk[document + 1]; c++) {
            if (c >= hole.begin && c < hole.end) break;
            if (n < K && !is_in(expected, n, c)) expected[n++] = c;
        }
    }
    return n;
}

/* The best chunks with the chunks after them in their documents; none is excluded or occurs twice. */
static void test_continuation(struct world *w) {
    enum { N = 6, DOCUMENT = 9 };
    struct rng rng = rng_make(21, 0);
    float queries[N * D];
    int beyond = 0;
    for (int continuation = 1; continuation <= K; continuation += 1 + continuation / 2)
        for (int64_t window = -1; window <= 0; window++) {
            struct chunk_retriever_config config = config_of(w, false, true);
            config.continuation = continuation, config.exclude_document = DOCUMENT, config.exclude_window = window;
            struct retriever *r = make(&config);
            struct neighbours found;
            for (int i = 0; i < N * D; i++)
                queries[i] = rng_normal(&rng);
            CHECK_OK(r->retrieve(r, &found, 0, 0, mat_f32(queries, N, D), N));
            for (int64_t i = 0; i < N; i++) {
                struct store_range hole = {w->first_chunk[DOCUMENT], w->first_chunk[DOCUMENT + 1]};
                if (window == 0) hole.begin += i, hole.end = hole.begin + 1;
                int64_t expected[K];
                const int n = continued(w, expected, queries + i * D, continuation, hole);
                for (int j = 0; j < n; j++) {
                    const int64_t at = i * K + j;
                    CHECK(is_in(expected, n, found.id[at]) && is_in(found.id + i * K, n, expected[j]));
                    CHECK(fabs(dot(queries + i * D, w->landmarks + found.id[at] * D) - (double)found.score[at]) < 2e-4);
                    CHECK(j == 0 || found.score[at] <= found.score[at - 1]);
                    check_slot(w, &found, at, w->ids + found.id[at] * CHUNK);
                    beyond += j > 0 && is_in(found.id + i * K, n, found.id[at] - 1);
                }
            }
            r->free(r);
        }
    CHECK(beyond > 0);
}

/* With an overlap, found chunks are followed by the passages that begin CHUNK - overlap ids after one another, within
 * the document and before the excluded chunk, with the score of the chunk. Each has an id that the one before it lacks.
 */
static void test_overlap(struct world *w, int overlap, int continuation, bool exclude) {
    enum { N = 11, DOCUMENT = 9 };
    struct chunk_retriever_config config = config_of(w, false, true);
    struct rng rng = rng_make(22, (uint64_t)overlap);
    int64_t passages = 0;
    float queries[N * D], landmark[D];
    struct neighbours found;
    config.continuation = continuation, config.overlap = overlap, config.max_queries = N, config.exclude_window = 0;
    config.exclude_document = exclude ? DOCUMENT : -1;
    struct retriever *r = make(&config);
    for (int i = 0; i < N * D; i++)
        queries[i] = rng_normal(&rng);
    CHECK_OK(r->retrieve(r, &found, 0, 0, mat_f32(queries, N, D), N));
    for (int64_t at = 0; at < N * K; at++) {
        const int64_t first = found.id[at] * CHUNK + found.offset[at], step = CHUNK - overlap;
        const int64_t hole = exclude ? w->first_chunk[DOCUMENT] + at / K : -1;
        int32_t ids[CHUNK], document = 0, whole = 0; /* whole: whether it continues a whole chunk */
        while (w->first_chunk[document + 1] * CHUNK <= first)
            document++;
        for (int64_t i = first; i < first + CHUNK; i++)
            ids[i - first] = i < w->first_chunk[document + 1] * CHUNK ? w->ids[i] : -1;
        check_slot(w, &found, at, ids);
        encoder_encode(w->encoder, &(struct encoder_output){.landmarks = landmark}, ids, 1);
        if (found.offset[at] == 0) memcpy(landmark, w->landmarks + found.id[at] * D, sizeof landmark);
        CHECK(fabs(dot(queries + at / K * D, landmark) - (double)found.score[at]) < 2e-4 && found.id[at] != hole);
        for (int64_t i = 0, c; i <= continuation; i++)
            whole |= (c = (first - i * step) / CHUNK) * CHUNK == first - i * step && c >= w->first_chunk[document];
        CHECK(whole && (found.offset[at] == 0 || (++passages && ids[overlap] >= 0 && found.id[at] + 1 != hole)));
    }
    CHECK(passages > 0);
    r->free(r);
}

static void test_exclusion(struct world *w) {
    enum { N = 5, DOCUMENT = 7 };
    struct rng rng = rng_make(6, 0);
    float queries[N * D];
    for (int i = 0; i < N * D; i++)
        queries[i] = rng_normal(&rng);
    for (int64_t window = -1; window <= 1; window++)
        for (int random = 0; random < 2; random++) {
            struct chunk_retriever_config config = config_of(w, false, true);
            config.exclude_document = DOCUMENT, config.exclude_window = window, config.random = random, config.topk = K;
            struct retriever *r = make(&config);
            struct neighbours found;
            CHECK_OK(r->retrieve(r, &found, 0, 0, mat_f32(queries, N, D), N));
            struct store_range d = {w->first_chunk[DOCUMENT], w->first_chunk[DOCUMENT + 1]};
            for (int64_t i = 0; i < N; i++) {
                struct store_range hole = d;
                if (window >= 0) {
                    hole.begin = d.begin + i - window > d.begin ? d.begin + i - window : d.begin;
                    hole.end = d.begin + i + window + 1 < d.end ? d.begin + i + window + 1 : d.end;
                }
                struct truth t = {
                    .corpus = w->landmarks, .corpus_ids = w->ids, .corpus_chunks = w->chunks, .hole = hole};
                if (!random) check_row(w, &found, i, queries + i * D, &t);
                for (int j = 0; j < K; j++)
                    CHECK(found.id[i * K + j] < hole.begin || found.id[i * K + j] >= hole.end);
            }
            chunk_retriever_reset(r, DOCUMENT, 2); /* the text begins in the document's third chunk */
            CHECK_OK(r->retrieve(r, &found, 0, 0, mat_f32(queries, N, D), N));
            for (int64_t i = 0; i < N; i++)
                for (int j = 0; j < K; j++) {
                    int64_t position = found.id[i * K + j] - d.begin;
                    bool own = found.id[i * K + j] >= d.begin && found.id[i * K + j] < d.end;
                    CHECK(!own || (window >= 0 && (position < i + 2 - window || position > i + 2 + window)));
                }
            chunk_retriever_reset(r, -1, 0); /* nothing is excluded now */
            CHECK_OK(r->retrieve(r, &found, 0, 0, mat_f32(queries, N, D), N));
            struct truth all = {.corpus = w->landmarks, .corpus_ids = w->ids, .corpus_chunks = w->chunks};
            if (!random) check_row(w, &found, 0, queries, &all);
            chunk_retriever_reset(r, 1000, 0);
            CHECK(r->retrieve(r, &found, 0, 0, mat_f32(queries, N, D), N) != STATUS_OK);
            r->free(r);
        }
}

static void test_random(struct world *w) {
    enum { N = 6, ROUNDS = 100 };
    struct chunk_retriever_config config = config_of(w, false, true);
    config.random = true, config.seed = 11;
    struct retriever *r = make(&config), *one = make(&config);
    float queries[N * D] = {0};
    int *counts = calloc((size_t)w->chunks, sizeof *counts);
    CHECK(counts);
    for (int i = 0; i < N * D; i++)
        queries[i] = (float)(i % 7) / 7;
    for (int64_t round = 0; round < ROUNDS; round++) {
        struct neighbours found, single;
        CHECK_OK(r->retrieve(r, &found, 0, round * N, mat_f32(queries, N, D), N));
        for (int64_t i = 0; i < N; i++) {
            CHECK_OK(one->retrieve(one, &single, 0, round * N + i, mat_f32(queries + i * D, 1, D), 1));
            CHECK(memcmp(single.id, found.id + i * K, K * sizeof *found.id) == 0); /* for any division into calls */
            double sum = 0;
            for (int j = 0; j < K; j++) {
                int64_t at = i * K + j, id = found.id[at];
                for (int other = 0; other < j; other++)
                    CHECK(found.id[i * K + other] != id);
                CHECK(fabs((double)found.score[at] - dot(queries + i * D, w->landmarks + id * D)) < 1e-4);
                counts[id]++;
                sum += (double)found.weight[at];
            }
            CHECK(fabs(sum - 1) < 1e-5);
        }
    }
    double expected = (double)ROUNDS * N * K / (double)w->chunks;
    for (int64_t c = 0; c < w->chunks; c++)
        CHECK(counts[c] > 0 && counts[c] < expected + 7 * sqrt(expected));
    r->free(r), one->free(one), free(counts);
}

/* A second text does not read the first, and finds the corpus' chunks in the cache. */
static void test_reset(struct world *w) {
    struct chunk_retriever_config config = config_of(w, true, true);
    struct retriever *r = make(&config);
    struct rng rng = rng_make(9, 9);
    float query[3 * D];
    for (int i = 0; i < 3 * D; i++)
        query[i] = rng_normal(&rng);
    int64_t misses = 0;
    for (int text = 0; text < 3; text++) {
        int32_t ids[3 * CHUNK];
        for (int c = 0; c < 3; c++)
            fill_ids(ids + c * CHUNK, CHUNK, &rng);
        float own[3 * D];
        struct encoder_output out = {.landmarks = own};
        encoder_encode(w->encoder, &out, ids, 3);
        struct neighbours found;
        CHECK_OK(r->append(r, 0, ids, (struct mat){0}, 3));
        CHECK_OK(r->retrieve(r, &found, 0, 0, mat_f32(query, 3, D), 3));
        for (int64_t i = 0; i < 3; i++) {
            struct truth t = {.own = own,
                              .corpus = w->landmarks,
                              .own_ids = ids,
                              .corpus_ids = w->ids,
                              .own_seen = i,
                              .corpus_chunks = w->chunks};
            check_row(w, &found, i, query + i * D, &t);
        }
        struct chunk_retriever_times times = chunk_retriever_times(r);
        if (text > 0) CHECK(times.cache_misses - misses <= 2); /* at most so many own chunks */
        misses = times.cache_misses;
        chunk_retriever_reset(r, -1, 0);
    }
    r->free(r);
}

/* More own chunks than two blocks of landmarks have, of 2,048 and 4,096 rows; queries at the blocks' ends. */
static void test_long_past(struct world *w) {
    enum { SECOND = 2048, THIRD = SECOND + 4096, OWN = THIRD + 100 };
    struct chunk_retriever_config config = config_of(w, true, false);
    config.max_queries = 64;
    struct retriever *r = make(&config);
    struct rng rng = rng_make(12, 0);
    int32_t *ids = calloc((size_t)OWN * CHUNK, sizeof *ids);
    float *own = calloc((size_t)OWN * D, sizeof *own), query[64 * D];
    CHECK(ids && own);
    for (int64_t c = 0; c < OWN; c++)
        fill_ids(ids + c * CHUNK, CHUNK, &rng);
    struct encoder_output out = {.landmarks = own};
    encoder_encode(w->encoder, &out, ids, OWN);
    CHECK_OK(r->append(r, 0, ids, (struct mat){0}, 2000));
    CHECK_OK(r->append(r, 2000, ids + 2000 * CHUNK, (struct mat){0}, OWN - 2000)); /* over both ends */
    for (int i = 0; i < 64 * D; i++)
        query[i] = rng_normal(&rng);
    struct neighbours found;
    static const int64_t firsts[] = {SECOND - 30, SECOND + 1000, THIRD - 30, OWN - 64};
    for (size_t f = 0; f < ARRAY_LEN(firsts); f++) {
        CHECK_OK(r->retrieve(r, &found, 1, firsts[f], mat_f32(query, 64, D), 64));
        for (int64_t i = 0; i < 64; i += 7) {
            struct truth t = {.own = own, .own_ids = ids, .own_seen = firsts[f] + i};
            check_row(w, &found, i, query + i * D, &t);
        }
    }
    r->free(r);
    free(ids), free(own);
}

static void test_choose(void) {
    int64_t id[3];
    float score[3], weight[3];
    int8_t source[3];
    int16_t offset[3];
    struct neighbour_row row = {id, score, weight, source, offset};
    struct neighbour_candidate list[] = {{1, NEIGHBOUR_CORPUS, 5, 0},   {NAN, NEIGHBOUR_OWN_PAST, 1, 0},
                                         {1, NEIGHBOUR_OWN_PAST, 9, 0}, {1, NEIGHBOUR_CORPUS, 2, 9},
                                         {1, NEIGHBOUR_CORPUS, 2, 8},   {9, NEIGHBOUR_OWN_PAST, -1, 0},
                                         {2, NEIGHBOUR_CORPUS, 7, 1},   {-INFINITY, NEIGHBOUR_OWN_PAST, 3, 0}};
    neighbours_select(&row, 3, list, ARRAY_LEN(list));
    CHECK(id[0] == 7 && id[1] == 9 && id[2] == 2 && source[1] == NEIGHBOUR_OWN_PAST && offset[0] == 1 &&
          offset[2] == 8);
    CHECK(fabs((double)weight[0] - 1 / (1 + 2 * exp(-1))) < 1e-6 && weight[1] == weight[2]);
    neighbours_select(&row, 3, &(struct neighbour_candidate){.score = -INFINITY, .id = 3}, 1);
    CHECK(id[0] == -1 && weight[0] == 0 && score[0] == -INFINITY && source[2] == NEIGHBOUR_NONE);
    neighbours_select(&row, 3, NULL, 0);
    CHECK(id[0] == -1 && id[2] == -1);
}

static void test_config(struct world *w) {
    struct retriever *r;
    struct chunk_retriever_config config = config_of(w, false, false);
    CHECK_FAILS(chunk_retriever_create(&r, &config), STATUS_INVALID, "neither");
    config.own_past = config.random = true;
    CHECK_FAILS(chunk_retriever_create(&r, &config), STATUS_INVALID, "corpus");
    config.random = false, config.topk = 5000;
    CHECK_FAILS(chunk_retriever_create(&r, &config), STATUS_INVALID, "5000");
    struct model_config hidden = w->config, base = w->config;
    hidden.encoder_input = ENCODER_INPUT_HIDDEN;
    base.base_lm = true;
    config = config_of(w, true, true);
    config.random = true; /* reads no searcher */
    config.model = &hidden;
    CHECK_FAILS(chunk_retriever_create(&r, &config), STATUS_UNSUPPORTED, "encoder_input");
    config.model = &base;
    CHECK_FAILS(chunk_retriever_create(&r, &config), STATUS_UNSUPPORTED, "no retrieval groups");
}

/* The retriever's results do not depend on the kind of its searcher. */
static void test_searchers(struct world *w) {
    const struct list_index_config nine = {
        .device = w->dev, .source = landmark_source_of(w->view), .lists = 9, .nprobe = 9}; /* all of them: as exact */
    struct list_index *lists;
    CHECK_OK(list_index_create(&lists, &nine));
    const struct searcher_config configs[] = {
        {.kind = SEARCHER_AUTO, .exact = true}, {.kind = SEARCHER_FLAT}, {.kind = SEARCHER_LISTS, .lists = lists}};
    for (size_t i = 0; i < ARRAY_LEN(configs); i++) {
        struct searcher_config config = configs[i];
        config.device = w->dev, config.view = w->view;
        CHECK_OK(searcher_open(&w->searcher, &config));
        test_against_truth(w, false, true);
        test_against_truth(w, true, true);
        test_exclusion(w);
        test_continuation(w);
        for (int j = 0; j < 12; j++)
            test_overlap(w, (const int[]){1, 31, CHUNK - 1}[j / 4], j % 2 ? 1 : 3, j % 4 > 1);
        test_random(w);
        test_reset(w);
        searcher_close(w->searcher);
        w->searcher = NULL;
    }
    list_index_free(lists);
}

/* A searcher by ids gets the last ids of this text, whatever the division into calls. */
static void test_tokens(struct world *w) {
    enum { TEXT = 30 };
    const struct lexical *x;
    CHECK_OK(store_view_lexical(&x, w->view));
    const struct searcher_config by_ids = {.kind = SEARCHER_LEXICAL, .device = w->dev, .view = w->view};
    CHECK_OK(searcher_open(&w->searcher, &by_ids));
    struct chunk_retriever_config config = config_of(w, false, true);
    struct retriever *r = make(&config);
    struct rng rng = rng_make(13, 0);
    int32_t ids[TEXT * CHUNK];
    float queries[6 * D];
    for (int i = 0; i < 6 * D; i++)
        queries[i] = rng_normal(&rng);
    const struct lexical_search how = {.k = K, .pair_weight = LEXICAL_PAIR_WEIGHT};
    for (int text = 0; text < 3; text++) {
        for (int c = 0; c < TEXT; c++)
            fill_ids(ids + c * CHUNK, CHUNK, &rng);
        for (int64_t first = 0, n; first < TEXT; first += n) {
            static const int64_t most[] = {1, 6, 20}; /* 20 chunks: more than the retriever keeps ids of */
            struct neighbours found;
            n = 1 + (int64_t)rng_below(&rng, (uint64_t)most[text]);
            if (n > TEXT - first) n = TEXT - first;
            int64_t asked = n < 6 ? n : 6, at = first + n - asked;
            CHECK_OK(r->append(r, first, ids + first * CHUNK, (struct mat){0}, n));
            CHECK_OK(r->retrieve(r, &found, 0, at, mat_f32(queries, asked, D), asked));
            for (int64_t i = 0; i < asked; i++) {
                int64_t end = (at + i + 1) * CHUNK, begin = end < SEARCHER_TOKENS ? 0 : end - SEARCHER_TOKENS;
                struct store_hit hits[K];
                const struct lexical_query query = {.ids = ids + begin, .n = (int)(end - begin)};
                CHECK_OK(lexical_search(x, hits, &query, 1, &how));
                for (int j = 0; j < K; j++) {
                    bool there = false;
                    for (int other = 0; other < K; other++)
                        there = there || found.id[i * K + other] == hits[j].chunk;
                    CHECK(there);
                }
            }
        }
        chunk_retriever_reset(r, -1, 0);
    }
    r->free(r);
    searcher_close(w->searcher);
    w->searcher = NULL;
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    struct world w = {0};
    CHECK_OK(device_open(&w.dev, "cpu", 2));
    retriever_fixture(&w.config, &w.params, &w.encoder, w.dev, K);
    make_store(&w);
    test_choose();
    test_config(&w);
    test_against_truth(&w, true, false);
    test_searchers(&w);
    test_tokens(&w);
    test_long_past(&w);
    store_view_close(w.view);
    store_close(w.store);
    encoder_free(w.encoder);
    params_free(w.params);
    device_close(w.dev);
    free(w.ids), free(w.landmarks);
    return test_done();
}
