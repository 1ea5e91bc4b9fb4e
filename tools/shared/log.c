/* log.c -- see log.h. An object is first written to a separate stream. Standard error has no buffer, so a line that is
 * written piece by piece would be mixed with lines of other processes in the same file. */
#include "tools/shared/log.h"
#include "base/printable.h"
#include "tools/shared/streams.h"
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 1 << 16, TEXT_BYTES = 4096 };

static struct {
    bool json;
    FILE *file; /* opened by the first line, and not closed */
    struct json_writer writer;
} the_log;
/* protects the members except `json`; not stderr's own lock, which ThreadSanitizer does not see */
static pthread_mutex_t the_log_lock = PTHREAD_MUTEX_INITIALIZER;

bool *log_json(void) {
    return &the_log.json;
}

static void log_write_time(struct json_writer *w) {
    char text[64];
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t n = strftime(text, 32, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text + n, sizeof text - n, ".%03ldZ", now.tv_nsec / 1000000);
    log_string(w, "time", text);
}

struct json_writer *log_begin(enum log_level level, const char *event) {
    static const char *const levels[] = {"info", "warning", "error"};
    pthread_mutex_lock(&the_log_lock);
    if (!the_log.file) {
        int fd = dup(STDERR_FILENO);
        the_log.file = fd < 0 ? stderr : fdopen(fd, "w");
        if (!the_log.file) the_log.file = stderr;
        if (the_log.file != stderr) setvbuf(the_log.file, NULL, _IOFBF, LINE_BYTES);
    }
    struct json_writer *w = &the_log.writer;
    json_write_open(w, the_log.file, 0);
    json_write_object(w);
    log_write_time(w);
    log_string(w, "level", levels[level]);
    log_string(w, "program", program_invocation_short_name);
    log_string(w, "event", event);
    return w;
}

void log_end(void) {
    json_write_object_end(&the_log.writer);
    fputc('\n', the_log.file);
    fflush(the_log.file);
    pthread_mutex_unlock(&the_log_lock);
}

void log_string(struct json_writer *w, const char *key, const char *value) {
    json_write_key(w, key);
    if (value)
        json_write_string(w, value);
    else
        json_write_null(w);
}

void log_int(struct json_writer *w, const char *key, int64_t value) {
    json_write_key(w, key);
    json_write_int(w, value);
}

void log_double(struct json_writer *w, const char *key, double value) {
    json_write_key(w, key);
    json_write_double(w, round(value * 1e6) / 1e6);
}

void log_bool(struct json_writer *w, const char *key, bool value) {
    json_write_key(w, key);
    json_write_bool(w, value);
}

void log_line(enum log_level level, const char *event, const char *from, const char *format, ...) {
    char text[TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!the_log.json) {
        streams_printf(stderr, "%s%s%s\n", from ? from : "", from ? ": " : "", text);
        return;
    }
    struct json_writer *w = log_begin(level, event);
    log_string(w, "message", text);
    log_end();
}

/* Splits a message. It begins with a path, after which ":3", "line 3, column 5" or "byte 17" may follow. An end of the
 * form "run drt-..." is the remedy. */
static void log_position(struct json_writer *w, const char *message) {
    char path[TEXT_BYTES];
    struct stat facts;
    long long line, column, byte;
    const char *end = strstr(message, ": "), *run = strstr(message, "run drt-");
    const size_t length = end ? (size_t)(end - message) : 0;
    if (length > 0 && length < sizeof path) {
        memcpy(path, message, length);
        path[length] = 0;
        if (memchr(path, '/', length) || stat(path, &facts) == 0) {
            const char *rest = end + 2;
            char *colon = strrchr(path, ':'), after;
            int found = colon && stat(path, &facts) != 0 && sscanf(colon, ":%lld%c", &line, &after) == 1;
            if (found)
                *colon = 0;
            else
                found = sscanf(rest, "line %lld, column %lld", &line, &column);
            log_string(w, "file", path);
            if (found >= 1) log_int(w, "line", line);
            if (found == 2) log_int(w, "column", column);
            const char *at = strstr(rest, "byte ");
            if (at && sscanf(at, "byte %lld", &byte) == 1) log_int(w, "byte", byte);
        }
    }
    if (run) log_string(w, "remedy", run);
}

void log_failure(const char *from, enum status status) {
    char message[TEXT_BYTES];
    if (!the_log.json) {
        fprintf(stderr, "%s: %s\n", from, status_message());
        return;
    }
    snprintf(message, sizeof message, "%s", status_message());
    struct json_writer *w = log_begin(LOG_ERROR, "error");
    log_string(w, "status", status_text(status));
    log_string(w, "message", message);
    log_position(w, message);
    log_end();
}
