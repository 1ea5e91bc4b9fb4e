/* fuzz_serve_exchange.c -- any bytes as a request to drt-serve's handlers, with a tiny model, store and queue. The
 * head is the first line (method, path, Host, Origin, Authorization, Content-Length, first, chunks, between tabs), the
 * rest is the body, which arrives in two parts. Every answer has a known status and is complete JSON, or complete
 * events. */
#include "base/clock.h"
#include "tests/library_fixture.h"
#include "tools/serve/serve_connections.h"
#include "tools/serve/serve_http.h"
#include "tools/serve/serve_job.h"

#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct serve *serve;
static struct connections *connections;

static void make(void) {
    struct library_world world;
    library_world_open(&world);
    library_world_close(&world);
    serve = calloc(1, sizeof *serve);
    CHECK(serve);
    serve->options = (struct serve_options){.model = strdup(world.folder),
                                            .store = strdup(world.store_path),
                                            .device = "cpu",
                                            .dtype = "f32",
                                            .cors_origin = "https://other",
                                            .threads = 1,
                                            .sessions = 2,
                                            .batch = 2,
                                            .queue = 4,
                                            .prefill_chunks = 1,
                                            .request_seconds = 60,
                                            .max_body = 1 << 16};
    serve->limits = (struct request_limits){.max_tokens = 6, .max_prompt_tokens = 150, .max_prompts = 3};
    strcpy(serve->key, "0123456789abcdef");
    CHECK_OK(metrics_create(&serve->metrics));
    CHECK_OK(serve_model_open(&serve->model, &serve->options));
    serve->limits.vocab_size = serve->model.info.vocab_size;
    CHECK_OK(serve_queue_create(&serve->queue, serve));
    CHECK_OK(connections_create(&connections, 60, 60));
}

/* One JSON object, and nothing after it. *error: it is an error object with a message. */
static void check_json(const char *data, size_t bytes, bool *error) {
    struct json json;
    json_open(&json, "answer", data, bytes);
    CHECK(json_next(&json) == JSON_OBJECT);
    CHECK(json_next(&json) == JSON_KEY);
    *error = json_equals(&json, "error");
    if (*error) {
        CHECK(json_next(&json) == JSON_OBJECT && json_next(&json) == JSON_KEY && json_equals(&json, "message"));
        CHECK(json_next(&json) == JSON_STRING && json.length > 0);
        CHECK_OK(json_skip_rest(&json));
    } else {
        CHECK_OK(json_skip(&json));
    }
    CHECK_OK(json_skip_rest(&json));
    CHECK(json_next(&json) == JSON_END);
}

/* Events of one line; the last one is [DONE], or an error. */
static void check_events(const char *data, size_t bytes) {
    bool last = false;
    while (bytes > 0) {
        const char *end = memmem(data, bytes, "\n\n", 2);
        CHECK(end && !last && end - data > 6 && memcmp(data, "data: ", 6) == 0);
        last = end - data == 12 && memcmp(data, "data: [DONE]", 12) == 0;
        if (!last) check_json(data + 6, (size_t)(end - data) - 6, &last);
        bytes -= (size_t)(end + 2 - data);
        data = end + 2;
    }
    CHECK(last);
}

static void check_job(struct job *job) {
    const struct timespec pause = {.tv_nsec = 50 * 1000};
    const double until = clock_seconds() + 50;
    bool finished = false, error = false;
    while (!finished) {
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
        CHECK(clock_seconds() < until);
        pthread_mutex_lock(&job->lock);
        finished = job->finished;
        pthread_mutex_unlock(&job->lock);
    }
    if (job->streams) {
        check_events(job->out.data, job->out.bytes);
    } else {
        check_json(job->out.data, job->out.bytes, &error);
        CHECK(error == (job->status != 200));
    }
    CHECK(job->status == 200 || job->status == 400 || job->status == 404);
}

static void check_answer(const struct exchange *e) {
    static const int known[] = {200, 204, 400, 401, 403, 404, 405, 413};
    bool there = false, error = false;
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        there = there || known[i] == e->status;
    CHECK(there);
    if (e->status == 204) {
        CHECK(e->reply.bytes == 0);
    } else if (strcmp(e->type, "application/json") == 0) {
        check_json(e->reply.data, e->reply.bytes, &error);
        CHECK(error == (e->status != 200));
    } else {
        CHECK(e->status == 200 && e->reply.bytes > 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char line[1024], *at = line;
    const char *part[8];
    const uint8_t *newline = size ? memchr(data, '\n', size) : NULL;
    size_t head = newline ? (size_t)(newline - data) : size;
    if (!serve) make();
    if (head >= sizeof line) head = sizeof line - 1;
    if (head) memcpy(line, data, head);
    line[head] = 0;
    for (size_t i = 0; i < ARRAY_LEN(part); i++) {
        part[i] = at ? strsep(&at, "\t") : NULL;
        if (part[i] && !*part[i]) part[i] = NULL;
    }
    const struct exchange_head request = {.method = part[0] ? part[0] : "GET",
                                          .path = part[1] ? part[1] : "/",
                                          .host = part[2],
                                          .origin = part[3],
                                          .authorization = part[4],
                                          .length = part[5],
                                          .first = part[6],
                                          .chunks = part[7]};
    const char *body = newline ? (const char *)newline + 1 : "";
    const size_t bytes = newline ? size - head - 1 : 0, half = bytes / 2;
    struct exchange *e = NULL;
    CHECK_OK(exchange_create(&e, serve, &request));
    e->connections = connections;
    if (newline && (!exchange_body(e, body, half) || !exchange_body(e, body + half, bytes - half))) {
        exchange_free(e, "fuzz", false);
        return 0;
    }
    exchange_run(e);
    if (e->job)
        check_job(e->job);
    else
        check_answer(e);
    exchange_free(e, "fuzz", true);
    return 0;
}
