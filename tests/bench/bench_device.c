/* bench_device.c -- decoding, prefill and encoding at published sizes on any device; models are made here, at random.
 *
 *   bench_device [--device cpu|cuda] [--dtype f32|bf16|i8] [--tokens N] [--chunks N] [--batch N,N,...] [--json FILE]
 * decode|batch|prefill|encode...
 *
 * decode   microseconds a token of a Base LM (12 layers, d 768, vocabulary 50265: 124M parameters) and of a DRT ([6,
 * 6]) without retrieval and with its own past; logits in this process's memory, chunk ends included. limit: all weights
 * read once at the rate of a large copy. A comment line gives the additional time of a call that ends a chunk, by
 * stages of this process: search waits for the landmark's step and the search, the others only issue work. "few slots":
 * the text's own past with a cache so small that most retrieved chunks are encoded again, as with a corpus. prefill:
 * tokens/s of one call of 8064 ids. encode: chunks/s and tokens/s of the chunk encoder (2 layers, d 768 and 1024),
 * landmarks in this process's memory.
 *
 * batch    tokens/s of each number of --batch texts (1,8,32), computed together (decoder/batch/decoder_batch.h) and one
 * by one,
 * --tokens each after prompts of about 100 and of about 1000 ids, chunk ends included; logits in this process's memory.
 * A third figure has a token of each text sampled (temperature 1) after each pass, on up to 16 threads. A fourth, on a
 * GPU, has the ids picked there, and the next pass queued before they are known here (decoder/batch/decoder_ahead.h).
 * decode has the same for one text: greedy, and with top-p.
 *
 * CSV, a row a case. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "decoder/batch/decoder_batch.h"
#include "decoder/decoder_internal.h"
#include "decoder/logits/sampler.h"
#include "indexer/retrieve/retriever.h"
#include "tests/bench/result.h"
#include "tests/bench/text/picked.h"
#include "tests/test.h"

struct options {
    const char *device, *batch;
    enum dtype type;
    int64_t tokens, chunks;
    bool picked, i8;
};

struct model {
    struct device *dev;
    struct model_config config;
    struct params *params;
    struct weights weights;
};

static void make(struct model *m, struct device *dev, const struct options *o, const char *text) {
    *m = (struct model){.dev = dev};
    CHECK_OK(model_config_parse(&m->config, "bench", text, strlen(text)));
    CHECK_OK(params_init(&m->params, &m->config, 1));
    CHECK_OK(weights_open(&m->weights, dev, m->params, o->type));
    if (o->i8) CHECK_OK(weights_round(&m->weights, dev, decoder_rounds));
}

/* What a token reads of a matrix or vector. */
static double read_bytes(const struct param *p, const struct options *o) {
    if (o->i8 && p->rows > 1 && decoder_rounds(p->name)) return (double)matmul_i8_bytes(p->rows, p->cols);
    return (double)(p->rows * p->cols * dtype_bytes(o->type));
}

static void drop(struct model *m) {
    weights_release(&m->weights, m->dev);
    params_free(m->params);
}

/* Bytes per second read by a copy of 1 GiB (64 MiB on the CPU), reads and writes counted. */
static double copy_rate(struct device *dev) {
    size_t bytes = dev->shares_memory ? (size_t)1 << 26 : (size_t)1 << 30;
    void *from, *to;
    double best = 1e30;
    CHECK_OK(device_allocate(dev, &from, bytes));
    CHECK_OK(device_allocate(dev, &to, bytes));
    for (int i = 0; i < 10; i++) {
        CHECK_OK(device_sync(dev));
        double start = clock_seconds();
        for (int j = 0; j < 4; j++)
            device_copy(dev, to, from, bytes);
        CHECK_OK(device_sync(dev));
        double took = (clock_seconds() - start) / 4;
        best = took < best ? took : best;
    }
    device_release(dev, from);
    device_release(dev, to);
    return 2.0 * (double)bytes / best;
}

static bool is_read_each_token(const char *name) {
    return !strstr(name, ".encoder.") && !strstr(name, "chunk_k_proj") && !strstr(name, "chunk_v_proj") &&
           !strstr(name, "enc_prenorm") && !strstr(name, "lmk_");
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Calls after a prompt of whole chunks: those that end a chunk, together with the call after each (a call may return
 * before its work is done), against the others. */
static void report_ends(const double *took, int64_t n, int chunk, const struct decoder_times *d,
                        const struct chunk_retriever_times *before, const struct retriever *r, const char *what) {
    double *plain = malloc((size_t)n * sizeof *plain), *end = malloc((size_t)n * sizeof *end);
    int64_t plains = 0, ends = 0;
    CHECK(plain && end);
    for (int64_t i = 0; i < n; i++) {
        int64_t position = i % chunk;
        if (position == chunk - 1 && i + 1 < n) end[ends++] = took[i] + took[i + 1];
        if (position != chunk - 1 && (position > 0 || i == 0)) plain[plains++] = took[i];
    }
    qsort(plain, (size_t)plains, sizeof *plain, compare);
    qsort(end, (size_t)ends, sizeof *end, compare);
    if (ends) {
        struct chunk_retriever_times t = chunk_retriever_times(r);
        double each = 1e6 / (double)(n / chunk), usual = plain[plains / 2];
        printf("# a chunk's end: median %.1f us beside a token's %.1f; in this process search %.1f, read %.1f, encode "
               "%.1f, idle %.1f, query %.1f us; %.1f hits, %.1f misses\n",
               (end[ends / 2] - 2 * usual) * 1e6, usual * 1e6, (t.search - before->search) * each,
               (t.read - before->read) * each, (t.encode - before->encode) * each, (t.idle - before->idle) * each,
               d->query * each, (double)(t.cache_hits - before->cache_hits) * each * 1e-6,
               (double)(t.cache_misses - before->cache_misses) * each * 1e-6);
        result_value("us", (end[ends / 2] - 2 * usual) * 1e6, "end of a chunk, beyond a token, %s", what);
    }
    free(plain), free(end);
}

static void decode_run(const struct model *m, const struct options *o, struct decoder *d, const char *what,
                       struct retriever *r, int64_t prompt_chunks, double rate) {
    struct decoder_state *s;
    struct rng rng = rng_make(1, 0);
    int64_t prompt = prompt_chunks * 63, n = o->tokens > prompt ? o->tokens : prompt;
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    double *took = malloc((size_t)o->tokens * sizeof *took), bytes = 0;
    float *logits;
    CHECK(ids && took);
    CHECK_OK(device_allocate_host(m->dev, &logits, (size_t)m->config.vocab_size));
    for (int i = 0; i < params_count(m->params); i++) {
        const struct param *p = params_at(m->params, i);
        if (is_read_each_token(p->name)) bytes += read_bytes(p, o);
    }
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)rng_below(&rng, (uint64_t)m->config.vocab_size - 8);
    CHECK_OK(decoder_state_create(&s, d, r));
    struct decoder_output out = {.logits = logits};
    double start = clock_seconds();
    CHECK_OK(decoder_forward(s, &out, ids, prompt));
    double prefill = clock_seconds() - start;
    struct chunk_retriever_times filled = {0};
    if (r) filled = chunk_retriever_times(r);
    decoder_state_times(s, true);
    start = clock_seconds();
    for (int64_t i = 0; i < o->tokens; i++) {
        double before = clock_seconds();
        CHECK_OK(decoder_forward(s, &out, ids + i, 1));
        took[i] = clock_seconds() - before;
    }
    double mean = (clock_seconds() - start) / (double)o->tokens;
    struct decoder_times times = decoder_state_times(s, false);
    if (r) report_ends(took, o->tokens, m->config.chunk, &times, &filled, r, what);
    qsort(took, (size_t)o->tokens, sizeof *took, compare);
    printf("decode,%s,%.1f us mean,%.1f median,%.1f best,%.1f p99,limit %.1f us,prefill %.0f tokens/s\n", what,
           mean * 1e6, took[o->tokens / 2] * 1e6, took[0] * 1e6, took[o->tokens * 99 / 100] * 1e6, bytes / rate * 1e6,
           (double)prompt / prefill);
    fflush(stdout);
    if (strcmp(what, "warm-up") != 0) {
        result_value("us", mean * 1e6, "token, mean with chunk ends, %s", what);
        result_figure(&(struct figure){.unit = "us",
                                       .values = took,
                                       .count = o->tokens,
                                       .scale = 1e6,
                                       .peer = "weights read once",
                                       .ratio = bytes / rate / took[o->tokens / 2]},
                      "token, %s", what);
    }
    decoder_state_free(s);
    device_release_host(m->dev, logits);
    free(ids), free(took);
}

/* The same with ids that the GPU picks. */
static void decode_picked(const struct model *m, const struct options *o, struct decoder *d, const char *what,
                          struct retriever *r, double rate) {
    const struct sampler_config configs[] = {{.top_p = 1}, {.temperature = 0.8F, .top_p = 0.95F, .seed = 3}};
    static const char *const names[] = {"greedy", "top-p 0.95"};
    enum { PROMPT = 1008 };
    double *took = malloc((size_t)o->tokens * sizeof *took), bytes = 0;
    int32_t *ids = malloc(PROMPT * sizeof *ids);
    struct rng rng = rng_make(1, 0);
    CHECK(took && ids);
    for (int i = 0; i < params_count(m->params); i++) {
        const struct param *p = params_at(m->params, i);
        if (is_read_each_token(p->name)) bytes += read_bytes(p, o);
    }
    for (int i = 0; i < PROMPT; i++)
        ids[i] = (int32_t)rng_below(&rng, (uint64_t)m->config.vocab_size - 8);
    for (size_t c = 0; c < ARRAY_LEN(configs); c++) {
        struct decoder_state *s;
        struct picked p;
        if (r) chunk_retriever_reset(r, -1, 0);
        CHECK_OK(decoder_state_create(&s, d, r));
        CHECK_OK(decoder_forward(s, &(struct decoder_output){0}, ids, PROMPT));
        picked_open(&p, m->dev, s, &configs[c], m->config.vocab_size);
        for (int i = 0; i < 5; i++)
            picked_next(&p);
        const double start = clock_seconds();
        for (int64_t i = 0; i < o->tokens; i++) {
            const double before = clock_seconds();
            picked_next(&p);
            took[i] = clock_seconds() - before;
        }
        const double mean = (clock_seconds() - start) / (double)o->tokens;
        CHECK_OK(device_sync(m->dev));
        result_value("us", mean * 1e6, "token picked on the GPU, %s, mean with chunk ends, %s", names[c], what);
        qsort(took, (size_t)o->tokens, sizeof *took, compare);
        printf("decode,%s, picked on the GPU: %s,%.1f us mean,%.1f median,%.1f best,%.1f p99,limit %.1f us\n", what,
               names[c], mean * 1e6, took[o->tokens / 2] * 1e6, took[0] * 1e6, took[o->tokens * 99 / 100] * 1e6,
               bytes / rate * 1e6);
        fflush(stdout);
        picked_close(&p);
        decoder_state_free(s);
    }
    free(took), free(ids);
}

static void prefill_run(const struct model *m, struct decoder *d, struct encoder *e, const char *what) {
    enum { TEXT = 8064, FRONT = 10 };
    struct rng rng = rng_make(2, 0);
    int32_t *ids = malloc(TEXT * sizeof *ids);
    float *logits = malloc((size_t)m->config.vocab_size * sizeof *logits);
    double rate[2] = {0};
    struct samples rates[2] = {0};
    CHECK(ids && logits);
    for (int i = 0; i < TEXT; i++)
        ids[i] = (int32_t)rng_below(&rng, (uint64_t)m->config.vocab_size - 8);
    for (int i = 0; i < 6; i++) { /* in turns; the first of each is a warm-up */
        struct retriever *r = NULL;
        struct decoder_state *s;
        struct decoder_output out = {.logits = logits};
        struct chunk_retriever_config how = {
            .device = m->dev, .model = &m->config, .encoder = e, .own_past = true, .exclude_document = -1};
        if (e) CHECK_OK(chunk_retriever_create(&r, &how));
        CHECK_OK(decoder_state_create(&s, d, r));
        if (i % 2) CHECK_OK(decoder_forward(s, &out, ids, FRONT));
        double start = clock_seconds();
        CHECK_OK(decoder_forward(s, &out, ids, TEXT));
        double found = TEXT / (clock_seconds() - start);
        if (i > 1 && found > rate[i % 2]) rate[i % 2] = found;
        if (i > 1) samples_add(&rates[i % 2], found);
        decoder_state_free(s);
        if (r) r->free(r);
    }
    printf("prefill,%s,%d ids,%.0f tokens/s,%.0f after %d ids\n", what, TEXT, rate[0], rate[1], FRONT);
    fflush(stdout);
    for (int i = 0; i < 2; i++) {
        struct figure f = {.unit = "tokens/s", .values = rates[i].at, .count = rates[i].count};
        result_figure(&f, "prefill of %d ids%s, %s", TEXT, i ? " after 10 others" : "", what);
        samples_free(&rates[i]);
    }
    free(ids), free(logits);
}

/* ---- several texts ---- */

enum batch_kind { BATCH_APART, BATCH_TOGETHER, BATCH_SAMPLED, BATCH_PICKED, BATCH_KINDS };

struct batch {
    const struct model *m;
    struct encoder *encoder; /* NULL: without retrieval */
    struct decoder *decoder;
    struct threads *samplers;
    int n, fed; /* texts; those of the round that were computed together */
    struct decoder_state *state[DECODER_BATCH_MAX];
    struct retriever *retriever[DECODER_BATCH_MAX];
    struct sampler *sampler[DECODER_BATCH_MAX];
    float *logits[DECODER_BATCH_MAX];
    int32_t next[DECODER_BATCH_MAX];
    struct picked picked[DECODER_BATCH_MAX]; /* of BATCH_PICKED */
};

static void batch_begin(struct batch *b, int64_t prompt, int kind) {
    const struct model *m = b->m;
    const struct chunk_retriever_config how = {.device = m->dev,
                                               .model = &m->config,
                                               .encoder = b->encoder,
                                               .own_past = true,
                                               .exclude_document = -1,
                                               .max_queries = 1,
                                               .cache_chunks = 64};
    const struct sampler_config sampler = {.temperature = 1, .top_p = 1, .seed = 7};
    struct rng rng = rng_make(5, 0);
    int32_t *ids = malloc((size_t)(prompt + 2 * DECODER_BATCH_MAX) * sizeof *ids);
    CHECK(ids);
    for (int64_t i = 0; i < prompt + 2 * DECODER_BATCH_MAX; i++)
        ids[i] = (int32_t)rng_below(&rng, (uint64_t)m->config.vocab_size - 8);
    for (int i = 0; i < b->n; i++) { /* of different lengths, so that chunks do not end together */
        b->retriever[i] = NULL;
        if (b->encoder) CHECK_OK(chunk_retriever_create(&b->retriever[i], &how));
        CHECK_OK(decoder_state_create(&b->state[i], b->decoder, b->retriever[i]));
        CHECK_OK(sampler_create(&b->sampler[i], &sampler, m->config.vocab_size));
        CHECK_OK(device_allocate_host(m->dev, &b->logits[i], (size_t)m->config.vocab_size));
        b->next[i] = ids[i];
        CHECK_OK(decoder_forward(b->state[i], &(struct decoder_output){0}, ids, prompt + 2 * i));
        if (kind != BATCH_PICKED) continue;
        picked_open(&b->picked[i], m->dev, b->state[i], &sampler, m->config.vocab_size);
        b->picked[i].id = ids[i];
    }
    free(ids);
}

static void batch_end(struct batch *b, int kind) {
    CHECK_OK(device_sync(b->m->dev));
    for (int i = 0; i < b->n; i++) {
        if (kind == BATCH_PICKED) picked_close(&b->picked[i]);
        decoder_state_free(b->state[i]);
        if (b->retriever[i]) b->retriever[i]->free(b->retriever[i]);
        sampler_free(b->sampler[i]);
        device_release_host(b->m->dev, b->logits[i]);
    }
}

static void batch_sample(void *context, int64_t begin, int64_t end, int worker) {
    struct batch *b = context;
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        b->next[i] = sampler_pick(b->sampler[i], b->logits[i]);
}

static void batch_round(struct batch *b, int kind) {
    struct decoder_state *states[DECODER_BATCH_MAX];
    float *logits[DECODER_BATCH_MAX];
    int32_t ids[DECODER_BATCH_MAX];
    int in = 0;
    const bool alone = b->n == 1 && !b->m->dev->shares_memory; /* as generation_batch does it */
    if (kind == BATCH_PICKED && alone) picked_next(&b->picked[0]);
    if (kind == BATCH_PICKED && !alone) picked_batch(b->picked, b->n);
    if (kind == BATCH_PICKED) return;
    for (int i = 0; i < b->n; i++)
        if (kind != BATCH_APART && !alone && decoder_batch_takes(b->state[i]))
            states[in] = b->state[i], logits[in] = b->logits[i], ids[in++] = b->next[i];
        else
            CHECK_OK(decoder_forward(b->state[i], &(struct decoder_output){.logits = b->logits[i]}, &b->next[i], 1));
    if (in > 0) CHECK_OK(decoder_batch_forward(states, logits, ids, in));
    b->fed += in;
    if (kind == BATCH_SAMPLED) threads_for(b->samplers, b->n, 1, batch_sample, b);
}

static void batch_run(struct batch *b, const struct options *o, int64_t prompt, const char *what) {
    static const char *const names[BATCH_KINDS] = {"one by one", "together", "together and sampled",
                                                   "together and picked on the GPU"};
    double rate[BATCH_KINDS] = {0}, *took = malloc((size_t)o->tokens * sizeof *took);
    CHECK(took);
    printf("batch,%s,%d texts after %lld ids", what, b->n, (long long)prompt);
    const int kinds = b->m->dev->shares_memory ? BATCH_PICKED : BATCH_KINDS;
    for (int kind = 0; kind < kinds; kind++) {
        batch_begin(b, prompt, kind);
        for (int i = 0; i < 4; i++) /* kernels are recorded with their second use */
            batch_round(b, kind);
        b->fed = 0;
        const double start = clock_seconds();
        for (int64_t i = 0; i < o->tokens; i++) {
            const double before = clock_seconds();
            batch_round(b, kind);
            took[i] = clock_seconds() - before;
        }
        rate[kind] = (double)o->tokens * b->n / (clock_seconds() - start);
        result_figure(&(struct figure){.unit = "us", .values = took, .count = o->tokens, .scale = 1e6},
                      "a token of each of %d texts after %lld ids, %s, %s", b->n, (long long)prompt, names[kind], what);
        qsort(took, (size_t)o->tokens, sizeof *took, compare);
        printf(",%s %.0f tokens/s (%.1f us median %.1f best)", names[kind], rate[kind], took[o->tokens / 2] * 1e6,
               took[0] * 1e6);
        fflush(stdout);
        batch_end(b, kind);
    }
    printf(",%.2f times,%.0f %% in batches\n", rate[BATCH_TOGETHER] / rate[BATCH_APART],
           100.0 * b->fed / (double)(o->tokens * b->n));
    result_value("tokens/s", rate[BATCH_SAMPLED], "%d texts after %lld ids, %s, sampled", b->n, (long long)prompt,
                 what);
    if (!b->m->dev->shares_memory)
        result_value("tokens/s", rate[BATCH_PICKED], "%d texts after %lld ids, %s, picked on the GPU", b->n,
                     (long long)prompt, what);
    free(took);
}

static void batch_runs(const struct model *m, struct decoder *d, struct encoder *e, const struct options *o,
                       const char *what) {
    struct batch *b = calloc(1, sizeof *b);
    const int processors = threads_count(m->dev->threads);
    CHECK(b);
    b->m = m, b->decoder = d, b->encoder = e;
    CHECK_OK(threads_create(&b->samplers, processors < 16 ? processors : 16));
    for (const char *at = o->batch; *at; at += *at == ',') {
        char *end;
        b->n = (int)strtol(at, &end, 10);
        CHECK(end > at && b->n >= 1 && b->n <= DECODER_BATCH_MAX);
        at = end;
        batch_run(b, o, 100, what);
        batch_run(b, o, 1000, what);
    }
    threads_free(b->samplers);
    free(b);
}

/* rate 0: prefill; below: batches. options.picked: only the ids that the GPU picks. */
static void decode_base(struct device *dev, const struct options *o, double rate) {
    struct model m;
    struct decoder *d;
    make(&m, dev, o,
         "{\"vocab_size\": 50265, \"hidden_size\": 768, \"intermediate_size\": 2048, \"num_attention_heads\": 12, "
         "\"decoder_layers\": [12], \"slide_window\": 512, \"rms_norm_eps\": 1e-5}");
    CHECK_OK(decoder_create(&d, dev, &m.config, &m.weights, 0));
    if (rate > 0) {
        if (!o->picked) decode_run(&m, o, d, "warm-up", NULL, 16, rate);
        if (!o->picked) decode_run(&m, o, d, "base", NULL, 16, rate);
        if (!dev->shares_memory) decode_picked(&m, o, d, "base", NULL, rate);
    } else if (rate < 0) {
        batch_runs(&m, d, NULL, o, "base");
    } else {
        prefill_run(&m, d, NULL, "base");
    }
    decoder_free(d);
    drop(&m);
}

static void decode_drt(struct device *dev, const struct options *o, double rate) {
    struct model m;
    struct decoder *d;
    struct encoder *e;
    struct retriever *r;
    make(&m, dev, o,
         "{\"vocab_size\": 50265, \"hidden_size\": 768, \"intermediate_size\": 2048, \"num_attention_heads\": 12, "
         "\"decoder_layers\": [6, 6], \"encoder_layers\": 2, \"enc_chunk_size\": 63, \"chunk_topk\": 8, "
         "\"slide_window\": 512, \"rms_norm_eps\": 1e-5, \"chunk_id\": 50264, \"mask_id\": 50263, \"pad_id\": 50262, "
         "\"encoder_input\": \"tokens\"}");
    CHECK_OK(decoder_create(&d, dev, &m.config, &m.weights, 0));
    CHECK_OK(encoder_create(&e, dev, &m.config, &m.weights, 256));
    if (rate > 0)
        decode_run(&m, o, d, "drt without retrieval", NULL, 16, rate);
    else if (rate < 0)
        batch_runs(&m, d, e, o, "drt own past");
    else
        prefill_run(&m, d, e, "drt own past");
    static const char *const names[] = {"warm-up", "drt own past", "drt own past, few slots"};
    for (int i = 0; rate > 0 && i < 3; i++) {
        struct chunk_retriever_config how = {.device = dev,
                                             .model = &m.config,
                                             .encoder = e,
                                             .own_past = true,
                                             .exclude_document = -1,
                                             .max_queries = i == 2 ? 1 : 0,
                                             .cache_chunks = i == 2 ? 1 : 0};
        CHECK_OK(chunk_retriever_create(&r, &how));
        decode_run(&m, o, d, names[i], r, i == 2 ? 64 : 16, rate);
        if (i == 1 && !dev->shares_memory) decode_picked(&m, o, d, names[i], r, rate);
        r->free(r);
    }
    encoder_free(e);
    decoder_free(d);
    drop(&m);
}

static void encode(struct device *dev, const struct options *o, int hidden, int ffn) {
    struct model m;
    struct encoder *e;
    char text[600];
    snprintf(text, sizeof text,
             "{\"vocab_size\": 50265, \"hidden_size\": %d, \"intermediate_size\": %d, \"num_attention_heads\": %d, "
             "\"decoder_layers\": [1, 1], \"encoder_layers\": 2, \"enc_chunk_size\": 63, \"chunk_topk\": 8, "
             "\"slide_window\": 512, \"chunk_id\": 50264, \"pad_id\": 50262, \"rms_norm_eps\": 1e-5, "
             "\"encoder_input\": \"tokens\", \"retrieval_proj\": true}",
             hidden, ffn, hidden / 64);
    make(&m, dev, o, text);
    CHECK_OK(encoder_create(&e, dev, &m.config, &m.weights, 0));
    int64_t n = o->chunks, d = hidden;
    int32_t *ids = malloc((size_t)(n * 63) * sizeof *ids);
    const size_t bytes = (size_t)(n * d) * sizeof(float);
    struct device_pair landmarks = {0};
    CHECK(ids);
    CHECK_OK(device_pair_allocate(dev, &landmarks, bytes));
    struct rng rng = rng_make(4, 0);
    for (int64_t i = 0; i < n * 63; i++)
        ids[i] = (int32_t)rng_below(&rng, 50000);
    struct encoder_output out = {.landmarks = landmarks.device};
    double best = 1e30, best_alone = 1e30;
    struct samples times = {0};
    for (int i = 0; i < 8; i++) {
        double start = clock_seconds();
        encoder_encode(e, &out, ids, n);
        CHECK_OK(device_sync(dev));
        double encoded = clock_seconds();
        device_pair_download(dev, &landmarks, bytes);
        CHECK_OK(device_sync(dev));
        double took = clock_seconds() - start;
        best = took < best ? took : best;
        if (i > 0) samples_add(&times, took); /* the first warms up */
        best_alone = encoded - start < best_alone ? encoded - start : best_alone;
    }
    printf("encode,d %d,f %d,%lld chunks,%.0f chunks/s,%.2f M tokens/s,%.2f M without the download\n", hidden, ffn,
           (long long)n, (double)n / best, (double)n * 64e-6 / best, (double)n * 64e-6 / best_alone);
    fflush(stdout);
    struct figure f = {
        .unit = "M tokens/s", .values = times.at, .count = times.count, .work = (double)n * 64e-6, .scale = 1};
    result_figure(&f, "encoder, 2 layers, d %d", hidden);
    samples_free(&times);
    encoder_free(e);
    drop(&m);
    device_pair_release(dev, &landmarks);
    free(ids);
}

int main(int argc, char **argv) {
    struct options o = {.device = "cpu", .batch = "1,8,32", .tokens = 252, .chunks = 0};
    bool typed = false;
    int first = 1;
    result_begin("bench_device", &argc, argv);
    for (; first + 1 < argc && strncmp(argv[first], "--", 2) == 0; first += 2) {
        const char *value = argv[first + 1];
        if (strcmp(argv[first], "--device") == 0) o.device = value;
        if (strcmp(argv[first], "--batch") == 0) o.batch = value;
        if (strcmp(argv[first], "--dtype") == 0)
            o.type = strcmp(value, "bf16") == 0 ? DTYPE_BF16 : DTYPE_F32, o.i8 = strcmp(value, "i8") == 0,
            typed = !o.i8;
        if (strcmp(argv[first], "--tokens") == 0) o.tokens = strtoll(value, NULL, 10);
        if (strcmp(argv[first], "--chunks") == 0) o.chunks = strtoll(value, NULL, 10);
    }
    if (first >= argc || o.tokens < 1) {
        fprintf(stderr, "usage: bench_device [--device cpu|cuda] [--dtype f32|bf16|i8] [--tokens N] [--chunks N] "
                        "[--batch N,N,...] [--json FILE] decode|batch|prefill|encode...\n");
        return 2;
    }
    struct device *dev;
    enum status status = device_open(&dev, o.device, 0);
    if (status == STATUS_UNSUPPORTED) test_skip(status_message());
    CHECK_OK(status);
    if (!typed) o.type = dev->shares_memory ? DTYPE_F32 : DTYPE_BF16;
    if (o.chunks == 0) o.chunks = dev->shares_memory ? 32 : 16384;
    double rate = copy_rate(dev);
    if (!dev->shares_memory) result_gpu(NULL);
    result_value("TB/s", rate * 1e-12, "copy, read and written");
    printf("# device %s, %s, a copy moves %.2f TB/s\n", dev->name,
           o.i8                  ? "8-bit weights"
           : o.type == DTYPE_F32 ? "float32"
                                 : "bf16",
           rate * 1e-12);
    for (int i = first; i < argc; i++) {
        if (strcmp(argv[i], "decode") == 0) {
            decode_base(dev, &o, rate);
            decode_drt(dev, &o, rate);
        } else if (strcmp(argv[i], "picked") == 0) {
            o.picked = true;
            decode_base(dev, &o, rate);
            o.picked = false;
        } else if (strcmp(argv[i], "batch") == 0) {
            decode_base(dev, &o, -1);
            decode_drt(dev, &o, -1);
        } else if (strcmp(argv[i], "prefill") == 0) {
            decode_base(dev, &o, 0);
            decode_drt(dev, &o, 0);
        } else {
            encode(dev, &o, 768, 2048);
            encode(dev, &o, 1024, 2816);
        }
    }
    CHECK_OK(device_sync(dev));
    device_close(dev);
    result_end();
    return 0;
}
