/* wordpiece_text.c -- divides a text into words of code points as BERT's tokenizer does.
 *
 * In this order: control characters are dropped and white space becomes a break; a Chinese character gets a break on
 * both sides; accents are removed (canonical decomposition without nonspacing marks); letters become lower case;
 * punctuation gets a break on both sides. */
#include "base/memory.h"
#include "data/tokenizer/utf8.h"
#include "data/wordpiece/wordpiece_internal.h"
#include <assert.h>
#include <utf8proc.h>

enum { LONGEST = 18 }; /* code points of the longest decomposition */

static bool is_space(uint32_t c) {
    if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
    int category = utf8proc_category((int32_t)c);
    return c == 0x85 || category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
           category == UTF8PROC_CATEGORY_ZP;
}

/* Categories Cc, Cf, Cs and Co, but not the three that count as white space. Unassigned characters stay, because each
 * version of Unicode assigns more of them. */
static bool is_control(uint32_t c) {
    if (c == '\t' || c == '\n' || c == '\r') return false;
    if (c < 0x80) return c < 0x20 || c == 0x7F;
    int category = utf8proc_category((int32_t)c);
    return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CS ||
           category == UTF8PROC_CATEGORY_CO;
}

static bool is_chinese(uint32_t c) {
    static const struct {
        uint32_t first, last;
    } blocks[] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
                  {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
    for (size_t i = 0; i < ARRAY_LEN(blocks) && c >= 0x3400; i++)
        if (c >= blocks[i].first && c <= blocks[i].last) return true;
    return false;
}

static bool is_punctuation(uint32_t c) {
    if (c < 0x80) return c > ' ' && c < 0x7F && !(c >= '0' && c <= '9') && !((c | 32) >= 'a' && (c | 32) <= 'z');
    int category = utf8proc_category((int32_t)c);
    return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

/* Adds a break, except at the start or after another break. */
static void put_break(struct wordpiece_scratch *s) {
    if (s->n_codes > 0 && s->codes[s->n_codes - 1] != 0) s->codes[s->n_codes++] = 0;
}

static int mark_class(uint32_t c) {
    return c < 0x300 ? 0 : utf8proc_get_property((int32_t)c)->combining_class;
}

/* Adds a character. Removing accents also puts the other marks into canonical order: a mark moves before marks of a
 * higher class. Words beyond the limit are [UNK] in any order. */
static void put_ordered(struct wordpiece_scratch *s, struct wordpiece_options o, uint32_t c) {
    size_t at = s->n_codes++, steps = 0;
    int class = o.strip_accents ? mark_class(c) : 0;
    for (; class > 0 && at > 0 && mark_class(s->codes[at - 1]) > class && steps < WORDPIECE_WORD_MAX; at--, steps++)
        s->codes[at] = s->codes[at - 1];
    s->codes[at] = c;
}

/* Adds the result of one character of the text. */
static void put_character(struct wordpiece_scratch *s, struct wordpiece_options o, uint32_t c) {
    if (o.lower && c == 0x130) { /* the only letter whose lower case has two code points */
        put_ordered(s, o, 'i');
        if (!o.strip_accents) put_ordered(s, o, 0x307);
        return;
    }
    if (o.lower) c = (uint32_t)utf8proc_tolower((int32_t)c);
    if (is_space(c)) {
        put_break(s);
        return;
    }
    bool alone = is_punctuation(c);
    if (alone) put_break(s);
    put_ordered(s, o, c);
    if (alone) put_break(s);
}

static void put_stripped(struct wordpiece_scratch *s, struct wordpiece_options o, uint32_t c) {
    int32_t parts[LONGEST] = {(int32_t)c};
    ptrdiff_t n = 1;
    int boundary = 0;
    if (o.strip_accents && c >= 0x80) {
        n = utf8proc_decompose_char((int32_t)c, parts, LONGEST, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, &boundary);
        assert(n >= 0 && n <= LONGEST);
    }
    for (ptrdiff_t i = 0; i < n; i++)
        if (!o.strip_accents || parts[i] < 0x80 || utf8proc_category(parts[i]) != UTF8PROC_CATEGORY_MN)
            put_character(s, o, (uint32_t)parts[i]);
}

enum status wordpiece_text(struct wordpiece_scratch *s, struct wordpiece_options o, const char *text, size_t bytes) {
    s->n_codes = 0;
    for (size_t at = 0; at < bytes;) {
        uint32_t c;
        bool cut;
        int length = utf8_check(text + at, bytes - at, &c, &cut);
        at += length > 0 ? (size_t)length : c;
        if (length == 0 || c == 0 || c == 0xFFFD || is_control(c)) continue;
        /* Each part of a decomposition may get breaks on both sides. */
        TRY(memory_grow(&s->codes, &s->codes_capacity, s->n_codes + 3 * LONGEST + 2));
        bool alone = o.chinese && is_chinese(c);
        if (alone || is_space(c)) put_break(s);
        if (!is_space(c)) put_stripped(s, o, c);
        if (alone) put_break(s);
    }
    return STATUS_OK;
}
