/* serve_connections.h -- every open connection, and a thread that ends those that take too long.
 *
 * The HTTP library's time-out restarts with each byte, so a client that sends slowly never reaches it. It also does not
 * check connections that wait for an answer. This thread checks all connections several times a second. It ends a
 * connection whose request does not arrive in time (slow headers, slow bodies) or whose answer is not read. It cancels
 * a running request if the client closes or half-closes the connection. Any thread may call these functions. */
#pragma once
#include "base/status.h"
#include <stdint.h>
#include <sys/socket.h>

struct job;
struct connection;
struct connections;
/* receive: seconds for a request to arrive, from the connection's start or from the last answer; answer: seconds from
 * then until the answer has been sent. */
enum status connections_create(struct connections **out, double receive, double answer);
void connections_free(struct connections *t); /* stops the thread; all connections must be closed. NULL is fine */

/* fd is borrowed until connection_close. NULL: out of memory. */
struct connection *connection_open(struct connections *t, int fd, const struct sockaddr *peer);
void connection_close(struct connections *t, struct connection *c);
/* Marks the request as complete. job: its job (borrowed until connection_answered); NULL: none. */
void connection_answering(struct connections *t, struct connection *c, struct job *job);
void connection_answered(struct connections *t, struct connection *c);
const char *connection_peer(const struct connection *c);  /* "127.0.0.1" */
void connections_counts(struct connections *t, int64_t *open, int64_t *answering);
