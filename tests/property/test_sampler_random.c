/* test_sampler_random.c -- random logits and settings against a plain reference, all ids sorted with weights in double,
 * and against the CPU twin of kernels/pick/pick.h, whose ids must be equal.
 *
 * The reference follows the sampler's random numbers. Where one draw decides, the id that it gives must be the
 * reference's, but for a draw within rounding of the edge between two ids. With top-p there may be several draws; there
 * the id must be in the reference's set, and chi-square tests compare frequencies. */
#include "base/memory.h"
#include "base/rng.h"
#include "decoder/logits/logit_scan.h"
#include "decoder/logits/sampler.h"
#include "kernels/ops.h"
#include "tests/test.h"

enum { CASES = TEST_SANITIZED ? 1000 : 4000, PICKS = 5, VOCAB_MAX = 50265, BANNED_MAX = 40, TWIN_MAX = 1000 };
static const double rounding = 4e-6; /* of sums, relative to the total; units are rounded down besides */

struct entry {
    float logit;
    int32_t id;
    double weight;
};

struct world {
    struct rng rng;
    int vocab;
    float *logits, *penalised;
    struct entry *order;
    bool *banned;
    int32_t list[BANNED_MAX], seen[64];
    int64_t n_seen;
    struct device *cpu;
};

static int entry_compare(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    if (isnan(x->logit) != isnan(y->logit)) return isnan(x->logit) ? 1 : -1;
    if (x->logit > y->logit || x->logit < y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id - y->id;
}

/* ---- the reference ---- */

struct reference {
    int64_t n;              /* ids that are left after banned ones and top-k */
    int64_t kept, kept_min; /* of them those that top-p and min-p keep; at least, where rounding decides */
};

static void penalise(struct world *w, const struct sampler_config *c) {
    memcpy(w->penalised, w->logits, (size_t)w->vocab * sizeof(float));
    if (c->repeat_penalty == 0 || c->repeat_penalty == 1) return;
    for (int64_t i = w->n_seen > c->repeat_last ? w->n_seen - c->repeat_last : 0; i < w->n_seen; i++) {
        float x = w->logits[w->seen[i % 64]];
        w->penalised[w->seen[i % 64]] = x > 0 ? x / c->repeat_penalty : x * c->repeat_penalty;
    }
}

static double weight(float logit, float best, float temperature) {
    if (logit == best) return 1;
    double x = exp(((double)logit - (double)best) / (double)temperature);
    return x > exp(-86.5) ? x : 0; /* also for NaN */
}

static struct reference refer(struct world *w, const struct sampler_config *c) {
    struct reference r = {0};
    int vocab = w->vocab; /* without the banned ids at the end, which the sampler does not read */
    while (vocab > 1 && w->banned[vocab - 1])
        vocab--;
    penalise(w, c);
    for (int32_t id = 0; id < w->vocab; id++)
        if (!w->banned[id]) w->order[r.n++] = (struct entry){.logit = w->penalised[id], .id = id};
    qsort(w->order, (size_t)r.n, sizeof *w->order, entry_compare);
    const bool some = c->top_k > 0 && c->top_k < vocab;
    if (some && c->top_k < r.n) r.n = c->top_k;
    const float best = w->order[0].logit;
    double total = 0, sum = 0;
    for (int64_t i = 0; i < r.n; i++) {
        w->order[i].weight =
            c->temperature == 0 || isnan(best) ? i == 0 : weight(w->order[i].logit, best, c->temperature);
        total += w->order[i].weight;
    }
    const double goal = c->top_p < 1 ? (double)c->top_p * total : INFINITY;
    const double slack = rounding * total + (double)r.n * 0x1p-29;
    for (int64_t i = 0; i < r.n && w->order[i].weight > 0; i++) {
        const double at_least = (double)c->min_p;
        if (i == 0 || (sum < goal - slack && w->order[i].weight >= at_least * (1 + 1e-5) + 0x1p-29)) r.kept_min = i + 1;
        if (i == 0 || (sum < goal + slack && w->order[i].weight >= at_least * (1 - 1e-5) - 0x1p-29)) r.kept = i + 1;
        sum += w->order[i].weight;
    }
    return r;
}

static int entry_by_id(const void *a, const void *b) {
    return ((const struct entry *)a)->id - ((const struct entry *)b)->id;
}

/* Whether the draw falls on the id, give or take rounding. */
static bool falls_on(const struct world *w, int64_t kept, int32_t id, double draw) {
    double total = 0, before = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < kept; i++)
        total += w->order[i].weight;
    const double slack = rounding * total + (double)kept * 0x1p-29;
    for (; w->order[at].id != id; at++)
        before += w->order[at].weight;
    return draw * total >= before - slack && draw * total <= before + w->order[at].weight + slack;
}

static void check_pick(struct world *w, const struct sampler_config *c, int32_t id, double draw) {
    const struct reference r = refer(w, c);
    CHECK(id >= 0 && id < w->vocab && !w->banned[id]);
    if (r.kept == 1) CHECK_EQ(id, w->order[0].id);
    bool found = false;
    for (int64_t i = 0; i < r.kept; i++)
        found = found || w->order[i].id == id;
    CHECK(found);
    if (r.kept != r.kept_min || r.kept == 1) return;
    if (c->top_p < 1) return;
    qsort(w->order, (size_t)r.kept, sizeof *w->order, entry_by_id);
    CHECK(falls_on(w, r.kept, id, draw));
}

/* ---- random cases ---- */

static float one_of(struct rng *rng, const float *values, size_t n) {
    return values[rng_below(rng, n)];
}
#define ONE_OF(rng, ...) one_of(rng, (const float[]){__VA_ARGS__}, sizeof(const float[]){__VA_ARGS__} / sizeof(float))

static void make_logits(struct world *w) {
    static const float odd[] = {NAN, INFINITY, -INFINITY, 0.0F, -0.0F, 3e38F, -3e38F, 1e-40F};
    struct rng *rng = &w->rng;
    const float deviation = ONE_OF(rng, 0.01F, 0.5F, 2, 5, 30), centre = ONE_OF(rng, 0, -30, 1000),
                step = ONE_OF(rng, 0, 0, 0, 0.5F, 4);
    const uint64_t odd_from = rng_below(rng, 4) ? 0 : 1 + rng_below(rng, 4), kinds = 1 + rng_below(rng, 8);
    for (int i = 0; i < w->vocab; i++) {
        float x = centre + deviation * rng_normal(rng);
        w->logits[i] = step > 0 ? step * rintf(x / step) : x;
        if (odd_from && rng_below(rng, 8) < odd_from) w->logits[i] = odd[rng_below(rng, kinds)];
    }
    const uint64_t all = rng_below(rng, 30); /* one value for all, and maybe another one */
    for (int i = 0; all < 8 && i < w->vocab; i++)
        w->logits[i] = odd[all];
    if (all < 8 && rng_below(rng, 2)) w->logits[rng_below(rng, (uint64_t)w->vocab)] = odd[rng_below(rng, 8)];
}

static struct sampler_config make_config(struct world *w) {
    struct rng *rng = &w->rng;
    struct sampler_config c = {.temperature = ONE_OF(rng, 0, 1e-30F, 0.1F, 0.8F, 0.8F, 1, 3, 1000),
                               .top_k = (int)ONE_OF(rng, 0, 0, 0, 1, 2, 40, 500, 600),
                               .top_p = ONE_OF(rng, 1, 1, 1e-6F, 0.1F, 0.5F, 0.95F, 0.95F, 0.9999999F),
                               .min_p = ONE_OF(rng, 0, 0, 0, 1e-4F, 0.05F, 0.5F, 1),
                               .repeat_penalty = ONE_OF(rng, 0, 1, 1.3F, 0.5F, 100),
                               .repeat_last = (int)ONE_OF(rng, 0, 1, 3, 40),
                               .seed = rng_u64(rng),
                               .banned = w->list};
    if (rng_below(rng, 8) == 0) c.top_k = w->vocab + (int)rng_below(rng, 3) - 1;
    memset(w->banned, 0, (size_t)w->vocab * sizeof *w->banned);
    const int64_t most = w->vocab - 1 < BANNED_MAX ? w->vocab - 1 : BANNED_MAX;
    if (rng_below(rng, 2)) c.n_banned = (int64_t)rng_below(rng, (uint64_t)most + 1);
    for (int64_t i = 0; i < c.n_banned; i++) {
        w->list[i] = (int32_t)(rng_below(rng, 2) ? rng_below(rng, (uint64_t)w->vocab) : (uint64_t)(w->vocab - 1 - i));
        w->banned[w->list[i]] = true;
    }
    return c;
}

/* The same pick by the twin; the id. */
static int32_t pick_by_twin(struct world *w, const struct sampler_config *c, struct pick_rule rule) {
    uint32_t banned[(TWIN_MAX + 31) / 32] = {0};
    struct pick_result result;
    int32_t id;
    const struct pick_row row = {.logits = w->logits,
                                 .rule = rule,
                                 .banned = banned,
                                 .seen = w->seen,
                                 .seen_rows = ARRAY_LEN(w->seen),
                                 .id = &id,
                                 .result = &result};
    for (int64_t i = 0; i < c->n_banned; i++)
        banned[w->list[i] / 32] |= 1U << (w->list[i] % 32);
    w->cpu->ops->pick->rows(w->cpu, &row, 1, w->vocab);
    return id;
}

static void run_case(struct world *w) {
    static const int vocabs[] = {1, 2, 15, 16, 17, 63, 64, 65, 128, 130, 300, 511, 512, 513, 1000, 4000};
    struct sampler *s;
    w->vocab = rng_below(&w->rng, 200) ? vocabs[rng_below(&w->rng, ARRAY_LEN(vocabs))] : VOCAB_MAX;
    const struct sampler_config c = make_config(w);
    CHECK_OK(sampler_create(&s, &c, w->vocab));
    w->n_seen = 0;
    for (int i = 0; i < 3; i++)
        w->seen[w->n_seen++] = (int32_t)rng_below(&w->rng, (uint64_t)w->vocab);
    sampler_see(s, w->seen, w->n_seen);
    for (int i = 0; i < PICKS; i++) {
        make_logits(w);
        const struct pick_rule rule = sampler_rule(s);
        CHECK_EQ(rule.number, i);
        CHECK_EQ(rule.n_seen, w->n_seen);
        const int32_t id = sampler_pick(s, w->logits);
        check_pick(w, &c, id, (double)pick_random(c.seed, (uint64_t)i, 0) * 0x1p-64);
        if (w->vocab <= TWIN_MAX) CHECK_EQ(pick_by_twin(w, &c, rule), id);
        w->seen[w->n_seen++ % 64] = id;
    }
    sampler_free(s);
}

/* ---- frequencies ---- */

/* Chi-square of many draws from fixed logits: within 5 standard deviations of its mean, and no id outside of the set.
 */
static void check_frequencies(struct world *w, struct sampler_config c, float deviation, int vocab) {
    enum { DRAWS = TEST_SANITIZED ? 20000 : 200000 };
    struct sampler *s;
    int *counts;
    w->vocab = vocab;
    w->n_seen = 0;
    memset(w->banned, 0, (size_t)vocab * sizeof *w->banned);
    for (int64_t i = 0; i < c.n_banned; i++)
        w->banned[c.banned[i]] = true;
    for (int i = 0; i < vocab; i++)
        w->logits[i] = deviation * rng_normal(&w->rng);
    CHECK_OK(memory_allocate_zero(&counts, (size_t)vocab));
    CHECK_OK(sampler_create(&s, &c, vocab));
    for (int i = 0; i < DRAWS; i++)
        counts[sampler_pick(s, w->logits)]++;
    const struct reference r = refer(w, &c);
    double total = 0, chi = 0, expected_rest = 0;
    int64_t freedom = -1, rest = 0, inside = 0;
    for (int64_t i = 0; i < r.kept; i++)
        total += w->order[i].weight;
    for (int64_t i = 0; i < r.kept; i++) {
        const double expected = DRAWS * w->order[i].weight / total;
        inside += counts[w->order[i].id];
        if (expected < 8) { /* in one bin */
            expected_rest += expected;
            rest += counts[w->order[i].id];
            continue;
        }
        chi += pow(counts[w->order[i].id] - expected, 2) / expected;
        freedom++;
    }
    CHECK_EQ(inside, DRAWS);
    if (expected_rest >= 8) chi += pow((double)rest - expected_rest, 2) / expected_rest, freedom++;
    if (!(fabs(chi - (double)freedom) < 5 * sqrt(2.0 * (double)freedom)))
        fprintf(stderr, "chi-square %g, %lld degrees of freedom\n", chi, (long long)freedom);
    CHECK(freedom > 5 && fabs(chi - (double)freedom) < 5 * sqrt(2.0 * (double)freedom));
    sampler_free(s);
    memory_free(counts);
}

static void test_frequencies(struct world *w) {
    const int32_t banned[] = {0, 70, 71, 999};
    check_frequencies(w, (struct sampler_config){.temperature = 0.8F, .top_p = 1, .seed = 1}, 1, 1000);
    check_frequencies(w, (struct sampler_config){.temperature = 0.8F, .top_p = 0.95F, .seed = 2}, 2, 1000);
    /* several draws */
    check_frequencies(w, (struct sampler_config){.temperature = 0.8F, .top_p = 0.95F, .seed = 3}, 0.3F, 1000);
    check_frequencies(w, (struct sampler_config){.temperature = 1, .top_p = 0.3F, .seed = 4}, 0.3F, 4000);
    check_frequencies(w, (struct sampler_config){.temperature = 1, .top_p = 0.9F, .min_p = 0.3F, .seed = 5}, 0.4F,
                      1000);
    check_frequencies(w, (struct sampler_config){.temperature = 1, .top_p = 1, .min_p = 0.3F, .seed = 6}, 0.4F, 1000);
    check_frequencies(w, (struct sampler_config){.temperature = 1, .top_k = 700, .top_p = 1, .seed = 7}, 0.5F, 1000);
    check_frequencies(w,
                      (struct sampler_config){
                          .temperature = 1, .top_k = 700, .top_p = 0.9F, .seed = 8, .banned = banned, .n_banned = 4},
                      0.5F, 1000);
    check_frequencies(w, (struct sampler_config){.temperature = 1, .top_k = 40, .top_p = 0.9F, .seed = 9}, 1, 1000);
}

/* ---- the same on every target ---- */

/* Logits are sums of integers times a power of two, so that their bits are the same everywhere. */
static void test_targets(struct world *w) {
    const struct sampler_config configs[] = {
        {.temperature = 0.8F, .top_p = 1, .seed = 5},
        {.temperature = 0.8F, .top_p = 0.95F, .seed = 6},
        {.temperature = 2.5F, .top_p = 0.95F, .seed = 7},
        {.temperature = 0.7F, .top_k = 40, .top_p = 0.9F, .min_p = 0.02F, .seed = 8},
        {.temperature = 1.5F, .top_k = 700, .top_p = 0.9F, .repeat_penalty = 1.2F, .repeat_last = 20, .seed = 9}};
    const uint64_t expected[ARRAY_LEN(configs)] = {0x8E4127E9CA704B2DU, 0x5E94206690561A39U, 0x25D30330EE21062BU,
                                                   0x86D2FE020C8FCFBAU, 0x452D7E099874F353U};
    struct rng rng = rng_make(11, 0);
    bool same = true;
    for (size_t i = 0; i < ARRAY_LEN(configs); i++) {
        struct sampler *s;
        uint64_t hash = 1469598103934665603U;
        CHECK_OK(sampler_create(&s, &configs[i], 5000));
        for (int pick = 0; pick < 300; pick++) {
            for (int id = 0; id < 5000; id++) {
                int32_t sum = 0;
                for (int j = 0; j < 4; j++)
                    sum += (int32_t)(rng_u32(&rng) >> 11);
                w->logits[id] = (float)sum * 0x1p-19F;
            }
            hash = (hash ^ (uint64_t)sampler_pick(s, w->logits)) * 1099511628211U;
        }
        sampler_free(s);
        if (hash != expected[i]) fprintf(stderr, "settings %zu: 0x%016llX\n", i, (unsigned long long)hash);
        same = same && hash == expected[i];
    }
    CHECK(same);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    struct world w = {.rng = rng_make(test_seed(), 0)};
    CHECK_OK(device_open(&w.cpu, "cpu", 1));
    CHECK_OK(memory_allocate(&w.logits, VOCAB_MAX));
    CHECK_OK(memory_allocate(&w.penalised, VOCAB_MAX));
    CHECK_OK(memory_allocate(&w.order, VOCAB_MAX));
    CHECK_OK(memory_allocate(&w.banned, VOCAB_MAX));
    for (int i = 0; i < CASES; i++)
        run_case(&w);
    w.rng = rng_make(1, 0);
    test_frequencies(&w);
    test_targets(&w);
    memory_free(w.logits);
    memory_free(w.penalised);
    memory_free(w.order);
    memory_free(w.banned);
    device_close(w.cpu);
    return test_done();
}
