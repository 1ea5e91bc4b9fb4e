/* test_store_bitflips.c -- single flipped bits anywhere in a published store: a deep verify finds each, or it changes
 * nothing that can be read. None crashes a reader, makes it hang, or makes an older generation visible again.
 *
 *   test_store_bitflips [COUNT [SEED]]     100 flips by default; 10000 for the long run
 *
 * The store has three generations, three segments and their template. A forked process examines each flip, because a
 * damaged store may end it; then the bit is flipped back. */
#include "base/crc32c.h"
#include "tests/unit/store/damage_fixture.h"
#include <dirent.h>
#include <signal.h>

enum { DIM = 16, VOCAB = 300, GENERATIONS = 3, QUERIES = 6, K = 5, FILES_MAX = 64, SECONDS = 20, EXIT_BASE = 64 };
enum kind { KIND_CATALOG, KIND_COMMIT, KIND_TOKENS, KIND_LANDMARKS, KIND_INDEX, KIND_COUNT };
enum outcome { FOUND, HARMLESS, CHANGED, LOST, REFUSED, CRASHED, HUNG, OUTCOME_COUNT };
static const char *const kind_names[KIND_COUNT] = {"catalog/data.mdb", "catalog/commit", "tokens", "landmarks",
                                                   "index"};
static const char *const outcome_names[OUTCOME_COUNT] = {"found",   "harmless", "changed", "generation lost",
                                                         "refused", "crashed",  "hung"};
struct file {
    char path[1200];
    uint64_t bytes;
};
static struct {
    struct file files[FILES_MAX];
    size_t n;
} kinds[KIND_COUNT];

static void add_file(enum kind kind, const char *folder, const char *name) {
    CHECK(kinds[kind].n < FILES_MAX);
    struct file *f = &kinds[kind].files[kinds[kind].n++];
    struct stat st;
    snprintf(f->path, sizeof f->path, "%s/%s/%s", dir, folder, name);
    CHECK(stat(f->path, &st) == 0 && st.st_size > 0);
    f->bytes = (uint64_t)st.st_size;
}

static void add_folder(enum kind kind, const char *folder) {
    char path[900];
    struct dirent **list;
    snprintf(path, sizeof path, "%s/%s", dir, folder);
    int n = scandir(path, &list, NULL, alphasort); /* the same order in each run */
    CHECK(n > 2);
    for (int i = 0; i < n; i++) {
        if (list[i]->d_name[0] != '.') add_file(kind, folder, list[i]->d_name);
        free(list[i]);
    }
    free(list);
}

static void make_store(void) {
    struct store_writer_config c = fixture_config(DIM, VOCAB);
    static const char index[] = "IVF8_HNSW4,SQ8";
    snprintf(dir, sizeof dir, "%s/store", test_folder());
    fixture_store_elsewhere(dir, &c, 0, 120, 60, index);
    fixture_store_elsewhere(dir, &c, 120, 150, 30, index);
    fixture_store_elsewhere(dir, &c, 150, 160, 10, index);
    add_file(KIND_CATALOG, "catalog", "data.mdb");
    add_file(KIND_COMMIT, "catalog", "commit");
    add_folder(KIND_TOKENS, "tokens");
    add_folder(KIND_LANDMARKS, "landmarks");
    add_folder(KIND_INDEX, "index");
    CHECK_EQ(kinds[KIND_INDEX].n, 4);
}

/* ---- what can be read of a store ---- */

static enum status read_chunks(struct store_view *v, const struct store_info *info, uint32_t *crc) {
    for (int64_t i = 0; i < info->chunks; i++) {
        struct store_chunk chunk = {0};
        int32_t ids[FIXTURE_CHUNK];
        float landmark[DIM];
        TRY(store_view_chunk(v, &chunk, ids, i));
        TRY(store_view_landmark(v, landmark, i));
        int64_t numbers[] = {chunk.document, chunk.in_document, chunk.token_offset, chunk.n_tokens};
        *crc = crc32c(crc32c(crc32c(*crc, numbers, sizeof numbers), ids, sizeof ids), landmark, sizeof landmark);
    }
    return STATUS_OK;
}

static enum status read_documents(struct store_view *v, const struct store_info *info, uint32_t *crc) {
    for (int64_t i = 0; i < info->documents; i++) {
        struct store_document d;
        int64_t same = -1;
        TRY(store_view_document(v, &d, i));
        uint64_t numbers[] = {
            (uint64_t)d.first_chunk, (uint64_t)d.chunks, (uint64_t)d.tokens, d.offset, d.line, d.bytes};
        *crc = crc32c(crc32c(*crc, numbers, sizeof numbers), d.hash, sizeof d.hash);
        *crc = crc32c(crc32c(*crc, d.source, strlen(d.source)), d.key, strlen(d.key));
        TRY(store_view_find_document(v, &same, d.hash));
        *crc = crc32c(*crc, &same, sizeof same);
    }
    return STATUS_OK;
}

static enum status read_hits(struct store_view *v, uint32_t *crc) {
    float queries[QUERIES * DIM];
    struct store_hit hits[QUERIES * K];
    for (int q = 0; q < QUERIES; q++)
        fixture_vector(queries + q * DIM, DIM, (uint64_t)q * 5, 0.5f);
    for (int exact = 0; exact < 2; exact++) {
        struct store_search how = {.k = K, .exact = exact};
        TRY(store_view_search(v, hits, queries, QUERIES, &how));
        for (int i = 0; i < QUERIES * K; i++)
            *crc = crc32c(crc32c(*crc, &hits[i].chunk, sizeof hits[i].chunk), &hits[i].score, sizeof hits[i].score);
    }
    return STATUS_OK;
}

static enum status read_store(uint32_t *crc, uint64_t *generation) {
    struct store *s;
    struct store_view *v;
    struct store_info info;
    TRY(store_open(&s, dir));
    enum status status = store_view_open(&v, s);
    if (status == STATUS_OK) {
        store_view_info(v, &info);
        *generation = info.generation;
        *crc = crc32c(0, info.index, strlen(info.index));
        status = read_chunks(v, &info, crc);
        if (status == STATUS_OK) status = read_documents(v, &info, crc);
        if (status == STATUS_OK) status = read_hits(v, crc);
        store_view_close(v);
    }
    store_close(s);
    return status;
}

/* ---- one flip ---- */

static enum outcome examine(uint32_t wanted) {
    int64_t problems = 0;
    uint32_t crc = 0;
    uint64_t generation = GENERATIONS;
    enum status verified = store_verify(dir, true, NULL, NULL, NULL, &problems), read = read_store(&crc, &generation);
    if (generation != GENERATIONS) return LOST;
    if (verified != STATUS_OK || problems > 0) return FOUND;
    if (read != STATUS_OK) return REFUSED;
    return crc == wanted ? HARMLESS : CHANGED;
}

static enum outcome examine_in_child(uint32_t wanted) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(98); /* FAISS prints errors */
        alarm(SECONDS);
        _exit(EXIT_BASE + (int)examine(wanted));
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) return HUNG;
    return WIFEXITED(status) && WEXITSTATUS(status) >= EXIT_BASE ? (enum outcome)(WEXITSTATUS(status) - EXIT_BASE)
                                                                 : CRASHED;
}

int main(int argc, char **argv) {
    long count = argc > 1 ? strtol(argv[1], NULL, 10) : 100, table[KIND_COUNT][OUTCOME_COUNT] = {0}, bad = 0;
    test_start(argc - 1, argv + 1, 1);
    if (access("/dev/shm", W_OK) == 0) setenv("DRT_TEST_TMP", "/dev/shm", 1);
    make_store();
    uint32_t wanted = 0;
    uint64_t generation = 0;
    CHECK_OK(read_store(&wanted, &generation));
    CHECK_EQ(generation, GENERATIONS);
    struct rng r = rng_make(test_seed(), 21);
    for (long i = 0; i < count; i++) {
        enum kind kind = (enum kind)(i % (KIND_COUNT + 2) % KIND_COUNT); /* the catalog and its record twice as often */
        const struct file *f = &kinds[kind].files[rng_below(&r, kinds[kind].n)];
        uint64_t byte = rng_below(&r, f->bytes);
        int bit = (int)rng_below(&r, 8);
        flip(f->path, (long)byte, bit);
        enum outcome outcome = examine_in_child(wanted);
        flip(f->path, (long)byte, bit);
        table[kind][outcome]++;
        if (outcome == FOUND || outcome == HARMLESS) continue;
        if (bad++ < 40)
            fprintf(stderr, "%s: byte %llu, bit %d: %s\n", f->path + strlen(dir) + 1, (unsigned long long)byte, bit,
                    outcome_names[outcome]);
    }
    CHECK_EQ(examine_in_child(wanted), HARMLESS);
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        printf("%-17s", kind_names[kind]);
        for (int outcome = 0; outcome < OUTCOME_COUNT; outcome++)
            printf("  %s %ld", outcome_names[outcome], table[kind][outcome]);
        printf("\n");
    }
    CHECK_EQ(bad, 0);
    return test_done();
}
