/* test_logit_scan.c -- each pass over random logits against plain loops in double precision. */
#include "base/memory.h"
#include "base/rng.h"
#include "decoder/logits/logit_scan.h"
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

static void test_exp(void) {
    static float x[N_MAX / LOGIT_BLOCK * LOGIT_BLOCK], y[ARRAY_LEN(x)];
    const int64_t n = ARRAY_LEN(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = -86 * (float)i / (float)(n - 1);
    logit_weights(y, x, n, 0, 1);
    CHECK(y[0] == 1);
    for (int64_t i = 0; i < n; i++)
        CHECK(fabs((double)y[i] / exp((double)x[i]) - 1) < 2e-7 - 1.3e-7 * (double)x[i]); /* x log2(e) is rounded */
    const float odd[] = {NAN, -INFINITY, -88, -1e30F, -FLT_MAX};
    for (int64_t i = 0; i < n; i++)
        x[i] = odd[i % 5];
    logit_weights(y, x, n, 0, 1);
    for (int64_t i = 0; i < n; i++)
        CHECK(y[i] == 0);
    x[0] = 5, x[1] = 4; /* the smallest temperatures: no weight but that of the best */
    logit_weights(y, x, n, 5, 1e-42F);
    CHECK(y[0] == 1 && y[1] == 0);
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

/* Draws over the running sums find each id about where its weight is, and none without a weight. */
static void check_find(const struct world *w, const double *weights, double total) {
    double before = 0;
    for (int64_t id = 0; id < w->n; id++) {
        const double middle = before + weights[id] / 2;
        before += weights[id];
        if (weights[id] > 1e-4 * total) CHECK_EQ(logit_scan_find(&w->scan, middle), id);
    }
    for (int i = 0; i < 50; i++)
        CHECK(weights[logit_scan_find(&w->scan, total * i / 50)] > 0);
    CHECK(fabs(before - total) < 1e-6 * total);
}

static void test_sums(struct world *w) {
    static double weights[N_MAX];
    const float temperature = 0.7F;
    for (int64_t i = 0; i < w->n; i++) {
        weights[i] = exp(((double)w->logits[i] - (double)w->scan.top) / (double)temperature);
        if (isnan(weights[i])) weights[i] = 0;
    }
    double total = logit_scan_weigh(&w->scan, temperature);
    for (int64_t i = 0; i < w->n; i++)
        CHECK(fabs((double)w->scan.weights[i] - weights[i]) <= 6e-6 * weights[i] + 1e-36);
    check_find(w, weights, total);
    /* Those before an id: greater logits, and equal ones in earlier blocks. */
    int64_t id = (int64_t)rng_below(&w->rng, (uint64_t)w->n);
    const float logit = w->logits[id], least = 1e-5F;
    if (isnan(logit) || logit == w->scan.top) return;
    for (int64_t i = 0; i < w->n; i++) {
        const bool before = i / LOGIT_BLOCK <= id / LOGIT_BLOCK ? w->logits[i] >= logit : w->logits[i] > logit;
        if (!before || w->scan.weights[i] < least) weights[i] = 0;
    }
    check_find(w, weights, logit_scan_narrow(&w->scan, logit, id, least));
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

/* Bits of all weights and running sums, the same on every target and with every width of vectors. Logits are integers
 * times a power of two, since a compiler may contract what makes other ones. */
static void test_targets(struct world *w) {
    const uint64_t expected = 0x5E33890D7FB5C2C0U;
    uint64_t hash = 0xCBF29CE484222325U;
    struct rng rng = rng_make(7, 0);
    make(w, 1000, false);
    for (int64_t i = 0; i < w->n; i++)
        w->logits[i] = (float)((int32_t)(rng_u32(&rng) >> 8) - (1 << 23)) * 0x1p-18F;
    logit_scan_begin(&w->scan, w->logits);
    logit_scan_tops(&w->scan);
    (void)logit_scan_weigh(&w->scan, 0.75F);
    for (int64_t i = 0; i < w->n; i++) {
        uint32_t bits;
        memcpy(&bits, &w->scan.weights[i], sizeof bits);
        hash = (hash ^ bits) * 0x100000001B3U;
    }
    for (int64_t b = 0; b < w->scan.blocks; b++) {
        uint64_t bits;
        memcpy(&bits, &w->scan.sums[b], sizeof bits);
        hash = (hash ^ bits) * 0x100000001B3U;
    }
    if (hash != expected) fprintf(stderr, "hash 0x%016llX\n", (unsigned long long)hash);
    CHECK(hash == expected);
    drop(w);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    static const int64_t sizes[] = {1, 2, 15, 16, 17, 63, 64, 65, 192, 257, 1000, N_MAX};
    struct world w = {.rng = rng_make(test_seed(), 0)};
    test_exp();
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
        }
        test_gather(&w);
        drop(&w);
    }
    return test_done();
}
