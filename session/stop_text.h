/* stop_text.h -- text that is made in pieces and ends before the first stop string. A tail with which a stop string may
 * begin is held back. For one thread at a time. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>

struct stop_text;
/* Copies the strings, which must not be empty. n 0: nothing is held back. */
enum status stop_text_create(struct stop_text **out, const char *const *stops, int n);
void stop_text_free(struct stop_text *s);                 /* NULL is fine */
/* Removes all text. */
void stop_text_reset(struct stop_text *s);

/* Adds a piece to the text. *stopped: the text contains a stop string. It then ends before the string, and further
 * pieces are ignored until the next reset. */
enum status stop_text_put(struct stop_text *s, const char *text, size_t bytes, bool *stopped);
/* Ends the text: the tail that was held back can be shown. */
void stop_text_end(struct stop_text *s);
/* Gets the text that can be shown and was not taken before. Borrowed until the next call of one of these functions. */
void stop_text_take(struct stop_text *s, const char **out, size_t *bytes);
