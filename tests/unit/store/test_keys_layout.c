/* test_keys_layout.c -- how chunks are divided into files of keys: random sections against a plain walk; without the
 * record; chunks added to the last section; a damaged record. */
#include "base/rng.h"
#include "store/keys/keys_layout_internal.h"
#include "tests/test.h"
#include <string.h>

enum { SECTIONS = 7, FULL = STORE_KEYS_CHUNKS };
static struct catalog *catalog;

static struct keys_layout read_layout(int64_t chunks) {
    struct catalog_txn *t;
    struct keys_layout l;
    CHECK_OK(catalog_begin(&t, catalog, false));
    CHECK_OK(keys_layout_read(&l, t, catalog, chunks));
    catalog_abort(t);
    return l;
}

static void put_sections(const int64_t *first, int64_t n) {
    struct catalog_txn *t;
    CHECK_OK(catalog_begin(&t, catalog, true));
    CHECK_OK(record_put_sections(t, first, n));
    CHECK_OK(catalog_commit(t));
}

/* Walks over the chunks with the definition: a file ends at the end of a section, or after FULL chunks. */
static void check_layout(const int64_t *first, int64_t n, int64_t chunks) {
    struct keys_layout l = read_layout(chunks);
    int64_t file = -1, section = -1, number = 0, begin = 0;
    CHECK_EQ(l.chunks, chunks);
    for (int64_t i = 0; i < chunks; i++) {
        const bool starts = section + 1 < n && first[section + 1] == i;
        section += starts;
        if (starts || i - begin == FULL) {
            if (file >= 0) CHECK_EQ(keys_layout_range(&l, file).end, i);
            file++;
            number = starts ? 0 : number + 1;
            begin = i;
        }
        const struct keys_range range = keys_layout_range(&l, file);
        if (i == begin || i == range.end - 1 || i % 1009 == 0) {
            CHECK_EQ(keys_layout_file(&l, i), file);
            CHECK_EQ(range.begin, begin);
            CHECK_EQ(range.number, number);
        }
    }
    CHECK_EQ(l.files, file + 1);
    if (chunks > 0) CHECK_EQ(keys_layout_range(&l, file).end, chunks);
    keys_layout_free(&l);
}

static void test_sections(uint64_t seed) {
    static const int64_t sizes[] = {1, 2, FULL - 1, FULL, FULL + 1, 2 * FULL, 3 * FULL - 5};
    struct rng rng = rng_make(seed, 0);
    for (int round = 0; round < 20; round++) {
        int64_t first[SECTIONS], n = 1 + (int64_t)rng_below(&rng, SECTIONS), sum = 0;
        for (int64_t i = 0; i < n; i++) {
            first[i] = sum;
            sum += sizes[rng_below(&rng, ARRAY_LEN(sizes))];
        }
        put_sections(first, n);
        check_layout(first, n, sum);
        check_layout(first, n, sum + 1 + (int64_t)rng_below(&rng, 2 * FULL)); /* chunks were added */
    }
}

static void test_damage(void) {
    static const int64_t wrong[][2] = {{1, 2}, {0, 0}, {5, 3}};
    struct keys_layout l;
    struct catalog_txn *t;
    struct bytes value;
    uint8_t copy[64];
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        put_sections(wrong[i], 2);
        CHECK_OK(catalog_begin(&t, catalog, false));
        CHECK_FAILS(keys_layout_read(&l, t, catalog, 9), STATUS_CORRUPT,
                    "record keys is damaged, run drt-index repair");
        catalog_abort(t);
    }
    put_sections((const int64_t[]){0, 3}, 2);
    CHECK_OK(catalog_begin(&t, catalog, true));
    CHECK_OK(catalog_get(t, &value, TABLE_META, "keys", 4));
    CHECK_EQ(value.size, 20);
    memcpy(copy, value.data, value.size);
    for (size_t bytes = 0; bytes <= 20; bytes++) { /* every changed byte and every shorter record */
        uint8_t changed[20];
        memcpy(changed, copy, sizeof changed);
        if (bytes < 20) changed[bytes] ^= 1;
        CHECK_OK(catalog_put(t, TABLE_META, "keys", 4, changed, 20));
        CHECK_EQ(keys_layout_read(&l, t, catalog, 9), bytes < 20 ? STATUS_CORRUPT : STATUS_OK);
        keys_layout_free(&l);
        CHECK_OK(catalog_put(t, TABLE_META, "keys", 4, copy, bytes));
        CHECK_EQ(keys_layout_read(&l, t, catalog, 9), bytes < 20 ? STATUS_CORRUPT : STATUS_OK);
        keys_layout_free(&l);
    }
    CHECK_OK(record_remove_sections(t));
    CHECK_OK(catalog_commit(t));
}

int main(void) {
    const int64_t one[] = {0};
    CHECK_OK(catalog_open(&catalog, test_folder(), true, 1 << 24));
    check_layout(one, 1, 0);
    check_layout(one, 1, 1);
    check_layout(one, 1, 2 * FULL);
    check_layout(one, 1, 2 * FULL + 1);
    test_sections(3);
    test_damage();
    check_layout(one, 1, 70);
    catalog_close(catalog);
    return 0;
}
