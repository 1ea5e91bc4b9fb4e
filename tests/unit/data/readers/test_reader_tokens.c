/* test_reader_tokens.c -- random token files of 16 and 32 bits against a loop that looks at each id: where documents
 * end, the limit of a document's bytes, and parts. The check of a document's ids, with one bad id at each position. */
#include "base/rng.h"
#include "data/readers/ids_check.h"
#include "tests/test.h"

enum { IDS = 1200, ROUNDS = 400, BEFORE = 64 }; /* BEFORE: ids of the block in which the reader compares */

static struct rng rng;

struct ids_file {
    const char *path;
    uint32_t ids[IDS];
    size_t n, width;
};

/* Documents with the lengths about which the reader's blocks end, and of all lengths; some files without any id. */
static void make_file(struct ids_file *f, const char *path, uint32_t end) {
    static const size_t lengths[] = {
        0, 1, 2, BEFORE - 1, BEFORE, BEFORE + 1, 2 * BEFORE - 1, 2 * BEFORE, 2 * BEFORE + 1};
    f->path = path;
    f->n = rng_below(&rng, 8) == 0 ? rng_below(&rng, 3) : rng_below(&rng, IDS);
    size_t until = 0;
    for (size_t i = 0; i < f->n; i++) {
        const bool ends = i == until;
        if (ends)
            until = i + 1 + (rng_below(&rng, 2) ? lengths[rng_below(&rng, ARRAY_LEN(lengths))] : rng_below(&rng, 300));
        f->ids[i] = ends ? end : rng_u32(&rng) & (f->width == 2 ? 0xffff : 0xffffffff);
    }
    FILE *file = fopen(path, "wb");
    CHECK(file);
    for (size_t i = 0; i < f->n; i++)
        for (size_t byte = 0; byte < f->width; byte++)
            CHECK(fputc((int)(f->ids[i] >> 8 * byte & 255), file) != EOF);
    CHECK_EQ(fclose(file), 0);
}

/* Compares the documents from id *at on with a plain loop, until the reader has no more or finds one of more than
 * `most` bytes. */
static void compare_documents(const struct ids_file *f, const struct reader_config *config, size_t *at, uint64_t most) {
    struct reader *r;
    struct document d;
    int more = 1;
    CHECK_OK(reader_open(&r, config));
    for (;;) {
        const enum status s = reader_next(r, &d, &more);
        if (s == STATUS_OK && !more) break;
        size_t n = 0;
        while (*at + n < f->n && (int64_t)f->ids[*at + n] != config->eod_id)
            n++;
        const bool too_long = n > 0 && (n - 1) * f->width >= most; /* the last id begins beyond the limit */
        CHECK_EQ(s == STATUS_UNSUPPORTED, too_long);
        if (too_long) {
            CHECK(strstr(status_message(), "longer than the limit"));
            break;
        }
        CHECK_OK(s);
        CHECK(*at < f->n && !d.text);
        CHECK_EQ(d.n_ids, n);
        CHECK_EQ(d.offset, *at * f->width);
        CHECK(n == 0 || memcmp(d.ids, f->ids + *at, n * sizeof *d.ids) == 0);
        *at += n + (*at + n < f->n);
        CHECK_EQ(reader_position(r).offset, *at * f->width);
    }
    reader_close(r);
}

static void check_files(void) {
    static const int64_t ends[] = {0, 7, 255, 256, 65535, 65536, INT32_MAX, UINT32_MAX, -1};
    static struct ids_file f;
    for (int round = 0; round < ROUNDS; round++) {
        f.width = round % 2 ? 4 : 2;
        int64_t end = ends[rng_below(&rng, ARRAY_LEN(ends))];
        if (f.width == 2 && end > 65535) end -= 65536LL * (end / 65536);
        make_file(&f, test_path(f.width == 2 ? "x.u16" : "x.u32"), end < 0 ? 5 : (uint32_t)end);
        struct reader_config config = {.inputs = &f.path, .n_inputs = 1, .eod_id = end};
        size_t at = 0;
        compare_documents(&f, &config, &at, UINT64_MAX);
        CHECK_EQ(at, f.n);
        config.max_document_bytes = 1 + rng_below(&rng, 600);
        at = 0;
        compare_documents(&f, &config, &at, config.max_document_bytes);
        config.max_document_bytes = 0;
        config.parts = 1 + (int)rng_below(&rng, 5);
        at = 0;
        for (config.part = 1; config.part <= config.parts; config.part++)
            compare_documents(&f, &config, &at, UINT64_MAX);
        CHECK_EQ(at, f.n);
    }
}

/* The message names the first bad id, whatever else is bad after it. */
static void check_bad_ids(void) {
    enum { LONGEST = 140, VOCAB = 300 };
    const struct ids_rules rules = {VOCAB, {17, -1, 255}, {"landmark", "mask", "padding"}};
    static const struct {
        uint32_t id;
        const char *text;
    } bad[] = {{VOCAB, "vocabulary has 300 ids"},
               {UINT32_MAX, "4294967295"},
               {0x80000000u, "2147483648"},
               {17, "landmark"},
               {255, "padding"}};
    uint32_t ids[LONGEST];
    for (size_t n = 0; n <= LONGEST; n++) {
        for (size_t i = 0; i < n; i++)
            ids[i] = (uint32_t)(i % 3 == 0 ? VOCAB - 1 : i % 3 == 1 ? 0 : 254);
        CHECK_OK(ids_check_document(&rules, "x", 0, ids, n));
        for (size_t i = 0; i < n; i++) {
            const size_t which = (i + n) % ARRAY_LEN(bad);
            const uint32_t kept = ids[i], last = ids[n - 1];
            char position[64];
            ids[n - 1] = VOCAB + 1;
            ids[i] = bad[which].id;
            snprintf(position, sizeof position, "byte 12: its token %zu is id %u", i, bad[which].id);
            CHECK_FAILS(ids_check_document(&rules, "x", 12, ids, n), STATUS_INVALID, position);
            CHECK(strstr(status_message(), bad[which].text));
            ids[n - 1] = last;
            ids[i] = kept;
        }
    }
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    rng = rng_make(test_seed(), 11);
    check_files();
    check_bad_ids();
    return test_done();
}
