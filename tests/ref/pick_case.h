/* pick_case.h -- random logits and settings of a pick, for tests of its twins. Numbers are chosen so that all branches
 * are taken: ties, NaN, infinities, banned ids, few ids and all ids left. */
#pragma once
#include "base/rng.h"
#include "kernels/pick/pick.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>

enum { PICK_CASE_SEEN = 96 };
struct pick_case {
    int64_t vocab;
    float *logits;
    uint32_t *banned;                    /* always there; may ban none */
    int32_t seen[PICK_CASE_SEEN];
    struct pick_row row;                 /* without pointers of outputs */
};

static inline double pick_case_of(struct rng *rng, const double *values, size_t n) { return values[rng_below(rng, n)]; }
#define PICK_CASE(rng, ...)                                                                                         \
    pick_case_of(rng, (const double[]){__VA_ARGS__}, sizeof(const double[]){__VA_ARGS__} / sizeof(double))

static inline void pick_case_logits(struct pick_case *c, struct rng *rng) {
    static const float odd[] = {NAN, INFINITY, -INFINITY, 0.0F, -0.0F, 3e38F, -3e38F, 1e-40F};
    const float deviation = (float)PICK_CASE(rng, 0.01, 0.5, 2, 5, 30), centre = (float)PICK_CASE(rng, 0, -30, 1000),
                step = (float)PICK_CASE(rng, 0, 0, 0, 0.5, 4);
    const uint64_t odd_from = rng_below(rng, 4) ? 0 : 1 + rng_below(rng, 4), kinds = 1 + rng_below(rng, 8);
    for (int64_t i = 0; i < c->vocab; i++) {
        const float x = centre + deviation * rng_normal(rng);
        c->logits[i] = step > 0 ? step * rintf(x / step) : x;
        if (odd_from && rng_below(rng, 8) < odd_from) c->logits[i] = odd[rng_below(rng, kinds)];
    }
    const uint64_t all = rng_below(rng, 30); /* one value for all, and maybe another one */
    for (int64_t i = 0; all < 8 && i < c->vocab; i++)
        c->logits[i] = odd[all];
    if (all < 8 && rng_below(rng, 2)) c->logits[rng_below(rng, (uint64_t)c->vocab)] = odd[rng_below(rng, 8)];
}

static inline struct pick_rule pick_case_rule(struct rng *rng, int64_t vocab) {
    const double temperature = PICK_CASE(rng, 0, 1e-30, 0.1, 0.8, 0.8, 1, 3, 1000);
    const double scale = temperature > 0 ? 1.4426950408889634 / temperature : 0;
    struct pick_rule r = {.scale = scale < (double)FLT_MAX ? (float)scale : FLT_MAX,
                          .penalty = (float)PICK_CASE(rng, 1, 1, 1.3, 0.5, 100),
                          .repeat_last = (int64_t)PICK_CASE(rng, 1, 3, 40, PICK_CASE_SEEN - 1),
                          .n_seen = (int64_t)PICK_CASE(rng, 0, 2, 3, 50, 95, 96, 1000),
                          .top_k = (int64_t)PICK_CASE(rng, 0, 0, 0, 1, 2, 40, 500, 600, 3000),
                          .share = (uint64_t)(PICK_CASE(rng, 1, 1, 1e-6, 0.1, 0.5, 0.95, 0.95, 0.9999999) * 0x1p32),
                          .least = (uint32_t)PICK_CASE(rng, 1, 1, 1, 53688, 26843546, 268435456, 536870912),
                          .seed = rng_u64(rng),
                          .number = rng_below(rng, 1000)};
    if (rng_below(rng, 8) == 0) r.top_k = vocab + (int64_t)rng_below(rng, 3) - 1;
    return r;
}

static inline struct pick_case pick_case_make(struct rng *rng, int64_t vocab) {
    struct pick_case c = {.vocab = vocab};
    const size_t words = (size_t)(vocab + 31) / 32;
    c.logits = malloc((size_t)vocab * sizeof *c.logits);
    c.banned = calloc(words, sizeof *c.banned);
    pick_case_logits(&c, rng);
    const int64_t bans = rng_below(rng, 2) ? (int64_t)rng_below(rng, vocab < 40 ? (uint64_t)vocab : 40) : 0;
    for (int64_t i = 0; i < bans; i++) {
        const int64_t id = rng_below(rng, 2) ? (int64_t)rng_below(rng, (uint64_t)vocab) : vocab - 1 - i;
        c.banned[id / 32] |= 1U << (id % 32);
    }
    for (int i = 0; i < PICK_CASE_SEEN; i++)
        c.seen[i] = (int32_t)rng_below(rng, (uint64_t)vocab);
    c.row = (struct pick_row){.rule = pick_case_rule(rng, vocab),
                              .seen_rows = PICK_CASE_SEEN,
                              .ticket = rng_u64(rng) << 32,
                              .logprob = rng_below(rng, 3) == 0};
    if (c.row.logprob && rng_below(rng, 2)) c.row.n_best = 1 + (int32_t)rng_below(rng, PICK_BEST_MAX);
    return c;
}
static inline void pick_case_free(struct pick_case *c) { free(c->logits), free(c->banned); }
