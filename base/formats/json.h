/* json.h -- strict JSON (RFC 8259): a pull parser over a byte range, and a writer. The parser allocates no memory.
 *
 * json_next returns events. An object gives OBJECT, then KEY and a value for each member, then OBJECT_END. Strings and
 * numbers are ranges of the input, still escaped. Depth is at most JSON_DEPTH_MAX. After JSON_END or JSON_ERROR every
 * further call returns the same event. For one thread at a time per parser or writer. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { JSON_DEPTH_MAX = 64 };

enum json_event {
    JSON_ERROR, JSON_END, JSON_OBJECT, JSON_OBJECT_END, JSON_ARRAY, JSON_ARRAY_END,
    JSON_KEY, JSON_STRING, JSON_NUMBER, JSON_TRUE, JSON_FALSE, JSON_NULL,
};

struct json {
    const char *name;                    /* for messages: the file */
    const char *at, *begin, *end;
    const char *text; size_t length;     /* KEY, STRING: between the quotes, still escaped; NUMBER: its characters */
    int64_t line;                        /* of the file: that of `begin` */
    int depth;
    uint8_t state;
    uint8_t stack[JSON_DEPTH_MAX];
};

void json_open(struct json *j, const char *name, const void *data, size_t bytes);
/* Opens one line of a file. `line` counts from 1, and messages contain it. */
void json_open_line(struct json *j, const char *name, const void *data, size_t bytes, int64_t line);
enum json_event json_next(struct json *j);

/* Fails with file, line and column, and with what was expected there. Call it on JSON_ERROR, or if an event is not what
 * the caller's format requires. */
enum status json_fail(const struct json *j, const char *expected);

/* Skips the next value. Directly after OBJECT or ARRAY was returned, use json_skip_rest instead. */
enum status json_skip(struct json *j);
/* Skips to the end of the object or array that was just opened. */
enum status json_skip_rest(struct json *j);

/* Whether the current KEY or STRING, unescaped, equals this text. */
bool json_equals(const struct json *j, const char *text);
/* Unescapes the current KEY or STRING as UTF-8 into out. `capacity` includes the final NUL, *length does not. Lone
 * surrogates become U+FFFD. STATUS_INVALID when it does not fit; an unescaped string is never longer than its escaped
 * form, so capacity j->length + 1 always fits. */
enum status json_string(const struct json *j, char *out, size_t capacity, size_t *length);
/* Converts the current NUMBER. STATUS_INVALID, with its position: it is out of range, or not an integer. */
enum status json_int(const struct json *j, int64_t *out);
enum status json_double(const struct json *j, double *out);

/* These functions read the next event, which must be of that kind. */
enum status json_expect(struct json *j, enum json_event event, const char *expected);
enum status json_next_int(struct json *j, int64_t *out);
/* Reads an integer from lowest to highest; the message names `key`. */
enum status json_next_int_in(struct json *j, const char *key, int32_t lowest, int32_t highest, int32_t *out);
enum status json_next_double(struct json *j, double *out);
enum status json_next_bool(struct json *j, bool *out);

/* The writer, to a stdio stream, adds commas, quotes and escapes. `indent` 0: one line. Invalid UTF-8 in strings
 * becomes U+FFFD. The caller must check the stream for errors (ferror). */
struct json_writer { FILE *file; int indent, depth; bool after_key; bool first[JSON_DEPTH_MAX]; };
void json_write_open(struct json_writer *w, FILE *file, int indent);
void json_write_object(struct json_writer *w);
void json_write_object_end(struct json_writer *w);
void json_write_array(struct json_writer *w);
void json_write_array_end(struct json_writer *w);
void json_write_key(struct json_writer *w, const char *key);
void json_write_string(struct json_writer *w, const char *text);
void json_write_bytes(struct json_writer *w, const void *text, size_t bytes);
void json_write_int(struct json_writer *w, int64_t value);
/* the shortest text that is read back as the same number; NaN and infinities: null */
void json_write_double(struct json_writer *w, double value);
void json_write_bool(struct json_writer *w, bool value);
void json_write_null(struct json_writer *w);
