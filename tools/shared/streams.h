/* streams.h -- standard input, output and error as a program finds them, and text that is fit for a terminal. */
#pragma once
#include "base/status.h"
#include <stddef.h>
#include <stdio.h>

/* First thing in main: a descriptor of 0 to 2 that is closed is taken, so that no file of ours gets its number and then
 * the messages meant for it. Reading or writing there still fails. A file that grows beyond `ulimit -f` is a write that
 * fails, and not the program's end (SIGXFSZ). */
void streams_reserve(void);

/* printf to a terminal or a log: of the whole text, what printable.h escapes is escaped, but for newlines. For lines
 * that hold names or texts of files, stores and command lines. */
void streams_printf(FILE *file, const char *format, ...) PRINTF_LIKE(2, 3);

/* At most so many characters of a text, or of a file's name, on one line: runs of white space become one space, the
 * rest as printable.h has it, "..." where something is left. */
void streams_print_line(FILE *file, const char *text, size_t bytes, int characters);

/* Appends all that a descriptor, or a file, has to give: *text [*bytes], to memory_free, also after a failure. `name`
 * is for the message. */
enum status streams_read(char **text, size_t *bytes, int fd, const char *name);
enum status streams_read_file(char **text, size_t *bytes, const char *path);
