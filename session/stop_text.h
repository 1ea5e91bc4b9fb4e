/* stop_text.h -- text that comes in pieces and ends before the first stop string: a tail that may begin one is held
 * back. One thread at a time. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>

struct stop_text;
/* The strings (not empty) are copied. n 0: nothing is held back. */
enum status stop_text_create(struct stop_text **out, const char *const *stops, int n);
void stop_text_free(struct stop_text *s);                 /* NULL is fine */
/* Forgets all text. */
void stop_text_reset(struct stop_text *s);

/* Adds a piece to the text. *stopped: the text contains a stop string; it ends before it, and takes no more until the
 * next reset. */
enum status stop_text_put(struct stop_text *s, const char *text, size_t bytes, bool *stopped);
/* The text has ended: what was held back can be shown. */
void stop_text_end(struct stop_text *s);
/* What can be shown since the last call; borrowed until the next call of any of these. */
void stop_text_take(struct stop_text *s, const char **out, size_t *bytes);
