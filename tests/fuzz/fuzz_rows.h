/* fuzz_rows.h -- what the targets of parquet and arrow share: any bytes as a file, read as rows until the end or an
 * error; texts are valid UTF-8, positions increase, and reading from any position gives the remaining documents. */
#pragma once
#include "data/readers/reader.h"
#include "data/tokenizer/utf8.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ROWS_LIMIT = 1 << 16, ROWS_MAX = 64 };

/* Reads up to ROWS_MAX documents from a position on; *hash over them. */
static inline int fuzz_rows_read(const char *path, enum reader_format format, struct reader_position from,
                                 struct reader_position *positions, uint64_t *hash) {
    const char *inputs[] = {path};
    struct reader_config config = {.inputs = inputs, .n_inputs = 1, .format = format,
                                   .max_document_bytes = ROWS_LIMIT, .skip_bad_lines = true};
    struct reader *r;
    struct document d;
    int more = 1, count = 0;
    uint64_t line = from.line;
    *hash = 0;
    if (reader_open(&r, &config) != STATUS_OK) {
        if (!positions) abort(); /* it was opened before */
        return 0;
    }
    if (reader_seek(r, from, NULL, 0) != STATUS_OK) abort();
    while (count < ROWS_MAX) {
        if (positions) positions[count] = reader_position(r);
        if (reader_next(r, &d, &more) != STATUS_OK || !more) break;
        if (utf8_valid_prefix(d.text, d.bytes) != d.bytes || d.text[d.bytes] != '\0') abort();
        if (d.bytes > 3 * ROWS_LIMIT || utf8_valid_prefix(d.key, strlen(d.key)) != strlen(d.key)) abort();
        if (d.line <= line || d.ids) abort();
        line = d.line;
        for (size_t i = 0; i < d.bytes; i++) *hash = *hash * 31 + (uint8_t)d.text[i];
        for (const char *k = d.key; *k; k++) *hash = *hash * 31 + (uint8_t)*k;
        *hash = *hash * 31 + d.offset + 7 * d.line;
        count++;
    }
    int64_t done, total;
    reader_progress(r, &done, &total);
    if (done > total) abort();
    reader_close(r);
    return count;
}

static inline void fuzz_rows(const uint8_t *data, size_t size, enum reader_format format) {
    char path[64];
    int fd = memfd_create("rows", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct reader_position positions[ROWS_MAX + 1];
    uint64_t all, rest;
    int count = fuzz_rows_read(path, format, (struct reader_position){0}, positions, &all);
    if (count > 0 && count < ROWS_MAX) {
        int from = data[size / 2] % count;
        if (fuzz_rows_read(path, format, positions[from], NULL, &rest) != count - from) abort();
        if (from == 0 && rest != all) abort();
    }
    close(fd);
}
