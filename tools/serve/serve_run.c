/* serve_run.c -- opens all parts, waits for signals, and closes them in the opposite order. */
#include "tools/serve/serve_http.h"
#include "tools/serve/serve_job.h"

#include <string.h>

enum {
    PENDING_LOOK_MS = 50,
    CANCELLED_LOOKS = 40, /* time for a client to read its error */
    QUIET_LOOKS = 2,      /* time in which requests that have arrived on open connections are read */
};

/* Waits for a signal; false: none came in time. */
static bool wait_signal(const sigset_t *set, int ms) {
    const struct timespec time = {.tv_nsec = (long)ms * 1000 * 1000};
    return (ms < 0 ? sigwaitinfo(set, NULL) : sigtimedwait(set, NULL, &time)) > 0;
}

static void serve_stop(struct serve *serve, struct serve_http *http, const sigset_t *set) {
    int64_t waiting = 0, running = 0;
    int looks = 0, quiet = 0;
    atomic_store(&serve->stopping, true);
    serve_http_quiesce(http);
    serve_queue_counts(serve->queue, &waiting, &running);
    serve_log("stopping", "stopping: %lld requests are finished first; a second signal ends them",
              (long long)(waiting + running));
    while (quiet < QUIET_LOOKS) {
        if (wait_signal(set, PENDING_LOOK_MS)) atomic_store(&serve->cancel, true);
        /* Cancelled requests have their error, which must still be sent. */
        if (atomic_load(&serve->cancel) && waiting + running == 0 && ++looks > CANCELLED_LOOKS) break;
        serve_queue_wake(serve->queue);
        serve_queue_counts(serve->queue, &waiting, &running);
        quiet = waiting + running + serve_http_pending(http) == 0 ? quiet + 1 : 0;
    }
}

enum status serve_run(struct serve *serve, const sigset_t *set) {
    const struct serve_options *o = &serve->options;
    struct serve_http *http = NULL;
    int port = 0;
    enum status status;
    TRY_GOTO(status, metrics_create(&serve->metrics), out);
    TRY_GOTO(status, serve_model_open(&serve->model, o), out);
    serve->limits.vocab_size = serve->model.info.vocab_size;
    serve->limits.chunk = serve->model.info.chunk;
    const bool gpu = serve_model_on_gpu(&serve->model);
    if (serve->options.sessions == 0) serve->options.sessions = gpu ? 32 : 8;
    TRY_GOTO(status, serve_sessions_create(&serve->sessions, serve->options.sessions, gpu), out);
    serve_warm(serve);
    TRY_GOTO(status, serve_queue_create(&serve->queue, serve), out);
    TRY_GOTO(status, serve_http_open(&http, serve, &port), out);
    if (o->port_file) TRY_GOTO(status, network_port_write(o->port_file, port), out);
    const bool v6 = strchr(o->address, ':') != NULL;
    serve_log("started", "%s%s%s on http://%s%s%s:%d", serve->model.name, o->store ? " with the store " : "",
              o->store ? o->store : "", v6 ? "[" : "", o->address, v6 ? "]" : "", port);
    while (!wait_signal(set, -1))
        continue;
    serve_stop(serve, http, set);
out:
    atomic_store(&serve->cancel, true); /* has nothing to do, except after a failure */
    serve_queue_free(serve->queue);
    serve_http_close(http);
    if (status == STATUS_OK) serve_log("stopped", "stopped");
    serve_sessions_free(&serve->sessions);
    serve_model_close(&serve->model);
    metrics_free(serve->metrics);
    return status;
}
