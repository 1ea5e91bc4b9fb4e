/* guarded.h -- a matrix inside a larger one that is filled with one value: a test sees where an op wrote outside of its
 * output. Frames are filled and compared as memory: loops over frames took most of a test's time. */
#pragma once
#include "kernels/device/device.h"
#include "tests/test.h"

enum { GUARD = 19 };      /* columns and rows around a guarded matrix: not a multiple of a vector */
static const float guard_value = -12345.678f;

struct guarded {
    float *memory;
    struct mat m;
    int64_t frame;      /* guard rows above and below */
};

static inline void guard_fill(float *to, int64_t n) {
    to[0] = guard_value;
    for (int64_t done = 1, more; done < n; done += more) {
        more = done < n - done ? done : n - done;
        memcpy(to + done, to, (size_t)more * sizeof *to);
    }
}

static inline void guard_check(const float *from, int64_t n) {    /* each number is the one before it */
    if (from[0] != guard_value || memcmp(from, from + 1, (size_t)(n - 1) * sizeof *from) != 0)
        test_fail(__FILE__, __LINE__, "an op wrote outside of its output");
}

static inline struct guarded guarded_in_frame(int64_t rows, int64_t cols, const float *content, int64_t frame) {
    struct guarded g = {.frame = frame};
    int64_t stride = cols + 2 * GUARD, all = (rows + 2 * frame) * stride;
    g.memory = malloc((size_t)all * sizeof(float));
    guard_fill(g.memory, all);
    g.m = (struct mat){.data = g.memory + frame * stride + GUARD, .rows = rows, .cols = cols, .stride = stride};
    for (int64_t r = 0; r < rows && content; r++)
        memcpy(mat_row(g.m, r), content + r * cols, (size_t)cols * sizeof(float));
    return g;
}

static inline struct guarded guarded_make(int64_t rows, int64_t cols, const float *content) {
    return guarded_in_frame(rows, cols, content, GUARD);
}

/* Packed weights: one row, of which GUARD guards took most of a test's time. */
static inline struct guarded guarded_packed(int64_t n) { return guarded_in_frame(1, n, NULL, 1); }

/* Copies the content out (dense) unless `out` is NULL, checks that the frame is unchanged, and frees. */
static inline void guarded_take(float *out, struct guarded *g) {
    const int64_t rows = g->m.rows, cols = g->m.cols, frame = g->frame * g->m.stride;
    for (int64_t r = 0; r < rows; r++) {
        const float *row = mat_row(g->m, r);
        guard_check(row - GUARD, GUARD);
        guard_check(row + cols, GUARD);
        if (out && cols > 0) memcpy(out + r * cols, row, (size_t)cols * sizeof *out);
    }
    guard_check(g->memory, frame);
    guard_check(g->memory + frame + rows * g->m.stride, frame);
    free(g->memory);
}

static inline void guarded_drop(struct guarded *g) { guarded_take(NULL, g); }
