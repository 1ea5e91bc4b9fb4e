/* test_towers_on_gpu.c -- decoding id by id on a GPU (bf16: the single kernel of kernels/token_step.h) against the same
 * text in one call and against the CPU, over variants, head sizes, windows and K; and that it is deterministic. */
#include "base/rng.h"
#include "decoder/decoder.h"
#include "indexer/retriever.h"
#include "tests/test.h"

enum { LENGTH = 300, VOCAB = 200 };

struct variant {
    const char *name, *layers, *input;
    int hidden, ffn, heads, encoder_layers, chunk, topk, window;
    bool proj, retrieval;
};

static const struct variant variants[] = {
    {"base", "[3]", "hidden", 384, 1000, 6, 0, 63, 0, 100, false, false},
    {"base, wide heads", "[2]", "hidden", 256, 512, 2, 0, 63, 0, 40, false, false},
    {"own past", "[1, 2]", "tokens", 256, 640, 4, 2, 63, 3, 64, true, true},
    {"own past, two groups, wide heads", "[1, 1, 1]", "tokens", 512, 512, 4, 1, 64, 8, 500, false, true},
    {"decoder variant", "[2, 2]", "hidden", 128, 256, 2, 1, 63, 2, 30, false, true},
    {"no retrieval", "[1, 2]", "tokens", 128, 256, 2, 1, 63, 2, 64, false, false},
};

struct machine {
    struct device *dev;
    struct weights weights;
    struct encoder *encoder;
    struct decoder *decoder;
};

static void start(struct machine *m, const struct model_config *c, const struct params *p, const char *kind,
                  enum dtype type) {
    CHECK_OK(device_open(&m->dev, kind, 2));
    CHECK_OK(weights_open(&m->weights, m->dev, p, type));
    CHECK_OK(decoder_create(&m->decoder, m->dev, c, &m->weights, 0));
    m->encoder = NULL;
    if (!c->base_lm) CHECK_OK(encoder_create(&m->encoder, m->dev, c, &m->weights, 40));
}

static void stop(struct machine *m) {
    CHECK_OK(device_sync(m->dev));
    decoder_free(m->decoder);
    encoder_free(m->encoder);
    weights_release(&m->weights, m->dev);
    device_close(m->dev);
}

/* All logits [LENGTH, VOCAB], in calls of up to `longest` ids behind a first one of `prompt`. */
static float *run(struct machine *m, const struct model_config *c, const struct variant *v, const int32_t *ids,
                  int prompt, int longest) {
    struct retriever *r = NULL;
    struct decoder_state *s;
    float *logits = malloc(sizeof *logits * LENGTH * VOCAB);
    CHECK(logits);
    if (v->retrieval) {
        struct chunk_retriever_config how = {
            .device = m->dev, .model = c, .encoder = m->encoder, .self = true, .exclude_document = -1};
        CHECK_OK(chunk_retriever_create(&r, &how));
    }
    CHECK_OK(decoder_state_create(&s, m->decoder, r));
    for (int done = 0, n; done < LENGTH; done += n) {
        n = done == 0 ? prompt : longest;
        if (n > LENGTH - done) n = LENGTH - done;
        struct decoder_output out = {.logits = logits + (size_t)done * VOCAB, .logits_all = true};
        CHECK_OK(decoder_forward(s, &out, ids + done, n));
    }
    decoder_state_free(s);
    if (r) r->free(r);
    return logits;
}

static double relative(const float *a, const float *b) {
    double squares = 0, size = 0;
    for (int64_t i = 0; i < (int64_t)LENGTH * VOCAB; i++) {
        squares += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    return sqrt(squares / size);
}

static void check(const struct variant *v) {
    char text[800];
    struct model_config c;
    struct params *p;
    struct machine cpu, gpu;
    int32_t ids[LENGTH];
    struct rng rng = rng_make(test_seed(), 3);
    snprintf(text, sizeof text,
             "{\"vocab_size\": %d, \"hidden_size\": %d, \"intermediate_size\": %d, \"num_attention_heads\": %d, "
             "\"decoder_layers\": %s, \"encoder_layers\": %d, \"enc_chunk_size\": %d, \"chunk_topk\": %d, "
             "\"slide_window\": %d, \"rms_norm_eps\": 1e-5, \"chunk_id\": 199, \"mask_id\": 198, \"pad_id\": 197, "
             "\"encoder_input\": \"%s\", \"retrieval_proj\": %s}",
             VOCAB, v->hidden, v->ffn, v->heads, v->layers, v->encoder_layers, v->chunk, v->topk, v->window, v->input,
             v->proj ? "true" : "false");
    CHECK_OK(model_config_parse(&c, v->name, text, strlen(text)));
    CHECK_OK(params_init(&p, &c, 5));
    for (int i = 0; i < params_count(p); i++) { /* larger than at the start of training: a mistake must show */
        const struct param *t = params_at(p, i);
        for (int64_t j = 0; t->rows > 1 && j < t->rows * t->cols; j++)
            ((float *)t->data)[j] *= t->rows == VOCAB ? 10 : 2;
    }
    for (int i = 0; i < LENGTH; i++)
        ids[i] = (int32_t)rng_below(&rng, 190);
    ids[70] = -1;
    start(&cpu, &c, p, "cpu", DTYPE_F32);
    start(&gpu, &c, p, "cuda", DTYPE_BF16);
    float *truth = run(&cpu, &c, v, ids, LENGTH, LENGTH), *whole = run(&gpu, &c, v, ids, LENGTH, LENGTH);
    float *steps = run(&gpu, &c, v, ids, 70, 1), *again = run(&gpu, &c, v, ids, 70, 1),
          *all = run(&gpu, &c, v, ids, 1, 1);
    double whole_error = relative(whole, truth), step_error = relative(steps, truth), all_error = relative(all, truth);
    printf("%s: one call %.4f, id by id %.4f, from the first id %.4f\n", v->name, whole_error, step_error, all_error);
    CHECK(memcmp(steps, again, sizeof *steps * LENGTH * VOCAB) == 0);
    CHECK(whole_error < 0.05 && step_error < 1.5 * whole_error + 0.01 && all_error < 1.5 * whole_error + 0.01);
    free(truth), free(whole), free(steps), free(again), free(all);
    stop(&cpu);
    stop(&gpu);
    params_free(p);
}

int main(int argc, char **argv) {
    struct device *gpu;
    test_start(argc, argv, 4);
    enum status s = device_open(&gpu, "cuda", 1);
    if (s == STATUS_UNSUPPORTED) test_skip(status_message());
    CHECK_OK(s);
    device_close(gpu);
    for (size_t i = 0; i < ARRAY_LEN(variants); i++)
        check(&variants[i]);
    return test_done();
}
