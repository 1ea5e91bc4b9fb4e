/* test_batch_on_gpu.c -- decoder_batch_forward on a GPU: texts of different positions and retrievers together, chunk
 * ends included, against the same texts one by one on the GPU and on the CPU. A text has the same bits in every
 * company. */
#include "base/rng.h"
#include "decoder/batch/decoder_batch.h"
#include "decoder/decoder_pass_internal.h"
#include "indexer/retrieve/retriever.h"
#include "tests/device/towers/machine.h"

enum { TEXTS = 64, STEPS = 90, LENGTH = 400, VOCAB = 203, MAX_TOKENS = 130 };

struct variant {
    const char *name, *layers, *input;
    int hidden, ffn, heads, encoder_layers, chunk, topk, window;
    bool retrieval;
};

static const struct variant variants[] = {
    {"base", "[3]", "hidden", 384, 1000, 6, 0, 63, 0, 100, false},
    {"base, 768", "[2]", "hidden", 768, 2048, 12, 0, 63, 0, 100, false},
    {"base, wide heads, wide MLP", "[2]", "hidden", 1024, 4096, 8, 0, 63, 0, 200, false},
    {"own past", "[1, 2]", "tokens", 256, 640, 4, 2, 63, 3, 64, true},
    {"own past, two groups, wide heads", "[1, 1, 1]", "tokens", 512, 512, 4, 1, 64, 8, 150, true},
    {"own past, 768, many neighbours", "[1, 2]", "tokens", 768, 2048, 12, 1, 63, 20, 100, true},
    {"decoder variant", "[2, 2]", "hidden", 128, 256, 2, 1, 63, 2, 30, true},
    {"no retrieval", "[1, 2]", "tokens", 128, 256, 2, 1, 63, 2, 64, false},
};

/* Text t: its ids, and how many of them are its prompt. */
static int32_t ids[TEXTS][LENGTH];
static int prompt_of(int text) {
    return 1 + (text * 37) % (LENGTH - STEPS - 1);
}

struct running {
    struct retriever *retriever;
    struct decoder_state *state;
    float *logits;
    int text;
    bool pinned;
};

static void batch_begin(struct running *r, const struct machine *m, const struct model_config *c,
                        const struct variant *v, int text) {
    *r = (struct running){.text = text, .pinned = text % 3 != 1};
    const struct chunk_retriever_config how = {.device = m->dev,
                                               .model = c,
                                               .encoder = m->encoder,
                                               .own_past = true,
                                               .exclude_document = -1,
                                               .cache_chunks = 1};
    /* Some texts of a model with retrieval have none. */
    if (v->retrieval && text % 5 != 3) CHECK_OK(chunk_retriever_create(&r->retriever, &how));
    CHECK_OK(decoder_state_create(&r->state, m->decoder, r->retriever));
    if (r->pinned)
        CHECK_OK(device_allocate_host(m->dev, &r->logits, VOCAB));
    else
        CHECK(r->logits = malloc(VOCAB * sizeof *r->logits));
    CHECK_OK(decoder_forward(r->state, &(struct decoder_output){0}, ids[text], prompt_of(text)));
}

static void batch_end(struct running *r, const struct machine *m) {
    decoder_state_free(r->state);
    if (r->retriever) r->retriever->free(r->retriever);
    if (r->pinned)
        device_release_host(m->dev, r->logits);
    else
        free(r->logits);
}

/* A step of all texts; how many were computed together. */
static int batch_step(struct running *all, int n, int step, bool together) {
    struct decoder_state *states[TEXTS];
    float *logits[TEXTS];
    int32_t next[TEXTS];
    int in = 0;
    for (int i = 0; i < n; i++) {
        const int32_t *id = &ids[all[i].text][prompt_of(all[i].text) + step];
        if (together && decoder_batch_takes(all[i].state))
            states[in] = all[i].state, logits[in] = all[i].logits, next[in++] = *id;
        else
            CHECK_OK(decoder_forward(all[i].state, &(struct decoder_output){.logits = all[i].logits}, id, 1));
    }
    if (in) CHECK_OK(decoder_batch_forward(states, logits, next, in));
    return in;
}

/* The logits of texts order[0 .. n - 1], [STEPS, VOCAB] of text t at out + t * STEPS * VOCAB. */
static void batch_run(float *out, const struct machine *m, const struct model_config *c, const struct variant *v,
                      const int *order, int n, bool together) {
    struct running all[TEXTS];
    int computed = 0;
    for (int i = 0; i < n; i++)
        batch_begin(&all[i], m, c, v, order[i]);
    for (int step = 0; step < STEPS; step++) {
        computed += batch_step(all, n, step, together);
        for (int i = 0; i < n; i++) {
            memcpy(out + ((int64_t)order[i] * STEPS + step) * VOCAB, all[i].logits, VOCAB * sizeof *out);
            CHECK_EQ(decoder_state_tokens(all[i].state), prompt_of(order[i]) + step + 1);
        }
    }
    CHECK(!together || computed > n * STEPS * 9 / 10);
    for (int i = 0; i < n; i++)
        batch_end(&all[i], m);
}

static float *logits_of_all(void) {
    float *out = calloc((size_t)TEXTS * STEPS * VOCAB, sizeof *out);
    CHECK(out);
    return out;
}

static int same_best(const float *a, const float *b, int64_t rows) {
    int same = 0;
    for (int64_t r = 0; r < rows; r++) {
        int best[2] = {0, 0};
        for (int i = 1; i < VOCAB; i++) {
            if (a[r * VOCAB + i] > a[r * VOCAB + best[0]]) best[0] = i;
            if (b[r * VOCAB + i] > b[r * VOCAB + best[1]]) best[1] = i;
        }
        same += best[0] == best[1];
    }
    return same;
}

static void compare(const struct machine *cpu, const struct machine *gpu, const struct model_config *c,
                    const struct variant *v) {
    const int sizes[] = {1, 2, 7, 32, TEXTS};
    const size_t text = (size_t)STEPS * VOCAB;
    float *truth = logits_of_all(), *alone = logits_of_all(), *first = logits_of_all(), *more = logits_of_all();
    int order[TEXTS];
    for (int i = 0; i < TEXTS; i++)
        order[i] = i;
    batch_run(truth, cpu, c, v, order, 7, false);
    batch_run(alone, gpu, c, v, order, TEXTS, false);
    batch_run(first, gpu, c, v, order, TEXTS, true);
    const double step_error = relative_of(alone, truth, 7 * (int64_t)text),
                 error = relative_of(first, truth, 7 * (int64_t)text);
    printf("%s: one by one %.5f, together %.5f; together against one by one %.6f, %d of %d best ids the same\n",
           v->name, step_error, error, relative_of(first, alone, TEXTS * (int64_t)text),
           same_best(first, alone, (int64_t)TEXTS * STEPS), TEXTS * STEPS);
    CHECK(error < 1.5 * step_error + 0.01 && step_error < 0.1);
    for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
        for (int i = 0; i < sizes[s]; i++)
            order[i] = (sizes[s] - 1 - i) * (TEXTS / sizes[s]); /* backwards, and others are left out */
        batch_run(more, gpu, c, v, order, sizes[s], true);
        for (int i = 0; i < sizes[s]; i++)
            CHECK(memcmp(more + (size_t)order[i] * text, first + (size_t)order[i] * text, text * sizeof *first) == 0);
    }
    free(truth), free(alone), free(first), free(more);
}

static void check(const struct variant *v) {
    char text[800];
    struct model_config c;
    struct params *p;
    struct machine cpu, gpu;
    snprintf(text, sizeof text,
             "{\"vocab_size\": %d, \"hidden_size\": %d, \"intermediate_size\": %d, \"num_attention_heads\": %d, "
             "\"decoder_layers\": %s, \"encoder_layers\": %d, \"enc_chunk_size\": %d, \"chunk_topk\": %d, "
             "\"slide_window\": %d, \"rms_norm_eps\": 1e-5, \"chunk_id\": 199, \"mask_id\": 198, \"pad_id\": 197, "
             "\"encoder_input\": \"%s\", \"retrieval_proj\": false}",
             VOCAB, v->hidden, v->ffn, v->heads, v->layers, v->encoder_layers, v->chunk, v->topk, v->window, v->input);
    CHECK_OK(model_config_parse(&c, v->name, text, strlen(text)));
    CHECK_OK(params_init(&p, &c, 5));
    for (int i = 0; i < params_count(p); i++) { /* larger than at the start of training, so that a mistake shows */
        const struct param *t = params_at(p, i);
        for (int64_t j = 0; t->rows > 1 && j < t->rows * t->cols; j++)
            ((float *)t->data)[j] *= t->rows == VOCAB ? 10 : 2;
    }
    start(&cpu, &c, p, "cpu", DTYPE_F32, MAX_TOKENS);
    start(&gpu, &c, p, "cuda", DTYPE_BF16, MAX_TOKENS);
    CHECK(gpu.decoder->rows); /* else nothing is computed together */
    compare(&cpu, &gpu, &c, v);
    stop(&cpu);
    stop(&gpu);
    params_free(p);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 4);
    need_gpu();
    struct rng rng = rng_make(test_seed(), 3);
    for (int i = 0; i < TEXTS; i++)
        for (int j = 0; j < LENGTH; j++)
            ids[i][j] = j % 71 == 70 ? -1 : (int32_t)rng_below(&rng, 190);
    for (size_t i = 0; i < ARRAY_LEN(variants); i++)
        check(&variants[i]);
    return test_done();
}
