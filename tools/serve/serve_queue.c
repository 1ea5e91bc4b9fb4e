/* serve_queue.c -- the computing thread. In each round every completion takes one step, a part of its prompt or a
 * token; on a CPU some prompts wait for a later round (serve_round.c). Searches and documents are answered between two
 * rounds. The tokens of a round are computed in batches, which read the weights once for all of their sessions. A
 * completion can begin and end in any round. On a GPU a batch takes only some hundred microseconds, so several threads
 * sample its tokens and write them into the answers. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/system/threads.h"
#include "tools/serve/serve_job.h"

#include <errno.h>

enum { LOOKUPS = 4 /* between two rounds */, ROUND_PARTS = 4 /* of prompts in a round, each of --prefill-chunks */ };

struct job_list {
    struct job *first, **last;
    int64_t n;
};
struct serve_queue {
    struct serve *serve;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct job_list waiting, lookups; /* protected by the lock */
    int64_t running;                  /* protected by the lock */
    bool ending;
    struct job **active; /* [sessions], used only by the thread */
    int64_t n_active;
    struct drt_session **batch; /* [sessions], used only by the thread: the sessions of active[batched[0 ..]] */
    int64_t *batched;
    enum completion_step *steps;  /* [sessions]: the last steps of the jobs in `active` */
    struct round_prompt *prompts; /* [sessions], used only by the thread: prompts of this round */
    int64_t n_prompts;
    struct threads *samplers; /* threads that take the steps of a batch; NULL: only the computing thread does */
};

static void job_list_add(struct job_list *list, struct job *job) {
    if (!list->first) list->last = &list->first;
    job->next = NULL;
    *list->last = job;
    list->last = &job->next;
    list->n++;
}

static struct job *job_list_take(struct job_list *list) {
    struct job *job = list->first;
    if (!job) return NULL;
    list->first = job->next;
    list->n--;
    return job;
}

/* Ends waiting jobs whose clients have disconnected or whose time has passed. */
static void queue_sweep(struct serve_queue *q, struct job_list *gone) {
    struct job_list kept = {0};
    const double now = clock_seconds();
    for (struct job *job; (job = job_list_take(&q->waiting));)
        job_list_add(job_cancelled(q->serve, job) || now > job->deadline ? gone : &kept, job);
    q->waiting = kept;
}

/* The session is free at once, and not only after the client has read the answer. */
static void queue_end_job(struct serve *serve, struct job *job) {
    completion_close(serve, job);
    job_release(job);
}

/* The fewest sessions of a batch. On a GPU the kernel of a session alone is faster for two in turns, too: 190 us
 * against 216 (docs/kernels/decode_rows.md); its rounding differs, which --same-answers avoids. */
static int queue_batch_least(const struct serve *serve) {
    if (serve->options.same_answers) return 1;
    return serve_model_on_gpu(&serve->model) ? 3 : 2;
}

/* Prepares the tokens of at most --batch jobs together, from active[from] on. Sets *taken to their number, and
 * q->batched to their indices in `active`. Returns the index after the last job that it considered. */
static int64_t queue_batch(struct serve_queue *q, int64_t from, int *taken) {
    const int64_t most = q->serve->options.batch;
    const double start = clock_seconds();
    int64_t end = from;
    int n = 0, together = 0;
    for (; end < q->n_active && n < most; end++) {
        struct drt_session *session = completion_session(q->serve, q->active[end]);
        if (!session) continue;
        q->batched[n] = end;
        q->batch[n++] = session;
    }
    *taken = n;
    /* Without enough memory, each session computes its token separately and reports the error. */
    if (n < queue_batch_least(q->serve) || drt_session_prepare(q->batch, n, &together) != DRT_OK || together == 0)
        return end;
    if (together > 1) metrics_observe(q->serve->metrics, METRICS_BATCH_SESSIONS, together);
    const double seconds = clock_seconds() - start;
    metrics_spend(q->serve->metrics, METRICS_STAGE_BATCH, seconds);
    for (int i = 0; i < n; i++)
        completion_prepared(q->active[q->batched[i]], seconds);
    return end;
}

/* Data that the steps of several jobs share has its own locks. */
static void queue_steps(void *context, int64_t begin, int64_t end, int worker) {
    struct serve_queue *q = context;
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        q->steps[q->batched[i]] = completion_step(q->serve, q->active[q->batched[i]]);
}

/* The session of a completion that has ended is free for the next steps of the round. */
static void queue_end_step(struct serve_queue *q, int64_t at) {
    if (q->steps[at] != COMPLETION_DONE) return;
    queue_end_job(q->serve, q->active[at]);
    q->active[at] = NULL;
}

/* Takes the job's step, or leaves it to queue_prompts. On a GPU the passes of a prompt are only queued. */
static void queue_step(struct serve_queue *q, int64_t at) {
    struct job *job = q->active[at];
    const int64_t ids = serve_model_on_gpu(&q->serve->model) ? 0 : completion_unread(q->serve, job);
    if (ids == 0) {
        q->steps[at] = completion_step(q->serve, job);
        return;
    }
    q->steps[at] = COMPLETION_MORE;
    q->prompts[q->n_prompts++] = (struct round_prompt){.job = at, .ids = ids, .left_out = job->left_out};
}

/* Reads prompts. A client gets its first token once its own prompt is read. */
static void queue_prompts(struct serve_queue *q) {
    const int64_t part = completion_part(q->serve),
                  taken = round_plan(q->prompts, q->n_prompts, part, ROUND_PARTS * part);
    for (int64_t i = 0; i < q->n_prompts; i++) {
        const int64_t at = q->prompts[i].job;
        q->active[at]->left_out = i < taken ? 0 : q->active[at]->left_out + 1;
        if (i >= taken) continue;
        q->steps[at] = completion_step(q->serve, q->active[at]);
        serve_writer_wake(q->serve->writer);
        queue_end_step(q, at);
    }
}

/* Runs a round: one step of each session. Returns true if at least one made progress. */
static bool queue_round(struct serve_queue *q) {
    bool progress = false;
    int64_t kept = 0;
    q->n_prompts = 0;
    for (int64_t i = 0, end; i < q->n_active; i = end) {
        int taken = 0;
        end = queue_batch(q, i, &taken);
        threads_for(q->samplers, taken, 1, queue_steps, q);
        serve_writer_wake(q->serve->writer);
        for (int64_t j = i, next = 0; j < end; j++) {
            if (next < taken && q->batched[next] == j)
                next++;
            else
                queue_step(q, j);
            progress = progress || q->steps[j] != COMPLETION_PAUSED;
            queue_end_step(q, j);
        }
    }
    queue_prompts(q);
    for (int64_t i = 0; i < q->n_active; i++)
        if (q->active[i]) q->active[kept++] = q->active[i];
    q->n_active = kept;
    serve_writer_wake(q->serve->writer);
    return progress;
}

/* Call it with the lock held. Waits while there is nothing to compute. paused: waits until a client has read, or
 * for a short time. */
static void queue_wait(struct serve_queue *q, bool paused) {
    if (q->lookups.first || (q->waiting.first && q->n_active < q->serve->options.sessions)) return;
    if (q->n_active > 0 && !paused) return;
    if (q->n_active == 0) {
        if (!q->ending) pthread_cond_wait(&q->changed, &q->lock);
        return;
    }
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 100 * 1000 * 1000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    (void)pthread_cond_timedwait(&q->changed, &q->lock, &until);
}

static void *queue_thread(void *context) {
    struct serve_queue *q = context;
    bool progress = true;
    for (;;) {
        struct job_list gone = {0}, lookups = {0};
        pthread_mutex_lock(&q->lock);
        q->running = q->n_active;
        const double start = clock_seconds();
        queue_wait(q, !progress);
        metrics_spend(q->serve->metrics, METRICS_STAGE_WAIT, clock_seconds() - start);
        if (q->ending && q->n_active == 0 && !q->waiting.first && !q->lookups.first) break;
        queue_sweep(q, &gone);
        while (q->n_active < q->serve->options.sessions && q->waiting.first)
            q->active[q->n_active++] = job_list_take(&q->waiting);
        while (lookups.n < LOOKUPS && q->lookups.first)
            job_list_add(&lookups, job_list_take(&q->lookups));
        q->running = q->n_active + lookups.n;
        q->serve->active = q->n_active;
        pthread_mutex_unlock(&q->lock);
        for (struct job *job; (job = job_list_take(&gone));) {
            (void)completion_step(q->serve, job); /* ends the job, which is cancelled or late */
            queue_end_job(q->serve, job);
        }
        const double looked = clock_seconds();
        for (struct job *job; (job = job_list_take(&lookups));) {
            if (job_cancelled(q->serve, job))
                job_fail(job, 503, "the request was cancelled");
            else
                lookup_run(q->serve, job);
            queue_end_job(q->serve, job);
        }
        metrics_spend(q->serve->metrics, METRICS_STAGE_LOOKUP, clock_seconds() - looked);
        progress = queue_round(q);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

static void queue_release(struct serve_queue *q) {
    serve_writer_free(q->serve->writer);
    q->serve->writer = NULL;
    threads_free(q->samplers);
    memory_free(q->active);
    memory_free(q->batch);
    memory_free(q->batched);
    memory_free(q->steps);
    memory_free(q->prompts);
    memory_free(q);
}

/* One is the default. On a CPU the processors are busy with the batches: more threads would only take turns with them.
 * A GPU picks ids itself and computes the next round meanwhile, and to wake threads takes longer than they save. */
static enum status queue_samplers(struct serve_queue *q) {
    const int64_t n = q->serve->options.sample_threads;
    return n > 1 ? threads_create(&q->samplers, (int)n) : STATUS_OK;
}

enum status serve_queue_create(struct serve_queue **out, struct serve *serve) {
    struct serve_queue *q = NULL;
    TRY(memory_allocate_zero(&q, 1));
    q->serve = serve;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->changed, NULL);
    enum status status = memory_allocate(&q->active, (size_t)serve->options.sessions);
    if (status == STATUS_OK) status = memory_allocate(&q->batch, (size_t)serve->options.sessions);
    if (status == STATUS_OK) status = memory_allocate(&q->batched, (size_t)serve->options.sessions);
    if (status == STATUS_OK) status = memory_allocate(&q->steps, (size_t)serve->options.sessions);
    if (status == STATUS_OK) status = memory_allocate(&q->prompts, (size_t)serve->options.sessions);
    if (status == STATUS_OK) status = queue_samplers(q);
    if (status == STATUS_OK) status = serve_writer_create(&serve->writer, serve);
    if (status == STATUS_OK && !threads_start(&q->thread, queue_thread, q))
        status = fail(STATUS_NO_MEMORY, "the computing thread cannot be started");
    if (status != STATUS_OK) {
        queue_release(q);
        return status;
    }
    *out = q;
    return STATUS_OK;
}

enum status serve_queue_submit(struct serve_queue *q, struct job *job) {
    enum status status = STATUS_OK;
    pthread_mutex_lock(&q->lock);
    if (q->waiting.n + q->lookups.n >= q->serve->options.queue) {
        status =
            fail(STATUS_BUSY, "%lld requests wait already: try again later", (long long)(q->waiting.n + q->lookups.n));
    } else {
        atomic_fetch_add(&job->references, 1);
        job_list_add(job->kind == ENDPOINT_COMPLETIONS ? &q->waiting : &q->lookups, job);
        pthread_cond_signal(&q->changed);
    }
    pthread_mutex_unlock(&q->lock);
    return status;
}

void serve_queue_wake(struct serve_queue *q) {
    pthread_mutex_lock(&q->lock);
    pthread_cond_signal(&q->changed);
    pthread_mutex_unlock(&q->lock);
}

void serve_queue_counts(struct serve_queue *q, int64_t *waiting, int64_t *running) {
    pthread_mutex_lock(&q->lock);
    *waiting = q->waiting.n + q->lookups.n;
    *running = q->running;
    pthread_mutex_unlock(&q->lock);
}

void serve_queue_free(struct serve_queue *q) {
    if (!q) return;
    pthread_mutex_lock(&q->lock);
    q->ending = true;
    pthread_cond_signal(&q->changed);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->thread, NULL);
    pthread_cond_destroy(&q->changed);
    pthread_mutex_destroy(&q->lock);
    queue_release(q);
}
