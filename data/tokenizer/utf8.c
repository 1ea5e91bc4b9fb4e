/* utf8.c -- checks and repairs UTF-8. ASCII is skipped 64 or eight bytes at a time. */
#include "data/tokenizer/utf8.h"
#include "base/memory.h"
#include <string.h>

int utf8_check(const char *text, size_t bytes, uint32_t *code, bool *cut) {
    const uint8_t *p = (const uint8_t *)text;
    *cut = false;
    if (p[0] < 0x80) return *code = p[0], 1;
    int length = p[0] < 0xC2 ? 0 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : p[0] < 0xF5 ? 4 : 0;
    if (length == 0) return *code = 1, 0;
    /* the range of the second byte excludes overlong forms, surrogates and code points above U+10FFFF */
    uint8_t low = 0x80, high = 0xBF;
    if (p[0] == 0xE0) low = 0xA0;
    if (p[0] == 0xED) high = 0x9F;
    if (p[0] == 0xF0) low = 0x90;
    if (p[0] == 0xF4) high = 0x8F;
    uint32_t value = p[0] & (0xFFu >> (length + 1));
    for (int i = 1; i < length; i++) {
        if ((size_t)i == bytes) {
            *cut = true;
            return *code = (uint32_t)i, 0;
        }
        if (p[i] < low || p[i] > high) return *code = (uint32_t)i, 0;
        value = value << 6 | (p[i] & 0x3Fu);
        low = 0x80;
        high = 0xBF;
    }
    return *code = value, length;
}

/* The bytes of the blocks from the first on that are ASCII. */
static inline size_t ascii_blocks(const char *text, size_t bytes) {
    uint64_t block[8];
    size_t i = 0;
    for (; i + sizeof block <= bytes; i += sizeof block) {
        uint64_t all = 0;
        memcpy(block, text + i, sizeof block);
        for (int k = 0; k < 8; k++)
            all |= block[k];
        if (all & 0x8080808080808080u) break;
    }
    return i;
}

size_t utf8_valid_prefix(const char *text, size_t bytes) {
    size_t i = 0;
    while (i < bytes) {
        uint64_t word;
        while (i + sizeof word <= bytes) {
            memcpy(&word, text + i, sizeof word);
            if (word & 0x8080808080808080u) break;
            i += sizeof word;
            i += ascii_blocks(text + i, bytes - i);
        }
        if (i == bytes) break;
        uint32_t code;
        bool cut;
        int length = utf8_check(text + i, bytes - i, &code, &cut);
        if (length == 0) return i;
        i += (size_t)length;
    }
    return bytes;
}

enum status utf8_repair(char **buffer, size_t *capacity, size_t *out_bytes, uint64_t *replaced, const char *text,
                        size_t bytes) {
    size_t used = 0;
    *replaced = 0;
    for (size_t i = 0;;) {
        size_t good = utf8_valid_prefix(text + i, bytes - i);
        TRY(memory_grow(buffer, capacity, used + good + 4));
        memcpy(*buffer + used, text + i, good);
        used += good;
        i += good;
        if (i == bytes) break;
        uint32_t skip;
        bool cut;
        (void)utf8_check(text + i, bytes - i, &skip, &cut);
        memcpy(*buffer + used, "\xEF\xBF\xBD", 3);
        used += 3;
        i += skip;
        ++*replaced;
    }
    (*buffer)[used] = '\0';
    *out_bytes = used;
    return STATUS_OK;
}

int utf8_encode(char out[4], uint32_t code) {
    if (code < 0x80) return out[0] = (char)code, 1;
    if (code < 0x800) {
        out[0] = (char)(0xC0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xE0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3F));
        out[2] = (char)(0x80 | (code & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3F));
    out[2] = (char)(0x80 | (code >> 6 & 0x3F));
    out[3] = (char)(0x80 | (code & 0x3F));
    return 4;
}

/* Returns the unit at text[i], or at the end 0xFFFD, which is not a surrogate. */
static uint32_t utf16_unit(const uint8_t *text, size_t bytes, size_t i, bool big) {
    if (i + 1 >= bytes) return 0xFFFD;
    return big ? (uint32_t)text[i] << 8 | text[i + 1] : (uint32_t)text[i + 1] << 8 | text[i];
}

enum status utf8_from_utf16(char **buffer, size_t *capacity, size_t *out_bytes, uint64_t *replaced, const char *text,
                            size_t bytes) {
    const uint8_t *p = (const uint8_t *)text;
    bool big = p[0] == 0xFE;
    size_t used = 0;
    *replaced = 0;
    TRY(memory_grow(buffer, capacity, bytes / 2 * 3 + 4)); /* a unit becomes at most three bytes */
    for (size_t i = 2; i < bytes; i += 2) {
        uint32_t code = utf16_unit(p, bytes, i, big), low = utf16_unit(p, bytes, i + 2, big);
        if (code >= 0xD800 && code < 0xDC00 && low >= 0xDC00 && low < 0xE000) {
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
            i += 2;
        } else if ((code >= 0xD800 && code < 0xE000) || i + 1 == bytes) {
            code = 0xFFFD;
            ++*replaced;
        }
        used += (size_t)utf8_encode(*buffer + used, code);
    }
    (*buffer)[used] = '\0';
    *out_bytes = used;
    return STATUS_OK;
}
