/* test_segment_check.c -- index files that were crafted to crash the reader: links, list sizes, lengths and ids are
 * edited, and all checksums corrected. Opening or searching names the damage; nothing reads outside the file. */
#include "base/crc32c.h"
#include "base/memory.h"
#include "store/catalog/records_internal.h"
#include "store/index/segment_check_internal.h"
#include "store/index/vectors_internal.h"
#include "tests/store_fixture.h"

enum { DIM = 16, ROWS = 400, FIRST = 500, VOCAB = 100 };
static const char *const checked[] = {"IVF16_HNSW8,SQ8",
                                      "IVF8,Flat",
                                      "IVF8_HNSW4,SQfp16",
                                      "OPQ1_8,IVF8_HNSW8,PQ4x4np",
                                      "PCAR8,IVF4,SQ4",
                                      "IVF4,SQ6",
                                      "IVF4,SQbf16",
                                      "RR16,IVF4,PQ4x4np",
                                      "L2norm,IVF4,SQ8",
                                      "HNSW8,SQ8",
                                      "HNSW8,Flat",
                                      "SQ8",
                                      "Flat",
                                      "PQ4np",
                                      "IVF300,SQ8",
                                      "PCA8,Flat",
                                      "IVF16(HNSW8,SQ8),SQ8",
                                      "SQfp16"};

static uint8_t *slurp(const char *path, size_t *size) {
    FILE *f = fopen(path, "rb");
    CHECK(f && fseek(f, 0, SEEK_END) == 0);
    *size = (size_t)ftell(f);
    rewind(f);
    uint8_t *bytes = malloc(*size);
    CHECK(bytes && fread(bytes, 1, *size, f) == *size);
    fclose(f);
    return bytes;
}

static void spill(const char *path, const uint8_t *bytes, size_t size) {
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, size, f) == size);
    CHECK(fclose(f) == 0);
}

static const char *segment_path(size_t number, int64_t rows) {
    static char path[700];
    snprintf(path, sizeof path, "%s/segment-%zu-%lld.faiss", test_folder(), number, (long long)rows);
    return path;
}

/* The file of an index with no row or all of them. A type is trained once. */
static const char *segment_of(const char *factory, int64_t rows) {
    static const char *made[ARRAY_LEN(checked) + 1];
    static float data[ROWS * DIM];
    struct vectors *v;
    size_t i = 0;
    while (i < ARRAY_LEN(made) && made[i] && strcmp(made[i], factory) != 0)
        i++;
    CHECK(i < ARRAY_LEN(made) && (rows == 0 || rows == ROWS));
    if (made[i]) return segment_path(i, rows);
    made[i] = factory;
    for (int64_t row = 0; row < ROWS; row++)
        fixture_vector(data + row * DIM, DIM, (uint64_t)row, 0.5f);
    CHECK_OK(vectors_make(&v, factory, DIM));
    CHECK_OK(vectors_train(v, data, ROWS, 1));
    CHECK_OK(vectors_write(v, segment_path(i, 0)));
    CHECK_OK(vectors_add(v, data, ROWS, FIRST, 1));
    CHECK_OK(vectors_write(v, segment_path(i, ROWS)));
    vectors_free(v);
    return segment_path(i, rows);
}

/* Files of FAISS are accepted: with and without rows, to the last byte and the last id. */
static void valid_files(void) {
    for (size_t i = 0; i < ARRAY_LEN(checked); i++)
        for (int64_t rows = 0; rows <= ROWS; rows += ROWS) {
            bool known = false, graph = strncmp(checked[i], "HNSW", 4) == 0;
            if (rows == 0 && graph) continue; /* is never a template: no file is shared */
            const char *path = segment_of(checked[i], rows);
            const struct segment_shape shape = {DIM, rows, FIRST};
            CHECK_OK(segment_check_file(path, &shape, true, &known));
            CHECK(known);
            CHECK_FAILS(segment_check_file(path, &(struct segment_shape){DIM, rows + 1, FIRST}, false, NULL),
                        STATUS_CORRUPT, "run drt-index repair");
            CHECK_FAILS(segment_check_file(path, &(struct segment_shape){DIM + 1, rows, FIRST}, false, NULL),
                        STATUS_CORRUPT, "run drt-index repair");
        }
    bool known = true;
    CHECK_OK(segment_check_file(segment_of("RQ2x4", ROWS), &(struct segment_shape){DIM, ROWS, FIRST}, true, &known));
    CHECK(!known);
}

/* Cut at any byte, or with one more byte. */
static void lengths(void) {
    for (size_t i = 0; i < ARRAY_LEN(checked); i++) {
        size_t size;
        uint8_t *bytes = slurp(segment_of(checked[i], ROWS), &size);
        const struct segment_shape shape = {DIM, ROWS, FIRST};
        for (size_t n = 0; n < size; n += 1 + n / 20) {
            uint8_t *cut = malloc(n + 1); /* of exact size: a sanitizer sees a read beyond it */
            CHECK(cut);
            memcpy(cut, bytes, n);
            CHECK_FAILS(segment_check("x", &shape, cut, n, false, NULL), STATUS_CORRUPT, "x: byte");
            free(cut);
        }
        bytes = realloc(bytes, size + 1);
        CHECK(bytes);
        bytes[size] = 0;
        CHECK_FAILS(segment_check("x", &shape, bytes, size + 1, false, NULL), STATUS_CORRUPT, "before the file does");
        free(bytes);
    }
}

/* Random numbers at any position: refused, or searched without harm. */
static void random_edits(void) {
    static const uint64_t values[] = {0, 1, 2, 0x7f, UINT32_MAX, INT32_MAX, UINT64_MAX, UINT64_C(1) << 40, 0x7f800000};
    char path[700];
    struct rng r = rng_make(4, 4);
    int refused = 0, searched = 0;
    snprintf(path, sizeof path, "%s/edited.faiss", test_folder());
    for (size_t i = 0; i < 6; i++) {
        size_t size;
        uint8_t *good = slurp(segment_of(checked[i], ROWS), &size), *bytes = malloc(size);
        for (int edit = 0; edit < 80; edit++) {
            const struct segment_shape shape = {DIM, ROWS, FIRST};
            size_t head = size - ROWS * (size_t)(vectors_plan(checked[i], DIM).code_bytes + 8), n = edit % 2 ? 4 : 8;
            size_t at = rng_below(&r, edit % 3 ? head - 8 : size - 8);
            uint64_t value = values[rng_below(&r, ARRAY_LEN(values))];
            memcpy(bytes, good, size);
            memcpy(bytes + at, &value, n);
            bool known;
            if (segment_check(path, &shape, bytes, size, false, &known) != STATUS_OK || !known) {
                refused++;
                continue;
            }
            struct vectors *v;
            float query[DIM];
            int64_t ids[50];
            spill(path, bytes, size);
            fixture_vector(query, DIM, 77, 1);
            if (vectors_open(&v, path, DIM, ROWS, FIRST, true) != STATUS_OK) continue;
            for (int nprobe = 1; nprobe < 100; nprobe += 98)
                CHECK_OK(vectors_search(v, ids, query, 1, 50, nprobe, &(struct store_range){600, 700}, 1));
            for (int nprobe = 1; nprobe < 100 && vectors_scans(v); nprobe += 98)
                CHECK_OK(vectors_scan(v, ids, query, 1, 50, nprobe, &(struct store_range){600, 700}, NULL));
            vectors_free(v);
            searched++;
        }
        free(good), free(bytes);
    }
    printf("%d edits refused, %d searched\n", refused, searched);
    CHECK(refused > 100 && searched > 100);
}

/* ---- in a store, with corrected checksums of the catalog ---- */

static char dir[700], segment[800];

/* Writes the file, then its two checksums into the catalog. */
static void put_segment(const uint8_t *bytes, size_t size) {
    struct catalog *c;
    struct catalog_txn *t;
    struct segment_record *list;
    int64_t n;
    spill(segment, bytes, size);
    CHECK_OK(catalog_open(&c, dir, true, 1 << 26));
    CHECK_OK(catalog_begin(&t, c, true));
    CHECK_OK(record_list_segments(t, c, &list, &n));
    CHECK_EQ(n, 1);
    list[0].file = (struct stored_file){.bytes = size, .crc = crc32c(0, bytes, size)};
    CHECK(list[0].head.bytes < size);
    list[0].head.crc = crc32c(0, bytes, list[0].head.bytes);
    CHECK_OK(record_put_segment(t, &list[0]));
    memory_free(list);
    CHECK_OK(catalog_commit(t));
    catalog_close(c);
}

static uint8_t *after(uint8_t *bytes, size_t size, const char *word) {
    uint8_t *at = memmem(bytes, size, word, 4);
    CHECK(at);
    return at + 4;
}

/* Past a vector. */
static uint8_t *skip(uint8_t *at, size_t element) {
    uint64_t n;
    memcpy(&n, at, 8);
    return at + 8 + n * element;
}

static void put32(uint8_t *at, int32_t x) {
    memcpy(at, &x, 4);
}
static void put64(uint8_t *at, uint64_t x) {
    memcpy(at, &x, 8);
}

enum { HEADER = 4 + 8 + 16 + 1 + 4 };
enum edit { LIST_SIZE, LIST_MOVED, LIST_HUGE, LINK, LINK_LEVEL, OFFSET, LEVELS, ENTRY, CENTROIDS, CODE_WIDTH, EDITS };

static void craft(uint8_t *bytes, size_t size, enum edit edit) {
    uint8_t *sizes = after(bytes, size, "ilar") + 20 + 8, *graph = after(bytes, size, "IHNf") + HEADER;
    uint8_t *table = skip(graph, 8), *levels = skip(table, 4), *offsets = skip(levels, 4), *links = skip(offsets, 8);
    uint64_t first;
    memcpy(&first, sizes, 8);
    switch (edit) {
    case LIST_SIZE:
        put64(sizes, first + 1000000);
        break;
    case LIST_MOVED:
        put64(sizes, first - 1);
        break;
    case LIST_HUGE:
        put64(sizes, UINT64_MAX / 24), put64(sizes + 8, 5);
        break;
    case LINK:
        put32(links + 8, 1 << 30);
        break;
    case LINK_LEVEL:
        put32(levels + 8, 3);
        break;
    case OFFSET:
        put64(offsets + 8 + 8, 1 << 30);
        break;
    case LEVELS:
        put32(table + 8 + 8, INT32_MAX);
        break;
    case ENTRY:
        put32(skip(links, 4), -7);
        break;
    case CENTROIDS:
        put64(after(bytes, size, "IxFI") + HEADER, UINT64_C(1) << 38);
        break;
    case CODE_WIDTH:
        put64(after(bytes, size, "ilar") + 8, 1 << 20);
        break;
    default:
        break;
    }
}

static int found(struct store_hit *hits, int k) {
    struct store *s;
    struct store_view *v;
    float query[DIM];
    int n = 0;
    fixture_vector(query, DIM, 3, 0.5f);
    CHECK_OK(store_open(&s, dir));
    CHECK_OK(store_view_open(&v, s));
    CHECK_OK(store_view_search(v, hits, query, 1, &(struct store_search){.k = k, .nprobe = 1 << 20}));
    while (n < k && hits[n].chunk >= 0)
        n++;
    store_view_close(v);
    store_close(s);
    return n;
}

static void crafted_store(void) {
    struct store_writer_config c = fixture_config(DIM, VOCAB);
    int64_t problems;
    size_t size;
    snprintf(dir, sizeof dir, "%s/store", test_folder());
    snprintf(segment, sizeof segment, "%s/index/00002.faiss", dir);
    fixture_store(dir, &c, 0, 500, 500, "IVF16_HNSW8,SQ8");
    uint8_t *good = slurp(segment, &size), *bytes = malloc(size);
    for (int edit = 0; edit < EDITS; edit++) {
        struct store *s;
        struct store_view *v;
        memcpy(bytes, good, size);
        craft(bytes, size, (enum edit)edit);
        CHECK(memcmp(bytes, good, size) != 0);
        put_segment(bytes, size);
        CHECK_OK(store_open(&s, dir));
        CHECK_FAILS(store_view_open(&v, s), STATUS_CORRUPT, "index/00002.faiss: byte");
        store_close(s);
        CHECK_OK(store_verify(dir, true, NULL, NULL, NULL, &problems));
        CHECK_EQ(problems, 1);
    }
    /* Ids are not read at opening: a wrong id is not a hit, no hit occurs twice, and verify --deep finds wrong ids. */
    for (int edit = 0; edit < 3; edit++) {
        static const uint64_t ids[] = {5, UINT64_C(1) << 62, UINT64_MAX - 3};
        struct store_hit hits[60];
        uint64_t first;
        memcpy(bytes, good, size);
        uint8_t *sizes = after(bytes, size, "ilar") + 20 + 8, *codes = sizes + 16 * 8;
        memcpy(&first, sizes, 8);
        for (uint64_t i = 0; i < first; i++)
            put64(codes + first * DIM + 8 * i, ids[edit]);
        put_segment(bytes, size);
        int n = found(hits, 60);
        for (int i = 0; i < n; i++)
            for (int j = 0; j < i; j++)
                CHECK(hits[i].chunk != hits[j].chunk);
        CHECK_OK(store_verify(dir, true, NULL, NULL, NULL, &problems));
        CHECK_EQ(problems, 1);
    }
    put_segment(good, size);
    CHECK_OK(store_verify(dir, true, NULL, NULL, NULL, &problems));
    CHECK_EQ(problems, 0);
    put_segment(bytes, size); /* with the last of those ids: repair also finds it */
    CHECK_OK(store_repair(dir, NULL, NULL, NULL, NULL, &problems));
    CHECK_EQ(problems, 0);
    CHECK_OK(store_verify(dir, true, NULL, NULL, NULL, &problems));
    CHECK_EQ(problems, 0);
    free(good), free(bytes);
}

/* The head that is put together from a template and the sizes of the lists is the beginning of what FAISS writes. */
static void test_head(const char *factory) {
    size_t empty_size, full_size, head_size;
    struct segment_layout layout;
    struct vectors *v;
    uint8_t *empty = slurp(segment_of(factory, 0), &empty_size);
    const struct segment_shape none = {.dim = DIM};
    if (!strstr(factory, "IVF")) {
        CHECK_FAILS(segment_layout(&layout, "template", &none, empty, empty_size), STATUS_UNSUPPORTED, "inverted file");
        free(empty);
        return;
    }
    CHECK_OK(segment_layout(&layout, "template", &none, empty, empty_size));
    uint8_t *full = slurp(segment_of(factory, ROWS), &full_size), *head;
    CHECK_OK(vectors_open(&v, segment_of(factory, ROWS), DIM, ROWS, FIRST, false));
    CHECK_EQ(vectors_lists(v), layout.lists);
    CHECK_EQ(vectors_code_bytes(v), layout.code_bytes);
    uint64_t sizes[512];
    for (int64_t l = 0; l < vectors_lists(v); l++)
        sizes[l] = (uint64_t)vectors_list_of(v, l).n;
    CHECK_OK(segment_head(&head, &head_size, empty, &layout, sizes, ROWS));
    CHECK_EQ(head_size, full_size - ROWS * (layout.code_bytes + 8));
    CHECK(memcmp(head, full, head_size) == 0);
    memory_free(head);
    vectors_free(v);
    free(empty);
    free(full);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    valid_files();
    for (size_t i = 0; i < ARRAY_LEN(checked); i++)
        test_head(checked[i]);
    lengths();
    random_edits();
    crafted_store();
    return test_done();
}
