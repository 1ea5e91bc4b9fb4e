/* test_device_lexical.c -- the lexical index as a device searches it, here by the CPU twin, against lexical_search:
 * equal chunks and equal bits of scores for segments, ranges left out, dropped chunks, ties and queries of any kind. */
#include "indexer/search/device_lexical.h"
#include "kernels/device/device_internal.h"
#include "kernels/lexical/lexical_scan.h"
#include "store/lexical/lexical_lists.h"
#include "store/lexical/lexical_segment_internal.h"
#include "tests/lexical_fixture.h"

enum { QUERY = 128, QUERIES = 150, CHUNKS = 20000, K_MAX = 1500 };

static int32_t ids[QUERIES][QUERY];
static struct lexical_query queries[QUERIES];
static struct store_range ranges[QUERIES];

/* The first queries are special: empty, outside of the vocabulary, one frequent id, one repeated id. */
static void make_queries(const struct lexical_corpus *c, struct rng *r) {
    for (int q = 0; q < QUERIES; q++) {
        int n = q == 0 ? 0 : q == 2 ? 1 : 1 + (int)rng_below(r, QUERY);
        int64_t from = (int64_t)rng_below(r, (uint64_t)c->n);
        for (int i = 0; i < n; i++) {
            int64_t chunk = i % 3 ? from : (int64_t)rng_below(r, (uint64_t)c->n);
            ids[q][i] = q == 1   ? (i % 2 ? -1 : c->vocab + i)
                        : q == 2 ? 0
                        : q == 3 ? 5
                        : i == 9 ? -1
                                 : c->ids[chunk][i % c->lengths[chunk]];
        }
        queries[q] = (struct lexical_query){ids[q], n};
        ranges[q] = (struct store_range){from, from + (q % 3 ? (int64_t)rng_below(r, (uint64_t)c->n) : 0)};
    }
}

static void check_equal(struct device_lexical *d, const struct lexical *x, int64_t first, int64_t n,
                        const struct lexical_search *all) {
    struct lexical_search one = *all, *how = &one;
    if (one.exclude) one.exclude += first;
    int64_t count = n * how->k;
    struct store_hit *want = calloc((size_t)count + 1, sizeof *want), *got = calloc((size_t)count + 1, sizeof *got);
    struct lexical_search without = *how;
    CHECK_OK(lexical_search(x, want, queries + first, n, how));
    without.absent = (struct store_dropped){0}; /* the copy has one of its own */
    CHECK_OK(device_lexical_search(d, got, queries + first, n, &without));
    for (int64_t i = 0; i < count; i++) {
        CHECK_EQ(got[i].chunk, want[i].chunk);
        CHECK(memcmp(&got[i].score, &want[i].score, sizeof want[i].score) == 0);
    }
    free(want), free(got);
}

static void check_corpus(const struct lexical_corpus *c, int parts, struct device *dev, struct store_dropped absent) {
    static const int ks[] = {1, 16, 64, 256, LEXICAL_SCAN_K_MAX, K_MAX};
    char name[40];
    snprintf(name, sizeof name, "equal%d", (int)absent.n);
    struct lexical *x = lexical_fixture_open(c, parts, name);
    struct device_lexical *d;
    const struct device_lexical_config config = {.device = dev, .index = x, .absent = absent, .reserve = 1 << 20};
    CHECK_OK(device_lexical_create(&d, &config));
    CHECK(device_lexical_bytes(&config) > (uint64_t)c->n);
    for (size_t i = 0; i < ARRAY_LEN(ks); i++)
        for (int excluded = 0; excluded < 2; excluded++) {
            const struct lexical_search how = {.k = ks[i],
                                               .pair_weight = i % 2 ? LEXICAL_PAIR_WEIGHT : 0,
                                               .counted = i == 2,
                                               .exclude = excluded ? ranges : NULL,
                                               .absent = absent};
            check_equal(d, x, 0, i < 3 ? QUERIES : 5, &how);
            for (int q = 0; q < 9; q++) /* alone: lists that an earlier query looked up are known */
                check_equal(d, x, q / 2, 1, &how);
        }
    device_lexical_free(d);
    lexical_close(x);
}

/* Two chunks alternate, so that half of all chunks have each score; the smaller ids win. */
static void test_ties(struct device *dev) {
    struct lexical_corpus c;
    lexical_corpus_random(&c, 9000, 50, 3);
    for (int64_t i = 2; i < c.n; i++) {
        memcpy(c.ids[i], c.ids[i % 2], sizeof c.ids[i]);
        c.lengths[i] = c.lengths[i % 2];
    }
    for (int q = 0; q < 4; q++) {
        memcpy(ids[q], c.ids[q % 2], sizeof c.ids[0]);
        queries[q] = (struct lexical_query){ids[q], c.lengths[q % 2]};
        ranges[q] = (struct store_range){q * 3, q * 3 + 40};
    }
    struct lexical *x = lexical_fixture_open(&c, 2, "ties");
    struct device_lexical *d;
    const struct lexical_search how = {.k = 700, .pair_weight = LEXICAL_PAIR_WEIGHT, .exclude = ranges};
    CHECK_OK(device_lexical_create(&d, &(struct device_lexical_config){.device = dev, .index = x}));
    check_equal(d, x, 0, 4, &how);
    device_lexical_free(d);
    lexical_close(x);
    lexical_corpus_free(&c);
}

/* A changed byte of the postings: copy and CPU search are both refused, or find the same hits. */
static void test_damage(struct device *dev) {
    enum { CASES = 60 };
    struct lexical_corpus c;
    struct rng r = rng_make(test_seed(), 4);
    lexical_corpus_random(&c, 3000, 300, 5);
    make_queries(&c, &r);
    const char *path = test_path("damaged.lexical");
    lexical_fixture_build(path, &c, 0, c.n, 0);
    struct file_map map;
    CHECK_OK(file_map(&map, path));
    uint8_t *bytes = malloc(map.size);
    const size_t size = map.size;
    memcpy(bytes, map.data, size);
    file_unmap(&map);
    uint64_t postings = little_endian_get(bytes + size - LEXICAL_FOOTER_BYTES + 40, 8);
    int refused = 0;
    for (int i = 0; i < CASES; i++) {
        size_t at = LEXICAL_HEADER_BYTES + (size_t)rng_below(&r, i % 2 ? size - 200 : postings);
        uint8_t change = (uint8_t)(1u << rng_below(&r, 8));
        struct lexical *x;
        struct device_lexical *d;
        bytes[at] ^= change;
        FILE *file = fopen(path, "wb");
        CHECK(file && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
        bytes[at] ^= change;
        CHECK_OK(lexical_open(&x, &path, 1));
        enum status s = device_lexical_create(&d, &(struct device_lexical_config){.device = dev, .index = x});
        CHECK(s == STATUS_OK || (s == STATUS_CORRUPT && strstr(status_message(), "run drt-index repair")));
        CHECK(s == STATUS_OK || strstr(status_message(), path));
        refused += s != STATUS_OK;
        if (s == STATUS_OK) check_equal(d, x, 0, 20, &(struct lexical_search){.k = 30, .pair_weight = 1});
        if (s == STATUS_OK) device_lexical_free(d);
        lexical_close(x);
    }
    CHECK(refused > CASES / 4 && refused < CASES);
    free(bytes);
    lexical_corpus_free(&c);
}

/* Several threads check parts, and agree with lexical_verify on good and damaged files. */
static void test_check(void) {
    struct lexical_corpus c;
    struct threads *threads;
    lexical_corpus_random(&c, 12000, 3000, 6);
    struct lexical *x = lexical_fixture_open(&c, 3, "check");
    struct lexical_info info;
    CHECK_OK(threads_create(&threads, 3));
    lexical_info(x, &info);
    CHECK(info.keys > 3 * 64 * 256); /* several parts of a segment */
    CHECK_OK(lexical_check(x, NULL));
    CHECK_OK(lexical_check(x, threads));
    lexical_close(x);
    threads_free(threads);
    lexical_corpus_free(&c);
}

static enum status no_memory(struct device *dev, void **out, size_t bytes) {
    (void)dev, (void)out;
    return fail(STATUS_NO_MEMORY, "no %zu bytes", bytes);
}

static void test_no_memory(struct device *dev) {
    struct lexical_corpus c;
    lexical_corpus_random(&c, 500, 40, 7);
    struct lexical *x = lexical_fixture_open(&c, 1, "memory");
    struct device without = *dev;
    struct device_runtime runtime = *dev->runtime;
    struct device_lexical *d;
    without.runtime = &runtime;
    runtime.allocate = no_memory;
    CHECK_FAILS(device_lexical_create(&d, &(struct device_lexical_config){.device = &without, .index = x}),
                STATUS_NO_MEMORY, "no ");
    lexical_close(x);
    lexical_corpus_free(&c);
}

/* No segment: nothing is found. */
static void test_empty(struct device *dev) {
    struct lexical *x;
    struct device_lexical *d;
    struct store_hit hits[3];
    CHECK_OK(lexical_open(&x, NULL, 0));
    CHECK_OK(device_lexical_create(&d, &(struct device_lexical_config){.device = dev, .index = x}));
    CHECK_OK(device_lexical_search(d, hits, queries, 1, &(struct lexical_search){.k = 3}));
    for (int i = 0; i < 3; i++)
        CHECK(hits[i].chunk == -1 && hits[i].score == -INFINITY);
    device_lexical_free(d);
    lexical_close(x);
}

int main(int argc, char **argv) {
    static const struct store_hole holes[] = {{0, 3, 0}, {700, 2100, 3}, {8190, 8195, 1403}, {19990, 30000, 1408}};
    test_start(argc, argv, 1);
    struct device *dev;
    struct lexical_corpus c;
    struct rng r = rng_make(test_seed(), 1);
    CHECK_OK(device_open(&dev, "cpu", 2));
    lexical_corpus_random(&c, CHUNKS, 900, test_seed());
    make_queries(&c, &r);
    check_corpus(&c, 1, dev, (struct store_dropped){0});
    check_corpus(&c, 4, dev, (struct store_dropped){holes, ARRAY_LEN(holes)});
    test_ties(dev);
    test_damage(dev);
    test_check();
    test_no_memory(dev);
    test_empty(dev);
    device_close(dev);
    lexical_corpus_free(&c);
    return test_done();
}
