/* test_store_mend_crash.c -- repair with an encoder, drop and delete, killed or failing at every fault point.
 *
 * Each job runs once without faults. Then for each fault point N = 1, 2, 3 ... it is killed there (or the call fails
 * there). The store must be the old one or the result of the job. The job runs again to its end, and the store must
 * equal the first result. A job runs in a separate process (this program with other arguments). */
#include "tests/mend_fixture.h"
#include <signal.h>

enum { DIM = 8, VOCAB = 100, DOCUMENTS = 24, EACH = 6, QUERIES = 6, K = 5 };
/* A trial starts two processes that load FAISS, so only every so many-th point is tried; with the argument "all", every
 * point. */
#ifdef __SANITIZE_ADDRESS__
static int stride = 23;
#else
static int stride = 7;
#endif

static void ignore(void *context, const char *file, const char *problem, const char *remedy) {
    (void)context, (void)file, (void)problem, (void)remedy;
}
/* "same": landmarks get their old bytes; "other": new ones, and the index with them; "drop"; "add"; "delete". */
static enum status mend(const char *job, const char *folder) {
    struct store_writer_config c = fixture_config(DIM, VOCAB);
    struct mend_encoding encoding = {DIM, strcmp(job, "other") == 0 ? 2.0f : 0};
    int64_t problems = 0;
    if (strcmp(job, "add") == 0) return mend_add(folder, &c, 0, DOCUMENTS, EACH, "IVF2,SQ8", 0);
    if (strcmp(job, "drop") == 0) {
        const struct store_range shards = {1, 3};
        const struct store_drop how = {.ranges = &shards, .n_ranges = 1, .publish = {.seed = 1}};
        struct store_drop_report report;
        return store_drop(&report, folder, &how);
    }
    if (strcmp(job, "delete") == 0) {
        static const int64_t documents[] = {17, 2, 3, 9};
        const struct store_delete how = {.documents = documents, .n_documents = ARRAY_LEN(documents)};
        struct store_delete_report report;
        return store_delete(&report, folder, &how);
    }
    const struct store_encoder encoder = {.fingerprint = c.fingerprint, .encode = mend_encode, .context = &encoding};
    TRY(store_repair(folder, NULL, &encoder, ignore, NULL, &problems));
    return problems == 0 ? STATUS_OK : fail(STATUS_CORRUPT, "%lld problems are left", (long long)problems);
}

/* 0: done, 3: failed as expected with an injected fault. */
static int run_job(const char *job, const char *folder) {
    enum status s = mend(job, folder);
    if (s == STATUS_OK) return 0;
    if (s != STATUS_FAULT && s != STATUS_IO) fprintf(stderr, "%s: %s: %s\n", job, status_text(s), status_message());
    return s == STATUS_FAULT || s == STATUS_IO ? 3 : 1;
}

static int start(const char *job, const char *folder, const char *fault) {
    return run_child((const char *const[]){"test_store_mend_crash", "job", job, folder, NULL}, fault);
}

/* The contents that a reader gets: ids, landmarks and hits; -1 and zeros for dropped chunks. */
struct seen {
    int64_t chunks, dropped;
    int32_t ids[400][FIXTURE_CHUNK];
    float rows[400][DIM];
    struct store_hit hits[QUERIES * K];
};

static void read_store(struct seen *out, const char *folder) {
    struct store *s;
    struct store_view *v;
    struct store_info info;
    memset(out, 0, sizeof *out);
    CHECK_OK(store_open(&s, folder));
    CHECK_OK(store_view_open(&v, s));
    store_view_info(v, &info);
    out->chunks = info.chunks;
    out->dropped = info.dropped_chunks;
    CHECK(info.chunks <= 400);
    for (int64_t i = 0; i < info.chunks; i++) {
        struct store_chunk chunk;
        if (!store_dropped_live(store_view_dropped(v), i)) continue;
        CHECK_OK(store_view_chunk(v, &chunk, out->ids[i], i));
        CHECK_OK(store_view_landmark(v, out->rows[i], i));
    }
    float queries[QUERIES * DIM];
    for (int q = 0; q < QUERIES; q++)
        fixture_vector(queries + q * DIM, DIM, (uint64_t)q * 5, 0.5f);
    CHECK_OK(store_view_search(v, out->hits, queries, QUERIES, &(struct store_search){.k = K}));
    store_view_close(v);
    store_close(s);
}

static bool same_hits(const struct store_hit *a, const struct store_hit *b) {
    for (int i = 0; i < QUERIES * K; i++)
        if (a[i].chunk != b[i].chunk || memcmp(&a[i].score, &b[i].score, sizeof a[i].score) != 0) return false;
    return true;
}

static bool same_seen(const struct seen *a, const struct seen *b) {
    return a->chunks == b->chunks && a->dropped == b->dropped && memcmp(a->ids, b->ids, sizeof a->ids) == 0 &&
           memcmp(a->rows, b->rows, sizeof a->rows) == 0 && same_hits(a->hits, b->hits);
}

static int64_t problems_of(const char *folder, bool deep) {
    int64_t problems = 0;
    CHECK_OK(store_verify(folder, deep, NULL, ignore, NULL, &problems));
    return problems;
}

struct trial {
    const char *job;
    char before[700];
    int64_t problems; /* number of problems that verify --deep finds before */
    struct seen old, wanted;
};

/* The old store (with its damage), or the result of the job; for "other" the new landmarks may already be there. */
static void check_between(const struct trial *t, const char *folder) {
    static struct seen now;
    int64_t problems = problems_of(folder, true);
    if (t->problems > 0) {
        CHECK(problems <= t->problems);
        return;
    }
    CHECK_EQ(problems, 0);
    read_store(&now, folder);
    CHECK(same_seen(&now, &t->old) || same_seen(&now, &t->wanted));
}

static long try_all(const struct trial *t, const char *mode) {
    for (long n = strcmp(mode, "kill") == 0 ? 1 : 1 + stride / 2;; n += stride) {
        static struct seen now;
        char folder[700], fault[64];
        snprintf(folder, sizeof folder, "%s/%s-%s", test_folder(), t->job, mode);
        snprintf(fault, sizeof fault, "%s:%ld", mode, n);
        copy_store(folder, t->before);
        int status = start(t->job, folder, fault);
        bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
             failed = WIFEXITED(status) && WEXITSTATUS(status) == 3;
        if (!(killed || failed || status == 0))
            fprintf(stderr, "%s %s: wait status %#x\n", t->job, fault, (unsigned)status);
        CHECK(killed || failed || status == 0);
        check_between(t, folder);
        CHECK_EQ(start(t->job, folder, NULL), 0);
        CHECK_EQ(problems_of(folder, true), 0);
        read_store(&now, folder);
        CHECK(same_seen(&now, &t->wanted));
        if (status == 0) return n - 1;
    }
}

static void damage(const char *folder, const char *name) {
    char path[800];
    snprintf(path, sizeof path, "%s/%s", folder, fixture_file(name));
    flip(path, 90, 0);
}

static void prepare(struct trial *t, const char *pristine) {
    char folder[700];
    snprintf(t->before, sizeof t->before, "%s/%s-before", test_folder(), t->job);
    snprintf(folder, sizeof folder, "%s/%s-whole", test_folder(), t->job);
    copy_store(t->before, pristine);
    if (strcmp(t->job, "add") == 0) CHECK_EQ(start("drop", t->before, NULL), 0);
    if (strcmp(t->job, "same") == 0 || strcmp(t->job, "other") == 0) {
        damage(t->before, "landmarks/00001.f16");
        damage(t->before, "landmarks/00003.f16");
    }
    t->problems = problems_of(t->before, true);
    if (t->problems == 0) read_store(&t->old, t->before);
    copy_store(folder, t->before);
    CHECK_EQ(start(t->job, folder, NULL), 0);
    read_store(&t->wanted, folder);
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "job") == 0) return run_job(argv[2], argv[3]);
    if (argc == 2 && strcmp(argv[1], "all") == 0) stride = argc = 1;
    test_start(argc, argv, 1);
    /* A kill does not lose the page cache, so a folder in memory gives the same result without thousands of real
     * syncs. */
    if (access("/dev/shm", W_OK) == 0) setenv("DRT_TEST_TMP", "/dev/shm", 1);
    static struct trial trials[] = {
        {.job = "same"}, {.job = "other"}, {.job = "drop"}, {.job = "add"}, {.job = "delete"}};
    char pristine[600];
    snprintf(pristine, sizeof pristine, "%s/pristine", test_folder());
    CHECK_EQ(start("add", pristine, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(trials); i++)
        prepare(&trials[i], pristine);
    CHECK(trials[0].problems == 2 && trials[1].problems == 2);
    CHECK(!same_seen(&trials[0].wanted, &trials[1].wanted));
    fflush(NULL);
    pid_t other = fork();
    CHECK(other >= 0);
    const char *mode = other == 0 ? "kill" : "fail";
    for (size_t i = 0; i < ARRAY_LEN(trials); i++) {
        long n = try_all(&trials[i], mode);
        printf("%s: %s at fault points 1 to %ld, step %d\n", trials[i].job, mode, n, stride);
        CHECK(n > (strcmp(trials[i].job, "delete") == 0 ? 5 : 15));
    }
    fflush(stdout);
    if (other == 0) _exit(0);
    int status;
    CHECK(waitpid(other, &status, 0) == other);
    CHECK_EQ(status, 0);
    return test_done();
}
