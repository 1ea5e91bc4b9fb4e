/* faiss_info.c -- which FAISS is linked, and how fast it scans. Debian's FAISS is built for SSE2 and 7 to 10 times
 * slower than a build for this processor. The library does not export what it was built for, so its rate is compared
 * with that of this program's loop. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "store/exact_internal.h"
#include "store/index/vectors_internal.h"
#include <stdio.h>

enum { ROWS = 4096, DIM = 256, REPEATS = 5 };

/* Measures how many values per second this program's product computes over the same number of float32 rows. */
static double own_rate(float *scores, const float *rows) {
    double best = 1e30;
    for (int i = 0; i < REPEATS; i++) {
        double begin = clock_seconds();
        exact_dots(scores, rows, ROWS, rows, DIM);
        double seconds = clock_seconds() - begin;
        if (seconds < best) best = seconds;
    }
    return (double)ROWS * DIM / best;
}

/* Measures FAISS's rate, and its ratio to this program's rate. */
static enum status faiss_info_measure(double *mb_s, double *share) {
    float *rows, *scores;
    TRY(memory_allocate_aligned(&rows, (size_t)ROWS * (DIM + 1)));
    scores = rows + (size_t)ROWS * DIM;
    struct rng r = rng_make(1, 1);
    for (int i = 0; i < ROWS * DIM; i++)
        rows[i] = rng_normal(&r);
    *mb_s = 0;
    enum status s = vectors_scan_rate(mb_s, rows, ROWS, DIM);
    *share = *mb_s * 1e6 / own_rate(scores, rows);
    memory_free(rows);
    return s;
}

const char *store_faiss_version(void) {
    return vectors_version();
}

enum status store_faiss_info(struct store_faiss_info *out) {
    double mb_s, share;
    TRY(faiss_info_measure(&mb_s, &share));
    *out = (struct store_faiss_info){.scan_mb_s = mb_s};
    snprintf(out->version, sizeof out->version, "%s", vectors_version());
    snprintf(out->simd, sizeof out->simd, "%s: 8-bit scan is %.2f of our loop's rate",
             share >= 0.4 /* measured: 0.1 for SSE2, 0.8 and more for AVX2 */ ? "likely AVX2 or wider"
                                                                              : "likely SSE2 only",
             share);
    return STATUS_OK;
}
