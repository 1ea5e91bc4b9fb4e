/* fuzz_store.c -- a damaged store: open, verify, read and search must end with a status, never with a crash.
 *
 * A small store is made once and kept as bytes. Each input is a list of edits {file, position, change} of a copy: 1
 * byte file (the top bit: cut the file there instead; bits 4 to 6 all set: the lexical segment), 3 bytes offset (taken
 * modulo the size), 1 byte xor. */
#include "store/catalog/commit_record_internal.h"
#include "store/lexical/lexical.h"
#include "tests/store_fixture.h"
#include <fcntl.h>

enum { NUMBERED = 8, LEXICAL = NUMBERED, FILES, LEXICAL_BITS = 0x70, DIM = 16, VOCAB = 300, EDIT_BYTES = 5 };
static const char *const names[FILES] = {"catalog/data.mdb",  "catalog/data.mdb",    "catalog/data.mdb",
                                         "tokens/00000.tok",  "landmarks/00000.f16", "landmarks/00001.f16",
                                         "index/00001.faiss", "index/00002.faiss",   "lexical/00001.lex"};
static uint8_t *good[FILES], *bad[FILES];
static size_t sizes[FILES], lengths[FILES];
static char dir[600];

static void slurp(int i) {
    char path[700];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", dir, fixture_file(names[i]));
    FILE *f = fopen(path, "rb");
    CHECK(f && fstat(fileno(f), &st) == 0);
    sizes[i] = (size_t)st.st_size;
    good[i] = malloc(sizes[i]);
    bad[i] = malloc(sizes[i]);
    CHECK(fread(good[i], 1, sizes[i], f) == sizes[i]);
    fclose(f);
}

static void make(void) {
    if (access("/dev/shm", W_OK) == 0) setenv("DRT_TEST_TMP", "/dev/shm", 1);
    snprintf(dir, sizeof dir, "%s/store", test_folder());
    struct store_writer_config c = fixture_config(DIM, VOCAB);
    fixture_store(dir, &c, 0, 60, 30, "IVF4,SQ8");
    CHECK_OK(store_lexical(dir, &(struct store_publish){.lexical = STORE_LEXICAL_ON, .seed = 1}));
    for (int i = 0; i < FILES; i++)
        slurp(i);
}

static void write_file(int i) {
    char path[700];
    snprintf(path, sizeof path, "%s/%s", dir, fixture_file(names[i]));
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bad[i], 1, lengths[i], f) == lengths[i]);
    fclose(f);
}

/* The record of the last commit would refuse most damaged catalogs before LMDB's pages are read, so a record that
 * agrees with them is made. */
static void renew_record(void) {
    char path[700];
    snprintf(path, sizeof path, "%s/catalog/commit", dir);
    CHECK(unlink(path) == 0 || access(path, F_OK) != 0);
    snprintf(path, sizeof path, "%s/catalog", dir);
    enum status ignored = commit_record_renew(path, 1);
    (void)ignored;
}

static void search_words(struct store_view *v) {
    static const int32_t ids[] = {1, 7, 30, 31, 299, 5, 5, 80};
    const struct lexical_query query = {ids, ARRAY_LEN(ids)};
    struct store_hit hits[8];
    const struct lexical *x;
    if (store_view_lexical(&x, v) != STATUS_OK) return;
    enum status ignored = lexical_search(
        x, hits, &query, 1, &(struct lexical_search){.k = ARRAY_LEN(hits), .pair_weight = LEXICAL_PAIR_WEIGHT});
    (void)ignored;
}

static void read_all(struct store_view *v) {
    search_words(v);
    struct store_info info;
    store_view_info(v, &info);
    float queries[2 * DIM];
    struct store_hit hits[2 * 4];
    struct store_range ranges[2] = {{0, 10}, {5, 5}};
    for (int q = 0; q < 2; q++)
        fixture_vector(queries + q * DIM, DIM, (uint64_t)q, 0.5f);
    struct store_search how = {.k = 4};
    enum status ignored = store_view_search(v, hits, queries, 2, &how);
    how.exclude = ranges;
    ignored = store_view_search(v, hits, queries, 2, &how);
    how.exact = true;
    ignored = store_view_search(v, hits, queries, 2, &how);
    for (int64_t i = 0; i < info.chunks && i < 200; i++) {
        struct store_chunk chunk;
        int32_t ids[FIXTURE_CHUNK];
        ignored = store_view_chunk(v, &chunk, ids, i);
    }
    for (int64_t i = 0; i < info.documents && i < 100; i++) {
        struct store_document d;
        ignored = store_view_document(v, &d, i);
    }
    (void)ignored;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!good[0]) make();
    for (int i = 0; i < FILES; i++) {
        lengths[i] = sizes[i];
        memcpy(bad[i], good[i], sizes[i]);
    }
    bool changed[FILES] = {0};
    for (size_t at = 0; at + EDIT_BYTES <= size; at += EDIT_BYTES) {
        int i = (data[at] & LEXICAL_BITS) == LEXICAL_BITS ? LEXICAL : data[at] % NUMBERED;
        while (i > 0 && strcmp(names[i - 1], names[i]) == 0)
            i--; /* the catalog is selected often, as it matters most */
        size_t where = ((size_t)data[at + 1] << 16 | (size_t)data[at + 2] << 8 | data[at + 3]) % sizes[i];
        if (data[at] & 0x80)
            lengths[i] = where;
        else
            bad[i][where] ^= data[at + 4];
        changed[i] = true;
    }
    for (int i = 0; i < FILES; i++)
        if (changed[i]) write_file(i);
    if (changed[0]) renew_record();
    int64_t problems;
    enum status ignored = store_verify(dir, true, NULL, NULL, NULL, &problems);
    (void)ignored;
    struct store *s;
    if (store_open(&s, dir) == STATUS_OK) {
        struct store_view *v;
        if (store_view_open(&v, s) == STATUS_OK) {
            read_all(v);
            store_view_close(v);
        }
        store_close(s);
    }
    for (int i = 0; i < FILES; i++)
        if (changed[i]) {
            lengths[i] = sizes[i];
            memcpy(bad[i], good[i], sizes[i]);
            write_file(i);
        }
    if (changed[0]) renew_record();
    return 0;
}
