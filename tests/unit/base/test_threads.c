/* test_threads.c -- loops cover each index once, whatever the grain and the number of threads; nested loops work; one
 * of several failures is kept. */
#include "base/system/threads.h"
#include "tests/test.h"
#include <stdatomic.h>

struct cover {
    atomic_int *seen;
    struct threads *pool;
    atomic_llong nested;
};

static void add_one(void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    struct cover *c = context;
    atomic_fetch_add(&c->nested, end - begin);
}

static void visit(void *context, int64_t begin, int64_t end, int worker) {
    struct cover *c = context;
    CHECK(worker >= 0 && worker < threads_count(c->pool));
    for (int64_t i = begin; i < end; i++)
        atomic_fetch_add(&c->seen[i], 1);
    threads_for(c->pool, 3, 1, add_one, c);
}

/* Every third index fails. */
static void fail_some(void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        threads_failed(context, i % 3 ? STATUS_OK : fail(STATUS_CORRUPT, "index %lld", (long long)i));
}

static void test_failure(void) {
    struct threads *pool;
    struct threads_failure f = THREADS_FAILURE_NONE;
    char first[sizeof f.message];
    CHECK_OK(threads_create(&pool, 5));
    threads_failed(&f, STATUS_OK);
    CHECK(!threads_any_failed(&f));
    CHECK_OK(threads_failure(&f));
    threads_for(pool, 100, 1, fail_some, &f);
    CHECK(threads_any_failed(&f));
    CHECK_EQ(threads_failure(&f), STATUS_CORRUPT);
    snprintf(first, sizeof first, "%s", status_message());
    CHECK(strncmp(first, "index ", 6) == 0 && atoi(first + 6) % 3 == 0);
    threads_failed(&f, fail(STATUS_IO, "a later one"));
    CHECK_EQ(threads_failure(&f), STATUS_CORRUPT);
    CHECK(strcmp(status_message(), first) == 0);
    threads_free(pool);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    enum { N = 1000 };
    atomic_int *seen = malloc(N * sizeof *seen);
    CHECK(seen);
    const int counts[] = {0, 1, 2, 3, 5, 24}; /* more threads than processors: some start after the loop has ended */
    for (size_t k = 0; k < ARRAY_LEN(counts); k++) {
        struct threads *pool = NULL;
        int count = counts[k];
        if (count > 0) CHECK_OK(threads_create(&pool, count));
        CHECK_EQ(threads_count(pool), count > 0 ? count : 1);
        for (int64_t n = 0; n <= N; n = n * 3 + 1)
            for (int64_t grain = 1; grain < 200; grain *= 7)
                for (int repeat = 0; repeat < 20; repeat++) {
                    for (int i = 0; i < N; i++)
                        atomic_store(&seen[i], 0);
                    struct cover c = {.seen = seen, .pool = pool};
                    threads_for(pool, n, grain, visit, &c);
                    for (int i = 0; i < N; i++)
                        CHECK_EQ(atomic_load(&seen[i]), i < n);
                }
        threads_free(pool);
    }
    free(seen);
    test_failure();
    return test_done();
}
