/* serve_http.c -- libmicrohttpd: one thread with epoll. Connections whose job is being computed are suspended. */
#include "tools/serve/serve_http.h"
#include "base/memory.h"
#include "tools/serve/serve_connections.h"
#include "tools/serve/serve_job.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum {
    HEAD_BYTES = 32 * 1024, /* of a connection's buffer: request line and headers */
    STACK_BYTES = 2 << 20,  /* of its thread, which has that of ulimit -s otherwise */
    STREAM_BLOCK = 16 * 1024,
    ANSWER_GRACE = 60, /* seconds to send an answer after the longest time of a request */
    DISCARD_MAX = 64 * 1024,
    BACKLOG = 128,
    STREAM_LOW = 64 * 1024, /* unsent bytes of a stream at which its session is woken */
};

struct serve_http {
    struct serve *serve;
    struct MHD_Daemon *daemon;
    struct connections *connections;
    int listener; /* after quiesce: the former listening socket; otherwise -1 */
};

static void http_resume(void *connection) {
    MHD_resume_connection(connection);
}

static const char *http_header(struct MHD_Connection *connection, const char *name) {
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

/* Counts the headers of one name. */
struct header_count {
    const char *name;
    int n;
};
static enum MHD_Result http_count(void *context, enum MHD_ValueKind kind, const char *name, const char *value) {
    struct header_count *c = context;
    (void)kind, (void)value;
    c->n += strcasecmp(name, c->name) == 0;
    return MHD_YES;
}
static int http_headers_named(struct MHD_Connection *connection, const char *name) {
    struct header_count count = {name, 0};
    (void)MHD_get_connection_values(connection, MHD_HEADER_KIND, http_count, &count);
    return count.n;
}

/* RFC 9112, 6.3 and 3.2: such requests are refused, because they hide another one from a proxy. */
static bool http_is_ambiguous(struct MHD_Connection *connection) {
    const int coded = http_headers_named(connection, "Transfer-Encoding");
    return http_headers_named(connection, "Content-Length") + coded > 1 || http_headers_named(connection, "Host") > 1;
}

static struct connection *http_connection(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* ---- answers ---- */

static void http_add(struct MHD_Response *response, const char *name, const char *value) {
    (void)MHD_add_response_header(response, name, value);
}

static void http_headers(const struct exchange *e, struct MHD_Response *response, bool stream) {
    static const char policy[] = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
                                 "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    http_add(response, "Content-Type", stream ? "text/event-stream; charset=utf-8" : e->type);
    http_add(response, "X-Content-Type-Options", "nosniff");
    http_add(response, "Content-Security-Policy", policy);
    http_add(response, "Referrer-Policy", "no-referrer");
    http_add(response, "Cross-Origin-Resource-Policy", e->cors ? "cross-origin" : "same-origin");
    http_add(response, "Cache-Control", "no-store");
    if (e->retry) http_add(response, "Retry-After", "1");
    if (e->route.allow) http_add(response, "Allow", e->route.allow);
    if (e->status == 401) http_add(response, "WWW-Authenticate", "Bearer");
    if (e->closes || atomic_load(&e->serve->stopping)) http_add(response, "Connection", "close");
    if (!e->serve->options.cors_origin) return;
    http_add(response, "Vary", "Origin");
    if (!e->cors) return;
    http_add(response, "Access-Control-Allow-Origin", e->serve->options.cors_origin);
    http_add(response, "Access-Control-Allow-Methods", "GET, POST");
    http_add(response, "Access-Control-Allow-Headers", "Authorization, Content-Type");
}

static enum MHD_Result http_answer(struct exchange *e, struct MHD_Connection *connection, const char *data,
                                   size_t bytes) {
    struct MHD_Response *response =
        MHD_create_response_from_buffer(bytes, (void *)(uintptr_t)data, MHD_RESPMEM_MUST_COPY);
    if (!response) return MHD_NO;
    http_headers(e, response, false);
    e->sent = bytes;
    enum MHD_Result result = MHD_queue_response(connection, (unsigned)e->status, response);
    MHD_destroy_response(response);
    return result;
}

/* Returns the next part of a stream. If there is none, the connection is suspended. */
static ssize_t http_stream_read(void *context, uint64_t position, char *out, size_t capacity) {
    struct exchange *e = context;
    struct job *job = e->job;
    bool wake = false;
    ssize_t n = 0;
    (void)position;
    pthread_mutex_lock(&job->lock);
    size_t left = job->out.bytes - job->sent;
    if (left > 0) {
        n = (ssize_t)(left < capacity ? left : capacity);
        memcpy(out, job->out.data + job->sent, (size_t)n);
        job->sent += (size_t)n;
        wake = left - (size_t)n < STREAM_LOW && left >= STREAM_LOW;
        e->sent += (uint64_t)n;
    } else if (job->finished) {
        n = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        job->waiting = true;
        MHD_suspend_connection(job->connection);
    }
    pthread_mutex_unlock(&job->lock);
    if (wake) serve_queue_wake(e->serve->queue);
    return n;
}

/* Sends the answer of a job as far as it exists. If it has not begun, the connection waits. */
static enum MHD_Result http_job_answer(struct exchange *e, struct MHD_Connection *connection) {
    struct job *job = e->job;
    pthread_mutex_lock(&job->lock);
    const bool stream = job->started && job->streams, ready = job->finished || stream;
    if (!ready) {
        job->connection = connection;
        job->resume = http_resume;
        job->waiting = true;
        MHD_suspend_connection(connection);
    } else {
        e->status = job->status;
        job->connection = connection;
        job->resume = http_resume;
    }
    pthread_mutex_unlock(&job->lock);
    if (!ready) return MHD_YES;
    e->retry = e->status == 503;
    if (!stream) return http_answer(e, connection, job->out.data ? job->out.data : "", job->out.bytes);
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, http_stream_read, e, NULL);
    if (!response) return MHD_NO;
    http_headers(e, response, true);
    enum MHD_Result result = MHD_queue_response(connection, (unsigned)e->status, response);
    MHD_destroy_response(response);
    return result;
}

/* ---- libmicrohttpd's callbacks, all on its thread ---- */

static enum MHD_Result http_begin(struct serve_http *h, struct MHD_Connection *connection, const char *url,
                                  const char *method, void **context) {
    struct exchange *e = NULL;
    const struct exchange_head head = {
        .method = method,
        .path = url,
        .host = http_header(connection, "Host"),
        .origin = http_header(connection, "Origin"),
        .authorization = http_header(connection, "Authorization"),
        .length = http_header(connection, "Content-Length"),
        .first = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "first"),
        .chunks = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "chunks"),
        .ambiguous = http_is_ambiguous(connection),
    };
    int64_t length = 0;
    if (exchange_create(&e, h->serve, &head) != STATUS_OK) return MHD_NO;
    e->connections = h->connections;
    *context = e;
    /* A short body is read before the refusal, because closing the connection could otherwise drop the answer; a long
     * one is not read. */
    if (!e->refusal || (!e->closes && route_number(head.length, 0, &length) && length <= DISCARD_MAX)) return MHD_YES;
    exchange_run(e);
    connection_answering(h->connections, http_connection(connection), NULL);
    return http_answer(e, connection, e->reply.data, e->reply.bytes);
}

static enum MHD_Result http_request(void *context, struct MHD_Connection *connection, const char *url,
                                    const char *method, const char *version, const char *data, size_t *bytes,
                                    void **request) {
    struct serve_http *h = context;
    struct exchange *e = *request;
    (void)version;
    if (!e) return http_begin(h, connection, url, method, request);
    if (*bytes > 0) {
        bool more = exchange_body(e, data, *bytes);
        *bytes = 0;
        return more ? MHD_YES : MHD_NO;
    }
    if (e->job) return http_job_answer(e, connection);
    exchange_run(e);
    connection_answering(h->connections, http_connection(connection), e->job);
    if (e->job) return http_job_answer(e, connection);
    return http_answer(e, connection, e->reply.data ? e->reply.data : "", e->reply.bytes);
}

static void http_completed(void *context, struct MHD_Connection *connection, void **request,
                           enum MHD_RequestTerminationCode why) {
    struct serve_http *h = context;
    struct exchange *e = *request;
    struct connection *c = http_connection(connection);
    if (!e) return;
    *request = NULL;
    if (c) connection_answered(h->connections, c);
    if (e->job) {
        pthread_mutex_lock(&e->job->lock);
        e->job->connection = NULL;
        if (!e->job->finished) atomic_store(&e->job->cancelled, true);
        pthread_mutex_unlock(&e->job->lock);
        serve_queue_wake(h->serve->queue);
    }
    exchange_free(e, connection_peer(c), why == MHD_REQUEST_TERMINATED_COMPLETED_OK);
}

static void http_connected(void *context, struct MHD_Connection *connection, void **socket,
                           enum MHD_ConnectionNotificationCode what) {
    struct serve_http *h = context;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        connection_close(h->connections, *socket);
        *socket = NULL;
        return;
    }
    /* libmicrohttpd 1.0 returns one buffer from every call, so each value is copied before the next call. */
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    const int fd = info ? info->connect_fd : -1;
    info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    *socket = fd >= 0 ? connection_open(h->connections, fd, info ? info->client_addr : NULL) : NULL;
}

/* Errors of a client are not logged. */
static void http_quiet(void *context, const char *format, va_list arguments) {
    (void)context;
    (void)format;
    (void)arguments;
}

/* ---- the socket ---- */

static enum status http_listen(int *fd, int *port, const char *address, int64_t wanted) {
    char service[16];
    struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    const int on = 1;
    snprintf(service, sizeof service, "%lld", (long long)wanted);
    if (getaddrinfo(address, service, &hints, &found) != 0)
        return fail(STATUS_INVALID, "--address %s: is not a numeric address, such as 127.0.0.1 or ::1", address);
    enum status status = STATUS_OK;
    *fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0 || setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(*fd, found->ai_addr, found->ai_addrlen) != 0 || listen(*fd, BACKLOG) != 0) {
        status =
            errno == EADDRINUSE
                ? fail(STATUS_BUSY, "%s port %s: another program listens there: take another --port", address, service)
                : fail_errno("%s port %s: cannot listen", address, service);
        if (*fd >= 0) close(*fd);
    }
    freeaddrinfo(found);
    if (status != STATUS_OK) return status;
    struct sockaddr_storage bound = {0};
    socklen_t length = sizeof bound;
    if (getsockname(*fd, (struct sockaddr *)&bound, &length) != 0) return fail_errno("%s: getsockname", address);
    *port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&bound)->sin6_port
                                              : ((struct sockaddr_in *)(void *)&bound)->sin_port);
    return STATUS_OK;
}

static enum status http_start(struct serve_http *h, int *port) {
    const struct serve_options *o = &h->serve->options;
    int fd = -1;
    TRY(connections_create(&h->connections, (double)o->receive_seconds, (double)o->request_seconds + ANSWER_GRACE));
    TRY(http_listen(&fd, port, o->address, o->port));
    h->daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, http_request, h,
        MHD_OPTION_EXTERNAL_LOGGER, http_quiet, NULL, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_COMPLETED,
        http_completed, h, MHD_OPTION_NOTIFY_CONNECTION, http_connected, h, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)o->connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEAD_BYTES, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)o->receive_seconds, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_THREAD_STACK_SIZE,
        (size_t)STACK_BYTES, MHD_OPTION_END);
    if (h->daemon) return STATUS_OK;
    close(fd);
    return fail(STATUS_NO_MEMORY, "the HTTP server cannot be started: check ulimit -n and ulimit -u");
}

enum status serve_http_open(struct serve_http **out, struct serve *serve, int *port) {
    struct serve_http *h = NULL;
    TRY(memory_allocate_zero(&h, 1));
    h->serve = serve;
    h->listener = -1;
    enum status status = http_start(h, port);
    if (status != STATUS_OK) {
        serve_http_close(h);
        return status;
    }
    *out = h;
    return STATUS_OK;
}

void serve_http_quiesce(struct serve_http *h) {
    /* The port can be used at once by another process. The descriptor stays open, because the library's thread may
     * still remove it from its epoll set. */
    h->listener = MHD_quiesce_daemon(h->daemon);
    if (h->listener >= 0) (void)shutdown(h->listener, SHUT_RDWR);
}

int64_t serve_http_pending(struct serve_http *h) {
    int64_t open = 0, answering = 0;
    connections_counts(h->connections, &open, &answering);
    return answering;
}

void serve_http_close(struct serve_http *h) {
    if (!h) return;
    if (h->daemon) MHD_stop_daemon(h->daemon);
    if (h->listener >= 0) close(h->listener);
    connections_free(h->connections);
    memory_free(h);
}
