/* test_logit_scan.c -- each pass over random logits against plain loops in double precision. */
#include "base/memory.h"
#include "base/rng.h"
#include "decoder/logits/logit_scan.h"
#include "kernels/pick/pick_rule.h"
#include "tests/test.h"
#include <float.h>

enum { N_MAX = 1100 };

struct world {
    struct rng rng;
    int64_t n;
    float *logits; /* exactly n of them, so that a read past the end is found */
    struct logit_scan scan;
};

static void make(struct world *w, int64_t n, bool ties) {
    w->n = n;
    CHECK_OK(memory_allocate(&w->logits, (size_t)n));
    CHECK_OK(logit_scan_create(&w->scan, n));
    for (int64_t i = 0; i < n; i++) {
        float x = 3 * rng_normal(&w->rng);
        w->logits[i] = ties ? rintf(x) : x;
        if (rng_below(&w->rng, 50) == 0) w->logits[i] = rng_below(&w->rng, 2) ? NAN : -INFINITY;
    }
    w->logits[rng_below(&w->rng, (uint64_t)n)] = 9.25F;
    logit_scan_begin(&w->scan, w->logits);
}

static void drop(struct world *w) {
    logit_scan_release(&w->scan);
    memory_free(w->logits);
}

/* Units have the bits of pick_unit, which tests/twins/pick tests. */
static void test_units(void) {
    static float x[N_MAX / LOGIT_BLOCK * LOGIT_BLOCK];
    static uint32_t y[ARRAY_LEN(x)];
    const float odd[] = {NAN, -INFINITY, -88, -1e30F, -FLT_MAX, -20.79F, -20.8F};
    const float scales[] = {1.4426950F, 0.3F, FLT_MAX};
    const int64_t n = ARRAY_LEN(x);
    for (size_t c = 0; c < 3 * ARRAY_LEN(scales); c++) {
        const float scale = scales[c / 3], top = c % 3 == 0 ? 0 : 7.25F;
        for (int64_t i = 0; i < n; i++)
            x[i] = c % 3 == 2 ? odd[i % 7] : top - 24 * (float)i / (float)(n - 1);
        logit_units(y, x, n, top, scale);
        for (int64_t i = 0; i < n; i++)
            CHECK_EQ(y[i], pick_unit(x[i], top, scale));
    }
    CHECK(logit_scale(1e-42F) == FLT_MAX && logit_scale(1) == 1.44269504F);
}

static void test_tops(struct world *w) {
    float top = -INFINITY;
    for (int64_t b = 0; b < w->scan.blocks; b++) {
        float best = -INFINITY;
        for (int64_t i = b * LOGIT_BLOCK; i < w->n && i < (b + 1) * LOGIT_BLOCK; i++)
            if (w->logits[i] > best) best = w->logits[i];
        CHECK(w->scan.tops[b] == best);
        top = best > top ? best : top;
    }
    CHECK(w->scan.top == top);
    const int64_t first = logit_scan_first_top(&w->scan);
    CHECK(w->logits[first] == top);
    for (int64_t i = 0; i < first; i++)
        CHECK(!(w->logits[i] == top));
}

/* Draws over the running sums find each id where its unit is. */
static void check_find(const struct world *w, const uint32_t *units, uint64_t total) {
    uint64_t before = 0;
    for (int64_t id = 0; id < w->n; id++) {
        if (units[id] > 0) CHECK_EQ(logit_scan_find(&w->scan, before), id);
        before += units[id];
        if (units[id] > 0) CHECK_EQ(logit_scan_find(&w->scan, before - 1), id);
    }
    CHECK(before == total);
}

static void test_sums(struct world *w) {
    static uint32_t units[N_MAX];
    const float scale = logit_scale(0.7F);
    double sum = 0;
    for (int64_t i = 0; i < w->n; i++) {
        units[i] = pick_unit(w->logits[i], w->scan.top, scale);
        if (w->logits[i] > -INFINITY) sum += exp((double)w->logits[i] - (double)w->scan.top);
    }
    CHECK(fabs(logit_scan_sum_exp(&w->scan) - sum) < 1e-6 * sum);
    check_find(w, units, logit_scan_units(&w->scan, scale));
    /* Those before an id: greater logits, and equal ones in earlier blocks. */
    int64_t id = (int64_t)rng_below(&w->rng, (uint64_t)w->n);
    const float logit = w->logits[id];
    const uint32_t least = 1 + (uint32_t)rng_below(&w->rng, 9999);
    if (isnan(logit) || logit == w->scan.top) return;
    for (int64_t i = 0; i < w->n; i++) {
        const bool before = i / LOGIT_BLOCK <= id / LOGIT_BLOCK ? w->logits[i] >= logit : w->logits[i] > logit;
        if (!before || units[i] < least) units[i] = 0;
    }
    check_find(w, units, logit_scan_narrow(&w->scan, logit, id, least));
}

static int compare(const void *a, const void *b) {
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static bool better(const struct world *w, int64_t a, int64_t b) {
    return w->logits[a] > w->logits[b] || (w->logits[a] == w->logits[b] && a < b);
}

static void test_best(struct world *w, int64_t k) {
    int64_t finite = 0;
    for (int64_t i = 0; i < w->n; i++)
        finite += w->logits[i] > -INFINITY;
    logit_scan_begin(&w->scan, w->logits);
    logit_scan_tops(&w->scan);
    const int64_t n = logit_scan_best(&w->scan, k);
    CHECK_EQ(n, k < finite ? k : finite);
    for (int64_t i = 0; i < n; i++) {
        const int64_t id = logit_key_id(w->scan.keys[i]);
        int64_t rank = 0;
        for (int64_t j = 0; j < w->n; j++)
            rank += better(w, j, id);
        CHECK_EQ(rank, i);
        CHECK(logit_key_logit(w->scan.keys[i]) == w->logits[id]);
    }
}

/* The same ids in their order. */
static void test_few(struct world *w, int64_t k) {
    static int64_t best[LOGIT_BEST_MAX];
    logit_scan_begin(&w->scan, w->logits);
    logit_scan_tops(&w->scan);
    const int64_t n = logit_scan_best(&w->scan, k);
    memcpy(best, w->scan.keys, (size_t)n * sizeof *best);
    logit_scan_begin(&w->scan, w->logits);
    logit_scan_tops(&w->scan);
    CHECK_EQ(logit_scan_few(&w->scan, k), n);
    for (int64_t i = 1; i < n; i++)
        CHECK(logit_key_id(w->scan.keys[i]) > logit_key_id(w->scan.keys[i - 1]));
    qsort(w->scan.keys, (size_t)n, sizeof *w->scan.keys, compare);
    CHECK(memcmp(best, w->scan.keys, (size_t)n * sizeof *best) == 0);
}

static void test_kth(struct world *w, int64_t k) {
    logit_scan_begin(&w->scan, w->logits);
    logit_scan_tops(&w->scan);
    const float kth = logit_scan_kth(&w->scan, k);
    int64_t n = 0;
    for (int64_t id = 0; id < w->n; id++) {
        int64_t rank = 0;
        for (int64_t j = 0; j < w->n; j++)
            rank += better(w, j, id);
        const bool is_in = logit_scan_at(&w->scan, id) >= kth;
        n += is_in;
        if (w->logits[id] > -INFINITY) CHECK_EQ(is_in, rank < k);
    }
    CHECK(n <= k);
}

static void test_gather(struct world *w) {
    logit_scan_begin(&w->scan, w->logits);
    logit_scan_hide(&w->scan, 0);
    logit_scan_tops(&w->scan);
    int64_t expected = 0;
    for (int64_t i = 1; i < w->n; i++)
        expected += w->logits[i] >= 4;
    CHECK_EQ(logit_scan_gather(&w->scan, 4, expected), expected);
    for (int64_t i = 0; i < expected; i++) {
        CHECK(logit_key_logit(w->scan.keys[i]) >= 4 && logit_key_id(w->scan.keys[i]) > 0);
        CHECK(i == 0 || logit_key_id(w->scan.keys[i]) > logit_key_id(w->scan.keys[i - 1]));
    }
    if (expected > 0) CHECK_EQ(logit_scan_gather(&w->scan, 4, expected - 1), -1);
}

static void test_sort(struct rng *rng) {
    int64_t keys[LOGIT_BEST_MAX], sorted[LOGIT_BEST_MAX], scratch[LOGIT_BEST_MAX];
    for (int64_t n = 0; n <= LOGIT_BEST_MAX; n += n < 140 ? 1 : 31) {
        for (int64_t i = 0; i < n; i++)
            keys[i] = sorted[i] = (int64_t)(rng_u64(rng) & ~(uint64_t)1023) + i;
        qsort(sorted, (size_t)n, sizeof *sorted, compare);
        logit_keys_sort(keys, scratch, n);
        CHECK(memcmp(keys, sorted, (size_t)n * sizeof *keys) == 0);
    }
}

/* All units and running sums, the same on every target and with every width of vectors. Logits are integers
 * times a power of two, since a compiler may contract what makes other ones. */
static void test_targets(struct world *w) {
    const uint64_t expected = 0x2361A3F9E9B20F44U;
    uint64_t hash = 0xCBF29CE484222325U;
    struct rng rng = rng_make(7, 0);
    make(w, 1000, false);
    for (int64_t i = 0; i < w->n; i++)
        w->logits[i] = (float)((int32_t)(rng_u32(&rng) >> 8) - (1 << 23)) * 0x1p-18F;
    logit_scan_begin(&w->scan, w->logits);
    logit_scan_tops(&w->scan);
    (void)logit_scan_units(&w->scan, logit_scale(0.75F));
    for (int64_t i = 0; i < w->n; i++)
        hash = (hash ^ w->scan.units[i]) * 0x100000001B3U;
    for (int64_t b = 0; b < w->scan.blocks; b++)
        hash = (hash ^ w->scan.sums[b]) * 0x100000001B3U;
    if (hash != expected) fprintf(stderr, "hash 0x%016llX\n", (unsigned long long)hash);
    CHECK(hash == expected);
    drop(w);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    static const int64_t sizes[] = {1, 2, 15, 16, 17, 63, 64, 65, 192, 257, 1000, N_MAX};
    struct world w = {.rng = rng_make(test_seed(), 0)};
    test_units();
    test_sort(&w.rng);
    test_targets(&w);
    for (size_t i = 0; i < 3 * ARRAY_LEN(sizes); i++) {
        make(&w, sizes[i / 3], i % 3 == 1);
        logit_scan_tops(&w.scan);
        test_tops(&w);
        test_sums(&w);
        const int64_t ks[] = {1, 2, 5, 40, 300, 512};
        for (size_t k = 0; k < ARRAY_LEN(ks); k++) {
            test_best(&w, ks[k]);
            test_kth(&w, ks[k]);
            test_few(&w, ks[k]);
        }
        test_gather(&w);
        drop(&w);
    }
    return test_done();
}
