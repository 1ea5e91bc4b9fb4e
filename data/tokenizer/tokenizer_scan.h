/* tokenizer_scan.h -- hand-written scanners for the well-known split patterns, and the classes of code points. */
#pragma once
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

enum scanner { SCANNER_NONE, SCANNER_GPT2, SCANNER_CL100K, SCANNER_QWEN2 };

enum { CLASS_OTHER, CLASS_LETTER, CLASS_NUMBER, CLASS_SPACE };
enum status scanner_classes(uint8_t **out);
enum scanner scanner_find(const char *pattern);
const char *scanner_pattern(enum scanner scanner);
/* Returns the bytes of the word at text[at] (at < bytes); it reads no byte beyond `bytes`. */
size_t scanner_next(enum scanner scanner, const uint8_t *classes, const char *text, size_t bytes, size_t at);
/* Finds the ends of the words from text[at] on, where a word begins, as scanner_next does. Returns how many, at least
 * one; the last is the end of the text, or more words follow. */
enum { SCANNER_WORDS_MAX = 160 };
int scanner_words(enum scanner scanner, const uint8_t *classes, const char *text, size_t bytes, size_t at,
                  size_t ends[SCANNER_WORDS_MAX]);
