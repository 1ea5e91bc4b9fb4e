/* tokenizer_scan.c -- the three split patterns that nearly every byte-level tokenizer uses, as hand-written scanners,
 * which are five to ten times faster than a compiled pattern. tests/property/test_tokenizer_scan.c compares them with
 * PCRE2 on random Unicode text.
 *
 * Classes come from utf8proc's categories: L* are letters, N* numbers, White_Space spaces, all others `other`. Letters
 * and numbers of the versions 15 and 16 are in a table, so that ids do not depend on the machine's utf8proc. The
 * package `tokenizers` has version 16. */
#include "base/memory.h"
#include "data/tokenizer/tokenizer_internal.h"
#include "data/tokenizer/utf8.h"
#include <string.h>
#include <utf8proc.h>
#if defined(__AVX512BW__)
#include <immintrin.h>
#endif

/* From ASSIGNED on no character is a letter, a number or a space: planes 4 to 13 are reserved, 14 has tags and
 * selectors, 15 and 16 are for private use. */
enum { CODE_POINTS = 0x110000, ASSIGNED = 0x40000 };

static const struct {
    enum scanner scanner;
    const char *pattern;
} known[] = {
    {SCANNER_GPT2, "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
    {SCANNER_CL100K, "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
                     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    {SCANNER_QWEN2, "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
                    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
};

enum scanner scanner_find(const char *pattern) {
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (strcmp(known[i].pattern, pattern) == 0) return known[i].scanner;
    return SCANNER_NONE;
}

const char *scanner_pattern(enum scanner scanner) {
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (known[i].scanner == scanner) return known[i].pattern;
    return NULL;
}

struct range {
    int32_t first, last;
};
static const struct range newer_letters[] = {
    {0x1C89, 0x1C8A},   {0xA7CB, 0xA7CD},   {0xA7DA, 0xA7DC},   {0x105C0, 0x105F3}, {0x10D4A, 0x10D65},
    {0x10D6F, 0x10D85}, {0x10EC2, 0x10EC4}, {0x1123F, 0x11240}, {0x11380, 0x11389}, {0x1138B, 0x1138B},
    {0x1138E, 0x1138E}, {0x11390, 0x113B5}, {0x113B7, 0x113B7}, {0x113D1, 0x113D1}, {0x113D3, 0x113D3},
    {0x11BC0, 0x11BE0}, {0x11F02, 0x11F02}, {0x11F04, 0x11F10}, {0x11F12, 0x11F33}, {0x1342F, 0x1342F},
    {0x13441, 0x13446}, {0x13460, 0x143FA}, {0x16100, 0x1611D}, {0x16D40, 0x16D6C}, {0x18CFF, 0x18CFF},
    {0x1B132, 0x1B132}, {0x1B155, 0x1B155}, {0x1DF25, 0x1DF2A}, {0x1E030, 0x1E06D}, {0x1E4D0, 0x1E4EB},
    {0x1E5D0, 0x1E5ED}, {0x1E5F0, 0x1E5F0}, {0x2B739, 0x2B739}, {0x2EBF0, 0x2EE5D}, {0x31350, 0x323AF}};
static const struct range newer_numbers[] = {
    {0x10D40, 0x10D49}, {0x116D0, 0x116E3}, {0x11BF0, 0x11BF9}, {0x11F50, 0x11F59}, {0x16130, 0x16139},
    {0x16D70, 0x16D79}, {0x1CCF0, 0x1CCF9}, {0x1D2C0, 0x1D2D3}, {0x1E4F0, 0x1E4F9}, {0x1E5F1, 0x1E5FA}};

static uint8_t class_of(int32_t code) {
    if ((code >= 9 && code <= 13) || code == 0x85) return CLASS_SPACE;
    switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return CLASS_LETTER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return CLASS_NUMBER;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return CLASS_SPACE;
    default:
        return CLASS_OTHER;
    }
}

static void set_class(uint8_t *classes, struct range range, uint8_t class) {
    memset(classes + range.first, class, (size_t)(range.last + 1 - range.first));
}

enum status scanner_classes(uint8_t **out) {
    TRY(memory_allocate_zero(out, CODE_POINTS)); /* CLASS_OTHER */
    for (int32_t code = 0; code < ASSIGNED; code++)
        (*out)[code] = class_of(code);
    for (size_t i = 0; i < ARRAY_LEN(newer_letters); i++)
        set_class(*out, newer_letters[i], CLASS_LETTER);
    for (size_t i = 0; i < ARRAY_LEN(newer_numbers); i++)
        set_class(*out, newer_numbers[i], CLASS_NUMBER);
    return STATUS_OK;
}

/* The scanned text, and the class and length of the character at a position. */
struct scan {
    const uint8_t *classes;
    const char *text;
    size_t bytes;
};

static inline int class_at(const struct scan *s, size_t at, int *length) {
    uint8_t c = (uint8_t)s->text[at];
    if (c < 0x80) return *length = 1, s->classes[c];
    return s->classes[utf8_decode(s->text + at, length)];
}

/* How many of the next 8 bytes, from the first on, are letters of ASCII. Adding to the low 7 bits of each byte sets its
 * high bit if they are at least a limit. */
static inline size_t ascii_letters(const char *text) {
    const uint64_t each = UINT64_C(0x0101010101010101), high = each * 0x80;
    uint64_t x;
    memcpy(&x, text, sizeof x); /* numbers are little-endian here, too */
    const uint64_t lower = (x | each * 0x20) & each * 0x7F, from_a = lower + each * (0x80 - 'a'),
                   after_z = lower + each * (0x80 - 'z' - 1), others = (~from_a | after_z | x) & high;
    return others ? (size_t)__builtin_ctzll(others) / 8 : sizeof x;
}

static inline size_t run_of(const struct scan *s, size_t at, int class) {
    int length;
    if (class == CLASS_LETTER)
        for (size_t n = 8; n == 8 && s->bytes - at >= 8; at += n)
            n = ascii_letters(s->text + at);
    while (at < s->bytes && class_at(s, at, &length) == class)
        at += (size_t)length;
    return at;
}

/* Matches 's 't 're 've 'm 'll 'd at text[at] == '\'' and returns the end, or 0. `fold`: ignores case;
 * U+017F is then an s. */
static size_t tokenizer_scan_contraction(const struct scan *s, size_t at, bool fold) {
    size_t left = s->bytes - at;
    if (left < 2) return 0;
    char a = s->text[at + 1], b = left > 2 ? s->text[at + 2] : '\0';
    if (fold && (uint8_t)a == 0xC5 && (uint8_t)b == 0xBF) return at + 3;
    if (fold) {
        if (a >= 'A' && a <= 'Z') a = (char)(a | 0x20);
        if (b >= 'A' && b <= 'Z') b = (char)(b | 0x20);
    }
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return at + 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return at + 3;
    return 0;
}

/* Matches \s+(?!\S)|\s+ : the whole run at the end of the text, otherwise all but its last character (a single
 * one is matched). */
static size_t tokenizer_scan_spaces(const struct scan *s, size_t at) {
    size_t end = at, last = at;
    int length;
    while (end < s->bytes && class_at(s, end, &length) == CLASS_SPACE) {
        last = end;
        end += (size_t)length;
    }
    return end == s->bytes || last == at ? end : last;
}

static size_t next_gpt2(const struct scan *s, size_t at) {
    char c = s->text[at];
    if (c == '\'') {
        size_t end = tokenizer_scan_contraction(s, at, false);
        if (end) return end;
    }
    int length, class = class_at(s, at, &length);
    if (class != CLASS_SPACE) return run_of(s, at + (size_t)length, class);
    if (c == ' ' && at + 1 < s->bytes) {
        class = class_at(s, at + 1, &length);
        if (class != CLASS_SPACE) return run_of(s, at + 1 + (size_t)length, class);
    }
    return tokenizer_scan_spaces(s, at);
}

static inline bool is_newline(char c) {
    return c == '\n' || c == '\r';
}

/* Matches  ?[^\s\p{L}\p{N}]+[\r\n]* from its first character of class `other`. */
static size_t symbols_and_newlines(const struct scan *s, size_t at) {
    at = run_of(s, at, CLASS_OTHER);
    while (at < s->bytes && is_newline(s->text[at]))
        at++;
    return at;
}

/* Matches \s*[\r\n]+ : up to the last newline of the run of spaces; 0 if the run has none. */
static size_t tokenizer_scan_newlines(const struct scan *s, size_t at) {
    size_t found = 0;
    int length;
    while (at < s->bytes && class_at(s, at, &length) == CLASS_SPACE) {
        if (is_newline(s->text[at])) found = at + 1;
        at += (size_t)length;
    }
    return found;
}

static size_t next_cl100k(const struct scan *s, size_t at, int digits) {
    char c = s->text[at];
    if (c == '\'') {
        size_t end = tokenizer_scan_contraction(s, at, true);
        if (end) return end;
    }
    int length, class = class_at(s, at, &length);
    size_t next = at + (size_t)length;
    if (class == CLASS_LETTER) return run_of(s, next, CLASS_LETTER);
    if (class == CLASS_NUMBER) {
        for (int i = 1; i < digits && next < s->bytes && class_at(s, next, &length) == CLASS_NUMBER; i++)
            next += (size_t)length;
        return next;
    }
    int after = next < s->bytes ? class_at(s, next, &length) : -1;
    if (after == CLASS_LETTER && !is_newline(c)) return run_of(s, next, CLASS_LETTER);
    if (class == CLASS_OTHER) return symbols_and_newlines(s, at);
    if (c == ' ' && after == CLASS_OTHER) return symbols_and_newlines(s, next);
    size_t end = tokenizer_scan_newlines(s, at);
    return end ? end : tokenizer_scan_spaces(s, at);
}

size_t scanner_next(enum scanner scanner, const uint8_t *classes, const char *text, size_t bytes, size_t at) {
    struct scan s = {classes, text, bytes};
    switch (scanner) {
    case SCANNER_GPT2:
        return next_gpt2(&s, at) - at;
    case SCANNER_CL100K:
        return next_cl100k(&s, at, 3) - at;
    case SCANNER_QWEN2:
        return next_cl100k(&s, at, 1) - at;
    case SCANNER_NONE:
        break;
    }
    return bytes - at;
}

/* ---- many words at a time ------------------------------------------------------------------------------------ */

enum { BLOCK = 64 };

/* Of the bytes of a block, a bit each. */
struct marks {
    uint64_t letters, numbers, spaces, blanks, quotes, ascii;
};

#if defined(__AVX512BW__)
static inline struct marks mark_block(const char *text) {
    const __m512i x = _mm512_loadu_si512(text), lower = _mm512_or_si512(x, _mm512_set1_epi8(0x20));
    const __m512i from_a = _mm512_sub_epi8(lower, _mm512_set1_epi8('a')),
                  from_0 = _mm512_sub_epi8(x, _mm512_set1_epi8('0')),
                  from_tab = _mm512_sub_epi8(x, _mm512_set1_epi8('\t'));
    struct marks m;
    m.letters = _mm512_cmplt_epu8_mask(from_a, _mm512_set1_epi8(26));
    m.numbers = _mm512_cmplt_epu8_mask(from_0, _mm512_set1_epi8(10));
    m.blanks = _mm512_cmpeq_epi8_mask(x, _mm512_set1_epi8(' '));
    m.spaces = m.blanks | _mm512_cmplt_epu8_mask(from_tab, _mm512_set1_epi8('\r' - '\t' + 1));
    m.quotes = _mm512_cmpeq_epi8_mask(x, _mm512_set1_epi8('\''));
    m.ascii = ~_mm512_movepi8_mask(x);
    return m;
}
#else
/* The high bit of each byte whose low 7 bits are at least `first`, and less than `end`. */
static inline uint64_t bytes_within(uint64_t low, uint8_t first, uint8_t end) {
    const uint64_t each = UINT64_C(0x0101010101010101);
    return (low + each * (uint8_t)(0x80 - first)) & ~(low + each * (uint8_t)(0x80 - end));
}

/* The high bits of the 8 bytes, as a number. */
static inline uint64_t high_bits(uint64_t x) {
    return (x >> 7 & UINT64_C(0x0101010101010101)) * UINT64_C(0x0102040810204080) >> 56;
}

static inline struct marks mark_block(const char *text) {
    const uint64_t each = UINT64_C(0x0101010101010101);
    struct marks m = {0};
    for (int i = 0; i < BLOCK; i += 8) {
        uint64_t x;
        memcpy(&x, text + i, sizeof x); /* numbers are little-endian here, too */
        const uint64_t low = x & each * 0x7F, lower = (x | each * 0x20) & each * 0x7F;
        const uint64_t blank = bytes_within(low, ' ', ' ' + 1);
        m.letters |= high_bits(bytes_within(lower, 'a', 'z' + 1)) << i;
        m.numbers |= high_bits(bytes_within(low, '0', '9' + 1)) << i;
        m.spaces |= high_bits(bytes_within(low, '\t', '\r' + 1) | blank) << i;
        m.blanks |= high_bits(blank) << i;
        m.quotes |= high_bits(bytes_within(low, '\'', '\'' + 1)) << i;
        m.ascii |= high_bits(~x) << i;
    }
    return m;
}
#endif

/* Writes the position of each mark, counted from `at`, and returns how many there are. */
static inline int mark_positions(uint64_t marks, size_t at, size_t out[BLOCK]) {
    const int n = __builtin_popcountll(marks);
#if defined(__AVX512VBMI2__)
    static const uint8_t each[BLOCK] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                        16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
                                        32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47,
                                        48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
    uint8_t positions[BLOCK];
    const __m512i x = _mm512_maskz_compress_epi8(marks, _mm512_loadu_si512(each)),
                  base = _mm512_set1_epi64((int64_t)at);
    const __m128i first = _mm512_castsi512_si128(x);
    _mm512_storeu_si512(out, _mm512_add_epi64(_mm512_cvtepu8_epi64(first), base));
    _mm512_storeu_si512(out + 8, _mm512_add_epi64(_mm512_cvtepu8_epi64(_mm_srli_si128(first, 8)), base));
    if (n > 16) _mm512_storeu_si512(positions, x);
    for (int i = 16; i < n; i++)
        out[i] = at + positions[i];
#else
    for (int i = 0; i < n; i++, marks &= marks - 1)
        out[i] = at + (size_t)__builtin_ctzll(marks);
#endif
    return n;
}

/* Ends of the words of a block that begins with a word, as far as its bytes determine them: up to a character outside
 * ASCII. A word begins where the class changes, but not after a blank, and at the last of several spaces. Inside a
 * contraction no word begins, but after it one does. *last is the last end, which the next block needs before the ends
 * are written. */
static int gpt2_block(const struct scan *s, size_t at, size_t ends[BLOCK], size_t *last, size_t *decided) {
    const struct marks m = mark_block(s->text + at);
    const uint64_t others = ~(m.letters | m.numbers | m.spaces);
    const uint64_t same = (m.letters & m.letters << 1) | (m.numbers & m.numbers << 1) | (m.spaces & m.spaces << 1) |
                          (others & others << 1);
    uint64_t begins = (~same & ~(m.blanks << 1 & ~m.spaces)) | (m.spaces & ~(m.spaces >> 1));
    *decided = ~m.ascii ? (size_t)__builtin_ctzll(~m.ascii) : BLOCK;
    if (*decided < 3) return 0;
    const uint64_t inside = (UINT64_C(1) << (*decided - 1)) - 1;
    for (uint64_t left = m.quotes & (begins | 1) & inside; left; left &= left - 1) {
        const size_t quote = (size_t)__builtin_ctzll(left), end = tokenizer_scan_contraction(s, at + quote, false);
        if (!end) continue;
        const uint64_t after = end - at < BLOCK ? UINT64_C(1) << (end - at) : 0; /* 0: the next block has it */
        begins = (begins & ~(after - (UINT64_C(2) << quote))) | after;
    }
    begins &= inside & ~UINT64_C(1);
    *last = at + BLOCK - 1 - (size_t)__builtin_clzll(begins | 1);
    return mark_positions(begins, at, ends);
}

int scanner_words(enum scanner scanner, const uint8_t *classes, const char *text, size_t bytes, size_t at,
                  size_t ends[SCANNER_WORDS_MAX]) {
    const struct scan s = {classes, text, bytes};
    int n = 0;
    while (n < SCANNER_WORDS_MAX - BLOCK && at < bytes) {
        size_t decided = 0, block = at;
        if (scanner == SCANNER_GPT2 && bytes - at >= BLOCK) {
            const int found = gpt2_block(&s, at, ends + n, &at, &decided);
            n += found;
            if (found > 0 && decided == BLOCK) continue;
        }
        do { /* a long word, the end of the text, or what is left of a block with other characters */
            at += scanner_next(scanner, classes, text, bytes, at);
            ends[n++] = at;
        } while (decided < BLOCK && at < bytes && at - block < BLOCK);
    }
    return n;
}
