/* decimal.h -- numbers as text with a decimal point. The C library's functions use the decimal comma where a program
 * that uses the library has called setlocale; these do not. Any thread may call them. */
#pragma once
#include <stddef.h>

/* The number at the beginning of text, as strtod reads it. */
double decimal_read(const char *text);
/* Writes value with so many significant digits, as printf's %.*g. */
void decimal_write(char *out, size_t capacity, int digits, double value);
