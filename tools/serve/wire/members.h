/* members.h -- reads the members of one JSON object by a table. Each may occur once, and must have its type and
 * be in its range. */
#pragma once
#include "base/formats/json.h"
#include "tools/serve/wire/request.h"

struct members;
/* Reads a member that no other kind describes. The value's first event has already been read. */
typedef enum status member_read(struct members *m, enum json_event event);

#define MEMBERS_EXACT 9007199254740992.0 /* 2^53: up to here all JSON readers read whole numbers exactly */

enum member_kind {
    MEMBER_INT,                          /* int64_t; null does not change it */
    MEMBER_DOUBLE,                       /* double; null does not change it */
    MEMBER_BOOL,                         /* bool; null does not change it */
    MEMBER_CHOICE,                       /* int: the number of one of names[] */
    MEMBER_READ,                         /* calls read() */
    MEMBER_ZERO,                         /* a number that must be `min`, or null */
    MEMBER_NULL                          /* only null, {}, [] or "": the member is not supported */
};
struct member {
    const char *name;
    enum member_kind kind;
    void *value;
    double min, max;                     /* inclusive; for int64_t whole and below 2^53, or its own limits */
    const char *const *names; int n_names;
    member_read *read;
    bool *given;                         /* set to true if the member is given and not null; NULL: not wanted */
};
struct members {
    struct json json;
    char *param;                         /* [REQUEST_PARAM] */
    const char *prefix;                  /* "retrieval." or "" */
    const struct request_limits *limits;
    void *request;
};
/* Parses a body that must be one object. */
enum status members_parse(struct members *m, const char *body, size_t bytes, const struct member *table, int n);
/* Reads the members of an object up to its end. JSON_OBJECT has been read. At most 64 members. */
enum status members_object(struct members *m, const struct member *table, int n);

/* Read a value whose first event has been read. */
/* The event was JSON_NUMBER. Returns false if it is not whole; 16.0 and 1e3 are. */
bool members_whole(struct members *m, int64_t *out);
enum status members_text(struct members *m, struct request_text *out);               /* the event was JSON_STRING */
/* reads the rest of an array of ids */
enum status members_ids(struct members *m, struct request_text *out, bool entered);
