/* collective.c -- processes meet in a mapped file. It holds a barrier, a buffer for each rank's data, and the list of
 * processes.
 *
 * On the CPU the sums themselves run through the file. GPUs exchange NCCL's identity and their counts there, and sum by
 * NCCL. */
#include "kernels/device/collective.h"
#include "base/clock.h"
#include "base/memory.h"
#include "kernels/device/device_internal.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { WORLD_MAX = 64, HOST_VALUES = 64, PIECE = 1 << 16 /* floats of a rank in flight */ };
/* The time limit of a wait is long, because another rank may be validating or writing a checkpoint. */
enum { START_SECONDS = 120, PATIENCE_SECONDS = 3600 };

/* Head of the mapped file; one buffer of PIECE floats for each rank follows it. */
struct meeting {
    atomic_int come, arrived, round;
    atomic_int lost;                /* 1 + the rank that was first found dead; 0: none */
    _Atomic int process[WORLD_MAX]; /* process ids; 0: not arrived yet */
    uint8_t identity[128];          /* NCCL's, written by rank 0 before the first round ends */
    double host[WORLD_MAX][HOST_VALUES];
};

struct collective {
    struct device *dev;
    struct meeting *meeting;
    float *pieces;
    size_t bytes;
    int rank, world, round;
    void *peers; /* state of the device's runtime; NULL: sums run through the file */
};

static void pause_briefly(int turn) {
    struct timespec t = {.tv_nsec = turn < 200 ? 20000 : 1000000};
    nanosleep(&t, NULL);
}

/* Checks during a wait. A process that arrived and has died is reported at once, a slow one only after the time limit.
 * The process that finds a dead rank ends soon, too, so the first rank found is kept: all processes then report the
 * same one. */
static enum status still_there(const struct collective *c, double since, int patience, const char *what) {
    struct meeting *m = c->meeting;
    for (int r = 0, none = 0; r < c->world && atomic_load(&m->lost) == 0; r++) {
        int process = atomic_load(&m->process[r]);
        if (process && kill(process, 0) != 0 && errno == ESRCH) atomic_compare_exchange_strong(&m->lost, &none, r + 1);
    }
    int lost = atomic_load(&m->lost) - 1;
    if (lost >= 0)
        return fail(STATUS_IO, "rank %d of %d (process %d) has ended while rank %d waited %s: see its own message",
                    lost, c->world, atomic_load(&m->process[lost]), c->rank, what);
    if (clock_seconds() - since < patience) return STATUS_OK;
    return fail(STATUS_IO, "rank %d of %d waited %d s %s: are all ranks started, with the same configuration?", c->rank,
                c->world, patience, what);
}

static enum status collective_barrier(struct collective *c, const char *what) {
    struct meeting *m = c->meeting;
    int next = c->round + 1;
    if (atomic_fetch_add(&m->arrived, 1) + 1 == c->world) {
        atomic_store(&m->arrived, 0);
        atomic_store(&m->round, next);
    }
    double since = clock_seconds();
    for (int turn = 0; atomic_load(&m->round) != next; turn++) {
        if (turn % 256 == 255) TRY(still_there(c, since, PATIENCE_SECONDS, what));
        if (turn >= 64) pause_briefly(turn);
    }
    c->round = next;
    return STATUS_OK;
}

static enum status map_file(struct collective *c, int fd, const char *path) {
    void *p = mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return fail_errno("%s: cannot map", path);
    c->meeting = p;
    c->pieces = (float *)((unsigned char *)p + (sizeof(struct meeting) + 63) / 64 * 64);
    return STATUS_OK;
}

/* Rank 0 makes the file under another name and renames it, so that a process that finds the file finds it complete. */
static enum status make_file(struct collective *c, const char *path) {
    char temporary[4096];
    if (snprintf(temporary, sizeof temporary, "%s.tmp", path) >= (int)sizeof temporary)
        return fail(STATUS_INVALID, "%.100s...: path is too long", path);
    int fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return fail_errno("%s", temporary);
    enum status s = STATUS_OK;
    if (ftruncate(fd, (off_t)c->bytes) != 0) s = fail_errno("%s", temporary);
    if (s == STATUS_OK) s = map_file(c, fd, temporary);
    close(fd);
    if (s == STATUS_OK && link(temporary, path) != 0) s = fail_errno("%s: a rendezvous must be new", path);
    (void)unlink(temporary);
    return s;
}

static enum status find_file(struct collective *c, const char *path) {
    double since = clock_seconds();
    int fd = -1;
    for (int turn = 0; (fd = open(path, O_RDWR | O_CLOEXEC)) < 0; turn++) {
        if (errno != ENOENT) return fail_errno("%s", path);
        if (clock_seconds() - since > START_SECONDS)
            return fail(STATUS_IO, "%s: rank %d of %d waited %d s for rank 0 to make it: is rank 0 started?", path,
                        c->rank, c->world, START_SECONDS);
        pause_briefly(turn);
    }
    off_t size = lseek(fd, 0, SEEK_END);
    enum status s = size == (off_t)c->bytes
                        ? map_file(c, fd, path)
                        : fail(STATUS_MISMATCH, "%s: made for another number of ranks than %d", path, c->world);
    close(fd);
    return s;
}

static enum status collective_meet(struct collective *c, const char *path) {
    c->bytes = (sizeof(struct meeting) + 63) / 64 * 64 + (size_t)c->world * PIECE * sizeof(float);
    TRY(c->rank == 0 ? make_file(c, path) : find_file(c, path));
    struct meeting *m = c->meeting;
    int nobody = 0;
    if (!atomic_compare_exchange_strong(&m->process[c->rank], &nobody, (int)getpid()))
        return fail(STATUS_INVALID, "%s: rank %d is started twice (process %d has it)", path, c->rank, nobody);
    const struct device_peers *how = c->dev->runtime->peers;
    if (how && c->rank == 0) TRY(how->identity(m->identity));
    atomic_fetch_add(&m->come, 1);
    double since = clock_seconds();
    for (int turn = 0; atomic_load(&m->come) < c->world; turn++) {
        if (turn % 256 == 255) TRY(still_there(c, since, START_SECONDS, "for all ranks to come"));
        pause_briefly(turn);
    }
    TRY(collective_barrier(c, "at the start"));
    if (c->rank == 0) (void)unlink(path); /* the mapping stays valid */
    return how ? how->join(&c->peers, c->dev, m->identity, c->rank, c->world) : STATUS_OK;
}

enum status collective_open(struct collective **out, struct device *dev, int rank, int world, const char *rendezvous) {
    assert(rank >= 0 && rank < world);
    if (world > WORLD_MAX) return fail(STATUS_UNSUPPORTED, "%d processes: at most %d train together", world, WORLD_MAX);
    struct collective *c;
    TRY(memory_allocate_zero(&c, 1));
    *c = (struct collective){.dev = dev, .rank = rank, .world = world};
    enum status s = collective_meet(c, rendezvous);
    if (s == STATUS_OK)
        *out = c;
    else
        collective_close(c);
    return s;
}

void collective_close(struct collective *c) {
    if (!c) return;
    if (c->peers) c->dev->runtime->peers->leave(c->peers);
    if (c->meeting) munmap(c->meeting, c->bytes);
    memory_free(c);
}

int collective_rank(const struct collective *c) {
    return c->rank;
}

int collective_world(const struct collective *c) {
    return c->world;
}

static enum status sum_piece(struct collective *c, float *x, int64_t n) {
    memcpy(c->pieces + (int64_t)c->rank * PIECE, x, (size_t)n * sizeof *x);
    TRY(collective_barrier(c, "in a sum"));
    memcpy(x, c->pieces, (size_t)n * sizeof *x);
    for (int r = 1; r < c->world; r++) {
        const float *piece = c->pieces + (int64_t)r * PIECE;
        for (int64_t i = 0; i < n; i++)
            x[i] += piece[i];
    }
    return collective_barrier(c, "in a sum"); /* all must have read the pieces before the next ones overwrite them */
}

enum status collective_sum(struct collective *c, float *x, int64_t n) {
    if (c->peers) return c->dev->runtime->peers->sum(c->peers, c->dev, x, n);
    for (int64_t at = 0; at < n; at += PIECE)
        TRY(sum_piece(c, x + at, n - at < PIECE ? n - at : PIECE));
    return STATUS_OK;
}

enum status collective_sum_host(struct collective *c, double *values, int n) {
    assert(n >= 0 && n <= HOST_VALUES);
    struct meeting *m = c->meeting;
    memcpy(m->host[c->rank], values, (size_t)n * sizeof *values);
    TRY(collective_barrier(c, "in a sum"));
    for (int i = 0; i < n; i++) {
        values[i] = m->host[0][i];
        for (int r = 1; r < c->world; r++)
            values[i] += m->host[r][i];
    }
    return collective_barrier(c, "in a sum");
}
