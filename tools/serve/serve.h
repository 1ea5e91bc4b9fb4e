/* serve.h -- declarations for all parts of drt-serve: the options, the model with its store, and one request that is
 * being answered (a job).
 *
 * Threads: the main thread waits for signals; one thread of the HTTP library reads requests and sends answers
 * (serve_http.c); one thread computes (serve_queue.c); one writes what was computed as JSON (serve_writer.c); one
 * watches connections (serve_connections.c). A job passes from the HTTP thread to the computing thread, to the writing
 * thread and back through its locks. Helper threads may take the steps of a batch's jobs, each those of one job at a
 * time. */
#pragma once
#include "tools/serve/serve_metrics.h"
#include "tools/serve/wire/reply.h"
#include "tools/serve/wire/request.h"
#include "tools/serve/wire/route.h"
#include "tools/shared/network.h"

#include "include/drt.h"
#include <signal.h>
#include <stdatomic.h>

struct serve_options {
    const char *model, *store, *device, *dtype, *model_name;
    const char *retrieval, *memory;      /* of requests that name neither; memory NULL: none */
    const char *memory_config;           /* NULL: the model's */
    const char *memory_searcher;         /* NULL: that of memory.json */
    const char *memory_keys;             /* NULL: auto */
    const char *devices;                 /* --devices; NULL: one */
    int n_devices;                       /* what the option selects, as in struct device_choice */
    struct worker_options workers;
    bool exact, same_answers;
    int64_t nprobe, threads;
    const char *address, *key_file, *cors_origin, *port_file;
    struct arg_strings hosts;
    int64_t port;
    int64_t sessions, batch, sample_threads, queue, connections, prefill_chunks;
    int64_t continuation, overlap, query_tokens;          /* of requests that do not state them */
    int64_t max_tokens, max_prompt_tokens, max_prompts, request_seconds, receive_seconds;
    uint64_t max_body;
};

/* ---- serve_model.c: the model and its store, opened once ---- */
struct serve_model {
    struct drt_model *model;
    struct drt_store *store;             /* NULL: none */
    struct drt_tokenizer *tokenizer;     /* borrowed from the model */
    /* LANDMARK is opened at the start, LEXICAL at its first use, HYBRID at either; see serve_model_open */
    struct drt_searcher *searchers[SEARCH_KINDS];
    const struct serve_options *options;
    char worker_key[NETWORK_KEY_MAX];
    struct drt_model_info info;
    struct drt_store_info store_info;
    char name[REQUEST_NAME];
    char eos_text[64];                   /* "": none */
    int64_t opened;                      /* seconds since 1970 */
};
/* Converts a failure of libdrt, with its message, to base/status.h. */
enum status serve_status(enum drt_status status);
/* Returns the HTTP status of a failure: 400 if the client can correct the request, 404, 503 if memory is
 * short, otherwise 500. */
int serve_http_status(enum status status);
enum status serve_model_open(struct serve_model *out, const struct serve_options *o);
void serve_model_close(struct serve_model *m);            /* a zeroed struct is fine */
bool serve_model_on_gpu(const struct serve_model *m);
enum drt_memory_keys serve_memory_keys(const struct serve_model *m);     /* --memory-keys */
/* Only the computing thread may call it. STATUS_NOT_FOUND: there is no store. */
enum status serve_model_searcher(struct drt_searcher **out, struct serve_model *m, enum request_searcher kind);

/* ---- serve_sessions.c: sessions that are used again; only the computing thread uses them while it runs ---- */
struct serve_idle_session { struct drt_session *session; int kind; };
struct serve_sessions { struct serve_idle_session *idle; int64_t n, most; bool caches; };
enum status serve_sessions_create(struct serve_sessions *s, int64_t most, bool gpu);
void serve_sessions_free(struct serve_sessions *s);       /* a zeroed struct is fine */
/* kind: of the retrieval, RETRIEVAL_NONE without one; a session is best used again for the same kind. */
enum drt_status serve_session_open(struct drt_session **out, struct serve_sessions *s, struct drt_model *model,
                                   const struct drt_session_config *config, int kind);
/* memory: it has a token memory. NULL is fine. */
void serve_session_close(struct serve_sessions *s, struct drt_session *session, int kind, bool memory);

struct serve_queue;
struct serve_writer;
struct serve;
/* serve_warm.c: on a GPU, what the first requests would wait for. Before other threads use the model. */
void serve_warm(struct serve *serve);

struct serve {
    struct serve_options options;
    struct serve_model model;
    struct metrics *metrics;
    struct serve_sessions sessions;
    struct serve_queue *queue;
    struct serve_writer *writer;         /* of the queue */
    struct request_limits limits;
    char key[NETWORK_KEY_MAX];             /* "": none */
    double started;                      /* clock_seconds */
    int64_t active;                      /* completions at work; of the computing thread */
    atomic_bool stopping;                /* new work is refused */
    atomic_bool cancel;                  /* all jobs end at their next step */
};

/* ---- serve_run.c: opens all parts, waits for signals, closes them ---- */
/* `set`: the signals that stop it; they must be blocked. */
enum status serve_run(struct serve *serve, const sigset_t *set);
