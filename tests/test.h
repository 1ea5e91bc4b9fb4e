/* test.h -- checks for test programs: a failed check prints file, line and both values, and the program exits with 1.
 *
 * A program's main calls its cases and ends with `return test_done();`. Random cases take test_seed(), which is printed
 * on failure; the first argument sets it. */
#pragma once
#include "base/status.h"
#include <ftw.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t test_seed_value;

static inline void test_start(int argc, char **argv, uint64_t default_seed) {
    test_seed_value = argc > 1 ? strtoull(argv[1], NULL, 10) : default_seed;
}
static inline uint64_t test_seed(void) { return test_seed_value; }

_Noreturn static inline void test_fail(const char *file, int line, const char *what) {
    fprintf(stderr, "%s:%d: %s (seed %llu)\n", file, line, what, (unsigned long long)test_seed_value);
    exit(1);
}
_Noreturn static inline void test_skip(const char *why) {
    printf("skipped: %s\n", why);
    exit(77);
}
static inline int test_done(void) {
    printf("ok\n");
    return 0;
}

#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) test_fail(__FILE__, __LINE__, "failed: " #condition); \
    } while (0)

#define CHECK_EQ(a, b)                                                                                              \
    do {                                                                                                            \
        long long check_a_ = (long long)(a), check_b_ = (long long)(b);                                             \
        if (check_a_ != check_b_) {                                                                                 \
            fprintf(stderr, "%s = %lld, %s = %lld\n", #a, check_a_, #b, check_b_);                                  \
            test_fail(__FILE__, __LINE__, "not equal");                                                             \
        }                                                                                                           \
    } while (0)

#define CHECK_STR(a, b)                                                                                             \
    do {                                                                                                            \
        const char *check_a_ = (a), *check_b_ = (b);                                                                \
        if (strcmp(check_a_, check_b_) != 0) {                                                                      \
            fprintf(stderr, "%s = \"%s\"\n%s = \"%s\"\n", #a, check_a_, #b, check_b_);                              \
            test_fail(__FILE__, __LINE__, "strings differ");                                                        \
        }                                                                                                           \
    } while (0)

#define CHECK_OK(call)                                                                                              \
    do {                                                                                                            \
        enum status check_s_ = (call);                                                                              \
        if (check_s_ != STATUS_OK) {                                                                                \
            fprintf(stderr, "%s: %s: %s\n", #call, status_text(check_s_), status_message());                        \
            test_fail(__FILE__, __LINE__, "call failed");                                                           \
        }                                                                                                           \
    } while (0)

/* The call must fail with this status, and its message must contain the text. */
#define CHECK_FAILS(call, code, text)                                                                               \
    do {                                                                                                            \
        enum status check_s_ = (call);                                                                              \
        if (check_s_ != (code) || !strstr(status_message(), text)) {                                                \
            fprintf(stderr, "%s: %s: \"%s\", wanted %s with \"%s\"\n", #call, status_text(check_s_),                \
                    status_message(), status_text(code), text);                                                     \
            test_fail(__FILE__, __LINE__, "wrong failure");                                                         \
        }                                                                                                           \
    } while (0)

/* |a[i] - b[i]| <= tolerance for all i; NaN never passes. */
static inline void check_close(const char *file, int line, const float *a, const float *b, size_t n, double tolerance) {
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= tolerance) && !(a[i] == b[i])) {
            fprintf(stderr, "index %zu of %zu: %.9g against %.9g, tolerance %g\n", i, n, (double)a[i], (double)b[i],
                    tolerance);
            test_fail(file, line, "not close");
        }
}
#define CHECK_CLOSE(a, b, n, tolerance) check_close(__FILE__, __LINE__, a, b, (size_t)(n), tolerance)

/* An empty folder of this process, under $DRT_TEST_TMP (or /tmp), removed if the program succeeds. */
static char test_folder_path[512];
static inline int test_entry_remove(const char *path, const struct stat *about, int kind, struct FTW *at) {
    (void)about, (void)kind, (void)at;
    return remove(path);
}
/* Without a shell: compute-sanitizer's replacement of system() aborts while a program exits. */
static inline void test_folder_remove(void) {
    if (nftw(test_folder_path, test_entry_remove, 16, FTW_DEPTH | FTW_PHYS) != 0)
        fprintf(stderr, "could not remove %s\n", test_folder_path);
}
static inline const char *test_folder(void) {
    if (test_folder_path[0]) return test_folder_path;
    const char *base = getenv("DRT_TEST_TMP");
    if (base) mkdir(base, 0777);
    snprintf(test_folder_path, sizeof test_folder_path, "%s/drt-test-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(test_folder_path)) test_fail(__FILE__, __LINE__, "mkdtemp");
    atexit(test_folder_remove);
    return test_folder_path;
}
/* A path in that folder; 32 results are valid at a time. */
static inline const char *test_path(const char *name) {
    static char path[32][700];
    static int turn;
    char *out = path[turn++ % 32];
    snprintf(out, sizeof path[0], "%s/%s", test_folder(), name);
    return out;
}
