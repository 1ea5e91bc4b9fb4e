/* bench_token.c -- the time of an id without retrieval on a CPU, by type of the weights, against one plain read of the
 * bytes of weights that it reads.
 *
 *   bench_token MODEL [ROUNDS [TOKENS [PROMPT [TYPES]]]] [--json FILE]
 *
 * TYPES is a list of auto, f32, i8 (default: auto,i8). Each has its own engine. A round decodes TOKENS ids (64) of a
 * text of PROMPT ids (512) with each, in turns, and reads a block of the weights' size once with each of the same
 * threads. So other programs disturb all types alike. The read is a loop of vector loads of 64 bytes, prefetched as a
 * product's weights are.
 *
 * CSV, a row a type: least and median of the rounds' means; the median of its parts; the weights' megabytes, least and
 * median of a read of them, and the share that this read has of an id (least over least, median over median). */
#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "kernels/linear/matmul.h"
#include "session/engine.h"
#include "tests/bench/result.h"
#include "tests/test.h"

enum { TYPES_MAX = 4, LANE_BYTES = 64, STREAMS = 4, AHEAD = 8192 };

struct typed_model {
    char type[8];
    struct engine engine;
    struct decoder_state *state;
    float *logits;
    unsigned char *block; /* as large as the weights */
    int64_t bytes, at;
    struct samples all, layers, head, read;
};

struct stream {
    const unsigned char *data;
    int64_t *sums;
};

static void sum_range(void *context, int64_t begin, int64_t end, int worker) {
    typedef int64_t lanes __attribute__((vector_size(LANE_BYTES), aligned(8), may_alias));
    const struct stream *s = context;
    lanes sum[STREAMS] = {0};
    for (int64_t i = begin; i < end; i++)
        for (int j = 0; j < STREAMS; j++) {
            const unsigned char *p = s->data + (i * STREAMS + j) * LANE_BYTES;
            __builtin_prefetch(p + AHEAD, 0, 3);
            sum[j] += *(const lanes *)(const void *)p;
        }
    sum[0] += sum[1] + sum[2] + sum[3];
    for (int i = 0; i < 8; i++)
        s->sums[worker * 8] += sum[0][i];
}

static double read_once(struct typed_model *m) {
    int64_t sums[THREADS_MAX * 8] = {0}, n = m->bytes / (STREAMS * LANE_BYTES);
    struct threads *threads = m->engine.device->threads;
    const double start = clock_seconds();
    threads_for(threads, n, n / (8 * (int64_t)threads_count(threads)) + 1, sum_range, &(struct stream){m->block, sums});
    const double end = clock_seconds();
    CHECK(sums[0] != 1);
    return end - start;
}

/* What an id reads: every matrix once, in the type in which products of one row read it. */
static int64_t weight_bytes(const struct engine *e) {
    int64_t bytes = 0;
    for (int i = 0; i < params_count(e->model.params); i++) {
        const struct param *p = params_at(e->model.params, i);
        if (!decoder_reads(p->name) || p->rows == 1) continue;
        const bool i8 = e->weights.i8 && decoder_rounds(p->name);
        bytes += i8 ? matmul_i8_bytes(p->rows, p->cols) : p->rows * p->cols * (e->weights.narrow ? 2 : 4);
    }
    return bytes;
}

static void typed_model_open(struct typed_model *m, const char *type, const char *model, const int32_t *ids,
                             int64_t prompt) {
    snprintf(m->type, sizeof m->type, "%s", type);
    CHECK_OK(engine_open(&m->engine,
                         &(struct engine_config){.model = model, .where = {"cpu", m->type, NULL}, .decoding = true}));
    m->bytes = weight_bytes(&m->engine);
    m->logits = malloc((size_t)m->engine.model.config.vocab_size * sizeof *m->logits);
    CHECK_OK(device_allocate(m->engine.device, &m->block, m->bytes + AHEAD));
    memset(m->block, 1, (size_t)m->bytes);
    CHECK_OK(decoder_state_create(&m->state, m->engine.decoder, NULL));
    for (int64_t n; m->at < prompt; m->at += n) {
        n = prompt - m->at < engine_pass(&m->engine) ? prompt - m->at : engine_pass(&m->engine);
        CHECK_OK(decoder_forward(m->state, &(struct decoder_output){.logits = m->logits}, ids + m->at, n));
    }
}

static void typed_model_round(struct typed_model *m, const int32_t *ids, int64_t tokens) {
    const struct decoder_output out = {.logits = m->logits};
    decoder_state_times(m->state, true);
    const double start = clock_seconds();
    for (int64_t i = 0; i < tokens; i++)
        CHECK_OK(decoder_forward(m->state, &out, ids + m->at++, 1));
    samples_add(&m->all, (clock_seconds() - start) / (double)tokens);
    const struct decoder_times t = decoder_state_times(m->state, true);
    samples_add(&m->layers, t.layers / (double)tokens);
    samples_add(&m->head, t.head / (double)tokens);
    read_once(m);
    samples_add(&m->read, read_once(m));
}

static double ms(const struct samples *s, double q) {
    return 1e3 * samples_quantile(s->at, s->count, q);
}

static void typed_model_report(struct typed_model *m) {
    const double read = ms(&m->read, 0.5), all = ms(&m->all, 0.5);
    printf("%s,%.3f,%.3f,%.3f,%.3f,%.1f,%.3f,%.3f,%.2f,%.2f\n", m->type, ms(&m->all, 0), all, ms(&m->layers, 0.5),
           ms(&m->head, 0.5), (double)m->bytes * 1e-6, ms(&m->read, 0), read, ms(&m->read, 0) / ms(&m->all, 0),
           read / all);
    result_figure(&(struct figure){.unit = "ms",
                                   .values = m->all.at,
                                   .count = m->all.count,
                                   .scale = 1e3,
                                   .peer = "weights read once",
                                   .ratio = read / all},
                  "token, weights %s", m->type);
}

static void typed_model_close(struct typed_model *m) {
    decoder_state_free(m->state);
    device_release(m->engine.device, m->block);
    free(m->logits);
    samples_free(&m->all), samples_free(&m->layers), samples_free(&m->head), samples_free(&m->read);
    engine_close(&m->engine);
}

int main(int argc, char **argv) {
    result_begin("bench_token", &argc, argv);
    if (argc < 2 || argc > 6) {
        fprintf(stderr, "usage: bench_token MODEL [ROUNDS [TOKENS [PROMPT [TYPES]]]] [--json FILE]\n");
        return 2;
    }
    const int64_t rounds = argc > 2 ? strtoll(argv[2], NULL, 10) : 10,
                  tokens = argc > 3 ? strtoll(argv[3], NULL, 10) : 64;
    const int64_t prompt = argc > 4 ? strtoll(argv[4], NULL, 10) : 512, n = prompt + (rounds + 1) * tokens;
    char types[64];
    snprintf(types, sizeof types, "%s", argc > 5 ? argv[5] : "auto,i8");
    CHECK(rounds > 0 && tokens > 0 && prompt > 0);
    static struct typed_model models[TYPES_MAX];
    int count = 0;
    int32_t *ids = calloc((size_t)n, sizeof *ids);
    struct rng rng = rng_make(1, 0);
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)rng_below(&rng, 8000);
    for (char *rest = types, *type; count < TYPES_MAX && (type = strtok_r(rest, ",", &rest));)
        typed_model_open(&models[count++], type, argv[1], ids, prompt);
    for (int i = 0; i < count; i++)
        CHECK(models[i].engine.model.config.vocab_size >= 8000);
    for (int64_t r = 0; r <= rounds; r++)
        for (int i = 0; i < count; i++) {
            typed_model_round(&models[i], ids, tokens);
            if (r == 0) models[i].all.count = models[i].layers.count = models[i].head.count = models[i].read.count = 0;
        }
    printf("# %d threads, %lld rounds of %lld ids after %lld\n", threads_count(models[0].engine.device->threads),
           (long long)rounds, (long long)tokens, (long long)prompt);
    printf("weights,ms least,median,layers,head,MB,read least,read median,share least,share median\n");
    for (int i = 0; i < count; i++) {
        typed_model_report(&models[i]);
        typed_model_close(&models[i]);
    }
    free(ids);
    result_end();
    return 0;
}
