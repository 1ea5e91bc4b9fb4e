/* test_reader_input.c -- irregular files: bad lines, UTF-16, bytes after a compressed stream, links. */
#include "base/file.h"
#include "data/readers/reader.h"
#include "tests/test.h"
#include <lzma.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

static char notes[4096];

static void keep_note(void *context, const struct progress_event *event) {
    (void)context;
    if (event->note) snprintf(notes + strlen(notes), sizeof notes - strlen(notes), "%s\n", event->note);
}
static const struct progress progress = {.report = keep_note};

static const char *put(const char *name, const void *data, size_t bytes) {
    static char paths[8][FILE_PATH_MAX];
    static int turn;
    char *path = paths[turn++ % 8];
    CHECK_OK(file_join(path, test_folder(), name));
    FILE *f = data ? fopen(path, "wb") : NULL;
    CHECK(!data || (f && fwrite(data, 1, bytes, f) == bytes && fclose(f) == 0));
    return path;
}

static struct reader *open_one(const char *input, struct reader_config config) {
    struct reader *r;
    config.inputs = &input;
    config.n_inputs = 1;
    config.progress = &progress;
    notes[0] = 0;
    CHECK_OK(reader_open(&r, &config));
    return r;
}

static struct document expect(struct reader *r, const char *text) {
    struct document d = {0};
    int more;
    CHECK_OK(reader_next(r, &d, &more));
    CHECK_EQ(more, text != NULL);
    if (text) CHECK_STR(d.text, text);
    return d;
}

static void test_bad_lines(void) {
    static const char lines[] =
        "{\"text\":\"a\"}\n{\"text\":NaN}\n[]\n{\"text\":null}\n{\"body\":1}\nx\n{\"t\n{\"text\":\"b\"}\n{";
    const char *path = put("bad.jsonl", lines, sizeof lines - 1);
    struct reader *r = open_one(path, (struct reader_config){.skip_bad_lines = true});
    expect(r, "a");
    struct reader_position first = reader_position(r);
    CHECK_EQ(expect(r, "b").line, 8);
    struct reader_position second = reader_position(r);
    CHECK_EQ(second.skipped, 6);
    expect(r, NULL);
    CHECK_EQ(reader_position(r).skipped, 7);
    reader_note_left_out(r, &progress);
    CHECK(strstr(notes, "7 lines or rows without a document were skipped"));
    CHECK(strstr(notes, "bad.jsonl:2: ") && strstr(notes, "bad.jsonl:6: ") && !strstr(notes, "bad.jsonl:7: "));
    CHECK(strstr(notes, "and 2 more"));
    CHECK_OK(reader_seek(r, first, NULL, 0));
    expect(r, "b");
    CHECK_EQ(reader_position(r).skipped, 6);
    CHECK_EQ(reader_position(r).part_hash, second.part_hash);
    reader_close(r);
    struct document d;
    int more;
    r = open_one(path, (struct reader_config){0});
    expect(r, "a");
    CHECK_FAILS(reader_next(r, &d, &more), STATUS_INVALID, "bad.jsonl:2");
    reader_close(r);
}

static void test_utf16(void) {
    static const struct {
        const char *data;
        size_t bytes;
        const char *text;
        uint64_t replaced;
    } cases[] = {
        {"\xFF\xFEh\0\xE9\0=\xD8\0\xDE\n\0", 12, "h\xC3\xA9\xF0\x9F\x98\x80\n", 0},
        {"\xFE\xFF\0h\0\xE9\xD8=\xDE\0\0\n", 12, "h\xC3\xA9\xF0\x9F\x98\x80\n", 0},
        {"\xFF\xFE=\xD8h\0\0\xDEx", 9, "\xEF\xBF\xBDh\xEF\xBF\xBD\xEF\xBF\xBD", 3},
        {"\xFF\xFE", 2, "", 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct reader *r = open_one(put("wide.txt", cases[i].data, cases[i].bytes), (struct reader_config){0});
        CHECK_EQ(expect(r, cases[i].text).replaced, cases[i].replaced);
        expect(r, NULL);
        reader_close(r);
    }
    struct reader *r; /* UTF-32, and UTF-16 without a byte order mark, are not text */
    struct document d;
    int more;
    r = open_one(put("wide.txt", "\xFF\xFE\0\0h\0\0\0", 8), (struct reader_config){0});
    CHECK_FAILS(reader_next(r, &d, &more), STATUS_INVALID, "is not text");
    reader_close(r);
}

static size_t pack(uint8_t *out, size_t capacity, int kind) {
    static const char text[] = "{\"text\":\"one\"}\n";
    size_t n = 0, bytes = sizeof text - 1;
    if (kind == 1) return ZSTD_compress(out, capacity, text, bytes, 3);
    if (kind == 2) {
        CHECK(lzma_easy_buffer_encode(6, LZMA_CHECK_CRC64, NULL, (const uint8_t *)text, bytes, out, &n, capacity) ==
              LZMA_OK);
        return n;
    }
    z_stream z = {
        .next_in = (Bytef *)(uintptr_t)text, .avail_in = (uInt)bytes, .next_out = out, .avail_out = (uInt)capacity};
    CHECK(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, 0) == Z_OK && deflate(&z, Z_FINISH) == Z_STREAM_END);
    n = z.total_out;
    deflateEnd(&z);
    return n;
}

/* The error describes the extra bytes and gives the byte where to cut; padding, and another stream after it, are
 * read. */
static void test_trailing(void) {
    static const char *const names[] = {"t.jsonl.gz", "t.jsonl.zst", "t.jsonl.xz"};
    for (int kind = 0; kind < 3; kind++) {
        uint8_t data[1000];
        char wanted[80];
        size_t n = pack(data, 400, kind), padding = kind == 1 ? 0 : 8;
        memcpy(data + n, "\nmore", 5);
        struct document d;
        int more;
        struct reader *r = open_one(put(names[kind], data, n + 5), (struct reader_config){0});
        snprintf(wanted, sizeof wanted, "follow its end at byte %zu: cut them off (truncate -s %zu)", n, n);
        CHECK_FAILS(reader_next(r, &d, &more), STATUS_INVALID, wanted);
        reader_close(r);
        memset(data + n, 0, padding);
        size_t again = pack(data + n + padding, 400, kind);
        r = open_one(put(names[kind], data, n + padding + again), (struct reader_config){0});
        expect(r, "one");
        expect(r, "one");
        expect(r, NULL);
        reader_close(r);
    }
}

/* A file of zstd --long=31 is not damaged: the message says what helps. */
static void test_wide_window(void) {
    static const uint8_t data[] = {0x28, 0xB5, 0x2F, 0xFD, 0, 21 << 3, 2 << 3 | 1, 0, 0, 'a', '\n'};
    struct document d;
    int more;
    struct reader *r = open_one(put("wide.txt.zst", data, sizeof data), (struct reader_config){0});
    CHECK_FAILS(reader_next(r, &d, &more), STATUS_UNSUPPORTED, "wide.txt.zst: zstd data with a window of more than");
    reader_close(r);
}

static void test_links(void) {
    mkdir(put("in", NULL, 0), 0777);
    mkdir(put("in/deep", NULL, 0), 0777);
    mkdir(put("out", NULL, 0), 0777);
    put("in/a.txt", "a", 1);
    put("out/o.txt", "o", 1);
    put("out/image.png", "x", 1);
    CHECK_EQ(symlink("../a.txt", put("in/deep/inside.txt", NULL, 0)), 0);
    CHECK_EQ(symlink("../out/o.txt", put("in/file.txt", NULL, 0)), 0);
    CHECK_EQ(symlink("../out", put("in/folder", NULL, 0)), 0);
    CHECK_EQ(symlink("../out/image.png", put("in/unwanted.png", NULL, 0)), 0);
    const char *in = put("in", NULL, 0);
    struct reader *r = open_one(in, (struct reader_config){0});
    CHECK(strstr(notes, "in: 2 links lead out of this folder and were followed (--no-follow"));
    expect(r, "a"); /* a.txt, deep/inside.txt, file.txt, folder/o.txt */
    expect(r, "a");
    expect(r, "o");
    expect(r, "o");
    expect(r, NULL);
    reader_close(r);
    r = open_one(in, (struct reader_config){.no_follow = true});
    CHECK_STR(notes, "");
    expect(r, "a");
    expect(r, NULL);
    reader_close(r);
    put("in/deep/binary.txt", "a\0b", 3);
    r = open_one(in, (struct reader_config){.no_follow = true});
    expect(r, "a");
    expect(r, NULL);
    reader_note_left_out(r, &progress);
    CHECK(strstr(notes, "1 files that are not text were passed over") && strstr(notes, "deep/binary.txt"));
    reader_close(r);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    test_bad_lines();
    test_utf16();
    test_trailing();
    test_wide_window();
    test_links();
    return test_done();
}
