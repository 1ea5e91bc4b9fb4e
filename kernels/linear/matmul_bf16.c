/* matmul_bf16.c -- rounded products of packed weights on vectors of AVX512_BF16.
 *
 * One instruction adds to 16 sums the products of two inputs each. Weights are packed in panels of 64 outputs; a panel
 * holds, for each pair of inputs, the pairs of its outputs side by side: 4 vectors. A task is 128 rows and at most 4
 * panels. It rounds its rows of x once, into scratch memory. The inner loop keeps 6 rows x 4 vectors of sums in
 * registers: in each step 4 loads of weights, 6 broadcasts of a pair of x and 24 products. A slice of a panel (256
 * inputs, 32 KiB) stays in the first-level cache for all rows; sums wait in scratch memory between slices, so every y
 * is one chain of products in order of `in`. Bound by arithmetic, with few rows also by reading weights. Best measured:
 * docs/kernels/linear.md.
 *
 * On Intel's processors the instruction takes four times as long as a fused multiply-add of 16 floats. There a pair is
 * two of these (matmul_bf16_fused), in the order of the instruction and with subnormal numbers as zeros, which gives
 * the same bits. A vector of pairs becomes two of floats by a shift and a mask, and the rounded rows of x are floats.
 *
 * The instructions are compiled under a target attribute: the rest of the program runs on any processor, and calls this
 * file only after bf16_open returned true. */
#include "kernels/linear/matmul_bf16.h"
#include "kernels/device/device_internal.h"
#include <assert.h>
#include <immintrin.h>

#define BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"), noinline))
#define BF16_INLINE static inline __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"), always_inline))

enum {
    LANES = 16,
    VECTORS = 4,             /* of a panel */
    PANEL = VECTORS * LANES, /* outputs */
    ROWS = 6,                /* whose sums are in registers */
    STEP = 32,               /* inputs that are rounded at once */
    SLICE = 128,             /* pairs of inputs */
    DEPTH_MAX = 4096,        /* inputs of x that are rounded at once; longer sums are computed in pieces */
    TASK_ROWS = 128,
    TASK_PANELS = 4,
    PAD = 32, /* inputs between rows of x, so that rows of 2^n bytes do not share the sets of a cache */
    FUSED_ROWS = TASK_ROWS / 2, /* of x as floats: the same scratch */
    X_BYTES = TASK_ROWS * (DEPTH_MAX + PAD) * 2,
    SUMS_BYTES = TASK_ROWS * PANEL * 4
};
_Static_assert(X_BYTES + SUMS_BYTES <= DEVICE_SCRATCH_BYTES, "a task's scratch");

static bool bf16_open(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bf16");
}

static int64_t bf16_pairs(int64_t in) {
    return (in + 1) / 2;
}

static int64_t bf16_panels(int64_t out) {
    return (out + PANEL - 1) / PANEL;
}

static int64_t bf16_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static __mmask16 first_lanes(int64_t n) {
    return n >= LANES ? (__mmask16)0xffff : n <= 0 ? 0 : (__mmask16)((1u << n) - 1);
}

/* The first n of 32 floats, rounded; the others are zero. */
BF16_INLINE __m512i rounded(const float *p, int64_t n) {
    __m512 low = _mm512_maskz_loadu_ps(first_lanes(n), p);
    __m512 high = _mm512_maskz_loadu_ps(first_lanes(n - LANES), n > LANES ? p + LANES : p);
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* ---- packing ---- */

/* Pairs of 32 inputs (or the first n) of 64 outputs (or `outs`): `to` is [16 pairs][64 outputs]. */
BF16 static void pack_step(uint32_t *to, const float *w, int64_t stride, int64_t outs, int64_t n) {
    _Alignas(64) uint32_t pairs[STEP / 2];
    for (int64_t o = 0; o < PANEL; o++) {
        _mm512_store_si512(pairs, rounded(o < outs ? w + o * stride : w, o < outs ? n : 0));
        for (int64_t i = 0; i < bf16_pairs(n); i++)
            to[i * PANEL + o] = pairs[i];
    }
}

static int64_t bf16_packed_elements(int64_t out, int64_t in) {
    return bf16_panels(out) * PANEL * bf16_pairs(in);
}

static void bf16_pack(float *packed, struct mat w) {
    uint32_t *to = (uint32_t *)(void *)packed;
    for (int64_t o = 0; o < w.rows; o += PANEL)
        for (int64_t i = 0; i < w.cols; i += STEP) {
            int64_t n = bf16_min(STEP, w.cols - i);
            pack_step(to, mat_row(w, o) + i, w.stride, bf16_min(PANEL, w.rows - o), n);
            to += bf16_pairs(n) * PANEL;
        }
}

/* ---- products ---- */

/* Rounds `depth` inputs of the rows of x from `at` on. */
BF16 static void round_rows(uint16_t *to, int64_t to_stride, struct mat x, int64_t at, int64_t depth) {
    for (int64_t r = 0; r < x.rows; r++)
        for (int64_t i = 0; i < depth; i += STEP)
            _mm512_storeu_si512(to + r * to_stride + i, rounded(mat_row(x, r) + at + i, depth - i));
}

/* The same numbers as floats. */
BF16 static void round_to_floats(float *to, int64_t to_stride, struct mat x, int64_t at, int64_t depth) {
    for (int64_t r = 0; r < x.rows; r++)
        for (int64_t i = 0; i < depth; i += STEP) {
            const __m512i both = rounded(mat_row(x, r) + at + i, depth - i);
            const __m512i low = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(both));
            const __m512i high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(both, 1));
            _mm512_storeu_si512(to + r * to_stride + i, _mm512_slli_epi32(low, 16));
            _mm512_storeu_si512(to + r * to_stride + i + LANES, _mm512_slli_epi32(high, 16));
        }
}

/* x: rounded rows, `stride` pairs from one to the next. w: a slice of a panel. sums: [rows][PANEL]; `begin`: they
 * start at zero. */
struct slice {
    float *sums;
    const uint32_t *x;
    const float *floats; /* fused: x, `stride` pairs of floats from one row to the next */
    const uint32_t *w;
    int64_t stride, pairs;
    bool begin;
    const uint32_t *end; /* of the weights that are prefetched */
    int64_t lines;       /* that each step of a block prefetches */
};

/* The products of a pair of weights: by the instruction, or by two fused multiply-adds, the second number's first. */
BF16_INLINE void multiply_pair(__m512 sum[ROWS][VECTORS], const struct slice *s, int64_t row, int64_t i, int rows,
                               bool fused) {
    __m512i weight[VECTORS];
    for (int v = 0; v < VECTORS; v++)
        weight[v] = _mm512_loadu_si512(s->w + i * PANEL + v * LANES);
    for (int r = 0; r < rows && !fused; r++) {
        const __m512bh pair = (__m512bh)_mm512_set1_epi32((int)s->x[(row + r) * s->stride + i]);
        for (int v = 0; v < VECTORS; v++)
            sum[r][v] = _mm512_dpbf16_ps(sum[r][v], pair, (__m512bh)weight[v]);
    }
    for (int second = 1; second >= 0 && fused; second--) {
        __m512 number[VECTORS];
        for (int v = 0; v < VECTORS; v++)
            number[v] = _mm512_castsi512_ps(second ? _mm512_and_si512(weight[v], _mm512_set1_epi32((int)0xffff0000u))
                                                   : _mm512_slli_epi32(weight[v], 16));
        for (int r = 0; r < rows; r++) {
            const __m512 x = _mm512_set1_ps(s->floats[2 * ((row + r) * s->stride + i) + second]);
            for (int v = 0; v < VECTORS; v++)
                sum[r][v] = _mm512_fmadd_ps(x, number[v], sum[r][v]);
        }
    }
}

/* `rows` and `fused` are constants wherever this is inlined. */
BF16_INLINE void multiply(const struct slice *s, int64_t row, int rows, bool fused) {
    __m512 sum[ROWS][VECTORS];
    float *sums = s->sums + row * PANEL;
    /* Each of the first blocks of rows loads a part of the next slice, which follows this one, into the second-level
     * cache: passages of few rows are bound by reading weights. */
    const uint32_t *ahead = s->w + (s->pairs * VECTORS + row / ROWS * s->pairs * s->lines) * LANES;
    const int64_t steps = row / ROWS * s->lines < VECTORS && ahead < s->end ? s->pairs : 0;
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < VECTORS; v++)
            sum[r][v] = s->begin ? _mm512_setzero_ps() : _mm512_loadu_ps(sums + r * PANEL + v * LANES);
    for (int64_t i = 0; i < s->pairs; i++) {
        for (int64_t line = 0; i < steps && line < s->lines; line++)
            __builtin_prefetch(ahead + (i * s->lines + line) * LANES, 0, 2);
        multiply_pair(sum, s, row, i, rows, fused);
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < VECTORS; v++)
            _mm512_storeu_ps(sums + r * PANEL + v * LANES, sum[r][v]);
}

BF16_INLINE void multiply_all(const struct slice *s, int64_t rows, bool fused) {
    int64_t r = 0;
    for (; r + ROWS <= rows; r += ROWS)
        multiply(s, r, ROWS, fused);
    switch (rows - r) {
    case 5:
        multiply(s, r, 5, fused);
        break;
    case 4:
        multiply(s, r, 4, fused);
        break;
    case 3:
        multiply(s, r, 3, fused);
        break;
    case 2:
        multiply(s, r, 2, fused);
        break;
    case 1:
        multiply(s, r, 1, fused);
        break;
    default:
        break;
    }
}

BF16 static void multiply_rows(const struct slice *s, int64_t rows) {
    multiply_all(s, rows, false);
}

BF16 static void multiply_rows_fused(const struct slice *s, int64_t rows) {
    enum { ROUND_ANY = 3 << 13, FLUSH = 1 << 15 | 1 << 6 /* subnormal results, operands */ };
    const unsigned before = _mm_getcsr();
    _mm_setcsr((before & ~(unsigned)ROUND_ANY) | FLUSH);
    multiply_all(s, rows, true);
    _mm_setcsr(before);
}

BF16 static void put_sums(struct mat y, const float *sums, bool accumulate) {
    for (int64_t r = 0; r < y.rows; r++)
        for (int64_t c = 0; c < y.cols; c += LANES) {
            float *to = mat_row(y, r) + c;
            __mmask16 lanes = first_lanes(y.cols - c);
            __m512 sum = _mm512_loadu_ps(sums + r * PANEL + c);
            if (accumulate) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, to), sum);
            _mm512_mask_storeu_ps(to, lanes, sum);
        }
}

struct bf16_task {
    struct device *dev;
    struct mat y, x;
    const uint32_t *packed;
    bool accumulate, fused;
    int64_t rows, panels, across; /* rows and panels of a task; tasks in a row */
};

/* The weights that a task prefetches: its own, and, if it has all, what follows them in memory. In a model's layer
 * that is the next product's matrix. */
static const uint32_t *bf16_end(const struct bf16_task *t, int64_t begin, int64_t end) {
    const bool all = begin == 0 && end == bf16_panels(t->y.cols);
    return t->packed + (end * bf16_pairs(t->x.cols) + (all ? SLICE : 0)) * PANEL;
}

/* One task: rows of x and y, panels begin .. end-1. */
static void bf16_block(const struct bf16_task *t, unsigned char *scratch, int64_t row, int64_t begin, int64_t end) {
    const int64_t in = t->x.cols, pairs = bf16_pairs(in), rows = bf16_min(t->rows, t->y.rows - row);
    const int64_t blocks = bf16_min(rows / ROWS + (rows < ROWS), VECTORS);
    struct slice s = {.sums = (float *)(void *)(scratch + X_BYTES), .lines = (VECTORS + blocks - 1) / blocks};
    s.end = bf16_end(t, begin, end);
    for (int64_t at = 0; at < in; at += DEPTH_MAX) {
        const int64_t depth = bf16_min(DEPTH_MAX, in - at), stride = (depth + STEP - 1) / STEP * STEP + PAD;
        if (t->fused)
            round_to_floats((float *)(void *)scratch, stride, mat_rows(t->x, row, rows), at, depth);
        else
            round_rows((uint16_t *)(void *)scratch, stride, mat_rows(t->x, row, rows), at, depth);
        s.stride = stride / 2;
        for (int64_t p = begin; p < end; p++) {
            for (int64_t i = 0; i < bf16_pairs(depth); i += SLICE) {
                s.x = (const uint32_t *)(const void *)scratch + i;
                s.floats = (const float *)(const void *)scratch + 2 * i;
                s.w = t->packed + (p * pairs + at / 2 + i) * PANEL;
                s.pairs = bf16_min(SLICE, bf16_pairs(depth) - i);
                s.begin = i == 0;
                (t->fused ? multiply_rows_fused : multiply_rows)(&s, rows);
            }
            int64_t cols = bf16_min(PANEL, t->y.cols - p * PANEL);
            put_sums(mat_cols(mat_rows(t->y, row, rows), p * PANEL, cols), s.sums, t->accumulate || at > 0);
        }
    }
}

static void bf16_blocks(void *context, int64_t begin, int64_t end, int worker) {
    const struct bf16_task *t = context;
    const int64_t panels = bf16_panels(t->y.cols);
    for (int64_t i = begin; i < end; i++) {
        int64_t first = i % t->across * t->panels;
        bf16_block(t, device_scratch(t->dev, worker), i / t->across * t->rows, first,
                   bf16_min(first + t->panels, panels));
    }
}

static void bf16_product(struct bf16_task t) {
    const int64_t panels = bf16_panels(t.y.cols);
    t.rows = t.fused ? FUSED_ROWS : TASK_ROWS;
    const int64_t down = (t.y.rows + t.rows - 1) / t.rows;
    t.panels = device_panels(t.dev, panels, TASK_PANELS, down);
    t.across = (panels + t.panels - 1) / t.panels;
    threads_for(t.dev->threads, down * t.across, 1, bf16_blocks, &t);
}

static void bf16_forward_packed(struct device *dev, struct mat y, struct mat x, const float *packed, bool accumulate) {
    bf16_product((struct bf16_task){
        .dev = dev, .y = y, .x = x, .packed = (const uint32_t *)(const void *)packed, .accumulate = accumulate});
}

static void fused_forward_packed(struct device *dev, struct mat y, struct mat x, const float *packed, bool accumulate) {
    bf16_product((struct bf16_task){.dev = dev,
                                    .y = y,
                                    .x = x,
                                    .packed = (const uint32_t *)(const void *)packed,
                                    .accumulate = accumulate,
                                    .fused = true});
}

static bool fused_open(void) {
    return bf16_open() && __builtin_cpu_is("intel");
}

const struct matmul_bf16 matmul_bf16 = {.open = bf16_open,
                                        .packed_elements = bf16_packed_elements,
                                        .pack = bf16_pack,
                                        .forward_packed = bf16_forward_packed};
const struct matmul_bf16 matmul_bf16_fused = {.open = fused_open,
                                              .packed_elements = bf16_packed_elements,
                                              .pack = bf16_pack,
                                              .forward_packed = fused_forward_packed};
