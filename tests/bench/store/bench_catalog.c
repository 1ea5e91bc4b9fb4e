/* bench_catalog.c -- a store of very many shards, simulated: opening, lookups, verify and join. CSV rows on stdout.
 *
 *   bench_catalog FOLDER [shards (1000000)] [chunks of each (16000)] [lookups (100000)] [--json FILE]
 *
 * FOLDER must be empty, have capacity for two names a shard (join: four), and allow sparse files; these names are links
 * of a few sparse files (tests/unit/store/catalog_fixture.h). Each document is a shard. Each step runs in a separate
 * process and reports its peak of resident memory; the catalog is in the page cache, because it was just written. */
#include "base/clock.h"
#include "tests/bench/result.h"
#include "tests/unit/store/catalog_fixture.h"
#include <sys/mman.h>
#include <sys/wait.h>

enum { DIM = 384, TOKENS = 63, VOCAB = 32768 };

struct scene {
    char store[FILE_PATH_MAX], parts[2][FILE_PATH_MAX], joined[FILE_PATH_MAX];
    struct store_fingerprint fingerprint;
    int64_t shards, chunks, lookups;
};
struct outcome {
    double seconds, rates[4];
    uint64_t resident;
};
typedef void step(const struct scene *s, struct outcome *out);

static void report(const char *what, double value, const char *unit) {
    printf("%s,%.6g,%s\n", what, value, unit);
    fflush(stdout);
    result_value(unit, value, "%s", what);
}

/* In a separate process, which returns its result in shared memory. */
static struct outcome run_apart(const struct scene *s, const char *what, step *body) {
    struct outcome *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status;
    char name[120];
    CHECK(shared != MAP_FAILED);
    pid_t child = fork();
    if (child == 0) {
        double begin = clock_seconds();
        body(s, shared);
        if (shared->seconds == 0) shared->seconds = clock_seconds() - begin;
        shared->resident = memory_resident_peak();
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    struct outcome out = *shared;
    munmap(shared, sizeof *shared);
    snprintf(name, sizeof name, "%s, time", what);
    report(name, out.seconds, "s");
    snprintf(name, sizeof name, "%s, resident at peak", what);
    report(name, (double)out.resident / (1 << 20), "MiB");
    return out;
}

static void make(const struct scene *s, struct outcome *out) {
    (void)out;
    catalog_make(&(struct catalog_shards){s->store, s->fingerprint, s->shards, s->chunks, CATALOG_LINKED, {0}});
}

static void open_both(struct store **store, struct store_view **view, const char *dir) {
    CHECK_OK(store_open(store, dir));
    CHECK_OK(store_view_open(view, *store));
}

static void open_step(const struct scene *s, struct outcome *out) {
    struct store *store;
    struct store_view *view;
    (void)out;
    open_both(&store, &view, s->store);
    store_view_close(view);
    store_close(store);
}

/* The i-th of the random numbers below n. */
static int64_t pick(int64_t i, int64_t n) {
    struct rng r = rng_make(3, (uint64_t)i);
    return (int64_t)rng_below(&r, (uint64_t)n);
}

static double rate(int64_t n, double begin) {
    return (double)n / (clock_seconds() - begin);
}

static void lookup_step(const struct scene *s, struct outcome *out) {
    struct store *store;
    struct store_view *view;
    struct store_document d;
    struct store_chunk c;
    int32_t ids[TOKENS];
    float row[DIM];
    const int64_t chunks = s->shards * s->chunks;
    open_both(&store, &view, s->store);
    double start = clock_seconds(), begin = start;
    for (int64_t i = 0; i < s->lookups; i++) {
        CHECK_OK(store_view_document(view, &d, pick(i, s->shards)));
        CHECK(d.first_chunk == d.id * s->chunks);
    }
    out->rates[0] = rate(s->lookups, begin);
    begin = clock_seconds();
    for (int64_t i = 0; i < s->lookups; i++) {
        uint8_t hash[16];
        int64_t found;
        fixture_hash(hash, pick(i, s->shards));
        CHECK_OK(store_view_find_document(view, &found, hash));
        CHECK(found == pick(i, s->shards));
    }
    out->rates[1] = rate(s->lookups, begin);
    begin = clock_seconds();
    for (int64_t i = 0; i < s->lookups; i++) {
        const int64_t chunk = pick(i, chunks);
        CHECK_OK(store_view_chunk(view, &c, ids, chunk));
        CHECK(c.document == chunk / s->chunks && c.token_offset == chunk % s->chunks * TOKENS);
    }
    out->rates[2] = rate(s->lookups, begin);
    begin = clock_seconds();
    for (int64_t i = 0; i < s->lookups; i++)
        CHECK_OK(store_view_landmark(view, row, pick(i, chunks)));
    out->rates[3] = rate(s->lookups, begin);
    out->seconds = clock_seconds() - start;
    store_view_close(view);
    store_close(store);
}

static void verify_step(const struct scene *s, struct outcome *out) {
    (void)out;
    fixture_verify(s->store, false);
}

static void parts_step(const struct scene *s, struct outcome *out) {
    (void)out;
    for (int i = 0; i < 2; i++)
        catalog_make(&(struct catalog_shards){
            s->parts[i], s->fingerprint, s->shards / 2, s->chunks, CATALOG_LINKED, {.part = i + 1, .parts = 2}});
}

static void join_step(const struct scene *s, struct outcome *out) {
    const char *const parts[2] = {s->parts[0], s->parts[1]};
    struct store_join_report joined;
    (void)out;
    const struct store_join how = {.parts = parts, .n_parts = 2, .publish = {.index = "exact"}};
    CHECK_OK(store_join(&joined, s->joined, &how));
    CHECK(joined.chunks == s->shards / 2 * 2 * s->chunks && joined.copied == 0);
    /* Both parts have the same documents: the second one's are copies of the first one's. */
    CHECK(joined.copies == s->shards / 2);
}

static void joined_step(const struct scene *s, struct outcome *out) {
    struct store *store;
    struct store_view *view;
    struct store_info info;
    (void)out;
    open_both(&store, &view, s->joined);
    store_view_info(view, &info);
    CHECK(info.deleted_documents == s->shards / 2);
    store_view_close(view);
    store_close(store);
}

static int64_t argument(int argc, char **argv, int i, int64_t otherwise) {
    return argc > i ? strtoll(argv[i], NULL, 10) : otherwise;
}

int main(int argc, char **argv) {
    result_begin("bench_catalog", &argc, argv);
    if (argc < 2) {
        fprintf(stderr, "usage: bench_catalog FOLDER [shards] [chunks of each] [lookups] [--json FILE]\n");
        return 2;
    }
    struct scene s = {.fingerprint = fixture_config(DIM, VOCAB).fingerprint,
                      .shards = argument(argc, argv, 2, 1000000),
                      .chunks = argument(argc, argv, 3, 16000),
                      .lookups = argument(argc, argv, 4, 100000)};
    s.fingerprint.chunk_tokens = TOKENS;
    CHECK_OK(file_join(s.store, argv[1], "store"));
    CHECK_OK(file_join(s.parts[0], argv[1], "part1"));
    CHECK_OK(file_join(s.parts[1], argv[1], "part2"));
    CHECK_OK(file_join(s.joined, argv[1], "joined"));
    printf("store,%lld chunks,%lld documents and shards\n", (long long)(s.shards * s.chunks), (long long)s.shards);
    (void)run_apart(&s, "make the catalog", make);
    (void)run_apart(&s, "open store and view", open_step);
    struct outcome o = run_apart(&s, "lookups", lookup_step);
    report("documents by id", o.rates[0], "1/s");
    report("documents by hash", o.rates[1], "1/s");
    report("chunks with their tokens", o.rates[2], "1/s");
    report("landmarks", o.rates[3], "1/s");
    (void)run_apart(&s, "verify", verify_step);
    (void)run_apart(&s, "make two parts", parts_step);
    (void)run_apart(&s, "join them", join_step);
    (void)run_apart(&s, "open what was joined", joined_step);
    result_end();
    return 0;
}
