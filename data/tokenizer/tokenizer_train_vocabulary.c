/* tokenizer_train_vocabulary.c -- the tokens of a tokenizer that is being trained, spelled in the characters that
 * represent bytes. If a special token has the spelling of a byte or a merge ("a", "th"), both are the same token, as in
 * the reference. */
#include "base/memory.h"
#include "data/tokenizer/tokenizer_train_internal.h"
#include "data/tokenizer/utf8.h"
#include <string.h>
#include <xxhash.h>

/* Returns the slot of this spelling, or the free slot for it. */
static int32_t *find_slot(const struct vocabulary *v, const char *text, size_t bytes) {
    size_t i = XXH3_64bits(text, bytes) & v->mask;
    for (; v->slots[i] >= 0; i = (i + 1) & v->mask) {
        const struct spelling *s = &v->items[v->slots[i]];
        if (s->bytes == bytes && memcmp(v->text.data + s->at, text, bytes) == 0) break;
    }
    return &v->slots[i];
}

/* Returns the token whose spelling is at the end of v->text, from `at` on. A spelling that exists already
 * is removed again. */
static enum status tokenizer_train_vocabulary_settle(struct vocabulary *v, size_t at, int32_t *id) {
    size_t bytes = v->text.size - at;
    if (bytes > UINT32_MAX) return fail(STATUS_UNSUPPORTED, "a token of more than 4 GiB");
    int32_t *slot = find_slot(v, v->text.data + at, bytes);
    if (*slot < 0) {
        TRY(memory_grow(&v->items, &v->capacity, v->count + 1));
        v->items[v->count] = (struct spelling){at, (uint32_t)bytes};
        *slot = (int32_t)v->count++;
    } else {
        v->text.size = at;
    }
    *id = *slot;
    return STATUS_OK;
}

enum status vocabulary_join(struct vocabulary *v, int32_t left, int32_t right, int32_t *id) {
    size_t at = v->text.size;
    struct spelling parts[2] = {v->items[left], v->items[right]};
    size_t bytes = (size_t)parts[0].bytes + parts[1].bytes;
    /* the parts may be in v->text, which moves when it grows */
    TRY(memory_grow(&v->text.data, &v->text.capacity, at + bytes + 1));
    TRY(bytes_append(&v->text, v->text.data + parts[0].at, parts[0].bytes));
    TRY(bytes_append(&v->text, v->text.data + parts[1].at, parts[1].bytes));
    return tokenizer_train_vocabulary_settle(v, at, id);
}

/* Adds the 256 bytes in the order of the characters that represent them. */
static enum status add_bytes(struct vocabulary *v) {
    for (uint32_t code = 0; code < 0x200; code++) {
        int byte = byte_level_byte(code);
        if (byte < 0) continue;
        char spelling[4];
        size_t at = v->text.size;
        TRY(bytes_append(&v->text, spelling, (size_t)utf8_encode(spelling, code)));
        TRY(tokenizer_train_vocabulary_settle(v, at, &v->byte_id[byte]));
    }
    return STATUS_OK;
}

enum status vocabulary_create(struct vocabulary *v, const char *const *specials, int n_specials, size_t limit) {
    size_t size = 1024;
    while (size < 2 * limit)
        size *= 2;
    TRY(memory_allocate(&v->slots, size));
    v->mask = size - 1;
    memset(v->slots, 0xFF, size * sizeof *v->slots);
    for (int i = 0; i < n_specials; i++) {
        size_t at = v->text.size, bytes = strlen(specials[i]);
        if (bytes == 0) return fail(STATUS_INVALID, "a special token is empty");
        if (utf8_valid_prefix(specials[i], bytes) != bytes)
            return fail(STATUS_INVALID, "the special token \"%s\" is not valid UTF-8", specials[i]);
        int32_t id;
        TRY(bytes_append(&v->text, specials[i], bytes));
        TRY(tokenizer_train_vocabulary_settle(v, at, &id));
        if (id != i) return fail(STATUS_INVALID, "the special token \"%s\" is given twice", specials[i]);
    }
    v->n_specials = n_specials;
    return add_bytes(v);
}

void vocabulary_free(struct vocabulary *v) {
    memory_free(v->items);
    memory_free(v->slots);
    bytes_free(&v->text);
    *v = (struct vocabulary){0};
}
