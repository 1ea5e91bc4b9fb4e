/* fuzz_tokenizer_text.c -- any bytes as text, for one of several kinds of tokenizer (the first byte): no crash, the
 * decoding is the text for the kinds that promise it, and a stream equals the decoding. */
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/utf8.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct {
    const char *name;
    bool comes_back;
} kinds[] = {
    {"cl100k", true},  {"qwen2", false},     {"deepseek", true}, {"digits", true},  {"nfd-added", false},
    {"llama2", false}, {"metaspace", false}, {"gemma", false},   {"prefix", false}, {"split-contiguous", true},
};
static struct tokenizer *tokenizers[ARRAY_LEN(kinds)];
static struct tokenizer_scratch *scratches[ARRAY_LEN(kinds)];

static void load_once(size_t kind) {
    if (tokenizers[kind]) return;
    char path[4096];
    const char *source = getenv("DRT_SOURCE");
    snprintf(path, sizeof path, "%s/tests/unit/data/tokenizer/%s.json", source ? source : ".", kinds[kind].name);
    if (tokenizer_open(&tokenizers[kind], path) == STATUS_OK &&
        tokenizer_scratch_create(&scratches[kind], tokenizers[kind]) == STATUS_OK)
        return;
    fprintf(stderr, "%s (DRT_SOURCE is the checkout)\n", status_message());
    abort();
}

static void check_stream(const struct tokenizer *t, struct tokenizer_scratch *s, const int32_t *ids, size_t n,
                         const char *whole, size_t bytes) {
    struct tokenizer_stream st;
    size_t used = 0;
    tokenizer_stream_start(&st, false);
    for (size_t i = 0; i <= n; i++) {
        const char *out;
        size_t got;
        enum status status =
            i < n ? tokenizer_stream_push(t, &st, s, ids[i], &out, &got) : tokenizer_stream_flush(&st, s, &out, &got);
        if (status != STATUS_OK || utf8_valid_prefix(out, got) != got) abort();
        if (used + got > bytes || memcmp(whole + used, out, got) != 0) abort();
        used += got;
    }
    if (used != bytes) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    size_t kind = data[0] % ARRAY_LEN(kinds), n, bytes;
    load_once(kind);
    const struct tokenizer *t = tokenizers[kind];
    struct tokenizer_scratch *s = scratches[kind];
    const char *text = (const char *)data + 1, *out;
    const int32_t *ids;
    size--;
    if (tokenizer_encode(t, s, text, size, data[0] & 0x80 ? TOKENIZER_RECOGNISE : TOKENIZER_LITERAL, &ids, &n) !=
        STATUS_OK)
        abort();
    int32_t *copy = malloc(n * sizeof *copy + 1);
    memcpy(copy, ids, n * sizeof *copy);
    if (tokenizer_decode(t, s, copy, n, false, &out, &bytes) != STATUS_OK) abort();
    if (kinds[kind].comes_back && utf8_valid_prefix(text, size) == size &&
        (bytes != size || memcmp(out, text, size) != 0))
        abort();
    char *whole = malloc(bytes + 1);
    memcpy(whole, out, bytes + 1);
    check_stream(t, s, copy, n, whole, bytes);
    free(whole);
    free(copy);
    return 0;
}
