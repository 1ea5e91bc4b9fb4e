/* test_columnar.c -- parquet and arrow files that pyarrow wrote (make_columnar.py; they are the fuzz targets' corpora):
 * every codec and encoding gives the same documents; positions, resumption, and a one-line error for each file that
 * cannot be read. */
#include "base/file.h"
#include "data/readers/reader.h"
#include "tests/test.h"

enum { DOCUMENTS = 12 };
static char texts[DOCUMENTS][160];

static void make_texts(void) {
    for (int i = 0; i < DOCUMENTS; i++) {
        int n = snprintf(texts[i], sizeof texts[i], "document %d: ", i);
        for (int k = 0; k < i % 4; k++)
            n += snprintf(texts[i] + n, sizeof texts[i] - (size_t)n, "the river and the stone ");
        snprintf(texts[i] + n, sizeof texts[i] - (size_t)n, "\xCE%c", 0xB1 + i); /* alpha to mu */
    }
    texts[5][0] = '\0';
}

/* A file of the corpora, named parquet/x or arrow/x. */
static const char *file_of(const char *name) {
    static char path[FILE_PATH_MAX];
    const char *source = getenv("DRT_SOURCE"), *slash = strchr(name, '/');
    CHECK(source && slash);
    snprintf(path, sizeof path, "%s/tests/fuzz/corpus/fuzz_%s.%.*s", source, name, (int)(slash - name), name);
    CHECK(file_exists(path));
    return path;
}

static struct reader *open_rows(const char *path, struct reader_config config) {
    struct reader *r;
    config.inputs = &path;
    config.n_inputs = 1;
    CHECK_OK(reader_open(&r, &config));
    return r;
}

static struct document next_row(struct reader *r) {
    struct document d = {0};
    int more;
    CHECK_OK(reader_next(r, &d, &more));
    CHECK(more);
    return d;
}

static void expect_end(struct reader *r) {
    struct document d;
    int more = 1;
    int64_t done, total;
    CHECK_OK(reader_next(r, &d, &more));
    CHECK_EQ(more, 0);
    reader_progress(r, &done, &total);
    CHECK(total > 0 && done == total);
}

enum keys { KEYS_DOC, KEYS_NONE, KEYS_NUMBER, KEYS_POWER, KEYS_LARGE, KEYS_OFFSET };

static void expect_key(const char *key, enum keys keys, int i) {
    char wanted[40] = "";
    long long power = 1;
    for (int k = 0; k < i; k++)
        power *= -3;
    if (keys == KEYS_DOC) snprintf(wanted, sizeof wanted, "doc-%d", i);
    if (keys == KEYS_NUMBER) snprintf(wanted, sizeof wanted, "%d", i);
    if (keys == KEYS_POWER) snprintf(wanted, sizeof wanted, "%lld", power);
    if (keys == KEYS_LARGE) snprintf(wanted, sizeof wanted, "%lld", (1ll << 31) + i);
    if (keys == KEYS_OFFSET) snprintf(wanted, sizeof wanted, "%d", i + 3);
    CHECK_STR(key, wanted);
}

static const struct {
    const char *name;
    const char *field;
    enum keys keys;
    int rows_a_part; /* rows of a row group or record batch */
} same_documents[] = {
    {"parquet/plain_v1_none", "text", KEYS_DOC, 12},
    {"parquet/plain_v1_snappy", "text", KEYS_DOC, 12},
    {"parquet/plain_v1_gzip", "text", KEYS_DOC, 12},
    {"parquet/plain_v1_zstd", "text", KEYS_DOC, 12},
    {"parquet/plain_v1_lz4", "text", KEYS_DOC, 12},
    {"parquet/plain_v1_brotli", "text", KEYS_DOC, 12},
    {"parquet/dictionary_v2_none", "text", KEYS_DOC, 12},
    {"parquet/dictionary_v2_snappy", "text", KEYS_DOC, 12},
    {"parquet/dictionary_v2_gzip", "text", KEYS_DOC, 12},
    {"parquet/dictionary_v2_zstd", "text", KEYS_DOC, 12},
    {"parquet/dictionary_v2_lz4", "text", KEYS_DOC, 12},
    {"parquet/dictionary_v2_brotli", "text", KEYS_DOC, 12},
    {"parquet/dictionary_v1", "text", KEYS_DOC, 12},
    {"parquet/delta_length_byte_array_v1", "text", KEYS_DOC, 12},
    {"parquet/delta_length_byte_array_v2", "text", KEYS_DOC, 12},
    {"parquet/delta_byte_array_v1", "text", KEYS_DOC, 12},
    {"parquet/delta_byte_array_v2", "text", KEYS_DOC, 12},
    {"parquet/row_groups", "text", KEYS_DOC, 5},
    {"parquet/small_pages", "text", KEYS_DOC, 12},
    {"parquet/required", "text", KEYS_DOC, 12},
    {"parquet/categories", "text", KEYS_DOC, 12},
    {"parquet/nested", "text", KEYS_NUMBER, 12},
    {"parquet/nested", "meta.body", KEYS_NUMBER, 12},
    {"parquet/id_delta", "text", KEYS_POWER, 12},
    {"parquet/id_split", "text", KEYS_LARGE, 12},
    {"arrow/stream", "text", KEYS_DOC, 5},
    {"arrow/file", "text", KEYS_DOC, 5},
    {"arrow/file_zstd", "text", KEYS_DOC, 5},
    {"arrow/stream_lz4", "text", KEYS_DOC, 5},
    {"arrow/stream_zstd", "text", KEYS_DOC, 5},
    {"arrow/large", "text", KEYS_DOC, 5},
    {"arrow/view", "text", KEYS_DOC, 12},
    {"arrow/view_lz4", "text", KEYS_DOC, 5},
    {"arrow/nested", "text", KEYS_NUMBER, 5},
    {"arrow/nested", "meta.body", KEYS_NUMBER, 5},
    {"arrow/sliced", "text", KEYS_OFFSET, 5},
};

/* All documents; then, from each position, the rest of them with the same hashes. */
static void test_same_documents(void) {
    for (size_t c = 0; c < ARRAY_LEN(same_documents); c++) {
        const char *path = file_of(same_documents[c].name);
        const struct reader_config config = {.text_field = same_documents[c].field};
        struct reader_position at[DOCUMENTS + 1];
        struct reader *r = open_rows(path, config);
        for (int i = 0; i < DOCUMENTS; i++) {
            at[i] = reader_position(r);
            struct document d = next_row(r);
            if (strcmp(d.text, texts[i]) != 0) fprintf(stderr, "%s, row %d\n", same_documents[c].name, i);
            CHECK_STR(d.text, texts[i]);
            CHECK_EQ(d.bytes, strlen(texts[i]));
            CHECK_EQ(d.line, i + 1);
            CHECK_EQ(d.offset, i / same_documents[c].rows_a_part);
            CHECK(!d.ids && d.replaced == 0);
            expect_key(d.key, same_documents[c].keys, i);
        }
        at[DOCUMENTS] = reader_position(r);
        expect_end(r);
        reader_close(r);
        for (int from = 0; from <= DOCUMENTS; from++) {
            r = open_rows(path, config);
            CHECK_OK(reader_seek(r, at[from], NULL, 0));
            for (int i = from; i < DOCUMENTS; i++)
                CHECK_STR(next_row(r).text, texts[i]);
            CHECK_EQ(reader_position(r).part_hash, at[DOCUMENTS].part_hash);
            expect_end(r);
            reader_close(r);
        }
    }
}

/* Pages with a dictionary, then pages without, over several pages of each. */
static void test_fallback(void) {
    struct reader *r = open_rows(file_of("parquet/fallback"), (struct reader_config){0});
    for (int i = 0; i < 400; i++) {
        char wanted[40], key[40];
        snprintf(wanted, sizeof wanted, "%d text %d", i % 7, i % 50);
        snprintf(key, sizeof key, "%d", i);
        struct document d = next_row(r);
        CHECK_STR(d.text, wanted);
        CHECK_STR(d.key, key);
    }
    expect_end(r);
    reader_close(r);
}

static char notes[4096];
static void keep_note(void *context, const struct progress_event *event) {
    (void)context;
    if (event->note) snprintf(notes + strlen(notes), sizeof notes - strlen(notes), "%s\n", event->note);
}
static const struct progress progress = {.report = keep_note};

/* Every third text is null: an error with its position, or counted and reported once, by the run that read it. */
static void test_nulls(const char *name, const char *message) {
    struct document d;
    int more;
    struct reader *r = open_rows(file_of(name), (struct reader_config){0});
    CHECK_STR(next_row(r).text, texts[0]);
    CHECK_FAILS(reader_next(r, &d, &more), STATUS_INVALID, message);
    reader_close(r);
    r = open_rows(file_of(name), (struct reader_config){.skip_bad_lines = true});
    struct reader_position middle = {0}, end;
    for (int i = 0; i < DOCUMENTS; i++) {
        if (i % 3 == 1) continue;
        if (i == 6) middle = reader_position(r);
        d = next_row(r);
        CHECK_STR(d.text, texts[i]);
        CHECK_EQ(d.line, i + 1);
    }
    expect_end(r);
    end = reader_position(r);
    CHECK_EQ(end.skipped, 4);
    notes[0] = 0;
    reader_note_left_out(r, &progress);
    CHECK(strstr(notes, "4 lines or rows without a document were skipped") && strstr(notes, message));
    reader_close(r);
    r = open_rows(file_of(name), (struct reader_config){.skip_bad_lines = true});
    CHECK_OK(reader_seek(r, middle, NULL, 0));
    CHECK_STR(next_row(r).text, texts[6]);
    notes[0] = 0;
    reader_note_left_out(r, &progress);
    CHECK_STR(notes, "");
    for (more = 1; more;)
        CHECK_OK(reader_next(r, &d, &more));
    CHECK_EQ(reader_position(r).skipped, 4);
    CHECK_EQ(reader_position(r).files_hash, end.files_hash);
    reader_close(r);
}

static void test_bad_utf8(const char *name) {
    struct reader *r = open_rows(file_of(name), (struct reader_config){0});
    CHECK_EQ(next_row(r).replaced, 0);
    struct document d = next_row(r);
    CHECK_STR(d.text, "bad \xEF\xBF\xBD\xEF\xBF\xBD end");
    CHECK_EQ(d.replaced, 2);
    d = next_row(r);
    CHECK_STR(d.text, "cut \xEF\xBF\xBD");
    CHECK_EQ(d.replaced, 1);
    CHECK_STR(d.key, "");
    expect_end(r);
    reader_close(r);
}

static void expect_refused(const char *path, struct reader_config config, enum status status, const char *message) {
    struct reader *r = NULL;
    struct document d;
    int more = 1;
    config.inputs = &path;
    config.n_inputs = 1;
    enum status s = reader_open(&r, &config);
    while (s == STATUS_OK && more)
        s = reader_next(r, &d, &more);
    if (s != status || !strstr(status_message(), message)) {
        fprintf(stderr, "%s: %s: \"%s\", wanted \"%s\"\n", path, status_text(s), status_message(), message);
        test_fail(__FILE__, __LINE__, "wrong failure");
    }
    CHECK(strstr(status_message(), path) == status_message() && !strchr(status_message(), '\n'));
    reader_close(r);
}

static void test_refused(void) {
    const struct reader_config any = {0}, body = {.text_field = "body"}, small = {.max_document_bytes = 20};
    static const char none[] =
        "the column \"body\" is missing; the columns of text are \"text\", \"id\": name one with";
    expect_refused(file_of("parquet/plain_v1_none"), body, STATUS_INVALID, none);
    expect_refused(file_of("arrow/stream"), body, STATUS_INVALID, none);
    expect_refused(file_of("parquet/text_is_int"), any, STATUS_INVALID,
                   "the column \"text\" holds no text but int64; the columns of text are \"body\"");
    expect_refused(file_of("arrow/text_is_int"), any, STATUS_INVALID,
                   "the column \"text\" holds no text but integers; the columns of text are \"body\"");
    expect_refused(file_of("parquet/text_is_list"), any, STATUS_INVALID, "holds no text but a list");
    expect_refused(file_of("parquet/text_is_binary"), any, STATUS_INVALID, "holds no text but binary");
    expect_refused(file_of("parquet/encrypted_footer"), any, STATUS_UNSUPPORTED, "is encrypted");
    expect_refused(file_of("parquet/encrypted_column"), any, STATUS_UNSUPPORTED,
                   "row group 0: the column \"text\" is encrypted");
    expect_refused(file_of("arrow/categories"), any, STATUS_INVALID,
                   "dictionary-encoded values, which are not supported");
    expect_refused(file_of("parquet/row_groups"), small, STATUS_UNSUPPORTED,
                   "row group 0, row 2: the text of 38 bytes is longer than the limit of 20 bytes");
    expect_refused(file_of("arrow/file"), small, STATUS_UNSUPPORTED, "record batch 0, row 2: the text of 38 bytes");
    struct reader *r = open_rows(file_of("parquet/no_rows"), any);
    expect_end(r);
    reader_close(r);
    r = open_rows(file_of("arrow/no_rows"), any);
    expect_end(r);
    reader_close(r);
}

struct bytes {
    uint8_t data[20000];
    size_t size;
};

static void load(struct bytes *b, const char *name) {
    FILE *f = fopen(file_of(name), "rb");
    CHECK(f);
    b->size = fread(b->data, 1, sizeof b->data, f);
    fclose(f);
}
static const char *store(const struct bytes *b, size_t size, const char *name) {
    static char path[FILE_PATH_MAX];
    CHECK_OK(file_join(path, test_folder(), name));
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(b->data, 1, size, f) == size && fclose(f) == 0);
    return path;
}

/* Cut at every byte: a shorter corpus is always an error. A changed byte of a page with a checksum is found. */
static void test_damaged(void) {
    static const char *const cut[] = {"parquet/row_groups", "arrow/stream", "arrow/file_zstd"};
    struct bytes b;
    uint8_t *frame; /* of zstd */
    for (size_t c = 0; c < ARRAY_LEN(cut); c++) {
        load(&b, cut[c]);
        for (size_t size = 8; size < b.size; size += 3)
            expect_refused(store(&b, size, c ? "cut.arrow" : "cut.parquet"), (struct reader_config){0}, STATUS_INVALID,
                           "damaged");
    }
    load(&b, "parquet/plain_v1_none");
    memcpy(b.data, "JUNK", 4);
    expect_refused(store(&b, b.size, "x.parquet"), (struct reader_config){0}, STATUS_INVALID,
                   "PAR1 is missing at its start");
    load(&b, "parquet/plain_v1_none");
    memset(b.data + b.size - 8, 0x7F, 4);
    expect_refused(store(&b, b.size, "x.parquet"), (struct reader_config){0}, STATUS_INVALID,
                   "its footer is longer than the file");
    load(&b, "parquet/small_pages");
    frame = memmem(b.data, b.size, "\x28\xB5\x2F\xFD", 4);
    CHECK(frame);
    frame[7] ^= 1;
    expect_refused(store(&b, b.size, "x.parquet"), (struct reader_config){0}, STATUS_INVALID,
                   "row group 0, column \"text\", page at byte 4: its checksum is wrong");
    load(&b, "parquet/plain_v1_zstd");
    frame = memmem(b.data, b.size, "\x28\xB5\x2F\xFD", 4);
    CHECK(frame);
    frame[7] ^= 1;
    expect_refused(store(&b, b.size, "x.parquet"), (struct reader_config){0}, STATUS_INVALID,
                   "row group 0, column \"text\", page at byte 4: its");
}

/* Start of a message of an arrow file: 0 the schema, 1 the first record batch, and so on. */
static uint8_t *message_of(struct bytes *b, int number) {
    uint8_t *at = b->data;
    for (int i = 0; i <= number; i++, at++) {
        at = memmem(at, (size_t)(b->data + b->size - at), "\xFF\xFF\xFF\xFF", 4);
        CHECK(at);
    }
    return at - 1;
}

/* Rows after a damaged length, or in a file that was appended, are not left out. */
static void test_arrow_end(void) {
    static const char *const names[] = {"arrow/stream", "arrow/file"};
    struct bytes b;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        load(&b, names[i]);
        memset(message_of(&b, 2) + 4, 0, 4);
        expect_refused(store(&b, b.size, "cut.arrow"), (struct reader_config){0}, STATUS_INVALID,
                       "bytes follow the mark of its end at byte ");
        load(&b, names[i]);
        memcpy(b.data + b.size, b.data, b.size);
        expect_refused(store(&b, 2 * b.size, "cut.arrow"), (struct reader_config){0}, STATUS_INVALID,
                       "if files were joined, name them one by one");
    }
    uint8_t blocks[12] = {3}; /* number of record batches, and the position of the first */
    const uint64_t first = (uint64_t)(message_of(&b, 1) - b.data);
    memcpy(blocks + 4, &first, sizeof first);
    uint8_t *in_footer = memmem(b.data, b.size, blocks, sizeof blocks);
    CHECK(in_footer);
    *in_footer = 2;
    expect_refused(store(&b, b.size, "cut.arrow"), (struct reader_config){0}, STATUS_INVALID,
                   "it holds 3 record batches, and its footer lists 2");
}

/* Text that was read must not change before a resumption; text after it may. */
static void test_changed(void) {
    struct bytes b;
    load(&b, "parquet/plain_v1_none");
    const char *path = store(&b, b.size, "changed.parquet");
    struct reader *r = open_rows(path, (struct reader_config){0});
    next_row(r);
    next_row(r);
    struct reader_position two = reader_position(r);
    next_row(r);
    struct reader_position three = reader_position(r);
    reader_close(r);
    uint8_t *third = memmem(b.data, b.size, "document 2", 10);
    CHECK(third);
    third[9] = '9';
    store(&b, b.size, "changed.parquet");
    r = open_rows(path, (struct reader_config){0});
    CHECK_FAILS(reader_seek(r, three, NULL, 0), STATUS_MISMATCH, "has changed since");
    CHECK_OK(reader_seek(r, two, NULL, 0));
    CHECK(strncmp(next_row(r).text, "document 9", 10) == 0);
    reader_close(r);
}

/* By name, and by the first bytes; folders mix formats, and leave out the caches of the package `datasets`. */
static void test_formats(void) {
    struct bytes b;
    enum reader_format format;
    CHECK_OK(reader_format_parse(&format, "arrow"));
    CHECK_EQ(format, READER_ARROW);
    load(&b, "parquet/plain_v1_none");
    store(&b, b.size, "train-00000-of-00001.parquet");
    store(&b, b.size, "no_suffix");
    load(&b, "arrow/stream");
    store(&b, b.size, "data-00000-of-00001.arrow");
    store(&b, b.size, "cache-0123456789abcdef.arrow");
    memcpy(b.data, "{\"text\": \"one\"}\n", 16);
    store(&b, 16, "some.jsonl");
    unlink(store(&b, 16, "x.parquet"));
    unlink(store(&b, 16, "cut.parquet"));
    unlink(store(&b, 16, "cut.arrow"));
    unlink(store(&b, 16, "changed.parquet"));
    struct document d;
    int more, count = 0;
    struct reader *r = open_rows(test_folder(), (struct reader_config){0});
    for (more = 1; more; count += more)
        CHECK_OK(reader_next(r, &d, &more));
    CHECK_EQ(count, 2 * DOCUMENTS + 1);
    reader_close(r);
    r = open_rows(test_folder(), (struct reader_config){.format = READER_PARQUET});
    for (more = 1, count = 0; more; count += more)
        CHECK_OK(reader_next(r, &d, &more));
    CHECK_EQ(count, DOCUMENTS);
    reader_close(r);
    char path[FILE_PATH_MAX];
    CHECK_OK(file_join(path, test_folder(), "no_suffix"));
    r = open_rows(path, (struct reader_config){0});
    CHECK_STR(next_row(r).text, texts[0]);
    reader_close(r);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    make_texts();
    test_same_documents();
    test_fallback();
    test_nulls("parquet/nulls", "row group 0, row 2: the column \"text\" is null");
    test_nulls("arrow/nulls", "record batch 0, row 2: the column \"text\" is null");
    test_bad_utf8("parquet/bad_utf8");
    test_bad_utf8("arrow/bad_utf8");
    test_refused();
    test_damaged();
    test_arrow_end();
    test_changed();
    test_formats();
    return test_done();
}
