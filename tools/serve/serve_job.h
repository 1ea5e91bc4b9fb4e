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
    atomic_bool cancelled; /* the client has disconnected or the server stops: the job ends at its next step */

    pthread_mutex_t lock;                /* protects the members below, up to the next empty line */
    struct reply out;                    /* for streams: bytes [sent, bytes) are not sent yet */
    size_t sent;
    bool started, finished;              /* started: the answer has begun; finished: it is complete */
    int status;                          /* HTTP status; valid after `started` */
    bool waiting;                        /* its connection is suspended, and `resume` wakes it */
    void (*resume)(void *connection);
    void *connection;                    /* NULL: it is closed */

    int64_t prompt_tokens, tokens;       /* the HTTP thread reads these after `finished` */
    double queued;                       /* seconds before it was begun; read in the same way */
    int left_out;                        /* rounds that left its prompt out; of the computing thread */
    struct completion *work;             /* made by the computing thread */
    struct job *next;
    struct job *next_written; bool is_listed;             /* of serve_writer.c */
    atomic_int references;
};
enum status job_create(struct job **out, enum endpoint kind);
void job_release(struct job *job);                        /* the last reference frees it; NULL is fine */
/* Adds the next part of a stream. The contents of `reply` are moved. One thread at a time. */
enum status job_put(struct job *job, struct reply *reply);
/* Adds the whole answer, or the last part of a stream. Nothing is added after that. */
void job_finish(struct job *job, int status, struct reply *reply);
/* Adds an error object. If a stream has begun, it is the stream's last event. */
void job_fail(struct job *job, int status, const char *message);
size_t job_unsent(struct job *job);
bool job_cancelled(const struct serve *serve, const struct job *job);

/* ---- serve_queue.c ---- */
enum status serve_queue_create(struct serve_queue **out, struct serve *serve);
/* STATUS_BUSY: the queue is full. It takes a reference. */
enum status serve_queue_submit(struct serve_queue *q, struct job *job);
/* Wakes the computing thread after bytes of a stream were sent or a job was cancelled. */
void serve_queue_wake(struct serve_queue *q);
void serve_queue_counts(struct serve_queue *q, int64_t *waiting, int64_t *running);
void serve_queue_free(struct serve_queue *q);             /* waits for all jobs and ends the thread; NULL is fine */

/* ---- serve_round.c: which prompts a round reads ---- */
/* ids: not read yet, more than 0; left_out: rounds in a row that left it out; job: numbers in order of arrival */
struct round_prompt { int64_t job, ids; int left_out; };
/* Sorts the prompts: those that the round reads come first, in the order in which they are read. Returns their number,
 * at least 1 if n > 0. The round reads `part` ids of each at most, and `most` of all, but always the first one. */
int64_t round_plan(struct round_prompt *prompts, int64_t n, int64_t part, int64_t most);

/* ---- serve_completion.c: a completion, one step at a time, on the computing thread ---- */
enum completion_step { COMPLETION_MORE, COMPLETION_PAUSED, COMPLETION_DONE };
/* Computes one pass of a prompt or one token; on a CPU the prompt's last pass with the first token. PAUSED: the client
 * reads more slowly than tokens are generated. */
enum completion_step completion_step(struct serve *serve, struct job *job);
/* Returns the session if its next step is a token; NULL: the next step is another one. */
struct drt_session *completion_session(const struct serve *serve, struct job *job);
/* Number of ids of its prompt that are not read yet; 0: the next step is a token, or ends or pauses the completion. */
int64_t completion_unread(const struct serve *serve, struct job *job);
/* Number of ids that one step reads. */
int64_t completion_part(const struct serve *serve);
/* A batch that took so long has computed the completion's next token. */
void completion_prepared(struct job *job, double seconds);
/* Ends the use of its session; on the computing thread. */
void completion_close(struct serve *serve, struct job *job);
void completion_free(struct completion *c);               /* NULL is fine */
/* Writes what was computed and not written yet; any thread, more than one at a time. */
enum status completion_write(struct serve *serve, struct job *job);

/* ---- serve_writer.c: a thread that writes answers, so that the computing thread does not ---- */
enum status serve_writer_create(struct serve_writer **out, struct serve *serve);
/* The job has something to write; serve_writer_wake follows once several were added. It takes a reference. */
void serve_writer_add(struct serve_writer *w, struct job *job);
void serve_writer_wake(struct serve_writer *w);
void serve_writer_free(struct serve_writer *w);           /* writes all and ends the thread; NULL is fine */

/* ---- serve_lookup.c: search and documents, on the computing thread ---- */
void lookup_run(struct serve *serve, struct job *job);
/* Writes the members "document", "name" and "key" of a document; the name is the path or URL that it came from. */
void lookup_write_document(struct serve_model *m, struct json_writer *w, int64_t document);
/* Writes the member "text": as many ids of the document as a chunk has, from a position within this chunk on; -1: the
 * chunk. */
void lookup_write_text(struct serve_model *m, struct json_writer *w, int64_t chunk, int64_t token_offset);
