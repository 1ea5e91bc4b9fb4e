/* streams.c -- see streams.h. */
#include "tools/shared/streams.h"
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <unistd.h>

void streams_reserve(void) {
    signal(SIGXFSZ, SIG_IGN);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
}

void streams_print_line(FILE *file, const char *text, size_t bytes, int characters) {
    int shown = 0;
    bool space = false;
    size_t i = 0;
    for (; i < bytes && shown < characters; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c <= ' ' || c == 0x7f) {
            space = true;
            continue;
        }
        if (space && shown) fputc(' ', file);
        space = false;
        fputc(c, file);
        while (c >= 0xc0 && i + 1 < bytes && ((unsigned char)text[i + 1] & 0xc0) == 0x80)
            fputc(text[++i], file);
        shown++;
    }
    if (i < bytes) fputs("...", file);
}
