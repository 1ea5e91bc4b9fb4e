/* bench_sampler.c -- microseconds of one core for what follows the logits of a token: the pick under each setting, and
 * log-probabilities.
 *
 *   bench_sampler [PICKS] [--json FILE]
 *
 * CSV, a row for each vocabulary, shape of the logits and case: vocab, logits, case, median, quartiles and best of
 * PICKS calls (2000 unless given). The logits are those of a language model in three shapes: a normal distribution on
 * top of Zipf's law, where smaller ids are more frequent. `peaked`: 95 % of the probability on some ten ids; `broad`:
 * on some hundreds; `flat`: on a third of the vocabulary, as in a model that was not trained. ROWS vectors take turns,
 * so that branches are not learnt. `copy` is memcpy of the logits, for comparison. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "session/generation_internal.h"
#include "tests/bench/result.h"
#include "tests/test.h"

enum { ROWS = 4 };
enum measured { PICK, LOGPROB, LOGPROB_TOP, COPY };

static const struct shape {
    const char *name;
    double deviation, likely; /* of the noise; added to some twenty ids */
} shapes[] = {{"peaked", 2, 13}, {"broad", 2.2, 0}, {"flat", 0.5, 0}};

static const struct bench_case {
    const char *name;
    enum measured measured;
    struct sampler_config config;
} cases[] = {
    {"copy", COPY, {.top_p = 1}},
    {"greedy", PICK, {.top_p = 1}},
    {"temperature 0.8", PICK, {.temperature = 0.8F, .top_p = 1}},
    {"top-k 40", PICK, {.temperature = 0.8F, .top_k = 40, .top_p = 1}},
    {"top-p 0.95", PICK, {.temperature = 0.8F, .top_p = 0.95F}},
    {"min-p 0.05", PICK, {.temperature = 0.8F, .top_p = 1, .min_p = 0.05F}},
    {"top-k 40 top-p 0.95 min-p 0.05", PICK, {.temperature = 0.8F, .top_k = 40, .top_p = 0.95F, .min_p = 0.05F}},
    {"top-k 2000 top-p 0.95", PICK, {.temperature = 0.8F, .top_k = 2000, .top_p = 0.95F}},
    {"top-p 0.95 repeat-penalty 1.1",
     PICK,
     {.temperature = 0.8F, .top_p = 0.95F, .repeat_penalty = 1.1F, .repeat_last = 64}},
    {"greedy repeat-penalty 1.1", PICK, {.top_p = 1, .repeat_penalty = 1.1F, .repeat_last = 64}},
    {"log-probability", LOGPROB, {.top_p = 1}},
    {"log-probability, top 5", LOGPROB_TOP, {.top_p = 1}},
};

static void make_logits(float *out, int vocab, const struct shape *shape, uint64_t seed) {
    struct rng rng = rng_make(seed, 0);
    for (int i = 0; i < vocab; i++) {
        double zipf = shape->deviation > 1 ? -log(i + 50.0) : -0.3 * log(i + 50.0);
        out[i] = (float)(zipf + shape->deviation * (double)rng_normal(&rng));
    }
    for (int i = 0; i < 20; i++)
        out[rng_below(&rng, (uint64_t)vocab)] += (float)(shape->likely * (1 - i / 40.0));
}

/* How many of the best ids share 95 % of the probability at temperature 0.8. */
static int nucleus(const float *logits, int vocab, float *scratch) {
    double total = 0, sum = 0;
    for (int i = 0; i < vocab; i++) {
        scratch[i] = expf(logits[i] / 0.8F);
        total += (double)scratch[i];
    }
    int n = 0;
    for (float least = 1e9F; sum < 0.95 * total; least *= 0.98F) {
        sum = 0, n = 0;
        for (int i = 0; i < vocab; i++)
            if (scratch[i] >= least) sum += (double)scratch[i], n++;
    }
    return n;
}

struct bench {
    const struct bench_case *c;
    struct sampler *sampler;
    struct logit_scan scan;
    float *rows[ROWS], *copy;
    int vocab;
    int64_t sum; /* of the results, so that none is left out */
};

static void bench_call(struct bench *b, const float *logits) {
    struct generation_alternative top[5];
    float largest = 0;
    switch (b->c->measured) {
    case PICK:
        b->sum += sampler_pick(b->sampler, logits);
        break;
    case LOGPROB:
        b->sum += generation_normaliser(&b->scan, logits, &largest) > 2;
        break;
    case LOGPROB_TOP:
        generation_alternatives(top, 5, &b->scan, log(generation_normaliser(&b->scan, logits, &largest)));
        b->sum += top[4].id;
        break;
    case COPY:
        memcpy(b->copy, logits, (size_t)b->vocab * sizeof *logits);
        b->sum += b->copy[b->vocab - 1] > 0;
        break;
    }
}

static void bench_run(struct bench *b, const char *shape, int64_t picks) {
    struct samples took = {0};
    for (int64_t i = -picks / 10; i < picks; i++) {
        const float *logits = b->rows[(i + picks) % ROWS];
        double start = clock_seconds();
        bench_call(b, logits);
        double now = clock_seconds();
        if (i >= 0) samples_add(&took, 1e6 * (now - start));
    }
    printf("%d,%s,\"%s\",%.2f,%.2f,%.2f,%.2f\n", b->vocab, shape, b->c->name,
           samples_quantile(took.at, took.count, 0.5), samples_quantile(took.at, took.count, 0.25),
           samples_quantile(took.at, took.count, 0.75), samples_quantile(took.at, took.count, 0));
    result_figure(&(struct figure){.unit = "us", .values = took.at, .count = took.count}, "%s, %s logits of %d ids",
                  b->c->name, shape, b->vocab);
    samples_free(&took);
}

static void bench_vocabulary(int vocab, int64_t picks) {
    struct bench b = {.vocab = vocab};
    CHECK_OK(logit_scan_create(&b.scan, vocab));
    CHECK_OK(memory_allocate_aligned(&b.copy, (size_t)vocab));
    for (int row = 0; row < ROWS; row++)
        CHECK_OK(memory_allocate_aligned(&b.rows[row], (size_t)vocab));
    for (size_t shape = 0; shape < ARRAY_LEN(shapes); shape++) {
        for (int row = 0; row < ROWS; row++)
            make_logits(b.rows[row], vocab, &shapes[shape], (uint64_t)row + 1);
        printf("# %d ids, %s: 95 %% of the probability is of %d ids\n", vocab, shapes[shape].name,
               nucleus(b.rows[0], vocab, b.copy));
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
            struct sampler_config config = cases[i].config;
            b.c = &cases[i];
            b.sampler = NULL;
            if (b.c->measured == PICK) CHECK_OK(sampler_create(&b.sampler, &config, vocab));
            bench_run(&b, shapes[shape].name, picks);
            sampler_free(b.sampler);
        }
    }
    for (int row = 0; row < ROWS; row++)
        memory_free(b.rows[row]);
    memory_free(b.copy);
    logit_scan_release(&b.scan);
    fprintf(stderr, "# sum of results %lld\n", (long long)b.sum);
}

int main(int argc, char **argv) {
    result_begin("bench_sampler", &argc, argv);
    int64_t picks = argc > 1 ? strtoll(argv[1], NULL, 10) : 2000;
    if (argc > 2 || picks < 10) {
        fprintf(stderr, "usage: bench_sampler [PICKS, at least 10] [--json FILE]\n");
        return 2;
    }
    printf("vocab,logits,case,us_median,us_q1,us_q3,us_best\n");
    bench_vocabulary(16384, picks);
    bench_vocabulary(50265, picks);
    result_end();
    return 0;
}
