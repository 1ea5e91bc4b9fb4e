/* corpus_rows_nocuda.c -- see corpus_rows.h: on the CPU alone, by the generator of base/rng.h. */
#include "base/rng.h"
#include "tests/bench/corpus_rows.h"

enum status corpus_rows_fill(const struct corpus_rows *c, struct device *dev, struct mat to, int64_t first) {
    (void)dev;
    for (int64_t r = 0; r < to.rows; r++) {
        struct rng row = rng_make(c->seed, (uint64_t)(first + r) * 2);
        struct rng centre = rng_make(c->seed, rng_below(&row, (uint64_t)c->clusters) * 2 + 1);
        for (int64_t j = 0; j < to.cols; j++)
            mat_row(to, r)[j] = rng_normal(&centre) + c->noise * rng_normal(&row);
    }
    return STATUS_OK;
}
