/* printable.h -- makes text safe for a terminal: control characters and characters that reorder a line become escapes.
 *
 * Names and texts of a corpus may contain any characters. C0 and C1 controls can move the cursor or run commands of the
 * terminal. Bidirectional marks, embeddings, overrides and isolates change the order in which a line is displayed.
 * Other UTF-8 is not changed. Escapes are not escaped again. */
#pragma once
#include <stddef.h>

/* Writes the first character of a text (bytes > 0) to out, with a NUL: itself, or an escape such as "\x1b" (a byte),
 * "\n", "\t" or "\u202e". Returns its length in the text. Bytes that are not UTF-8 are copied, except those of C1
 * controls. */
enum { PRINTABLE_MAX = 8 };
size_t printable_char(char out[PRINTABLE_MAX], const char *text, size_t bytes);

/* Writes a whole text on one line. If the capacity (> 0) does not suffice, the text ends before a character. */
void printable_copy(char *out, size_t capacity, const char *text);
