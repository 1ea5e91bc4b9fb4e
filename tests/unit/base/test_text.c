/* test_text.c -- a text that is written into memory is that of the file; if memory ends, fclose fails, whichever
 * allocation it was. */
#include "base/formats/text.h"
#include "base/memory.h"
#include "base/system/fault.h"
#include "tests/test.h"

static int left = -1; /* allocations until one fails; -1: none does */

enum status fault_point(const char *name) {
    if (strcmp(name, "memory:allocate") == 0 && left >= 0 && left-- == 0) return fail(STATUS_NO_MEMORY, "no memory");
    return STATUS_OK;
}

/* Writes 20,000 lines, with writes of all kinds. */
static void write_lines(FILE *file) {
    for (int i = 0; i < 20000; i++) {
        fprintf(file, "line %d", i);
        fputc(' ', file);
        fputs(i % 100 == 0 ? "of text\n" : "\n", file);
    }
}

static void test_text(void) {
    char *text = NULL, *expected = NULL;
    size_t bytes = 0;
    FILE *plain = fopen(test_path("text"), "w+");
    write_lines(plain);
    const long length = ftell(plain);
    CHECK_OK(memory_allocate(&expected, (size_t)length));
    rewind(plain);
    CHECK_EQ(fread(expected, 1, (size_t)length, plain), length);
    fclose(plain);
    FILE *file = text_stream_open(&text, &bytes);
    CHECK(file != NULL);
    fputs("abc", file);
    CHECK_EQ(ftell(file), 3);
    CHECK_EQ(fflush(file), 0);
    CHECK_EQ(bytes, 3);
    CHECK_STR(text, "abc");
    write_lines(file);
    CHECK_EQ(ftell(file), 3 + length);
    CHECK_EQ(fclose(file), 0);
    CHECK_EQ(bytes, 3 + length);
    CHECK(memcmp(text + 3, expected, (size_t)length) == 0 && text[bytes] == 0);
    memory_free(expected);
    memory_free(text);
    file = text_stream_open(&text, &bytes); /* nothing is written */
    CHECK_EQ(fclose(file), 0);
    CHECK(bytes == 0 && text[0] == 0);
    memory_free(text);
}

static void test_no_memory(void) {
    int refused = 0, lost = 0;
    for (int n = 0;; n++) {
        char *text = NULL;
        size_t bytes = 0;
        left = n;
        FILE *file = text_stream_open(&text, &bytes);
        if (!file) {
            CHECK(text == NULL && left < 0);
            refused++;
            continue;
        }
        write_lines(file);
        const bool failed = fclose(file) != 0, done = left >= 0;
        CHECK(failed == !done);
        lost += failed;
        memory_free(text);
        if (done) break;
    }
    left = -1;
    CHECK_EQ(refused, 2);
    CHECK(lost > 5);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    test_text();
    test_no_memory();
    return test_done();
}
