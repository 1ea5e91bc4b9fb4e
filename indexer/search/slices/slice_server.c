/* slice_server.c -- see slice_server.h. */
#include "indexer/search/slices/slice_server.h"
#include "base/clock.h"
#include "base/memory.h"
#include "indexer/search/slices/slice_stream_internal.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HELLO_SECONDS = 10, FRAME_SECONDS = 60, STOP_LOOKS = 30, LOOK_MS = 100, BACKLOG = 64 };

/* ---- listening --------------------------------------------------------------------------------------------------- */

union slice_socket_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static enum status slice_listen_address(union slice_socket_address *out, socklen_t *bytes, const char *text) {
    struct slice_address a;
    size_t n;
    *out = (union slice_socket_address){0};
    TRY(slice_address_parse(&a, text, &n));
    const in_port_t port = htons((uint16_t)strtol(a.port, NULL, 10));
    if (text[n] == 0 && inet_pton(AF_INET, a.host, &out->v4.sin_addr) == 1) {
        out->v4.sin_family = AF_INET;
        out->v4.sin_port = port;
        *bytes = sizeof out->v4;
        return STATUS_OK;
    }
    if (text[n] == 0 && inet_pton(AF_INET6, a.host, &out->v6.sin6_addr) == 1) {
        out->v6.sin6_family = AF_INET6;
        out->v6.sin6_port = port;
        *bytes = sizeof out->v6;
        return STATUS_OK;
    }
    return fail(STATUS_INVALID, "%s: a worker listens at IP:PORT, such as 127.0.0.1:7001 or [::1]:7001", text);
}

enum status slice_listen_open(bool *out, const char *address) {
    union slice_socket_address a;
    socklen_t bytes;
    TRY(slice_listen_address(&a, &bytes, address));
    *out =
        a.any.sa_family == AF_INET ? ntohl(a.v4.sin_addr.s_addr) >> 24 != 127 : !IN6_IS_ADDR_LOOPBACK(&a.v6.sin6_addr);
    return STATUS_OK;
}

static enum status slice_bind(int fd, const union slice_socket_address *a, socklen_t bytes, const char *address) {
    const int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, &a->any, bytes) == 0 && listen(fd, BACKLOG) == 0) return STATUS_OK;
    if (errno == EADDRINUSE) return fail(STATUS_IO, "%s: another program listens there: take another port", address);
    return fail_errno("%s", address);
}

enum status slice_listen(int *out, int *port, const char *address) {
    union slice_socket_address a;
    socklen_t bytes;
    TRY(slice_listen_address(&a, &bytes, address));
    const int fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return fail_errno("%s", address);
    enum status status = slice_bind(fd, &a, bytes, address);
    if (status == STATUS_OK && getsockname(fd, &a.any, &bytes) != 0) status = fail_errno("%s", address);
    if (status != STATUS_OK) {
        close(fd);
        return status;
    }
    *out = fd;
    *port = ntohs(a.any.sa_family == AF_INET ? a.v4.sin_port : a.v6.sin6_port);
    return STATUS_OK;
}

/* ---- connections ------------------------------------------------------------------------------------------------- */

struct slice_connection {
    struct slice_server *server;
    pthread_t thread;
    int socket;
    atomic_bool ended; /* the thread can be joined at once */
    char peer[INET6_ADDRSTRLEN + 16];
};
struct slice_server {
    const struct slice_server_config *config;
    pthread_mutex_t turn;
    struct slice_connection *connections[SLICE_SERVER_CONNECTIONS];
    int n;
};

static void slice_report(const struct slice_connection *c) {
    const struct slice_server_config *config = c->server->config;
    char line[SLICES_MESSAGE_MAX];
    if (!config->report) return;
    snprintf(line, sizeof line, "connection from %s: %s", c->peer, status_message());
    config->report(config->context, line);
}

static enum status slice_connection_serve(struct slice_connection *c) {
    const struct slice_server_config *config = c->server->config;
    struct slice_worker_config worker = {
        .slice = config->slice, .threads = config->threads, .turn = &c->server->turn, .patience = FRAME_SECONDS};
    enum status status = slice_hello(c->socket, config->key, clock_seconds() + HELLO_SECONDS);
    if (status == STATUS_OK) status = store_view_open(&worker.view, config->store);
    if (status != STATUS_OK) {
        slice_refuse(c->socket, status);
        return status;
    }
    status = slice_serve(c->socket, c->socket, &worker);
    store_view_close(worker.view);
    return status;
}

static void *slice_connection_body(void *context) {
    struct slice_connection *c = context;
    if (slice_connection_serve(c) != STATUS_OK) slice_report(c);
    (void)shutdown(c->socket, SHUT_RDWR);
    atomic_store(&c->ended, true);
    return NULL;
}

static void slice_connection_free(struct slice_connection *c) {
    close(c->socket);
    memory_free(c);
}

static void slice_peer(char *out, size_t bytes, const union slice_socket_address *a) {
    char text[INET6_ADDRSTRLEN] = "";
    const bool v4 = a->any.sa_family == AF_INET;
    (void)inet_ntop(a->any.sa_family, v4 ? (const void *)&a->v4.sin_addr : (const void *)&a->v6.sin6_addr, text,
                    sizeof text);
    snprintf(out, bytes, v4 ? "%s:%d" : "[%s]:%d", text, ntohs(v4 ? a->v4.sin_port : a->v6.sin6_port));
}

/* A connection that cannot be taken is closed; its end retries or reports it. */
static void slice_accept(struct slice_server *s) {
    union slice_socket_address a;
    socklen_t bytes = sizeof a;
    struct slice_connection *c;
    const int fd = accept4(s->config->listener, &a.any, &bytes, SOCK_CLOEXEC);
    if (fd < 0) { /* where there are no descriptors the listener stays ready */
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) (void)poll(NULL, 0, LOOK_MS);
        return;
    }
    if (memory_allocate_zero(&c, 1) != STATUS_OK) {
        close(fd);
        return;
    }
    c->server = s;
    c->socket = fd;
    slice_socket_set(fd);
    slice_peer(c->peer, sizeof c->peer, &a);
    if (threads_start(&c->thread, slice_connection_body, c))
        s->connections[s->n++] = c;
    else
        slice_connection_free(c);
}

/* all: waits for those that still run. */
static void slice_join(struct slice_server *s, bool all) {
    int kept = 0;
    for (int i = 0; i < s->n; i++) {
        struct slice_connection *c = s->connections[i];
        if (!all && !atomic_load(&c->ended)) {
            s->connections[kept++] = c;
            continue;
        }
        pthread_join(c->thread, NULL);
        slice_connection_free(c);
    }
    s->n = kept;
}

static enum status slice_server_loop(struct slice_server *s) {
    for (;;) {
        const bool full = s->n == SLICE_SERVER_CONNECTIONS;
        struct pollfd wait[] = {{.fd = s->config->stop, .events = POLLIN},
                                {.fd = full ? -1 : s->config->listener, .events = POLLIN}};
        const int n = poll(wait, ARRAY_LEN(wait), full ? LOOK_MS : -1);
        if (n < 0 && errno != EINTR) return fail_errno("the listening socket");
        if (n > 0 && wait[0].revents) return STATUS_OK;
        slice_join(s, false);
        if (n > 0 && wait[1].revents) slice_accept(s);
    }
}

/* Reads end first, so that an answer at hand still leaves; then a peer that does not read it is cut off. */
static void slice_server_end(struct slice_server *s) {
    for (int i = 0; i < s->n; i++)
        (void)shutdown(s->connections[i]->socket, SHUT_RD);
    for (int look = 0; look < STOP_LOOKS && s->n > 0; look++) {
        slice_join(s, false);
        if (s->n > 0) (void)poll(NULL, 0, LOOK_MS);
    }
    for (int i = 0; i < s->n; i++)
        (void)shutdown(s->connections[i]->socket, SHUT_RDWR);
    slice_join(s, true);
}

enum status slice_server_run(const struct slice_server_config *config) {
    struct slice_server s = {.config = config};
    pthread_mutex_init(&s.turn, NULL);
    const enum status status = slice_server_loop(&s);
    slice_server_end(&s);
    pthread_mutex_destroy(&s.turn);
    return status;
}
