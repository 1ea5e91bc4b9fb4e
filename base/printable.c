/* printable.c -- see printable.h. */
#include "base/printable.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Returns the length of the UTF-8 character at text[0], from its form only, and its code point; 1 for a byte that
 * begins no character. */
static size_t printable_character(const uint8_t *p, size_t bytes, uint32_t *code) {
    size_t length = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : p[0] >= 0xC0 ? 2 : 1;
    *code = length == 1 ? p[0] : p[0] & (0xFFu >> (length + 1));
    if (length > bytes) return *code = p[0], 1;
    for (size_t i = 1; i < length; i++) {
        if ((p[i] & 0xC0) != 0x80) return *code = p[0], 1;
        *code = *code << 6 | (p[i] & 0x3Fu);
    }
    return length;
}

static bool printable_controls(uint32_t code) {
    return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x61C || code == 0x200E || code == 0x200F ||
           (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

size_t printable_char(char out[PRINTABLE_MAX], const char *text, size_t bytes) {
    uint32_t code;
    size_t length = printable_character((const uint8_t *)text, bytes, &code);
    if (!printable_controls(code)) {
        memcpy(out, text, length);
        out[length] = '\0';
    } else if (code == '\n' || code == '\t') {
        snprintf(out, PRINTABLE_MAX, code == '\n' ? "\\n" : "\\t");
    } else {
        snprintf(out, PRINTABLE_MAX, length == 1 ? "\\x%02x" : "\\u%04x", (unsigned)code & 0xFFFF);
    }
    return length;
}

void printable_copy(char *out, size_t capacity, const char *text) {
    size_t used = 0, bytes = strlen(text);
    for (size_t at = 0; at < bytes;) {
        char shown[PRINTABLE_MAX];
        at += printable_char(shown, text + at, bytes - at);
        size_t n = strlen(shown);
        if (used + n >= capacity) break;
        memcpy(out + used, shown, n);
        used += n;
    }
    out[used] = '\0';
}
