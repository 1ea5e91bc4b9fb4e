/* test_reader.c -- every format, every compression, positions, and one error of each kind. */
#include "base/file.h"
#include "data/readers/reader.h"
#include "tests/test.h"
#include <lzma.h>
#include <sys/resource.h>
#include <zlib.h>
#include <zstd.h>

static char root[FILE_PATH_MAX / 2];

static const char *at(const char *name) {
    static char paths[8][FILE_PATH_MAX];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, FILE_PATH_MAX, "%s/%s", root, name);
    return path;
}

static const char *put(const char *name, const void *data, size_t bytes) {
    const char *path = at(name);
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(data, 1, bytes, f) == bytes && fclose(f) == 0);
    return path;
}
static const char *put_text(const char *name, const char *text) {
    return put(name, text, strlen(text));
}

struct packed {
    unsigned char data[1 << 16];
    size_t bytes;
};

static void pack_gzip(struct packed *p, const char *text) {
    z_stream z = {0};
    CHECK(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, 0) == Z_OK);
    z.next_in = (Bytef *)(uintptr_t)text;
    z.avail_in = (uInt)strlen(text);
    z.next_out = p->data + p->bytes;
    z.avail_out = (uInt)(sizeof p->data - p->bytes);
    CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
    p->bytes += z.total_out;
    deflateEnd(&z);
}

static void pack_zstd(struct packed *p, const char *text) {
    size_t n = ZSTD_compress(p->data + p->bytes, sizeof p->data - p->bytes, text, strlen(text), 3);
    CHECK(!ZSTD_isError(n));
    p->bytes += n;
}

static void pack_xz(struct packed *p, const char *text) {
    CHECK(lzma_easy_buffer_encode(6, LZMA_CHECK_CRC64, NULL, (const uint8_t *)text, strlen(text), p->data, &p->bytes,
                                  sizeof p->data) == LZMA_OK);
}

static struct reader *open_one(const char *input, enum reader_format format) {
    struct reader *r;
    const char *inputs[] = {input};
    CHECK_OK(reader_open(&r, &(struct reader_config){.inputs = inputs, .n_inputs = 1, .format = format, .eod_id = -1}));
    return r;
}

/* The next document must be this text. */
static struct document expect(struct reader *r, const char *text) {
    struct document d;
    int more;
    CHECK_OK(reader_next(r, &d, &more));
    CHECK(more);
    CHECK(d.text);
    CHECK_STR(d.text, text);
    CHECK_EQ(d.bytes, strlen(text));
    return d;
}

static void expect_end(struct reader *r) {
    struct document d;
    int more;
    for (int i = 0; i < 2; i++) { /* and stays there */
        CHECK_OK(reader_next(r, &d, &more));
        CHECK_EQ(more, 0);
    }
    reader_close(r);
}

static void expect_failure(const char *input, enum reader_format format, enum status code, const char *text) {
    struct reader *r;
    struct document d;
    int more = 1;
    const char *inputs[] = {input};
    struct reader_config config = {
        .inputs = inputs, .n_inputs = 1, .format = format, .eod_id = 0, .max_document_bytes = 4000};
    enum status status = reader_open(&r, &config);
    bool opened = status == STATUS_OK;
    while (status == STATUS_OK && more)
        status = reader_next(r, &d, &more);
    if (status != code || !strstr(status_message(), text) || strchr(status_message(), '\n')) {
        fprintf(stderr, "%s: %s \"%s\", wanted \"%s\"\n", input, status_text(status), status_message(), text);
        test_fail(__FILE__, __LINE__, "wrong failure");
    }
    if (opened) reader_close(r);
}

static void test_jsonl(void) {
    const char *path =
        put_text("a.jsonl", "\xEF\xBB\xBF{\"text\":\"one\",\"id\":\"k1\"}\r\n"
                            "\n  \t\r\n"
                            "{\"meta\":{\"x\":[1,{}],\"id\":7},\"text\":\"t\\u00e9\\n\\ud83d\\ude00\\\"\"}\n"
                            "{\"text\":\"\"}\n"
                            "{\"text\":\"a\xFF\xE4\xB8z\",\"id\":null}\n"
                            "{\"text\":\"first\",\"n\":1e5,\"text\":\"last\"}");
    struct reader *r = open_one(path, READER_AUTO);
    struct document d = expect(r, "one");
    CHECK_STR(d.key, "k1");
    CHECK_STR(d.source, path);
    CHECK_EQ(d.line, 1);
    CHECK_EQ(d.offset, 0);
    d = expect(r, "t\xC3\xA9\n\xF0\x9F\x98\x80\"");
    CHECK_STR(d.key, "7");
    CHECK_EQ(d.line, 4);
    CHECK_EQ(d.offset, 35);
    CHECK_EQ(d.replaced, 0);
    d = expect(r, "");
    CHECK_STR(d.key, "");
    d = expect(r, "a\xEF\xBF\xBD\xEF\xBF\xBDz");
    CHECK_EQ(d.replaced, 2);
    CHECK_STR(d.key, "");
    d = expect(r, "last");
    CHECK_EQ(d.line, 7);
    int64_t done, total;
    reader_progress(r, &done, &total);
    CHECK_EQ(done, total);
    expect_end(r);

    const char *inputs[] = {put_text("field.jsonl", "{\"body\":\"b\",\"text\":5}\n")};
    CHECK_OK(reader_open(&r, &(struct reader_config){.inputs = inputs, .n_inputs = 1, .text_field = "body"}));
    expect(r, "b");
    expect_end(r);
    /* If the name does not show the format, the first byte that is not a space decides. */
    r = open_one(put_text("nameless", "\n {\"text\":\"x\"}\n"), READER_AUTO);
    expect(r, "x");
    expect_end(r);
    r = open_one(put_text("empty.jsonl", ""), READER_AUTO);
    expect_end(r);
}

/* The key is the last "id" of the line, or the "id" of its last "meta" if there is none, in any order. */
static void test_jsonl_keys(void) {
    static const struct {
        const char *members, *key;
    } cases[] = {
        {"\"id\":\"a\",\"meta\":{\"id\":\"m\"}", "a"},
        {"\"meta\":{\"id\":\"m\"},\"id\":\"a\"", "a"},
        {"\"id\":null,\"meta\":{\"id\":\"m\"}", ""},
        {"\"meta\":{\"id\":\"m\"},\"id\":null", ""},
        {"\"meta\":{\"id\":\"m\"},\"id\":[1]", ""},
        {"\"id\":\"a\",\"id\":true", ""},
        {"\"id\":\"a\",\"id\":-7.50", "-7.50"},
        {"\"meta\":{\"id\":\"m\"},\"meta\":{}", ""},
        {"\"meta\":{\"id\":\"m\"},\"meta\":3", ""},
        {"\"meta\":{\"id\":\"m\",\"id\":\"n\"}", "n"},
        {"\"id\":\"a\\u0000b\"", "a\xEF\xBF\xBD"
                                 "b"},
        {"\"id\":\"a\xFF\"", "a\xEF\xBF\xBD"},
        {"\"id\":\"\\ud800\"", "\xEF\xBF\xBD"},
        {"\"text\":5", ""}, /* not the last "text" */
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char line[200];
        snprintf(line, sizeof line, "{%s,\"text\":\"x\"}\n", cases[i].members);
        struct reader *r = open_one(put_text("keys.jsonl", line), READER_AUTO);
        CHECK_STR(expect(r, "x").key, cases[i].key);
        expect_end(r);
    }
    expect_failure(put_text("keys.jsonl", "{\"text\":\"x\",\"text\":5}\n"), READER_AUTO, STATUS_INVALID,
                   "keys.jsonl:1: the field \"text\" is not a string");
}

static void test_jsonl_errors(void) {
    expect_failure(put_text("e.jsonl", "{\"text\":\"ok\"}\n{\"text\":\"x\",}\n"), READER_AUTO, STATUS_INVALID,
                   "e.jsonl:2: not valid JSON at column 13: correct it, or leave it out (--skip-bad-lines)");
    expect_failure(put_text("e.jsonl", "{\"text\":\"ok\"}\n\n{\"body\":\"x\"}\n"), READER_AUTO, STATUS_INVALID,
                   "e.jsonl:3: no field \"text\"");
    CHECK(strstr(status_message(), "--text-field"));
    expect_failure(put_text("e.jsonl", "{\"text\":null}\n"), READER_AUTO, STATUS_INVALID,
                   "e.jsonl:1: the field \"text\" is not a string");
    CHECK(strstr(status_message(), "--text-field"));
    expect_failure(put_text("e.jsonl", "[1]\n"), READER_AUTO, STATUS_INVALID, "e.jsonl:1: not a JSON object");
    expect_failure(put_text("e.json", " [\n {\"text\":\"a\"}]\n"), READER_AUTO, STATUS_UNSUPPORTED, "one JSON array");
    expect_failure(put_text("e.jsonl", "some words\n"), READER_AUTO, STATUS_INVALID,
                   "e.jsonl:1: not valid JSON at column 1; if this is plain text, give --format txt");
    char deep[300] = "{\"x\":";
    memset(deep + 5, '[', 100);
    memset(deep + 105, ']', 100);
    strcpy(deep + 205, ",\"text\":\"a\"}\n");
    expect_failure(put_text("e.jsonl", deep), READER_AUTO, STATUS_INVALID,
                   "e.jsonl:1: JSON nested deeper than is read at column 69");
    expect_failure(put_text("e.jsonl", "{\"text\":\"a\"} {\n"), READER_AUTO, STATUS_INVALID,
                   "e.jsonl:1: not valid JSON");
    expect_failure(put_text("e.jsonl", "{\"text\":\"a\tb\"}\n"), READER_AUTO, STATUS_INVALID,
                   "e.jsonl:1: not valid JSON");
    expect_failure(put_text("e.jsonl", "{\"text\":\"cut of"), READER_AUTO, STATUS_INVALID, "e.jsonl:1: not valid JSON");
    char *large = malloc(9000);
    memset(large, 'x', 9000);
    memcpy(large, "{\"text\":\"", 9);
    memcpy(large + 8997, "\"}\n", 3);
    expect_failure(put("e.jsonl", large, 9000), READER_AUTO, STATUS_UNSUPPORTED,
                   "e.jsonl:1: the line is longer than the limit of 4000");
    free(large);
}

typedef void packer(struct packed *p, const char *text);

static void test_compressed(const char *suffix, packer *pack) {
    char name[64];
    struct packed p = {.bytes = 0};
    pack(&p, "{\"text\":\"one\"}\n{\"text\":");
    size_t first = p.bytes;
    pack(&p, "\"two\"}\n"); /* a second member, in the middle of a line */
    snprintf(name, sizeof name, "c.jsonl%s", suffix);
    struct reader *r = open_one(put(name, p.data, p.bytes), READER_AUTO);
    expect(r, "one");
    struct reader_position between = reader_position(r);
    expect(r, "two");
    CHECK_OK(reader_seek(r, between, NULL, 0));
    expect(r, "two");
    int64_t done, total;
    reader_progress(r, &done, &total);
    CHECK_EQ(total, (int64_t)p.bytes);
    CHECK_EQ(done, total);
    expect_end(r);
    /* Every truncation is noticed, except one between two members. */
    for (size_t cut = 1; cut < p.bytes; cut++) {
        snprintf(name, sizeof name, "cut.jsonl%s", suffix);
        expect_failure(put(name, p.data, cut), READER_AUTO, STATUS_INVALID, "cut.jsonl");
        if (cut != first && cut > 8)
            CHECK(strstr(status_message(), "cut short") || strstr(status_message(), "damaged"));
    }
    /* Damage in the compressed bytes. */
    p.data[first / 2] ^= 0x55;
    p.data[first / 2 + 1] ^= 0x55;
    expect_failure(put(name, p.data, p.bytes), READER_AUTO, STATUS_INVALID, "cut.jsonl");
    expect_failure(put(name, "{\"text\":\"plain\"}\n", 17), READER_AUTO, STATUS_INVALID, "although its name states it");
    expect_failure(put(name, "", 0), READER_AUTO, STATUS_INVALID, "the file is empty");
    /* Compressed, although the name does not show it. */
    p.bytes = 0;
    pack(&p, "{\"text\":\"quiet\"}\n");
    r = open_one(put("quiet.jsonl", p.data, p.bytes), READER_AUTO);
    expect(r, "quiet");
    expect_end(r);
}

static void test_folders(void) {
    mkdir(at("folder"), 0777);
    mkdir(at("folder/b"), 0777);
    mkdir(at("folder/.git"), 0777);
    struct packed p = {.bytes = 0};
    pack_gzip(&p, "zipped");
    put_text("folder/z.txt", "\xEF\xBB\xBFlast \xFF");
    put_text("folder/b/n.md", "inner");
    put("folder/b/a.rst.gz", p.data, p.bytes);
    put_text("folder/empty.tex", "");
    put("folder/binary.txt", "PK\0\0", 4);
    put_text("folder/.hidden.txt", "no");
    put_text("folder/.git/x.txt", "no");
    put_text("folder/picture.png", "no");
    put_text("folder/j.jsonl", "{\"text\":\"from jsonl\"}\n");
    CHECK(symlink("..", at("folder/b/up")) == 0);
    CHECK(symlink("nowhere", at("folder/dangling.txt")) == 0);
    struct reader *r = open_one(at("folder"), READER_AUTO);
    struct document d = expect(r, "zipped");
    CHECK(strstr(d.source, "folder/b/a.rst.gz"));
    expect(r, "inner");
    /* binary.txt is skipped */
    expect(r, "");
    expect(r, "from jsonl");
    d = expect(r, "last \xEF\xBF\xBD");
    CHECK_EQ(d.replaced, 1);
    CHECK_EQ(d.line, 0);
    expect_end(r);
    r = open_one(at("folder"), READER_JSONL);
    expect(r, "from jsonl");
    expect_end(r);
    r = open_one(at("folder/b/n.md"), READER_AUTO);
    expect(r, "inner");
    expect_end(r);
    expect_failure(at("folder/binary.txt"), READER_AUTO, STATUS_INVALID, "is not text");
    expect_failure(at("folder"), READER_U16, STATUS_INVALID, "is a folder");
    mkdir(at("bare"), 0777);
    put_text("bare/x.png", "");
    expect_failure(at("bare"), READER_AUTO, STATUS_NOT_FOUND, "holds no text");
    char large[5000];
    memset(large, 'x', sizeof large);
    expect_failure(put("large.txt", large, sizeof large), READER_AUTO, STATUS_UNSUPPORTED,
                   "large.txt: is larger than the limit");
}

/* Folders deeper than the limit of descriptors; links to parents, to siblings, and two links to one folder: every
 * folder is read once, and the walk ends. */
static void test_linked_folders(void) {
    char path[FILE_PATH_MAX], long_name[256], name[32];
    struct rlimit before, few;
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before, few.rlim_cur = 64;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    mkdir(at("deep"), 0777);
    int n = snprintf(path, sizeof path, "%s", at("deep"));
    for (int i = 0; i < 300; i++, n += 2) {
        snprintf(path + n, sizeof path - (size_t)n, "/d");
        CHECK_EQ(mkdir(path, 0777), 0);
    }
    snprintf(path + n, sizeof path - (size_t)n, "/x.txt");
    FILE *file = fopen(path, "w");
    CHECK(file && fputs("at the bottom", file) >= 0 && fclose(file) == 0);
    struct reader *r = open_one(at("deep"), READER_AUTO);
    expect(r, "at the bottom");
    expect_end(r);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);

    mkdir(at("web"), 0777);
    mkdir(at("outside"), 0777);
    put_text("outside/o.txt", "outside");
    for (int i = 0; i < 12; i++) { /* each links to all: followed path by path that would be 12! walks */
        snprintf(name, sizeof name, "web/%d", i);
        mkdir(at(name), 0777);
        snprintf(name, sizeof name, "web/%d/a.txt", i);
        put_text(name, "in the web");
        for (int j = 0; j < 12; j++) {
            char link[32], target[32];
            snprintf(link, sizeof link, "web/%d/to-%d", i, j);
            snprintf(target, sizeof target, "../%d", j);
            CHECK_EQ(symlink(target, at(link)), 0);
        }
    }
    CHECK_EQ(symlink("../outside", at("web/a")), 0);
    CHECK_EQ(symlink("../outside", at("web/b")), 0);
    CHECK_EQ(symlink("itself", at("web/itself")), 0);
    r = open_one(at("web"), READER_AUTO);
    for (int i = 0; i < 12; i++) {
        struct document d = expect(r, "in the web");
        CHECK(!strstr(d.source, "to-")); /* under its own name */
    }
    struct document d = expect(r, "outside");
    CHECK(strstr(d.source, "web/a/o.txt"));
    expect_end(r);

    memset(long_name, 'n', 255);
    long_name[255] = '\0';
    mkdir(at("far"), 0777);
    CHECK_EQ(chdir(at("far")), 0);
    for (int i = 0; i < 17; i++) {
        CHECK_EQ(mkdir(long_name, 0777), 0);
        CHECK_EQ(chdir(long_name), 0);
    }
    CHECK_EQ(chdir("/"), 0);
    expect_failure(at("far"), READER_AUTO, STATUS_INVALID, "name a folder further down");
}

static void expect_ids(struct reader *r, const uint32_t *ids, size_t n, uint64_t offset) {
    struct document d;
    int more;
    CHECK_OK(reader_next(r, &d, &more));
    CHECK(more && d.text == NULL && d.ids);
    CHECK_EQ(d.n_ids, n);
    CHECK(n == 0 || memcmp(d.ids, ids, n * sizeof *ids) == 0);
    CHECK_EQ(d.offset, offset);
}
#define IDS(...) (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / 4

static void test_tokens(void) {
    uint16_t ids[] = {5, 6, 0, 0, 7, 65535, 0};
    uint32_t wide[] = {1, 70000, 9, 2};
    struct reader *r;
    const char *inputs[] = {put("t.u16", ids, sizeof ids)};
    struct reader_config config = {.inputs = inputs, .n_inputs = 1};
    CHECK_OK(reader_open(&r, &config));
    expect_ids(r, IDS(5, 6), 0);
    expect_ids(r, NULL, 0, 6);
    struct reader_position p = reader_position(r);
    expect_ids(r, IDS(7, 65535), 8);
    CHECK_OK(reader_seek(r, p, NULL, 0));
    expect_ids(r, IDS(7, 65535), 8);
    expect_end(r);
    config.eod_id = -1;
    CHECK_OK(reader_open(&r, &config));
    expect_ids(r, IDS(5, 6, 0, 0, 7, 65535, 0), 0);
    expect_end(r);
    inputs[0] = put("data", wide, sizeof wide);
    config.format = READER_U32;
    config.eod_id = 9;
    CHECK_OK(reader_open(&r, &config));
    expect_ids(r, IDS(1, 70000), 0);
    expect_ids(r, IDS(2), 12);
    expect_end(r);
    r = open_one(put("none.u16", "", 0), READER_AUTO);
    expect_end(r);
    expect_failure(put("odd.u16", "abc", 3), READER_AUTO, STATUS_INVALID, "3 bytes is not a multiple of 2");
    expect_failure(put("odd.u32", "abcdef", 6), READER_AUTO, STATUS_INVALID, "6 bytes is not a multiple of 4");
    expect_failure(at("data"), READER_AUTO, STATUS_UNSUPPORTED, "--format");
    uint16_t large[3000];
    memset(large, 1, sizeof large);
    expect_failure(put("large.u16", large, sizeof large), READER_AUTO, STATUS_UNSUPPORTED, "end-of-document id?");
    config = (struct reader_config){.inputs = inputs, .n_inputs = 1, .format = READER_U16, .eod_id = 70000};
    inputs[0] = at("t.u16");
    struct document d;
    int more;
    CHECK_OK(reader_open(&r, &config));
    CHECK_FAILS(reader_next(r, &d, &more), STATUS_INVALID, "does not fit");
    reader_close(r);
}

/* ---- Megatron ------------------------------------------------------------------------------------------------- */

struct index {
    unsigned char data[256];
    size_t bytes;
};

static void add(struct index *x, int64_t value, int bytes) {
    for (int i = 0; i < bytes; i++)
        x->data[x->bytes++] = (unsigned char)(value >> (8 * i));
}

/* Three sequences of u16: {1,2,0} {3} {4,0}; documents: {0,1} {} {2}. Each field can be overwritten afterwards. */
static struct index make_index(int code, int width) {
    struct index x = {.bytes = 0};
    memcpy(x.data, "MMIDIDX\0\0", 9);
    x.bytes = 9;
    add(&x, 1, 8);
    add(&x, code, 1);
    add(&x, 3, 8);
    add(&x, 4, 8);
    const int lengths[] = {3, 1, 2};
    for (int i = 0; i < 3; i++)
        add(&x, lengths[i], 4);
    for (int i = 0, at_byte = 0; i < 3; at_byte += lengths[i++] * width)
        add(&x, at_byte, 8);
    const int documents[] = {0, 2, 2, 3};
    for (int i = 0; i < 4; i++)
        add(&x, documents[i], 8);
    return x;
}

static void megatron_failure(size_t offset, unsigned char byte, size_t bytes, enum status code, const char *text) {
    struct index x = make_index(8, 2);
    if (offset < x.bytes) x.data[offset] = byte;
    put("m.idx", x.data, bytes ? bytes : x.bytes);
    expect_failure(at("m.bin"), READER_AUTO, code, text);
}

static void test_megatron(void) {
    const int64_t ids[] = {1, 2, 0, 3, 4, 0};
    const struct { int code, width; } kinds[] = {{8, 2}, {3, 2}, {4, 4}, {5, 8}, {1, 1}, {2, 1}};
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        struct index bin = {.bytes = 0}, x = make_index(kinds[k].code, kinds[k].width);
        for (int i = 0; i < 6; i++)
            add(&bin, ids[i], kinds[k].width);
        put("m.bin", bin.data, bin.bytes);
        put("m.idx", x.data, x.bytes);
        const char *names[] = {"m", "m.bin", "m.idx"};
        const char *inputs[] = {at(names[k % 3])};
        struct reader *r;
        CHECK_OK(reader_open(&r, &(struct reader_config){.inputs = inputs, .n_inputs = 1, .eod_id = k % 2 ? -1 : 0}));
        expect_ids(r, IDS(1, 2, 0, 3), 0); /* the id 0 inside stays: only a trailing one is dropped */
        struct reader_position p = reader_position(r);
        expect_ids(r, NULL, 0, 0);
        if (k % 2)
            expect_ids(r, IDS(4, 0), (uint64_t)(4 * kinds[k].width));
        else
            expect_ids(r, IDS(4), (uint64_t)(4 * kinds[k].width));
        CHECK_OK(reader_seek(r, p, NULL, 0));
        expect_ids(r, NULL, 0, 0);
        reader_close(r);
    }
    uint16_t bin[] = {1, 2, 0, 3, 4, 0};
    put("m.bin", bin, sizeof bin);
    megatron_failure(0, 'X', 0, STATUS_INVALID, "MMIDIDX");
    megatron_failure(9, 2, 0, STATUS_VERSION, "version 2");
    megatron_failure(17, 6, 0, STATUS_UNSUPPORTED, "type code 6");
    megatron_failure(17, 4, 0, STATUS_INVALID, "outside"); /* i32 needs twice the bytes */
    megatron_failure(18, 4, 0, STATUS_INVALID, "does not fit 4 sequences");
    megatron_failure(25, 0xFF, 0, STATUS_INVALID, "does not fit");
    megatron_failure(26, 9, 0, STATUS_INVALID, "does not fit");
    megatron_failure(34 + 3, 0x80, 0, STATUS_INVALID, "sequence 0");
    megatron_failure(34 + 8, 3, 0, STATUS_INVALID, "sequence 2");
    megatron_failure(46 + 7, 0x80, 0, STATUS_INVALID, "sequence 0");
    megatron_failure(46 + 16, 11, 0, STATUS_INVALID, "sequence 2");
    megatron_failure(70, 1, 0, STATUS_INVALID, "entry 0");
    megatron_failure(70 + 8, 3, 0, STATUS_INVALID, "entry 2");
    megatron_failure(70 + 24, 2, 0, STATUS_INVALID, "entry 3");
    megatron_failure(999, 0, 20, STATUS_INVALID, "MMIDIDX");
    megatron_failure(999, 0, 101, STATUS_INVALID, "does not fit");
    struct index x = make_index(3, 2);
    put("m.idx", x.data, x.bytes);
    bin[1] = 0x8000;
    put("m.bin", bin, sizeof bin);
    expect_failure(at("m"), READER_MEGATRON, STATUS_INVALID, "byte 2 is negative");
    unlink(at("m.idx"));
    expect_failure(at("m"), READER_MEGATRON, STATUS_NOT_FOUND, "m.idx");
}

/* Reading from every position gives the same documents as reading from the start, for several kinds of inputs. */
static void test_seek(void) {
    struct packed p = {.bytes = 0};
    pack_zstd(&p, "{\"text\":\"d\"}\n\n{\"text\":\"e\"}\n");
    const char *inputs[] = {put_text("s1.jsonl", "{\"text\":\"a\"}\n{\"text\":\"b\"}\n"), put_text("s2.txt", "c"),
                            put_text("s3.txt", ""), put("s4.jsonl.zst", p.data, p.bytes), put_text("s5.jsonl", "\n")};
    struct reader_config config = {.inputs = inputs, .n_inputs = 5};
    const char *texts[] = {"a", "b", "c", "", "d", "e"};
    struct reader_position positions[7];
    struct reader *r;
    CHECK_OK(reader_open(&r, &config));
    for (int i = 0; i < 6; i++) {
        positions[i] = reader_position(r);
        CHECK_EQ(positions[i].documents, i);
        expect(r, texts[i]);
    }
    positions[6] = reader_position(r);
    expect_end(r);
    for (int start = 6; start >= 0; start--) {
        CHECK_OK(reader_open(&r, &config));
        CHECK_OK(reader_seek(r, positions[start], NULL, 0));
        for (int i = start; i < 6; i++) {
            CHECK_EQ(reader_position(r).documents, i);
            struct document d = expect(r, texts[i]);
            if (i == 5) CHECK_EQ(d.line, 3);
        }
        expect_end(r);
    }
    CHECK_OK(reader_open(&r, &config));
    CHECK_FAILS(reader_seek(r, (struct reader_position){.file = 9}, NULL, 0), STATUS_MISMATCH,
                "9 files were read before");
    CHECK_FAILS(reader_seek(r, (struct reader_position){.file = 0, .offset = 500}, NULL, 0), STATUS_MISMATCH,
                "s1.jsonl");
    struct reader_position beyond = positions[5];
    beyond.offset = 500;
    CHECK_FAILS(reader_seek(r, beyond, NULL, 0), STATUS_MISMATCH, "s4.jsonl.zst");
    CHECK_OK(reader_seek(r, positions[5], NULL, 0)); /* a refused position leaves the reader usable */
    expect(r, "e");
    reader_close(r);
}

/* A pipe on standard input that gives one byte at a time. */
static void test_stdin(void) {
    int ends[2], saved = dup(0);
    CHECK(saved >= 0 && pipe(ends) == 0);
    const char *text = "{\"text\":\"piped\"}\n{\"text\":\"again\"}\n";
    CHECK(write(ends[1], text, strlen(text)) == (ssize_t)strlen(text));
    close(ends[1]);
    CHECK(dup2(ends[0], 0) == 0);
    struct reader *r = open_one("-", READER_AUTO);
    CHECK_OK(reader_seek(r, (struct reader_position){0}, NULL, 0)); /* the start is allowed */
    expect(r, "piped");
    int64_t done, total;
    reader_progress(r, &done, &total);
    CHECK(total < 0);
    CHECK_FAILS(reader_seek(r, reader_position(r), NULL, 0), STATUS_UNSUPPORTED, "standard input");
    expect(r, "again");
    expect_end(r);
    CHECK(dup2(saved, 0) == 0);
    close(saved);
    close(ends[0]);
}

static void test_configuration(void) {
    struct reader *r;
    const char *twice[] = {"-", "-"};
    CHECK_FAILS(reader_open(&r, &(struct reader_config){0}), STATUS_INVALID, "no input");
    CHECK_FAILS(reader_open(&r, &(struct reader_config){.inputs = twice, .n_inputs = 2}), STATUS_INVALID, "twice");
    CHECK_FAILS(reader_open(&r, &(struct reader_config){.inputs = twice, .n_inputs = 1, .format = READER_U16}),
                STATUS_INVALID, "must be named");
    expect_failure("/no/such/file.txt", READER_AUTO, STATUS_NOT_FOUND, "/no/such/file.txt");
    expect_failure("/no/such/file", READER_AUTO, STATUS_NOT_FOUND, "/no/such/file");
    expect_failure("/no/such/file", READER_MEGATRON, STATUS_NOT_FOUND, "/no/such/file");
    enum reader_format format;
    CHECK_OK(reader_format_parse(&format, "megatron"));
    CHECK_EQ(format, READER_MEGATRON);
    CHECK_FAILS(reader_format_parse(&format, "csv"), STATUS_INVALID, "\"csv\"");
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    snprintf(root, sizeof root, "%s", test_folder());
    test_jsonl();
    test_jsonl_keys();
    test_jsonl_errors();
    test_compressed(".gz", pack_gzip);
    test_compressed(".zst", pack_zstd);
    test_compressed(".xz", pack_xz);
    test_folders();
    test_linked_folders();
    test_tokens();
    test_megatron();
    test_seek();
    test_stdin();
    test_configuration();
    return test_done();
}
