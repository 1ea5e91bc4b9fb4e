/* fuzz_query_file.c -- files of queries: the first byte selects the format, the rest is the file. The result must be
 * finite vectors of the rows in the header, or texts within the file. */
#include "base/file.h"
#include "tools/shared/query_file.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { DIM = 3, ROWS = 5 };

static void read_vectors(struct query_file *q) {
    float rows[ROWS * DIM];
    int64_t n = 1, total = 0;
    while (query_file_rows(q, rows, ROWS, &n) == STATUS_OK && n > 0) {
        for (int64_t i = 0; i < n * DIM; i++)
            assert(isfinite(rows[i]));
        total += n;
    }
    assert(total <= query_file_total(q));
}

static void read_texts(struct query_file *q, size_t size) {
    const char *text;
    size_t bytes;
    while (query_file_text(q, &text, &bytes) == STATUS_OK && text)
        assert(bytes <= size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[] = "/tmp/fuzz-query-XXXXXX";
    struct query_file *q = NULL;
    if (size == 0) return 0;
    int fd = mkstemp(path);
    if (fd < 0) abort();
    ssize_t written = write(fd, data + 1, size - 1);
    close(fd);
    const enum query_format format = (enum query_format)(QUERY_TXT + data[0] % 4);
    if (written == (ssize_t)size - 1 && query_file_open(&q, path, format, DIM) == STATUS_OK) {
        if (query_file_has_vectors(q))
            read_vectors(q);
        else
            read_texts(q, size);
    }
    query_file_close(q);
    unlink(path);
    return 0;
}
