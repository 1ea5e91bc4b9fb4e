/* streams.c -- see streams.h. */
#include "tools/shared/streams.h"
#include "base/memory.h"
#include "base/printable.h"
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <unistd.h>

void streams_reserve(void) {
    signal(SIGXFSZ, SIG_IGN);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
}

void streams_printf(FILE *file, const char *format, ...) {
    char text[4096], *whole = text, shown[PRINTABLE_MAX];
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(text, sizeof text, format, args);
    if (n >= (int)sizeof text && memory_allocate(&whole, (size_t)n + 1) == STATUS_OK)
        vsnprintf(whole, (size_t)n + 1, format, again);
    else if (n >= (int)sizeof text)
        n = (int)sizeof text - 1;
    va_end(again);
    va_end(args);
    for (size_t at = 0; n > 0 && at < (size_t)n;) {
        bool newline = whole[at] == '\n';
        at += printable_char(shown, whole + at, (size_t)n - at);
        fputs(newline ? "\n" : shown, file);
    }
    if (whole != text) memory_free(whole);
}

void streams_print_line(FILE *file, const char *text, size_t bytes, int characters) {
    char shown_as[PRINTABLE_MAX];
    int shown = 0;
    bool space = false;
    size_t i = 0;
    while (i < bytes && shown < characters) {
        if (text[i] == ' ' || (text[i] >= '\t' && text[i] <= '\r')) {
            space = true;
            i++;
            continue;
        }
        if (space && shown) fputc(' ', file);
        space = false;
        i += printable_char(shown_as, text + i, bytes - i);
        fputs(shown_as, file);
        shown++;
    }
    if (i < bytes) fputs("...", file);
}

enum status streams_read(char **text, size_t *bytes, int fd, const char *name) {
    size_t capacity = 0;
    for (;;) {
        TRY(memory_grow(text, &capacity, *bytes + (1 << 16)));
        ssize_t n = read(fd, *text + *bytes, capacity - *bytes);
        if (n < 0) return fail_errno("%s", name);
        if (n == 0) return STATUS_OK;
        *bytes += (size_t)n;
    }
}

/* The file is read and not mapped, because a shell may pass a pipe as a file. */
enum status streams_read_file(char **text, size_t *bytes, const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail_errno("%s", path);
    enum status status = streams_read(text, bytes, fd, path);
    close(fd);
    return status;
}
