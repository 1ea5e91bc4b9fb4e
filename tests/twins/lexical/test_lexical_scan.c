/* test_lexical_scan.c -- lists of every kind and length in segments of any size, many ties, excluded ranges, and fewer
 * chunks than hits. */
#include "tests/ref/search/ref_lexical_scan.h"
#include "tests/twins/twins.h"

static void compare(const int32_t *chunks, int64_t segments, int64_t lists, int64_t queries, int k) {
    for (int kind = 0; kind < LEXICAL_SCAN_KINDS; kind++) {
        struct lexical_scan_case c =
            lexical_scan_case_make(&twin_rng, chunks, segments, lists, queries, (enum lexical_scan_kind)kind);
        int64_t n = queries * k, *index = malloc((size_t)(n + 1) * sizeof *index);
        for (int i = 0; i < DEVICES; i++)
            for (int absent = 0; absent < 2; absent++) {
                struct guarded score = guarded_make(1, n, NULL);
                float *found = zero_array(n);
                memset(index, 0, (size_t)n * sizeof *index);
                index[n] = 77;
                c.scan.absent = absent ? c.absent : NULL;
                twin_device[i]->ops->lexical_scan->forward(twin_device[i], index, score.m.data, &c.scan, k);
                CHECK_EQ(index[n], 77);
                guarded_take(found, &score);
                lexical_scan_case_check(&c, index, found, absent, k);
                free(found);
            }
        free(index);
        lexical_scan_case_free(&c);
    }
}

static void given(const int32_t *chunks, int64_t segments, int64_t lists, int64_t queries, int n) {
    struct lexical_scan_case c =
        lexical_scan_case_make(&twin_rng, chunks, segments, lists, queries, LEXICAL_SCAN_RANDOM);
    int64_t *chunk = malloc((size_t)(queries * n) * sizeof *chunk);
    float *right = zero_array(queries * n), *found = zero_array(queries * n);
    lexical_scan_case_given(&c, &twin_rng, chunk, right, n);
    for (int i = 0; i < DEVICES; i++) {
        struct guarded score = guarded_make(1, queries * n, NULL);
        twin_device[i]->ops->lexical_scan->score(twin_device[i], score.m.data, &c.scan, chunk, n);
        guarded_take(found, &score);
        for (int64_t j = 0; j < queries * n; j++)
            CHECK(found[j] == right[j]);
    }
    free(chunk), free(right), free(found);
    lexical_scan_case_free(&c);
}

int main(int argc, char **argv) {
    enum { WINDOW = LEXICAL_SCAN_WINDOW };
    twins_open(argc, argv);
    compare((const int32_t[]){1}, 1, 3, 2, 1);
    compare((const int32_t[]){50}, 1, 12, 3, 60);
    compare((const int32_t[]){WINDOW}, 1, 30, 3, 64);
    compare((const int32_t[]){WINDOW + 1, 0, 129, 2 * WINDOW - 3, 3}, 5, 24, 4, 100);
    compare((const int32_t[]){5 * WINDOW / 2}, 1, 100, 2, LEXICAL_SCAN_K_MAX);
    compare((const int32_t[]){300000}, 1, 12, 1, 256); /* gaps of many widths */
    given((const int32_t[]){1}, 1, 3, 2, 4);
    given((const int32_t[]){WINDOW + 1, 0, 129, 2 * WINDOW - 3, 3}, 5, 24, 4, 100);
    given((const int32_t[]){300000, 70}, 2, 300, 2, 64);
    return twins_close();
}
