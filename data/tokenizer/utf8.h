/* utf8.h -- UTF-8 as the Unicode standard has it (no surrogates, nothing above U+10FFFF, no overlong forms).
 *
 * An invalid sequence is the longest start of a character that cannot continue (Unicode 3.9, "maximal subpart");
 * each becomes one U+FFFD, as in Python, Rust and browsers. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the character at text[0] (bytes > 0) and its code point; 0 when what stands there is invalid, with
 * *code = the length of the invalid sequence. *cut: it is invalid only because the text ends in it. */
int utf8_check(const char *text, size_t bytes, uint32_t *code, bool *cut);

/* Bytes up to the first invalid sequence: `bytes` when all is valid. */
size_t utf8_valid_prefix(const char *text, size_t bytes);

/* Replaces invalid sequences, into a buffer of memory.h that grows; *replaced counts them. */
enum status utf8_repair(char **buffer, size_t *capacity, size_t *out_bytes, uint64_t *replaced, const char *text,
                        size_t bytes);

/* UTF-16 that begins with its byte order mark, which is dropped; unpaired surrogates and an odd last byte are replaced
 * by U+FFFD and counted. Buffers as in utf8_repair. */
enum status utf8_from_utf16(char **buffer, size_t *capacity, size_t *out_bytes, uint64_t *replaced, const char *text,
                            size_t bytes);

/* The code point of a character known to be valid; *length 1 to 4. */
static inline uint32_t utf8_decode(const char *text, int *length) {
    const uint8_t *p = (const uint8_t *)text;
    if (p[0] < 0x80) return *length = 1, p[0];
    if (p[0] < 0xE0) return *length = 2, (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu);
    if (p[0] < 0xF0) return *length = 3, (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
    return *length = 4, (p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
}

/* Writes a scalar value (not a surrogate) as 1 to 4 bytes. */
int utf8_encode(char out[4], uint32_t code);
