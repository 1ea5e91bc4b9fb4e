/* printable.h -- text for a terminal: control characters and characters that reorder a line become escapes.
 *
 * Names and texts of a corpus are anybody's. C0 and C1 controls move the cursor and worse; the bidirectional marks,
 * embeddings, overrides and isolates show a line in another order than it has. UTF-8 else stays as it is. What was
 * escaped once stays as it is. */
#pragma once
#include <stddef.h>

/* The first character of a text (bytes > 0) as it may be printed, in out with a NUL: itself, or "\x1b" (a byte), "\n",
 * "\t", "\u202e". Returns its length in the text. Bytes that are no UTF-8 pass, but those of C1 controls. */
enum { PRINTABLE_MAX = 8 };
size_t printable_char(char out[PRINTABLE_MAX], const char *text, size_t bytes);

/* All of a text on one line, cut off in front of a character where the capacity (> 0) ends. */
void printable_copy(char *out, size_t capacity, const char *text);
