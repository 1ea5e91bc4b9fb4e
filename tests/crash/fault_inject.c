/* fault_inject.c -- active fault points, for the programs of crash tests (see base/system/fault.h).
 *
 * DRT_FAULT="kill:N" kills the process at the Nth fault point passed, "fail:N" makes that one fail, both counted from
 * 1 over all names; "kill:N:name" and "fail:N:name" count only passes of that name. "count" prints the number of passes
 * to stderr when the process ends, also of each name, so that a test can try all of them, and only those. */
#include "base/system/fault.h"
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long passes, wanted = -1;
static char mode[8], only[128];
static bool counting;
static struct {
    const char *name;
    long passes;
} counts[256];

static void print_count(void) {
    fprintf(stderr, "fault points passed: %ld\n", passes);
    for (size_t i = 0; i < sizeof counts / sizeof *counts && counts[i].name; i++)
        fprintf(stderr, "fault point %s: %ld\n", counts[i].name, counts[i].passes);
}

static void count(const char *name) {
    size_t i = 0;
    while (i < sizeof counts / sizeof *counts && counts[i].name && strcmp(counts[i].name, name) != 0)
        i++;
    if (i == sizeof counts / sizeof *counts) {
        fprintf(stderr, "DRT_FAULT=count: more than %zu names of fault points\n", i);
        _exit(99);
    }
    counts[i].name = name;
    counts[i].passes++;
}

static void read_plan(void) {
    wanted = 0;
    const char *plan = getenv("DRT_FAULT");
    if (!plan) return;
    if (strcmp(plan, "count") == 0) {
        counting = true;
        atexit(print_count);
        return;
    }
    if (sscanf(plan, "%7[a-z]:%ld:%127s", mode, &wanted, only) < 2) {
        fprintf(stderr, "DRT_FAULT=%s: wanted kill:N[:name], fail:N[:name] or count\n", plan);
        _exit(99);
    }
}

enum status fault_point(const char *name) {
    pthread_mutex_lock(&lock);
    if (wanted < 0) read_plan();
    long n = 0;
    if (!only[0] || strcmp(only, name) == 0) n = ++passes;
    if (counting) count(name);
    pthread_mutex_unlock(&lock);
    if (wanted == 0 || n != wanted) return STATUS_OK;
    if (strcmp(mode, "kill") == 0) {
        kill(getpid(), SIGKILL);
        pause();
    }
    return fail(STATUS_FAULT, "injected fault at %s (pass %ld)", name, n);
}
