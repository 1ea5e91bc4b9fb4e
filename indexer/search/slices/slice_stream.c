/* slice_stream.c -- see slice_stream_internal.h. */
#include "base/clock.h"
#include "indexer/search/slices/slice_stream_internal.h"
#include "indexer/search/slices/slices.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* False: the deadline passed, or (errno) poll failed. */
static bool slice_poll(int fd, short events, double deadline) {
    struct pollfd p = {.fd = fd, .events = events};
    for (;;) {
        const double left = deadline > 0 ? deadline - clock_seconds() : 1e6;
        errno = ETIMEDOUT;
        if (left <= 0) return false;
        const int n = poll(&p, 1, left > 1e6 ? 1000000000 : (int)ceil(1e3 * left));
        if (n > 0) return true;
        if (n < 0 && errno != EINTR) return false;
    }
}

void slice_wait(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (poll(&p, 1, -1) < 0 && errno == EINTR)
        continue;
}

static enum slice_end slice_not_ready(int fd, short events, double deadline) {
    if (errno == EINTR) return SLICE_WHOLE;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return SLICE_FAILED;
    if (slice_poll(fd, events, deadline)) return SLICE_WHOLE;
    return errno == ETIMEDOUT ? SLICE_LATE : SLICE_FAILED;
}

enum slice_end slice_read(int fd, void *to, size_t bytes, double deadline) {
    for (size_t done = 0; done < bytes;) {
        char *at = (char *)to + done;
        const ssize_t n = deadline > 0 ? recv(fd, at, bytes - done, MSG_DONTWAIT) : read(fd, at, bytes - done);
        if (n == 0) return SLICE_ENDED;
        if (n > 0) {
            done += (size_t)n;
            continue;
        }
        const enum slice_end end = slice_not_ready(fd, POLLIN, deadline);
        if (end != SLICE_WHOLE) return end;
    }
    return SLICE_WHOLE;
}

/* A socket whose other end is gone gives EPIPE, no signal. */
enum slice_end slice_write(int fd, const void *from, size_t bytes, bool more, double deadline) {
    const int flags = MSG_NOSIGNAL | (more ? MSG_MORE : 0) | (deadline > 0 ? MSG_DONTWAIT : 0);
    for (size_t done = 0; done < bytes;) {
        const char *at = (const char *)from + done;
        ssize_t n = send(fd, at, bytes - done, flags);
        if (n < 0 && errno == ENOTSOCK) n = write(fd, at, bytes - done);
        if (n >= 0) {
            done += (size_t)n;
            continue;
        }
        const enum slice_end end = slice_not_ready(fd, POLLOUT, deadline);
        if (end != SLICE_WHOLE) return end;
    }
    return SLICE_WHOLE;
}

/* ---- addresses --------------------------------------------------------------------------------------------------- */

static enum status slice_bad_address(const char *text, size_t n) {
    return fail(STATUS_INVALID, "worker \"%.*s\": an address is HOST:PORT, several are separated by commas",
                n < 100 ? (int)n : 100, text);
}

enum status slice_address_parse(struct slice_address *out, const char *text, size_t *n) {
    *n = strcspn(text, ",");
    const char *colon = memrchr(text, ':', *n);
    if (!colon) return slice_bad_address(text, *n);
    const char *host = text;
    size_t bytes = (size_t)(colon - text), digits = *n - bytes - 1;
    if (bytes > 2 && host[0] == '[' && host[bytes - 1] == ']') {
        host++;
        bytes -= 2;
    } else if (strcspn(host, ":[]") < bytes) {
        return slice_bad_address(text, *n);
    }
    if (bytes == 0 || bytes >= sizeof out->host || digits == 0 || digits > 5 ||
        strspn(colon + 1, "0123456789") != digits || strtol(colon + 1, NULL, 10) > UINT16_MAX)
        return slice_bad_address(text, *n);
    snprintf(out->host, sizeof out->host, "%.*s", (int)bytes, host);
    snprintf(out->port, sizeof out->port, "%.*s", (int)digits, colon + 1);
    return STATUS_OK;
}

void slice_socket_set(int fd) {
    const int on = 1, idle = 60, interval = 10, count = 6;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

/* -1: errno says why. */
static int slice_connect_one(const struct addrinfo *to, double deadline) {
    int error = 0;
    socklen_t bytes = sizeof error;
    const int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    bool connected = connect(fd, to->ai_addr, to->ai_addrlen) == 0;
    if (!connected && errno == EINPROGRESS && slice_poll(fd, POLLOUT, deadline)) {
        connected = getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 && error == 0;
        if (error != 0) errno = error;
    }
    if (connected && fcntl(fd, F_SETFL, 0) == 0) return fd;
    error = errno;
    close(fd);
    errno = error;
    return -1;
}

static enum status slice_send_hello(int fd, const char *name, const char *key, double deadline) {
    const uint32_t magic = SLICES_MAGIC;
    const struct slice_frame frame = {.kind = FRAME_HELLO, .bytes = sizeof magic + strlen(key)};
    if (slice_write(fd, &frame, sizeof frame, true, deadline) == SLICE_WHOLE &&
        slice_write(fd, &magic, sizeof magic, key[0] != 0, deadline) == SLICE_WHOLE &&
        slice_write(fd, key, strlen(key), false, deadline) == SLICE_WHOLE)
        return STATUS_OK;
    return fail_errno("%s", name);
}

enum status slice_connect(int *out, const char *name, const struct slice_address *address, const char *key,
                          double deadline) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    struct addrinfo *list = NULL;
    const int error = getaddrinfo(address->host, address->port, &hints, &list);
    if (error != 0) return fail(STATUS_IO, "%s: %s", name, gai_strerror(error));
    int fd = -1;
    errno = EADDRNOTAVAIL;
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next)
        fd = slice_connect_one(a, deadline);
    freeaddrinfo(list);
    if (fd < 0) return fail_errno("%s", name);
    slice_socket_set(fd);
    const enum status status = slice_send_hello(fd, name, key, deadline);
    if (status == STATUS_OK)
        *out = fd;
    else
        close(fd);
    return status;
}

/* ---- hello ------------------------------------------------------------------------------------------------------- */

/* Takes the same time wherever they differ. */
static bool slice_same_key(const char *got, size_t bytes, const char *key) {
    const size_t wanted = strlen(key);
    unsigned difference = bytes != wanted;
    for (size_t i = 0; i < wanted; i++)
        difference |= (unsigned char)((i < bytes ? got[i] : 0) ^ key[i]);
    return difference == 0;
}

enum status slice_hello(int fd, const char *key, double deadline) {
    struct slice_frame frame;
    uint32_t magic;
    char got[SLICES_KEY_MAX];
    if (slice_read(fd, &frame, sizeof frame, deadline) != SLICE_WHOLE || frame.kind != FRAME_HELLO ||
        frame.bytes < sizeof magic || frame.bytes - sizeof magic > sizeof got ||
        slice_read(fd, &magic, sizeof magic, deadline) != SLICE_WHOLE || magic != SLICES_MAGIC ||
        slice_read(fd, got, frame.bytes - sizeof magic, deadline) != SLICE_WHOLE)
        return fail(STATUS_INVALID, "a connection that speaks another protocol than this program's searches");
    if (key[0] == 0 || slice_same_key(got, frame.bytes - sizeof magic, key)) return STATUS_OK;
    return fail(STATUS_INVALID, "it has a key (--api-key-file), and this is another: give --worker-key-file FILE");
}
