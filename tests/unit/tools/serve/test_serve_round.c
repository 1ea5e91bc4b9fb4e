/* test_serve_round.c -- which prompts a round reads: the order, the limit, and that every prompt is read in the end,
 * against a description of the rule by pairs and in simulated rounds. */
#include "base/rng.h"
#include "tests/test.h"
#include "tools/serve/serve_job.h"

enum { MOST_PROMPTS = 40, PART = 252, MOST = 4 * PART, PATIENCE = 4 };

static void test_order(void) {
    struct round_prompt p[] = {{0, 900, 0}, {1, 3, 0}, {2, 200, 0}, {3, 3, 3}, {4, 5000, 4}, {5, 100, 0}};
    static const int64_t order[] = {4, 1, 3, 5, 2, 0}; /* of 252, 3, 3, 100, 200 and 252 ids */
    CHECK_EQ(round_plan(p, 0, PART, MOST), 0);
    CHECK_EQ(round_plan(p, 6, PART, MOST), 6);
    for (int i = 0; i < 6; i++)
        CHECK_EQ(p[i].job, order[i]);
    CHECK_EQ(round_plan(p, 6, PART, 600), 5);
    CHECK_EQ(round_plan(p, 6, PART, 558), 5);
    CHECK_EQ(round_plan(p, 6, PART, 557), 4);
    CHECK_EQ(round_plan(p, 6, PART, 1), 1);
    struct round_prompt late[] = {{0, 10, 0}, {7, 900, 9}, {3, 900, 4}};
    CHECK_EQ(round_plan(late, 3, PART, MOST), 3);
    CHECK(late[0].job == 7 && late[1].job == 3 && late[2].job == 0); /* of late ones the one that waited longest */
}

static int64_t cost(const struct round_prompt *p) {
    return p->ids < PART ? p->ids : PART;
}

/* The result is a permutation; what is read fits, and the next one would not; nothing that was left out should have
 * preceded what is read. */
static void test_rule(struct rng *rng) {
    struct round_prompt given[MOST_PROMPTS], p[MOST_PROMPTS];
    const int64_t n = 1 + (int64_t)rng_below(rng, MOST_PROMPTS), most = 1 + (int64_t)rng_below(rng, 3 * MOST);
    bool seen[MOST_PROMPTS] = {false};
    int64_t ids = 0;
    for (int64_t i = 0; i < n; i++)
        p[i] = given[i] = (struct round_prompt){i, 1 + (int64_t)rng_below(rng, rng_below(rng, 2) ? 20 : 900),
                                                (int)rng_below(rng, PATIENCE + 3)};
    const int64_t taken = round_plan(p, n, PART, most);
    CHECK(taken >= 1 && taken <= n);
    for (int64_t i = 0; i < n; i++) {
        const struct round_prompt *from = &given[p[i].job];
        CHECK(!seen[p[i].job] && p[i].ids == from->ids && p[i].left_out == from->left_out);
        seen[p[i].job] = true;
        if (i < taken) ids += cost(&p[i]);
    }
    CHECK(taken == 1 || ids <= most);
    CHECK(taken == n || ids + cost(&p[taken]) > most);
    for (int64_t i = 0; i < taken; i++)
        for (int64_t j = taken; j < n; j++) {
            const bool late = p[j].left_out >= PATIENCE;
            CHECK(!late || p[i].left_out >= PATIENCE);
            CHECK(late || p[i].left_out >= PATIENCE || p[i].ids <= p[j].ids);
        }
}

/* Short prompts arrive in every round, as many as a round reads: a long one is read nevertheless, a part in every
 * PATIENCE + 1 rounds. */
static void test_long_prompt(void) {
    int64_t left = 20 * PART;
    int left_out = 0, rounds = 0;
    for (; left > 0; rounds++) {
        struct round_prompt p[11] = {{0, left, left_out}};
        for (int i = 1; i <= 10; i++)
            p[i] = (struct round_prompt){i, 101, 0};
        const int64_t taken = round_plan(p, 11, PART, MOST);
        left_out++;
        for (int64_t i = 0; i < taken; i++)
            if (p[i].job == 0) left -= PART, left_out = 0;
        CHECK(left_out <= PATIENCE);
    }
    CHECK_EQ(rounds, 20 * (PATIENCE + 1));
}

/* More long prompts than a few rounds can read: each is read a part in as many rounds as all of them need, and a short
 * one that arrives later does not wait until they are read. */
static void test_many_long_prompts(void) {
    int left_out[MOST_PROMPTS] = {0}, most = 0, rounds = 0, waited = 0;
    for (bool read = false; rounds < 400; rounds++) {
        struct round_prompt p[MOST_PROMPTS];
        int64_t n = 0;
        for (int i = 0; i < MOST_PROMPTS - 1; i++)
            p[n++] = (struct round_prompt){i, 400 * PART, left_out[i]};
        if (rounds >= 50 && !read)
            p[n++] = (struct round_prompt){MOST_PROMPTS - 1, 5, left_out[MOST_PROMPTS - 1]}, waited++;
        const int64_t taken = round_plan(p, n, PART, MOST);
        for (int64_t i = 0; i < n; i++) {
            left_out[p[i].job] = i < taken ? 0 : left_out[p[i].job] + 1;
            most = left_out[p[i].job] > most ? left_out[p[i].job] : most;
            if (i < taken && p[i].job == MOST_PROMPTS - 1) read = true;
        }
    }
    printf("%d long prompts: at most %d rounds without a part; the short one waits %d\n", MOST_PROMPTS - 1, most,
           waited);
    CHECK(most <= MOST_PROMPTS * PART / MOST + 2 && waited <= MOST_PROMPTS * PART / MOST + 2);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    struct rng rng = rng_make(test_seed(), 0);
    test_order();
    for (int i = 0; i < 3000; i++)
        test_rule(&rng);
    test_long_prompt();
    test_many_long_prompts();
    return test_done();
}
