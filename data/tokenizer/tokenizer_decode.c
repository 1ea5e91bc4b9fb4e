/* tokenizer_decode.c -- decodes ids, all at once or as they arrive. Both use the same code and give the same bytes.
 *
 * The text of each token is computed when the file is loaded. Byte-level tokens and fallback tokens give raw bytes,
 * which may be parts of characters. Up to three bytes are kept until the character is complete. Bytes that cannot
 * become a character give U+FFFD: one for each invalid sequence in byte-level text, one for each byte of fallback
 * tokens, as in the reference. (The reference also drops the valid characters in a run of fallback bytes with an
 * invalid one. A stream has returned them already, so they are kept here.) An id without a token gives U+FFFD. */
#include "data/tokenizer/tokenizer_internal.h"
#include "data/tokenizer/utf8.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

static const char replacement[] = "\xEF\xBF\xBD";

/* GPT-2's table: printable Latin-1 characters represent themselves, the other bytes are U+0100 and up, in order. */
const uint16_t byte_level_code[256] = {
    0x100, 0x101, 0x102, 0x103, 0x104, 0x105, 0x106, 0x107, 0x108, 0x109, 0x10A, 0x10B, 0x10C, 0x10D, 0x10E, 0x10F,
    0x110, 0x111, 0x112, 0x113, 0x114, 0x115, 0x116, 0x117, 0x118, 0x119, 0x11A, 0x11B, 0x11C, 0x11D, 0x11E, 0x11F,
    0x120, 0x021, 0x022, 0x023, 0x024, 0x025, 0x026, 0x027, 0x028, 0x029, 0x02A, 0x02B, 0x02C, 0x02D, 0x02E, 0x02F,
    0x030, 0x031, 0x032, 0x033, 0x034, 0x035, 0x036, 0x037, 0x038, 0x039, 0x03A, 0x03B, 0x03C, 0x03D, 0x03E, 0x03F,
    0x040, 0x041, 0x042, 0x043, 0x044, 0x045, 0x046, 0x047, 0x048, 0x049, 0x04A, 0x04B, 0x04C, 0x04D, 0x04E, 0x04F,
    0x050, 0x051, 0x052, 0x053, 0x054, 0x055, 0x056, 0x057, 0x058, 0x059, 0x05A, 0x05B, 0x05C, 0x05D, 0x05E, 0x05F,
    0x060, 0x061, 0x062, 0x063, 0x064, 0x065, 0x066, 0x067, 0x068, 0x069, 0x06A, 0x06B, 0x06C, 0x06D, 0x06E, 0x06F,
    0x070, 0x071, 0x072, 0x073, 0x074, 0x075, 0x076, 0x077, 0x078, 0x079, 0x07A, 0x07B, 0x07C, 0x07D, 0x07E, 0x121,
    0x122, 0x123, 0x124, 0x125, 0x126, 0x127, 0x128, 0x129, 0x12A, 0x12B, 0x12C, 0x12D, 0x12E, 0x12F, 0x130, 0x131,
    0x132, 0x133, 0x134, 0x135, 0x136, 0x137, 0x138, 0x139, 0x13A, 0x13B, 0x13C, 0x13D, 0x13E, 0x13F, 0x140, 0x141,
    0x142, 0x0A1, 0x0A2, 0x0A3, 0x0A4, 0x0A5, 0x0A6, 0x0A7, 0x0A8, 0x0A9, 0x0AA, 0x0AB, 0x0AC, 0x143, 0x0AE, 0x0AF,
    0x0B0, 0x0B1, 0x0B2, 0x0B3, 0x0B4, 0x0B5, 0x0B6, 0x0B7, 0x0B8, 0x0B9, 0x0BA, 0x0BB, 0x0BC, 0x0BD, 0x0BE, 0x0BF,
    0x0C0, 0x0C1, 0x0C2, 0x0C3, 0x0C4, 0x0C5, 0x0C6, 0x0C7, 0x0C8, 0x0C9, 0x0CA, 0x0CB, 0x0CC, 0x0CD, 0x0CE, 0x0CF,
    0x0D0, 0x0D1, 0x0D2, 0x0D3, 0x0D4, 0x0D5, 0x0D6, 0x0D7, 0x0D8, 0x0D9, 0x0DA, 0x0DB, 0x0DC, 0x0DD, 0x0DE, 0x0DF,
    0x0E0, 0x0E1, 0x0E2, 0x0E3, 0x0E4, 0x0E5, 0x0E6, 0x0E7, 0x0E8, 0x0E9, 0x0EA, 0x0EB, 0x0EC, 0x0ED, 0x0EE, 0x0EF,
    0x0F0, 0x0F1, 0x0F2, 0x0F3, 0x0F4, 0x0F5, 0x0F6, 0x0F7, 0x0F8, 0x0F9, 0x0FA, 0x0FB, 0x0FC, 0x0FD, 0x0FE, 0x0FF,
};

int byte_level_byte(uint32_t code) {
    if (code < 256) return byte_level_code[code] == code ? (int)code : -1;
    if (code > 0x143) return -1;
    uint32_t n = code - 256;
    if (n <= 32) return (int)n;
    if (n <= 66) return (int)(n + 94); /* 127 to 160 */
    return n == 67 ? 173 : -1;
}

static enum status append_replaced(struct bytes *out, const struct tokenizer *t, const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes;) {
        const struct bytes *from = &t->decode_from;
        const char *hit = t->n_decode_replaces ? memmem(text + i, bytes - i, from->data, from->size) : NULL;
        size_t plain = hit ? (size_t)(hit - text) - i : bytes - i;
        TRY(bytes_append(out, text + i, plain));
        i += plain;
        if (!hit) break;
        TRY(bytes_append(out, t->decode_to.data, t->decode_to.size));
        i += from->size;
    }
    return STATUS_OK;
}

/* Reads "<0x41>" as the reference does: two hexadecimal digits of either case. */
static int byte_token(const char *text, size_t bytes) {
    unsigned value;
    int used = 0;
    if (bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[3] == '+' || text[3] == '-' || text[3] == ' ') return -1;
    char copy[4] = {text[3], text[4], '\0'};
    return text[5] == '>' && sscanf(copy, "%2x%n", &value, &used) == 1 && used == 2 ? (int)value : -1;
}

static enum status append_byte_level(struct bytes *out, const char *text, size_t bytes) {
    size_t start = out->size;
    int length;
    for (size_t i = 0; i < bytes; i += (size_t)length) {
        int byte = byte_level_byte(utf8_decode(text + i, &length));
        if (byte < 0) { /* the spelling of any other token is its text */
            out->size = start;
            return bytes_append(out, text, bytes);
        }
        char c = (char)byte;
        TRY(bytes_append(out, &c, 1));
    }
    return STATUS_OK;
}

/* Appends the text of a token with this spelling. */
static enum status prepare_token(struct tokenizer *t, struct token *token, const char *text, size_t bytes) {
    size_t start = t->decoded.size;
    int byte = t->decode_bytes ? byte_token(text, bytes) : -1;
    if (byte >= 0) {
        char c = (char)byte;
        TRY(bytes_append(&t->decoded, &c, 1));
    } else if (t->decoder == DECODER_BYTE_LEVEL) {
        TRY(append_byte_level(&t->decoded, text, bytes));
    } else {
        TRY(append_replaced(&t->decoded, t, text, bytes));
    }
    if (t->decoded.size > UINT32_MAX) return tokenizer_refuse(t, "model", "more than 4 GiB of tokens");
    token->decoded_at = (uint32_t)start;
    token->decoded_bytes = (uint32_t)(t->decoded.size - start);
    return STATUS_OK;
}

enum status decode_prepare(struct tokenizer *t) {
    for (size_t id = 0; id < t->n_tokens; id++) {
        struct token *token = &t->tokens[id];
        if (token->flags & TOKEN_KNOWN) TRY(prepare_token(t, token, t->spellings.data + token->at, token->bytes));
    }
    /* An added token that is searched in normalised text has its normalised spelling. */
    const struct added_set *set = &t->added[1];
    for (int i = 0; i < set->count; i++)
        TRY(prepare_token(t, &t->tokens[set->items[i].id], set->text.data + set->items[i].at, set->items[i].bytes));
    return STATUS_OK;
}

/* Returns complete text. The first text of a sequence decoder may lose a space. */
static enum status tokenizer_decode_emit(const struct tokenizer *t, struct tokenizer_stream *st, struct bytes *out,
                                         const char *text, size_t bytes) {
    if (bytes == 0) return STATUS_OK;
    if (t->strip_space) {
        if (!st->started && text[0] == ' ') {
            text++;
            bytes--;
        }
        st->started = true;
    }
    return bytes_append(out, text, bytes);
}

/* Appends U+FFFD for an invalid sequence of this many bytes. */
static enum status emit_invalid(const struct tokenizer *t, struct tokenizer_stream *st, struct bytes *out,
                                size_t bytes) {
    for (size_t i = 0; i < (t->decode_bytes ? bytes : 1); i++)
        TRY(tokenizer_decode_emit(t, st, out, replacement, 3));
    return STATUS_OK;
}

static enum status tokenizer_decode_feed(const struct tokenizer *t, struct tokenizer_stream *st, struct bytes *out,
                                         const char *text, size_t bytes) {
    while (bytes > 0) {
        if (st->n_pending == 0) {
            size_t good = utf8_valid_prefix(text, bytes);
            TRY(tokenizer_decode_emit(t, st, out, text, good));
            text += good;
            bytes -= good;
            if (bytes == 0) break;
        }
        /* Adds one byte at a time, until the pending ones are a character or can no longer become one. */
        st->pending[st->n_pending++] = (uint8_t)*text++;
        bytes--;
        while (st->n_pending > 0) {
            uint32_t code;
            bool cut;
            const char *pending = (const char *)st->pending;
            int length = utf8_check(pending, (size_t)st->n_pending, &code, &cut);
            if (cut) break;
            int used = length ? length : (int)code;
            TRY(length ? tokenizer_decode_emit(t, st, out, pending, (size_t)length) : emit_invalid(t, st, out, code));
            st->n_pending -= used;
            memmove(st->pending, st->pending + used, (size_t)st->n_pending);
        }
    }
    return STATUS_OK;
}

static enum status tokenizer_decode_flush(const struct tokenizer *t, struct tokenizer_stream *st, struct bytes *out) {
    if (st->n_pending > 0) TRY(emit_invalid(t, st, out, (size_t)st->n_pending));
    st->n_pending = 0;
    return bytes_append(out, "", 0);
}

/* The marks of the first token are removed. */
static enum status push_metaspace_first(const struct tokenizer *t, struct tokenizer_stream *st, struct bytes *out,
                                        const struct token *token) {
    const char *text = t->spellings.data + token->at;
    size_t mark = t->decode_from.size;
    for (size_t i = 0; i < token->bytes;) {
        if (token->bytes - i >= mark && memcmp(text + i, t->decode_from.data, mark) == 0) {
            i += mark;
            continue;
        }
        TRY(tokenizer_decode_feed(t, st, out, text + i, 1));
        i++;
    }
    return STATUS_OK;
}

static enum status tokenizer_decode_push(const struct tokenizer *t, struct tokenizer_stream *st, struct bytes *out,
                                         int32_t id) {
    if (id < 0 || (size_t)id >= t->n_tokens || !(t->tokens[id].flags & TOKEN_KNOWN)) {
        TRY(tokenizer_decode_flush(t, st, out));
        return tokenizer_decode_emit(t, st, out, replacement, 3);
    }
    const struct token *token = &t->tokens[id];
    if (st->skip_special && (token->flags & TOKEN_SPECIAL)) return STATUS_OK;
    bool first = !st->started;
    if (!t->strip_space) st->started = true;
    if (t->decoder == DECODER_JOIN && !first) TRY(tokenizer_decode_feed(t, st, out, " ", 1));
    if (t->decoder == DECODER_METASPACE && first && t->metaspace_drop) return push_metaspace_first(t, st, out, token);
    return tokenizer_decode_feed(t, st, out, t->decoded.data + token->decoded_at, token->decoded_bytes);
}

const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *bytes) {
    if (id < 0 || (size_t)id >= t->n_tokens || !(t->tokens[id].flags & TOKEN_KNOWN)) return NULL;
    *bytes = t->tokens[id].decoded_bytes;
    return t->decoded.data + t->tokens[id].decoded_at;
}

void tokenizer_stream_start(struct tokenizer_stream *st, bool skip_special) {
    *st = (struct tokenizer_stream){.skip_special = skip_special};
}

static void tokenizer_decode_give(struct tokenizer_scratch *s, const char **text, size_t *bytes) {
    *text = s->out.data;
    *bytes = s->out.size;
}

enum status tokenizer_stream_push(const struct tokenizer *t, struct tokenizer_stream *st, struct tokenizer_scratch *s,
                                  int32_t id, const char **text, size_t *bytes) {
    assert(s->tokenizer == t);
    s->out.size = 0;
    TRY(tokenizer_decode_push(t, st, &s->out, id));
    TRY(bytes_append(&s->out, "", 0));
    tokenizer_decode_give(s, text, bytes);
    return STATUS_OK;
}

enum status tokenizer_stream_flush(struct tokenizer_stream *st, struct tokenizer_scratch *s, const char **text,
                                   size_t *bytes) {
    s->out.size = 0;
    TRY(tokenizer_decode_flush(s->tokenizer, st, &s->out));
    tokenizer_decode_give(s, text, bytes);
    return STATUS_OK;
}

enum status tokenizer_decode(const struct tokenizer *t, struct tokenizer_scratch *s, const int32_t *ids, size_t n_ids,
                             bool skip_special, const char **text, size_t *bytes) {
    assert(s->tokenizer == t);
    struct tokenizer_stream st;
    tokenizer_stream_start(&st, skip_special);
    s->out.size = 0;
    for (size_t i = 0; i < n_ids; i++)
        TRY(tokenizer_decode_push(t, &st, &s->out, ids[i]));
    TRY(tokenizer_decode_flush(t, &st, &s->out));
    tokenizer_decode_give(s, text, bytes);
    return STATUS_OK;
}
