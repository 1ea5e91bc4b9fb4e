/* reply.h -- the bytes of an answer: JSON that is written piece by piece, as one body or as server-sent events. For one
 * thread at a time. */
#pragma once
#include "base/formats/json.h"

/* A growing buffer, with a stream that appends to it. */
struct reply {
    char *data;
    size_t bytes, capacity;
    FILE *file;                          /* reply_flush flushes it */
    struct json_writer json;             /* writes to `file` */
};
enum status reply_open(struct reply *r);
void reply_close(struct reply *r);                        /* a zeroed struct is fine */
/* Makes everything that was written available in `data`. Fails if there was not enough memory. */
enum status reply_flush(struct reply *r);
void reply_clear(struct reply *r);                        /* removes the bytes and keeps the memory */
enum status reply_add(struct reply *r, const void *data, size_t bytes);

/* A server-sent event that is one line of JSON: call reply_event_begin, write the JSON, call
 * reply_event_end, which flushes. */
void reply_event_begin(struct reply *r);
enum status reply_event_end(struct reply *r);
/* Writes "data: [DONE]", the last event of OpenAI's streams. */
enum status reply_event_done(struct reply *r);

/* Writes an error in OpenAI's format: {"error": {"message", "type", "param", "code"}}. param "" and code NULL become
 * null. The type follows from the HTTP status. */
void reply_error(struct reply *r, int status, const char *message, const char *param, const char *code);

/* Writes one token's text as in `tokens` and `top_logprobs`, which clients compare: its bytes if they are UTF-8 without
 * a NUL, otherwise "bytes:\xe2\x80". */
void reply_token_text(struct reply *r, const char *data, size_t bytes, bool key);
/* Returns the number of characters that begin in these bytes, which `text_offset` counts. */
int64_t reply_characters(const char *data, size_t bytes);
