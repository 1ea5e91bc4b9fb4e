/* serve_log.c -- lines on standard error. Prompts, answers and keys are never logged. */
#include "base/printable.h"
#include "tools/serve/serve_http.h"
#include "tools/serve/serve_job.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

static void log_time(char out[40]) {
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t n = strftime(out, 32, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(out + n, 40 - n, ".%03ldZ", now.tv_nsec / 1000000);
}

static void log_string(struct json_writer *w, const char *key, const char *value) {
    json_write_key(w, key);
    json_write_string(w, value);
}

static void log_int(struct json_writer *w, const char *key, int64_t value) {
    json_write_key(w, key);
    json_write_int(w, value);
}

/* A line goes out in one piece, so that lines of two threads do not mix. */
static void log_begin(struct reply *line, const char *event) {
    char when[40];
    log_time(when);
    json_write_object(&line->json);
    log_string(&line->json, "time", when);
    log_string(&line->json, "event", event);
}

static void log_end(struct reply *line) {
    json_write_object_end(&line->json);
    fputc('\n', line->file);
    if (reply_flush(line) == STATUS_OK) fwrite(line->data, 1, line->bytes, stderr);
    reply_close(line);
}

void serve_log_request(const struct exchange *e, const char *peer, bool complete, double seconds) {
    struct reply line;
    int64_t prompt_tokens = 0, tokens = 0;
    if (!e->serve->options.log_json || reply_open(&line) != STATUS_OK) return;
    if (e->job) {
        pthread_mutex_lock(&e->job->lock);
        if (e->job->finished) prompt_tokens = e->job->prompt_tokens, tokens = e->job->tokens;
        pthread_mutex_unlock(&e->job->lock);
    }
    struct json_writer *w = &line.json;
    log_begin(&line, "request");
    log_string(w, "peer", peer);
    log_string(w, "method", e->method);
    log_string(w, "path", e->path);
    log_int(w, "status", e->status);
    log_int(w, "bytes", (int64_t)e->sent);
    json_write_key(w, "seconds");
    json_write_double(w, (double)(int64_t)(seconds * 1e6 + 0.5) / 1e6);
    if (e->route.endpoint == ENDPOINT_COMPLETIONS) {
        log_int(w, "prompt_tokens", prompt_tokens);
        log_int(w, "tokens", tokens);
    }
    json_write_key(w, "complete");
    json_write_bool(w, complete);
    log_end(&line);
}

void serve_log(const struct serve *serve, const char *event, const char *format, ...) {
    char text[2048];
    struct reply line;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!serve->options.log_json) {
        char shown[2048];
        printable_copy(shown, sizeof shown, text);
        fprintf(stderr, "drt-serve: %s\n", shown);
        return;
    }
    if (reply_open(&line) != STATUS_OK) return;
    log_begin(&line, event);
    log_string(&line.json, "message", text);
    log_end(&line);
}
