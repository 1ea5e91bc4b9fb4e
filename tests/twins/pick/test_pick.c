/* test_pick.c -- the CPU twin against an oracle: all ids sorted, weights in double. The pick is in the oracle's set,
 * draws fall on the ids that units give, and log-probabilities are those of a softmax. */
#include "tests/ref/pick_case.h"
#include "tests/twins/twins.h"

enum { CASES = 3000 };

struct entry {
    float x;
    int32_t id;
    double weight;
};
static int entry_compare(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    if (isnan(x->x) != isnan(y->x)) return isnan(x->x) ? 1 : -1;
    if (x->x > y->x || x->x < y->x) return x->x > y->x ? -1 : 1;
    return x->id - y->id;
}

/* The ids that may be picked, best first; *n of them. */
static struct entry *oracle(const struct pick_case *c, const int32_t *seen, int64_t *n) {
    const struct pick_rule *r = &c->row.rule;
    struct entry *all = malloc((size_t)c->vocab * sizeof *all);
    double total = 0, before = 0;
    *n = 0;
    for (int32_t id = 0; id < c->vocab; id++) {
        float x = c->logits[id];
        for (int64_t i = 1; i <= r->repeat_last && i <= r->n_seen && r->penalty != 1; i++)
            if (seen[(r->n_seen - i) % PICK_CASE_SEEN] == id) {
                x = x > 0 ? x / r->penalty : x * r->penalty;
                break;
            }
        if (!(c->banned[id / 32] >> (id % 32) & 1)) all[(*n)++] = (struct entry){.x = x, .id = id};
    }
    qsort(all, (size_t)*n, sizeof *all, entry_compare);
    if (r->top_k > 0 && r->top_k < *n) *n = r->top_k;
    for (int64_t i = 0; i < *n; i++) {
        const double t = ((double)all[i].x - (double)all[0].x) * (double)r->scale;
        all[i].weight = all[i].x == all[0].x ? 1 : r->scale == 0 || !(t > -29.001) ? 0 : exp2(t);
        if (i > 0 && r->scale == 0) all[i].weight = 0;
        total += all[i].weight;
    }
    const double share = (double)r->share * 0x1p-32, least = r->least * 0x1p-29, edge = 1e-4 * total;
    int64_t kept = *n > 0;
    for (int64_t i = 1; i < *n && all[i].weight > 0; i++) {
        before += all[i - 1].weight;
        if ((share < 1 && before >= share * total + edge) || all[i].weight < least * (1 - 3e-5) - 0x1p-29) break;
        kept = i + 1;
    }
    *n = kept;
    return all;
}

/* below: logit - top, which may overflow */
static void check_logprob(float got, float below, double log_sum) {
    const double want = (double)below - log_sum;
    CHECK((isnan(want) && isnan(got)) || (double)got == want || fabs((double)got - want) < 3e-6 * (1 + fabs(want)));
}

static void check_scores(const struct pick_case *c, const struct pick_result *r) {
    double sum = 0;
    float top = -INFINITY;
    for (int64_t i = 0; i < c->vocab; i++)
        if (c->logits[i] > top) top = c->logits[i];
    if (r->n_best < 0) return;
    CHECK(isfinite(top));
    for (int64_t i = 0; i < c->vocab; i++)
        if (c->logits[i] > -INFINITY) sum += exp((double)c->logits[i] - (double)top);
    check_logprob(r->logprob, c->logits[r->id] - top, log(sum));
    for (int i = 0; i < r->n_best; i++) {
        const float x = c->logits[r->best[i].id];
        check_logprob(r->best[i].logprob, x - top, log(sum));
        if (i > 0) CHECK(c->logits[r->best[i - 1].id] >= x);
        if (i > 0 && c->logits[r->best[i - 1].id] == x) CHECK(r->best[i - 1].id < r->best[i].id);
    }
}

static void check_case(struct rng *rng, struct device *dev) {
    static const int vocabs[] = {1, 2, 31, 32, 33, 64, 130, 700};
    struct pick_case c = pick_case_make(rng, vocabs[rng_below(rng, ARRAY_LEN(vocabs))]);
    int32_t seen[PICK_CASE_SEEN], id = -1;
    struct pick_result result = {0};
    int64_t n;
    memcpy(seen, c.seen, sizeof seen);
    c.row.logits = c.logits, c.row.banned = c.banned, c.row.seen = seen, c.row.id = &id, c.row.result = &result;
    struct entry *order = oracle(&c, c.seen, &n);
    dev->ops->pick->rows(dev, &c.row, 1, c.vocab);
    bool found = false;
    for (int64_t i = 0; i < n; i++)
        found = found || order[i].id == id;
    CHECK(found && id == result.id && result.ticket == (c.row.ticket | (uint32_t)id));
    if (n == 1) CHECK_EQ(id, order[0].id);
    CHECK_EQ(seen[c.row.rule.n_seen % PICK_CASE_SEEN], id);
    if (c.row.logprob) check_scores(&c, &result);
    free(order);
    pick_case_free(&c);
}

/* Shares of many draws: 5 standard deviations. Each draw has a number of its own. */
static void check_shares(struct device *dev) {
    enum { DRAWS = 40000 };
    const float logits[] = {0.5F, 2, -1, 1.5F, 0, 1.5F, -4, 1};
    /* of the softmax the ids 1, 3, 5 have .27 + .16 + .16 of .98 */
    const double keep[] = {0, exp(2), 0, exp(1.5), 0, exp(1.5), 0, 0};
    int counts[8] = {0};
    for (uint64_t i = 0; i < DRAWS; i++) {
        int32_t id;
        struct pick_result result;
        const struct pick_row row = {.logits = logits,
                                     .rule = {.scale = 1.442695F,
                                              .penalty = 1,
                                              .share = (uint64_t)(0.7 * 0x1p32),
                                              .least = 1,
                                              .seed = 3,
                                              .number = i},
                                     .id = &id,
                                     .result = &result};
        dev->ops->pick->rows(dev, &row, 1, 8);
        counts[id]++;
    }
    for (int i = 0; i < 8; i++) {
        const double share = keep[i] / (keep[1] + keep[3] + keep[5]);
        CHECK(fabs(counts[i] / (double)DRAWS - share) <= 5 * sqrt(share * (1 - share) / DRAWS));
    }
}

/* A zero with a sign is a zero: the largest logits are zeros, which ids have the sign changes no pick, and equal ones
 * are in the order of their ids. */
static void check_zeros(struct device *dev) {
    enum { VOCAB = 40, SETTINGS = 200 };
    struct rng rng = rng_make(7, 4);
    for (int i = 0; i < SETTINGS; i++) {
        float plain[VOCAB], minus[VOCAB];
        int32_t id[2], seen[2][8];
        struct pick_result result[2] = {0};
        const struct pick_rule rule = {.scale = i % 3 ? 1.442695F : 0,
                                       .penalty = i % 5 ? 1 : 1.5F,
                                       .repeat_last = 4,
                                       .n_seen = 6,
                                       .top_k = (int64_t)rng_below(&rng, 6),
                                       .share = i % 2 ? 1ULL << 32 : 1ULL << 31,
                                       .least = 1,
                                       .seed = 3,
                                       .number = (uint64_t)i};
        int32_t first = -1;
        for (int32_t v = 0; v < VOCAB; v++) {
            const bool zero = rng_below(&rng, 4) == 0;
            plain[v] = zero ? 0 : -1 - (float)rng_below(&rng, 5);
            minus[v] = zero && rng_below(&rng, 2) ? -0.0F : plain[v];
            if (zero && first < 0) first = v;
        }
        for (int j = 0; j < 2; j++) {
            for (int s = 0; s < 8; s++)
                seen[j][s] = s * 5;
            const struct pick_row row = {.logits = j ? minus : plain,
                                         .rule = rule,
                                         .seen = seen[j],
                                         .seen_rows = 8,
                                         .id = &id[j],
                                         .result = &result[j],
                                         .logprob = true,
                                         .n_best = 12};
            dev->ops->pick->rows(dev, &row, 1, VOCAB);
        }
        CHECK_EQ(id[1], id[0]);
        if (first >= 0 && rule.scale == 0) CHECK_EQ(id[1], first);
        CHECK(result[1].logprob == result[0].logprob && result[1].n_best == 12);
        for (int b = 0; b < 12; b++)
            CHECK(result[1].best[b].id == result[0].best[b].id &&
                  result[1].best[b].logprob == result[0].best[b].logprob);
    }
}

static void check_arithmetic(void) {
    struct rng rng = rng_make(7, 3);
    for (int i = 0; i < 2000; i++) {
        uint32_t words[4];
        const uint64_t a = rng_u64(&rng), b = rng_u64(&rng) >> rng_below(&rng, 60), draw = rng_below(&rng, 9);
        CHECK(pick_part(a, b) <= b && fabs((double)pick_part(a, b) - (double)a * 0x1p-64 * (double)b) <= 1e-9 * b + 1);
        rng_philox(words, a, b, draw);
        CHECK(pick_random(a, b, draw) == ((uint64_t)words[0] << 32 | words[1]));
        const float t = -(float)rng_below(&rng, 28000) * 1e-3F;
        CHECK(fabs((double)pick_unit(t, 0, 1) - exp2(29 + (double)t)) <= 1 + 4e-7 * exp2(29 + (double)t));
        CHECK(pick_goal(b >> 12, 1ULL << 32) == ((b >> 12) > 0 ? b >> 12 : 1));
    }
    CHECK_EQ(pick_unit(5, 5, 3), 1 << 29);
    CHECK_EQ(pick_unit(NAN, 5, 3), 0);
    CHECK_EQ(pick_unit(-INFINITY, 5, 3), 0);
    CHECK_EQ(pick_unit(-FLT_MAX, FLT_MAX, FLT_MAX), 0);
    CHECK_EQ(pick_goal(10, 1ULL << 31), 5);
    CHECK_EQ(pick_goal(11, 1ULL << 31), 6);
    CHECK(pick_order(0.0F) == pick_order(-0.0F) && pick_order(-INFINITY) == PICK_ORDER_INFINITE);
    CHECK(pick_order(-FLT_MAX) == PICK_ORDER_INFINITE + 1 && pick_order(1) > pick_order(-1));
}

int main(int argc, char **argv) {
    twins_open(argc, argv);
    check_arithmetic();
    for (int i = 0; i < CASES; i++)
        check_case(&twin_rng, twin_device[0]);
    check_shares(twin_device[0]);
    check_zeros(twin_device[0]);
    return twins_close();
}
