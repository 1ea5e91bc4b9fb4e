/* test_memory_fit.c -- temperatures and gates are fitted to samples with a known solution: the gate opens if the memory
 * has the token, closes for random chunks, and counts files equally; samples are read back as written. */
#include "base/rng.h"
#include "tests/test.h"
#include "tools/memory/memory_fit.h"
#include <string.h>

enum { N = 2400, FILES = 2, DOCUMENTS = 12, BEST_TAU = 2 };
static const struct memory_fit_config own = {.kind = MEMORY_OWN_PAST, .reads = {MEMORY_READ_PAST}};
static const struct memory_fit_config corpus = {.kind = MEMORY_CORPUS, .reads = {[MEMORY_CORPUS] = MEMORY_READ_FOUND}};
static const struct memory_fit_config closing = {.kind = MEMORY_CORPUS,
                                                 .reads = {[MEMORY_CORPUS] = MEMORY_READ_FOUND},
                                                 .negative = {MEMORY_READ_RANDOM},
                                                 .negatives = 1};
static const struct memory_fit_config closing_on_both = {.kind = MEMORY_CORPUS,
                                                         .reads = {[MEMORY_CORPUS] = MEMORY_READ_FOUND},
                                                         .negative = {MEMORY_READ_RANDOM, MEMORY_READ_OTHER},
                                                         .negatives = 2};
static const struct memory_fit_config other_of = {.kind = MEMORY_CORPUS,
                                                  .reads = {[MEMORY_CORPUS] = MEMORY_READ_OTHER}};
static const struct memory_fit_config random_of = {.kind = MEMORY_CORPUS,
                                                   .reads = {[MEMORY_CORPUS] = MEMORY_READ_RANDOM}};
static bool use[DOCUMENTS];
static int file[DOCUMENTS];

/* A memory of make_samples: whether it has the token, and at which distance. */
static void fill(struct memory_sample_columns *of, int64_t i, bool knows, double nearest, double best) {
    of->mark[MEMORY_ENTRIES][i] = 8;
    of->mark[MEMORY_NEAREST][i] = (float)nearest;
    of->mark[MEMORY_BEST][i] = (float)best;
    of->mark[MEMORY_KTH][i] = of->mark[MEMORY_MEAN][i] = 0;
    for (int t = 0; t < MEMORY_TAUS; t++) {
        float *const *column = of->column[t];
        column[MEMORY_LOG_P][i] = knows ? logf(0.9F - 0.1F * fabsf((float)t - BEST_TAU)) : -INFINITY;
        column[MEMORY_LSE][i] = (float)(-nearest / memory_taus[t]);
        column[MEMORY_SQUARES][i] = 0.5F;
        column[MEMORY_TOP][i] = -0.1F;
        column[MEMORY_OF_TOP][i] = -3;
        column[MEMORY_LM_OF_TOP][i] = -3;
        column[MEMORY_TOKEN][i] = 7;
    }
}

/* The model gives 0.1 to every token. Half of the time the memories find a near entry and give the token 0.9 (at the
 * best temperature); else they do not have it. Random chunks look as near, never have the token, and have low
 * scores. */
static void make_samples(struct memory_samples *s) {
    struct rng rng = rng_make(4, 0);
    *s = (struct memory_samples){
        .has = {[MEMORY_READ_PAST] = true, [MEMORY_READ_FOUND] = true, [MEMORY_READ_RANDOM] = true}};
    CHECK_OK(memory_samples_reserve(s, N));
    s->n = N;
    for (int64_t i = 0; i < N; i++) {
        bool near = rng_below(&rng, 2) == 0;
        double nearest = (near ? 1 : 5) + (double)rng_uniform(&rng);
        s->document[i] = (int32_t)(i * DOCUMENTS / N);
        s->log_lm[i] = logf(0.1F);
        s->entropy[i] = rng_uniform(&rng);
        s->largest[i] = -1 - rng_uniform(&rng);
        fill(&s->of[MEMORY_READ_PAST], i, near, nearest, 0);
        fill(&s->of[MEMORY_READ_FOUND], i, near, nearest, 3 + (double)rng_uniform(&rng));
        fill(&s->of[MEMORY_READ_RANDOM], i, false, nearest, (double)rng_uniform(&rng));
    }
    for (int d = 0; d < DOCUMENTS; d++) {
        use[d] = d % 2 == 0;
        file[d] = d < 2 ? 0 : 1;
    }
}

static const struct memory_part part = {use, file, DOCUMENTS, FILES};

/* Mean loss of the held-out documents. */
static double loss_of_others(const struct memory_mixture *m, const struct memory_samples *s,
                             const struct memory_fit_config *config) {
    double loss = 0;
    for (int64_t i = 0; i < N; i++)
        if (!use[s->document[i]]) loss -= memory_fit_mixed(m, s, config, i);
    return loss / (N / 2.0);
}

static void test_fit(void) {
    struct memory_samples s;
    struct memory_mixture alone, threaded, fixed = {.tau = {memory_taus[BEST_TAU]}};
    struct memory_fit_report report;
    struct threads *threads;
    make_samples(&s);
    CHECK_OK(threads_create(&threads, 3));
    CHECK_OK(memory_fit(&alone, &report, &s, &part, &own, NULL));
    CHECK_OK(memory_fit(&threaded, NULL, &s, &part, &own, threads));
    threads_free(threads);
    CHECK(memcmp(&alone, &threaded, sizeof alone) == 0);
    CHECK(alone.given && alone.tau[MEMORY_OWN_PAST] == memory_taus[BEST_TAU]);
    CHECK_EQ(report.tokens, N / 2);
    CHECK(report.penalty > 0);
    double least = INFINITY, best = -0.5 * log(0.9) - 0.5 * log(0.1); /* open if it helps, else closed */
    for (double weight = 0.05; weight < 1; weight += 0.05) {
        fixed.gate = memory_gate_fixed(MEMORY_OWN_PAST, weight);
        least = fmin(least, loss_of_others(&fixed, &s, &own));
    }
    CHECK(loss_of_others(&alone, &s, &own) < best + 0.03);
    CHECK(least > best + 0.1);
    memory_samples_free(&s);
}

/* The gate of the corpus reads the chunks' scores. Fitted also with random chunks, it closes for chunks with their
 * scores, and stays open for chunks with the scores of a search. */
static void test_closes_on_random(void) {
    struct memory_samples s;
    struct memory_mixture open, closed;
    const double none = -log(0.1);
    make_samples(&s);
    CHECK_OK(memory_fit(&open, NULL, &s, &part, &corpus, NULL));
    CHECK_OK(memory_fit(&closed, NULL, &s, &part, &closing, NULL));
    CHECK(loss_of_others(&open, &s, &random_of) > none + 0.5);
    CHECK(loss_of_others(&closed, &s, &random_of) < none + 0.02);
    CHECK(loss_of_others(&closed, &s, &corpus) < loss_of_others(&open, &s, &corpus) + 0.02);
    memory_samples_free(&s);
}

/* Chunks of a store of other text: high scores, but no near entry, and the wrong token. */
static void make_other(struct memory_samples *other, const struct memory_samples *s) {
    *other = (struct memory_samples){.has = {[MEMORY_READ_FOUND] = true}};
    CHECK_OK(memory_samples_reserve(other, N));
    other->n = N;
    for (int64_t i = 0; i < N; i++) {
        other->document[i] = s->document[i];
        other->log_lm[i] = s->log_lm[i];
        fill(&other->of[MEMORY_READ_FOUND], i, false, 4 + (double)s->entropy[i], 3.5);
    }
}

/* Random chunks have low scores: a gate that was fitted with them alone opens for the high scores of a store of other
 * text. Fitted with both, it closes for both, and stays open if a search finds a near entry. */
static void test_closes_on_other_text(void) {
    struct memory_samples s, other;
    struct memory_mixture open, closed;
    const double none = -log(0.1);
    make_samples(&s);
    for (int64_t i = 0; i < N; i++) /* near entries have the token as often as others: the scores decide */
        fill(&s.of[MEMORY_READ_FOUND], i, i % 4 != 0, 1 + 4 * (double)s.entropy[i], i % 4 != 0 ? 3 : 2.5);
    make_other(&other, &s);
    CHECK_OK(memory_samples_other(&s, &other, "kept"));
    CHECK(s.has[MEMORY_READ_OTHER] && !other.has[MEMORY_READ_FOUND]);
    CHECK_OK(memory_fit(&open, NULL, &s, &part, &closing, NULL));
    CHECK_OK(memory_fit(&closed, NULL, &s, &part, &closing_on_both, NULL));
    CHECK(loss_of_others(&open, &s, &other_of) > none + 0.2);
    CHECK(loss_of_others(&closed, &s, &other_of) < none + 0.03);
    CHECK(loss_of_others(&closed, &s, &random_of) < none + 0.03);
    CHECK(loss_of_others(&closed, &s, &corpus) < loss_of_others(&open, &s, &corpus) + 0.1);
    memory_samples_free(&other);
    memory_samples_free(&s);
    make_samples(&s);
    make_other(&other, &s);
    other.log_lm[N - 1] -= 1;
    CHECK_FAILS(memory_samples_other(&s, &other, "kept"), STATUS_MISMATCH, "kept: is of other texts");
    other.log_lm[N - 1] += 1;
    other.n--;
    CHECK_FAILS(memory_samples_other(&s, &other, "kept"), STATUS_MISMATCH, "kept: is of other texts");
    memory_samples_free(&other);
    memory_samples_free(&s);
}

/* The fitted part has one document of file 0, where the memory is always wrong, and five of file 1, where it is always
 * right. A fit that counts tokens would open the gate five times as far as one that counts files. */
static void test_files_count_the_same(void) {
    struct memory_samples s;
    struct memory_mixture m;
    make_samples(&s);
    for (int64_t i = 0; i < N; i++) {
        s.entropy[i] = s.largest[i] = 1;
        fill(&s.of[MEMORY_READ_PAST], i, false, 1, 0);
        for (int t = 0; t < MEMORY_TAUS; t++)
            if (file[s.document[i]] == 1) s.of[MEMORY_READ_PAST].column[t][MEMORY_LOG_P][i] = logf(0.3F);
    }
    CHECK_OK(memory_fit(&m, NULL, &s, &part, &own, NULL));
    double mixed = exp(memory_fit_mixed(&m, &s, &own, N - 1)), g = (mixed - 0.1) / 0.2;
    CHECK(fabs(g - 0.25) <= 0.02); /* the best of 0.5 log(1-g) + 0.5 log(0.1 + 0.2 g); by tokens: 0.75 */
    memory_samples_free(&s);
}

static void test_empty(void) {
    struct memory_samples s;
    struct memory_mixture m;
    make_samples(&s);
    memset(use, 0, sizeof use);
    CHECK_FAILS(memory_fit(&m, NULL, &s, &part, &own, NULL), STATUS_INVALID, "no token to fit");
    memory_samples_free(&s);
}

static void test_file(void) {
    char path[600];
    struct memory_samples s, back, both;
    struct safetensors *f;
    make_samples(&s);
    snprintf(path, sizeof path, "%s/samples", test_folder());
    CHECK_OK(memory_samples_save(&s, path, NULL, 0, "{\"setting\": \"x\"}"));
    CHECK_OK(safetensors_open(&f, path));
    CHECK_OK(memory_samples_load(&back, f));
    safetensors_close(f);
    CHECK(back.n == N && memcmp(back.has, s.has, sizeof s.has) == 0);
    CHECK(memcmp(back.document, s.document, N * sizeof *s.document) == 0);
    CHECK(memcmp(back.log_lm, s.log_lm, N * sizeof *s.log_lm) == 0);
    for (int r = 0; r < MEMORY_READS; r++)
        for (int t = 0; t < MEMORY_TAUS && s.has[r]; t++)
            for (int c = 0; c < MEMORY_COLUMNS; c++)
                CHECK(memcmp(back.of[r].column[t][c], s.of[r].column[t][c], N * sizeof(float)) == 0);
    s.of[MEMORY_READ_FOUND].column[4][MEMORY_TOP][77] = NAN;
    CHECK_OK(memory_samples_save(&s, path, NULL, 0, "{}"));
    CHECK_OK(safetensors_open(&f, path));
    CHECK_FAILS(memory_samples_load(&both, f), STATUS_INVALID, "number 77 of corpus.32.top is NaN");
    memory_samples_free(&both);
    safetensors_close(f);
    both = (struct memory_samples){0};
    CHECK_OK(memory_samples_append(&both, &s, 0));
    CHECK_OK(memory_samples_append(&both, &back, DOCUMENTS));
    CHECK(both.n == 2 * N && both.document[N] == DOCUMENTS + s.document[0] && both.entropy[N + 5] == s.entropy[5]);
    memory_samples_free(&s);
    memory_samples_free(&back);
    memory_samples_free(&both);
}

int main(void) {
    test_fit();
    test_closes_on_random();
    test_closes_on_other_text();
    test_files_count_the_same();
    test_empty();
    test_file();
    return 0;
}
