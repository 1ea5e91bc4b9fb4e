/* serve_connections.c -- see serve_connections.h. */
#include "tools/serve/serve_connections.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/system/threads.h"
#include "tools/serve/serve_job.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <sys/ioctl.h>

enum { LOOK_MS = 200 };

struct connection {
    struct connection *next, **link;
    int fd;
    bool answering, gone; /* gone: at the last check the client had closed its side, and no byte was unread */
    double since;
    struct job *job;
    char peer[INET6_ADDRSTRLEN];
};
struct connections {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct connection *first;
    int64_t n;
    double receive, answer;
    bool ending;
};

/* Whether the client has closed or half-closed the connection. */
static bool connection_left(const struct connection *c) {
    struct pollfd state = {.fd = c->fd, .events = POLLRDHUP};
    return poll(&state, 1, 0) > 0;
}

/* Call it with the lock held. After a shutdown of the socket, the HTTP library reads an end of file and closes
 * the connection. */
static void connection_look(struct connections *t, struct connection *c, double now) {
    const bool left = connection_left(c);
    int unread = 0;
    bool over = now - c->since > (c->answering ? t->answer : t->receive);
    if (left && c->job) atomic_store(&c->job->cancelled, true);
    /* The library uses edge-triggered events. If an end of file arrives together with the last bytes, there is no
     * new event for it. */
    if (left && !c->answering && ioctl(c->fd, FIONREAD, &unread) == 0 && unread == 0) {
        over = over || c->gone;
        c->gone = true;
    }
    if (!over) return;
    if (c->job) atomic_store(&c->job->cancelled, true);
    (void)shutdown(c->fd, SHUT_RDWR);
}

static void *connections_thread(void *context) {
    struct connections *t = context;
    pthread_mutex_lock(&t->lock);
    while (!t->ending) {
        if (t->n == 0) {
            pthread_cond_wait(&t->changed, &t->lock);
            continue;
        }
        pthread_mutex_unlock(&t->lock);
        const struct timespec pause = {.tv_nsec = LOOK_MS * 1000 * 1000};
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
        pthread_mutex_lock(&t->lock);
        const double now = clock_seconds();
        for (struct connection *c = t->first; c; c = c->next)
            connection_look(t, c, now);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

enum status connections_create(struct connections **out, double receive, double answer) {
    struct connections *t = NULL;
    TRY(memory_allocate_zero(&t, 1));
    t->receive = receive;
    t->answer = answer;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
    if (!threads_start(&t->thread, connections_thread, t)) {
        memory_free(t);
        return fail(STATUS_NO_MEMORY, "the thread that watches connections cannot be started");
    }
    *out = t;
    return STATUS_OK;
}

void connections_free(struct connections *t) {
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    t->ending = true;
    pthread_cond_signal(&t->changed);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->thread, NULL);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    memory_free(t);
}

static void connection_peer_text(struct connection *c, const struct sockaddr *peer) {
    const void *address = NULL;
    if (peer && peer->sa_family == AF_INET) address = &((const struct sockaddr_in *)(const void *)peer)->sin_addr;
    if (peer && peer->sa_family == AF_INET6) address = &((const struct sockaddr_in6 *)(const void *)peer)->sin6_addr;
    if (!address || !inet_ntop(peer->sa_family, address, c->peer, sizeof c->peer))
        snprintf(c->peer, sizeof c->peer, "unknown");
}

struct connection *connection_open(struct connections *t, int fd, const struct sockaddr *peer) {
    struct connection *c = NULL;
    if (memory_allocate_zero(&c, 1) != STATUS_OK) return NULL;
    c->fd = fd;
    c->since = clock_seconds();
    connection_peer_text(c, peer);
    pthread_mutex_lock(&t->lock);
    c->next = t->first;
    c->link = &t->first;
    if (c->next) c->next->link = &c->next;
    t->first = c;
    t->n++;
    pthread_cond_signal(&t->changed);
    pthread_mutex_unlock(&t->lock);
    return c;
}

void connection_close(struct connections *t, struct connection *c) {
    if (!c) return;
    pthread_mutex_lock(&t->lock);
    *c->link = c->next;
    if (c->next) c->next->link = c->link;
    t->n--;
    pthread_mutex_unlock(&t->lock);
    memory_free(c);
}

static void connection_turn(struct connections *t, struct connection *c, bool answering, struct job *job) {
    if (!c) return;
    pthread_mutex_lock(&t->lock);
    c->answering = answering;
    c->job = job;
    c->gone = false;
    c->since = clock_seconds();
    pthread_mutex_unlock(&t->lock);
}

void connection_answering(struct connections *t, struct connection *c, struct job *job) {
    connection_turn(t, c, true, job);
}

void connection_answered(struct connections *t, struct connection *c) {
    connection_turn(t, c, false, NULL);
}

const char *connection_peer(const struct connection *c) {
    return c ? c->peer : "unknown";
}

void connections_counts(struct connections *t, int64_t *open, int64_t *answering) {
    *answering = 0;
    pthread_mutex_lock(&t->lock);
    *open = t->n;
    for (struct connection *c = t->first; c; c = c->next)
        *answering += c->answering;
    pthread_mutex_unlock(&t->lock);
}
