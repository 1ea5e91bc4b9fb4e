/* test_rows_window.c -- the keys of windows in rings, at positions up to 2^40, against their definition: key i of n is
 * that of position p - n + 1 + i, in row (that) % ring. What a pass reads ahead is all that the limit allows, and no
 * more. */
#include "base/rng.h"
#include "kernels/decode_rows/decode_rows_window.h"
#include "tests/test.h"

enum { TEXTS = 64 };

static void windows(struct rng *rng) {
    const int window = (int)rng_below(rng, 600), ring = window + 1 + (int)rng_below(rng, 100);
    const uint64_t most = rng_below(rng, 2) ? 2000 : UINT64_C(1) << 40;
    const int64_t position = (int64_t)rng_below(rng, most);
    const int keys = rows_window_keys(position, window), first = rows_window_first(position, keys, ring);
    CHECK_EQ(keys, position < window ? position + 1 : window + 1);
    for (int i = 0; i < keys; i++)
        CHECK_EQ(rows_window_row(first, i, ring), (position - keys + 1 + i) % ring);
}

static int64_t read_ahead(const int64_t *positions, int n, int window, int skip) {
    int64_t keys = 0;
    for (int i = 0; i < n; i++)
        for (int key = skip; positions[i] >= 0 && key < rows_window_keys(positions[i], window) - 1; key++)
            keys++;
    return keys;
}

static void skips(struct rng *rng) {
    const int window = (int)rng_below(rng, 600), n = 1 + (int)rng_below(rng, TEXTS);
    const int64_t most = (int64_t)rng_below(rng, 12000);
    int64_t positions[TEXTS];
    for (int i = 0; i < n; i++)
        positions[i] = (int64_t)rng_below(rng, 1000) - 100;
    const int skip = rows_window_skip(positions, n, window, most);
    CHECK(skip >= 0 && skip <= window);
    CHECK(read_ahead(positions, n, window, skip) <= most);
    if (skip > 0) CHECK(read_ahead(positions, n, window, skip - 1) > most);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    struct rng rng = rng_make(test_seed(), 0);
    for (int i = 0; i < 2000; i++) {
        windows(&rng);
        skips(&rng);
    }
    return test_done();
}
