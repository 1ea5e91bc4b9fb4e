/* status.c -- the thread's last message, which is the only mutable data with static lifetime in the libraries. */
#include "base/status.h"
#include "base/printable.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_MAX = 1024 };

static _Thread_local char last_message[MESSAGE_MAX];

/* Formats into a local buffer first, because an argument may be the last message itself, and escapes names, which may
 * contain any characters. */
static void set_message(const char *format, va_list args) {
    char text[MESSAGE_MAX];
    vsnprintf(text, sizeof text, format, args);
    printable_copy(last_message, sizeof last_message, text);
}

enum status fail(enum status code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    set_message(format, args);
    va_end(args);
    return code;
}

static const char *remedy_of(int error) {
    switch (error) {
    case EFBIG:
        return " (raise ulimit -f, or write to a file system that takes larger files)";
    case ENOSPC:
        return " (free disk space)";
    case EDQUOT:
        return " (free disk space, or raise the quota)";
    default:
        return "";
    }
}

enum status fail_errno(const char *format, ...) {
    int error = errno;
    va_list args;
    va_start(args, format);
    set_message(format, args);
    va_end(args);
    size_t used = strlen(last_message);
    snprintf(last_message + used, sizeof last_message - used, ": %s%s", strerror(error), remedy_of(error));
    switch (error) {
    case EFBIG:
    case ENOSPC:
    case EDQUOT:
        return STATUS_NO_SPACE;
    case ENOMEM:
        return STATUS_NO_MEMORY;
    case ENOENT:
        return STATUS_NOT_FOUND;
    case EROFS:
        return STATUS_READ_ONLY;
    default:
        return STATUS_IO;
    }
}

enum status fail_context(enum status code, const char *format, ...) {
    char text[MESSAGE_MAX], old[MESSAGE_MAX];
    memcpy(old, last_message, sizeof old);
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char whole[MESSAGE_MAX];
    snprintf(whole, sizeof whole, "%.500s: %.500s", text, old);
    printable_copy(last_message, sizeof last_message, whole);
    return code;
}

const char *status_message(void) {
    return last_message;
}

const char *status_text(enum status code) {
    switch (code) {
#define STATUS_CASE(name, value, text)                                                                                 \
    case STATUS_##name:                                                                                                \
        return text;
        STATUS_LIST(STATUS_CASE)
#undef STATUS_CASE
    }
    return "unknown status";
}
