/* utf8.h -- UTF-8 as defined by the Unicode standard (no surrogates, nothing above U+10FFFF, no overlong forms).
 *
 * An invalid sequence is the longest start of a character that cannot continue (Unicode 3.9, "maximal subpart"). Each
 * becomes one U+FFFD, as in Python, Rust and browsers. Thread-safe: there is no state. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Returns the length of the character at text[0] (bytes > 0), and its code point. Returns 0 if the sequence there is
 * invalid; *code is then its length. *cut: it is invalid only because the text ends there. */
int utf8_check(const char *text, size_t bytes, uint32_t *code, bool *cut);

/* Returns the number of bytes before the first invalid sequence; `bytes` if all are valid. */
size_t utf8_valid_prefix(const char *text, size_t bytes);

/* Replaces invalid sequences. The result is in a growing buffer (base/memory.h). *replaced is increased
 * by their number. */
enum status utf8_repair(char **buffer, size_t *capacity, size_t *out_bytes, uint64_t *replaced, const char *text,
                        size_t bytes);

/* Returns the length of UTF-8's byte order mark if the text begins with one, else 0. It is no part of the text. */
static inline size_t utf8_mark(const char *text, size_t bytes) {
    return bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
}

/* Converts UTF-16 that begins with a byte order mark, which is dropped. Unpaired surrogates and an odd last byte are
 * replaced by U+FFFD and counted. Buffers as in utf8_repair. */
enum status utf8_from_utf16(char **buffer, size_t *capacity, size_t *out_bytes, uint64_t *replaced, const char *text,
                            size_t bytes);

/* Returns the code point of a valid character; *length is 1 to 4. */
static inline uint32_t utf8_decode(const char *text, int *length) {
    const uint8_t *p = (const uint8_t *)text;
    if (p[0] < 0x80) return *length = 1, p[0];
    if (p[0] < 0xE0) return *length = 2, (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu);
    if (p[0] < 0xF0) return *length = 3, (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
    return *length = 4, (p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
}

/* Writes a scalar value (not a surrogate) as 1 to 4 bytes. */
int utf8_encode(char out[4], uint32_t code);
