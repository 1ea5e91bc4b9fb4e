/* bench_lists.c -- search by landmarks on the CPU against the memory's rate and against FAISS, over a real store: the
 * exact scan, and the lists of its index of 8-bit codes (IVF.., SQ8) by the store's own loops and by FAISS.
 *
 *   bench_lists STORE [threads (2)] [pairs (10)] [--json FILE]
 *
 * Both search the same file, in turns, in an order that changes from pair to pair. Hits are the best 8 of 64 candidates
 * with exact scores, as in the store's own search; recall is against the exact scan. 128 lists of 4,096 are what a
 * search visits without --nprobe. A query is the landmark of a chunk with noise of half its size. An interval is of 95
 * %, of the geometric mean of the pairs' ratios (Student's t). */
#include "base/clock.h"
#include "base/rng.h"
#include "store/exact_internal.h"
#include "store/index/vectors_internal.h"
#include "store/view_internal.h"
#include "tests/bench/result.h"
#include "tests/test.h"
#include <stdatomic.h>

enum { K = 8, CANDIDATES = 64, QUERIES = 1024, RECALLED = 256, PAIRS_MAX = 20 };

struct bench {
    struct store *store;
    struct store_view *view;
    struct threads *threads;
    const struct vectors *index;
    struct store_info info;
    float *queries;         /* [QUERIES, dim] */
    struct store_hit *best; /* [RECALLED, K] */
    int64_t *ids;           /* [QUERIES, CANDIDATES] */
    int pairs;
};

/* ---- the memory ---- */

struct stream {
    const uint64_t *words;
    _Atomic uint64_t sum; /* so that no read is left out */
};

static void stream_body(void *context, int64_t begin, int64_t end, int worker) {
    typedef uint64_t lanes __attribute__((vector_size(64), aligned(8)));
    struct stream *s = context;
    lanes sum = {0}, more = {0};
    for (int64_t i = begin; i < end; i++) /* 256 bytes each */
        for (int j = 0; j < 4; j += 2) {
            sum += ((const lanes *)(const void *)s->words)[i * 4 + j];
            more += ((const lanes *)(const void *)s->words)[i * 4 + j + 1];
        }
    sum += more;
    uint64_t all = 0;
    for (int i = 0; i < 8; i++)
        all += sum[i];
    atomic_fetch_add(&s->sum, all + (uint64_t)worker);
}

static double stream_seconds(struct stream *s, int64_t bytes, struct threads *threads) {
    double begin = clock_seconds();
    threads_for(threads, bytes / 256, 1 << 12, stream_body, s);
    return clock_seconds() - begin;
}

/* ---- what is compared ---- */

static double exact_seconds(struct bench *b, int n) {
    static struct store_hit hits[8 * K];
    const struct store_search how = {.k = K, .exact = true, .threads = b->threads};
    double begin = clock_seconds();
    CHECK_OK(store_view_search(b->view, hits, b->queries, n, &how));
    return clock_seconds() - begin;
}

static double list_seconds(struct bench *b, const float *queries, int n, int nprobe, bool ours) {
    double begin = clock_seconds();
    if (ours)
        CHECK_OK(vectors_scan(b->index, b->ids, queries, n, CANDIDATES, nprobe, NULL, b->threads));
    else
        CHECK_OK(vectors_search(b->index, b->ids, queries, n, CANDIDATES, nprobe, NULL, threads_count(b->threads)));
    return clock_seconds() - begin;
}

static double recall(struct bench *b, int nprobe, bool ours) {
    static struct store_hit hits[RECALLED * K];
    int found = 0;
    list_seconds(b, b->queries, RECALLED, nprobe, ours);
    CHECK_OK(exact_rescore(&b->view->landmarks, hits, b->queries, RECALLED, K,
                           (struct exact_candidates){b->ids, CANDIDATES}, NULL, b->threads));
    for (int i = 0; i < RECALLED * K; i++)
        for (int j = i / K * K; j < i / K * K + K; j++)
            found += hits[i].chunk == b->best[j].chunk;
    return (double)found / (RECALLED * K);
}

/* ---- figures ---- */

struct ratio {
    double mean, low, high;
};

/* Ratios old / new. */
static struct ratio ratio_of(const double *old, const double *new, int n) {
    static const double student[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                                     2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093};
    double mean = 0, square = 0;
    for (int i = 0; i < n; i++)
        mean += log(old[i] / new[i]) / n;
    for (int i = 0; i < n; i++)
        square += pow(log(old[i] / new[i]) - mean, 2);
    double half = n > 1 ? student[n - 2] * sqrt(square / (n - 1) / n) : 0;
    return (struct ratio){exp(mean), exp(mean - half), exp(mean + half)};
}

/* Queries one after another, so many that a turn takes a minimum time. */
static double turn(struct bench *b, int n, int nprobe, bool ours, int calls) {
    double seconds = 0;
    for (int i = 0; i < calls; i++) {
        int first = i * n % (QUERIES - n + 1);
        seconds += list_seconds(b, b->queries + (size_t)first * (size_t)b->info.fingerprint.dim, n, nprobe, ours);
    }
    return seconds / calls / n;
}

static void compare_lists(struct bench *b, int n, int nprobe, const char *label) {
    static double took[2][PAIRS_MAX];
    const int calls = n == 1 ? 16 : n == 8 ? 4 : 1;
    for (int pair = -1; pair < b->pairs; pair++)
        for (int i = 0; i < 2; i++) {
            int ours = (pair + i) & 1;
            double seconds = turn(b, n, nprobe, ours, calls);
            if (pair >= 0) took[ours][pair] = seconds;
        }
    struct ratio r = ratio_of(took[0], took[1], b->pairs);
    struct figure f = {.unit = "us", .values = took[0], .count = b->pairs, .scale = 1e6};
    result_figure(&f, "a query, FAISS, %d in a call, %s", n, label);
    f.values = took[1], f.peer = "FAISS", f.ratio = r.mean;
    result_figure(&f, "a query, %d in a call, %s", n, label);
    printf("lists,%d in a call,%s,FAISS %.1f us,ours %.1f us a query,ratio %.2f (%.2f .. %.2f)\n", n, label,
           1e6 * samples_quantile(took[0], b->pairs, 0.5), 1e6 * samples_quantile(took[1], b->pairs, 0.5), r.mean,
           r.low, r.high);
}

static void measure_exact(struct bench *b) {
    static double memory[PAIRS_MAX], scan[PAIRS_MAX];
    const int64_t bytes = INT64_C(1) << 29;
    const double landmarks = 2.0 * (double)b->info.chunks * b->info.fingerprint.dim;
    struct stream s = {0};
    uint64_t *words = malloc((size_t)bytes);
    CHECK(words);
    memset(words, 1, (size_t)bytes);
    s.words = words;
    for (int n = 1; n <= 8; n *= 8) {
        for (int pair = -1; pair < b->pairs; pair++) {
            double m = stream_seconds(&s, bytes, b->threads), e = exact_seconds(b, n);
            if (pair >= 0) memory[pair] = (double)bytes / m * 1e-9, scan[pair] = landmarks / e * 1e-9;
        }
        struct ratio r = ratio_of(scan, memory, b->pairs);
        if (n == 1)
            result_figure(&(struct figure){.unit = "GB/s", .values = memory, .count = b->pairs}, "reading memory");
        result_figure(
            &(struct figure){
                .unit = "GB/s", .values = scan, .count = b->pairs, .peer = "reading memory", .ratio = r.mean},
            "exact scan, %d in a call", n);
        printf("exact scan,%d in a call,%.2f GB/s,memory %.2f GB/s,share %.2f (%.2f .. %.2f)\n", n,
               samples_quantile(scan, b->pairs, 0.5), samples_quantile(memory, b->pairs, 0.5), r.mean, r.low, r.high);
    }
    free(words);
}

static void measure_lists(struct bench *b) {
    static const int visited[] = {16, 128};
    static const int together[] = {1, 8, 64, QUERIES};
    for (size_t i = 0; i < ARRAY_LEN(visited); i++) {
        const int nprobe = (int)vectors_visited(b->index, visited[i]);
        char label[64];
        double faiss = recall(b, nprobe, false), ours = recall(b, nprobe, true);
        snprintf(label, sizeof label, "%d of %lld lists", nprobe, (long long)vectors_lists(b->index));
        result_value("recall@8", faiss, "FAISS, %s", label);
        result_value("recall@8", ours, "ours, %s", label);
        printf("recall@8,%s,FAISS %.4f,ours %.4f\n", label, faiss, ours);
        for (size_t j = 0; j + i < ARRAY_LEN(together); j++) /* FAISS takes 10 s for the last one with many lists */
            compare_lists(b, together[j], nprobe, label);
    }
}

static void make_queries(struct bench *b) {
    const int dim = b->info.fingerprint.dim;
    struct rng r = rng_make(7, 1);
    b->queries = malloc((size_t)QUERIES * (size_t)dim * sizeof *b->queries);
    b->ids = malloc((size_t)QUERIES * CANDIDATES * sizeof *b->ids);
    b->best = malloc((size_t)RECALLED * K * sizeof *b->best);
    CHECK(b->queries && b->ids && b->best);
    for (int i = 0; i < QUERIES; i++) {
        float *row = b->queries + (size_t)i * (size_t)dim;
        double sum = 0;
        CHECK_OK(store_view_landmark(b->view, row, (int64_t)rng_below(&r, (uint64_t)b->info.chunks)));
        for (int d = 0; d < dim; d++)
            sum += (double)row[d] * (double)row[d];
        const float noise = 0.5f * (float)sqrt(sum / dim);
        for (int d = 0; d < dim; d++)
            row[d] += noise * rng_normal(&r);
    }
    const struct store_search how = {.k = K, .exact = true, .threads = b->threads};
    CHECK_OK(store_view_search(b->view, b->best, b->queries, RECALLED, &how));
}

int main(int argc, char **argv) {
    struct bench b = {0};
    setvbuf(stdout, NULL, _IOLBF, 0);
    result_begin("bench_lists", &argc, argv);
    if (argc < 2) {
        fprintf(stderr, "usage: bench_lists STORE [threads] [pairs] [--json FILE]\n");
        return 2;
    }
    b.pairs = argc > 3 ? (int)strtol(argv[3], NULL, 10) : 10;
    CHECK(b.pairs >= 1 && b.pairs <= PAIRS_MAX);
    CHECK_OK(threads_create(&b.threads, argc > 2 ? (int)strtol(argv[2], NULL, 10) : 2));
    CHECK_OK(store_open(&b.store, argv[1]));
    CHECK_OK(store_view_open(&b.view, b.store));
    store_view_info(b.view, &b.info);
    if (b.view->n_segments != 1 || !vectors_scans(b.view->segments[0].vectors) || b.info.dropped_chunks > 0) {
        fprintf(stderr,
                "bench_lists: %s: has no index of one segment with 8-bit codes, or dropped chunks: build it with "
                "--index IVF4096_HNSW32,SQ8\n",
                argv[1]);
        return 1;
    }
    b.index = b.view->segments[0].vectors;
    printf("store,%lld chunks,dim %d,index %s\n", (long long)b.info.chunks, b.info.fingerprint.dim, b.info.index);
    make_queries(&b);
    measure_exact(&b);
    measure_lists(&b);
    result_end();
    free(b.queries);
    free(b.ids);
    free(b.best);
    threads_free(b.threads);
    store_view_close(b.view);
    store_close(b.store);
    return 0;
}
