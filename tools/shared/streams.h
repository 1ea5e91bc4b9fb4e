/* streams.h -- standard input, output and error of a program, and text that is safe for a terminal. */
#pragma once
#include "base/status.h"
#include <stddef.h>
#include <stdio.h>

/* Call it first in main. If a descriptor from 0 to 2 is closed, it is opened, so that no other file gets its number and
 * then receives messages; reading or writing it still fails. SIGXFSZ is ignored, so that a file that exceeds `ulimit
 * -f` makes a write fail and does not end the program. */
void streams_reserve(void);

/* printf to a terminal or a log. Characters of the whole text that printable.h escapes are escaped, except newlines.
 * Use it for lines that contain names or texts of files, stores and command lines. */
void streams_printf(FILE *file, const char *format, ...) PRINTF_LIKE(2, 3);

/* Prints at most this many characters of a text, or of a file name, on one line: a run of white space becomes one
 * space, other characters are as in printable.h, and "..." follows if the text was longer. */
void streams_print_line(FILE *file, const char *text, size_t bytes, int characters);

/* Appends everything that a descriptor, or a file, contains to *text [*bytes]. Free *text with memory_free, also after
 * a failure. `name` is for the message. */
enum status streams_read(char **text, size_t *bytes, int fd, const char *name);
enum status streams_read_file(char **text, size_t *bytes, const char *path);
