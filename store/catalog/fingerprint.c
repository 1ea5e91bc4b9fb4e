/* fingerprint.c -- do a model and a store belong together? */
#include "store/store.h"
#include <stdio.h>
#include <string.h>

static void to_hex(char out[33], const uint8_t bytes[16]) {
    for (int i = 0; i < 16; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

static enum status compare_hash(const char *field, const char *store, const uint8_t a[16], const char *model,
                                const uint8_t b[16]) {
    if (memcmp(a, b, 16) == 0) return STATUS_OK;
    char left[33], right[33];
    to_hex(left, a);
    to_hex(right, b);
    return fail(STATUS_MISMATCH, "%s was built with %s %s, but %s has %s; use the model that built it", store, field,
                left, model, right);
}

static enum status compare(const char *field, const char *store, int32_t a, const char *model, int32_t b) {
    if (a == b) return STATUS_OK;
    return fail(STATUS_MISMATCH, "%s was built with %s %d, but %s has %d; use the model that built it", store, field, a,
                model, b);
}

enum status store_check_fingerprint(const char *store, const struct store_fingerprint *a, const char *model,
                                    const struct store_fingerprint *b) {
    TRY(compare("landmark dimensions", store, a->dim, model, b->dim));
    TRY(compare("tokens a chunk", store, a->chunk_tokens, model, b->chunk_tokens));
    TRY(compare("vocabulary size", store, a->vocab_size, model, b->vocab_size));
    TRY(compare("metric", store, a->metric, model, b->metric));
    TRY(compare_hash("tokenizer", store, a->tokenizer, model, b->tokenizer));
    return compare_hash("encoder weights", store, a->encoder, model, b->encoder);
}
