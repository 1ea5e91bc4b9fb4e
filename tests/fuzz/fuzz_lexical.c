/* fuzz_lexical.c -- any bytes as a lexical segment: open, verify, search and score must end with a status.
 *
 * Checksums would prevent the reading of damaged lists, so they are corrected first. */
#include "store/lexical/lexical_lists.h"
#include "tests/lexical_fixture.h"

enum { K = 5 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!test_folder_path[0] && access("/dev/shm", W_OK) == 0) setenv("DRT_TEST_TMP", "/dev/shm", 1);
    char path[600];
    snprintf(path, sizeof path, "%s/segment.lexical", test_folder());
    uint8_t *bytes = malloc(size ? size : 1);
    CHECK(bytes);
    memcpy(bytes, data, size);
    lexical_fixture_mend(bytes, size);
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, size, f) == size && fclose(f) == 0);
    free(bytes);
    struct lexical_range range;
    enum status ignored = lexical_verify(&range, path, NULL);
    const char *paths[] = {path};
    struct lexical *x;
    if (lexical_open(&x, paths, 1) != STATUS_OK) return 0;
    struct lexical_info info;
    lexical_info(x, &info);
    int32_t ids[64];
    for (int i = 0; i < 64; i++) /* pairs of the first ids, then ids of the whole vocabulary */
        ids[i] = i < 40 ? i / 2 % 7 * (i % 3) : (int32_t)((int64_t)info.vocab_size * (i - 40) / 24);
    struct store_range exclude = {1, 3};
    struct lexical_search how = {.k = K, .pair_weight = LEXICAL_PAIR_WEIGHT, .exclude = &exclude};
    struct lexical_query query = {ids, 64};
    struct store_hit hits[K];
    float scores[K];
    int64_t chunks[K] = {0, 1, 200, 5000, 0};
    ignored = lexical_search(x, hits, &query, 1, &how);
    chunks[K - 1] = ignored == STATUS_OK ? hits[0].chunk : 77;
    ignored = lexical_score(x, scores, chunks, K, &query, &how);
    struct lexical_cache *cache; /* the later searches change the sums that the first ones keep */
    CHECK_OK(lexical_cache_create(&cache));
    how.cache = cache;
    for (int i = 0; i < 4; i++) {
        const struct lexical_query next = {ids + i, 60};
        ignored = lexical_search(x, hits, &next, 1, &how);
    }
    (void)ignored;
    lexical_cache_free(cache);
    lexical_close(x);
    return 0;
}
