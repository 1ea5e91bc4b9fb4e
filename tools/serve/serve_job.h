/* serve_job.h -- a request for the computing thread, the queue of such requests, and the code that answers them. */
#pragma once
#include "tools/serve/serve.h"

#include <pthread.h>

struct completion;
struct job {
    enum endpoint kind;                  /* COMPLETIONS, SEARCH or DOCUMENT */
    struct completion_request completion;
    int32_t **prompt_ids; size_t *n_prompt_ids;           /* [completion.n_prompts] */
    struct search_request search;
    int64_t document, first_chunk, chunks;
    double submitted, deadline;          /* clock_seconds */
    bool streams;
    atomic_bool cancelled;               /* the client has disconnected or the server stops: end at the next step */

    pthread_mutex_t lock;                /* of the members below, up to the next empty line */
    struct reply out;                    /* of streams: [sent, bytes) is still to be sent */
    size_t sent;
    bool started, finished;              /* the answer has begun; it is complete */
    int status;                          /* HTTP status; with started */
    bool waiting;                        /* its connection is suspended, and `resume` wakes it */
    void (*resume)(void *connection);
    void *connection;                    /* NULL: gone */

    int64_t prompt_tokens, tokens;       /* read by the HTTP thread after finished */
    double queued;                       /* seconds before it was begun; the same */
    struct completion *work;             /* the computing thread's */
    struct job *next;
    atomic_int references;
};
enum status job_create(struct job **out, enum endpoint kind);
void job_release(struct job *job);                        /* frees it with the last reference; NULL is fine */
/* Computing thread: the next part of a stream. The contents of `reply` are moved out of it. */
enum status job_put(struct job *job, struct reply *reply);
/* The whole answer, or the last part of a stream; nothing follows. */
void job_finish(struct job *job, int status, struct reply *reply);
/* An error object. If a stream has begun, it is the stream's last event. */
void job_fail(struct job *job, int status, const char *message);
size_t job_unsent(struct job *job);
bool job_cancelled(const struct serve *serve, const struct job *job);

/* ---- serve_queue.c ---- */
enum status serve_queue_create(struct serve_queue **out, struct serve *serve);
/* STATUS_BUSY: the queue is full. Takes a reference. */
enum status serve_queue_submit(struct serve_queue *q, struct job *job);
/* Wakes the computing thread: bytes of a stream were sent, or a job was cancelled. */
void serve_queue_wake(struct serve_queue *q);
void serve_queue_counts(struct serve_queue *q, int64_t *waiting, int64_t *running);
void serve_queue_free(struct serve_queue *q);             /* waits for all jobs and the thread; NULL is fine */

/* ---- serve_completion.c: a completion, one step at a time, on the computing thread ---- */
enum completion_step { COMPLETION_MORE, COMPLETION_PAUSED, COMPLETION_DONE };
/* One pass of a prompt or one token. PAUSED: the client reads more slowly than tokens come. */
enum completion_step completion_step(struct serve *serve, struct job *job);
/* The session whose next step is a token; NULL: the next step is something else. */
struct drt_session *completion_session(const struct serve *serve, struct job *job);
/* Counts the time of a batch that contained this completion. */
void completion_spent(struct job *job, double seconds);
void completion_free(struct completion *c);               /* NULL is fine */

/* ---- serve_lookup.c: search and documents, on the computing thread ---- */
void lookup_run(struct serve *serve, struct job *job);
/* Members "document", "name" and "key" of a document; the name is the path or URL that it came from. */
void lookup_write_document(struct serve_model *m, struct json_writer *w, int64_t document);
void lookup_write_text(struct serve_model *m, struct json_writer *w, int64_t chunk); /* member "text" */
