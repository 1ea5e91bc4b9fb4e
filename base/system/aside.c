/* aside.c -- see aside.h. */
#include "base/system/aside.h"
#include "base/memory.h"
#include "base/system/threads.h"
#include <assert.h>
#include <stdio.h>

struct aside {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    aside_body *body; /* NULL: none runs */
    void *context;
    bool stop;
    enum status status; /* of the last function, until aside_wait has returned it */
    char message[1024];
};

static void *aside_run(void *of) {
    struct aside *a = of;
    pthread_mutex_lock(&a->lock);
    for (;;) {
        while (!a->body && !a->stop)
            pthread_cond_wait(&a->changed, &a->lock);
        if (!a->body) break;
        pthread_mutex_unlock(&a->lock);
        enum status s = a->body(a->context);
        pthread_mutex_lock(&a->lock);
        a->status = s;
        if (s != STATUS_OK) snprintf(a->message, sizeof a->message, "%s", status_message());
        a->body = NULL;
        pthread_cond_broadcast(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

enum status aside_create(struct aside **out) {
    struct aside *a = NULL;
    TRY(memory_allocate_zero(&a, 1));
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    if (!threads_start(&a->thread, aside_run, a)) {
        pthread_cond_destroy(&a->changed);
        pthread_mutex_destroy(&a->lock);
        memory_free(a);
        return fail(STATUS_NO_MEMORY, "the system starts no thread: raise its limit of threads (ulimit -u)");
    }
    *out = a;
    return STATUS_OK;
}

void aside_free(struct aside *a) {
    if (!a) return;
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    pthread_join(a->thread, NULL);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    memory_free(a);
}

void aside_start(struct aside *a, aside_body *body, void *context) {
    pthread_mutex_lock(&a->lock);
    assert(!a->body && a->status == STATUS_OK);
    a->body = body;
    a->context = context;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

bool aside_ended(struct aside *a) {
    pthread_mutex_lock(&a->lock);
    const bool ended = !a->body;
    pthread_mutex_unlock(&a->lock);
    return ended;
}

void aside_settle(struct aside *a) {
    if (!a) return;
    pthread_mutex_lock(&a->lock);
    while (a->body)
        pthread_cond_wait(&a->changed, &a->lock);
    pthread_mutex_unlock(&a->lock);
}

enum status aside_wait(struct aside *a) {
    aside_settle(a);
    enum status s = a->status; /* no function runs: only this thread reads and writes it */
    a->status = STATUS_OK;
    return s == STATUS_OK ? s : fail(s, "%s", a->message);
}
