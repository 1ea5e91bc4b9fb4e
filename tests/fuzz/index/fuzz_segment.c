/* fuzz_segment.c -- an edited index file: a file that the check accepts must be searched without a read outside of it.
 *
 * Index files of some types are made once. An input is one byte for the type and then edits: 3 bytes offset (modulo the
 * file's size), 1 byte count of the next 8 bytes to write there (0: the file ends there; with the top bit: they are
 * added to the number there). */
#include "store/index/segment_check_internal.h"
#include "store/index/vectors_internal.h"
#include "tests/store_fixture.h"

enum { DIM = 8, ROWS = 60, EDIT_BYTES = 12 };
static const char *const types[] = {"IVF4_HNSW2,SQ8",         "IVF3,Flat", "PCAR4,IVF2,SQ4", "HNSW2,Flat",
                                    "IVF2(HNSW2,SQ8),SQfp16", "SQ6"};
static uint8_t *good[ARRAY_LEN(types)];
static size_t sizes[ARRAY_LEN(types)];
static char path[700];

static void make(void) {
    static float rows[ROWS * DIM];
    if (access("/dev/shm", W_OK) == 0) setenv("DRT_TEST_TMP", "/dev/shm", 1);
    snprintf(path, sizeof path, "%s/segment.faiss", test_folder());
    for (int64_t i = 0; i < ROWS; i++)
        fixture_vector(rows + i * DIM, DIM, (uint64_t)i, 0.5f);
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        struct vectors *v;
        CHECK_OK(vectors_make(&v, types[i], DIM));
        CHECK_OK(vectors_train(v, rows, ROWS, 1));
        CHECK_OK(vectors_add(v, rows, ROWS, 0, 1));
        CHECK_OK(vectors_write(v, path));
        vectors_free(v);
        FILE *f = fopen(path, "rb");
        CHECK(f && fseek(f, 0, SEEK_END) == 0);
        sizes[i] = (size_t)ftell(f);
        rewind(f);
        good[i] = malloc(sizes[i]);
        CHECK(good[i] && fread(good[i], 1, sizes[i], f) == sizes[i]);
        fclose(f);
    }
}

static size_t edit(uint8_t *bytes, size_t size, const uint8_t *e) {
    size_t at = ((size_t)e[0] << 16 | (size_t)e[1] << 8 | e[2]) % size, n = e[3] & 15;
    if (n == 0) return at;
    if (n > 8) n = 8;
    if (n > size - at) n = size - at;
    if (e[3] & 0x80) {
        uint64_t old = 0, more = 0;
        memcpy(&old, bytes + at, n);
        memcpy(&more, e + 4, n);
        old += more;
        memcpy(bytes + at, &old, n);
    } else {
        memcpy(bytes + at, e + 4, n);
    }
    return size;
}

static void search(const uint8_t *bytes, size_t size) {
    struct vectors *v;
    float query[DIM];
    int64_t ids[20];
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, size, f) == size && fclose(f) == 0);
    fixture_vector(query, DIM, 5, 1);
    if (vectors_open(&v, path, DIM, ROWS, 0, true) != STATUS_OK) return;
    for (int nprobe = 1; nprobe < 10; nprobe += 8) {
        enum status ignored = vectors_search(v, ids, query, 1, 20, nprobe, &(struct store_range){3, 9}, 1);
        (void)ignored;
        if (vectors_scans(v)) CHECK_OK(vectors_scan(v, ids, query, 1, 20, nprobe, &(struct store_range){3, 9}, NULL));
    }
    vectors_free(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct segment_shape shape = {DIM, ROWS, 0};
    bool known;
    if (!good[0]) make();
    if (size < 1) return 0;
    size_t type = data[0] % ARRAY_LEN(types), length = sizes[type];
    uint8_t *bytes = malloc(length); /* of exact size: a sanitizer sees a read beyond it */
    CHECK(bytes);
    memcpy(bytes, good[type], length);
    for (size_t at = 1; at + EDIT_BYTES <= size && length > 0; at += EDIT_BYTES)
        length = edit(bytes, length, data + at);
    uint8_t *whole = realloc(bytes, length ? length : 1);
    CHECK(whole);
    enum status ignored = segment_check("segment", &shape, whole, length, true, &known);
    (void)ignored;
    if (segment_check("segment", &shape, whole, length, false, &known) == STATUS_OK && known) search(whole, length);
    free(whole);
    return 0;
}
