/* reply.h -- the bytes of an answer: JSON written piece by piece, as one body or as server-sent events. One thread at a
 * time. */
#pragma once
#include "base/formats/json.h"

/* Growing bytes, with a stream that writes to their end. */
struct reply {
    char *data;
    size_t bytes, capacity;
    FILE *file;                          /* flushed by reply_flush */
    struct json_writer json;             /* to file */
};
enum status reply_open(struct reply *r);
void reply_close(struct reply *r);                        /* a zeroed struct is fine */
/* All that was written is in data. Fails if there was not enough memory. */
enum status reply_flush(struct reply *r);
void reply_clear(struct reply *r);                        /* removes the bytes, and keeps the memory */
enum status reply_add(struct reply *r, const void *data, size_t bytes);

/* A server-sent event of one line of JSON: reply_event_begin, then the JSON, then reply_event_end, which flushes. */
void reply_event_begin(struct reply *r);
enum status reply_event_end(struct reply *r);
/* "data: [DONE]", the last event of OpenAI's streams. */
enum status reply_event_done(struct reply *r);

/* An error as OpenAI's clients read it: {"error": {"message", "type", "param", "code"}}. param "" and code NULL become
 * null; the type follows from the HTTP status. */
void reply_error(struct reply *r, int status, const char *message, const char *param, const char *code);

/* One token's text in `tokens` and `top_logprobs`: its bytes if they are UTF-8, else "bytes:\xe2\x80". */
void reply_token_text(struct reply *r, const char *data, size_t bytes, bool key);
/* Characters that begin in these bytes: what `text_offset` counts. */
int64_t reply_characters(const char *data, size_t bytes);
