/* members.h -- reads the members of one JSON object by a table: each at most once, of its type, in its range. */
#pragma once
#include "base/formats/json.h"
#include "tools/serve/wire/request.h"

struct members;
/* Reads a member of another kind. The value's first event has been read already. */
typedef enum status member_read(struct members *m, enum json_event event);

enum member_kind {
    MEMBER_INT,                          /* int64_t; null: not changed */
    MEMBER_DOUBLE,                       /* double; the same */
    MEMBER_BOOL,                         /* bool; the same */
    MEMBER_CHOICE,                       /* int: one of names[], the number of its name */
    MEMBER_READ,                         /* read() */
    MEMBER_ZERO,                         /* a number that must be `min`, or null */
    MEMBER_NULL                          /* null, {}, [] or "" alone: cannot be served */
};
struct member {
    const char *name;
    enum member_kind kind;
    void *value;
    double min, max;                     /* inclusive; int64_t in doubles: below 2^53 */
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
/* The whole body is one object. */
enum status members_parse(struct members *m, const char *body, size_t bytes, const struct member *table, int n);
/* The members of an object that has been entered (JSON_OBJECT was read), up to its end. At most 64. */
enum status members_object(struct members *m, const struct member *table, int n);

/* Read a value whose first event has been read. */
enum status members_text(struct members *m, struct request_text *out);               /* of JSON_STRING */
enum status members_ids(struct members *m, struct request_text *out, bool entered);  /* the rest of an array of ids */
