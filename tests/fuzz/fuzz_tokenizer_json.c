/* fuzz_tokenizer_json.c -- any bytes as a tokenizer.json: refused with one line, or usable on any text. */
#include "data/tokenizer/tokenizer.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const struct tokenizer *t, const uint8_t *data, size_t size) {
    static const char text[] = "Hello  world's 123 \xC3\xA9\xE2\x96\x81\xE4\xB8\xAD\n\n<s> ab\xFF";
    struct tokenizer_scratch *s;
    if (tokenizer_scratch_create(&s, t) != STATUS_OK) abort();
    const struct {
        const char *text;
        size_t bytes;
    } texts[] = {{text, sizeof text - 1}, {(const char *)data, size < 300 ? size : 300}};
    for (int i = 0; i < 4; i++) {
        const int32_t *ids;
        const char *out;
        size_t n, bytes;
        if (tokenizer_encode(t, s, texts[i / 2].text, texts[i / 2].bytes, (enum tokenizer_specials)(i % 2), &ids, &n) !=
            STATUS_OK)
            continue; /* a pattern may run into its limits */
        int32_t *copy = malloc(n * sizeof *copy + 1);
        memcpy(copy, ids, n * sizeof *copy);
        for (size_t k = 0; k < n; k++)
            if (copy[k] < 0 || copy[k] >= tokenizer_vocab_size(t)) abort();
        if (tokenizer_decode(t, s, copy, n, i % 2, &out, &bytes) != STATUS_OK || out[bytes] != 0) abort();
        free(copy);
    }
    tokenizer_scratch_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    int fd = memfd_create("tokenizer", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct tokenizer *t;
    if (tokenizer_open(&t, path) == STATUS_OK) {
        use(t, data, size);
        tokenizer_free(t);
    } else if (status_message()[0] == '\0') {
        abort();
    }
    close(fd);
    return 0;
}
