/* damage_fixture.h -- the store that a test damages (a copy of a good one), its files, the findings of verify, the
 * contents that a reader gets; and processes that a fault point ends. */
#pragma once
#include "tests/store_fixture.h"
#include <fcntl.h>
#include <sys/wait.h>

static char dir[800]; /* the store under test */

/* Two results are valid at a time. */
static inline const char *in_store(const char *name) {
    static char path[2][900];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, fixture_file(name));
    return path[turn];
}

static inline void copy_store(const char *to, const char *from) {
    char command[2600];
    snprintf(command, sizeof command, "rm -rf '%s' && cp -r '%s' '%s'", to, from, to);
    CHECK_EQ(system(command), 0);
}

/* `dir` becomes a copy of the store `from`; both are names in the test's folder. */
static inline void fresh_copy(const char *name, const char *from) {
    char good[700];
    snprintf(dir, sizeof dir, "%s/%s", test_folder(), name);
    snprintf(good, sizeof good, "%s/%s", test_folder(), from);
    copy_store(dir, good);
}

/* at < 0: from the end of the file. */
static inline void flip(const char *path, long at, int bit) {
    uint8_t byte;
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0);
    off_t offset = at < 0 ? lseek(fd, 0, SEEK_END) + at : at;
    CHECK(pread(fd, &byte, 1, offset) == 1);
    byte ^= (uint8_t)(1 << bit);
    CHECK(pwrite(fd, &byte, 1, offset) == 1 && close(fd) == 0);
}

/* Of the last problem of verify. */
struct found {
    int n;
    char file[1000], problem[1200], remedy[200];
};
static inline void remember(void *context, const char *file, const char *problem, const char *remedy) {
    struct found *f = context;
    f->n++;
    snprintf(f->file, sizeof f->file, "%s", file);
    snprintf(f->problem, sizeof f->problem, "%s", problem);
    snprintf(f->remedy, sizeof f->remedy, "%s", remedy);
}
static inline int64_t verify(bool deep, struct found *f) {
    int64_t problems = -1;
    *f = (struct found){0};
    CHECK_OK(store_verify(dir, deep, NULL, remember, f, &problems));
    CHECK_EQ(problems, f->n);
    return problems;
}
/* Repairs without an encoder; then what verify finds. */
static inline int64_t repair_derived(struct found *f) {
    int64_t problems = -1;
    *f = (struct found){0};
    CHECK_OK(store_repair(dir, NULL, NULL, remember, f, &problems));
    return problems;
}

struct opened {
    struct store *s;
    struct store_view *v;
    struct store_info info;
};
static inline void open_view(struct opened *o) {
    CHECK_OK(store_open(&o->s, dir));
    CHECK_OK(store_view_open(&o->v, o->s));
    store_view_info(o->v, &o->info);
}
static inline void close_view(struct opened *o) {
    store_view_close(o->v);
    store_close(o->s);
}

/* Runs this program with the arguments (which end with NULL) in a process of its own, where DRT_FAULT is `fault` (NULL:
 * not set). Returns the wait status. */
static inline int run_child(const char *const *arguments, const char *fault) {
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (fault)
            setenv("DRT_FAULT", fault, 1);
        else
            unsetenv("DRT_FAULT");
        if (!freopen("/dev/null", "w", stdout)) _exit(98);
        execv("/proc/self/exe", (char *const *)arguments);
        _exit(99);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}
