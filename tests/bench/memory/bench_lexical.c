/* bench_lexical.c -- the lexical index on real text: build rate, bytes a chunk, milliseconds a query. CSV rows on
 * stdout.
 *
 * bench_lexical STORED.u16 QUERIES.u16 [threads (2)] [segments (1)] [max-ram MiB (1024)] [eod id (0)]
 * Files as drt-tokenizer encode writes them. Chunks of 64 ids that do not cross documents; a query is the 128 ids
 * before every 64th position of the other file. */
#include "base/clock.h"
#include "base/file.h"
#include "base/system/threads.h"
#include "store/lexical/lexical_build.h"
#include "tests/test.h"
#include <time.h>

enum { CHUNK = 64, LOOK = 128, QUERIES_MAX = 200, VOCABULARY = 16384, SEGMENTS_MAX = 64, REPEATS = 3 };

/* Processor time of all threads: the cost of a search if other programs run, too. */
static double processor_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct text {
    int32_t *ids;
    int64_t n;
    int64_t *starts; /* of chunks, [chunks + 1]: a chunk ends at the next end of document or after CHUNK ids */
    int *lengths;
    int64_t chunks;
};

static void read_text(struct text *t, const char *path, int32_t eod) {
    struct file_map map;
    CHECK_OK(file_map(&map, path));
    t->n = (int64_t)map.size / 2;
    t->ids = malloc((size_t)t->n * sizeof *t->ids);
    t->starts = malloc((size_t)t->n * sizeof *t->starts);
    t->lengths = malloc((size_t)t->n * sizeof *t->lengths);
    for (int64_t i = 0; i < t->n; i++)
        t->ids[i] = map.data[2 * i] | map.data[2 * i + 1] << 8;
    file_unmap(&map);
    for (int64_t i = 0, length = 0; i < t->n; i++) {
        length = t->ids[i] == eod ? 0 : length % CHUNK + 1;
        if (length == 1) {
            t->starts[t->chunks] = i;
            t->lengths[t->chunks++] = 0;
        }
        if (length > 0) t->lengths[t->chunks - 1]++;
    }
}

static void build(char paths[SEGMENTS_MAX][700], const struct text *t, int segments, uint64_t max_ram) {
    double begin = clock_seconds();
    uint64_t all = 0;
    for (int s = 0; s < segments; s++) {
        int64_t from = t->chunks * s / segments, to = t->chunks * (s + 1) / segments;
        struct lexical_builder *b;
        uint64_t bytes;
        uint32_t crc;
        snprintf(paths[s], 700, "%s/%05d.lexical", test_folder(), s);
        CHECK_OK(lexical_builder_create(
            &b, paths[s], &(struct lexical_build){.vocab_size = VOCABULARY, .first_chunk = from, .max_ram = max_ram}));
        for (int64_t c = from; c < to; c++)
            CHECK_OK(lexical_builder_add(b, t->ids + t->starts[c], t->lengths[c]));
        CHECK_OK(lexical_builder_publish(b, &bytes, &crc));
        all += bytes;
    }
    double seconds = clock_seconds() - begin;
    printf("build,%lld chunks,%d segments,%.0f chunks/s,%.2f s,%.1f bytes a chunk\n", (long long)t->chunks, segments,
           (double)t->chunks / seconds, seconds, (double)all / (double)t->chunks);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void search(const struct lexical *x, const struct lexical_query *queries, int n, int k, bool counted,
                   struct threads *threads) {
    static double seconds[QUERIES_MAX];
    double cpu = 0;
    struct store_hit *hits = malloc((size_t)k * sizeof *hits);
    struct lexical_search how = {.k = k, .pair_weight = LEXICAL_PAIR_WEIGHT, .counted = counted, .threads = threads};
    for (int q = 0; q < n; q++) {
        seconds[q] = 1e30;
        for (int r = 0; r < REPEATS; r++) {
            double begin = clock_seconds(), cpu_begin = processor_seconds();
            CHECK_OK(lexical_search(x, hits, &queries[q], 1, &how));
            double took = clock_seconds() - begin;
            cpu += processor_seconds() - cpu_begin;
            if (took < seconds[q]) seconds[q] = took;
        }
    }
    qsort(seconds, (size_t)n, sizeof *seconds, by_value);
    printf("search,k %d,%s,%d threads,p50 %.2f ms,p99 %.2f ms,processor %.2f ms\n", k, counted ? "counted" : "distinct",
           threads_count(threads), 1e3 * seconds[n / 2], 1e3 * seconds[n * 99 / 100], 1e3 * cpu / (n * REPEATS));
    free(hits);
}

static void score(const struct lexical *x, const struct lexical_query *queries, int n, int k) {
    struct store_hit *hits = malloc((size_t)k * sizeof *hits);
    int64_t *chunks = malloc((size_t)k * sizeof *chunks);
    float *scores = malloc((size_t)k * sizeof *scores);
    struct lexical_search how = {.k = k, .pair_weight = LEXICAL_PAIR_WEIGHT};
    double seconds = 0;
    for (int q = 0; q < n; q++) {
        CHECK_OK(lexical_search(x, hits, &queries[q], 1, &how));
        for (int i = 0; i < k; i++)
            chunks[i] = hits[i].chunk;
        double begin = clock_seconds();
        CHECK_OK(lexical_score(x, scores, chunks, k, &queries[q], &how));
        seconds += clock_seconds() - begin;
    }
    printf("score,%d chunks,%.2f ms a query\n", k, 1e3 * seconds / n);
    free(hits);
    free(chunks);
    free(scores);
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: bench_lexical STORED.u16 QUERIES.u16 [threads] [segments] [max-ram MiB] [eod id]\n");
        return 2;
    }
    int threads_wanted = argc > 3 ? (int)strtol(argv[3], NULL, 10) : 2,
        segments = argc > 4 ? (int)strtol(argv[4], NULL, 10) : 1;
    uint64_t max_ram = (argc > 5 ? strtoull(argv[5], NULL, 10) : 1024) << 20;
    int32_t eod = argc > 6 ? (int32_t)strtol(argv[6], NULL, 10) : 0;
    CHECK(segments >= 1 && segments <= SEGMENTS_MAX);
    struct text stored = {0}, continued = {0};
    read_text(&stored, argv[1], eod);
    read_text(&continued, argv[2], eod);
    static char paths[SEGMENTS_MAX][700];
    build(paths, &stored, segments, max_ram);
    const char *names[SEGMENTS_MAX];
    for (int s = 0; s < segments; s++)
        names[s] = paths[s];
    double begin = clock_seconds();
    struct lexical_range range;
    for (int s = 0; s < segments; s++)
        CHECK_OK(lexical_verify(&range, names[s], NULL));
    printf("verify,%.2f s\n", clock_seconds() - begin);
    struct lexical *x;
    CHECK_OK(lexical_open(&x, names, segments));
    struct lexical_info info;
    lexical_info(x, &info);
    printf("index,%lld keys,%lld postings,%.1f bytes a chunk\n", (long long)info.keys, (long long)info.postings,
           (double)info.bytes / (double)info.chunks);
    static struct lexical_query queries[QUERIES_MAX];
    int n = 0;
    for (int64_t at = LOOK; at + CHUNK <= continued.n && n < QUERIES_MAX; at += continued.n / QUERIES_MAX + 1)
        queries[n++] = (struct lexical_query){continued.ids + at - LOOK, LOOK};
    struct threads *threads;
    CHECK_OK(threads_create(&threads, threads_wanted));
    static const int ks[] = {8, 64, 256};
    for (size_t i = 0; i < ARRAY_LEN(ks); i++)
        search(x, queries, n, ks[i], false, threads);
    search(x, queries, n, 64, true, threads);
    search(x, queries, n, 64, false, NULL);
    score(x, queries, n, 64);
    threads_free(threads);
    lexical_close(x);
    free(stored.ids);
    free(stored.starts);
    free(stored.lengths);
    free(continued.ids);
    free(continued.starts);
    free(continued.lengths);
    return 0;
}
