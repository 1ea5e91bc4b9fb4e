/* bench_serve.c -- a running drt-serve under load: tokens/s, times of requests, its memory, and where its time goes.
 *
 *   bench_serve [--port N] [--clients N,N,...] [--requests N] [--tokens N] [--words N] [--kind stream|whole|both]
 * [--temperature T] [--json FILE]
 *
 * Each client has one connection and sends its next request when the last one is answered: --requests in all (8 times
 * the clients), prompts of --words (16) words, completions of --tokens (400) tokens at temperature 0.8 and top-p 0.95.
 * "both" alternates streams and whole answers. One thread with epoll looks at no more of an answer than it must, since
 * a client in Python would be slower than the server. Requests that warm up come first, one of each client.
 *
 * A row for each number of clients: tokens/s from the first request to the last answer; median and 99th percentile of
 * the time to the first event (streams alone) and of a request; the server's resident memory before and after. Then the
 * seconds of the server's stages in that time (drt_stage_seconds_total of /metrics). Ends with 1 if an answer is not
 * 200 or has another number of tokens. */
#include "base/clock.h"
#include "tests/bench/result.h"
#include "tests/test.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum { CLIENTS_MAX = 1024, BODY_MAX = 64 * 1024, TAIL = 1024, PART = 256 * 1024, METRICS_MAX = 256 * 1024 };
enum kind { KIND_STREAM, KIND_WHOLE, KIND_BOTH };
static const char *const kind_names[] = {"streams", "whole answers", "streams and whole answers"};

struct options {
    const char *clients, *temperature;
    int port;
    int64_t requests, tokens, words;
    enum kind kind;
};

/* tail: the end of what has arrived, for what an answer ends with. */
struct client {
    int fd;
    bool stream, busy, headed, first;
    double start;
    int64_t left; /* bytes of a whole answer that are to come */
    char tail[2 * TAIL + 1];
    size_t n_tail;
};
struct load {
    const struct options *o;
    struct client clients[CLIENTS_MAX];
    int n, poll;
    int64_t sent, answered, wanted, tokens, events, seed;
    struct samples first, whole;
    char *part;
};

static void usage(void) {
    fprintf(stderr, "usage: bench_serve [--port N] [--clients N,N,...] [--requests N] [--tokens N] [--words N] "
                    "[--kind stream|whole|both] [--temperature T] [--json FILE]\n");
    exit(2);
}

static int connected(const struct options *o) {
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)o->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    CHECK(fd >= 0);
    if (connect(fd, (const struct sockaddr *)&to, sizeof to) != 0) {
        fprintf(stderr, "bench_serve: 127.0.0.1 port %d: nothing answers: start drt-serve --port %d\n", o->port,
                o->port);
        exit(1);
    }
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    return fd;
}

static void send_all(int fd, const char *data, size_t bytes) {
    while (bytes > 0) {
        const ssize_t n = send(fd, data, bytes, MSG_NOSIGNAL);
        CHECK(n > 0);
        data += n, bytes -= (size_t)n;
    }
}

/* ---- the server's metrics ---- */

/* *text: free it. */
static void metrics_get(const struct options *o, char **text) {
    static const char request[] = "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
    const int fd = connected(o);
    size_t at = 0;
    *text = malloc(METRICS_MAX);
    CHECK(*text);
    send_all(fd, request, sizeof request - 1);
    for (ssize_t n; at + 1 < METRICS_MAX && (n = recv(fd, *text + at, METRICS_MAX - 1 - at, 0)) > 0;)
        at += (size_t)n;
    (*text)[at] = '\0';
    close(fd);
}

/* Of the line that begins with `name`; 0: there is none. */
static double metrics_value(const char *text, const char *name) {
    const size_t n = strlen(name);
    for (const char *at = text; (at = strstr(at, name)) != NULL; at += n)
        if ((at == text || at[-1] == '\n') && at[n] == ' ') return strtod(at + n + 1, NULL);
    return 0;
}

static void report_stages(const char *before, const char *after, double seconds) {
    static const char head[] = "drt_stage_seconds_total{stage=\"";
    printf("# seconds of %.3f:", seconds);
    for (const char *at = after; (at = strstr(at, head)) != NULL; at++) {
        const char *end = strchr(at, ' ');
        char name[128];
        if (!end || (size_t)(end - at) >= sizeof name) continue;
        snprintf(name, sizeof name, "%.*s", (int)(end - at), at);
        const char *stage = name + sizeof head - 1;
        printf(" %.*s %.3f,", (int)strcspn(stage, "\""), stage,
               metrics_value(after, name) - metrics_value(before, name));
    }
    const double rounds =
        metrics_value(after, "drt_batch_sessions_count") - metrics_value(before, "drt_batch_sessions_count");
    const double sessions =
        metrics_value(after, "drt_batch_sessions_sum") - metrics_value(before, "drt_batch_sessions_sum");
    printf(" %.0f batches of %.1f sessions\n", rounds, rounds > 0 ? sessions / rounds : 0);
}

/* ---- requests ---- */

static void client_send(struct load *l, struct client *c) {
    static const char *const words[] = {"the",  "river", "and",   "stone", "winding", "north", "other", "sand",
                                        "ring", "under", "seven", "light", "harbour", "a",     "of",    "table"};
    const struct options *o = l->o;
    char body[BODY_MAX], head[256];
    int at = snprintf(body, sizeof body, "{\"prompt\":\"");
    uint64_t dice = (uint64_t)++l->seed * 0x9E3779B97F4A7C15U;
    for (int64_t i = 0; i < o->words && at < BODY_MAX / 2; i++) {
        dice = dice * 6364136223846793005U + 1442695040888963407U;
        at += snprintf(body + at, sizeof body - (size_t)at, " %s", words[dice >> 60]);
    }
    c->stream = o->kind == KIND_STREAM || (o->kind == KIND_BOTH && l->seed % 2);
    at += snprintf(body + at, sizeof body - (size_t)at,
                   "\",\"max_tokens\":%lld,\"ignore_eos\":true,\"temperature\":%s,\"top_p\":0.95,\"seed\":%lld%s}",
                   (long long)o->tokens, o->temperature, (long long)l->seed,
                   c->stream ? ",\"stream\":true,\"stream_options\":{\"include_usage\":true}" : "");
    const int n = snprintf(head, sizeof head,
                           "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                           "Content-Length: %d\r\n\r\n",
                           at);
    memmove(body + n, body, (size_t)at);
    memcpy(body, head, (size_t)n);
    c->busy = true, c->headed = c->first = false, c->n_tail = 0, c->left = -1;
    c->start = clock_seconds();
    l->sent++;
    send_all(c->fd, body, (size_t)(n + at));
}

/* The tail without the lines between the parts of a chunked body, which events do not contain. */
static const char *client_text(const struct client *c) {
    static char text[2 * TAIL + 1];
    char *to = text;
    for (const char *at = c->tail; *at;) {
        size_t digits = strncmp(at, "\r\n", 2) == 0 ? strspn(at + 2, "0123456789abcdefABCDEF") : 0;
        if (digits > 0 && strncmp(at + 2 + digits, "\r\n", 2) == 0)
            at += digits + 4;
        else
            *to++ = *at++;
    }
    *to = '\0';
    return text;
}

static void client_answered(struct load *l, struct client *c) {
    const char *tokens = strstr(client_text(c), "\"completion_tokens\":");
    samples_add(&l->whole, clock_seconds() - c->start);
    if (!tokens || strtoll(tokens + 20, NULL, 10) != l->o->tokens) {
        fprintf(stderr, "bench_serve: an answer has not %lld tokens: %s\n", (long long)l->o->tokens, c->tail);
        exit(1);
    }
    l->tokens += l->o->tokens;
    l->answered++;
    c->busy = false;
    if (l->sent < l->wanted) client_send(l, c);
}

static void client_keep(struct client *c, const char *data, size_t n) {
    if (n > TAIL) data += n - TAIL, n = TAIL;
    if (c->n_tail + n > 2 * TAIL) {
        memmove(c->tail, c->tail + c->n_tail - TAIL, TAIL);
        c->n_tail = TAIL;
    }
    memcpy(c->tail + c->n_tail, data, n);
    c->n_tail += n;
    c->tail[c->n_tail] = '\0';
}

/* The head, which arrives at once on loopback. Returns its bytes. */
static size_t client_head(struct client *c, const char *data) {
    const char *end = strstr(data, "\r\n\r\n"), *length = strstr(data, "\r\nContent-Length: ");
    if (!end || strncmp(data, "HTTP/1.1 200", 12) != 0) {
        fprintf(stderr, "bench_serve: not 200: %.300s\n", data);
        exit(1);
    }
    c->headed = true;
    if (length && length < end) c->left = strtoll(length + 18, NULL, 10);
    return (size_t)(end - data) + 4;
}

static void client_read(struct load *l, struct client *c) {
    const ssize_t n = recv(c->fd, l->part, PART, 0);
    size_t from = 0;
    if (n <= 0) {
        fprintf(stderr, "bench_serve: the server closed a connection after: %s\n", c->tail);
        exit(1);
    }
    l->part[n] = '\0';
    if (!c->headed) from = client_head(c, l->part);
    for (const char *at = l->part + from; c->stream && (at = strstr(at, "data: {")) != NULL; at += 7) {
        if (!c->first) samples_add(&l->first, clock_seconds() - c->start);
        c->first = true;
        l->events++;
    }
    client_keep(c, l->part + from, (size_t)n - from);
    if (c->left >= 0) c->left -= (int64_t)((size_t)n - from);
    const bool ended = c->n_tail >= 5 && strcmp(c->tail + c->n_tail - 5, "0\r\n\r\n") == 0;
    if (c->stream ? ended && strstr(client_text(c), "data: [DONE]") : c->left == 0) client_answered(l, c);
}

/* ---- a load ---- */

static void load_run(struct load *l, int64_t requests) {
    struct epoll_event events[64];
    l->sent = l->answered = l->tokens = l->events = 0;
    l->wanted = requests;
    for (int i = 0; i < l->n && l->sent < l->wanted; i++)
        client_send(l, &l->clients[i]);
    while (l->answered < l->wanted) {
        const int n = epoll_wait(l->poll, events, 64, 60000);
        if (n == 0) {
            fprintf(stderr, "bench_serve: no byte came for a minute\n");
            exit(1);
        }
        for (int i = 0; i < n; i++)
            client_read(l, &l->clients[events[i].data.u32]);
    }
}

static double quantile(const struct samples *s, double q) {
    return s->count ? 1e3 * samples_quantile(s->at, s->count, q) : 0;
}

static void report(const struct load *l, double seconds, const char *before, const char *after) {
    static const char resident[] = "process_resident_memory_bytes";
    const struct options *o = l->o;
    const double rate = (double)l->tokens / seconds;
    const char *kind = kind_names[o->kind];
    printf("serve,%d clients,%s,%lld requests of %lld tokens,%.0f tokens/s,first event p50 %.1f ms p99 %.1f ms,"
           "request p50 %.1f ms p99 %.1f ms,%.1f tokens an event,resident %.1f MiB before %.1f after\n",
           l->n, kind, (long long)l->answered, (long long)o->tokens, rate, quantile(&l->first, 0.5),
           quantile(&l->first, 0.99), quantile(&l->whole, 0.5), quantile(&l->whole, 0.99),
           l->events ? (double)l->first.count * (double)o->tokens / (double)l->events : 0,
           metrics_value(before, resident) / 1048576, metrics_value(after, resident) / 1048576);
    report_stages(before, after, seconds);
    fflush(stdout);
    result_value("tokens/s", rate, "drt-serve, %d clients, %s of %lld tokens", l->n, kind, (long long)o->tokens);
    const struct figure whole = {.unit = "ms", .values = l->whole.at, .count = l->whole.count, .scale = 1e3};
    result_figure(&whole, "a request, %d clients, %s of %lld tokens", l->n, kind, (long long)o->tokens);
    const struct figure first = {.unit = "ms", .values = l->first.at, .count = l->first.count, .scale = 1e3};
    if (l->first.count) result_figure(&first, "first event, %d clients, %s", l->n, kind);
}

static void bench(const struct options *o, int clients) {
    struct load *l = calloc(1, sizeof *l);
    char *before, *after;
    CHECK(l && clients >= 1 && clients <= CLIENTS_MAX);
    l->o = o, l->n = clients, l->seed = clients * 1000000;
    l->part = malloc(PART + 1);
    l->poll = epoll_create1(EPOLL_CLOEXEC);
    CHECK(l->part && l->poll >= 0);
    for (int i = 0; i < clients; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        l->clients[i].fd = connected(o);
        CHECK(epoll_ctl(l->poll, EPOLL_CTL_ADD, l->clients[i].fd, &event) == 0);
    }
    load_run(l, clients);
    samples_free(&l->first), samples_free(&l->whole);
    metrics_get(o, &before);
    const double start = clock_seconds();
    load_run(l, o->requests ? o->requests : 8 * (int64_t)clients);
    const double seconds = clock_seconds() - start;
    metrics_get(o, &after);
    report(l, seconds, before, after);
    for (int i = 0; i < clients; i++)
        close(l->clients[i].fd);
    close(l->poll);
    samples_free(&l->first), samples_free(&l->whole);
    free(before), free(after), free(l->part), free(l);
}

int main(int argc, char **argv) {
    struct options o = {
        .clients = "1,32", .temperature = "0.8", .port = 8080, .tokens = 400, .words = 16, .kind = KIND_BOTH};
    result_begin("bench_serve", &argc, argv);
    for (int i = 1; i < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (i + 1 >= argc) usage();
        if (strcmp(name, "--clients") == 0)
            o.clients = value;
        else if (strcmp(name, "--temperature") == 0)
            o.temperature = value;
        else if (strcmp(name, "--port") == 0)
            o.port = (int)strtol(value, NULL, 10);
        else if (strcmp(name, "--requests") == 0)
            o.requests = strtoll(value, NULL, 10);
        else if (strcmp(name, "--tokens") == 0)
            o.tokens = strtoll(value, NULL, 10);
        else if (strcmp(name, "--words") == 0)
            o.words = strtoll(value, NULL, 10);
        else if (strcmp(name, "--kind") == 0)
            o.kind = value[0] == 's' ? KIND_STREAM : value[0] == 'w' ? KIND_WHOLE : KIND_BOTH;
        else
            usage();
    }
    for (const char *at = o.clients; *at; at += *at == ',') {
        char *end;
        const long n = strtol(at, &end, 10);
        if (end == at) usage();
        bench(&o, (int)n);
        at = end;
    }
    result_end();
    return 0;
}
