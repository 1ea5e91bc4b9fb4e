/* progress_clock.c -- see progress.h. */
#include "base/memory.h"
#include "base/progress.h"
#include <pthread.h>
#include <time.h>

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
    void *memory;
    pthread_condattr_t attributes;
    *out = NULL;
    progress_step_detail(p, stage, detail, "seconds", 0, -1);
    if (!p || !p->report || memory_allocate_zero_bytes(&memory, 1, sizeof(struct progress_clock)) != STATUS_OK) return;
    struct progress_clock *c = memory;
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
