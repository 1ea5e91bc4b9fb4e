/* bench_search.c -- one query of each kind of searcher over a real store: by landmarks, by words, and both merged.
 *
 *   bench_search STORE QUERIES.u16 [threads (2)] [k (64)] [queries (200)] [--json FILE]
 *
 * Queries run one after another. The words of a query are the 128 ids before a position of QUERIES.u16, a file of
 * drt-tokenizer encode. Its vector is the landmark of a chunk of the store with noise, since no decoder runs here. The
 * time includes the exact scores of the hits. */
#include "base/clock.h"
#include "base/file.h"
#include "base/rng.h"
#include "indexer/search/searcher.h"
#include "tests/bench/result.h"
#include "tests/test.h"
#include <time.h>

enum { WARM = 3, QUERIES_MAX = 4096 };

struct bench {
    struct device *device;
    struct store *store;
    struct store_view *view;
    struct store_info info;
    struct lexical_query *tokens;
    int32_t *ids;
    float *vectors;
    int n, k;
};

static double processor_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void read_queries(struct bench *b, const char *path) {
    struct file_map map;
    CHECK_OK(file_map(&map, path));
    int64_t n = (int64_t)map.size / 2;
    CHECK(n > SEARCHER_TOKENS + b->n);
    b->ids = malloc((size_t)n * sizeof *b->ids);
    b->tokens = malloc((size_t)b->n * sizeof *b->tokens);
    CHECK(b->ids && b->tokens);
    for (int64_t i = 0; i < n; i++)
        b->ids[i] = map.data[2 * i] | map.data[2 * i + 1] << 8;
    file_unmap(&map);
    for (int64_t i = 0; i < b->n; i++)
        b->tokens[i] = (struct lexical_query){b->ids + i * ((n - SEARCHER_TOKENS) / b->n), SEARCHER_TOKENS};
}

static void make_vectors(struct bench *b) {
    const int dim = b->info.fingerprint.dim;
    const struct store_dropped dropped = store_view_dropped(b->view);
    struct rng r = rng_make(7, 1);
    b->vectors = malloc((size_t)b->n * (size_t)dim * sizeof *b->vectors);
    CHECK(b->vectors);
    for (int i = 0; i < b->n; i++) {
        int64_t there = b->info.chunks - b->info.dropped_chunks;
        int64_t chunk = store_dropped_nth(dropped, (int64_t)rng_below(&r, (uint64_t)there));
        float *row = b->vectors + (int64_t)i * dim;
        CHECK_OK(store_view_landmark(b->view, row, chunk));
        double sum = 0;
        for (int d = 0; d < dim; d++)
            sum += (double)row[d] * (double)row[d];
        const float noise = 0.5f * (float)sqrt(sum / dim);
        for (int d = 0; d < dim; d++)
            row[d] += noise * rng_normal(&r);
    }
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const struct bench *b, enum searcher_kind kind, bool exact, const char *name) {
    static double seconds[QUERIES_MAX];
    const struct searcher_config config = {.kind = kind, .device = b->device, .view = b->view, .exact = exact};
    const int dim = b->info.fingerprint.dim;
    struct searcher *s;
    CHECK_OK(searcher_open(&s, &config));
    struct store_hit *hits = malloc((size_t)b->k * sizeof *hits);
    double processor = 0;
    int64_t found = 0;
    for (int i = -WARM; i < b->n; i++) {
        int at = i < 0 ? i + WARM : i;
        const struct searcher_query q = {
            .n = 1, .k = b->k, .vectors = b->vectors + (int64_t)at * dim, .tokens = b->tokens + at};
        double begin = clock_seconds(), used = processor_seconds();
        CHECK_OK(searcher_search(s, hits, &q));
        if (i < 0) continue;
        seconds[i] = clock_seconds() - begin;
        processor += processor_seconds() - used;
        found += hits[0].chunk >= 0;
    }
    CHECK_EQ(found, b->n);
    result_figure(&(struct figure){.unit = "ms", .values = seconds, .count = b->n, .scale = 1e3}, "%s, k %d", name,
                  b->k);
    qsort(seconds, (size_t)b->n, sizeof *seconds, by_value);
    printf("%s,k %d,p50 %.2f ms,p99 %.2f ms,processor %.2f ms a query,%s\n", name, b->k, 1e3 * seconds[b->n / 2],
           1e3 * seconds[b->n * 99 / 100], 1e3 * processor / b->n, searcher_describe(s, b->k, 0).text);
    free(hits);
    searcher_close(s);
}

int main(int argc, char **argv) {
    struct bench b = {0};
    result_begin("bench_search", &argc, argv);
    if (argc < 3) {
        fprintf(stderr, "usage: bench_search STORE QUERIES.u16 [threads] [k] [queries] [--json FILE]\n");
        return 2;
    }
    b.k = argc > 4 ? (int)strtol(argv[4], NULL, 10) : 64;
    b.n = argc > 5 ? (int)strtol(argv[5], NULL, 10) : 200;
    CHECK(b.k >= 1 && b.n >= 1 && b.n <= QUERIES_MAX);
    CHECK_OK(device_open(&b.device, "cpu", argc > 3 ? (int)strtol(argv[3], NULL, 10) : 2));
    CHECK_OK(store_open(&b.store, argv[1]));
    CHECK_OK(store_view_open(&b.view, b.store));
    store_view_info(b.view, &b.info);
    printf("store,%lld chunks,dim %d,index %s,lexical %.1f bytes a chunk in %lld segments\n", (long long)b.info.chunks,
           b.info.fingerprint.dim, b.info.index, (double)b.info.lexical_bytes / (double)b.info.chunks,
           (long long)b.info.lexical_segments);
    result_value("bytes", (double)b.info.lexical_bytes / (double)b.info.chunks, "lexical index, a chunk");
    read_queries(&b, argv[2]);
    make_vectors(&b);
    measure(&b, SEARCHER_STORE, false, "landmark");
    measure(&b, SEARCHER_LEXICAL, false, "lexical");
    measure(&b, SEARCHER_HYBRID, false, "hybrid");
    result_end();
    free(b.vectors);
    free(b.tokens);
    free(b.ids);
    store_view_close(b.view);
    store_close(b.store);
    device_close(b.device);
    return 0;
}
