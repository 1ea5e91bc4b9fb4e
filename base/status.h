/* status.h -- how a call reports a failure.
 *
 * Every function that can fail because of events outside the program (files, memory, bad input) returns `enum status`:
 * STATUS_OK (0) or a negative value. On failure it sets one line of text for the thread, escaped as in printable.h,
 * which names the file, the position in it and the remedy, if there is one. Outputs of a failed call are unset. A
 * caller's mistake (wrong shape, NULL) fails an assert instead; release builds keep asserts. */
#pragma once

#define STATUS_LIST(X)                                                                                      \
    X(OK, 0, "ok")                                                                                          \
    X(IO, -1, "input/output error")                 /* open, read, write, sync, rename failed */            \
    X(NO_SPACE, -2, "no space left")                /* disk or LMDB map full, ulimit -f */                  \
    X(NO_MEMORY, -3, "out of memory")                                                                       \
    X(NOT_FOUND, -4, "not found")                   /* file, tensor, key, field */                          \
    X(INVALID, -5, "invalid input")                 /* input that no version of the program accepts */      \
    X(CORRUPT, -6, "corrupt data")                  /* a damaged file of this program */                             \
    X(MISMATCH, -7, "mismatch")                     /* valid, but does not fit the other inputs */             \
    X(VERSION, -8, "unknown version")               /* written by a newer program */                        \
    X(BUSY, -9, "in use")                           /* another writer holds the lock */                     \
    X(UNSUPPORTED, -10, "not supported")            /* valid, but this program cannot do it */                        \
    X(INTERRUPTED, -11, "interrupted")              /* stopped on request at a safe point; can be resumed */\
    X(READ_ONLY, -12, "read-only")                                                                          \
    X(FAULT, -13, "injected fault")                 /* tests only, see fault.h */

#if defined(__GNUC__) && !defined(__cplusplus)
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define PRINTF_LIKE(fmt, args)
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define STATUS_ENUM(name, value, text) STATUS_##name = value,
enum [[nodiscard]] status { STATUS_LIST(STATUS_ENUM) };
#undef STATUS_ENUM

/* Records the formatted line as this thread's last message and returns `code`. A line that fails reads `return
 * fail(STATUS_CORRUPT, "%s: ...", path)`. */
enum status fail(enum status code, const char *format, ...) PRINTF_LIKE(2, 3);

/* Records the line with ": <strerror(errno)>" at its end, and with a remedy after ENOSPC, EDQUOT and EFBIG. These,
 * ENOMEM, ENOENT and EROFS have their own codes; every other error is STATUS_IO. */
enum status fail_errno(const char *format, ...) PRINTF_LIKE(1, 2);

/* Inserts "<text>: " before this thread's last message and returns `code`. */
enum status fail_context(enum status code, const char *format, ...) PRINTF_LIKE(2, 3);

/* Returns this thread's last message, "" before the first failure. It is valid until the next failure
 * on this thread. */
const char *status_message(void);

/* Returns the short name of a code, e.g. "corrupt data". */
const char *status_text(enum status code);

#ifdef __cplusplus
}
#endif

/* Returns from the calling function if `expr` fails. */
#define TRY(expr)                                                                                           \
    do {                                                                                                    \
        enum status try_status_ = (expr);                                                                   \
        if (try_status_ != STATUS_OK) return try_status_;                                                   \
    } while (0)

/* Jumps to `label` if `expr` fails, with the code in `variable`. */
#define TRY_GOTO(variable, expr, label)                                                                     \
    do {                                                                                                    \
        (variable) = (expr);                                                                                \
        if ((variable) != STATUS_OK) goto label;                                                            \
    } while (0)

#define ARRAY_LEN(array) (sizeof(array) / sizeof((array)[0]))
