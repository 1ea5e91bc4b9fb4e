/* serve_writer.c -- the writing thread: jobs with tokens that were computed and not written yet, in a list. A job is
 * listed once at most; tokens that come meanwhile are written with it. */
#include "base/memory.h"
#include "base/system/threads.h"
#include "tools/serve/serve_job.h"

struct serve_writer {
    struct serve *serve;
    pthread_t thread;
    pthread_mutex_t lock; /* protects the members below */
    pthread_cond_t changed;
    struct job *first, **last;
    bool ending;
};

/* What the computing thread learns by `cancelled`. */
static void writer_write(struct serve *serve, struct job *job) {
    enum status status = completion_write(serve, job);
    if (status == STATUS_OK) return;
    job_fail(job, serve_http_status(status), status_message());
    atomic_store(&job->cancelled, true);
}

static void *writer_thread(void *context) {
    struct serve_writer *w = context;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->first && !w->ending)
            pthread_cond_wait(&w->changed, &w->lock);
        struct job *job = w->first;
        if (!job) break;
        w->first = job->next_written;
        if (!w->first) w->last = &w->first;
        job->is_listed = false;
        pthread_mutex_unlock(&w->lock);
        writer_write(w->serve, job);
        job_release(job);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

enum status serve_writer_create(struct serve_writer **out, struct serve *serve) {
    struct serve_writer *w = NULL;
    TRY(memory_allocate_zero(&w, 1));
    w->serve = serve;
    w->last = &w->first;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    if (!threads_start(&w->thread, writer_thread, w)) {
        memory_free(w);
        return fail(STATUS_NO_MEMORY, "the writing thread cannot be started");
    }
    *out = w;
    return STATUS_OK;
}

void serve_writer_add(struct serve_writer *w, struct job *job) {
    pthread_mutex_lock(&w->lock);
    if (!job->is_listed) {
        atomic_fetch_add(&job->references, 1);
        job->is_listed = true;
        job->next_written = NULL;
        *w->last = job;
        w->last = &job->next_written;
    }
    pthread_mutex_unlock(&w->lock);
}

void serve_writer_wake(struct serve_writer *w) {
    pthread_mutex_lock(&w->lock);
    if (w->first) pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

void serve_writer_free(struct serve_writer *w) {
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->ending = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    memory_free(w);
}
