/* serve_job.c -- a job's answer is passed from the computing thread to the HTTP thread under the job's lock. */
#include "tools/serve/serve_job.h"
#include "base/clock.h"
#include "base/memory.h"

#include <string.h>

enum status job_create(struct job **out, enum endpoint kind) {
    struct job *job = NULL;
    TRY(memory_allocate_zero(&job, 1));
    job->kind = kind;
    job->submitted = clock_seconds();
    atomic_init(&job->references, 1);
    atomic_init(&job->cancelled, false);
    pthread_mutex_init(&job->lock, NULL);
    enum status status = reply_open(&job->out);
    if (status != STATUS_OK) {
        job_release(job);
        return status;
    }
    *out = job;
    return STATUS_OK;
}

void job_release(struct job *job) {
    if (!job || atomic_fetch_sub(&job->references, 1) != 1) return;
    for (int i = 0; job->prompt_ids && i < job->completion.n_prompts; i++)
        memory_free(job->prompt_ids[i]);
    memory_free(job->prompt_ids);
    memory_free(job->n_prompt_ids);
    completion_request_free(&job->completion);
    search_request_free(&job->search);
    completion_free(job->work);
    reply_close(&job->out);
    pthread_mutex_destroy(&job->lock);
    memory_free(job);
}

/* Call it with the lock held. Makes the connection's thread check the job again. */
static void job_wake(struct job *job) {
    if (!job->waiting || !job->connection) return;
    job->waiting = false;
    job->resume(job->connection);
}

/* Call it with the lock held. Removes the sent bytes first, so that a long stream needs little memory. */
static enum status job_append(struct job *job, struct reply *reply) {
    if (job->sent > 0) {
        memmove(job->out.data, job->out.data + job->sent, job->out.bytes - job->sent);
        job->out.bytes -= job->sent;
        job->sent = 0;
    }
    TRY(reply_add(&job->out, reply->data, reply->bytes));
    reply_clear(reply);
    return STATUS_OK;
}

enum status job_put(struct job *job, struct reply *reply) {
    pthread_mutex_lock(&job->lock);
    enum status status = job_append(job, reply);
    if (!job->started) job->status = 200;
    job->started = true;
    job_wake(job);
    pthread_mutex_unlock(&job->lock);
    return status;
}

void job_finish(struct job *job, int status, struct reply *reply) {
    pthread_mutex_lock(&job->lock);
    if (job->finished) {
        pthread_mutex_unlock(&job->lock);
        return;
    }
    if (reply && job_append(job, reply) != STATUS_OK && !job->started) status = 500;
    if (!job->started) job->status = status;
    job->started = job->finished = true;
    job_wake(job);
    pthread_mutex_unlock(&job->lock);
}

void job_fail(struct job *job, int status, const char *message) {
    struct reply reply;
    if (reply_open(&reply) != STATUS_OK) {
        job_finish(job, 500, NULL);
        return;
    }
    pthread_mutex_lock(&job->lock);
    const bool event = job->started && job->streams, finished = job->finished;
    if (!event) job->streams = false;
    pthread_mutex_unlock(&job->lock);
    if (finished) {
        reply_close(&reply);
        return;
    }
    if (event) reply_event_begin(&reply);
    reply_error(&reply, status, message, NULL, NULL);
    enum status flushed = event ? reply_event_end(&reply) : reply_flush(&reply);
    job_finish(job, status, flushed == STATUS_OK ? &reply : NULL);
    reply_close(&reply);
}

bool job_cancelled(const struct serve *serve, const struct job *job) {
    return atomic_load(&job->cancelled) || atomic_load(&serve->cancel);
}

int serve_http_status(enum status status) {
    switch (status) {
    case STATUS_INVALID:
    case STATUS_UNSUPPORTED:
    case STATUS_MISMATCH:
        return 400;
    case STATUS_NOT_FOUND:
        return 404;
    case STATUS_NO_MEMORY:
    case STATUS_BUSY:
        return 503;
    case STATUS_INTERRUPTED:
        return 504;
    default:
        return 500;
    }
}

size_t job_unsent(struct job *job) {
    pthread_mutex_lock(&job->lock);
    size_t bytes = job->out.bytes - job->sent;
    pthread_mutex_unlock(&job->lock);
    return bytes;
}
