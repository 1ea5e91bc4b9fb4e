/* test_corpus_pool.c -- the corpus as a pool of candidates: landmarks are those of the current encoder, the best chunks
 * are found, excluded documents never, noise reorders the best few only, and no result is empty. */
#include "base/rng.h"
#include "kernels/ops.h"
#include "tests/ref/ref.h"
#include "tests/test.h"
#include "train/step/corpus_pool.h"

enum { CHUNKS = 301, CHUNK = 63, S = CHUNK + 1, D = 48, QUERIES = 19, CANDIDATES = 5, LANDMARK = 89 };
static struct rng random_numbers;

struct corpus {
    int32_t ids[CHUNKS][CHUNK], documents[CHUNKS][2], barred[QUERIES][2];
    float queries[QUERIES * D];
};
struct found {
    int32_t ids[QUERIES * CANDIDATES][S], documents[QUERIES * CANDIDATES][2];
};

static struct model_config make_config(const char *encoder_input) {
    struct model_config c;
    char text[600];
    snprintf(
        text, sizeof text,
        "{\"vocab_size\": 90, \"hidden_size\": %d, \"intermediate_size\": 72, \"num_attention_heads\": 2,"
        "\"decoder_layers\": [1, 1], \"encoder_layers\": 1, \"enc_chunk_size\": %d, \"chunk_topk\": 2,"
        "\"slide_window\": 4, \"rms_norm_eps\": 1e-5, \"chunk_id\": %d, \"pad_id\": 88, \"encoder_input\": \"%s\"}",
        D, CHUNK, LANDMARK, encoder_input);
    CHECK_OK(model_config_parse(&c, "config", text, strlen(text)));
    return c;
}

/* Chunk c contains its own number, so that a row identifies its chunk. */
static struct corpus *make_corpus(void) {
    struct corpus *t = calloc(1, sizeof *t);
    for (int c = 0; c < CHUNKS; c++) {
        for (int i = 0; i < CHUNK; i++)
            t->ids[c][i] = i == 0 ? c % 80 : i == 1 ? c / 80 : (int32_t)rng_below(&random_numbers, 80);
        if (c % 10 == 9) t->ids[c][CHUNK - 1] = -1;
        t->documents[c][0] = c / 20;
        t->documents[c][1] = c / 20 + (c % 20 == 19);
    }
    for (int q = 0; q < QUERIES; q++) {
        t->barred[q][0] = q % 15;
        t->barred[q][1] = q == 3 ? 20 : q % 15 + q % 3;
    }
    t->barred[3][0] = 0; /* every document: no chunk is left */
    t->barred[4][0] = 1; /* all but document 0 */
    t->barred[4][1] = 20;
    for (int i = 0; i < QUERIES * D; i++)
        t->queries[i] = 5.0f * rng_normal(&random_numbers);
    return t;
}

static int64_t number_of(const int32_t *ids) {
    return ids[0] + 80 * (int64_t)ids[1];
}

/* The chunks that q may select, best first; returns their number. */
static int64_t ranking(int64_t *order, const struct corpus *t, const double *scores, int q) {
    int64_t n = 0;
    for (int64_t c = 0; c < CHUNKS; c++) {
        if (t->documents[c][0] <= t->barred[q][1] && t->documents[c][1] >= t->barred[q][0]) continue;
        int64_t at = n++;
        for (; at > 0 && scores[q * CHUNKS + order[at - 1]] < scores[q * CHUNKS + c]; at--)
            order[at] = order[at - 1];
        order[at] = c;
    }
    return n;
}

static void check_found(const struct found *f, const struct corpus *t, const double *scores, bool gumbel) {
    for (int q = 0; q < QUERIES; q++) {
        int64_t order[CHUNKS], live = ranking(order, t, scores, q), seen[CANDIDATES];
        for (int i = 0; i < CANDIDATES; i++) {
            const int32_t *ids = f->ids[q * CANDIDATES + i], *documents = f->documents[q * CANDIDATES + i];
            CHECK_EQ(ids[CHUNK], LANDMARK);
            if (i >= live) {
                CHECK(ids[0] == -1 && ids[CHUNK - 1] == -1 && documents[0] == 0 && documents[1] == INT32_MAX);
                continue;
            }
            int64_t c = number_of(ids), rank = 0;
            seen[i] = c;
            CHECK(memcmp(ids, t->ids[c], sizeof t->ids[c]) == 0);
            CHECK(memcmp(documents, t->documents[c], sizeof t->documents[c]) == 0);
            for (int j = 0; j < i; j++)
                CHECK(seen[j] != c);
            while (rank < live && order[rank] != c)
                rank++;
            CHECK(rank < live); /* not excluded */
            int64_t bound = gumbel ? 4 * CANDIDATES : i + 1;
            if (rank >= bound && bound <= live) /* float and double may order neighbours otherwise */
                CHECK(fabs(scores[q * CHUNKS + c] - scores[q * CHUNKS + order[bound - 1]]) < 1e-4);
        }
    }
}

static int64_t differing(const struct found *a, const struct found *b) {
    int64_t n = 0;
    for (int i = 0; i < QUERIES * CANDIDATES; i++)
        n += memcmp(a->ids[i], b->ids[i], sizeof a->ids[i]) != 0;
    return n;
}

static void *put(struct device *dev, const void *from, size_t bytes) {
    void *memory;
    CHECK_OK(device_allocate(dev, &memory, bytes));
    if (from) device_upload(dev, memory, from, bytes);
    return memory;
}

static void search(struct found *out, struct device *dev, struct corpus_pool *p, const struct corpus *t, bool gumbel,
                   uint64_t seed) {
    memset(out, 77, sizeof *out);
    struct found *found = put(dev, out, sizeof *out);
    float *queries = put(dev, t->queries, sizeof t->queries);
    int32_t(*barred)[2] = put(dev, t->barred, sizeof t->barred);
    corpus_pool_search(p, found->ids[0], found->documents, mat_f32(queries, QUERIES, D), (const int32_t(*)[2])barred,
                       gumbel, seed);
    device_download(dev, out, found, sizeof *out);
    CHECK_OK(device_sync(dev));
    device_release(dev, found);
    device_release(dev, queries);
    device_release(dev, barred);
}

/* The landmarks of all chunks, made in one call. */
static void landmarks_of(float *out, struct device *dev, const struct model_config *c, const struct weights *w,
                         const struct weights *g, const struct corpus *t) {
    struct encoder_train *e;
    int32_t(*ids)[S] = malloc(sizeof(int32_t[CHUNKS][S]));
    for (int i = 0; i < CHUNKS; i++) {
        memcpy(ids[i], t->ids[i], sizeof t->ids[i]);
        ids[i][CHUNK] = LANDMARK;
    }
    int32_t *ids_device = put(dev, ids, sizeof(int32_t[CHUNKS][S]));
    CHECK_OK(encoder_train_create(&e, dev, c, w, g, CHUNKS, false));
    encoder_train_forward(e, ids_device, (struct mat){0}, CHUNKS);
    struct mat landmarks = encoder_train_landmarks(e);
    CHECK_EQ(landmarks.stride, D);
    device_download(dev, out, landmarks.data, sizeof(float) * CHUNKS * D);
    CHECK_OK(device_sync(dev));
    encoder_train_free(e);
    device_release(dev, ids_device);
    free(ids);
}

/* Landmarks that are computed alone equal those of forward: with one layer or several, with a projection or without. */
static void alone(struct device *dev, int layers, bool projection) {
    struct model_config config = make_config("tokens");
    struct corpus *t = make_corpus();
    struct params *params;
    struct weights weights, gradients;
    struct encoder_train *encoder;
    float *wanted = malloc(sizeof(float) * CHUNKS * D), *got = malloc(sizeof(float) * CHUNKS * D);
    int32_t(*ids)[S] = malloc(sizeof(int32_t[CHUNKS][S]));
    config.encoder_layers = layers;
    config.retrieval_proj = projection;
    CHECK_OK(params_init(&params, &config, 4));
    CHECK_OK(weights_upload(&weights, dev, params, DTYPE_F32));
    CHECK_OK(weights_create(&gradients, dev, params, DTYPE_F32));
    landmarks_of(wanted, dev, &config, &weights, &gradients, t);
    for (int i = 0; i < CHUNKS; i++) {
        memcpy(ids[i], t->ids[i], sizeof t->ids[i]);
        ids[i][CHUNK] = LANDMARK;
    }
    int32_t *ids_device = put(dev, ids, sizeof(int32_t[CHUNKS][S]));
    float *out = put(dev, NULL, sizeof(float) * CHUNKS * D);
    CHECK_OK(encoder_train_create(&encoder, dev, &config, &weights, &gradients, CHUNKS + 3, false));
    encoder_train_encode(encoder, mat_f32(out, CHUNKS, D), ids_device, CHUNKS);
    device_download(dev, got, out, sizeof(float) * CHUNKS * D);
    CHECK_OK(device_sync(dev));
    for (int i = 0; i < CHUNKS * D; i++)
        CHECK(fabs((double)got[i] - (double)wanted[i]) < 2e-5);
    encoder_train_free(encoder);
    device_release(dev, ids_device);
    device_release(dev, out);
    weights_release(&gradients, dev);
    weights_release(&weights, dev);
    params_free(params);
    free(t), free(ids), free(wanted), free(got);
}

/* New weights, a refresh, and the answers change with them. */
static void searched(struct device *dev) {
    struct model_config config = make_config("tokens");
    struct corpus *t = make_corpus();
    struct corpus_pool *p;
    struct found *f = malloc(3 * sizeof *f), *before = calloc(1, sizeof *before);
    float *landmarks = malloc(sizeof(float) * CHUNKS * D);
    double *scores = malloc(sizeof(double) * QUERIES * CHUNKS);
    const struct corpus_pool_config pool = {.type = DTYPE_F32,
                                            .ids = t->ids[0],
                                            .documents = (const int32_t(*)[2])t->documents,
                                            .chunks = CHUNKS,
                                            .max_queries = QUERIES,
                                            .candidates = CANDIDATES};
    CHECK_OK(corpus_pool_create(&p, dev, &config, &pool));
    CHECK(corpus_pool_bytes(p) > sizeof *t);
    for (uint64_t seed = 1; seed <= 2; seed++) {
        struct params *params;
        struct weights weights, gradients;
        struct encoder_train *encoder;
        CHECK_OK(params_init(&params, &config, seed));
        CHECK_OK(weights_upload(&weights, dev, params, DTYPE_F32));
        CHECK_OK(weights_create(&gradients, dev, params, DTYPE_F32));
        CHECK_OK(encoder_train_create(&encoder, dev, &config, &weights, &gradients, 64, false));
        corpus_pool_refresh(p, encoder);
        landmarks_of(landmarks, dev, &config, &weights, &gradients, t);
        ref_scores(scores, t->queries, landmarks, QUERIES, CHUNKS, D);
        search(&f[0], dev, p, t, false, 0);
        check_found(&f[0], t, scores, false);
        CHECK(differing(&f[0], before) > QUERIES);
        *before = f[0];
        for (uint64_t noise = 0; noise < 2; noise++) {
            search(&f[1 + noise], dev, p, t, true, noise + 5);
            check_found(&f[1 + noise], t, scores, true);
            CHECK(differing(&f[0], &f[1 + noise]) > QUERIES);
        }
        CHECK(differing(&f[1], &f[2]) > QUERIES);
        search(&f[2], dev, p, t, true, 5);
        CHECK_EQ(differing(&f[1], &f[2]), 0);
        encoder_train_free(encoder);
        weights_release(&gradients, dev);
        weights_release(&weights, dev);
        params_free(params);
    }
    corpus_pool_free(p);
    free(t), free(f), free(before), free(landmarks), free(scores);
}

static void refused(struct device *dev) {
    struct model_config hidden = make_config("hidden"), tokens = make_config("tokens");
    struct corpus *t = make_corpus();
    struct corpus_pool_config pool = {.type = DTYPE_F32,
                                      .ids = t->ids[0],
                                      .documents = (const int32_t(*)[2])t->documents,
                                      .chunks = CHUNKS,
                                      .max_queries = 1,
                                      .candidates = 1};
    struct corpus_pool *p;
    CHECK_FAILS(corpus_pool_create(&p, dev, &hidden, &pool), STATUS_INVALID, "encoder_input");
    pool.chunks = 0;
    CHECK_FAILS(corpus_pool_create(&p, dev, &tokens, &pool), STATUS_INVALID, "0 chunks");
    corpus_pool_free(NULL);
    free(t);
}

int main(int argc, char **argv) {
    struct device *dev;
    test_start(argc, argv, 1);
    random_numbers = rng_make(test_seed(), 3);
    CHECK_OK(device_open(&dev, "cpu", 2));
    searched(dev);
    alone(dev, 1, false);
    alone(dev, 3, true);
    refused(dev);
    device_close(dev);
    enum status gpu = device_open(&dev, "cuda", 1);
    if (gpu == STATUS_UNSUPPORTED) return test_done();
    CHECK_OK(gpu);
    searched(dev);
    alone(dev, 1, false);
    alone(dev, 3, true);
    device_close(dev);
    return test_done();
}
