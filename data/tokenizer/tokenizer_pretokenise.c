/* tokenizer_pretokenise.c -- divides a normalised segment into words, in the steps that the file lists.
 *
 * Most tokenizers have one step, a scanner, which is fused with the merges and makes no list of pieces. Each other step
 * makes a list of pieces from the previous list. Steps that change text (a space or mark before it) copy it. */
#include "base/memory.h"
#include "data/tokenizer/tokenizer_internal.h"
#include "data/tokenizer/utf8.h"
#include <string.h>

static enum status push_piece(struct pieces *out, const char *text, size_t begin, size_t end, bool first) {
    if (end == begin) return STATUS_OK;
    TRY(memory_grow(&out->items, &out->capacity, out->count + 1));
    out->items[out->count++] = (struct piece){text + begin, end - begin, first && begin == 0};
    return STATUS_OK;
}

/* ---- splitting: matches and what lies between them, grouped by the behaviour --------------------------------- */

struct cutter {
    const struct step *step;
    struct pieces *out;
    struct piece piece;
    size_t begin, end; /* the part that may still grow */
    bool open, previous_match;
};

static enum status close_part(struct cutter *c) {
    if (c->open) TRY(push_piece(c->out, c->piece.text, c->begin, c->end, c->piece.first));
    c->open = false;
    return STATUS_OK;
}

/* Adds the parts, which come in order and cover the piece. For SPLIT_NEXT a match is kept until the part after it. The
 * matches of a run then stay separate, except the last, because the rule mirrors that of SPLIT_PREVIOUS. */
static enum status add_part(struct cutter *c, size_t begin, size_t end, bool is_match) {
    is_match ^= c->step->invert;
    bool grow = false;
    switch (c->step->behaviour) {
    case SPLIT_REMOVED:
        if (is_match) return close_part(c);
        break;
    case SPLIT_ISOLATED:
        break;
    case SPLIT_PREVIOUS:
        grow = is_match && !c->previous_match;
        break;
    case SPLIT_NEXT:
        grow = !is_match && c->previous_match;
        break;
    case SPLIT_CONTIGUOUS:
        grow = is_match == c->previous_match;
        break;
    }
    c->previous_match = is_match;
    if (grow && c->open) {
        c->end = end;
        return STATUS_OK;
    }
    TRY(close_part(c));
    c->begin = begin;
    c->end = end;
    c->open = true;
    return STATUS_OK;
}

/* Finds the next match of a literal, a number, or a word of a known scanner. *begin = bytes: there is none. */
static void find_simple(const struct tokenizer *t, const struct step *step, const struct piece *p, size_t at,
                        size_t *begin, size_t *end) {
    if (step->kind == STEP_SCAN) {
        *begin = at;
        *end = at + scanner_next(step->scanner, t->classes, p->text, p->bytes, at);
        return;
    }
    if (step->kind == STEP_LITERAL) {
        const char *hit = memmem(p->text + at, p->bytes - at, step->literal.data, step->literal.size);
        *begin = hit ? (size_t)(hit - p->text) : p->bytes;
        *end = hit ? *begin + step->literal.size : p->bytes;
        return;
    }
    int length = 1;
    for (*begin = at; *begin < p->bytes; *begin += (size_t)length)
        if (t->classes[utf8_decode(p->text + *begin, &length)] == CLASS_NUMBER) break;
    *end = *begin < p->bytes ? *begin + (size_t)length : p->bytes;
}

static enum status cut_simple(const struct tokenizer *t, struct cutter *c) {
    for (size_t at = 0; at < c->piece.bytes;) {
        size_t begin, end;
        find_simple(t, c->step, &c->piece, at, &begin, &end);
        if (begin > at) TRY(add_part(c, at, begin, false));
        if (begin < c->piece.bytes) TRY(add_part(c, begin, end, true));
        at = end;
    }
    return close_part(c);
}

/* As in the reference's find_iter, an empty match directly after the last match is skipped. */
static enum status cut_regex(struct tokenizer_scratch *s, struct cutter *c) {
    size_t at = 0, previous = 0;
    bool any = false;
    size_t last_end = 0;
    while (at <= c->piece.bytes) {
        bool found;
        size_t begin, end;
        TRY(regex_search(c->step->regex, s->regex, c->piece.text, c->piece.bytes, at, &found, &begin, &end));
        if (!found) break;
        if (begin == end && any && last_end == end) {
            int length = 1;
            if (at < c->piece.bytes) (void)utf8_decode(c->piece.text + at, &length);
            at += (size_t)length;
            continue;
        }
        at = last_end = end;
        any = true;
        if (begin > previous) TRY(add_part(c, previous, begin, false));
        TRY(add_part(c, begin, end, true));
        previous = end;
    }
    if (previous < c->piece.bytes) TRY(add_part(c, previous, c->piece.bytes, false));
    return close_part(c);
}

/* ---- changing text -------------------------------------------------------------------------------------------- */

static bool starts_with(const struct piece *p, const struct bytes *prefix) {
    return p->bytes >= prefix->size && memcmp(p->text, prefix->data, prefix->size) == 0;
}

/* Replaces spaces by the mark. */
static enum status append_marked(struct bytes *out, const char *text, size_t bytes, const struct bytes *mark) {
    for (size_t i = 0; i < bytes;) {
        const char *space = memchr(text + i, ' ', bytes - i);
        size_t plain = space ? (size_t)(space - text) - i : bytes - i;
        TRY(bytes_append(out, text + i, plain));
        i += plain;
        if (!space) break;
        TRY(bytes_append(out, mark->data, mark->size));
        i++;
    }
    return STATUS_OK;
}

static enum status change_text(const struct step *step, struct bytes *text, struct pieces *out,
                               const struct pieces *in) {
    text->size = 0;
    out->count = 0;
    TRY(memory_grow(&out->items, &out->capacity, in->count));
    for (size_t i = 0; i < in->count; i++) {
        const struct piece *p = &in->items[i];
        size_t start = text->size;
        if (step->kind == STEP_PREFIX_SPACE) {
            if (p->text[0] != ' ') TRY(bytes_append(text, " ", 1));
            TRY(bytes_append(text, p->text, p->bytes));
        } else {
            bool wanted = step->prepend == PREPEND_ALWAYS || (step->prepend == PREPEND_FIRST && p->first);
            if (wanted && p->text[0] != ' ' && !starts_with(p, &step->literal))
                TRY(bytes_append(text, step->literal.data, step->literal.size));
            TRY(append_marked(text, p->text, p->bytes, &step->literal));
        }
        out->items[i] = (struct piece){.bytes = text->size - start, .first = p->first};
    }
    out->count = in->count;
    const char *at = text->data; /* from here on the buffer does not move */
    for (size_t i = 0; i < out->count; at += out->items[i++].bytes)
        out->items[i].text = at;
    return STATUS_OK;
}

/* ---- the last step, and all ------------------------------------------------------------------------------------ */

/* Divides before each U+2581 that follows another character. No merge crosses this position, so the ids are the same,
 * and the pieces are words that the cache can contain. */
static enum status encode_marked(const struct tokenizer *t, struct tokenizer_scratch *s, const char *text,
                                 size_t bytes) {
    static const char mark[] = "\xE2\x96\x81";
    size_t start = 0, at = 0;
    while (at < bytes) {
        while (bytes - at >= 3 && memcmp(text + at, mark, 3) == 0)
            at += 3;
        const char *next = memmem(text + at, bytes - at, mark, 3);
        at = next ? (size_t)(next - text) : bytes;
        TRY(bpe_encode(t, s, text + start, at - start));
        start = at;
    }
    return STATUS_OK;
}

static enum status encode_piece(const struct tokenizer *t, struct tokenizer_scratch *s, const char *text,
                                size_t bytes) {
    if (t->scanner != SCANNER_NONE) return bpe_encode_scanned(t, s, text, bytes);
    if (t->cut_at_space) return encode_marked(t, s, text, bytes);
    return bpe_encode(t, s, text, bytes);
}

enum status tokenizer_pretokenise(const struct tokenizer *t, struct tokenizer_scratch *s, const char *text,
                                  size_t bytes, bool first) {
    if (t->n_steps == 0) return encode_piece(t, s, text, bytes);
    struct pieces *in = &s->pieces[0], *out = &s->pieces[1];
    in->count = 0;
    TRY(push_piece(in, text, 0, bytes, first));
    int rewrites = 0;
    for (int i = 0; i < t->n_steps; i++) {
        const struct step *step = &t->steps[i];
        if (step->kind == STEP_PREFIX_SPACE || step->kind == STEP_METASPACE) {
            TRY(change_text(step, &s->rewritten[rewrites++ & 1], out, in));
        } else {
            out->count = 0;
            for (size_t k = 0; k < in->count; k++) {
                struct cutter c = {.step = step, .out = out, .piece = in->items[k]};
                TRY(step->kind == STEP_REGEX ? cut_regex(s, &c) : cut_simple(t, &c));
            }
        }
        struct pieces *swap = in;
        in = out;
        out = swap;
    }
    for (size_t k = 0; k < in->count; k++)
        TRY(encode_piece(t, s, in->items[k].text, in->items[k].bytes));
    return STATUS_OK;
}
