/* test_generation.c -- a running text: its log-probabilities against the decoder's, the text it shows, and its end. */
#include "base/memory.h"
#include "base/rng.h"
#include "session/generation.h"
#include "tests/model_fixture.h"

enum { N = 200, VOCAB = 271, EOS = 268 };

static struct engine engine;
static int32_t ids[N];

static void open_all(void) {
    char folder[600];
    struct rng rng = rng_make(test_seed(), 1);
    snprintf(folder, sizeof folder, "%s/model", test_folder());
    model_fixture(folder, 3);
    const struct engine_config config = {
        .model = folder, .where = {.device = "cpu", .dtype = "auto"}, .threads = 2, .decoding = true};
    CHECK_OK(engine_open(&engine, &config));
    CHECK_EQ(engine.model.config.vocab_size, VOCAB);
    for (int i = 0; i < N; i++)
        ids[i] = (int32_t)rng_below(&rng, 200);
}

static struct generation_config plain(void) {
    return (struct generation_config){.engine = &engine,
                                      .exclude_document = -1,
                                      .sampler = {.temperature = 1, .top_p = 1, .seed = 7},
                                      .max_tokens = -1,
                                      .logprobs = true};
}

/* [N, VOCAB] log-probabilities of the id after each one, computed by the decoder. */
static float *reference(bool own_past) {
    struct decoder_state *state;
    struct retriever *retriever;
    float *rows;
    CHECK_OK(memory_allocate(&rows, (size_t)N * VOCAB));
    CHECK_OK(engine_retriever(&retriever, &engine, &(struct engine_retrieval){.own_past = own_past}));
    CHECK_OK(decoder_state_create(&state, engine.decoder, retriever));
    CHECK_OK(decoder_forward(state, &(struct decoder_output){.logits = rows, .logits_all = true}, ids, N));
    for (int i = 0; i < N; i++) {
        double sum = 0;
        for (int v = 0; v < VOCAB; v++)
            sum += exp((double)rows[i * VOCAB + v]);
        for (int v = 0; v < VOCAB; v++)
            rows[i * VOCAB + v] -= (float)log(sum);
    }
    decoder_state_free(state);
    engine_retriever_free(retriever);
    return rows;
}

/* For any division into calls, with and without alternatives. */
static void scores(bool own_past, int top, int cut) {
    float logprob[N], next[VOCAB], *rows = reference(own_past);
    struct generation_alternative alternatives[N * 5];
    struct generation_config config = plain();
    struct generation *g;
    config.retrieval.own_past = own_past;
    CHECK_OK(generation_create(&g, &config));
    for (int at = 0; at < N; at += cut) {
        int n = N - at < cut ? N - at : cut;
        const struct generation_scores s = {
            .logprob = logprob + at, .alternatives = alternatives + at * top, .top = top};
        CHECK_OK(generation_feed(g, ids + at, n, &s));
    }
    CHECK_EQ(generation_tokens(g), N);
    CHECK(isnan(logprob[0]));
    for (int i = 1; i < N; i++) {
        const float *row = rows + (i - 1) * VOCAB;
        CHECK_CLOSE(&logprob[i], &row[ids[i]], 1, 2e-4);
        for (int k = 0; k < top; k++) {
            const struct generation_alternative *a = &alternatives[i * top + k];
            CHECK_CLOSE(&a->logprob, &row[a->id], 1, 2e-4);
            CHECK(k == 0 || a->logprob <= a[-1].logprob);
        }
        int better = 0;
        for (int v = 0; top && v < VOCAB; v++)
            better += (double)row[v] > (double)alternatives[i * top + top - 1].logprob + 4e-4;
        CHECK(better < top || !top);
    }
    for (int k = 0; k < top; k++)
        CHECK(alternatives[k].id == -1 && isinf(alternatives[k].logprob));
    CHECK_OK(generation_logprobs(g, next));
    CHECK_CLOSE(next, rows + (N - 1) * VOCAB, VOCAB, 2e-4);
    generation_free(g);
    memory_free(rows);
}

/* The text shown, piece by piece, is the decoding of the ids; a text that is fed again gives the same log-probs. */
static void tokens(void) {
    struct generation_config config = plain();
    struct generation *g, *again;
    struct generation_token token = {0};
    struct tokenizer_scratch *scratch;
    const char *whole;
    size_t bytes = 0, whole_bytes;
    int32_t made[50];
    float logprob[50], scored[50];
    char text[4096];
    config.max_tokens = 50;
    config.top = 3;
    config.ignore_eos = true;
    CHECK_OK(generation_create(&g, &config));
    CHECK_FAILS(generation_next(g, &token), STATUS_INVALID, "empty");
    CHECK_OK(generation_feed(g, ids, 20, NULL));
    for (int i = 0; i < 50; i++) {
        CHECK_OK(generation_next(g, &token));
        CHECK_EQ(token.position, 20 + i);
        CHECK_EQ(token.end, i == 49 ? GENERATION_LENGTH : GENERATION_RUNNING);
        CHECK(token.n_alternatives == 3 && token.alternatives[0].logprob >= token.logprob);
        made[i] = token.id;
        logprob[i] = token.logprob;
        memcpy(text + bytes, token.text, token.bytes);
        bytes += token.bytes;
        CHECK_EQ(generation_tokens(g), 21 + i);
    }
    CHECK_FAILS(generation_next(g, &token), STATUS_INVALID, "ended");
    CHECK_OK(tokenizer_scratch_create(&scratch, engine.model.tokenizer));
    CHECK_OK(tokenizer_decode(engine.model.tokenizer, scratch, made, 50, true, &whole, &whole_bytes));
    CHECK(bytes == whole_bytes && memcmp(text, whole, bytes) == 0);
    tokenizer_scratch_free(scratch);

    CHECK_OK(generation_create(&again, &config)); /* a second text on the same decoder */
    CHECK_OK(generation_feed(again, ids, 20, NULL));
    CHECK_OK(generation_feed(again, made, 50, &(struct generation_scores){.logprob = scored}));
    CHECK_CLOSE(logprob, scored, 50, 2e-4);
    CHECK_OK(generation_reset(again, 7));
    CHECK_EQ(generation_tokens(again), 0);
    CHECK_OK(generation_feed(again, ids, 20, NULL));
    for (int i = 0; i < 50; i++) {
        CHECK_OK(generation_next(again, &token));
        CHECK_EQ(token.id, made[i]);
    }
    CHECK_OK(generation_feed(g, ids, 1, NULL)); /* more text after the end of the answer */
    CHECK_OK(generation_next(g, &token));
    CHECK_EQ(token.position, 71);
    generation_free(again);
    generation_free(g);
}

/* The same ids with a stop string that they spell: the text ends before it. */
static void stops(void) {
    struct generation_config config = plain();
    struct generation *g;
    struct generation_token token = {0};
    char whole[4096], text[4096], stop[8];
    size_t bytes = 0, n = 0;
    const char *const list[] = {"never in any text", stop};
    config.max_tokens = 60;
    config.ignore_eos = true;
    for (int round = 0; round < 2; round++) {
        config.stops = list;
        config.n_stops = round ? 2 : 0;
        CHECK_OK(generation_create(&g, &config));
        CHECK_OK(generation_feed(g, ids, 20, NULL));
        do {
            CHECK_OK(generation_next(g, &token));
            memcpy((round ? text : whole) + (round ? n : bytes), token.text, token.bytes);
            *(round ? &n : &bytes) += token.bytes;
        } while (token.end == GENERATION_RUNNING);
        generation_free(g);
        CHECK(bytes > 20);
        whole[bytes] = 0;
        snprintf(stop, sizeof stop, "%.4s", whole + bytes / 2);
    }
    CHECK_EQ(token.end, GENERATION_STOP);
    CHECK_EQ(n, strstr(whole, stop) - whole);
    CHECK(memcmp(text, whole, n) == 0);
}

static bool stop_now(void *context) {
    return ++*(int *)context > 1;
}

static void failures(void) {
    int called = 0;
    const struct progress progress = {.stop_requested = stop_now, .context = &called};
    const int32_t wrong[] = {3, VOCAB}, *prompt;
    int64_t n;
    struct generation_config config = plain();
    struct generation_token token;
    struct generation *g;
    int32_t *many;
    config.progress = &progress;
    CHECK_OK(generation_create(&g, &config));
    CHECK_FAILS(generation_feed(g, wrong, 2, NULL), STATUS_INVALID, "vocab_size");
    CHECK_OK(generation_encode(g, &prompt, &n, "", 0));
    CHECK(n == 1 && prompt[0] == EOS);
    CHECK_OK(memory_allocate_zero(&many, 3000));
    CHECK_FAILS(generation_feed(g, many, 3000, NULL), STATUS_INTERRUPTED, "prompt");
    CHECK_FAILS(generation_feed(g, ids, 1, NULL), STATUS_INVALID, "reset");
    CHECK_FAILS(generation_next(g, &token), STATUS_INVALID, "reset");
    config.sampler.top_p = 2;
    called = 0;
    CHECK_OK(generation_reset(g, 1));
    CHECK_OK(generation_feed(g, ids, 1, NULL));
    CHECK_OK(generation_next(g, &token));
    generation_free(g);
    CHECK_FAILS(generation_create(&g, &config), STATUS_INVALID, "top-p");
    generation_free(NULL);
    memory_free(many);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    open_all();
    scores(false, 0, N);
    scores(false, 5, N);
    scores(true, 0, 70);
    scores(true, 5, 1);
    tokens();
    stops();
    failures();
    engine_close(&engine);
    return test_done();
}
