/* test_decoder_rows.c -- batches of texts on a GPU (decoder/batch/decoder_rows.c) without a GPU: the kernels of
 * decode_rows.h and decode_step.h are plain loops on the CPU. Texts together, ends of chunks included, have
 * the logits that the ops of the CPU give each of them, and the same bits in every company; a retriever that fails ends
 * its own text alone. tests/device/towers checks the real kernels. */
#include "base/rng.h"
#include "decoder/batch/decoder_batch.h"
#include "decoder/decoder_pass_internal.h"
#include "indexer/retrieve/retriever.h"
#include "tests/test.h"

enum { TEXTS = 9, STEPS = 140, LENGTH = 300, VOCAB = 70, HIDDEN = 32, FFN = 48, WINDOW = 40, KEYS = 80, LAYERS = 8 };

#include "tests/ref/plain_decode.inc"

/* ---- texts ---- */

/* The chunk retriever, which fails at call `fails` of retrieve (0: never). */
struct failing {
    struct retriever base;
    struct retriever *inner;
    int calls, fails;
};
static enum status failing_append(struct retriever *r, int64_t first, const int32_t *ids, struct mat hidden,
                                  int64_t n) {
    struct failing *f = (struct failing *)(void *)r;
    return f->inner->append(f->inner, first, ids, hidden, n);
}
static enum status failing_retrieve(struct retriever *r, struct neighbours *out, int group, int64_t first,
                                    struct mat queries, int64_t n) {
    struct failing *f = (struct failing *)(void *)r;
    if (++f->calls == f->fails) return fail(STATUS_IO, "the store of this text is lost");
    return f->inner->retrieve(f->inner, out, group, first, queries, n);
}

struct machine {
    struct device *dev;
    struct model_config config;
    struct params *params;
    struct weights weights;
    struct encoder *encoder;
    struct decoder *decoder;
    int32_t ids[TEXTS][LENGTH];
};

static void start(struct machine *m, const char *layers, const char *input, int topk) {
    char text[600];
    struct rng rng = rng_make(test_seed(), 3);
    snprintf(text, sizeof text,
             "{\"vocab_size\": %d, \"hidden_size\": %d, \"intermediate_size\": %d, \"num_attention_heads\": 2, "
             "\"decoder_layers\": %s, \"encoder_layers\": %d, \"enc_chunk_size\": 63, \"chunk_topk\": %d, "
             "\"slide_window\": %d, \"rms_norm_eps\": 1e-5, \"chunk_id\": 69, \"mask_id\": 68, \"pad_id\": 67, "
             "\"encoder_input\": \"%s\", \"retrieval_proj\": false}",
             VOCAB, HIDDEN, FFN, layers, topk > 0, topk, WINDOW, input);
    CHECK_OK(device_open(&m->dev, "cpu", 2));
    CHECK_OK(model_config_parse(&m->config, "rows", text, strlen(text)));
    CHECK_OK(params_init(&m->params, &m->config, 5));
    for (int i = 0; i < params_count(m->params);
         i++) { /* larger than at the start of training, so that a mistake shows */
        const struct param *t = params_at(m->params, i);
        for (int64_t j = 0; t->rows > 1 && j < t->rows * t->cols; j++)
            ((float *)t->data)[j] *= t->rows == VOCAB ? 10 : 4;
    }
    CHECK_OK(weights_open(&m->weights, m->dev, m->params, DTYPE_F32));
    CHECK_OK(decoder_create(&m->decoder, m->dev, &m->config, &m->weights, 130));
    m->encoder = NULL;
    if (!m->config.base_lm) CHECK_OK(encoder_create(&m->encoder, m->dev, &m->config, &m->weights, 8));
    for (int t = 0; t < TEXTS; t++)
        for (int i = 0; i < LENGTH; i++)
            m->ids[t][i] = i % 71 == 70 ? -1 : (int32_t)rng_below(&rng, 60);
}

static void stop(struct machine *m) {
    decoder_free(m->decoder);
    encoder_free(m->encoder);
    weights_release(&m->weights, m->dev);
    params_free(m->params);
    device_close(m->dev);
}

static int prompt_of(int text) {
    return 1 + text * 37 % (LENGTH - STEPS - 1);
}

struct running {
    struct failing retriever;
    struct decoder_state *state;
    float logits[VOCAB];
    int text;
};

/* by_ops: the ops compute each id; else the kernels of this file. */
static void text_begin(struct running *r, const struct machine *m, int text, bool by_ops, int fails) {
    const struct chunk_retriever_config how = {.device = m->dev,
                                               .model = &m->config,
                                               .encoder = m->encoder,
                                               .own_past = true,
                                               .exclude_document = -1,
                                               .cache_chunks = 1};
    *r = (struct running){.text = text, .retriever.fails = fails};
    const bool retrieves = m->encoder && text % 5 != 3; /* some texts have no retrieval */
    if (retrieves) {
        CHECK_OK(chunk_retriever_create(&r->retriever.inner, &how));
        r->retriever.base = (struct retriever){
            .append = failing_append, .retrieve = failing_retrieve, .max_queries = r->retriever.inner->max_queries};
    }
    CHECK_OK(decoder_state_create(&r->state, m->decoder, retrieves ? &r->retriever.base : NULL));
    CHECK_OK(decoder_forward(r->state, &(struct decoder_output){0}, m->ids[text], prompt_of(text)));
    if (!by_ops) return;
    decode_step_free(r->state->step);
    r->state->step = NULL;
}

static void text_end(struct running *r) {
    decoder_state_free(r->state);
    if (r->retriever.inner) r->retriever.inner->free(r->retriever.inner);
}

/* The logits of texts order[0 .. n - 1]: [STEPS, VOCAB] of text t at out + t * STEPS * VOCAB. */
static void texts_together(float *out, const struct machine *m, const int *order, int n, bool together) {
    struct running all[TEXTS];
    for (int i = 0; i < n; i++)
        text_begin(&all[i], m, order[i], !together, 0);
    for (int step = 0; step < STEPS; step++) {
        struct decoder_state *states[TEXTS];
        float *logits[TEXTS];
        int32_t ids[TEXTS];
        int in = 0;
        for (int i = 0; i < n; i++) {
            const int32_t id = m->ids[order[i]][prompt_of(order[i]) + step];
            /* Some ids of text 2 are computed alone, one of them after the end of a chunk. */
            if (together && !(order[i] == 2 && step % 9 == 0)) {
                CHECK(decoder_rows_takes(all[i].state));
                states[in] = all[i].state, logits[in] = all[i].logits, ids[in++] = id;
            } else {
                CHECK_OK(decoder_forward(all[i].state, &(struct decoder_output){.logits = all[i].logits}, &id, 1));
            }
        }
        if (in > 0) CHECK_OK(decoder_rows_forward(states, logits, ids, in));
        for (int i = 0; i < n; i++) {
            CHECK_EQ(decoder_state_tokens(all[i].state), prompt_of(order[i]) + step + 1);
            memcpy(out + ((size_t)order[i] * STEPS + (size_t)step) * VOCAB, all[i].logits, sizeof all[i].logits);
        }
    }
    for (int i = 0; i < n; i++)
        text_end(&all[i]);
}

static void compare(const char *layers, const char *input, int topk) {
    const size_t n = (size_t)TEXTS * STEPS * VOCAB, text = (size_t)STEPS * VOCAB;
    float *ops = calloc(n, sizeof *ops), *first = calloc(n, sizeof *first), *more = calloc(n, sizeof *more);
    struct machine m;
    int order[TEXTS];
    double error = 0, largest = 0;
    CHECK(ops && first && more);
    start(&m, layers, input, topk);
    for (int i = 0; i < TEXTS; i++)
        order[i] = i;
    texts_together(ops, &m, order, TEXTS, false);
    texts_together(first, &m, order, TEXTS, true);
    for (size_t i = 0; i < n; i++) {
        error = fmax(error, fabs((double)first[i] - (double)ops[i]));
        largest = fmax(largest, fabs((double)ops[i]));
    }
    printf("%s: %.2g of %.3g\n", layers, error, largest);
    CHECK(error < 1e-3 * largest);
    for (int size = 1; size <= 4; size++) {
        for (int i = 0; i < size; i++)
            order[i] = (size * 2 - 2 * i + size) % TEXTS;
        texts_together(more, &m, order, size, true);
        for (int i = 0; i < size; i++)
            CHECK(memcmp(more + (size_t)order[i] * text, first + (size_t)order[i] * text, text * sizeof *first) == 0);
    }
    stop(&m);
    free(ops), free(first), free(more);
}

/* Text 1's third retrieval fails: the batch reports it, the other texts have their ids, and text 1 is spent. */
static void failure(void) {
    struct machine m;
    struct running all[3];
    struct decoder_state *states[3];
    float *logits[3];
    int left = 3, failed = 0;
    start(&m, "[1, 1]", "tokens", 2);
    for (int i = 0; i < 3; i++)
        text_begin(&all[i], &m, i, false, i == 1 ? 3 : 0);
    for (int step = 0; step < STEPS + 100; step++) {
        int32_t ids[3];
        int64_t before[3];
        int in = 0;
        for (int i = 0; i < 3; i++) {
            if (decoder_state_spent(all[i].state)) continue;
            before[in] = decoder_state_tokens(all[i].state);
            states[in] = all[i].state, logits[in] = all[i].logits, ids[in++] = m.ids[i][step % LENGTH];
        }
        CHECK_EQ(in, left);
        enum status status = decoder_rows_forward(states, logits, ids, in);
        for (int i = 0; i < in; i++)
            CHECK_EQ(decoder_state_tokens(states[i]), before[i] + !decoder_state_spent(states[i]));
        if (status == STATUS_OK) continue;
        CHECK_EQ(status, STATUS_IO);
        CHECK(strstr(status_message(), "the store of this text is lost"));
        CHECK(decoder_state_spent(all[1].state) && !decoder_state_spent(all[0].state) &&
              !decoder_state_spent(all[2].state));
        CHECK(!decoder_rows_takes(all[1].state));
        failed++, left--;
    }
    CHECK_EQ(failed, 1);
    for (int i = 0; i < 3; i++)
        text_end(&all[i]);
    stop(&m);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    compare("[2]", "tokens", 0);
    compare("[1, 2]", "tokens", 3);
    compare("[1, 1, 1]", "tokens", 4);
    compare("[2, 1]", "hidden", 2);
    failure();
    return test_done();
}
