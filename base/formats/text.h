/* text.h -- numbers as text, and a FILE that writes into memory. Any thread may call these functions. */
#pragma once
#include <stddef.h>
#include <stdio.h>

/* With a decimal point. The C library's functions use the decimal comma if a program that uses the library has called
 * setlocale. _read: the number at the beginning of text, as strtod reads it. _write: `digits` significant digits, as
 * printf's %.*g. */
double text_read_number(const char *text);
void text_write_number(char *out, size_t capacity, int digits, double value);

/* Opens a stream that replaces open_memstream, which loses what does not fit into memory: in glibc neither ferror nor
 * fclose report it. After fflush or fclose *text has *bytes bytes and a NUL; the caller frees it with memory_free, also
 * after a failure. fclose fails if any part of the text is missing. NULL: there is no memory. */
FILE *text_stream_open(char **text, size_t *bytes);
