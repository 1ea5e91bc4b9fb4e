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

struct lane {
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

static double read_once(struct lane *l) {
    int64_t sums[THREADS_MAX * 8] = {0}, n = l->bytes / (STREAMS * LANE_BYTES);
    struct threads *threads = l->engine.device->threads;
    const double start = clock_seconds();
    threads_for(threads, n, n / (8 * (int64_t)threads_count(threads)) + 1, sum_range, &(struct stream){l->block, sums});
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

static void lane_open(struct lane *l, const char *type, const char *model, const int32_t *ids, int64_t prompt) {
    snprintf(l->type, sizeof l->type, "%s", type);
    CHECK_OK(engine_open(&l->engine,
                         &(struct engine_config){.model = model, .where = {"cpu", l->type, NULL}, .decoding = true}));
    l->bytes = weight_bytes(&l->engine);
    l->logits = malloc((size_t)l->engine.model.config.vocab_size * sizeof *l->logits);
    CHECK_OK(device_allocate(l->engine.device, &l->block, l->bytes + AHEAD));
    memset(l->block, 1, (size_t)l->bytes);
    CHECK_OK(decoder_state_create(&l->state, l->engine.decoder, NULL));
    for (int64_t n; l->at < prompt; l->at += n) {
        n = prompt - l->at < engine_pass(&l->engine) ? prompt - l->at : engine_pass(&l->engine);
        CHECK_OK(decoder_forward(l->state, &(struct decoder_output){.logits = l->logits}, ids + l->at, n));
    }
}

static void lane_round(struct lane *l, const int32_t *ids, int64_t tokens) {
    const struct decoder_output out = {.logits = l->logits};
    decoder_state_times(l->state, true);
    const double start = clock_seconds();
    for (int64_t i = 0; i < tokens; i++)
        CHECK_OK(decoder_forward(l->state, &out, ids + l->at++, 1));
    samples_add(&l->all, (clock_seconds() - start) / (double)tokens);
    const struct decoder_times t = decoder_state_times(l->state, true);
    samples_add(&l->layers, t.layers / (double)tokens);
    samples_add(&l->head, t.head / (double)tokens);
    read_once(l);
    samples_add(&l->read, read_once(l));
}

static double ms(const struct samples *s, double q) {
    return 1e3 * samples_quantile(s->at, s->count, q);
}

static void lane_report(struct lane *l) {
    const double read = ms(&l->read, 0.5), all = ms(&l->all, 0.5);
    printf("%s,%.3f,%.3f,%.3f,%.3f,%.1f,%.3f,%.3f,%.2f,%.2f\n", l->type, ms(&l->all, 0), all, ms(&l->layers, 0.5),
           ms(&l->head, 0.5), (double)l->bytes * 1e-6, ms(&l->read, 0), read, ms(&l->read, 0) / ms(&l->all, 0),
           read / all);
    result_figure(&(struct figure){.unit = "ms",
                                   .values = l->all.at,
                                   .count = l->all.count,
                                   .scale = 1e3,
                                   .peer = "weights read once",
                                   .ratio = read / all},
                  "token, weights %s", l->type);
}

static void lane_close(struct lane *l) {
    decoder_state_free(l->state);
    device_release(l->engine.device, l->block);
    free(l->logits);
    samples_free(&l->all), samples_free(&l->layers), samples_free(&l->head), samples_free(&l->read);
    engine_close(&l->engine);
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
    static struct lane lanes[TYPES_MAX];
    int count = 0;
    int32_t *ids = calloc((size_t)n, sizeof *ids);
    struct rng rng = rng_make(1, 0);
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)rng_below(&rng, 8000);
    for (char *rest = types, *type; count < TYPES_MAX && (type = strtok_r(rest, ",", &rest));)
        lane_open(&lanes[count++], type, argv[1], ids, prompt);
    for (int i = 0; i < count; i++)
        CHECK(lanes[i].engine.model.config.vocab_size >= 8000);
    for (int64_t r = 0; r <= rounds; r++)
        for (int i = 0; i < count; i++) {
            lane_round(&lanes[i], ids, tokens);
            if (r == 0) lanes[i].all.count = lanes[i].layers.count = lanes[i].head.count = lanes[i].read.count = 0;
        }
    printf("# %d threads, %lld rounds of %lld ids after %lld\n", threads_count(lanes[0].engine.device->threads),
           (long long)rounds, (long long)tokens, (long long)prompt);
    printf("weights,ms least,median,layers,head,MB,read least,read median,share least,share median\n");
    for (int i = 0; i < count; i++) {
        lane_report(&lanes[i]);
        lane_close(&lanes[i]);
    }
    free(ids);
    result_end();
    return 0;
}
