/* test_torch_checkpoint.c -- the torch reader: files of torch.save, tensors at any position of a storage, damaged and
 * hostile files. The archives are made here byte by byte. */
#include "base/formats/torch_checkpoint.h"
#include "base/formats/zip.h"

#include "tests/test.h"

/* ---- an archive writer ---------------------------------------------------------------------------------- */

struct bytes {
    uint8_t data[1 << 16];
    size_t n;
};

static void put(struct bytes *b, const void *data, size_t n) {
    CHECK(b->n + n <= sizeof b->data);
    memcpy(b->data + b->n, data, n);
    b->n += n;
}
static void put_number(struct bytes *b, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++)
        put(b, &(uint8_t){i < 8 ? (uint8_t)(value >> (8 * i)) : 0}, 1);
}

struct member {
    const char *name;
    const void *data;
    size_t bytes;
    int method;
};
enum { ZIP_PLAIN, ZIP_64 };

static void make_zip(struct bytes *out, const struct member *members, int n, int kind) {
    static struct bytes directory;
    directory.n = out->n = 0;
    for (int i = 0; i < n; i++) {
        const struct member *m = &members[i];
        uint32_t crc = zip_crc32(m->data, m->bytes);
        size_t local = out->n, name = strlen(m->name), padding = 7;
        put_number(out, 0x04034b50, 4);
        put_number(out, 0, 4);
        put_number(out, (uint64_t)m->method, 2);
        put_number(out, 0, 4);
        put_number(out, crc, 4);
        put_number(out, m->bytes, 4);
        put_number(out, m->bytes, 4);
        put_number(out, name, 2);
        put_number(out, padding, 2);
        put(out, m->name, name);
        put(out, "FB\3\0ZZZ", padding); /* the alignment that torch writes */
        put(out, m->data, m->bytes);
        put_number(&directory, 0x02014b50, 4);
        put_number(&directory, 0, 6);
        put_number(&directory, (uint64_t)m->method, 2);
        put_number(&directory, 0, 4);
        put_number(&directory, crc, 4);
        put_number(&directory, kind == ZIP_64 ? UINT32_MAX : m->bytes, 4);
        put_number(&directory, kind == ZIP_64 ? UINT32_MAX : m->bytes, 4);
        put_number(&directory, name, 2);
        put_number(&directory, kind == ZIP_64 ? 28 : 0, 2);
        put_number(&directory, 0, 10);
        put_number(&directory, kind == ZIP_64 ? UINT32_MAX : local, 4);
        put(&directory, m->name, name);
        if (kind == ZIP_64) {
            put_number(&directory, 1 | 24 << 16, 4);
            put_number(&directory, m->bytes, 8);
            put_number(&directory, m->bytes, 8);
            put_number(&directory, local, 8);
        }
    }
    size_t offset = out->n;
    put(out, directory.data, directory.n);
    if (kind == ZIP_64) {
        size_t end64 = out->n;
        put_number(out, 0x06064b50, 4);
        put_number(out, 44, 8);
        put_number(out, 0, 12);
        put_number(out, (uint64_t)n, 8);
        put_number(out, (uint64_t)n, 8);
        put_number(out, directory.n, 8);
        put_number(out, offset, 8);
        put_number(out, 0x07064b50, 4);
        put_number(out, 0, 4);
        put_number(out, end64, 8);
        put_number(out, 1, 4);
    }
    put_number(out, 0x06054b50, 4);
    put_number(out, 0, 4);
    put_number(out, (uint64_t)n, 2);
    put_number(out, (uint64_t)n, 2);
    put_number(out, kind == ZIP_64 ? UINT32_MAX : directory.n, 4);
    put_number(out, kind == ZIP_64 ? UINT32_MAX : offset, 4);
    put_number(out, 0, 2);
}

/* ---- a pickle writer ------------------------------------------------------------------------------------ */

#define OP(b, text) put(b, text, sizeof(text) - 1)
static void put_text(struct bytes *b, const char *text) {
    OP(b, "X");
    put_number(b, strlen(text), 4);
    put(b, text, strlen(text));
}
static void put_int(struct bytes *b, int64_t value) {
    OP(b, "\x8a\x08");
    put_number(b, (uint64_t)value, 8);
}
static void put_ints(struct bytes *b, const int64_t *values, int n) {
    OP(b, "(");
    for (int i = 0; i < n; i++)
        put_int(b, values[i]);
    OP(b, "t");
}
static void put_tensor(struct bytes *b, const char *type, const char *key, int64_t elements, int64_t offset, int dims,
                       const int64_t *shape, const int64_t *stride) {
    OP(b, "ctorch._utils\n_rebuild_tensor_v2\n((");
    put_text(b, "storage");
    OP(b, "ctorch\n");
    put(b, type, strlen(type));
    OP(b, "\n");
    put_text(b, key);
    put_text(b, "cpu");
    put_int(b, elements);
    OP(b, "tQ");
    put_int(b, offset);
    put_ints(b, shape, dims);
    put_ints(b, stride, dims);
    OP(b, "\x89"
          "ccollections\nOrderedDict\n)RtR");
}
static void begin(struct bytes *b) {
    b->n = 0;
    OP(b, "\x80\x02"
          "ccollections\nOrderedDict\n)R(");
}
static void end(struct bytes *b) {
    OP(b, "u}(X\x09\x00\x00\x00_metadataccollections\nOrderedDict\n)Rub.");
}

static struct bytes archive, program;
static const float STORAGE[6] = {0, 1, 2, 3, 4, 5};

static enum status open_with(struct torch_checkpoint **out, int kind) {
    struct member members[] = {{"model/data.pkl", program.data, program.n, 0},
                               {"model/byteorder", "little", 6, 0},
                               {"model/data/0", STORAGE, sizeof STORAGE, 0},
                               {"model/version", "3\n", 2, 0}};
    make_zip(&archive, members, ARRAY_LEN(members), kind);
    return torch_checkpoint_open_memory(out, "test.bin", archive.data, archive.n);
}
/* A checkpoint of one tensor over STORAGE. */
static enum status open_tensor(struct torch_checkpoint **out, int64_t elements, int64_t offset, int dims,
                               const int64_t *shape, const int64_t *stride) {
    begin(&program);
    put_text(&program, "w");
    put_tensor(&program, "FloatStorage", "0", elements, offset, dims, shape, stride);
    end(&program);
    return open_with(out, ZIP_64);
}
#define LIST(...) ((const int64_t[]){__VA_ARGS__})

/* ---- cases ---------------------------------------------------------------------------------------------- */

static void test_layouts(void) {
    struct torch_checkpoint *c;
    for (int kind = ZIP_PLAIN; kind <= ZIP_64; kind++) {
        begin(&program);
        put_text(&program, "a");
        put_tensor(&program, "FloatStorage", "0", 6, 0, 2, LIST(2, 3), LIST(3, 1));
        put_text(&program, "transposed");
        put_tensor(&program, "FloatStorage", "0", 6, 0, 2, LIST(3, 2), LIST(1, 3));
        put_text(&program, "column");
        put_tensor(&program, "FloatStorage", "0", 6, 1, 2, LIST(2, 1), LIST(3, 77));
        put_text(&program, "scalar");
        put_tensor(&program, "FloatStorage", "0", 6, 5, 0, NULL, NULL);
        put_text(&program, "empty");
        put_tensor(&program, "FloatStorage", "0", 6, 99, 2, LIST(0, 4), LIST(4, 1));
        put_text(&program, "step");
        put_int(&program, 12);
        put_text(&program, "inner");
        OP(&program, "}");
        put_text(&program, "b");
        OP(&program, "ctorch._utils\n_rebuild_parameter\n(");
        put_tensor(&program, "HalfStorage", "0", 12, 4, 1, LIST(3), LIST(1));
        OP(&program, "\x88}tRs");
        end(&program);
        CHECK_OK(open_with(&c, kind));
        CHECK_EQ(torch_checkpoint_count(c), 6);
        CHECK_EQ(torch_checkpoint_left_out(c), 1);
        const struct tensor_view *a = torch_checkpoint_at(c, 0), *t = torch_checkpoint_at(c, 1);
        CHECK_STR(a->name, "a");
        CHECK_EQ(a->dtype, SAFETENSORS_F32);
        CHECK_EQ(a->dims, 2);
        CHECK_EQ(a->count, 6);
        CHECK(memcmp(a->data, STORAGE, sizeof STORAGE) == 0);
        float got[6];
        memcpy(got, t->data, sizeof got);
        CHECK_EQ(t->shape[0], 3);
        CHECK_CLOSE(got, ((float[]){0, 3, 1, 4, 2, 5}), 6, 0);
        memcpy(got, torch_checkpoint_at(c, 2)->data, 8);
        CHECK_CLOSE(got, ((float[]){1, 4}), 2, 0);
        memcpy(got, torch_checkpoint_at(c, 3)->data, 4);
        CHECK_CLOSE(got, ((float[]){5}), 1, 0);
        CHECK_EQ(torch_checkpoint_at(c, 4)->count, 0);
        CHECK_STR(torch_checkpoint_at(c, 5)->name, "inner.b");
        CHECK_EQ(torch_checkpoint_at(c, 5)->dtype, SAFETENSORS_F16);
        CHECK(memcmp(torch_checkpoint_at(c, 5)->data, (const uint8_t *)STORAGE + 8, 6) == 0);
        torch_checkpoint_close(c);
    }
}

static void test_bounds(void) {
    struct torch_checkpoint *c;
    CHECK_OK(open_tensor(&c, 6, 0, 1, LIST(6), LIST(1)));
    torch_checkpoint_close(c);
    const char *reach = "reaches out of its storage";
    CHECK_FAILS(open_tensor(&c, 6, 1, 1, LIST(6), LIST(1)), STATUS_INVALID, reach);
    CHECK_FAILS(open_tensor(&c, 6, -1, 1, LIST(2), LIST(1)), STATUS_INVALID, reach);
    CHECK_FAILS(open_tensor(&c, 6, 0, 1, LIST(2), LIST(-1)), STATUS_INVALID, reach);
    CHECK_FAILS(open_tensor(&c, 6, 0, 1, LIST(-2), LIST(1)), STATUS_INVALID, reach);
    CHECK_FAILS(open_tensor(&c, 6, 0, 2, LIST(2, 3), LIST(4, 1)), STATUS_INVALID, reach);
    CHECK_FAILS(open_tensor(&c, 6, 0, 2, LIST(1ll << 33, 1ll << 33), LIST(0, 0)), STATUS_INVALID, reach);
    CHECK_FAILS(open_tensor(&c, 6, 0, 2, LIST(1ll << 31, 2), LIST(1ll << 33, 1)), STATUS_INVALID, reach);
    CHECK_FAILS(open_tensor(&c, 6, INT64_MAX, 1, LIST(2), LIST(1)), STATUS_INVALID, reach);
    CHECK_FAILS(open_tensor(&c, 6, 0, 1, LIST(1ll << 40), LIST(0)), STATUS_UNSUPPORTED, "repeats its elements");
    CHECK_FAILS(open_tensor(&c, 7, 0, 1, LIST(6), LIST(1)), STATUS_INVALID, "too few for its 7 elements of F32");
    CHECK_FAILS(open_tensor(&c, INT64_MAX, 0, 1, LIST(6), LIST(1)), STATUS_INVALID, "too few for its");
    int64_t nine[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    CHECK_FAILS(open_tensor(&c, 6, 0, 9, nine, nine), STATUS_UNSUPPORTED, "9 dimensions");
    begin(&program);
    put_text(&program, "w");
    put_tensor(&program, "FloatStorage", "../../etc/passwd", 1, 0, 1, LIST(1), LIST(1));
    end(&program);
    CHECK_FAILS(open_with(&c, ZIP_64), STATUS_INVALID, "storage '../../etc/passwd' is missing");
}

static void refuse(const char *text, size_t n, enum status code, const char *message) {
    struct torch_checkpoint *c;
    program.n = 0;
    put(&program, text, n);
    CHECK_FAILS(open_with(&c, ZIP_64), code, message);
}
#define REFUSE(text, code, message) refuse(text, sizeof(text) - 1, code, message)

static void test_hostile_pickles(void) {
    REFUSE("\x80\x02"
           "cos\nsystem\nX\x02\0\0\0ls\x85R.",
           STATUS_UNSUPPORTED, "refuses to run pickle global 'os.system'");
    REFUSE("\x80\x04\x95\x20\0\0\0\0\0\0\0\x8c\x08"
           "builtins\x94\x8c\x04"
           "eval\x94\x93.",
           STATUS_UNSUPPORTED, "'builtins.eval'");
    REFUSE("\x80\x02"
           "c\x1b[31m\nx\ny\n.",
           STATUS_UNSUPPORTED, "'?[31m.x'");
    REFUSE("\x80\x02"
           "ios\nsystem\n.",
           STATUS_UNSUPPORTED, "refuses pickle opcode 0x69");
    REFUSE("\x80\x02"
           "ccollections\nOrderedDict\n)\x81.",
           STATUS_UNSUPPORTED, "opcode 0x81");
    REFUSE("\x80\x09.", STATUS_INVALID, "unknown pickle protocol");
    REFUSE("", STATUS_INVALID, "ends too early");
    REFUSE("\x80\x02}", STATUS_INVALID, "ends too early");
    REFUSE("\x80\x02.", STATUS_INVALID, "stack is empty");
    REFUSE("\x80\x02}(.", STATUS_INVALID, "mark");
    REFUSE("\x80\x02}(0.", STATUS_INVALID, "stack is empty");
    REFUSE("\x80\x02t.", STATUS_INVALID, "no mark");
    REFUSE("\x80\x02K\x01\x87.", STATUS_INVALID, "stack is empty");
    REFUSE("\x80\x02h\x05.", STATUS_INVALID, "never set");
    REFUSE("\x80\x02}r\xff\xff\xff\xff.", STATUS_INVALID, "memo number out of range");
    REFUSE("\x80\x02NNNs.", STATUS_INVALID, "not a dictionary");
    REFUSE("\x80\x02}(Nu.", STATUS_INVALID, "without a dictionary");
    REFUSE("\x80\x02NQ.", STATUS_INVALID, "is not a storage");
    REFUSE("\x80\x02)R.", STATUS_INVALID, "stack is empty");
    REFUSE("\x80\x02N)R.", STATUS_INVALID, "is not a function");
    REFUSE("\x80\x02"
           "ctorch._utils\n_rebuild_tensor_v2\n)R.",
           STATUS_INVALID, "wrong arguments");
    REFUSE("\x80\x02"
           "ctorch\nFloatStorage\n)R.",
           STATUS_INVALID, "storage type");
    REFUSE("\x80\x02X\xff\xff\xff\xff"
           "a.",
           STATUS_INVALID, "ends too early");
    REFUSE("\x80\x02\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
           "a.",
           STATUS_INVALID, "ends too early");
    REFUSE("\x80\x02N.", STATUS_UNSUPPORTED, "dictionary of tensors");
    REFUSE("\x80\x02}.", STATUS_INVALID, "holds no tensors");
    /* A dictionary that contains itself, a thousand times over. */
    program.n = 0;
    OP(&program, "\x80\x02}q\x01(");
    for (int i = 0; i < 1000; i++)
        OP(&program, "X\x01\0\0\0ah\x01");
    OP(&program, "u.");
    struct torch_checkpoint *c;
    CHECK_FAILS(open_with(&c, ZIP_64), STATUS_UNSUPPORTED, "dictionaries with more than");
    /* A very long series of marks. */
    program.n = 0;
    OP(&program, "\x80\x02");
    for (int i = 0; i < 5000; i++)
        OP(&program, "(");
    CHECK_FAILS(open_with(&c, ZIP_64), STATUS_INVALID, "too many marks");
}

static void test_archives(void) {
    struct torch_checkpoint *c;
    CHECK_OK(open_tensor(&c, 6, 0, 1, LIST(6), LIST(1)));
    torch_checkpoint_close(c);
    static struct bytes whole;
    whole = archive;
    /* Cut at any byte: refused, and never read beyond the end (sanitizers check this). */
    for (size_t n = 0; n < whole.n; n++) {
        uint8_t *copy = malloc(n + 1);
        memcpy(copy, whole.data, n);
        CHECK(torch_checkpoint_open_memory(&c, "cut", copy, n) != STATUS_OK);
        free(copy);
    }
    /* Any byte flipped: refused, or harmless (padding, dates, unused members). */
    for (size_t i = 0; i < whole.n; i++) {
        archive = whole;
        archive.data[i] ^= 0x41;
        if (torch_checkpoint_open_memory(&c, "flipped", archive.data, archive.n) != STATUS_OK) continue;
        float got[6];
        CHECK_EQ(torch_checkpoint_at(c, 0)->count, 6);
        memcpy(got, torch_checkpoint_at(c, 0)->data, sizeof got);
        CHECK_CLOSE(got, STORAGE, 6, 0);
        torch_checkpoint_close(c);
    }
    struct member members[] = {{"m/data.pkl", program.data, program.n, 0},
                               {"m/data/0", STORAGE, sizeof STORAGE, 0},
                               {"m/byteorder", "big", 3, 0}};
    make_zip(&archive, members, 3, ZIP_PLAIN);
    CHECK_FAILS(torch_checkpoint_open_memory(&c, "x", archive.data, archive.n), STATUS_UNSUPPORTED, "big-endian");
    make_zip(&archive, members, 2, ZIP_PLAIN); /* files before torch 2.1 have no byteorder */
    CHECK_OK(torch_checkpoint_open_memory(&c, "x", archive.data, archive.n));
    torch_checkpoint_close(c);
    members[1].method = 8;
    make_zip(&archive, members, 2, ZIP_PLAIN);
    CHECK_FAILS(torch_checkpoint_open_memory(&c, "x", archive.data, archive.n), STATUS_UNSUPPORTED,
                "'m/data/0' is compressed (method 8)");
    members[1] = (struct member){"m/data.pkl", "x", 1, 0};
    make_zip(&archive, members, 2, ZIP_PLAIN);
    CHECK_FAILS(torch_checkpoint_open_memory(&c, "x", archive.data, archive.n), STATUS_INVALID, "is there twice");
    members[0].name = "m/other";
    make_zip(&archive, members, 1, ZIP_PLAIN);
    CHECK_FAILS(torch_checkpoint_open_memory(&c, "x", archive.data, archive.n), STATUS_INVALID, "without data.pkl");
    const uint8_t legacy[] = "\x80\x02\x8a\x0al\xfc\x9c"
                             "F\xf9 j\xa8P\x19.";
    CHECK_FAILS(torch_checkpoint_open_memory(&c, "old.bin", legacy, sizeof legacy), STATUS_UNSUPPORTED,
                "before torch 1.6");
    CHECK_FAILS(torch_checkpoint_open_memory(&c, "x", "hello", 5), STATUS_INVALID, "not a torch checkpoint");
    CHECK_FAILS(torch_checkpoint_open_memory(&c, "x", "PK\3\4", 4), STATUS_INVALID, "not a zip archive");
    CHECK_FAILS(torch_checkpoint_open(&c, "/nonexistent/model.bin"), STATUS_NOT_FOUND, "/nonexistent/model.bin");
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    CHECK_EQ(zip_crc32("123456789", 9), 0xcbf43926);
    test_layouts();
    test_bounds();
    test_hostile_pickles();
    test_archives();
    return test_done();
}
