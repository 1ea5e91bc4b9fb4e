/* test_sampler.c -- greedy, filters, frequencies, seeds, and logits that are not numbers. */
#include "base/rng.h"
#include "decoder/logits/sampler.h"
#include "tests/test.h"

static struct sampler *make(struct sampler_config config, int vocab) {
    struct sampler *s;
    CHECK_OK(sampler_create(&s, &config, vocab));
    return s;
}

static void test_greedy(void) {
    float logits[] = {1, 5, 5, 2, 9};
    struct sampler *s = make((struct sampler_config){.top_p = 1}, 5);
    CHECK_EQ(sampler_pick(s, logits), 4);
    logits[4] = -3;
    CHECK_EQ(sampler_pick(s, logits), 1); /* of equal logits the smaller id */
    sampler_free(s);
    s = make((struct sampler_config){.top_p = 1, .banned = (int32_t[]){1, 2}, .n_banned = 2}, 5);
    CHECK_EQ(sampler_pick(s, logits), 3);
    sampler_free(s);
}

/* Compares the frequencies of many draws with the softmax over the ids that the filters keep; 5 standard deviations. */
static void check_shares(struct sampler_config config, const float *logits, const double *expected, int vocab) {
    enum { DRAWS = 40000 };
    struct sampler *s = make(config, vocab);
    int counts[64] = {0};
    for (int i = 0; i < DRAWS; i++) {
        int32_t id = sampler_pick(s, logits);
        CHECK(id >= 0 && id < vocab);
        counts[id]++;
    }
    for (int i = 0; i < vocab; i++) {
        double share = counts[i] / (double)DRAWS, deviation = sqrt(expected[i] * (1 - expected[i]) / DRAWS);
        if (expected[i] == 0) CHECK_EQ(counts[i], 0);
        CHECK(fabs(share - expected[i]) <= 5 * deviation);
    }
    sampler_free(s);
}

/* The softmax of logits / temperature over the ids that `keep` marks. */
static void softmax(double *out, const float *logits, const int *keep, int n, double temperature) {
    double sum = 0;
    for (int i = 0; i < n; i++) {
        out[i] = keep[i] ? exp((double)logits[i] / temperature) : 0;
        sum += out[i];
    }
    for (int i = 0; i < n; i++)
        out[i] /= sum;
}

static void test_shares(void) {
    static const float logits[] = {0.5F, 2, -1, 1.5F, 0, 1.5F, -4, 1};
    double expected[8];
    softmax(expected, logits, (int[]){1, 1, 1, 1, 1, 1, 1, 1}, 8, 1);
    check_shares((struct sampler_config){.temperature = 1, .top_p = 1, .seed = 3}, logits, expected, 8);
    softmax(expected, logits, (int[]){1, 1, 1, 1, 1, 1, 1, 1}, 8, 2.5);
    check_shares((struct sampler_config){.temperature = 2.5F, .top_p = 1, .seed = 4}, logits, expected, 8);
    softmax(expected, logits, (int[]){0, 1, 0, 1, 0, 0, 0, 0}, 8, 1); /* the tie at the edge goes to id 3 */
    check_shares((struct sampler_config){.temperature = 1, .top_k = 2, .top_p = 1, .seed = 5}, logits, expected, 8);
    softmax(expected, logits, (int[]){1, 0, 0, 1, 0, 1, 0, 1}, 8, 0.7); /* the next id replaces a banned one */
    check_shares(
        (struct sampler_config){
            .temperature = 0.7F, .top_k = 4, .top_p = 1, .seed = 6, .banned = (int32_t[]){1}, .n_banned = 1},
        logits, expected, 8);
    check_shares(
        (struct sampler_config){
            .temperature = 1, .top_k = 100, .top_p = 1, .seed = 7, .banned = (int32_t[]){0, 1, 2, 3}, .n_banned = 4},
        (float[]){9, 9, 9, 9, 0, 0, 0, 0}, (double[]){0, 0, 0, 0, 0.25, 0.25, 0.25, 0.25}, 8);
}

static void test_top_p(void) {
    /* shares .5 .3 .15 .05 */
    float logits[] = {logf(0.15F), logf(0.5F), logf(0.05F), logf(0.3F)};
    check_shares((struct sampler_config){.temperature = 1, .top_p = 0.4F, .seed = 1}, logits, (double[]){0, 1, 0, 0},
                 4);
    check_shares((struct sampler_config){.temperature = 1, .top_p = 0.7F, .seed = 1}, logits,
                 (double[]){0, 0.625, 0, 0.375}, 4);
    check_shares((struct sampler_config){.temperature = 1, .top_p = 0.9F, .seed = 1}, logits,
                 (double[]){0.15 / 0.95, 0.5 / 0.95, 0, 0.3 / 0.95}, 4);
    /* top-k comes first: of {.5, .3} renormalised, the first id alone (.625) reaches .6. */
    check_shares((struct sampler_config){.temperature = 1, .top_k = 2, .top_p = 0.6F, .seed = 1}, logits,
                 (double[]){0, 1, 0, 0}, 4);
}

static void test_min_p(void) {
    /* shares .5 .3 .15 .05 */
    float logits[] = {logf(0.15F), logf(0.5F), logf(0.05F), logf(0.3F)};
    check_shares((struct sampler_config){.temperature = 1, .top_p = 1, .min_p = 0.2F, .seed = 1}, logits,
                 (double[]){0.15 / 0.95, 0.5 / 0.95, 0, 0.3 / 0.95}, 4);
    check_shares((struct sampler_config){.temperature = 1, .top_p = 0.9F, .min_p = 0.5F, .seed = 1}, logits,
                 (double[]){0, 0.625, 0, 0.375}, 4);
    check_shares((struct sampler_config){.temperature = 1, .top_k = 3, .top_p = 1, .min_p = 1, .seed = 1}, logits,
                 (double[]){0, 1, 0, 0}, 4);
    /* An id of exactly that fraction is kept. */
    check_shares((struct sampler_config){.temperature = 1, .top_p = 1, .min_p = 1, .seed = 1}, (float[]){2, 1, 2},
                 (double[]){0.5, 0, 0.5}, 3);
    /* top-p counts shares of all ids: .5 + .3 reach .8, whatever min-p keeps. */
    check_shares((struct sampler_config){.temperature = 1, .top_p = 0.79F, .min_p = 0.01F, .seed = 1}, logits,
                 (double[]){0, 0.625, 0, 0.375}, 4);
}

static void test_repeat_penalty(void) {
    const float logits[] = {4, 3, -1, -3, 2.5F};
    struct sampler *s = make((struct sampler_config){.top_p = 1, .repeat_penalty = 2, .repeat_last = 3}, 5);
    CHECK_EQ(sampler_pick(s, logits), 0);
    CHECK_EQ(sampler_pick(s, logits), 1); /* 4 counts 2 */
    CHECK_EQ(sampler_pick(s, logits), 4); /* 2, 1.5, 2.5 */
    CHECK_EQ(sampler_pick(s, logits), 0); /* all penalised once: 2, 1.5, 1.25 */
    sampler_see(s, (int32_t[]){0, 0, 0}, 3);
    CHECK_EQ(sampler_pick(s, logits), 1); /* each id counts once, however often it occurred; older ids are forgotten */
    CHECK_EQ(sampler_pick(s, (float[]){-3, -1, -9, -9, -9}), 1); /* below zero it moves down, too: -6 and -2 */
    sampler_free(s);
    s = make((struct sampler_config){.top_p = 1, .repeat_penalty = 2, .repeat_last = 1}, 3);
    sampler_see(s, (int32_t[]){0, 1}, 2);
    CHECK_EQ(sampler_pick(s, (float[]){2, 3, 1}), 0); /* 1 counts 1.5; 0 is forgotten */
    sampler_free(s);
    check_shares((struct sampler_config){.temperature = 1, .top_p = 1, .repeat_penalty = 1, .repeat_last = 8}, logits,
                 (double[]){0.6255241, 0.2301175, 0.0042147, 0.0005704, 0.1395733}, 5); /* off: nothing is remembered */
}

static void test_seeds(void) {
    enum { N = 500 };
    float logits[1000];
    for (int i = 0; i < 1000; i++)
        logits[i] = sinf((float)i);
    int32_t first[N], differences = 0;
    struct sampler_config config = {.temperature = 1, .top_p = 0.95F, .seed = 42};
    for (int run = 0; run < 3; run++) {
        config.seed = run == 2 ? 43 : 42;
        struct sampler *s = make(config, 1000);
        for (int i = 0; i < N; i++) {
            int32_t id = sampler_pick(s, logits);
            if (run == 0) first[i] = id;
            if (run == 1) CHECK_EQ(id, first[i]);
            if (run == 2) differences += id != first[i];
        }
        sampler_free(s);
    }
    CHECK(differences > N / 2);
}

static void test_broken_logits(void) {
    struct sampler_config config = {.temperature = 1, .top_p = 0.9F, .seed = 2};
    float logits[] = {NAN, 1, NAN, 1.5F, -INFINITY};
    struct sampler *s = make(config, 5);
    for (int i = 0; i < 200; i++) {
        int32_t id = sampler_pick(s, logits);
        CHECK(id == 1 || id == 3);
    }
    sampler_free(s);
    config.temperature = 0;
    s = make(config, 5);
    CHECK_EQ(sampler_pick(s, logits), 3);
    sampler_free(s);
    config.temperature = 1e-30F; /* practically greedy, no overflow */
    s = make(config, 5);
    CHECK_EQ(sampler_pick(s, logits), 3);
    logits[1] = INFINITY;
    CHECK_EQ(sampler_pick(s, logits), 1);
    sampler_free(s);
}

/* A zero with a sign is a zero, also as the largest logit: picks are those of the same logits without signs. */
static void test_zeros(void) {
    enum { VOCAB = 200, SETTINGS = 60, PICKS = 20 };
    static const float temperatures[] = {0, 0.8F, 1e-30F}, top_p[] = {1, 0.5F};
    static const int top_k[] = {0, 1, 3, 40};
    struct rng rng = rng_make(7, 5);
    for (int i = 0; i < SETTINGS; i++) {
        float plain[VOCAB], minus[VOCAB];
        const struct sampler_config config = {.temperature = temperatures[i % 3],
                                              .top_p = top_p[i % 2],
                                              .top_k = top_k[i % 4],
                                              .repeat_penalty = i % 5 ? 1 : 1.3F,
                                              .repeat_last = 4,
                                              .seed = 9};
        struct sampler *a = make(config, VOCAB), *b = make(config, VOCAB);
        int first = -1;
        for (int v = 0; v < VOCAB; v++) {
            const bool zero = rng_below(&rng, 30) == 0;
            plain[v] = zero ? 0 : -1 - (float)rng_below(&rng, 5);
            minus[v] = zero && rng_below(&rng, 2) ? -0.0F : plain[v];
            if (zero && first < 0) first = v;
        }
        if (config.temperature == 0 && first >= 0) CHECK_EQ(sampler_pick(b, minus), first);
        if (config.temperature == 0 && first >= 0) CHECK_EQ(sampler_pick(a, plain), first);
        for (int pick = 0; pick < PICKS; pick++)
            CHECK_EQ(sampler_pick(b, minus), sampler_pick(a, plain));
        sampler_free(a);
        sampler_free(b);
    }
}

static void test_config(void) {
    struct sampler *s;
    CHECK_FAILS(sampler_create(&s, &(struct sampler_config){.temperature = -1, .top_p = 1}, 5), STATUS_INVALID,
                "temperature -1");
    CHECK_FAILS(sampler_create(&s, &(struct sampler_config){.temperature = NAN, .top_p = 1}, 5), STATUS_INVALID,
                "temperature");
    CHECK_FAILS(sampler_create(&s, &(struct sampler_config){.top_p = 0}, 5), STATUS_INVALID, "top-p 0");
    CHECK_FAILS(sampler_create(&s, &(struct sampler_config){.top_p = 1.5F}, 5), STATUS_INVALID, "top-p 1.5");
    CHECK_FAILS(sampler_create(&s, &(struct sampler_config){.top_p = 1, .top_k = -2}, 5), STATUS_INVALID, "top-k -2");
    CHECK_FAILS(sampler_create(&s, &(struct sampler_config){.top_p = 1, .min_p = 1.5F}, 5), STATUS_INVALID,
                "min-p 1.5");
    CHECK_FAILS(sampler_create(&s, &(struct sampler_config){.top_p = 1, .repeat_penalty = NAN}, 5), STATUS_INVALID,
                "repeat-penalty nan");
    CHECK_FAILS(sampler_create(&s, &(struct sampler_config){.top_p = 1, .repeat_last = -1}, 5), STATUS_INVALID,
                "repeat-last-n -1");
    sampler_free(NULL);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    test_greedy();
    test_shares();
    test_top_p();
    test_min_p();
    test_repeat_penalty();
    test_seeds();
    test_broken_logits();
    test_zeros();
    test_config();
    return test_done();
}
