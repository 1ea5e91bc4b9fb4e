/* progress.c -- calls of a progress that may be NULL, and the thread of a progress_clock. */
#include "base/progress.h"
#include "base/memory.h"
#include "base/printable.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

void progress_step_detail(const struct progress *p, const char *stage, const char *detail, const char *unit,
                          int64_t done, int64_t total) {
    const struct progress_event e = {.stage = stage, .unit = unit, .done = done, .total = total, .detail = detail};
    if (p && p->report) p->report(p->context, &e);
}

void progress_step(const struct progress *p, const char *stage, const char *unit, int64_t done, int64_t total) {
    progress_step_detail(p, stage, NULL, unit, done, total);
}

void progress_note(const struct progress *p, const char *format, ...) {
    if (!p || !p->report) return;
    char text[1024], shown[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    printable_copy(shown, sizeof shown, text);
    p->report(p->context, &(struct progress_event){.stage = "", .unit = "", .note = shown});
}

bool progress_stop_requested(const struct progress *p) {
    return p && p->stop_requested && p->stop_requested(p->context);
}

/* ---- progress_clock ---- */

struct progress_clock {
    const struct progress *progress;
    const char *stage, *detail;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t stopped;
    bool stop;
};

static void *clock_main(void *context) {
    struct progress_clock *c = context;
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    pthread_mutex_lock(&c->mutex);
    for (int64_t seconds = 1; !c->stop; seconds++) {
        next.tv_sec++;
        int rc = 0;
        while (!c->stop && rc == 0)
            rc = pthread_cond_timedwait(&c->stopped, &c->mutex, &next);
        if (!c->stop) progress_step_detail(c->progress, c->stage, c->detail, "seconds", seconds, -1);
    }
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

static void clock_release(struct progress_clock *c) {
    pthread_cond_destroy(&c->stopped);
    pthread_mutex_destroy(&c->mutex);
    memory_free(c);
}

void progress_clock_start(struct progress_clock **out, const struct progress *p, const char *stage,
                          const char *detail) {
    pthread_condattr_t attributes;
    struct progress_clock *c;
    *out = NULL;
    progress_step_detail(p, stage, detail, "seconds", 0, -1);
    if (!p || !p->report || memory_allocate_zero(&c, 1) != STATUS_OK) return;
    *c = (struct progress_clock){.progress = p, .stage = stage, .detail = detail};
    pthread_mutex_init(&c->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&c->stopped, &attributes);
    pthread_condattr_destroy(&attributes);
    if (pthread_create(&c->thread, NULL, clock_main, c) == 0)
        *out = c;
    else
        clock_release(c);
}

void progress_clock_stop(struct progress_clock *c) {
    if (!c) return;
    pthread_mutex_lock(&c->mutex);
    c->stop = true;
    pthread_cond_signal(&c->stopped);
    pthread_mutex_unlock(&c->mutex);
    pthread_join(c->thread, NULL);
    clock_release(c);
}
