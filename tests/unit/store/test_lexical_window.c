/* test_lexical_window.c -- the loops over a window's sums against plain ones, by both kinds of vector. */
#include "base/rng.h"
#include "store/lexical/lexical_window_internal.h"
#include "tests/test.h"

enum { SELECTED = LEXICAL_WINDOW + LEXICAL_GROUP };

static uint32_t chunks[SELECTED], want_chunks[SELECTED];
static int32_t sums[LEXICAL_WINDOW], got[SELECTED], want[SELECTED];

static void check_selected(const struct lexical_selected *s, int n) {
    CHECK_EQ(s->n, n);
    CHECK(memcmp(s->chunks, want_chunks, (size_t)n * sizeof *want_chunks) == 0);
    CHECK(memcmp(s->sums, want, (size_t)n * sizeof *want) == 0);
}

/* Sums of few values, some excluded. low and high are between them, and beyond. */
static void test_select(enum lexical_vectors vectors) {
    struct rng r = rng_make(test_seed(), 1);
    for (int round = 0; round < 200; round++) {
        const int n = round == 0 ? LEXICAL_WINDOW : 1 + (int)rng_below(&r, round % 2 ? 100 : LEXICAL_WINDOW);
        const int32_t low = (int32_t)rng_below(&r, 12), high = round % 3 ? INT32_MAX : low + (int32_t)rng_below(&r, 5);
        for (int i = 0; i < LEXICAL_WINDOW; i++)
            sums[i] = i >= n || rng_below(&r, 20) == 0 ? LEXICAL_EXCLUDED : (int32_t)rng_below(&r, 10);
        struct lexical_selected s = {chunks, got, -1};
        int found = 0;
        for (int i = 0; i < n; i++)
            if (sums[i] >= low && sums[i] < high) {
                want_chunks[found] = (uint32_t)i;
                want[found++] = sums[i];
            }
        lexical_window_select(&s, sums, n, low, high, vectors);
        check_selected(&s, found);
    }
}

static void test_dense(enum lexical_vectors vectors) {
    static uint8_t codes[2 * LEXICAL_WINDOW / 4 + 8];
    struct rng r = rng_make(test_seed(), 2);
    const struct lexical_weighted w = {.list = {.data = codes, .kind = LEXICAL_DENSE}, .weight = {0, 3, 50, 1 << 28}};
    for (size_t i = 0; i < sizeof codes; i++)
        codes[i] = (uint8_t)rng_below(&r, 256);
    for (int round = 0; round < 200; round++) {
        const uint32_t begin = round % 2 ? LEXICAL_WINDOW : 0;
        const int32_t least = round % 4 ? (int32_t)rng_below(&r, 60) : 1 << 28;
        struct lexical_selected s = {chunks, got, 0};
        int kept = 0;
        for (uint32_t i = 0; i < LEXICAL_WINDOW; i++) {
            if (rng_below(&r, 1 + (uint64_t)round) > 0) continue;
            const int32_t sum = (int32_t)rng_below(&r, 50);
            chunks[s.n] = i;
            got[s.n++] = sum;
            want_chunks[kept] = i;
            want[kept] = sum + w.weight[codes[(begin + i) / 4] >> (i % 4 * 2) & 3];
            kept += want[kept] >= least;
        }
        lexical_selected_add_dense(&s, &w, begin, least, vectors);
        check_selected(&s, kept);
    }
}

static void test_weights(enum lexical_vectors vectors) {
    static const int32_t weight[LEXICAL_CODES + 1] = {0, 7, -5, 1 << 29};
    struct rng r = rng_make(test_seed(), 3);
    for (int round = 0; round < 100; round++) {
        struct lexical_block b = {.n = LEXICAL_BLOCK};
        int32_t out[LEXICAL_BLOCK];
        for (int i = 0; i < LEXICAL_BLOCK; i++) {
            const int code = (int)rng_below(&r, LEXICAL_CODES);
            b.twice[i / 64] |= (uint64_t)(code > 0) << (i % 64);
            b.thrice[i / 64] |= (uint64_t)(code > 1) << (i % 64);
        }
        lexical_block_weights(out, &b, weight, vectors);
        for (int i = 0; i < LEXICAL_BLOCK; i++)
            CHECK_EQ(out[i], weight[lexical_block_code(&b, i) + 1]);
    }
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    for (int vectors = LEXICAL_NARROW; vectors <= (int)lexical_vectors_widest(); vectors++) {
        test_select((enum lexical_vectors)vectors);
        test_dense((enum lexical_vectors)vectors);
        test_weights((enum lexical_vectors)vectors);
    }
    return test_done();
}
