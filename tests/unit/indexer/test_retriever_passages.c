/* test_retriever_passages.c -- continuations of the own past that overlap what they continue, against brute force. */
#include "base/rng.h"
#include "indexer/retrieve/retriever.h"
#include "model/params.h"
#include "tests/test.h"
#include "tests/unit/indexer/retriever_fixture.h"

enum {
    D = RETRIEVER_D,
    CHUNK = RETRIEVER_CHUNK,
    K = 6,
    VOCAB = RETRIEVER_VOCAB,
    OWN = 2100 /* chunks: more than one block of the own past */
};

struct world {
    struct device *dev;
    struct model_config config;
    struct params *params;
    struct encoder *encoder;
    int32_t ids[OWN * CHUNK];
};

static double score_of(struct world *w, const float *query, const int32_t *ids) {
    float landmark[D];
    double sum = 0;
    encoder_encode(w->encoder, &(struct encoder_output){.landmarks = landmark}, ids, 1);
    for (int i = 0; i < D; i++)
        sum += (double)query[i] * (double)landmark[i];
    return sum / sqrt(D);
}

/* Whether the K and V of a slot are those of ids. */
static void check_slot(struct world *w, const struct neighbours *n, int64_t at, const int32_t *ids) {
    float k[64 * D], v[64 * D];
    encoder_encode(
        w->encoder,
        &(struct encoder_output){.keys = mat_dense(k, DTYPE_F32, 64, D), .values = mat_dense(v, DTYPE_F32, 64, D)}, ids,
        1);
    int64_t row = (int64_t)n->slot[at] * n->pool.slot_rows;
    CHECK_CLOSE(mat_row(n->pool.keys, row), k, CHUNK * D, 1e-4);
    CHECK_CLOSE(mat_row(n->pool.values, row), v, CHUNK * D, 1e-4);
}

/* One query's row: the best of the K best chunks that it sees and their continuations, 2 K at most. */
static void check_row(struct world *w, const struct neighbours *n, int64_t row, const float *query, int64_t t,
                      const struct chunk_retriever_config *how, const double *scores) {
    const int64_t step = CHUNK - how->overlap;
    bool taken[OWN] = {0};
    int64_t want[2 * K], count = 0;
    double total = 0, total_of_best = 0, previous = INFINITY;
    for (int hit = 0; hit < K && count < 2 * K; hit++) {
        int64_t best = -1;
        for (int64_t c = 0; c < t; c++)
            if (!taken[c] && (best < 0 || scores[c] > scores[best])) best = c;
        if (best < 0) break;
        taken[best] = true;
        for (int64_t i = 0; i <= how->continuation && best * CHUNK + i * step + CHUNK <= t * CHUNK; i++) {
            bool there = false;
            for (int64_t j = 0; j < count; j++)
                there = there || want[j] == best * CHUNK + i * step;
            if (!there && count < 2 * K) want[count++] = best * CHUNK + i * step;
        }
    }
    for (int i = 0; i < K && i < count; i++) { /* the best scores of all of them */
        double next = -INFINITY;
        for (int64_t j = 0; j < count; j++) {
            const double score = score_of(w, query, w->ids + want[j]);
            if (score < previous && score > next) next = score;
        }
        previous = next;
        total_of_best += next;
    }
    for (int64_t at = row * K; at < row * K + K; at++) {
        const int64_t first = n->id[at] * CHUNK + n->offset[at];
        bool there = n->id[at] < 0;
        if (at - row * K >= count) {
            CHECK(n->id[at] == -1 && n->weight[at] == 0 && n->offset[at] == 0);
            continue;
        }
        for (int64_t j = 0; j < count; j++)
            there = there || want[j] == first;
        CHECK(n->id[at] >= 0 && there && n->source[at] == NEIGHBOUR_OWN_PAST);
        CHECK(fabs(score_of(w, query, w->ids + first) - (double)n->score[at]) < 2e-4);
        CHECK(at == row * K || n->score[at] <= n->score[at - 1]);
        check_slot(w, n, at, w->ids + first);
        total += (double)n->weight[at];
        total_of_best -= (double)n->score[at];
    }
    CHECK(count == 0 || (fabs(total - 1) < 1e-5 && fabs(total_of_best) < 2e-3));
}

static void test_own(struct world *w, int continuation, int overlap) {
    static const int64_t at[] = {0, 1, 2, 3, 9, 17, 2050, 2099};
    const struct chunk_retriever_config config = {.device = w->dev,
                                                  .model = &w->config,
                                                  .encoder = w->encoder,
                                                  .own_past = true,
                                                  .continuation = continuation,
                                                  .overlap = overlap,
                                                  .max_queries = 1,
                                                  .cache_chunks = 1,
                                                  .exclude_document = -1};
    struct rng rng = rng_make(5, (uint64_t)overlap);
    struct retriever *r;
    struct neighbours found;
    int64_t appended = 0;
    float query[D];
    double *scores = calloc(OWN, sizeof *scores);
    CHECK(scores);
    CHECK_OK(chunk_retriever_create(&r, &config));
    for (size_t i = 0; i < ARRAY_LEN(at); i++) {
        for (int j = 0; j < D; j++)
            query[j] = rng_normal(&rng);
        while (appended <= at[i]) { /* some chunks one by one, as in decoding */
            const int64_t n = appended + 40 <= at[i] ? 40 : 1;
            CHECK_OK(r->append(r, appended, w->ids + appended * CHUNK, (struct mat){0}, n));
            appended += n;
        }
        for (int64_t c = 0; c < at[i]; c++)
            scores[c] = score_of(w, query, w->ids + c * CHUNK);
        CHECK_OK(r->retrieve(r, &found, 0, at[i], mat_f32(query, 1, D), 1));
        check_row(w, &found, 0, query, at[i], &config, scores);
    }
    free(scores);
    r->free(r);
}

static void test_refused(struct world *w) {
    struct retriever *r;
    struct chunk_retriever_config config = {.device = w->dev,
                                            .model = &w->config,
                                            .encoder = w->encoder,
                                            .own_past = true,
                                            .continuation = 1,
                                            .overlap = CHUNK,
                                            .exclude_document = -1};
    CHECK_FAILS(chunk_retriever_create(&r, &config), STATUS_INVALID, "0 to 62");
    config.overlap = 9, config.continuation = 0;
    CHECK_FAILS(chunk_retriever_create(&r, &config), STATUS_INVALID, "a continuation of at least 1");
    config.continuation = 1;
    struct model_config hidden = w->config;
    hidden.encoder_input = ENCODER_INPUT_HIDDEN;
    config.model = &hidden;
    CHECK_FAILS(chunk_retriever_create(&r, &config), STATUS_UNSUPPORTED, "leave out the overlap");
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    struct world *w = calloc(1, sizeof *w);
    struct rng rng = rng_make(3, 0);
    CHECK(w);
    for (int i = 0; i < OWN * CHUNK; i++)
        w->ids[i] = (int32_t)rng_below(&rng, 480);
    CHECK_OK(device_open(&w->dev, "cpu", 2));
    retriever_fixture(&w->config, &w->params, &w->encoder, w->dev, K);
    test_own(w, 1, 31);
    test_own(w, 3, 1);
    test_own(w, 2, CHUNK - 1);
    test_own(w, 3, 42); /* the third part of a continuation is a chunk */
    test_refused(w);
    encoder_free(w->encoder);
    params_free(w->params);
    device_close(w->dev);
    free(w);
    return test_done();
}
