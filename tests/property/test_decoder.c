/* test_decoder.c -- any cut of a text into calls gives the numbers of one pass, for every variant of the model.
 *
 * Models are small and random, with weights scaled so that attention and retrieval are far from uniform and all norm
 * weights off 1 (model.md §6.6): a wrong window, a lost landmark or a late retrieval then moves logits by more than
 * 0.1, and the tolerance is 1e-4 of their spread. */
#include "base/rng.h"
#include "decoder/batch/decoder_batch.h"
#include "decoder/decoder_internal.h"
#include "encoder/encoder.h"
#include "indexer/retrieve/retriever.h"
#include "tests/model_fixture.h"

enum { VOCAB = 97, LENGTH = 550 };

struct variant {
    const char *name, *layers, *input;
    int encoder_layers, chunk, window;
    bool proj, retrieval;
};
static const struct variant variants[] = {
    {"tokens", "[2,2]", "tokens", 1, 63, 100, false, true},
    {"tokens two groups, projections", "[1,1,2]", "tokens", 1, 63, 64, true, true},
    {"tokens 64+1", "[1,2]", "tokens", 2, 64, 130, false, true},
    {"hidden", "[2,1]", "hidden", 1, 63, 100, false, true},
    {"hidden two groups 64+1", "[1,1,1]", "hidden", 1, 64, 70, false, true},
    {"no retriever", "[1,2]", "tokens", 1, 63, 90, false, false},
    {"Base LM", "[3]", "hidden", 0, 63, 100, false, false},
    {"Block-Recurrent Transformer", "[3],\"recurrent_layer\":2,\"recurrent_states\":5,\"recurrent_block\":40", "hidden",
     0, 63, 45, false, false},
    {"Landmark Attention", "[3],\"landmark_block\":30,\"landmark_topk\":2", "hidden", 0, 63, 100, false, false},
    {"Landmark Attention, blocks of 64", "[2],\"landmark_block\":64,\"landmark_topk\":20", "hidden", 0, 63, 70, false,
     false},
};

struct model {
    struct model_config config;
    struct params *params;
};

static void make_model(struct model *m, const struct variant *v, uint64_t seed) {
    char json[640];
    int n = snprintf(json, sizeof json,
                     "{\"vocab_size\":%d,\"hidden_size\":64,\"intermediate_size\":96,\"num_attention_heads\":2,"
                     "\"decoder_layers\":%s,"
                     "\"encoder_layers\":%d,\"enc_chunk_size\":%d,\"chunk_topk\":3,\"slide_window\":%d,\"chunk_id\":96,"
                     "\"mask_id\":95,"
                     "\"pad_id\":94,\"rms_norm_eps\":1e-5,\"encoder_input\":\"%s\",\"tie_word_embeddings\":true,"
                     "\"retrieval_proj\":%s}",
                     VOCAB, v->layers, v->encoder_layers, v->chunk, v->window, v->input, v->proj ? "true" : "false");
    CHECK_OK(model_config_parse(&m->config, v->name, json, (size_t)n));
    model_fixture_params(&m->params, &m->config, seed, 20.0F, 6.0F);
}

static struct device *open_device(int threads) {
    struct device *dev;
    CHECK_OK(device_open(&dev, "cpu", threads));
    return dev;
}

/* One text through one decoder: all results that the decoder can give. */
struct machine {
    struct device *dev;
    struct weights weights;
    struct encoder *encoder;
    struct decoder *decoder;
    struct retriever *retriever;
    struct decoder_state *state;
};

static void start_with(struct machine *a, const struct model *m, const struct variant *v, struct device *dev,
                       struct weights weights, int max_tokens, int64_t max_queries) {
    *a = (struct machine){.dev = dev, .weights = weights};
    CHECK_OK(decoder_create(&a->decoder, dev, &m->config, &weights, max_tokens));
    if (v->retrieval) {
        CHECK_OK(encoder_create(&a->encoder, dev, &m->config, &weights, 3));
        struct chunk_retriever_config how = {.device = dev,
                                             .model = &m->config,
                                             .encoder = a->encoder,
                                             .own_past = true,
                                             .max_queries = max_queries,
                                             .cache_chunks = 1,
                                             .exclude_document = -1};
        CHECK_OK(chunk_retriever_create(&a->retriever, &how));
    }
    CHECK_OK(decoder_state_create(&a->state, a->decoder, a->retriever));
}

static void start(struct machine *a, const struct model *m, const struct variant *v, struct device *dev, int max_tokens,
                  int64_t max_queries) {
    start_with(a, m, v, dev, weights_of_params(m->params), max_tokens, max_queries);
}

static void stop(struct machine *a) {
    decoder_state_free(a->state);
    if (a->retriever) a->retriever->free(a->retriever);
    decoder_free(a->decoder);
    encoder_free(a->encoder);
    weights_release(&a->weights, a->dev);
}

static void make_ids(int32_t *ids, int32_t *targets, uint64_t seed) {
    struct rng rng = rng_make(seed, 5);
    int32_t topic = 0;
    for (int i = 0; i < LENGTH; i++) {
        if (i % 50 == 0) topic = (int32_t)rng_below(&rng, 70); /* so that chunks and landmarks differ */
        ids[i] = topic + (int32_t)rng_below(&rng, 20);
        if (rng_below(&rng, 40) == 0) ids[i] = -100;
        targets[i] = rng_below(&rng, 3) == 0 ? -100 : (int32_t)rng_below(&rng, VOCAB);
    }
}

static float *floats(int64_t n) {
    float *memory = calloc((size_t)n, sizeof *memory);
    CHECK(memory);
    return memory;
}

struct result {
    float *logits, *nll;
};

static struct result make_result(void) {
    return (struct result){floats((int64_t)LENGTH * VOCAB), floats(LENGTH)};
}
static void free_result(struct result *r) {
    free(r->logits), free(r->nll);
}

/* longest: most ids of a call; 0: the whole text in one call. */
static void feed(struct machine *a, struct result *r, const int32_t *ids, const int32_t *targets, int longest,
                 struct rng *rng) {
    for (int done = 0; done < LENGTH;) {
        int n = longest == 0 ? LENGTH : 1 + (int)rng_below(rng, (uint64_t)longest);
        if (n > LENGTH - done) n = LENGTH - done;
        struct decoder_output out = {.logits = r->logits + (int64_t)done * VOCAB,
                                     .logits_all = true,
                                     .targets = targets + done,
                                     .nll = r->nll + done};
        CHECK_OK(decoder_forward(a->state, &out, ids + done, n));
        done += n;
        CHECK_EQ(decoder_state_tokens(a->state), done);
    }
}

static double spread(const float *x, int64_t n) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i], squares += (double)x[i] * (double)x[i];
    return sqrt(squares / (double)n - sum * sum / (double)n / (double)n);
}

/* Compares the losses with the log-softmax of the logits. */
static void check_nll(const struct result *r, const int32_t *targets) {
    int scored = 0;
    for (int i = 0; i < LENGTH; i++) {
        const float *row = r->logits + (int64_t)i * VOCAB;
        double sum = 0, top = -INFINITY;
        for (int v = 0; v < VOCAB; v++)
            top = (double)row[v] > top ? (double)row[v] : top;
        for (int v = 0; v < VOCAB; v++)
            sum += exp((double)row[v] - top);
        float expected = targets[i] < 0 ? 0 : (float)(top + log(sum) - (double)row[targets[i]]);
        CHECK_CLOSE(&r->nll[i], &expected, 1, targets[i] < 0 ? 0 : 2e-5 * (1 + fabs((double)expected)));
        scored += targets[i] >= 0;
    }
    CHECK(scored > LENGTH / 2);
}

/* Logits of the last id alone, and losses alone, are those of the full call. */
static void check_outputs_alone(const struct model *m, const struct variant *v, struct device *dev,
                                const struct result *whole, const int32_t *ids, const int32_t *targets,
                                double tolerance) {
    struct machine a;
    float last[VOCAB], nll[LENGTH];
    start(&a, m, v, dev, 200, 2);
    CHECK_OK(decoder_forward(a.state, &(struct decoder_output){.logits = last}, ids, LENGTH));
    CHECK_CLOSE(last, whole->logits + (int64_t)(LENGTH - 1) * VOCAB, VOCAB, tolerance);
    stop(&a);
    start(&a, m, v, dev, 300, 16);
    CHECK_OK(decoder_forward(a.state, &(struct decoder_output){.targets = targets, .nll = nll}, ids, LENGTH));
    CHECK_CLOSE(nll, whole->nll, LENGTH, tolerance);
    stop(&a);
}

static void check_cuts(const struct model *m, const struct variant *v, struct device *dev, uint64_t seed) {
    int32_t ids[LENGTH], targets[LENGTH];
    make_ids(ids, targets, seed);
    struct rng rng = rng_make(seed, 9);
    struct machine a;
    struct result whole = make_result(), cut = make_result();
    start(&a, m, v, dev, LENGTH, 16);
    feed(&a, &whole, ids, targets, 0, &rng);
    stop(&a);
    check_nll(&whole, targets);
    double size = spread(whole.logits, (int64_t)LENGTH * VOCAB), tolerance = 1e-4 * size;
    CHECK(size > 0.5); /* else the weights are too small to show a mistake */

    static const int longest[] = {1, 7, 200, 0}; /* id by id, small and large calls, passes cut inside one call */
    for (size_t i = 0; i < ARRAY_LEN(longest); i++) {
        int max_tokens = 1 + (int)rng_below(&rng, 150);
        start(&a, m, v, dev, max_tokens, 1 + (int64_t)rng_below(&rng, 3));
        feed(&a, &cut, ids, targets, longest[i], &rng);
        stop(&a);
        CHECK_CLOSE(cut.logits, whole.logits, (int64_t)LENGTH * VOCAB, tolerance);
        CHECK_CLOSE(cut.nll, whole.nll, LENGTH, tolerance);
    }
    check_outputs_alone(m, v, dev, &whole, ids, targets, tolerance);
    free_result(&whole), free_result(&cut);
}

/* Same calls, other number of threads: the same bits. */
static void check_threads(const struct model *m, const struct variant *v) {
    int32_t ids[LENGTH], targets[LENGTH];
    make_ids(ids, targets, test_seed());
    struct result results[3];
    static const int counts[] = {1, 2, 3};
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        struct device *dev = open_device(counts[i]);
        struct machine a;
        struct rng rng = rng_make(test_seed(), 3);
        results[i] = make_result();
        start(&a, m, v, dev, 150, 2);
        feed(&a, &results[i], ids, targets, 90, &rng);
        stop(&a);
        device_close(dev);
        CHECK(memcmp(results[i].logits, results[0].logits, (size_t)LENGTH * VOCAB * sizeof(float)) == 0);
        CHECK(memcmp(results[i].nll, results[0].nll, LENGTH * sizeof(float)) == 0);
    }
    for (size_t i = 0; i < ARRAY_LEN(counts); i++)
        free_result(&results[i]);
}

/* Two texts that use one decoder in turns get the logits that each gets alone. */
static void check_turns(const struct model *m, const struct variant *v, struct device *dev) {
    int32_t ids[2][LENGTH], targets[LENGTH];
    struct machine alone, a;
    struct result expected[2] = {make_result(), make_result()}, mixed[2] = {make_result(), make_result()};
    struct rng rng = rng_make(1, 1);
    for (int t = 0; t < 2; t++) {
        make_ids(ids[t], targets, test_seed() + 10 + (uint64_t)t);
        start(&alone, m, v, dev, 63, 2);
        feed(&alone, &expected[t], ids[t], targets, 0, &rng);
        stop(&alone);
    }
    start(&a, m, v, dev, 63, 2);
    struct decoder_state *second;
    struct retriever *other = NULL;
    if (v->retrieval) {
        struct chunk_retriever_config how = {
            .device = dev, .model = &m->config, .encoder = a.encoder, .own_past = true, .exclude_document = -1};
        CHECK_OK(chunk_retriever_create(&other, &how));
    }
    CHECK_OK(decoder_state_create(&second, a.decoder, other));
    for (int done = 0; done < LENGTH; done += 50)
        for (int t = 0; t < 2; t++) {
            struct decoder_output out = {.logits = mixed[t].logits + (int64_t)done * VOCAB, .logits_all = true};
            CHECK_OK(decoder_forward(t == 0 ? a.state : second, &out, ids[t] + done, 50));
        }
    double tolerance = 1e-4 * spread(expected[0].logits, (int64_t)LENGTH * VOCAB);
    for (int t = 0; t < 2; t++)
        CHECK_CLOSE(mixed[t].logits, expected[t].logits, (int64_t)LENGTH * VOCAB, tolerance);
    decoder_state_free(second);
    if (other) other->free(other);
    stop(&a);
    for (int t = 0; t < 2; t++)
        free_result(&expected[t]), free_result(&mixed[t]);
}

/* A state that had another text gives the bits of a new one, whatever is left in its ring. */
static void check_renewed(const struct model *m, const struct variant *v, struct device *dev) {
    int32_t ids[2][LENGTH], targets[LENGTH];
    struct result expected = make_result(), again = make_result();
    struct machine a;
    struct rng rng = rng_make(1, 2);
    for (int t = 0; t < 2; t++)
        make_ids(ids[t], targets, test_seed() + 20 + (uint64_t)t);
    start(&a, m, v, dev, 63, 2);
    feed(&a, &expected, ids[0], targets, 0, &rng);
    if (a.retriever) chunk_retriever_reset(a.retriever, -1, 0);
    decoder_state_free(a.state);
    CHECK_OK(decoder_state_create(&a.state, a.decoder, a.retriever));
    feed(&a, &again, ids[1], targets, 70, &rng);
    if (a.retriever) chunk_retriever_reset(a.retriever, -1, 0);
    for (int i = 0; i < model_config_layers(&m->config); i++)
        memset(a.state->rings[i].both.data, 0xff, mat_bytes(a.state->rings[i].both)); /* NaN */
    CHECK_OK(decoder_state_renew(&a.state, a.decoder, a.retriever));
    CHECK_EQ(decoder_state_tokens(a.state), 0);
    feed(&a, &again, ids[0], targets, 0, &rng);
    CHECK(memcmp(again.logits, expected.logits, (size_t)LENGTH * VOCAB * sizeof(float)) == 0);
    CHECK(memcmp(again.nll, expected.nll, LENGTH * sizeof(float)) == 0);
    stop(&a);
    free_result(&expected), free_result(&again);
}

/* Retrieval must change the logits of these models, or the checks above do not test it. */
static void check_retrieval_matters(const struct model *m, const struct variant *v, struct device *dev) {
    int32_t ids[LENGTH], targets[LENGTH];
    make_ids(ids, targets, test_seed());
    struct rng rng = rng_make(1, 1);
    struct variant without = *v;
    without.retrieval = false;
    struct result results[2] = {make_result(), make_result()};
    for (int i = 0; i < 2; i++) {
        struct machine a;
        start(&a, m, i == 0 ? v : &without, dev, LENGTH, 16);
        feed(&a, &results[i], ids, targets, 0, &rng);
        stop(&a);
    }
    int64_t early = 2 * (int64_t)m->config.chunk; /* chunks 0 and 1 read nothing: landmark 0 found nothing */
    CHECK_CLOSE(results[0].logits, results[1].logits, early * VOCAB, 1e-5 * spread(results[0].logits, early * VOCAB));
    double difference = 0;
    for (int64_t i = early * VOCAB; i < (int64_t)LENGTH * VOCAB; i++)
        difference = fmax(difference, fabs((double)results[0].logits[i] - (double)results[1].logits[i]));
    CHECK(difference > 0.05);
    free_result(&results[0]), free_result(&results[1]);
}

/* Calls of few ids read matrices that are exact in bf16 as bf16, with the same bits. Other matrices stay float32, and
 * those that decoding does not read may have any numbers. Changes the model. */
static void check_narrow(struct model *m, const struct variant *v, struct device *dev) {
    int32_t ids[LENGTH], targets[LENGTH];
    make_ids(ids, targets, test_seed());
    struct weights weights = weights_of_params(m->params);
    CHECK_OK(weights_narrow(&weights, dev, decoder_reads));
    CHECK(!weights.narrow);
    for (int i = 0; i < params_count(m->params); i++) {
        const struct param *p = params_at(m->params, i);
        uint32_t *bits = (uint32_t *)(void *)(float *)p->data;
        for (int64_t j = 0; p->rows > 1 && decoder_reads(p->name) && j < p->rows * p->cols; j++)
            bits[j] &= 0xffff0000u;
    }
    struct result results[2] = {make_result(), make_result()};
    for (int i = 0; i < 2; i++) {
        struct machine a;
        struct rng rng = rng_make(test_seed(), 4);
        weights = weights_of_params(m->params);
        if (i == 1) CHECK_OK(weights_narrow(&weights, dev, decoder_reads));
        CHECK(!weights.narrow == (i == 0));
        start_with(&a, m, v, dev, weights, 150, 2);
        feed(&a, &results[i], ids, targets, 12, &rng);
        stop(&a);
    }
    CHECK(memcmp(results[0].logits, results[1].logits, (size_t)LENGTH * VOCAB * sizeof(float)) == 0);
    CHECK(memcmp(results[0].nll, results[1].nll, LENGTH * sizeof(float)) == 0);
    free_result(&results[0]), free_result(&results[1]);
}

/* Weights of 8 bits: any cut gives the numbers of one pass, which are near those of float32 weights and not equal. The
 * order of sums in attention differs between cuts, which can move a number to the next of its 2^15 steps, or a key to
 * the next number of bf16. */
static void check_i8(const struct model *m, const struct variant *v, struct device *dev) {
    int32_t ids[LENGTH], targets[LENGTH];
    static const int longest[] = {0, 1, 7};
    struct result exact = make_result(), whole = make_result(), cut = make_result();
    struct rng rng = rng_make(test_seed(), 6);
    struct machine a;
    make_ids(ids, targets, test_seed() + 7);
    start(&a, m, v, dev, LENGTH, 16);
    feed(&a, &exact, ids, targets, 0, &rng);
    stop(&a);
    const double size = spread(exact.logits, (int64_t)LENGTH * VOCAB);
    for (size_t i = 0; i < ARRAY_LEN(longest); i++) {
        struct weights weights = weights_of_params(m->params);
        CHECK_OK(weights_round(&weights, dev, decoder_rounds));
        start_with(&a, m, v, dev, weights, i == 0 ? LENGTH : 60, 16);
        feed(&a, i == 0 ? &whole : &cut, ids, targets, longest[i], &rng);
        stop(&a);
        if (i == 0) continue;
        CHECK_CLOSE(cut.logits, whole.logits, (int64_t)LENGTH * VOCAB, 1e-2 * size);
        CHECK_CLOSE(cut.nll, whole.nll, LENGTH, 1e-2 * size);
    }
    check_nll(&whole, targets);
    double squares = 0;
    for (int64_t i = 0; i < (int64_t)LENGTH * VOCAB; i++)
        squares += pow((double)whole.logits[i] - (double)exact.logits[i], 2);
    const double distance = sqrt(squares / LENGTH / VOCAB);
    CHECK(distance > 1e-4 * size && distance < 0.1 * size);
    free_result(&exact), free_result(&whole), free_result(&cut);
}

/* Texts of different lengths take ids in batches of random texts, where batches are allowed: each text gets the bits of
 * its own id-by-id run, logits and the key states of one layer, which differs from text to text. */
enum { TEXTS = 11, STEPS = TEST_SANITIZED ? 80 : 150 }; /* in each case past the end of a chunk */
enum copy { NO_COPY, BF16_COPY, I8_COPY };              /* of the weights */
struct batched {
    struct retriever *retriever[TEXTS];
    struct decoder_state *state[TEXTS];
    int32_t ids[TEXTS][LENGTH];
    int begin[TEXTS], steps[TEXTS];
    float *logits[TEXTS]; /* [STEPS + 1, VOCAB]: before the first step and after each step */
    float *keys[TEXTS];   /* [STEPS, hidden]; not of every third text */
    int64_t hidden, layers;
};

static void batched_open(struct batched *c, struct machine *a, const struct model *m, const struct variant *v,
                         int first, int n) {
    for (int t = first; t < first + n; t++) {
        c->hidden = m->config.hidden, c->layers = model_config_layers(&m->config);
        c->logits[t] = floats((STEPS + 1) * VOCAB);
        c->keys[t] = floats(STEPS * c->hidden);
        c->steps[t] = 0;
        struct chunk_retriever_config how = {
            .device = a->dev, .model = &m->config, .encoder = a->encoder, .own_past = true, .exclude_document = -1};
        if (v->retrieval) CHECK_OK(chunk_retriever_create(&c->retriever[t], &how));
        CHECK_OK(decoder_state_create(&c->state[t], a->decoder, c->retriever[t]));
        CHECK_OK(
            decoder_forward(c->state[t], &(struct decoder_output){.logits = c->logits[t]}, c->ids[t], c->begin[t]));
    }
}

static void batched_close(struct batched *c, int first, int n) {
    for (int t = first; t < first + n; t++) {
        decoder_state_free(c->state[t]);
        if (c->retriever[t]) c->retriever[t]->free(c->retriever[t]);
        c->retriever[t] = NULL;
    }
}

/* Feeds one id to each of these texts. Returns how many of them were in a batch. */
static int batched_step(struct batched *c, const int *texts, int n, bool batch) {
    struct decoder_state *states[TEXTS];
    float *logits[TEXTS];
    struct decoder_batch_keys keys[TEXTS];
    int32_t ids[TEXTS];
    int together = 0;
    for (int i = 0; i < n; i++) {
        const int t = texts[i];
        float *to = c->logits[t] + (int64_t)(c->steps[t] + 1) * VOCAB;
        const struct mat key = t % 3 ? mat_f32(c->keys[t] + c->steps[t] * c->hidden, 1, c->hidden) : (struct mat){0};
        const struct decoder_batch_keys wanted = {.keys = key, .key_layer = 1 + t % (int)c->layers, .states = t % 2};
        const int32_t *id = &c->ids[t][c->begin[t] + c->steps[t]++];
        if (batch && decoder_batch_takes(c->state[t])) {
            keys[together] = wanted;
            states[together] = c->state[t], logits[together] = to, ids[together++] = *id;
            continue;
        }
        const struct decoder_output out = {
            .logits = to, .keys = key, .key_layer = wanted.key_layer, .states = wanted.states};
        CHECK_OK(decoder_forward(c->state[t], &out, id, 1));
    }
    if (together > 0) CHECK_OK(decoder_batch_forward_keys(states, logits, ids, keys, together));
    return together;
}

static void check_batched(const struct model *m, const struct variant *v, struct device *dev, enum copy copy) {
    struct batched c = {0}, alone = {0};
    struct rng rng = rng_make(test_seed(), 21);
    struct machine a;
    int32_t targets[LENGTH];
    int64_t together = 0;
    for (int t = 0; t < TEXTS; t++) {
        make_ids(c.ids[t], targets, test_seed() + 50 + (uint64_t)t);
        c.begin[t] = 1 + (int)rng_below(&rng, t < 3 ? 30 : 300);
    }
    memcpy(alone.ids, c.ids, sizeof c.ids), memcpy(alone.begin, c.begin, sizeof c.begin);
    struct weights weights = weights_of_params(m->params);
    if (copy == BF16_COPY) CHECK_OK(weights_narrow(&weights, dev, decoder_reads));
    if (copy == I8_COPY) CHECK_OK(weights_round(&weights, dev, decoder_rounds));
    CHECK(copy != BF16_COPY || weights.narrow);
    start_with(&a, m, v, dev, weights, copy == BF16_COPY ? 5 : 150, 2); /* passes of 5: a batch has several parts */
    for (int t = 0; t < TEXTS; t++) {
        batched_open(&alone, &a, m, v, t, 1);
        for (int i = 0; i < STEPS; i++)
            batched_step(&alone, &t, 1, false);
        batched_close(&alone, t, 1);
    }
    batched_open(&c, &a, m, v, 0, TEXTS);
    for (int left = TEXTS; left > 0;) {
        int texts[TEXTS], n = 0;
        for (int t = 0; t < TEXTS; t++)
            if (c.steps[t] < STEPS && rng_below(&rng, 8) > 0) texts[n++] = t;
        together += batched_step(&c, texts, n, true);
        left = 0;
        for (int t = 0; t < TEXTS; t++)
            left += c.steps[t] < STEPS;
    }
    if (m->config.recurrent_layer > 0 || m->config.landmark_block > 0) /* not batched */
        CHECK_EQ(together, 0);
    else
        CHECK(together > TEXTS * STEPS * 9 / 10);
    for (int t = 0; t < TEXTS; t++) {
        CHECK(memcmp(c.logits[t], alone.logits[t], (STEPS + 1) * VOCAB * sizeof(float)) == 0);
        CHECK(memcmp(c.keys[t], alone.keys[t], (size_t)(STEPS * c.hidden) * sizeof(float)) == 0);
        CHECK(t % 3 == 0 || alone.keys[t][STEPS * c.hidden - 1] != 0);
        CHECK_EQ(decoder_state_tokens(c.state[t]), c.begin[t] + STEPS);
        free(c.logits[t]), free(alone.logits[t]);
        free(c.keys[t]), free(alone.keys[t]);
    }
    batched_close(&c, 0, TEXTS);
    stop(&a);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 7);
    struct device *dev = open_device(2);
    for (size_t i = 0; i < ARRAY_LEN(variants); i++) {
        const struct variant *v = &variants[i];
        struct model m;
        make_model(&m, v, test_seed() + i);
        printf("%s\n", v->name);
        check_cuts(&m, v, dev, test_seed() + 100 + i);
        check_threads(&m, v);
        check_turns(&m, v, dev);
        check_renewed(&m, v, dev);
        if (v->retrieval) check_retrieval_matters(&m, v, dev);
        check_batched(&m, v, dev, NO_COPY);
        check_i8(&m, v, dev);
        check_batched(&m, v, dev, I8_COPY);
        check_narrow(&m, v, dev);
        check_batched(&m, v, dev, BF16_COPY);
        params_free(m.params);
    }
    device_close(dev);
    return test_done();
}
