/* serve_http.h -- the HTTP server: libmicrohttpd's daemon, limits, answers. Only serve_http.c uses that library. */
#pragma once
#include "tools/serve/serve.h"

struct serve_http;
/* Listens, and answers from a separate thread. *port: the port in use, also if the options have 0. */
enum status serve_http_open(struct serve_http **out, struct serve *serve, int *port);
/* Stops accepting connections. */
void serve_http_quiesce(struct serve_http *h);
/* Returns the number of requests whose answers have not been sent. */
int64_t serve_http_pending(struct serve_http *h);
/* All jobs must have ended before. NULL is fine. */
void serve_http_close(struct serve_http *h);

/* ---- serve_exchange.c: one request and its answer, without the HTTP library ---- */
struct exchange {
    struct serve *serve;
    char method[16], path[256];
    struct route route;
    int status;                          /* of the answer; 0: none yet */
    const char *type;                    /* of the body */
    const char *refusal;                 /* the reason for a refusal; NULL: not refused */
    bool retry, cors, closes;            /* closes: no other request is read from the connection */
    char *body; size_t bytes, capacity;  /* of the request */
    int64_t first_chunk, chunks;         /* arguments of /documents/ID */
    struct reply reply;                  /* the answer, if there is no job */
    struct job *job;                     /* computes the answer; NULL: answered at once */
    struct connections *connections;
    double start;
    uint64_t sent;
};
/* The parts of a request's head; a string is NULL if the head lacks it. */
struct exchange_head {
    const char *method, *path, *host, *origin, *authorization, *length, *first, *chunks;
    bool ambiguous;                      /* a proxy may take another host or another end of the body than this server */
};
enum status exchange_create(struct exchange **out, struct serve *serve, const struct exchange_head *head);
/* Writes the log and counts the metrics. complete: the whole answer was sent. */
void exchange_free(struct exchange *e, const char *peer, bool complete);
/* Adds a part of the body. Returns false to end the connection. */
bool exchange_body(struct exchange *e, const char *data, size_t bytes);
/* Call it when the request is complete. It writes the answer into `reply`, or makes a job. */
void exchange_run(struct exchange *e);

/* ---- serve_log.c: lines on standard error, as text or JSON; requests as JSON alone ---- */
void serve_log_request(const struct exchange *e, const char *peer, bool complete, double seconds);
void serve_log(const char *event, const char *format, ...) PRINTF_LIKE(2, 3);

/* ---- generated from page/ ---- */
struct page_file { const char *name, *type; const unsigned char *data; size_t bytes; };
extern const struct page_file page_files[];
extern const int n_page_files;
