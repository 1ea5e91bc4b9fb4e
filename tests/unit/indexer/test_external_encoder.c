/* test_external_encoder.c -- an external encoder as a store's retriever: its vectors decide which chunks are candidates
 * (checked by brute force), the model's own landmarks decide their weights. Kinds, fingerprints, calls cut anywhere,
 * exclusions, random chunks. */
#include "base/rng.h"
#include "indexer/build/indexer.h"
#include "indexer/retrieve/retriever.h"
#include "session/model_folder.h"
#include "tests/model_fixture.h"
#include "tests/oracles/bert_fixture.h"

enum { CHUNKS = 40, QUERIES = 9, CHUNK = 63, D = 32, DIM = ORACLE_DIM, K = 4, TEXT = 400 };

struct world {
    struct device *dev;
    struct model_folder model;
    struct encoder *encoder;
    struct external_encoder *external;
    struct store *store;
    struct store_view *view;
    struct searcher *searcher;
    int32_t ids[CHUNKS][CHUNK], text[QUERIES][CHUNK]; /* of the store, one chunk a document; of the running text */
    float theirs[CHUNKS][DIM], own[CHUNKS][D], query[QUERIES][DIM], decoder[QUERIES][D];
};

/* Words of the vocabulary in random order: the ids of one chunk; in every fifth chunk the last ids are -1. */
static void make_ids(struct world *w, int32_t *out, int number, struct rng *rng) {
    static const char *const words[] = {"the", "cat", "sat", "on", "mat", "and", "unbelievable", "units", "of"};
    struct tokenizer_scratch *s;
    const int32_t *ids;
    size_t n;
    char text[TEXT] = "";
    while (strlen(text) < TEXT - 20) {
        strcat(text, words[rng_below(rng, (uint64_t)(2 + number % 7))]);
        strcat(text, " ");
    }
    CHECK_OK(tokenizer_scratch_create(&s, w->model.tokenizer));
    CHECK_OK(tokenizer_encode(w->model.tokenizer, s, text, strlen(text), TOKENIZER_LITERAL, &ids, &n));
    CHECK(n >= CHUNK);
    memcpy(out, ids, CHUNK * sizeof *out);
    for (int i = CHUNK - 10; i < CHUNK && number % 5 == 4; i++)
        out[i] = -1;
    tokenizer_scratch_free(s);
}

static void make_store(struct world *w, const char *path) {
    const struct store_writer_config config = {.fingerprint = external_encoder_fingerprint(w->external),
                                               .max_catalog_bytes = 1 << 26};
    struct store_writer *writer;
    CHECK_OK(external_encoder_chunks(w->external, w->theirs[0], w->ids[0], CHUNKS));
    CHECK_OK(store_writer_open(&writer, path, &config, true));
    CHECK_OK(store_shard_begin(writer));
    for (int i = 0; i < CHUNKS; i++) {
        struct store_new_document d = {
            .ids = w->ids[i], .n_ids = CHUNK - (i % 5 == 4 ? 10 : 0), .source = "memory", .key = ""};
        bool duplicate;
        memcpy(d.hash, &i, sizeof i);
        CHECK_OK(store_shard_document(writer, &d, &duplicate));
    }
    CHECK_OK(store_shard_landmarks(writer, w->theirs[0], CHUNKS));
    CHECK_OK(store_shard_seal(writer, "", 0));
    CHECK_OK(store_writer_publish(writer, &(struct store_publish){.index = "exact"}));
    store_writer_close(writer);
    CHECK_OK(store_open(&w->store, path));
    CHECK_OK(store_view_open(&w->view, w->store));
}

static struct external_encoder *open_external(struct world *w, enum external_kind kind) {
    struct external_encoder *e;
    const struct external_encoder_config config = {.folder = oracle_folder(),
                                                   .kind = kind,
                                                   .device = w->dev,
                                                   .type = DTYPE_F32,
                                                   .tokenizer = w->model.tokenizer,
                                                   .model = &w->model.config};
    CHECK_OK(external_encoder_open(&e, &config));
    return e;
}

static void make_world(struct world *w) {
    char path[600];
    struct rng rng = rng_make(test_seed(), 5);
    snprintf(path, sizeof path, "%s/model", test_folder());
    model_fixture(path, 4);
    CHECK_OK(device_open(&w->dev, "cpu", 2));
    CHECK_OK(model_folder_open(&w->model, path));
    struct weights weights = weights_of_params(w->model.params);
    CHECK_OK(encoder_create(&w->encoder, w->dev, &w->model.config, &weights, 8));
    for (int i = 0; i < CHUNKS; i++)
        make_ids(w, w->ids[i], i, &rng);
    for (int i = 0; i < QUERIES; i++) {
        make_ids(w, w->text[i], 5 * i, &rng); /* whole chunks */
        for (int d = 0; d < D; d++)
            w->decoder[i][d] = rng_normal(&rng);
    }
    w->external = open_external(w, EXTERNAL_COSINE);
    snprintf(path, sizeof path, "%s/store", test_folder());
    make_store(w, path);
    const struct encoder_output out = {.landmarks = w->own[0]};
    encoder_encode(w->encoder, &out, w->ids[0], CHUNKS);
    CHECK_OK(external_encoder_queries(w->external, w->query[0], w->text[0], QUERIES));
    const struct searcher_config searcher = {.kind = SEARCHER_STORE, .device = w->dev, .view = w->view, .exact = true};
    CHECK_OK(searcher_open(&w->searcher, &searcher));
}

static double dot(const float *a, const float *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum / sqrt(n);
}

/* Checks one row: its chunks are the nearest by the external encoder (`random`: any), its scores those of the model's
 * landmarks, best first, its weights their softmax. */
static void check_row(const struct world *w, const struct neighbours *n, int row, int query, int excluded,
                      bool random) {
    bool found[CHUNKS] = {false};
    double worst = INFINITY, total = 0;
    for (int j = 0; j < K; j++) {
        int64_t at = row * K + j, id = n->id[at];
        CHECK(id >= 0 && id < CHUNKS && !found[id] && id != excluded && n->source[at] == NEIGHBOUR_CORPUS);
        found[id] = true;
        double score = dot(w->decoder[query], w->own[id], D), theirs = dot(w->query[query], w->theirs[id], DIM);
        CHECK(fabs((double)n->score[at] - score) < 1e-4 * (1 + fabs(score)));
        CHECK(j == 0 || n->score[at] <= n->score[at - 1]);
        worst = theirs < worst ? theirs : worst;
        total += exp((double)n->score[at] - (double)n->score[row * K]);
    }
    for (int j = 0; j < K; j++)
        CHECK(fabs((double)n->weight[row * K + j] -
                   exp((double)n->score[row * K + j] - (double)n->score[row * K]) / total) < 1e-5);
    for (int c = 0; c < CHUNKS && !random; c++)
        CHECK(found[c] || c == excluded || dot(w->query[query], w->theirs[c], DIM) <= worst + 1e-3);
}

/* `cut`: chunks of a call. */
static void check_retriever(struct world *w, int cut, int excluded, bool random) {
    struct retriever *r;
    const struct chunk_retriever_config config = {.device = w->dev,
                                                  .model = &w->model.config,
                                                  .encoder = w->encoder,
                                                  .corpus = w->view,
                                                  .searcher = random ? NULL : w->searcher,
                                                  .external = w->external,
                                                  .random = random,
                                                  .topk = K,
                                                  .max_queries = QUERIES,
                                                  .exclude_document = excluded,
                                                  .exclude_window = -1};
    CHECK_OK(chunk_retriever_create(&r, &config));
    for (int text = 0; text < 2; text++, chunk_retriever_reset(r, excluded, 0))
        for (int first = 0; first < QUERIES; first += cut) {
            int n = QUERIES - first < cut ? QUERIES - first : cut;
            struct neighbours found;
            CHECK_OK(r->append(r, first, w->text[first], (struct mat){0}, n));
            for (int group = 0; group < w->model.config.groups; group++) {
                CHECK_OK(r->retrieve(r, &found, group, first, mat_f32(w->decoder[first], n, D), n));
                for (int row = 0; row < n; row++)
                    check_row(w, &found, row, first + row, excluded, random);
            }
        }
    r->free(r);
}

/* Vectors with and without length 1; prefixes change them; the store records its kind. */
static void check_kinds(struct world *w) {
    struct store_info info;
    float rows[EXTERNAL_KINDS][2][DIM], text[DIM];
    const struct store_fingerprint first = external_encoder_fingerprint(w->external);
    store_view_info(w->view, &info);
    for (int kind = EXTERNAL_AUTO; kind < EXTERNAL_KINDS; kind++) {
        struct external_encoder *e = open_external(w, (enum external_kind)kind);
        const struct store_fingerprint f = external_encoder_fingerprint(e);
        bool same = kind == EXTERNAL_AUTO || kind == EXTERNAL_COSINE;
        CHECK((memcmp(f.encoder, first.encoder, sizeof f.encoder) == 0) == same);
        if (same)
            CHECK_OK(external_encoder_check(e, "store", &info.fingerprint));
        else
            CHECK_FAILS(external_encoder_check(e, "store", &info.fingerprint), STATUS_MISMATCH, "encoder weights");
        CHECK_OK(external_encoder_chunks(e, rows[kind][0], w->ids[0], 1));
        CHECK_OK(external_encoder_queries(e, rows[kind][1], w->ids[0], 1));
        double length = dot(rows[kind][0], rows[kind][0], DIM) * sqrt(DIM);
        CHECK((fabs(length - 1) < 1e-5) == (kind != EXTERNAL_DOT));
        for (int i = 0; i < DIM && kind != EXTERNAL_E5; i++)
            CHECK(fabsf(rows[kind][1][i] - rows[kind][0][i] * sqrtf(DIM)) < 1e-5f);
        external_encoder_close(e);
    }
    CHECK(memcmp(rows[EXTERNAL_E5][0], rows[EXTERNAL_COSINE][0], sizeof rows[0][0]) != 0);
    CHECK(fabs(dot(rows[EXTERNAL_E5][0], rows[EXTERNAL_E5][1], DIM) - 1) > 1e-6); /* "query: " is not "passage: " */
    struct external_encoder *e = open_external(w, EXTERNAL_E5), *automatic = open_external(w, EXTERNAL_AUTO);
    const struct store_fingerprint e5 = external_encoder_fingerprint(e);
    CHECK_OK(external_encoder_check(automatic, "store", &e5));
    CHECK_OK(external_encoder_text(e, rows[0][0], "the cat", 7));
    CHECK_OK(external_encoder_text(automatic, text, "the cat", 7));
    CHECK(memcmp(rows[0][0], text, sizeof text) == 0); /* AUTO became E5 */
    external_encoder_close(e);
    external_encoder_close(automatic);
}

int main(int argc, char **argv) {
    static struct world w;
    test_start(argc, argv, 1);
    make_world(&w);
    for (int random = 0; random < 2; random++) {
        check_retriever(&w, 1, -1, random);
        check_retriever(&w, 4, -1, random);
        check_retriever(&w, QUERIES, 7, random);
    }
    check_kinds(&w);
    searcher_close(w.searcher);
    store_view_close(w.view);
    store_close(w.store);
    external_encoder_close(w.external);
    encoder_free(w.encoder);
    model_folder_close(&w.model);
    device_close(w.dev);
    return test_done();
}
