/* tokenizer.c -- opens a tokenizer, looks up tokens, and encodes a text step by step (tokenizer_internal.h lists the
 * steps). */
#include "base/file.h"
#include "base/memory.h"
#include "data/tokenizer/tokenizer_internal.h"
#include "data/tokenizer/utf8.h"
#include <assert.h>
#include <string.h>
#include <xxhash.h>

enum status bytes_append(struct bytes *b, const void *data, size_t bytes) {
    if (b->capacity < b->size + bytes + 1) TRY(memory_grow(&b->data, &b->capacity, b->size + bytes + 1));
    if (bytes > 0) memcpy(b->data + b->size, data, bytes);
    b->size += bytes;
    b->data[b->size] = '\0';
    return STATUS_OK;
}

void bytes_free(struct bytes *b) {
    memory_free(b->data);
    *b = (struct bytes){0};
}

enum status tokenizer_open(struct tokenizer **out, const char *path) {
    struct file_map map;
    TRY(file_map(&map, path));
    struct tokenizer *t = NULL;
    XXH128_canonical_t canonical;
    enum status status;
    TRY_GOTO(status, memory_allocate_zero(&t, 1), out);
    t->unk_id = -1;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(map.data, map.size));
    memcpy(t->fingerprint, canonical.digest, sizeof t->fingerprint);
    TRY_GOTO(status, memory_copy_string(&t->path, path), out);
    TRY_GOTO(status, tokenizer_load(t, (const char *)map.data, map.size), out);
    *out = t;
out:
    file_unmap(&map);
    if (status != STATUS_OK) tokenizer_free(t);
    return status;
}

void tokenizer_free(struct tokenizer *t) {
    if (!t) return;
    for (int i = 0; i < STEPS_MAX; i++) {
        regex_free(t->normals[i].regex);
        bytes_free(&t->normals[i].from);
        bytes_free(&t->normals[i].to);
        regex_free(t->steps[i].regex);
        bytes_free(&t->steps[i].literal);
    }
    for (int i = 0; i < 2; i++) {
        memory_free(t->added[i].items);
        bytes_free(&t->added[i].text);
    }
    bytes_free(&t->decode_from);
    bytes_free(&t->decode_to);
    bytes_free(&t->spellings);
    bytes_free(&t->decoded);
    memory_free(t->tokens);
    memory_free(t->by_spelling);
    memory_free(t->merges);
    memory_free(t->pairs.slots);
    memory_free(t->pairs.rows);
    memory_free(t->pairs.made);
    memory_free(t->char_id);
    memory_free(t->classes);
    memory_free(t->path);
    memory_free(t);
}

int tokenizer_vocab_size(const struct tokenizer *t) {
    return (int)t->n_tokens;
}
int32_t tokenizer_id(const struct tokenizer *t, const char *token) {
    return tokenizer_find(t, token, strlen(token));
}
void tokenizer_fingerprint(const struct tokenizer *t, uint8_t out[16]) {
    memcpy(out, t->fingerprint, 16);
}

static bool tokenizer_known(const struct tokenizer *t, int32_t id) {
    return id >= 0 && (size_t)id < t->n_tokens && (t->tokens[id].flags & TOKEN_KNOWN);
}

const char *tokenizer_token(const struct tokenizer *t, int32_t id) {
    return tokenizer_known(t, id) ? t->spellings.data + t->tokens[id].at : NULL;
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id) {
    return tokenizer_known(t, id) && (t->tokens[id].flags & TOKEN_SPECIAL);
}

enum status tokenizer_scratch_create(struct tokenizer_scratch **out, const struct tokenizer *t) {
    struct tokenizer_scratch *s;
    TRY(memory_allocate_zero(&s, 1));
    s->tokenizer = t;
    *out = s;
    return STATUS_OK;
}

/* What only encoding needs, at its first call: 10 MB, which a running text that only decodes does without. */
static enum status scratch_prepare(struct tokenizer_scratch *s) {
    if (!s->words) TRY(bpe_words_create(s));
    return s->regex ? STATUS_OK : regex_scratch_create(&s->regex);
}

void tokenizer_scratch_free(struct tokenizer_scratch *s) {
    if (!s) return;
    for (int i = 0; i < 2; i++) {
        bytes_free(&s->normal[i]);
        bytes_free(&s->rewritten[i]);
        memory_free(s->pieces[i].items);
    }
    bytes_free(&s->repaired);
    bytes_free(&s->out);
    memory_free(s->short_words);
    memory_free(s->words);
    memory_free(s->runs);
    memory_free(s->ids);
    memory_free(s->codes);
    memory_free(s->symbols);
    memory_free(s->heap);
    regex_scratch_free(s->regex);
    memory_free(s);
}

/* ---- encoding ------------------------------------------------------------------------------------------------- */

struct encoding {
    const struct tokenizer *t;
    struct tokenizer_scratch *s;
    enum tokenizer_specials specials;
};

static enum status encode_normalised(void *context, const char *text, size_t bytes, bool first) {
    struct encoding *e = context;
    return tokenizer_pretokenise(e->t, e->s, text, bytes, first);
}

static enum status encode_raw(void *context, const char *text, size_t bytes, bool first) {
    struct encoding *e = context;
    TRY(tokenizer_normalise(e->t, e->s, &text, &bytes));
    return added_split(&e->t->added[1], e->s, text, bytes, first, e->specials, encode_normalised, e);
}

enum status tokenizer_encode(const struct tokenizer *t, struct tokenizer_scratch *s, const char *text, size_t bytes,
                             enum tokenizer_specials specials, const int32_t **ids, size_t *n_ids) {
    assert(s->tokenizer == t);
    /* Positions in the merges have 32 bits, and normalisation and marks can make a text several times longer. */
    if (bytes > INT32_MAX / 4)
        return fail(STATUS_UNSUPPORTED, "a text of %zu bytes is too long to encode at once: at most %d: split it",
                    bytes, INT32_MAX / 4);
    TRY(scratch_prepare(s));
    s->n_ids = 0;
    if (utf8_valid_prefix(text, bytes) != bytes) {
        uint64_t replaced;
        TRY(utf8_repair(&s->repaired.data, &s->repaired.capacity, &s->repaired.size, &replaced, text, bytes));
        text = s->repaired.data;
        bytes = s->repaired.size;
    }
    struct encoding e = {t, s, specials};
    TRY(added_split(&t->added[0], s, text, bytes, true, specials, encode_raw, &e));
    TRY(memory_grow(&s->ids, &s->ids_capacity, 1)); /* so that the result is never NULL */
    *ids = s->ids;
    *n_ids = s->n_ids;
    return STATUS_OK;
}
