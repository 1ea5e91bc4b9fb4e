/* bench_store.c -- rates of the store: sealing, exact scan, index search, chunk lookup. CSV rows on stdout.
 *
 *   bench_store [chunks (50000)] [dim (384)] [threads (1)] [index (IVF256_HNSW32,SQ8)] [--json FILE]
 *
 * The landmarks are generated in clusters; recall is given for several numbers of visited lists. */
#include "base/clock.h"
#include "tests/bench/result.h"
#include "tests/store_fixture.h"

enum { PER_DOCUMENT = 25, SHARD = 16384, K = 8, QUERIES = 64 };

static void build(const char *dir, const struct store_writer_config *c, int64_t chunks, struct threads *threads,
                  const char *index) {
    int dim = c->fingerprint.dim;
    struct store_writer *w;
    CHECK_OK(store_writer_open(&w, dir, c, true));
    static int32_t ids[PER_DOCUMENT * FIXTURE_CHUNK];
    float *rows = malloc((size_t)PER_DOCUMENT * (size_t)dim * sizeof *rows);
    double seconds = 0;
    bool open = false;
    for (int64_t at = 0; at < chunks; at += PER_DOCUMENT) {
        for (int i = 0; i < PER_DOCUMENT; i++)
            fixture_vector(rows + (size_t)i * (size_t)dim, dim, (uint64_t)at + (uint64_t)i, 0.7f);
        double begin = clock_seconds();
        if (!open) CHECK_OK(store_shard_begin(w));
        open = true;
        struct store_new_document d = {.ids = ids, .n_ids = ARRAY_LEN(ids), .source = "bench", .key = "k"};
        fixture_hash(d.hash, at);
        bool duplicate;
        CHECK_OK(store_shard_document(w, &d, &duplicate));
        CHECK_OK(store_shard_landmarks(w, rows, PER_DOCUMENT));
        if (store_shard_chunks(w) >= SHARD || at + PER_DOCUMENT >= chunks) {
            CHECK_OK(store_shard_seal(w, NULL, 0));
            open = false;
        }
        seconds += clock_seconds() - begin;
    }
    printf("seal,%lld chunks of %d,%.0f chunks/s\n", (long long)chunks, dim, (double)chunks / seconds);
    result_value("chunks/s", (double)chunks / seconds, "seal, d %d", dim);
    double begin = clock_seconds();
    CHECK_OK(store_writer_publish(w, &(struct store_publish){.index = index, .seed = 1, .threads = threads}));
    double published = clock_seconds() - begin;
    printf("publish,%s,%.2f s\n", index, published);
    result_value("s", published, "publish with %s", index);
    store_writer_close(w);
    free(rows);
}

enum { SEARCHES = 9 };

/* Measures each call; returns the best seconds. */
static double best_search(double took[SEARCHES], struct store_view *v, struct store_hit *hits, const float *queries,
                          int n, const struct store_search *how) {
    double best = 1e30;
    for (int i = -1; i < SEARCHES; i++) { /* the first warms up */
        double begin = clock_seconds();
        CHECK_OK(store_view_search(v, hits, queries, n, how));
        double seconds = clock_seconds() - begin;
        if (i >= 0) took[i] = seconds;
        if (i >= 0 && seconds < best) best = seconds;
    }
    return best;
}

static void measure(struct store_view *v, int64_t chunks, int dim, struct threads *threads) {
    float *queries = malloc((size_t)QUERIES * (size_t)dim * sizeof *queries);
    static struct store_hit exact[QUERIES * K], hits[QUERIES * K];
    for (int q = 0; q < QUERIES; q++)
        fixture_vector(queries + (size_t)q * (size_t)dim, dim, 9000000 + (uint64_t)q, 0.7f);
    struct store_search scan = {.k = K, .exact = true, .threads = threads}, index = {.k = K, .threads = threads};
    for (int n = 1; n <= QUERIES; n *= 8) {
        double took[SEARCHES], seconds = best_search(took, v, exact, queries, n, &scan);
        struct figure f = {.unit = "ms", .values = took, .count = SEARCHES, .scale = 1e3 / n};
        result_figure(&f, "a query, exact scan, %d in a call", n);
        printf("exact scan,%d queries,%.3f ms a query,%.2f GFLOP/s\n", n, 1e3 * seconds / n,
               2e-9 * (double)chunks * dim * n / seconds);
        double scanned = samples_quantile(took, SEARCHES, 0.5);
        seconds = best_search(took, v, hits, queries, n, &index);
        f.peer = "exact scan";
        f.ratio = scanned / samples_quantile(took, SEARCHES, 0.5);
        result_figure(&f, "a query, index, %d in a call", n);
        printf("index,%d queries,%.3f ms a query\n", n, 1e3 * seconds / n);
    }
    for (int nprobe = 1; nprobe <= 64; nprobe *= 2) {
        struct store_search lists = {.k = K, .threads = threads, .nprobe = nprobe};
        double took[SEARCHES], seconds = best_search(took, v, hits, queries, QUERIES, &lists), found = 0;
        for (int i = 0; i < QUERIES * K; i++)
            for (int j = i / K * K; j < i / K * K + K; j++)
                found += hits[i].chunk == exact[j].chunk;
        found /= QUERIES * K;
        printf("recall@%d,%d lists,%.3f,%.3f ms a query\n", K, nprobe, found, 1e3 * seconds / QUERIES);
        result_value("recall@8", found, "index, %d lists visited", nprobe);
    }
    enum { LOOKUPS = 100000 };
    struct rng r = rng_make(3, 3);
    double begin = clock_seconds();
    for (int i = 0; i < LOOKUPS; i++) {
        struct store_chunk chunk;
        int32_t ids[FIXTURE_CHUNK];
        CHECK_OK(store_view_chunk(v, &chunk, ids, (int64_t)rng_below(&r, (uint64_t)chunks)));
    }
    double looked = clock_seconds() - begin;
    printf("chunk lookup,random,%.0f a second\n", LOOKUPS / looked);
    result_value("us", looked / LOOKUPS * 1e6, "lookup of a random chunk");
    free(queries);
}

int main(int argc, char **argv) {
    result_begin("bench_store", &argc, argv);
    int64_t chunks = argc > 1 ? strtoll(argv[1], NULL, 10) : 50000;
    int dim = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 384;
    struct threads *threads;
    CHECK_OK(threads_create(&threads, argc > 3 ? (int)strtol(argv[3], NULL, 10) : 1));
    struct store_writer_config c = fixture_config(dim, 50000);
    c.max_catalog_bytes = 0;
    char dir[600];
    snprintf(dir, sizeof dir, "%s/bench", test_folder());
    build(dir, &c, chunks, threads, argc > 4 ? argv[4] : "IVF256_HNSW32,SQ8");
    struct store *s;
    struct store_view *v;
    double begin = clock_seconds();
    CHECK_OK(store_open(&s, dir));
    CHECK_OK(store_view_open(&v, s));
    double opened = clock_seconds() - begin;
    printf("open,%.2f ms\n", 1e3 * opened);
    result_value("ms", 1e3 * opened, "open of a store of %lld chunks", (long long)chunks);
    struct store_info info;
    store_view_info(v, &info);
    measure(v, info.chunks, dim, threads);
    store_view_close(v);
    store_close(s);
    threads_free(threads);
    result_end();
    return 0;
}
