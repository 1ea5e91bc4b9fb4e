/* tokenizer_regex.h -- runs patterns written for Oniguruma with PCRE2. Threads may share a pattern, each with its own
 * scratch. Texts must be valid UTF-8. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>

struct regex;
struct regex_scratch;
enum status regex_create(struct regex **out, const char *name, const char *pattern);
void regex_free(struct regex *r);
bool regex_matches_empty(const struct regex *r);          /* whether it may match an empty text */
enum status regex_scratch_create(struct regex_scratch **out);
void regex_scratch_free(struct regex_scratch *s);
/* Finds the first match that begins at or after `at`. *found false: there is none. */
enum status regex_search(const struct regex *r, struct regex_scratch *s, const char *text, size_t bytes, size_t at,
                         bool *found, size_t *begin, size_t *end);
