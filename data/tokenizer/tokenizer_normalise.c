/* tokenizer_normalise.c -- Unicode normal forms, and the text changes (Prepend, Replace) of a normalizer.
 *
 * ASCII does not change under a normal form, and does not compose with the character before it. So only ranges with
 * other characters are processed, each from the ASCII character before it, with which a mark may compose. utf8proc
 * decomposes and composes. The canonical ordering between these steps is computed here, because utf8proc's needs
 * quadratic time for a run of marks. */
#include "base/memory.h"
#include "data/tokenizer/tokenizer_internal.h"
#include "data/tokenizer/utf8.h"
#include <assert.h>
#include <string.h>
#include <utf8proc.h>

enum { INSERTION_MAX = 16, CLASSES = 256 };

/* Characters that Unicode added after version 9 and that have a decomposition, a combining class or a part in a
 * composition. The package `tokenizers` has the normal forms of version 9, in which they are starters that never
 * change. */
static const struct {
    uint32_t first, last;
} newer[] = {{0x7FD, 0x7FD},     {0x897, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
             {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
             {0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},   {0xA82C, 0xA82C},   {0xAB69, 0xAB69},   {0x105C9, 0x105C9},
             {0x105D2, 0x105D2}, {0x105DA, 0x105DA}, {0x105E4, 0x105E4}, {0x10781, 0x10785}, {0x10787, 0x107B0},
             {0x107B2, 0x107BA}, {0x10D24, 0x10D27}, {0x10D69, 0x10D6D}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF},
             {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x11382, 0x11385},
             {0x1138B, 0x1138B}, {0x1138E, 0x1138E}, {0x11390, 0x11391}, {0x113B8, 0x113B8}, {0x113BB, 0x113BB},
             {0x113C2, 0x113C2}, {0x113C5, 0x113C5}, {0x113C7, 0x113C9}, {0x113CE, 0x113D0}, {0x1145E, 0x1145E},
             {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x11935, 0x11935}, {0x11938, 0x11938}, {0x1193D, 0x1193E},
             {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99},
             {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x1611E, 0x16129},
             {0x1612F, 0x1612F}, {0x16D63, 0x16D63}, {0x16D67, 0x16D6A}, {0x16FF0, 0x16FF1}, {0x1CCD6, 0x1CCF9},
             {0x1E030, 0x1E06D}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
             {0x1E4EC, 0x1E4EF}, {0x1E5EE, 0x1E5EF}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9}};

static bool is_newer(uint32_t code) {
    size_t low = 0, high = ARRAY_LEN(newer);
    while (low < high) { /* finds the first range that ends at or after the code */
        const size_t middle = (low + high) / 2;
        if (newer[middle].last < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < ARRAY_LEN(newer) && newer[low].first <= code;
}

static bool is_form(enum normal_kind kind) {
    return kind <= NORMAL_NFKD;
}

/* Text below U+0300 (a lead byte below 0xCC) is in NFC. NFKC changes some Latin-1 characters, so only ASCII is
 * unchanged by it. */
static bool already_normal(enum normal_kind kind, const char *text, size_t bytes) {
    uint8_t limit = kind == NORMAL_NFC ? 0xCC : 0x80, highest = 0;
    for (size_t i = 0; i < bytes; i++)
        highest = (uint8_t)text[i] > highest ? (uint8_t)text[i] : highest;
    return highest < limit;
}

static int mark_class(uint32_t code) {
    return code < 0x300 ? 0 : utf8proc_get_property((int32_t)code)->combining_class;
}

/* Sorts a run of marks by combining class, stably; scratch [n]. */
static void order_run(uint32_t *codes, size_t n, uint32_t *scratch) {
    if (n <= INSERTION_MAX) {
        for (size_t i = 1; i < n; i++) {
            uint32_t code = codes[i];
            int class = mark_class(code);
            size_t k = i;
            for (; k > 0 && mark_class(codes[k - 1]) > class; k--)
                codes[k] = codes[k - 1];
            codes[k] = code;
        }
        return;
    }
    size_t start[CLASSES + 1] = {0};
    for (size_t i = 0; i < n; i++)
        start[mark_class(codes[i]) + 1]++;
    for (int c = 0; c < CLASSES; c++)
        start[c + 1] += start[c];
    for (size_t i = 0; i < n; i++)
        scratch[start[mark_class(codes[i])]++] = codes[i];
    memcpy(codes, scratch, n * sizeof *codes);
}

static void order_marks(uint32_t *codes, size_t n, uint32_t *scratch) {
    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end < n && mark_class(codes[end]) > 0)
            end++;
        order_run(codes + i, end - i, scratch);
        i = end + (end == i);
    }
}

/* Returns the length of the text up to the first newer character, or all of it. */
static size_t before_newer(const char *text, size_t bytes) {
    int length;
    for (size_t i = 0; i < bytes; i += (size_t)length)
        if (is_newer(utf8_decode(text + i, &length))) return i;
    return bytes;
}

/* Appends one range of text after decomposing, ordering and composing it. */
static enum status normalise_stretch(struct tokenizer_scratch *s, struct bytes *out, enum normal_kind kind,
                                     const char *text, size_t bytes) {
    enum { LONGEST = 18 }; /* code points of the longest decomposition (U+FDFA) */
    bool compose = kind == NORMAL_NFC || kind == NORMAL_NFKC;
    int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    if (kind == NORMAL_NFKC || kind == NORMAL_NFKD) options |= UTF8PROC_COMPAT;
    size_t n = 0;
    int length, boundary = 0;
    for (size_t i = 0; i < bytes; i += (size_t)length) {
        if (s->codes_capacity < n + LONGEST) TRY(memory_grow(&s->codes, &s->codes_capacity, n + LONGEST));
        uint32_t code = utf8_decode(text + i, &length);
        ptrdiff_t made = utf8proc_decompose_char((int32_t)code, (int32_t *)s->codes + n,
                                                 (ptrdiff_t)(s->codes_capacity - n), options, &boundary);
        assert(made >= 0 && (size_t)made <= s->codes_capacity - n);
        n += (size_t)made;
    }
    /* the second half of the buffer is the sort's scratch */
    TRY(memory_grow(&s->codes, &s->codes_capacity, 2 * n));
    order_marks(s->codes, n, s->codes + n);
    if (compose) {
        ptrdiff_t made =
            utf8proc_normalize_utf32((int32_t *)s->codes, (ptrdiff_t)n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        assert(made >= 0);
        n = (size_t)made;
    }
    for (size_t i = 0; i < n; i++) {
        char encoded[4];
        TRY(bytes_append(out, encoded, (size_t)utf8_encode(encoded, s->codes[i])));
    }
    return STATUS_OK;
}

static enum status normalise_form(struct tokenizer_scratch *s, struct bytes *out, enum normal_kind kind,
                                  const char *text, size_t bytes) {
    out->size = 0;
    for (size_t i = 0; i < bytes;) {
        size_t other = i;
        while (other < bytes && (uint8_t)text[other] < 0x80)
            other++;
        size_t base = other > i && other < bytes ? other - 1 : other;
        TRY(bytes_append(out, text + i, base - i));
        size_t end = other;
        while (end < bytes && (uint8_t)text[end] >= 0x80)
            end++;
        for (int length; base < end; base += (size_t)length) {
            const size_t known = before_newer(text + base, end - base);
            TRY(normalise_stretch(s, out, kind, text + base, known));
            base += known;
            if (base == end) break;
            (void)utf8_decode(text + base, &length);
            TRY(bytes_append(out, text + base, (size_t)length));
        }
        i = end;
    }
    return STATUS_OK;
}

static enum status replace_literal(struct bytes *out, const struct normal *n, const char *text, size_t bytes) {
    size_t i = 0;
    while (i < bytes) {
        const char *hit = memmem(text + i, bytes - i, n->from.data, n->from.size);
        size_t plain = hit ? (size_t)(hit - text) - i : bytes - i;
        TRY(bytes_append(out, text + i, plain));
        i += plain;
        if (!hit) break;
        TRY(bytes_append(out, n->to.data, n->to.size));
        i += n->from.size;
    }
    return STATUS_OK;
}

static enum status replace_regex(struct tokenizer_scratch *s, struct bytes *out, const struct normal *n,
                                 const char *text, size_t bytes) {
    size_t copied = 0, at = 0;
    while (at <= bytes) {
        bool found;
        size_t begin, end;
        TRY(regex_search(n->regex, s->regex, text, bytes, at, &found, &begin, &end));
        if (!found) break;
        assert(end > begin); /* other patterns are refused */
        TRY(bytes_append(out, text + copied, begin - copied));
        TRY(bytes_append(out, n->to.data, n->to.size));
        copied = at = end;
    }
    return bytes_append(out, text + copied, bytes - copied);
}

enum status tokenizer_normalise(const struct tokenizer *t, struct tokenizer_scratch *s, const char **text,
                                size_t *bytes) {
    for (int i = 0; i < t->n_normals; i++) {
        const struct normal *n = &t->normals[i];
        if (*bytes == 0 || (is_form(n->kind) && already_normal(n->kind, *text, *bytes))) continue;
        struct bytes *out = &s->normal[*text == s->normal[0].data];
        out->size = 0;
        if (is_form(n->kind)) {
            TRY(normalise_form(s, out, n->kind, *text, *bytes));
        } else if (n->kind == NORMAL_PREPEND) {
            TRY(bytes_append(out, n->to.data, n->to.size));
            TRY(bytes_append(out, *text, *bytes));
        } else if (n->regex) { /* also while a tokenizer is opened, before any encoding */
            if (!s->regex) TRY(regex_scratch_create(&s->regex));
            TRY(replace_regex(s, out, n, *text, *bytes));
        } else {
            TRY(replace_literal(out, n, *text, *bytes));
        }
        *text = out->data;
        *bytes = out->size;
    }
    return STATUS_OK;
}
