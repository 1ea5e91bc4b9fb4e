/* blas_cpu.c -- see blas_cpu.h.
 *
 * This program's product divides the depth into slices of DEPTH. Of each slice, PANEL columns of b are packed side
 * by side in the first-level cache. Rows of a are multiplied by them, SIMD_ROWS at a time with their sums in registers.
 * The matrix a is read in place, by rows or by columns.
 *
 * Bound by arithmetic. Measured: docs/kernels/linear.md. */
#include "kernels/linear/blas_cpu.h"
#include "kernels/pointwise/simd_internal.h"
#include <limits.h>
#ifdef DRT_OPENBLAS
#include <cblas.h>
#endif

enum { PANEL = SIMD_VECTORS * LANES, DEPTH = 128, ROWS = 256 };

/* ---- transposes ---- */

#if defined(__AVX512F__)
#define LOW_HALVES 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_HALVES 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif defined(__AVX__)
#define LOW_HALVES 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH_HALVES 4, 12, 5, 13, 6, 14, 7, 15
#else
#define LOW_HALVES 0, 4, 1, 5
#define HIGH_HALVES 2, 6, 3, 7
#endif

/* to[c][r] = from[r][c] for LANES rows and columns: log2(LANES) times row i and row i + LANES/2 are interleaved. */
SIMD void transpose_square(float *to, int64_t to_stride, const float *from, int64_t from_stride) {
    vf row[LANES], next[LANES];
    for (int r = 0; r < LANES; r++)
        row[r] = v_load(from + r * from_stride);
    for (int width = 1; width < LANES; width *= 2) {
        for (int r = 0; r < LANES / 2; r++) {
            next[2 * r] = __builtin_shufflevector(row[r], row[r + LANES / 2], LOW_HALVES);
            next[2 * r + 1] = __builtin_shufflevector(row[r], row[r + LANES / 2], HIGH_HALVES);
        }
        memcpy(row, next, sizeof row);
    }
    for (int r = 0; r < LANES; r++)
        v_store(to + r * to_stride, row[r]);
}

/* to[c][r] = from[r][c] for all rows and columns. */
static void blas_transpose(float *to, int64_t to_stride, const float *from, int64_t from_stride, int64_t rows,
                           int64_t cols) {
    const int64_t whole_rows = rows / LANES * LANES, whole_cols = cols / LANES * LANES;
    for (int64_t r = 0; r < whole_rows; r += LANES)
        for (int64_t c = 0; c < whole_cols; c += LANES)
            transpose_square(to + c * to_stride + r, to_stride, from + r * from_stride + c, from_stride);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = r < whole_rows ? whole_cols : 0; c < cols; c++)
            to[c * to_stride + r] = from[r * from_stride + c];
}

/* ---- the product of this file ---- */

/* Rows of a times one panel, over a slice of the depth. */
struct blas_slice {
    const float *a;
    int64_t a_row, a_next; /* from a number of a to that of the next row, and to the next of its row */
    const float *panel;    /* [depth][PANEL]; beyond the last column of b zero */
    int64_t depth;
    float *y;
    int64_t y_stride, cols;
    float scale, keep;
};

SIMD void blas_put(float *y, vf sum, int64_t cols, float scale, float keep) {
    if (cols <= 0) return;
    vf out = sum * scale;
    if (keep != 0.0f) out += (cols < LANES ? v_load_part(y, cols) : v_load(y)) * keep;
    if (cols < LANES)
        v_store_part(y, out, cols);
    else
        v_store(y, out);
}

/* n rows from `row` on, n constant. */
SIMD void blas_rows(const struct blas_slice *s, int64_t row, int n) {
    vf sum[SIMD_ROWS][SIMD_VECTORS] = {0};
    const float *a = s->a + row * s->a_row;
    for (int64_t i = 0; i < s->depth; i++) {
        vf b[SIMD_VECTORS];
        for (int v = 0; v < SIMD_VECTORS; v++)
            b[v] = v_load(s->panel + i * PANEL + v * LANES);
        for (int r = 0; r < n; r++)
            for (int v = 0; v < SIMD_VECTORS; v++)
                sum[r][v] += a[r * s->a_row + i * s->a_next] * b[v];
    }
    for (int r = 0; r < n; r++)
        for (int v = 0; v < SIMD_VECTORS; v++)
            blas_put(s->y + (row + r) * s->y_stride + v * LANES, sum[r][v], s->cols - v * LANES, s->scale, s->keep);
}

static void blas_panel(const struct blas_slice *s, int64_t rows) {
    int64_t row = 0;
    for (; row + SIMD_ROWS <= rows; row += SIMD_ROWS)
        blas_rows(s, row, SIMD_ROWS);
    for (; row + 2 <= rows; row += 2)
        blas_rows(s, row, 2);
    if (row < rows) blas_rows(s, row, 1);
}

/* PANEL columns of b from `col` on, of the slice from `first` on. */
static void blas_pack(float *panel, const struct blas_product *p, int64_t first, int64_t depth, int64_t col) {
    const float *b = p->b.data;
    const int64_t stride = p->b.stride, cols = p->y.cols - col < PANEL ? p->y.cols - col : PANEL;
    if (cols < PANEL) memset(panel, 0, (size_t)(depth * PANEL) * sizeof *panel);
    if (p->b_transposed) {
        blas_transpose(panel, PANEL, b + col * stride + first, stride, cols, depth);
        return;
    }
    for (int64_t i = 0; i < depth; i++) {
        const float *from = b + (first + i) * stride + col;
        for (int64_t c = 0; c < cols; c += LANES)
            v_store(panel + i * PANEL + c, cols - c < LANES ? v_load_part(from + c, cols - c) : v_load(from + c));
    }
}

/* ROWS rows of y or less. */
static void blas_block(const struct blas_product *p, int64_t row, int64_t rows, int64_t depth) {
    _Alignas(64) float panel[DEPTH * PANEL];
    const int64_t a_row = p->a_transposed ? 1 : p->a.stride, a_next = p->a_transposed ? p->a.stride : 1;
    for (int64_t first = 0; first == 0 || first < depth; first += DEPTH) {
        struct blas_slice s = {.a = (const float *)p->a.data + row * a_row + first * a_next,
                               .a_row = a_row,
                               .a_next = a_next,
                               .panel = panel,
                               .depth = depth - first < DEPTH ? depth - first : DEPTH,
                               .y_stride = p->y.stride,
                               .scale = p->scale,
                               .keep = first == 0 ? p->keep : 1.0f};
        for (int64_t col = 0; col < p->y.cols; col += PANEL) {
            blas_pack(panel, p, first, s.depth, col);
            s.y = (float *)p->y.data + row * p->y.stride + col;
            s.cols = p->y.cols - col;
            blas_panel(&s, rows);
        }
    }
}

static int64_t blas_depth(const struct blas_product *p) {
    return p->a_transposed ? p->a.rows : p->a.cols;
}

void blas_cpu_product_own(struct blas_product p) {
    const int64_t depth = blas_depth(&p);
    for (int64_t row = 0; row < p.y.rows; row += ROWS)
        blas_block(&p, row, p.y.rows - row < ROWS ? p.y.rows - row : ROWS, depth);
}

/* ---- OpenBLAS ---- */

#ifdef DRT_OPENBLAS
/* Floats in a register of the kernels that OpenBLAS has selected; an unknown name counts as the widest. */
static int openblas_lanes(const char *core) {
    static const char *const four[] = {"Katmai",    "Coppermine", "Northwood",  "Prescott", "Banias",       "Atom",
                                       "Core2",     "Penryn",     "Dunnington", "Nehalem",  "Athlon",       "Opteron",
                                       "Barcelona", "Bobcat",     "Generic",    "Unknown",  "Opteron_SSE3", "Nano"};
    static const char *const eight[] = {"Sandybridge", "Bulldozer", "Piledriver", "Steamroller",
                                        "Excavator",   "Haswell",   "Zen"};
    for (size_t i = 0; i < sizeof four / sizeof *four; i++)
        if (strcmp(core, four[i]) == 0) return 4;
    for (size_t i = 0; i < sizeof eight / sizeof *eight; i++)
        if (strcmp(core, eight[i]) == 0) return 8;
    return LANES;
}

/* Whether OpenBLAS's kernels use registers as wide as this build's; determined once in a thread. */
static bool openblas_is_wide(void) {
    static _Thread_local enum { UNKNOWN, WIDE, NARROW } found;
    if (found == UNKNOWN) found = openblas_lanes(openblas_get_corename()) >= LANES ? WIDE : NARROW;
    return found == WIDE;
}

void blas_cpu_open(void) {
    openblas_set_num_threads(1);
}

const char *blas_cpu_name(void) {
    return openblas_is_wide() ? "OpenBLAS" : "our own, as OpenBLAS does not know this processor";
}

const char *blas_cpu_wanted(void) {
    return openblas_is_wide() ? NULL : LANES == 16 ? "SkylakeX" : "Haswell";
}

static void openblas_product(const struct blas_product *p) {
    const int64_t depth = blas_depth(p);
    assert(depth <= INT_MAX && p->y.rows <= INT_MAX && p->y.stride <= INT_MAX && p->a.stride <= INT_MAX &&
           p->b.stride <= INT_MAX);
    cblas_sgemm(CblasRowMajor, p->a_transposed ? CblasTrans : CblasNoTrans, p->b_transposed ? CblasTrans : CblasNoTrans,
                (int)p->y.rows, (int)p->y.cols, (int)depth, p->scale, (const float *)p->a.data, (int)p->a.stride,
                (const float *)p->b.data, (int)p->b.stride, p->keep, (float *)p->y.data, (int)p->y.stride);
}
#else
void blas_cpu_open(void) {}

const char *blas_cpu_name(void) {
    return "our own";
}

const char *blas_cpu_wanted(void) {
    return NULL;
}
#endif

void blas_cpu_product(struct blas_product p) {
    assert(blas_depth(&p) == (p.b_transposed ? p.b.cols : p.b.rows) &&
           p.y.rows == (p.a_transposed ? p.a.cols : p.a.rows));
    assert(p.y.cols == (p.b_transposed ? p.b.rows : p.b.cols));
#ifdef DRT_OPENBLAS
    if (openblas_is_wide()) {
        openblas_product(&p);
        return;
    }
#endif
    blas_cpu_product_own(p);
}
