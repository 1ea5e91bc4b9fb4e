/* test_reader_part.c -- what a part of the inputs reports as read: its own bytes, of which the parts' sum is all bytes.
 */
#include "data/readers/reader.h"
#include "tests/test.h"

enum { FILES = 3, LINES = 400 };

/* Returns the bytes of the file. */
static int64_t write_lines(const char *path, int file) {
    FILE *f = fopen(path, "wb");
    CHECK(f);
    for (int i = 0; i < LINES * file; i++)
        fprintf(f, "{\"text\": \"line %d of file %d%*s\"}\n", i, file, i * 37 % 90, "");
    const int64_t bytes = ftell(f);
    CHECK(fclose(f) == 0);
    return bytes;
}

/* Reads a part. The numbers never decrease, and end at the part's bytes. Adds to documents and bytes. */
static void read_part(const char *const *inputs, int part, int parts, int64_t *documents, int64_t *bytes) {
    const struct reader_config config = {.inputs = inputs, .n_inputs = FILES, .part = part, .parts = parts};
    struct reader *r;
    int64_t before = 0, done, total, first_total;
    CHECK_OK(reader_open(&r, &config));
    reader_progress(r, &done, &first_total);
    CHECK_EQ(done, 0);
    for (;;) {
        struct document d;
        int more;
        CHECK_OK(reader_next(r, &d, &more));
        reader_progress(r, &done, &total);
        CHECK_EQ(total, first_total);
        CHECK(done >= before && done <= total);
        before = done;
        if (!more) break;
        ++*documents;
    }
    CHECK_EQ(done, total);
    *bytes += total;
    reader_close(r);
}

int main(int argc, char **argv) {
    char paths[FILES][600];
    const char *inputs[FILES];
    int64_t all = 0;
    test_start(argc, argv, 1);
    for (int i = 0; i < FILES; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%d.jsonl", test_folder(), i);
        inputs[i] = paths[i];
        all += write_lines(paths[i], i); /* the first is empty */
    }
    for (int parts = 1; parts <= 7; parts++) {
        int64_t documents = 0, bytes = 0;
        for (int part = 1; part <= parts; part++)
            read_part(inputs, part, parts, &documents, &bytes);
        CHECK_EQ(documents, LINES * (FILES * (FILES - 1) / 2));
        CHECK_EQ(bytes, all);
    }
    return test_done();
}
