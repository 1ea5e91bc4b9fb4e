/* serve_log.c -- lines on standard error. Prompts, answers and keys are never logged. */
#include "tools/serve/serve_http.h"
#include "tools/serve/serve_job.h"
#include "tools/shared/log.h"

#include <stdarg.h>
#include <stdio.h>

void serve_log_request(const struct exchange *e, const char *peer, bool complete, double seconds) {
    int64_t prompt_tokens = 0, tokens = 0;
    double queued = 0;
    if (!*log_json()) return;
    if (e->job) {
        pthread_mutex_lock(&e->job->lock);
        if (e->job->finished) prompt_tokens = e->job->prompt_tokens, tokens = e->job->tokens, queued = e->job->queued;
        pthread_mutex_unlock(&e->job->lock);
    }
    struct json_writer *w = log_begin(e->status >= 500 ? LOG_ERROR : LOG_INFO, "request");
    log_string(w, "peer", peer);
    log_string(w, "method", e->method);
    log_string(w, "path", e->path);
    log_int(w, "status", e->status);
    log_int(w, "bytes", (int64_t)e->sent);
    log_double(w, "ms", 1e3 * seconds);
    if (e->job) log_double(w, "queue_ms", 1e3 * queued);
    if (e->route.endpoint == ENDPOINT_COMPLETIONS) {
        log_int(w, "prompt_tokens", prompt_tokens);
        log_int(w, "tokens", tokens);
    }
    log_bool(w, "complete", complete);
    log_end();
}

void serve_log(const char *event, const char *format, ...) {
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    log_line(LOG_INFO, event, "drt-serve", "%s", text);
}
