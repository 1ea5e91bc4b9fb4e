/* bench_train.c -- tokens a second of the training step, on random ids; with --parts, the time of each op.
 *
 *   bench_train --model base --device cuda --type bf16 [--json FILE]
 *
 * Models: base and drt have the sizes of their peers (d 768, 12 layers, 50265 words; drt 6 + 6, encoder of 2, chunk of
 * 63, 8 neighbours), seed has the shape of seed-25m; or a folder with a config.json. CSV: model, device, type, pool,
 * sequences, positions, ms a step (median, best), tokens/s at the median, GiB of device memory of the step, loss of the
 * first and the last step. Tokens are ids without landmarks. The time does not depend on the ids. --corpus N: pool
 * corpus over N random chunks; a line gives the time to encode them. */
#include "base/rng.h"
#include "tests/bench/op_clock.h"
#include "tests/bench/result.h"
#include "tools/shared/args.h"
#include "train/step/corpus_pool.h"
#include "train/step/step.h"

static struct options {
    const char *device, *type, *model, *pool;
    int64_t sequences, length, steps, parts, threads, corpus, candidates;
    bool recompute, gumbel, contrastive, mlm;
} options = {.device = "cpu",
             .type = "f32",
             .model = "drt",
             .pool = "own",
             .sequences = 4,
             .length = 16380,
             .steps = 10,
             .candidates = 8};

static const struct arg_option table[] = {
    {.name = "device", .kind = ARG_STRING, .value = &options.device, .placeholder = "cpu|cuda", .help = "where"},
    {.name = "type", .kind = ARG_STRING, .value = &options.type, .placeholder = "f32|bf16", .help = "of activations"},
    {.name = "model", .kind = ARG_STRING, .value = &options.model, .placeholder = "base|drt|seed|DIR", .help = "sizes"},
    {.name = "pool",
     .kind = ARG_STRING,
     .value = &options.pool,
     .placeholder = "none|own|batch",
     .help = "to choose from"},
    {.name = "sequences",
     .kind = ARG_INT,
     .value = &options.sequences,
     .placeholder = "N",
     .help = "a step",
     .min = 1,
     .max = 4096},
    {.name = "length",
     .kind = ARG_INT,
     .value = &options.length,
     .placeholder = "N",
     .help = "real ids a sequence",
     .min = 1,
     .max = 1e7},
    {.name = "steps",
     .kind = ARG_INT,
     .value = &options.steps,
     .placeholder = "N",
     .help = "timed",
     .min = 1,
     .max = 1e6},
    {.name = "parts",
     .kind = ARG_INT,
     .value = &options.parts,
     .placeholder = "N",
     .help = "then as many steps, op by op",
     .min = 0,
     .max = 1e6},
    {.name = "corpus",
     .kind = ARG_INT,
     .value = &options.corpus,
     .placeholder = "N",
     .help = "chunks to retrieve from",
     .min = 0,
     .max = 1e8},
    {.name = "candidates",
     .kind = ARG_INT,
     .value = &options.candidates,
     .placeholder = "N",
     .help = "of them, a query",
     .min = 1,
     .max = 64},
    {.name = "threads",
     .kind = ARG_INT,
     .value = &options.threads,
     .placeholder = "N",
     .help = "of the CPU; 0: all",
     .min = 0,
     .max = 1024},
    {.name = "recompute", .kind = ARG_FLAG, .value = &options.recompute, .help = "layers run again on the way back"},
    {.name = "gumbel", .kind = ARG_FLAG, .value = &options.gumbel, .help = "noise on the choice"},
    {.name = "contrastive",
     .kind = ARG_FLAG,
     .value = &options.contrastive,
     .help = "the contrastive loss, weight 0.03"},
    {.name = "mlm", .kind = ARG_FLAG, .value = &options.mlm, .help = "the encoder's masked tokens, rate 0.15"},
};
static const struct arg_program program = {.name = "bench_train",
                                           .synopsis = "[options]",
                                           .about = "Tokens a second of the training step, on random ids.",
                                           .options = table,
                                           .n_options = (int)ARRAY_LEN(table)};

static struct model_config make_model(void) {
    static const char *const shape =
        "{\"vocab_size\": %d, \"hidden_size\": %d, \"intermediate_size\": %d, \"num_attention_heads\": %d,"
        "\"decoder_layers\": %s, \"encoder_layers\": %d, \"enc_chunk_size\": 63, \"chunk_topk\": 8, \"slide_window\": "
        "512,"
        "\"rms_norm_eps\": 1e-5, \"chunk_id\": %d, \"pad_id\": %d, \"mask_id\": %d, \"encoder_input\": \"tokens\"}";
    struct model_config c;
    char text[800];
    int words = 50265;
    if (strcmp(options.model, "base") == 0)
        snprintf(text, sizeof text, shape, words, 768, 2048, 12, "[12]", 0, words - 1, words - 2, words - 3);
    else if (strcmp(options.model, "drt") == 0)
        snprintf(text, sizeof text, shape, words, 768, 2048, 12, "[6, 6]", 2, words - 1, words - 2, words - 3);
    else if (strcmp(options.model, "seed") == 0)
        snprintf(text, sizeof text, shape, 16384, 384, 1024, 6, "[4, 4]", 2, 16383, 16382, 16381);
    else {
        CHECK_OK(model_config_load(&c, options.model));
        return c;
    }
    CHECK_OK(model_config_parse(&c, options.model, text, strlen(text)));
    return c;
}

static struct batch make_batch(const struct model_config *c, int64_t chunks, uint64_t seed) {
    int64_t S = c->base_lm ? 1 : model_config_positions(c), n = options.sequences * chunks * S, length = chunks * S;
    int32_t *ids = malloc((size_t)n * sizeof *ids), *targets = malloc((size_t)n * sizeof *targets);
    int32_t(*documents)[2] = malloc((size_t)(options.sequences * chunks) * sizeof *documents);
    struct rng rng = rng_make(seed, 1);
    struct batch b = {.sequences = (int)options.sequences, .chunks = chunks, .ids = ids, .targets = targets};
    CHECK(ids && targets && documents);
    for (int64_t i = 0; i < n; i++) {
        bool landmark = !c->base_lm && i % S == S - 1;
        ids[i] = landmark ? c->landmark_id : (int32_t)rng_below(&rng, (uint64_t)c->vocab_size - 8);
    }
    for (int64_t i = 0; i < n; i++) { /* what follows, landmarks left out */
        bool landmark = !c->base_lm && i % S == S - 1;
        int64_t next = !c->base_lm && i % S == S - 2 ? i + 2 : i + 1;
        targets[i] = landmark || next / length != i / length || next >= n ? -1 : ids[next];
        b.scored += targets[i] >= 0;
    }
    for (int64_t i = 0; i < options.sequences * chunks; i++)
        documents[i][0] = documents[i][1] = (int32_t)(i / 8);
    b.documents = (const int32_t(*)[2])documents;
    return b;
}

static struct corpus_pool *make_corpus(struct device *dev, const struct model_config *c, enum dtype type,
                                       int64_t queries) {
    int32_t *ids = malloc((size_t)(options.corpus * c->chunk) * sizeof *ids);
    int32_t(*documents)[2] = malloc((size_t)options.corpus * sizeof *documents);
    struct corpus_pool *p;
    struct rng rng = rng_make(9, 2);
    CHECK(ids && documents);
    for (int64_t i = 0; i < options.corpus * c->chunk; i++)
        ids[i] = (int32_t)rng_below(&rng, (uint64_t)c->vocab_size - 8);
    for (int64_t i = 0; i < options.corpus; i++)
        documents[i][0] = documents[i][1] = (int32_t)(i / 8);
    const struct corpus_pool_config config = {.type = type,
                                              .ids = ids,
                                              .documents = (const int32_t(*)[2])documents,
                                              .chunks = options.corpus,
                                              .max_queries = queries,
                                              .candidates = (int)options.candidates};
    CHECK_OK(corpus_pool_create(&p, dev, c, &config));
    free(ids), free(documents);
    return p;
}

static void refresh(struct device *dev, struct step *s, const struct corpus_pool *p) {
    double begun = clock_seconds();
    step_refresh_corpus(s);
    CHECK_OK(device_sync(dev));
    printf("corpus: %lld chunks encoded in %.2f s, %.2f GiB\n", (long long)options.corpus, clock_seconds() - begun,
           (double)corpus_pool_bytes(p) / (1 << 30));
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct step_now now_of(int64_t number, enum pool_kind pool) {
    return (struct step_now){.optimizer = {.lr = 1e-4f, .step = number},
                             .seed = (uint64_t)number,
                             .mlm_rate = options.mlm ? 0.15f : 0.0f,
                             .mlm_weight = 1.0f,
                             .contrastive_weight = options.contrastive ? 0.03f : 0.0f,
                             .pool = pool};
}

static void measure(struct device *dev, struct step *s, const struct batch *b, enum pool_kind pool) {
    enum { WARM = 3 };
    double *took = malloc((size_t)options.steps * sizeof *took), first = 0.0;
    struct step_report report;
    CHECK(took);
    for (int64_t i = 1; i <= WARM + options.steps; i++) {
        struct step_now now = now_of(i, pool);
        double begun = clock_seconds();
        CHECK_OK(step_run(s, &report, b, 1, &now));
        if (i > WARM) took[i - WARM - 1] = clock_seconds() - begun;
        if (i == 1) first = report.loss;
    }
    qsort(took, (size_t)options.steps, sizeof *took, compare);
    double median = took[options.steps / 2];
    printf("model,device,type,pool,sequences,positions,ms,best ms,tokens/s,GiB,first loss,last loss\n");
    printf("%s,%s,%s,%s,%lld,%lld,%.2f,%.2f,%.0f,%.2f,%.4f,%.4f\n", options.model, dev->name, options.type,
           options.pool, (long long)options.sequences, (long long)options.length, 1e3 * median, 1e3 * took[0],
           (double)(options.sequences * options.length) / median, (double)step_bytes(s) / (1 << 30), first,
           report.loss);
    fflush(stdout);
    struct figure f = {.unit = "ms", .values = took, .count = options.steps, .scale = 1e3};
    result_figure(&f, "training step, %s", options.model);
    f = (struct figure){.unit = "K tokens/s",
                        .values = took,
                        .count = options.steps,
                        .work = 1e-3 * (double)(options.sequences * options.length)};
    result_figure(&f, "training, %s", options.model);
    result_value("GiB", (double)step_bytes(s) / (1 << 30), "device memory of the step, %s", options.model);
    free(took);
}

static void measure_parts(struct device *dev, struct step *s, const struct batch *b, enum pool_kind pool) {
    struct step_report report;
    clock_start(dev);
    for (int64_t i = 1; i <= options.parts; i++) {
        struct step_now now = now_of(i, pool);
        CHECK_OK(step_run(s, &report, b, 1, &now));
    }
    clock_stop(dev);
    clock_print((int)options.parts);
}

int main(int argc, char **argv) {
    struct device *dev;
    struct params *params;
    struct step *s;
    struct corpus_pool *corpus = NULL;
    result_begin("bench_train", &argc, argv);
    int operands, code = args_parse(&program, argc, argv, NULL, &operands);
    if (code >= 0) return code;
    struct model_config model = make_model();
    int64_t chunks = model.base_lm ? options.length : options.length / model.chunk;
    if (model.base_lm) options.pool = "none";
    if (options.corpus) options.pool = "corpus";
    int pool = pool_kind_find(options.pool);
    CHECK(chunks > 0 && pool >= 0 && (pool == POOL_CORPUS) == (options.corpus > 0));
    struct step_config config = {
        .sequences = (int)options.sequences,
        .chunks = chunks,
        .optimizer = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .decay = 0.1f, .clip = 1.0f, .trunk = 1.0f},
        .type = strcmp(options.type, "bf16") == 0 ? DTYPE_BF16 : DTYPE_F32,
        .recompute = options.recompute,
        .pool = (enum pool_kind)pool,
        .candidates = (int)options.candidates,
        .gumbel = options.gumbel,
        .contrastive = options.contrastive,
        .mlm = options.mlm};
    CHECK_OK(device_open(&dev, options.device, (int)options.threads));
    if (!dev->shares_memory) result_gpu(NULL);
    CHECK_OK(params_init(&params, &model, 1));
    if (options.corpus) corpus = make_corpus(dev, &model, config.type, options.sequences * chunks);
    CHECK_OK(step_create(&s, dev, &model, &config, params, corpus));
    if (corpus) refresh(dev, s, corpus);
    struct batch b = make_batch(&model, chunks, 7);
    measure(dev, s, &b, (enum pool_kind)pool);
    if (options.parts) measure_parts(dev, s, &b, (enum pool_kind)pool);
    step_free(s);
    corpus_pool_free(corpus);
    params_free(params);
    device_close(dev);
    free((void *)b.ids), free((void *)b.targets), free((void *)b.documents);
    result_end();
    return 0;
}
