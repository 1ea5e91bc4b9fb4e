/* slice_server.h -- a worker of slices.h for many searching processes at once, over TCP.
 *
 * Each connection has a thread and a view of its own: the newest generation at the time of its greeting. The threads of
 * the search are one pool, which the connections use in turns, a batch of queries each. */
#pragma once
#include "indexer/search/slices/slices.h"

enum { SLICE_SERVER_CONNECTIONS = 256 }; /* at the same time; further ones wait until one ends */

/* A socket that listens at "IP:PORT" (port 0: any free one; *port: which). */
enum status slice_listen(int *out, int *port, const char *address);
/* Whether other machines reach such an address; STATUS_INVALID: it is none. */
enum status slice_listen_open(bool *out, const char *address);

struct slice_server_config {
    struct store *store;
    struct store_slice slice;
    struct threads *threads;
    const char *key;                     /* that a connection must send; "": none */
    int listener;                        /* stays the caller's */
    int stop;                            /* a descriptor: the server ends when it can be read */
    /* A line about a connection that ended with an error; from any thread. NULL: nobody reads. */
    void (*report)(void *context, const char *line);
    void *context;
};
/* Serves until `stop`: then searches that run are finished, and connections end. STATUS_IO: the listener failed. */
enum status slice_server_run(const struct slice_server_config *config);
