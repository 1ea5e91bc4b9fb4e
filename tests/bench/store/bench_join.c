/* bench_join.c -- joins parts whose catalogs have the size of those of a large corpus, and uses the joined store. CSV
 * rows on stdout.
 *
 *   bench_join FOLDER [documents (1304550)] [parts (8)] [copies: one of N documents, 0: none (50)] [rounds (5)]
 *       [threads (0: all)] [--json FILE]
 *
 * The default is a corpus of 4 * 10^9 tokens: documents of 49 chunks on average, as in BENCHMARKS.md, "A store of 4 *
 * 10^9 tokens", in shards of 16,384 chunks. The time depends on the records, three a document, and the names, two a
 * shard. It does not depend on chunks, tokens or dimensions, so the data files are a header, a hole and a footer, and
 * landmarks have one dimension. One of N documents of each part but the first is a copy of a random one of an earlier
 * part.
 *
 * FOLDER must be empty, or have parts that an earlier call made with the same numbers, and must allow sparse files. In
 * memory (/dev/shm) it takes some 650 bytes a document. Each step runs in a separate process. */
#include "base/clock.h"
#include "base/system/threads.h"
#include "tests/bench/result.h"
#include "tests/unit/store/catalog_fixture.h"
#include <ftw.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { DIM = 1, TOKENS = 63, VOCAB = 32768, SHARD_CHUNKS = 16384, MEAN_CHUNKS = 49 };

struct scene {
    char parts[FILE_PATH_MAX], joined[FILE_PATH_MAX];
    struct store_fingerprint fingerprint;
    int64_t documents, n_parts, one_of, rounds, threads;
};
struct outcome {
    double seconds, processor; /* of the process, all threads */
    int64_t resident, chunks, copies;
};
typedef void step(const struct scene *s, struct outcome *out);

static void report(const char *what, const struct samples *values, const char *unit) {
    printf("%s,%.6g,%s\n", what, samples_quantile(values->at, values->count, 0.5), unit);
    fflush(stdout);
    result_figure(&(struct figure){.unit = unit, .values = values->at, .count = values->count}, "%s", what);
}

static double processor_seconds(void) {
    struct rusage use;
    CHECK(getrusage(RUSAGE_SELF, &use) == 0);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

/* In a separate process, which returns its result in shared memory. */
static struct outcome run_apart(const struct scene *s, step *body) {
    struct outcome *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status;
    CHECK(shared != MAP_FAILED);
    const pid_t child = fork();
    if (child == 0) {
        const double begin = clock_seconds();
        body(s, shared);
        shared->seconds = clock_seconds() - begin;
        shared->processor = processor_seconds();
        shared->resident = (int64_t)memory_resident_peak();
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    struct outcome out = *shared;
    munmap(shared, sizeof *shared);
    return out;
}

/* A step that is repeated, from the same state: the median of its times. */
static struct outcome measure(const struct scene *s, const char *what, step *before, step *body) {
    struct samples time = {0}, processor = {0}, resident = {0};
    struct outcome last = {0};
    char name[120];
    for (int64_t i = 0; i < s->rounds; i++) {
        if (before) (void)run_apart(s, before);
        last = run_apart(s, body);
        samples_add(&time, last.seconds);
        samples_add(&processor, last.processor);
        samples_add(&resident, (double)last.resident / (1 << 20));
    }
    snprintf(name, sizeof name, "%s, time", what);
    report(name, &time, "s");
    snprintf(name, sizeof name, "%s, processors", what);
    report(name, &processor, "s");
    snprintf(name, sizeof name, "%s, resident at peak", what);
    report(name, &resident, "MiB");
    samples_free(&time);
    samples_free(&processor);
    samples_free(&resident);
    return last;
}

/* ---- parts ------------------------------------------------------------------------------------------------- */

static void part_path(char out[FILE_PATH_MAX], const struct scene *s, int64_t part) {
    char name[64];
    snprintf(name, sizeof name, "part-%lld-of-%lld", (long long)part + 1, (long long)s->n_parts);
    CHECK_OK(file_join(out, s->parts, name));
}

static int64_t first_of(const struct scene *s, int64_t part) {
    return s->documents * part / s->n_parts;
}

/* The document of the corpus whose text document i of this part has: itself, or an earlier part's. */
static int64_t text_of(const struct scene *s, int64_t part, int64_t document) {
    struct rng r = rng_make(21, (uint64_t)document);
    if (part == 0 || s->one_of == 0 || rng_below(&r, (uint64_t)s->one_of) > 0) return document;
    return (int64_t)rng_below(&r, (uint64_t)first_of(s, part));
}

/* As the reader of a token file numbers its documents, which have no keys. */
static void put_document(struct catalog_txn *t, const struct shard_record *r, const struct document_record *of,
                         int64_t number) {
    static const char source[] = "/dev/shm/corpus.u16";
    struct document_record d = *of;
    bool found;
    int64_t other;
    d.source = d.key = source;
    d.source_bytes = sizeof source - 1;
    CHECK_OK(record_find_hash(t, d.hash, &found, &other));
    if (found) fixture_hash(d.hash, (int64_t)d.line - 1); /* a part does not have a document twice */
    const struct run_record run = {number, r->number, d.token_offset, d.tokens, d.chunks};
    CHECK_OK(record_append_document(t, number, &d));
    CHECK_OK(record_append_run(t, d.first_chunk, &run));
    CHECK_OK(record_put_hash(t, d.hash, number));
}

/* Puts documents from `begin` on, until the shard is full. Returns the end. */
static int64_t put_shard(const struct scene *s, int64_t part, struct catalog_txn *t, struct shard_record *r,
                         int64_t begin) {
    const int64_t end = first_of(s, part + 1);
    int64_t at = begin;
    for (; at < end && r->chunks < SHARD_CHUNKS; at++) {
        struct rng random = rng_make(22, (uint64_t)at);
        struct document_record d = {.first_chunk = r->first_chunk + r->chunks,
                                    .chunks = 1 + (int64_t)rng_below(&random, 2 * MEAN_CHUNKS - 1),
                                    .shard = r->number,
                                    .token_offset = r->tokens,
                                    .offset = 2 * (uint64_t)(r->first_token + r->tokens),
                                    .line = (uint64_t)at + 1};
        d.tokens = d.chunks * TOKENS;
        d.bytes = 2 * (uint64_t)d.tokens;
        fixture_hash(d.hash, text_of(s, part, at));
        put_document(t, r, &d, r->first_document + r->documents++);
        r->chunks += d.chunks;
        r->tokens += d.tokens;
    }
    return at;
}

static void make_part(const struct scene *s, int64_t part) {
    const struct store_writer_config config = {.fingerprint = s->fingerprint};
    struct store_writer *w;
    char dir[FILE_PATH_MAX];
    struct shard_record r = {0};
    struct catalog_txn *t;
    part_path(dir, s, part);
    CHECK_OK(store_writer_open(&w, dir, &config, true));
    for (int64_t at = first_of(s, part), end = first_of(s, part + 1); at < end;) {
        r.first_file_shard = r.last_file_shard = r.number;
        CHECK_OK(catalog_begin(&t, w->catalog, true));
        at = put_shard(s, part, t, &r, at);
        r.token_file = catalog_sparse_file(dir, &s->fingerprint, SHARD_TOKENS, &r);
        r.landmark_file = catalog_sparse_file(dir, &s->fingerprint, SHARD_LANDMARKS_F16, &r);
        CHECK_OK(record_put_shard(t, &r));
        r = (struct shard_record){.number = r.number + 1,
                                  .first_chunk = r.first_chunk + r.chunks,
                                  .first_document = r.first_document + r.documents,
                                  .first_token = r.first_token + r.tokens};
        if (at == end) catalog_publish(t, &r, (struct store_part){.part = (int)part + 1, .parts = (int)s->n_parts});
        CHECK_OK(catalog_commit(t));
    }
    store_writer_close(w);
}

static void parts_step(const struct scene *s, struct outcome *out) {
    (void)out;
    for (int64_t i = 0; i < s->n_parts; i++)
        make_part(s, i);
}

/* ---- what is measured -------------------------------------------------------------------------------------- */

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static void remove_step(const struct scene *s, struct outcome *out) {
    (void)out;
    CHECK(!file_exists(s->joined) || nftw(s->joined, remove_entry, 64, FTW_DEPTH | FTW_PHYS) == 0);
}

static void join_step(const struct scene *s, struct outcome *out) {
    const char **parts;
    struct store_join_report joined;
    struct threads *threads;
    CHECK_OK(threads_create(&threads, (int)s->threads));
    CHECK_OK(memory_allocate(&parts, (size_t)s->n_parts));
    for (int64_t i = 0; i < s->n_parts; i++) {
        char path[FILE_PATH_MAX];
        part_path(path, s, i);
        CHECK((parts[i] = strdup(path)) != NULL);
    }
    const struct store_join how = {
        .parts = parts, .n_parts = (int)s->n_parts, .publish = {.index = "exact", .threads = threads}};
    CHECK_OK(store_join(&joined, s->joined, &how));
    CHECK(joined.documents == s->documents && joined.copied == 0);
    out->chunks = joined.chunks;
    out->copies = joined.copies;
}

static void open_both(struct store **store, struct store_view **view, const char *dir) {
    CHECK_OK(store_open(store, dir));
    CHECK_OK(store_view_open(view, *store));
}

static void open_step(const struct scene *s, struct outcome *out) {
    struct store *store;
    struct store_view *view;
    struct store_info info;
    open_both(&store, &view, s->joined);
    store_view_info(view, &info);
    out->chunks = info.chunks;
    store_view_close(view);
    store_close(store);
}

/* With the pages of the landmarks, which are holes, a search by the model's dimensions would take longer. */
static void search_step(const struct scene *s, struct outcome *out) {
    struct store *store;
    struct store_view *view;
    struct store_hit hits[8];
    struct threads *threads;
    const float query[DIM] = {1};
    (void)out;
    CHECK_OK(threads_create(&threads, (int)s->threads));
    open_both(&store, &view, s->joined);
    CHECK_OK(
        store_view_search(view, hits, query, 1, &(struct store_search){.k = 8, .exact = true, .threads = threads}));
    store_view_close(view);
    store_close(store);
    threads_free(threads);
}

static void verify_step(const struct scene *s, struct outcome *out) {
    (void)out;
    fixture_verify(s->joined, false);
}

static int64_t argument(int argc, char **argv, int i, int64_t otherwise) {
    return argc > i ? strtoll(argv[i], NULL, 10) : otherwise;
}

int main(int argc, char **argv) {
    result_begin("bench_join", &argc, argv);
    struct scene s = {.fingerprint = fixture_config(DIM, VOCAB).fingerprint,
                      .documents = argument(argc, argv, 2, 1304550),
                      .n_parts = argument(argc, argv, 3, 8),
                      .one_of = argument(argc, argv, 4, 50),
                      .rounds = argument(argc, argv, 5, 5),
                      .threads = argument(argc, argv, 6, 0)};
    if (argc < 2 || s.n_parts < 1 || s.documents < s.n_parts || s.one_of < 0 || s.rounds < 1) {
        fprintf(stderr, "usage: bench_join FOLDER [documents] [parts] [copies: one of N] [rounds] [threads] "
                        "[--json FILE]\n");
        return 2;
    }
    s.fingerprint.chunk_tokens = TOKENS;
    CHECK_OK(file_join(s.parts, argv[1], "parts"));
    CHECK_OK(file_join(s.joined, argv[1], "joined"));
    if (!file_exists(s.parts)) {
        CHECK_OK(file_make_directory(s.parts));
        (void)run_apart(&s, parts_step);
    }
    const struct outcome joined = measure(&s, "join", remove_step, join_step);
    printf("joined,%lld chunks,%lld documents,%lld copies\n", (long long)joined.chunks, (long long)s.documents,
           (long long)joined.copies);
    (void)measure(&s, "open store and view", NULL, open_step);
    (void)measure(&s, "open and search once", NULL, search_step);
    (void)measure(&s, "verify", NULL, verify_step);
    (void)run_apart(&s, remove_step);
    result_end();
    return 0;
}
