/* test_stream_ahead.c -- a stream that a thread decompresses ahead gives the bytes and the errors of the stream itself,
 * and lines that are parsed later make the documents of reader_next. */
#include "base/rng.h"
#include "data/readers/reader.h"
#include "data/readers/stream_ahead.h"
#include "tests/test.h"
#include <zstd.h>

enum { LINES = 6000, LINE_DIGITS = 1200 };

static char path[700];

/* Lines of digits, which compress to some 40 percent of their bytes. Returns the bytes of the file. */
static size_t write_corpus(const char *name, bool bad_line) {
    static uint64_t files;
    struct rng r = rng_make(test_seed(), 3 + 5 * files++);
    char *text = malloc((size_t)LINES * (LINE_DIGITS + 64));
    size_t n = 0;
    for (int i = 0; i < LINES; i++) {
        n += (size_t)sprintf(text + n, "{\"id\": \"k%d\", \"text\": \"", i);
        for (int j = (int)rng_below(&r, LINE_DIGITS); j > 0; j--)
            text[n++] = j % 97 == 0 ? '\xFF' : (char)('0' + rng_below(&r, 10));
        n += (size_t)sprintf(text + n, "%s}\n%s", bad_line && i == LINES / 2 ? "" : "\"", i % 50 == 0 ? " \n" : "");
    }
    const size_t most = ZSTD_compressBound(n);
    char *packed = malloc(most);
    const size_t bytes = ZSTD_compress(packed, most, text, n, 1);
    snprintf(path, sizeof path, "%s/%s.jsonl.zst", test_folder(), name);
    FILE *f = fopen(path, "wb");
    CHECK(!ZSTD_isError(bytes) && bytes > 1 << 20 && f && fwrite(packed, 1, bytes, f) == bytes && fclose(f) == 0);
    free(packed);
    free(text);
    return bytes;
}

static void damage(size_t at) {
    FILE *f = fopen(path, "r+b");
    CHECK(f && fseek(f, (long)at, SEEK_SET) == 0);
    for (int i = 0; i < 64; i++)
        CHECK(fputc(0x5A + i, f) != EOF);
    CHECK(fclose(f) == 0);
}

/* Reads of whole blocks, or of a random number of bytes in an undamaged file. */
static void check_bytes(bool whole, int blocks) {
    struct stream *plain, *ahead;
    struct stream_ahead *a;
    static uint8_t x[STREAM_AHEAD_BLOCK], y[STREAM_AHEAD_BLOCK];
    struct rng r = rng_make(test_seed(), 4);
    CHECK_OK(stream_open(&plain, path));
    CHECK_OK(stream_open(&ahead, path));
    CHECK(stream_is_slow(ahead));
    CHECK_OK(stream_ahead_start(&a, ahead, blocks));
    for (;;) {
        const size_t n = whole ? sizeof x : 1 + rng_below(&r, sizeof x);
        size_t got, other;
        char message[1024];
        const enum status want = stream_read(plain, x, n, &got);
        snprintf(message, sizeof message, "%s", status_message());
        CHECK_EQ(stream_ahead_read(a, y, n, &other), want);
        if (want != STATUS_OK) {
            CHECK_STR(status_message(), message);
            CHECK_FAILS(stream_ahead_read(a, y, n, &other), want, "damaged zstd data"); /* and again */
            break;
        }
        CHECK_EQ(got, other);
        CHECK(memcmp(x, y, got) == 0);
        if (whole) CHECK_EQ(stream_ahead_consumed(a), stream_consumed(plain));
        if (got < n) break;
    }
    stream_ahead_free(a);
    stream_close(ahead);
    stream_close(plain);
}

static void test_bytes(void) {
    const size_t bytes = write_corpus("bytes", false);
    for (int blocks = 1; blocks < 200; blocks = 3 * blocks + 1) {
        check_bytes(true, blocks);
        check_bytes(false, blocks);
    }
    struct stream *s;
    struct stream_ahead *a;
    uint8_t byte;
    size_t got;
    CHECK_OK(stream_open(&s, path)); /* closed while the thread waits */
    CHECK_OK(stream_ahead_start(&a, s, 8));
    CHECK_OK(stream_ahead_read(a, &byte, 1, &got));
    stream_ahead_free(a);
    stream_close(s);
    damage(bytes / 2);
    check_bytes(true, 8);
}

static void test_lines(bool bad_line) {
    struct reader *r[2];
    struct document_parser *parser;
    struct document d[2];
    enum status s = STATUS_OK;
    write_corpus("lines", bad_line);
    const char *inputs[] = {path};
    for (int i = 0; i < 2; i++)
        CHECK_OK(reader_open(&r[i], &(struct reader_config){.inputs = inputs, .n_inputs = 1}));
    CHECK_OK(document_parser_create(&parser, r[1]));
    for (int n = 0;; n++) {
        int more[2];
        s = reader_next(r[0], &d[0], &more[0]);
        char message[1024];
        snprintf(message, sizeof message, "%s", status_message());
        CHECK_OK(reader_next_unparsed(r[1], &d[1], &more[1]));
        if (s == STATUS_OK) CHECK_EQ(more[0], more[1]);
        if (s == STATUS_OK && !more[0]) break;
        CHECK(d[1].unparsed);
        CHECK_EQ(document_parse(parser, &d[1]), s);
        if (s != STATUS_OK) {
            CHECK_STR(status_message(), message);
            break;
        }
        CHECK(d[0].bytes == d[1].bytes && memcmp(d[0].text, d[1].text, d[0].bytes) == 0);
        CHECK(d[0].line == d[1].line && d[0].offset == d[1].offset && d[0].replaced == d[1].replaced);
        CHECK_STR(d[0].key, d[1].key);
        const struct reader_position p = reader_position(r[0]), q = reader_position(r[1]);
        CHECK(memcmp(&p, &q, sizeof p) == 0);
        CHECK_OK(document_parse(parser, &d[0])); /* is parsed already */
    }
    CHECK_EQ(s, bad_line ? STATUS_INVALID : STATUS_OK);
    document_parser_free(parser);
    reader_close(r[0]);
    reader_close(r[1]);
}

/* ---- several files ---- */

enum { FILES = 7 };

/* Reads a document by both. Returns false at the end, or after a failure, which is the same of both. */
static bool check_document(struct reader *const r[2], enum status *status) {
    struct document d[2];
    int more[2];
    int64_t done[2], total[2];
    char message[1024];
    *status = reader_next(r[0], &d[0], &more[0]);
    snprintf(message, sizeof message, "%s", status_message());
    CHECK_EQ(reader_next(r[1], &d[1], &more[1]), *status);
    if (*status != STATUS_OK) CHECK_STR(status_message(), message);
    if (*status != STATUS_OK) return false;
    CHECK_EQ(more[0], more[1]);
    for (int i = 0; i < 2; i++)
        reader_progress(r[i], &done[i], &total[i]);
    const struct reader_position p = reader_position(r[0]), q = reader_position(r[1]);
    CHECK(memcmp(&p, &q, sizeof p) == 0 && total[0] == total[1]);
    if (!more[0]) return false;
    CHECK(d[0].bytes == d[1].bytes && memcmp(d[0].text, d[1].text, d[0].bytes) == 0);
    CHECK_STR(d[0].source, d[1].source);
    return true;
}

/* Documents, positions and the error at the end are those of a reader that opens one file at a time. bad: a file that
 * is damaged, or missing, if it is the last one; FILES: none. */
static void test_files(int bad) {
    char paths[FILES][700];
    const char *inputs[FILES];
    struct reader *r[2];
    enum status status;
    int n = 0;
    for (int i = 0; i < FILES; i++) {
        char name[40];
        snprintf(name, sizeof name, "file-%d", i);
        const size_t bytes = write_corpus(name, false);
        if (i == bad) damage(bytes / 2);
        snprintf(paths[i], sizeof paths[i], "%s", path);
        inputs[i] = paths[i];
    }
    for (int i = 0; i < 2; i++)
        CHECK_OK(reader_open(
            &r[i], &(struct reader_config){.inputs = inputs, .n_inputs = FILES, .ahead_bytes = i * (40 << 20)}));
    if (bad == FILES - 1) CHECK(remove(paths[bad]) == 0);
    while (check_document(r, &status))
        n++;
    CHECK_EQ(status == STATUS_OK, bad == FILES);
    CHECK(n >= bad * LINES && n < (bad + 1) * LINES);
    reader_close(r[0]);
    reader_close(r[1]);
    if (bad < FILES) return;
    /* a position of one reader in another one, which begins files that it does not read then, too */
    for (int i = 0; i < 2; i++)
        CHECK_OK(reader_open(
            &r[i], &(struct reader_config){.inputs = inputs, .n_inputs = FILES, .ahead_bytes = i * (40 << 20)}));
    for (n = 0; n < 2 * LINES + 700; n++)
        CHECK(check_document(r, &status));
    const struct reader_position middle = reader_position(r[0]);
    reader_close(r[1]);
    CHECK_OK(reader_open(&r[1], &(struct reader_config){.inputs = inputs, .n_inputs = FILES, .ahead_bytes = 40 << 20}));
    CHECK_OK(reader_seek(r[1], middle, NULL, 0));
    for (n = 0; n < LINES; n++)
        CHECK(check_document(r, &status));
    reader_close(r[0]);
    reader_close(r[1]);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    test_bytes();
    test_lines(false);
    test_lines(true);
    test_files(FILES);
    test_files(2);
    test_files(FILES - 1);
    return test_done();
}
