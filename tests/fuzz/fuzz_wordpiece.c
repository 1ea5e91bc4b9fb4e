/* fuzz_wordpiece.c -- any bytes as a vocabulary (up to the first byte 0) and a text (the rest), in the mode of the
 * first byte: refused, or at most the requested number of ids, all of the vocabulary, [CLS] first and [SEP] last, and
 * the same ids in a second run. Without a byte 0 the vocabulary is single letters. */
#include "data/wordpiece/wordpiece.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char letters[] = "[UNK]\n[CLS]\n[SEP]\na\n##a\nb\n##b\ne\n##e\ni\n##i\nthe\n##the\n.\n\xe4\xba\xac\n";

static void encode(const struct wordpiece *w, const char *text, size_t bytes, size_t most) {
    struct wordpiece_scratch *s;
    const int32_t *ids;
    size_t n, again;
    if (wordpiece_scratch_create(&s) != STATUS_OK || wordpiece_encode(w, s, text, bytes, most, &ids, &n) != STATUS_OK)
        abort();
    if (n < 2 || n > most || ids[0] == ids[n - 1]) abort();
    int32_t *copy = malloc(n * sizeof *copy);
    for (size_t i = 0; i < n; i++)
        if ((copy[i] = ids[i]) < 0 || ids[i] >= wordpiece_vocab_size(w)) abort();
    if (wordpiece_encode(w, s, text, bytes, most, &ids, &again) != STATUS_OK || again != n ||
        memcmp(ids, copy, n * sizeof *copy) != 0)
        abort();
    free(copy);
    wordpiece_scratch_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct wordpiece *w;
    if (size == 0) return 0;
    const char *text = (const char *)data + 1, *zero = memchr(text, 0, --size);
    struct wordpiece_options o = {
        .lower = data[0] & 1, .chinese = data[0] & 2, .strip_accents = (data[0] & 12) == 12 ? -1 : (data[0] & 4) != 0};
    size_t vocabulary = zero ? (size_t)(zero - text) : sizeof letters - 1;
    if (wordpiece_parse(&w, "fuzz", zero ? text : letters, vocabulary, o) != STATUS_OK) return 0;
    if (zero)
        encode(w, zero + 1, size - vocabulary - 1, 3 + (data[0] >> 4));
    else
        encode(w, text, size, 512);
    wordpiece_free(w);
    return 0;
}
