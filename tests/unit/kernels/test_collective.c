/* test_collective.c -- sums over processes: every rank gets the bits of a loop in rank order, for pieces of any size; a
 * rank that dies or connects twice is named. */
#include "base/memory.h"
#include "base/rng.h"
#include "kernels/device/collective.h"
#include "tests/test.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORLD = 3 };
static const int64_t sizes[] = {1, 7, 65536, 65537, 200001};

static void fill(float *x, int64_t n, int rank, int round) {
    struct rng rng = rng_make((uint64_t)round, (uint64_t)rank);
    for (int64_t i = 0; i < n; i++)
        x[i] = rng_normal(&rng);
}

static void rank_sums(struct device *dev, int rank, const char *path) {
    struct collective *c;
    CHECK_OK(collective_open(&c, dev, rank, WORLD, path));
    CHECK(collective_rank(c) == rank && collective_world(c) == WORLD);
    for (int round = 0; round < (int)ARRAY_LEN(sizes); round++) {
        int64_t n = sizes[round];
        float *x = malloc((size_t)n * sizeof *x), *all = malloc((size_t)n * sizeof *all),
              *one = malloc((size_t)n * sizeof *one);
        fill(x, n, rank, round);
        fill(all, n, 0, round);
        for (int r = 1; r < WORLD; r++) {
            fill(one, n, r, round);
            for (int64_t i = 0; i < n; i++)
                all[i] += one[i];
        }
        CHECK_OK(collective_sum(c, x, n));
        CHECK(memcmp(x, all, (size_t)n * sizeof *x) == 0);
        double values[2] = {rank + 1.0, 10.0 * round};
        CHECK_OK(collective_sum_host(c, values, 2));
        CHECK(values[0] == 6.0 && values[1] == 30.0 * round);
        free(x), free(all), free(one);
    }
    collective_close(c);
}

static void collective_run(void (*body)(struct device *, int, const char *), const char *path, int ranks) {
    pid_t children[WORLD];
    for (int r = 0; r < ranks; r++) {
        children[r] = fork();
        CHECK(children[r] >= 0);
        if (children[r] == 0) {
            struct device *dev;
            CHECK_OK(device_open(&dev, "cpu", 1));
            body(dev, r, path);
            device_close(dev);
            exit(0);
        }
    }
    for (int left = ranks; left > 0; left--) { /* in the order of their ends: the others must notice it */
        int how;
        CHECK(wait(&how) > 0);
        CHECK((WIFEXITED(how) && WEXITSTATUS(how) == 0) || (WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL));
    }
}

/* Rank 1 dies between two sums: the others fail with its number instead of waiting. */
static void rank_dies(struct device *dev, int rank, const char *path) {
    struct collective *c;
    float x[4] = {1, 2, 3, 4};
    CHECK_OK(collective_open(&c, dev, rank, WORLD, path));
    CHECK_OK(collective_sum(c, x, 4));
    if (rank == 1) kill(getpid(), SIGKILL);
    CHECK_EQ(collective_sum(c, x, 4), STATUS_IO);
    CHECK(strstr(status_message(), "rank 1 of 3") && strstr(status_message(), "has ended"));
    collective_close(c);
}

int main(void) {
    char path[] = "/tmp/test_collective_XXXXXX", again[64];
    CHECK(mkdtemp(path));
    snprintf(again, sizeof again, "%s/meet", path);
    collective_run(rank_sums, again, WORLD);
    CHECK(access(again, F_OK) != 0); /* removed when all have connected */
    collective_run(rank_dies, again, WORLD);
    struct device *dev;
    struct collective *c;
    CHECK_OK(device_open(&dev, "cpu", 1));
    CHECK_OK(collective_open(&c, dev, 0, 1, again)); /* a single rank works, too */
    float x = 2.5f;
    CHECK_OK(collective_sum(c, &x, 1));
    CHECK(x == 2.5f);
    collective_close(c);
    CHECK_EQ(collective_open(&c, dev, 0, 65, again), STATUS_UNSUPPORTED);
    device_close(dev);
    CHECK_EQ(rmdir(path), 0);
    return test_done();
}
