/* route.h -- determines which endpoint a request names, and whether its origin may use it. Pure
 * functions of its head. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum endpoint {
    ENDPOINT_COMPLETIONS,
    ENDPOINT_MODELS,
    ENDPOINT_TOKENIZE,
    ENDPOINT_DETOKENIZE,
    ENDPOINT_TOKENIZER_INFO,
    ENDPOINT_SEARCH,
    ENDPOINT_DOCUMENT,                   /* /documents/ID */
    ENDPOINT_HEALTH,
    ENDPOINT_METRICS,
    ENDPOINT_PAGE,                       /* /, /page.js, /page.css */
    ENDPOINT_UNKNOWN,
    ENDPOINTS
};
extern const char *const endpoint_names[ENDPOINTS];       /* for metrics and the log: "/v1/completions", ... */

struct route {
    enum endpoint endpoint;
    int status;                          /* 200: an endpoint; 204: OPTIONS; 400, 404, 405 */
    const char *allow;                   /* of 204 and 405: the methods */
    bool posts;                          /* it has a body to read */
    bool open;                           /* it needs no API key */
    int64_t document;                    /* of ENDPOINT_DOCUMENT */
    const char *model;                   /* of /v1/models/NAME: NAME, a part of the path; otherwise NULL */
    const char *file;                    /* of ENDPOINT_PAGE: "index.html", "page.js", "page.css" */
};
/* path: without the query, and with percent escapes resolved. */
struct route route_find(const char *method, const char *path);

/* Whether a Host header names this machine's loopback, or one of the n allowed names; any port. NULL: no header.
 * Without this check a web page could reach a server on loopback through a name of the page's domain (DNS
 * rebinding). */
bool route_host_allowed(const char *host, const char *const *allowed, int n);
/* Whether a request with this Origin may be served: none, the server's own page (the same host and port as in Host), or
 * the one origin of --cors-origin (NULL: none). */
bool route_origin_allowed(const char *origin, const char *host, const char *cors_origin);

/* Whether an Authorization header is "Bearer KEY". The time does not depend on the position of the first difference. */
bool route_key_matches(const char *authorization, const char *key);
enum { ROUTE_KEY_MAX = 512 };

/* Parses the number of a query argument; `missing` if the argument is NULL. Returns false if it is not a number of
 * 0 .. INT64_MAX. */
bool route_number(const char *text, int64_t missing, int64_t *out);
