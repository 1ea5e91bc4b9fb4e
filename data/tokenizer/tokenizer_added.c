/* tokenizer_added.c -- finds added tokens in a text: the leftmost, and if several begin there the longest, as the
 * reference does.
 *
 * There are few tokens (one to some thousand), sorted by spelling. A search reads the text byte by byte and narrows the
 * range of tokens that still match. Text without a first byte of any token is skipped at memory speed. */
#include "base/memory.h"
#include "data/tokenizer/tokenizer_internal.h"
#include "data/tokenizer/utf8.h"
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

struct sort_item {
    const char *text;
    struct added added;
};

static int compare_items(const void *a, const void *b) {
    const struct sort_item *x = a, *y = b;
    size_t n = x->added.bytes < y->added.bytes ? x->added.bytes : y->added.bytes;
    int order = memcmp(x->text, y->text, n);
    return order ? order : (x->added.bytes > y->added.bytes) - (x->added.bytes < y->added.bytes);
}

static enum status fill_set(struct added_set *set, struct tokenizer *t, struct tokenizer_scratch *s,
                            const struct added *items, const struct bytes *text, int count, bool normalized) {
    struct sort_item *sorted = NULL;
    struct bytes spellings = {0};
    enum status status;
    int n = 0;
    TRY_GOTO(status, memory_allocate(&sorted, (size_t)count), out);
    for (int i = 0; i < count; i++) {
        if (items[i].normalized != normalized) continue;
        const char *at = text->data + items[i].at;
        size_t bytes = items[i].bytes;
        if (normalized) TRY_GOTO(status, tokenizer_normalise(t, s, &at, &bytes), out);
        if (bytes == 0) continue;
        sorted[n].added = items[i];
        sorted[n].added.at = (uint32_t)spellings.size;
        sorted[n++].added.bytes = (uint32_t)bytes;
        TRY_GOTO(status, bytes_append(&spellings, at, bytes), out);
    }
    for (int i = 0; i < n; i++)
        sorted[i].text = spellings.data + sorted[i].added.at;
    qsort(sorted, (size_t)n, sizeof *sorted, compare_items);
    TRY_GOTO(status, memory_allocate(&set->items, (size_t)n), out);
    set->count = n;
    int byte = 0;
    for (int i = 0; i < n; i++) {
        set->items[i] = sorted[i].added;
        set->count_plain += !sorted[i].added.special;
        while (byte <= (uint8_t)sorted[i].text[0])
            set->begin[byte++] = i;
    }
    while (byte <= 256)
        set->begin[byte++] = n;
    set->text = spellings;
    spellings = (struct bytes){0};
out:
    memory_free(sorted);
    bytes_free(&spellings);
    return status;
}

enum status added_prepare(struct tokenizer *t, struct tokenizer_scratch *s, const struct added *items,
                          const struct bytes *text, int count) {
    TRY(fill_set(&t->added[0], t, s, items, text, count, false));
    return fill_set(&t->added[1], t, s, items, text, count, true);
}

/* The longest token that starts at text[at]; NULL: none. */
static const struct added *match_at(const struct added_set *set, const char *text, size_t bytes, size_t at) {
    int low = set->begin[(uint8_t)text[at]], high = set->begin[(uint8_t)text[at] + 1];
    const struct added *longest = NULL;
    for (size_t depth = 1; low < high; depth++) {
        if (set->items[low].bytes == depth) {
            longest = &set->items[low];
            while (low < high && set->items[low].bytes == depth) /* of equal spellings the first one is used */
                low++;
        }
        if (at + depth == bytes) break;
        uint8_t wanted = (uint8_t)text[at + depth];
        int left = low, right = high;
        while (left < right) { /* finds the first token with at least the wanted byte at this depth */
            int middle = (left + right) / 2;
            if ((uint8_t)set->text.data[set->items[middle].at + depth] < wanted)
                left = middle + 1;
            else
                right = middle;
        }
        low = left;
        right = high;
        while (left < right) { /* finds the first token with a greater byte */
            int middle = (left + right) / 2;
            if ((uint8_t)set->text.data[set->items[middle].at + depth] <= wanted)
                left = middle + 1;
            else
                right = middle;
        }
        high = left;
    }
    return longest;
}

static bool is_space(uint32_t code) {
    if ((code >= 9 && code <= 13) || code == 0x85) return true;
    utf8proc_category_t c = utf8proc_category((int32_t)code);
    return c == UTF8PROC_CATEGORY_ZS || c == UTF8PROC_CATEGORY_ZL || c == UTF8PROC_CATEGORY_ZP;
}

/* \w of Unicode: letters, marks, decimal digits, letter numbers, connectors, the two joiners, circled letters. */
static bool is_word(uint32_t code) {
    if (code == 0x200C || code == 0x200D || (code >= 0x24B6 && code <= 0x24E9)) return true;
    utf8proc_category_t c = utf8proc_category((int32_t)code);
    return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_NL) || c == UTF8PROC_CATEGORY_PC;
}

static size_t previous_character(const char *text, size_t at) {
    do
        at--;
    while (at > 0 && ((uint8_t)text[at] & 0xC0) == 0x80);
    return at;
}

static bool word_before(const char *text, size_t at) {
    int length;
    return at > 0 && is_word(utf8_decode(text + previous_character(text, at), &length));
}

static bool word_behind(const char *text, size_t bytes, size_t at) {
    int length;
    return at < bytes && is_word(utf8_decode(text + at, &length));
}

static size_t spaces_before(const char *text, size_t at, size_t limit) {
    int length;
    while (at > limit) {
        size_t previous = previous_character(text, at);
        if (!is_space(utf8_decode(text + previous, &length))) break;
        at = previous;
    }
    return at;
}

static size_t spaces_behind(const char *text, size_t bytes, size_t at) {
    int length;
    while (at < bytes && is_space(utf8_decode(text + at, &length)))
        at += (size_t)length;
    return at;
}

enum status added_split(const struct added_set *set, struct tokenizer_scratch *s, const char *text, size_t bytes,
                        bool first, enum tokenizer_specials specials, added_segment *segment, void *context) {
    size_t start = 0;
    bool any = specials == TOKENIZER_LITERAL ? set->count_plain > 0 : set->count > 0;
    for (size_t at = 0; any && at < bytes;) {
        const struct added *a = NULL;
        if (set->begin[(uint8_t)text[at]] < set->begin[(uint8_t)text[at] + 1]) a = match_at(set, text, bytes, at);
        if (!a) {
            at++;
            continue;
        }
        size_t begin = at, end = at + a->bytes;
        at = end; /* a rejected match is skipped, too */
        if (specials == TOKENIZER_LITERAL && a->special) continue;
        if (a->single_word && (word_before(text, begin) || word_behind(text, bytes, end))) continue;
        if (a->lstrip) begin = begin > start ? spaces_before(text, begin, start) : start;
        if (a->rstrip) end = spaces_behind(text, bytes, end);
        if (begin == end) continue; /* the previous token includes these spaces, so this match is empty */
        if (start < begin) TRY(segment(context, text + start, begin - start, first && start == 0));
        TRY(memory_grow(&s->ids, &s->ids_capacity, s->n_ids + 1));
        s->ids[s->n_ids++] = a->id;
        start = end;
    }
    return start < bytes ? segment(context, text + start, bytes - start, first && start == 0) : STATUS_OK;
}
