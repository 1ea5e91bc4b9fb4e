/* log.h -- lines on standard error: text or, with --log-json, one JSON object per line (docs/logs.md).
 *
 * Every object has time (ISO 8601, UTC, milliseconds), level, program and event; the other members depend on the event.
 * Any thread may write, because each line is written at once. The switch is a mutable global of the programs, like the
 * counts of signals, because code that prints a failure has no access to the options. It is set while options are
 * parsed, before threads start. */
#pragma once
#include "base/formats/json.h"

enum log_level { LOG_INFO, LOG_WARNING, LOG_ERROR };

/* Variable of the option --log-json. */
bool *log_json(void);
#define OPTION_LOG_JSON                                                                                                \
    {"log-json", ARG_FLAG, log_json(), NULL,                                                                           \
     "write one JSON object per line to standard error (docs/logs.md), and rewrite no line", 0, 0}

/* Writes a line "from: text", or with --log-json an object whose member "message" is the text. from NULL: only the
 * text. Control characters are escaped. */
void log_line(enum log_level level, const char *event, const char *from, const char *format, ...) PRINTF_LIKE(4, 5);
/* Writes this thread's last message: "from: message", or an object with "status" and, if the message has them, "file",
 * "line", "column", "byte" and "remedy". */
void log_failure(const char *from, enum status status);

/* With --log-json only: begins an object with the caller's members. The caller holds the log until log_end, and may
 * only call the functions below in between. */
struct json_writer *log_begin(enum log_level level, const char *event);
void log_end(void);
void log_string(struct json_writer *w, const char *key, const char *value);         /* NULL: null */
void log_int(struct json_writer *w, const char *key, int64_t value);
void log_double(struct json_writer *w, const char *key, double value);              /* rounded to microunits */
void log_bool(struct json_writer *w, const char *key, bool value);
