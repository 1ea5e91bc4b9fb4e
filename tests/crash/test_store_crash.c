/* test_store_crash.c -- a writer is killed at every fault point, or the call fails there.
 *
 * The same job (build two generations, merge their shards, replace the index by an addition) runs once without faults.
 * Then for each fault point N = 1, 2, 3 ... it is killed there (or the call fails there), every byte of the store is
 * verified, and the job runs again to its end. The result must equal the first store: chunks, documents, landmarks and
 * search results. The job runs in a separate process (this program with another first argument), since a kill ends it,
 * and fault points are counted per process. */
#include "tests/unit/store/damage_fixture.h"
#include <signal.h>

enum { DIM = 8, VOCAB = 100, DOCUMENTS = 16, PER_SHARD = 8, QUERIES = 6, K = 5 };
/* A process under AddressSanitizer takes half a second to exit: it tests every seventh point there, all in other
 * builds. */
#ifdef __SANITIZE_ADDRESS__
enum { STRIDE = 7 };
#else
enum { STRIDE = 1 };
#endif

/* Continues after the published documents and the journal. Exit 0: done, 3: failed as expected with an injected
 * fault. */
static enum status advance(struct store_writer *w, const struct store_writer_config *c, int64_t until,
                           const char *index) {
    struct store_journal j;
    TRY(store_writer_journal(w, &j));
    int64_t next = 0;
    if (j.cursor_bytes == sizeof next) memcpy(&next, j.cursor, sizeof next);
    /* Without a journal: documents that the store has are reported as duplicates. */
    for (; next < until; next += PER_SHARD) {
        TRY(store_shard_begin(w));
        for (int64_t i = next; i < next + PER_SHARD && i < until; i++) {
            bool duplicate;
            enum status s = fixture_add(w, c, i, &duplicate);
            if (s != STATUS_OK) {
                store_shard_discard(w);
                return s;
            }
        }
        int64_t end = next + PER_SHARD;
        if (store_shard_chunks(w) == 0)
            store_shard_discard(w);
        else
            TRY(store_shard_seal(w, &end, sizeof end));
    }
    struct store_publish how = {.index = index, .seed = 1, .merge_chunks = 1000};
    return store_writer_publish(w, &how);
}

static int run_job(const char *folder) {
    struct store_writer_config c = fixture_config(DIM, VOCAB);
    static const struct {
        int64_t until;
        const char *index;
    } steps[] = {{8, "IVF2,SQ8"}, {16, "IVF2,SQ8"}, {16, "IVF4,SQfp16"}};
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        struct store_writer *w;
        enum status s = store_writer_open(&w, folder, &c, true);
        if (s == STATUS_OK) {
            s = advance(w, &c, steps[i].until, steps[i].index);
            store_writer_close(w);
        }
        if (s != STATUS_OK) {
            if (s != STATUS_FAULT && s != STATUS_IO) fprintf(stderr, "job: %s: %s\n", status_text(s), status_message());
            return s == STATUS_FAULT || s == STATUS_IO ? 3 : 1;
        }
    }
    return 0;
}

static int job(const char *folder, const char *fault) {
    return run_child((const char *const[]){"test_store_crash", "job", folder, NULL}, fault);
}

struct result {
    int64_t chunks, documents;
    float *landmarks;
    int32_t *ids;
    struct store_hit hits[QUERIES * K];
};

static struct result read_store(const char *folder) {
    struct store *s;
    struct store_view *v;
    CHECK_OK(store_open(&s, folder));
    CHECK_OK(store_view_open(&v, s));
    struct store_info info;
    store_view_info(v, &info);
    CHECK_STR(info.index, "IVF4,SQfp16");
    CHECK_EQ(info.shards, 1); /* shards of both additions were merged */
    struct result r = {.chunks = info.chunks, .documents = info.documents};
    r.landmarks = malloc((size_t)info.chunks * DIM * sizeof(float));
    r.ids = malloc((size_t)info.chunks * FIXTURE_CHUNK * sizeof(int32_t));
    for (int64_t i = 0; i < info.chunks; i++) {
        struct store_chunk chunk;
        CHECK_OK(store_view_chunk(v, &chunk, r.ids + i * FIXTURE_CHUNK, i));
        CHECK_OK(store_view_landmark(v, r.landmarks + i * DIM, i));
    }
    for (int64_t i = 0; i < info.documents; i++) {
        struct store_document d;
        CHECK_OK(store_view_document(v, &d, i));
        CHECK_EQ(d.line, i + 1);
    }
    float queries[QUERIES * DIM];
    for (int q = 0; q < QUERIES; q++)
        fixture_vector(queries + q * DIM, DIM, (uint64_t)q * 5, 0.5f);
    struct store_search how = {.k = K};
    CHECK_OK(store_view_search(v, r.hits, queries, QUERIES, &how));
    store_view_close(v);
    store_close(s);
    return r;
}

static void check_equal(const struct result *a, const char *folder) {
    struct result b = read_store(folder);
    CHECK_EQ(a->chunks, b.chunks);
    CHECK_EQ(a->documents, b.documents);
    CHECK(memcmp(a->landmarks, b.landmarks, (size_t)a->chunks * DIM * sizeof(float)) == 0);
    CHECK(memcmp(a->ids, b.ids, (size_t)a->chunks * FIXTURE_CHUNK * sizeof(int32_t)) == 0);
    CHECK(fixture_same_hits(a->hits, b.hits, QUERIES * K));
    free(b.landmarks);
    free(b.ids);
}

/* After the interruption the store does not exist yet, or is complete. */
static void check_whole(const char *folder, const char *what) {
    int64_t problems = 0;
    enum status s = store_verify(folder, true, NULL, fixture_print_problem, NULL, &problems);
    if (s == STATUS_NOT_FOUND) return;
    if (s != STATUS_OK || problems != 0)
        fprintf(stderr, "after %s: %s: %lld problems\n", what, status_message(), (long long)problems);
    CHECK(s == STATUS_OK && problems == 0);
}

static long try_all(const char *mode, const struct result *wanted) {
    for (long n = 1;; n += STRIDE) {
        char folder[600], fault[64], command[700];
        snprintf(folder, sizeof folder, "%s/%s-%ld", test_folder(), mode, n);
        snprintf(fault, sizeof fault, "%s:%ld", mode, n);
        int status = job(folder, fault);
        bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
             failed = WIFEXITED(status) && WEXITSTATUS(status) == 3;
        if (!(killed || failed || status == 0)) fprintf(stderr, "%s: wait status %#x\n", fault, (unsigned)status);
        CHECK(killed || failed || status == 0);
        check_whole(folder, fault);
        CHECK_EQ(job(folder, NULL), 0);
        check_whole(folder, "the second run");
        check_equal(wanted, folder);
        snprintf(command, sizeof command, "rm -rf '%s'", folder);
        CHECK_EQ(system(command), 0);
        if (status == 0) return n - 1; /* the fault point was not reached: all have been tried */
    }
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "job") == 0) return run_job(argv[2]);
    test_start(argc, argv, 1);
    /* A kill does not lose the page cache, so a folder in memory gives the same result without thousands of real
     * syncs. */
    if (access("/dev/shm", W_OK) == 0) setenv("DRT_TEST_TMP", "/dev/shm", 1);
    char folder[600];
    snprintf(folder, sizeof folder, "%s/undisturbed", test_folder());
    CHECK_EQ(job(folder, NULL), 0);
    struct result wanted = read_store(folder);
    CHECK_EQ(wanted.documents, DOCUMENTS);
    /* Kills and failures run at the same time, to use two processors; neither process opens the other's stores. */
    fflush(NULL);
    pid_t other = fork();
    CHECK(other >= 0);
    const char *mode = other == 0 ? "kill" : "fail";
    long n = try_all(mode, &wanted);
    printf("%s at fault points 1 to %ld, step %d\n", mode, n, STRIDE);
    fflush(stdout);
    CHECK(n > 60);
    if (other == 0) _exit(0);
    int status;
    CHECK(waitpid(other, &status, 0) == other);
    CHECK_EQ(status, 0);
    free(wanted.landmarks);
    free(wanted.ids);
    return test_done();
}
