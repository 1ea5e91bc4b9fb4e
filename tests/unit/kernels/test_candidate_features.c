/* test_candidate_features.c -- the features of a candidate against loops over all pairs of ids, for texts of few ids,
 * which repeat much, and of many. */
#include "base/rng.h"
#include "kernels/lexical/candidate_features.h"
#include "tests/test.h"
#include <math.h>
#include <stdbool.h>

enum { VOCAB = 300, LENGTH_MAX = 160, QUERY_MAX = 200, ROUNDS = 300 };

/* A case: the query's ids, newest first as words, and the candidate's. */
struct feature_case {
    int words, chunk, length;
    int32_t word[CANDIDATE_WORDS], ids[LENGTH_MAX];
    float idf[VOCAB];
};

static bool is_word(int32_t id) {
    return id >= 0 && id < VOCAB;
}
static bool same(const struct feature_case *c, int r, int i) {
    return r < c->words && is_word(c->word[r]) && c->word[r] == c->ids[i];
}
/* Whether the `run` ids up to ids[i] are the words up to word r. */
static bool run_ends(const struct feature_case *c, int r, int i, int run) {
    for (int j = 0; j < run; j++)
        if (i - j < 0 || !same(c, r + j, i - j)) return false;
    return true;
}
static bool run_anywhere(const struct feature_case *c, int r, int run) {
    for (int i = 0; i < c->length; i++)
        if (run_ends(c, r, i, run)) return true;
    return false;
}
static double plain_idf(const struct feature_case *c, int r) {
    return r < c->words && is_word(c->word[r]) ? (double)c->idf[c->word[r]] : 0;
}
/* idf * s(f) of word r in ids begin .. end-1; 0 if a later word is the same. */
static double plain_word(const struct feature_case *c, int r, int begin, int end) {
    int f = 0;
    for (int later = 0; later < r; later++)
        if (c->word[later] == c->word[r]) return 0;
    for (int i = begin; i < end; i++)
        f += same(c, r, i);
    const double x = f > 2 ? 4 : f;
    return plain_idf(c, r) * x * 2.2 / (x + 1.2);
}

static void plain_features(double out[CANDIDATE_FEATURES], const struct feature_case *c) {
    static const int chunk_begin[] = {0, 4, 8, 16, 32, 64, 128}, after_begin[] = {0, 16, 64, 128},
                     pair_begin[] = {0, 8, 32, 128}, triple_begin[] = {0, 16, 128}, five_begin[] = {0, 32, 128};
    memset(out, 0, CANDIDATE_FEATURES * sizeof *out);
    for (int f = 0; f < 6; f++)
        for (int r = chunk_begin[f]; r < chunk_begin[f + 1] && r < c->words; r++)
            out[f] += plain_word(c, r, 0, c->chunk);
    for (int f = 0; f < 3; f++)
        for (int r = after_begin[f]; r < after_begin[f + 1] && r < c->words; r++)
            out[6 + f] += plain_word(c, r, c->chunk, c->length);
    for (int f = 0; f < 3; f++)
        for (int r = pair_begin[f]; r < pair_begin[f + 1]; r++)
            if (run_anywhere(c, r, 2)) out[9 + f] += (plain_idf(c, r) + plain_idf(c, r + 1)) / 2;
    for (int f = 0; f < 2; f++)
        for (int r = triple_begin[f]; r < triple_begin[f + 1]; r++)
            if (run_anywhere(c, r, 3)) out[12 + f] += plain_idf(c, r) + plain_idf(c, r + 1) + plain_idf(c, r + 2);
    for (int f = 0; f < 2; f++)
        for (int r = five_begin[f]; r < five_begin[f + 1]; r++)
            out[14 + f] += run_anywhere(c, r, 5);
    if (run_anywhere(c, 0, 1)) out[16] = plain_idf(c, 0);
    if (run_anywhere(c, 0, 2)) out[17] = (plain_idf(c, 0) + plain_idf(c, 1)) / 2;
    out[18] = run_anywhere(c, 0, 3);
    out[19] = run_anywhere(c, 0, 5);
    while (out[CANDIDATE_LENGTH] < c->chunk && c->ids[(int)out[CANDIDATE_LENGTH]] >= 0)
        out[CANDIDATE_LENGTH]++;
}

/* The candidate's ids: random ones below `vocab`, with runs that are copied from the query. */
static void fill_candidate(struct feature_case *c, struct rng *rng, const int32_t *query, int n, int vocab) {
    const int end = (int)rng_below(rng, (uint64_t)c->length + 1);
    for (int i = 0; i < c->length; i++)
        c->ids[i] = i < end ? (int32_t)rng_below(rng, (uint64_t)vocab) : -1;
    for (int copies = 0; copies < 3 && n > 0 && end > 0; copies++) {
        const int run = 1 + (int)rng_below(rng, 9), from = (int)rng_below(rng, (uint64_t)n),
                  to = (int)rng_below(rng, (uint64_t)end);
        for (int j = 0; j < run && from + j < n && to + j < end; j++)
            c->ids[to + j] = query[from + j];
    }
}

static void compare(struct rng *rng, struct candidate_query *q, int vocab) {
    static const int lengths[][2] = {{63, 126}, {64, 128}, {1, 2}, {10, 20}, {80, 160}};
    struct feature_case c;
    int32_t query[QUERY_MAX];
    float got[CANDIDATE_FEATURES];
    double right[CANDIDATE_FEATURES];
    const int n = (int)rng_below(rng, QUERY_MAX + 1), *length = lengths[rng_below(rng, 5)];
    c.chunk = length[0], c.length = length[1];
    c.words = n < CANDIDATE_WORDS ? n : CANDIDATE_WORDS;
    for (int i = 0; i < n; i++)
        query[i] = rng_below(rng, 20) == 0   ? -1
                   : rng_below(rng, 40) == 0 ? VOCAB
                                             : (int32_t)rng_below(rng, (uint64_t)vocab);
    for (int r = 0; r < c.words; r++)
        c.word[r] = query[n - 1 - r];
    for (int i = 0; i < VOCAB; i++)
        c.idf[i] = 8 * rng_uniform(rng);
    fill_candidate(&c, rng, query, n, vocab);
    candidate_query_set(q, query, n, c.idf);
    candidate_features(got, q, c.ids, c.chunk, c.length);
    plain_features(right, &c);
    for (int f = 0; f < CANDIDATE_FEATURES; f++)
        CHECK(fabs((double)got[f] - right[f]) <= 1e-5 * (1 + fabs(right[f])));
}

int main(int argc, char **argv) {
    static uint8_t words[VOCAB];
    struct candidate_query q = {.vocab = VOCAB, .words = words};
    test_start(argc, argv, 3);
    struct rng rng = rng_make(test_seed(), 1);
    for (int i = 0; i < ROUNDS; i++)
        for (int vocab = 3; vocab <= VOCAB; vocab *= 10)
            compare(&rng, &q, vocab);
    /* Nothing of a query stays in the table of the next one. */
    candidate_query_set(&q, NULL, 0, NULL);
    for (int i = 0; i < VOCAB; i++)
        CHECK_EQ(words[i], 0);
    return test_done();
}
