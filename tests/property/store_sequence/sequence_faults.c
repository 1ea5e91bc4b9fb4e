/* sequence_faults.c -- fault points that this program sets while it runs (base/system/fault.h). */
#include "base/system/fault.h"
#include "tests/property/store_sequence/sequence.h"
#include <pthread.h>
#include <signal.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sequence_passes *counts; /* NULL: passes are not counted */
static const char *wanted;             /* NULL: no fault */
static bool kills, fired;
static long left;

void sequence_faults_off(void) {
    pthread_mutex_lock(&lock);
    counts = NULL;
    wanted = NULL;
    pthread_mutex_unlock(&lock);
}

void sequence_faults_arm(bool kill, const char *name, long pass) {
    pthread_mutex_lock(&lock);
    counts = NULL;
    wanted = name;
    kills = kill;
    fired = false;
    left = pass;
    pthread_mutex_unlock(&lock);
}

bool sequence_faults_fired(void) {
    return fired;
}

void sequence_faults_count(struct sequence_passes out[SEQUENCE_POINTS]) {
    sequence_faults_off();
    memset(out, 0, SEQUENCE_POINTS * sizeof *out);
    counts = out;
}

static void count(const char *name) {
    int i = 0;
    while (i < SEQUENCE_POINTS && counts[i].passes && strcmp(counts[i].name, name) != 0)
        i++;
    CHECK(i < SEQUENCE_POINTS);
    snprintf(counts[i].name, sizeof counts[i].name, "%s", name);
    counts[i].passes++;
}

static bool stop_requested(void *context) {
    static _Thread_local bool stopped;
    (void)context;
    if (!wanted) stopped = false;
    stopped = stopped || fault_point("progress:stop") != STATUS_OK; /* a request lasts */
    return stopped;
}
const struct progress sequence_progress = {.stop_requested = stop_requested};

enum status fault_point(const char *name) {
    pthread_mutex_lock(&lock);
    if (counts) count(name);
    const bool now = wanted && strcmp(name, wanted) == 0 && --left == 0;
    fired = fired || now;
    pthread_mutex_unlock(&lock);
    if (!now) return STATUS_OK;
    if (kills) {
        kill(getpid(), SIGKILL);
        pause();
    }
    return fail(STATUS_FAULT, "injected fault at %s", name);
}
