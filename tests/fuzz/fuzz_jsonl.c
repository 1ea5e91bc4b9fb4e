/* fuzz_jsonl.c -- any bytes as a jsonl file (plain or compressed, by its first bytes): documents of valid UTF-8 until
 * the end or one error; reading from any position gives the remaining documents. */
#include "data/readers/reader.h"
#include "data/tokenizer/utf8.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LIMIT = 1 << 20, DOCUMENTS_MAX = 64 };

/* Reads the documents from a position on; *hash over their bytes. */
static int read_from(const char *path, struct reader_position from, struct reader_position *positions, uint64_t *hash) {
    const char *inputs[] = {path};
    struct reader_config config = {
        .inputs = inputs, .n_inputs = 1, .format = READER_JSONL, .max_document_bytes = LIMIT};
    struct reader *r;
    struct document d;
    int more = 1, count = 0;
    *hash = 0;
    if (reader_open(&r, &config) != STATUS_OK || reader_seek(r, from, NULL, 0) != STATUS_OK) abort();
    while (count < DOCUMENTS_MAX) {
        if (positions) positions[count] = reader_position(r);
        if (reader_next(r, &d, &more) != STATUS_OK || !more) break;
        if (utf8_valid_prefix(d.text, d.bytes) != d.bytes || utf8_valid_prefix(d.key, strlen(d.key)) != strlen(d.key))
            abort();
        for (size_t i = 0; i < d.bytes; i++)
            *hash = *hash * 31 + (uint8_t)d.text[i];
        *hash = *hash * 31 + d.offset + 7 * d.line;
        count++;
    }
    int64_t done, total;
    reader_progress(r, &done, &total);
    if (done > total) abort();
    reader_close(r);
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    int fd = memfd_create("jsonl", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct reader_position positions[DOCUMENTS_MAX + 1];
    uint64_t all, rest, again;
    int count = read_from(path, (struct reader_position){0}, positions, &all);
    if (count > 0 && count < DOCUMENTS_MAX) {
        int from = data[0] % count;
        if (read_from(path, positions[from], NULL, &rest) != count - from) abort();
        if (read_from(path, positions[from], NULL, &again) != count - from || rest != again) abort();
        if (from == 0 && rest != all) abort();
    }
    close(fd);
    return 0;
}
