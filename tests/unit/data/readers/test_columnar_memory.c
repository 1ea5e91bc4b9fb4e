/* test_columnar_memory.c -- a row group far larger than the memory limit: one parquet column of 1 GiB in pages of 1
 * MiB. The file is sparse, so that the test needs neither a disk of this size nor a writer of parquet. Its texts are
 * NUL characters. */
#include "base/file.h"
#include "base/memory.h"
#include "data/readers/reader.h"
#include "tests/test.h"
#include <fcntl.h>

enum { PAGES = 1024, PAGE = 1 << 20, ROWS_A_PAGE = 4, GROWTH_MAX = 24 << 20 };

/* ---- Thrift's compact protocol, as far as a parquet file needs it
 * -------------------------------------------------- */

struct out {
    uint8_t data[512];
    size_t size;
};

static void put(struct out *o, uint64_t byte) {
    CHECK(o->size < sizeof o->data);
    o->data[o->size++] = (uint8_t)byte;
}
static void put_number(struct out *o, uint64_t value) {
    for (; value >= 0x80; value >>= 7)
        put(o, value | 0x80);
    put(o, value);
}
enum { I32 = 5, I64 = 6, BINARY = 8, LIST = 9, STRUCT = 12 };
static void put_field(struct out *o, int step, int type) {
    put(o, (uint64_t)(step << 4 | type));
}
static void put_int(struct out *o, int step, int type, uint64_t value) {
    put_field(o, step, type);
    put_number(o, 2 * value);
}
static void put_text(struct out *o, const char *text) {
    put_number(o, strlen(text));
    for (; *text; text++)
        put(o, (uint8_t)*text);
}
static void put_list(struct out *o, int step, int of, int count) {
    put_field(o, step, LIST);
    put(o, (uint64_t)(count << 4 | of));
}
enum { END = 0 };

/* A data page of PLAIN values in version 1. */
static void put_page_header(struct out *o) {
    put_int(o, 1, I32, 0);
    put_int(o, 1, I32, PAGE);
    put_int(o, 1, I32, PAGE);
    put_field(o, 2, STRUCT);
    put_int(o, 1, I32, ROWS_A_PAGE);
    put_int(o, 1, I32, 0);
    put_int(o, 1, I32, 3);
    put_int(o, 1, I32, 3);
    put(o, END);
    put(o, END);
}

/* A required column of UTF-8 and one row group. */
static void put_footer(struct out *o, uint64_t bytes) {
    const uint64_t rows = (uint64_t)PAGES * ROWS_A_PAGE;
    put_int(o, 1, I32, 2);
    put_list(o, 1, STRUCT, 2);
    put_field(o, 4, BINARY), put_text(o, "root");
    put_int(o, 1, I32, 1);
    put(o, END);
    put_int(o, 1, I32, 6);
    put_int(o, 2, I32, 0);
    put_field(o, 1, BINARY), put_text(o, "text");
    put_int(o, 2, I32, 0);
    put(o, END);
    put_int(o, 1, I64, rows);
    put_list(o, 1, STRUCT, 1); /* row groups */
    put_list(o, 1, STRUCT, 1); /* columns */
    put_int(o, 2, I64, 4);
    put_field(o, 1, STRUCT); /* ColumnMetaData */
    put_int(o, 1, I32, 6);
    put_int(o, 3, I32, 0); /* not compressed */
    put_int(o, 1, I64, rows);
    put_int(o, 1, I64, bytes);
    put_int(o, 1, I64, bytes);
    put_int(o, 2, I64, 4);
    put(o, END);
    put(o, END);
    put_int(o, 1, I64, bytes);
    put_int(o, 1, I64, rows);
    put(o, END);
    put(o, END);
}

static void write_at(int fd, const void *data, size_t bytes, uint64_t at) {
    CHECK_EQ(pwrite(fd, data, bytes, (off_t)at), bytes);
}

static void write_file(const char *path) {
    const uint8_t length[4] = {(PAGE / ROWS_A_PAGE - 4) & 255, (PAGE / ROWS_A_PAGE - 4) >> 8 & 255,
                               (PAGE / ROWS_A_PAGE - 4) >> 16, 0};
    struct out header = {.size = 0}, footer = {.size = 0};
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    CHECK(fd >= 0);
    uint64_t at = 4;
    put_page_header(&header);
    for (int page = 0; page < PAGES; page++) {
        write_at(fd, header.data, header.size, at);
        at += header.size;
        for (int row = 0; row < ROWS_A_PAGE; row++, at += PAGE / ROWS_A_PAGE)
            write_at(fd, length, sizeof length, at);
    }
    put_footer(&footer, at - 4);
    const uint8_t tail[8] = {footer.size & 255, (uint8_t)(footer.size >> 8), 0, 0, 'P', 'A', 'R', '1'};
    write_at(fd, "PAR1", 4, 0);
    write_at(fd, footer.data, footer.size, at);
    write_at(fd, tail, sizeof tail, at + footer.size);
    CHECK_EQ(close(fd), 0);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    char path[FILE_PATH_MAX];
    CHECK_OK(file_join(path, test_folder(), "large.parquet"));
    write_file(path);
    const char *input = path;
    struct reader_config config = {.inputs = &input, .n_inputs = 1, .max_document_bytes = PAGE};
    struct reader *r;
    struct document d;
    size_t before = memory_resident_peak();
    CHECK_OK(reader_open(&r, &config));
    for (int more = 1, row = 1; more; row++) {
        CHECK_OK(reader_next(r, &d, &more));
        if (!more) break;
        CHECK_EQ(d.bytes, PAGE / ROWS_A_PAGE - 4);
        CHECK_EQ(d.line, row);
        if (row % 1000) continue;
        size_t now = memory_resident_peak();
        if (now > before + GROWTH_MAX) fprintf(stderr, "row %d: memory grew by %zu bytes\n", row, now - before);
        CHECK(now <= before + GROWTH_MAX);
    }
    CHECK_EQ(reader_position(r).documents, PAGES * ROWS_A_PAGE);
    CHECK(before > 0);
    reader_close(r);
    return test_done();
}
