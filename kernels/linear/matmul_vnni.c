/* matmul_vnni.c -- the loops of 8-bit products on vectors of x86 (matmul_i8.h has the layout).
 *
 *   AVX-512 VNNI  one instruction adds to 16 sums the products of 4 inputs each. x is in two parts, its upper and lower
 *                 bytes, with a sum each: two instructions for 64 weights. One row: a panel at a time, w is prefetched
 *                 8 KiB in advance. More: 4 rows x 2 panels x 2 parts of sums in registers. Bytes have one part: 6
 *                 rows x 4 panels of sums in registers for a block, after which they are added to totals in memory,
 *                 or, after the last block, put into y; a block of the panels stays in the first-level cache for all
 *                 rows, and the next panels' is prefetched.
 *   AVX-VNNI      the same in halves of 8 outputs; 2 rows at a time.
 *   AVX2          weights widened to 16 bits, pairs multiplied with x's 16 bits and added to 32 bits.
 *
 * Each is compiled under a target attribute, and called only if the processor has its instructions. Best measured:
 * docs/kernels/linear.md. */
#include "kernels/linear/matmul_i8.h"
#include <cpuid.h>
#include <immintrin.h>
#include <math.h>
#include <string.h>

enum { AHEAD = 8192, LINE = 64 }; /* bytes */

static int32_t four_at(const unsigned char *p) {
    int32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

static int64_t eight_at(const unsigned char *p) {
    int64_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* ---- AVX-512 ---- */

#define WIDE static __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni"), noinline))
#define WIDE_INLINE static inline __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni"), always_inline))
enum { WIDE_ROWS = 4, WIDE_PANELS = 2 };

/* sum += the products of four neighbouring bytes, those of w without sign. From the intrinsic GCC 12 copies every sum
 * before and after it is added to, and spills some: 327 instead of 477 GFLOP/s. */
WIDE_INLINE void wide_add(__m512i *sum, __m512i w, __m512i x) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(*sum) : "v"(w), "v"(x));
}

WIDE_INLINE void wide_put(const struct matmul_i8_rows *p, int64_t row, int64_t panel, __m512 sum) {
    float *y = mat_row(p->y, row) + panel * I8_PANEL;
    const int64_t n = p->y.cols - panel * I8_PANEL;
    const __mmask16 lanes = n >= I8_PANEL ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1);
    if (p->accumulate) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, y), sum);
    _mm512_mask_storeu_ps(y, lanes, sum);
}

/* `rows` and `panels` are constants wherever this is inlined. */
WIDE_INLINE void wide_block(const struct matmul_i8_rows *p, int64_t row, int64_t panel, int rows, int panels,
                            bool ahead) {
    const int64_t blocks = p->blocks, panel_bytes = blocks * I8_BLOCK_BYTES, plane = blocks * I8_BLOCK;
    const unsigned char *w = p->w + panel * panel_bytes, *x = p->x + row * p->row_bytes;
    __m512 total[WIDE_ROWS][WIDE_PANELS];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < panels; v++)
            total[r][v] = _mm512_setzero_ps();
    for (int64_t b = 0; b < blocks; b++, w += I8_BLOCK_BYTES, x += I8_BLOCK) {
        __m512i high[WIDE_ROWS][WIDE_PANELS], low[WIDE_ROWS][WIDE_PANELS];
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < panels; v++) {
                const unsigned char *of = p->x + (row + r) * p->row_bytes;
                high[r][v] = _mm512_setzero_si512();
                low[r][v] = _mm512_set1_epi32(matmul_i8_offsets(p, of)[b]);
            }
        for (int s = 0; s < I8_STEPS; s++) {
            __m512i weights[WIDE_PANELS];
            for (int v = 0; v < panels; v++)
                weights[v] = _mm512_loadu_si512(w + v * panel_bytes + s * I8_STEP);
            if (ahead) __builtin_prefetch(w + s * I8_STEP + AHEAD, 0, 3);
            for (int r = 0; r < rows; r++) {
                const unsigned char *of = x + r * p->row_bytes + 4 * s;
                const __m512i upper = _mm512_set1_epi32(four_at(of)), lower = _mm512_set1_epi32(four_at(of + plane));
                for (int v = 0; v < panels; v++) {
                    wide_add(&high[r][v], weights[v], upper);
                    wide_add(&low[r][v], weights[v], lower);
                }
            }
        }
        if (ahead) __builtin_prefetch(w + I8_STEPS * I8_STEP + AHEAD, 0, 3);
        for (int v = 0; v < panels; v++) {
            const __m512 scale =
                _mm512_loadu_ps((const float *)(const void *)(w + v * panel_bytes + I8_STEPS * I8_STEP));
            for (int r = 0; r < rows; r++) {
                const float of_x = matmul_i8_scales(p, p->x + (row + r) * p->row_bytes)[b];
                const __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(high[r][v], 8), low[r][v]);
                total[r][v] =
                    _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(scale, _mm512_set1_ps(of_x)), total[r][v]);
            }
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < panels; v++)
            wide_put(p, row + r, panel + v, total[r][v]);
}

WIDE void wide_one_row(const struct matmul_i8_rows *p, int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; panel++)
        wide_block(p, 0, panel, 1, 1, true);
}

WIDE_INLINE void wide_rows(const struct matmul_i8_rows *p, int64_t panel, int panels) {
    int64_t row = 0;
    for (; row + WIDE_ROWS <= p->y.rows; row += WIDE_ROWS)
        wide_block(p, row, panel, WIDE_ROWS, panels, false);
    switch (p->y.rows - row) {
    case 3:
        wide_block(p, row, panel, 3, panels, false);
        break;
    case 2:
        wide_block(p, row, panel, 2, panels, false);
        break;
    case 1:
        wide_block(p, row, panel, 1, panels, false);
        break;
    default:
        break;
    }
}

WIDE void wide_panels(const struct matmul_i8_rows *p, int64_t begin, int64_t end) {
    if (p->y.rows == 1) {
        wide_one_row(p, begin, end);
        return;
    }
    for (; begin + WIDE_PANELS <= end; begin += WIDE_PANELS)
        wide_rows(p, begin, WIDE_PANELS);
    if (begin < end) wide_rows(p, begin, 1);
}

/* ---- AVX-512, x of 8 bits ---- */

enum { BYTE_ROWS = 6, BYTE_ROWS_LESS = 4, BYTE_PANELS = I8_TOGETHER, BYTE_ALL = 64 };

/* A block of inputs of some panels, by up to BYTE_ALL rows. */
struct bytes_block {
    const struct matmul_i8_rows *p;
    float *total;                   /* [rows][BYTE_PANELS][I8_PANEL] */
    const unsigned char *w, *ahead; /* ahead: to be prefetched, `lines` */
    int64_t b, panel, panel_bytes, lines;
    bool direct; /* the last block's sums are put into y, which has all outputs of the panels */
};
_Alignas(LINE) static const float bytes_zero[BYTE_ROWS * BYTE_PANELS * I8_PANEL]; /* the totals before a block */

/* A block of a row: its integers, -128 times their sum, and its scale. The next row's are row_bytes later. */
struct bytes_row {
    const unsigned char *x, *offset, *scale;
};

/* What is done for each of 4 or 6 rows: row r has the sums 8 + 4 r .. 11 + 4 r. */
#define BYTES_4(DO)                                                                                                    \
    DO("", "0", "8", "9", "10", "11")                                                                                  \
    DO(",%[row]", "256", "12", "13", "14", "15")                                                                       \
    DO(",%[row],2", "512", "16", "17", "18", "19")                                                                     \
    DO(",%[row3]", "768", "20", "21", "22", "23")
#define BYTES_6(DO)                                                                                                    \
    BYTES_4(DO) DO(",%[row],4", "1024", "24", "25", "26", "27") DO(",%[row5]", "1280", "28", "29", "30", "31")

#define BYTES_BEGIN(row, from, s0, s1, s2, s3)                                                                         \
    "vpbroadcastd (%[offset]" row "), %%zmm" s0 "\n\t"                                                                 \
    "vmovdqa64 %%zmm" s0 ", %%zmm" s1 "\n\t"                                                                           \
    "vmovdqa64 %%zmm" s0 ", %%zmm" s2 "\n\t"                                                                           \
    "vmovdqa64 %%zmm" s0 ", %%zmm" s3 "\n\t"
#define BYTES_STEP(row, from, s0, s1, s2, s3)                                                                          \
    "vpbroadcastd (%[x]" row "), %%zmm4\n\t"                                                                           \
    "vpdpbusd %%zmm4, %%zmm0, %%zmm" s0 "\n\t"                                                                         \
    "vpdpbusd %%zmm4, %%zmm1, %%zmm" s1 "\n\t"                                                                         \
    "vpdpbusd %%zmm4, %%zmm2, %%zmm" s2 "\n\t"                                                                         \
    "vpdpbusd %%zmm4, %%zmm3, %%zmm" s3 "\n\t"
#define BYTES_SUM(from, to, scale, product, sum, ADD)                                                                  \
    "vcvtdq2ps %%zmm" sum ", %%zmm" sum "\n\t"                                                                         \
    "vmulps %%zmm4, %%zmm" scale ", %%zmm" product "\n\t"                                                              \
    "vfmadd213ps " from "(%[from]), %%zmm" product ", %%zmm" sum "\n\t" ADD(to, sum) "vmovups %%zmm" sum ", " to       \
                                                                                     "(%[to])\n\t"
#define BYTES_SUMS(row, from, s0, s1, s2, s3, ADD)                                                                     \
    "vbroadcastss (%[scale]" row "), %%zmm4\n\t" BYTES_SUM(from, "", "0", "5", s0, ADD)                                \
        BYTES_SUM(from "+64", "64", "1", "6", s1, ADD) BYTES_SUM(from "+128", "128", "2", "7", s2, ADD)                \
            BYTES_SUM(from "+192", "192", "3", "5", s3, ADD) "add %[next], %[to]\n\t"
#define BYTES_NO_ADD(to, sum)
#define BYTES_ADD(to, sum) "vaddps " to "(%[to]), %%zmm" sum ", %%zmm" sum "\n\t"
#define BYTES_PUT(row, from, s0, s1, s2, s3) BYTES_SUMS(row, from, s0, s1, s2, s3, BYTES_NO_ADD)
#define BYTES_PUT_ADD(row, from, s0, s1, s2, s3) BYTES_SUMS(row, from, s0, s1, s2, s3, BYTES_ADD)

#define BYTES_WEIGHTS                                                                                                  \
    "vmovdqu64 (%[w]), %%zmm0\n\t"                                                                                     \
    "vmovdqu64 (%[w],%[panel]), %%zmm1\n\t"                                                                            \
    "vmovdqu64 (%[w],%[panel],2), %%zmm2\n\t"                                                                          \
    "vmovdqu64 (%[w],%[panel3]), %%zmm3\n\t"
#define BYTES_BLOCK(ROWS, PUT)                                                                                         \
    ROWS(BYTES_BEGIN)                                                                                                  \
    "1:\n\t" BYTES_WEIGHTS ROWS(BYTES_STEP) "add $64, %[w]\n\t"                                                        \
                                            "add $4, %[x]\n\t"                                                         \
                                            "dec %[steps]\n\t"                                                         \
                                            "jnz 1b\n\t" BYTES_WEIGHTS                                                 \
                                            ROWS(PUT)
#define BYTES_OPERANDS                                                                                                 \
    : [w] "+r"(w), [x] "+r"(x), [steps] "+r"(steps), [to] "+r"(to)                                                     \
    : [next] "rm"(next), [from] "r"(from), [offset] "r"(of.offset), [scale] "r"(of.scale), [panel] "r"(panel_bytes),   \
      [panel3] "r"(3 * panel_bytes), [row] "r"(row_bytes), [row3] "r"(3 * row_bytes), [row5] "r"(5 * row_bytes)        \
    : "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",         \
      "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22",      \
      "xmm23", "xmm24", "xmm25", "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31"

/* to[rows][4 panels][16], with `next` bytes from row to row, = from + the scales of row and output times the row's
 * offset and the products of a block of t; add: += . rows: 4 or 6, a constant wherever this is inlined. The registers
 * are named, because GCC 12 keeps most of the 24 sums in memory. */
WIDE_INLINE void bytes_sums(const struct bytes_block *t, float *to, int64_t next, const float *from,
                            struct bytes_row of, bool add, int rows) {
    const int64_t panel_bytes = t->panel_bytes, row_bytes = t->p->row_bytes;
    const unsigned char *w = t->w, *x = of.x;
    int64_t steps = I8_STEPS;
    if (rows == BYTE_ROWS && add)
        __asm__ volatile(BYTES_BLOCK(BYTES_6, BYTES_PUT_ADD) BYTES_OPERANDS);
    else if (rows == BYTE_ROWS)
        __asm__ volatile(BYTES_BLOCK(BYTES_6, BYTES_PUT) BYTES_OPERANDS);
    else if (add)
        __asm__ volatile(BYTES_BLOCK(BYTES_4, BYTES_PUT_ADD) BYTES_OPERANDS);
    else
        __asm__ volatile(BYTES_BLOCK(BYTES_4, BYTES_PUT) BYTES_OPERANDS);
}

/* The same of `rows` rows and `panels` panels, which are constants wherever this is inlined. */
WIDE_INLINE void bytes_few_sums(const struct bytes_block *t, float *to, int64_t next, const float *from,
                                struct bytes_row of, bool add, int rows, int panels) {
    const int64_t panel_bytes = t->panel_bytes, row_bytes = t->p->row_bytes;
    const unsigned char *w = t->w;
    __m512i sum[BYTE_ROWS / 2][BYTE_PANELS];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < panels; v++)
            sum[r][v] = _mm512_set1_epi32(four_at(of.offset + r * row_bytes));
    for (int s = 0; s < I8_STEPS; s++)
        for (int r = 0; r < rows; r++) {
            const __m512i four = _mm512_set1_epi32(four_at(of.x + r * row_bytes + 4 * s));
            for (int v = 0; v < panels; v++)
                wide_add(&sum[r][v], _mm512_loadu_si512(w + v * panel_bytes + s * I8_STEP), four);
        }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < panels; v++) {
            float *y = (float *)(void *)((char *)to + r * next) + v * I8_PANEL;
            const __m512 scale = _mm512_loadu_ps(w + v * panel_bytes + I8_STEPS * I8_STEP);
            const __m512 of_x = _mm512_castsi512_ps(_mm512_set1_epi32(four_at(of.scale + r * row_bytes)));
            const __m512 all = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r][v]), _mm512_mul_ps(scale, of_x),
                                               _mm512_load_ps(from + (r * BYTE_PANELS + v) * I8_PANEL));
            _mm512_storeu_ps(y, add ? _mm512_add_ps(_mm512_loadu_ps(y), all) : all);
        }
}

/* Each block of BYTE_ROWS rows prefetches its part of the next panels. Of two blocks of 4 rows both may do so. */
WIDE_INLINE void bytes_prefetch(const struct bytes_block *t, int64_t row) {
    const unsigned char *from = t->ahead + row / BYTE_ROWS * I8_STEPS * LINE;
    const int64_t lines = t->lines - row / BYTE_ROWS * I8_STEPS;
    if (lines >= I8_STEPS)
#pragma GCC unroll 16
        for (int line = 0; line < I8_STEPS; line++)
            __builtin_prefetch(from + line * LINE, 0, 2);
    else
        for (int64_t line = 0; line < lines; line++)
            __builtin_prefetch(from + line * LINE, 0, 2);
}

WIDE_INLINE void bytes_add(const struct bytes_block *t, int64_t row, int rows, int panels) {
    const struct matmul_i8_rows *p = t->p;
    const unsigned char *at = p->x + row * p->row_bytes;
    const struct bytes_row of = {at + (p->blocks + t->b) * I8_BLOCK,
                                 (const unsigned char *)(matmul_i8_offsets(p, at) + t->b),
                                 (const unsigned char *)(matmul_i8_scales(p, at) + t->b)};
    float *total = t->total + row * BYTE_PANELS * I8_PANEL, *to = total;
    int64_t next = BYTE_PANELS * I8_PANEL * (int64_t)sizeof *to;
    const float *from = t->b == 0 ? bytes_zero : total;
    const bool last = t->direct && t->b + 1 == p->blocks, sum = last && p->accumulate;
    bytes_prefetch(t, row);
    if (last) {
        to = mat_row(p->y, row) + t->panel * I8_PANEL;
        next = p->y.stride * (int64_t)sizeof *to;
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < panels; v++)
                __builtin_prefetch(mat_row(p->y, row + r) + (t->panel + v) * I8_PANEL, 1, 3);
    }
    if (panels == BYTE_PANELS && rows >= BYTE_ROWS_LESS)
        bytes_sums(t, to, next, from, of, sum, rows);
    else
        bytes_few_sums(t, to, next, from, of, sum, rows, panels);
}

/* A remainder of 2 rows would take as long as 4: twice 4 rows are then the last ones. */
WIDE_INLINE void bytes_rows_of(const struct bytes_block *t, int panels) {
    enum { FEW = BYTE_ROWS / 2 };
    const int64_t rows = t->p->y.rows, rest = rows % BYTE_ROWS;
    const int64_t even = rest == 2 ? rows - BYTE_ROWS - rest : rows - rest;
    int64_t row = 0;
    for (; row + BYTE_ROWS <= even && panels == BYTE_PANELS; row += BYTE_ROWS)
        bytes_add(t, row, BYTE_ROWS, panels);
    for (; row + BYTE_ROWS_LESS <= rows && panels == BYTE_PANELS; row += BYTE_ROWS_LESS)
        bytes_add(t, row, BYTE_ROWS_LESS, panels);
    for (; row + FEW <= rows; row += FEW)
        bytes_add(t, row, FEW, panels);
    for (; row < rows; row++)
        bytes_add(t, row, 1, panels);
}

WIDE void bytes_all(const struct bytes_block *t) {
    bytes_rows_of(t, BYTE_PANELS);
}

WIDE void bytes_one(const struct bytes_block *t) {
    bytes_rows_of(t, 1);
}

WIDE void bytes_panels(const struct matmul_i8_rows *p, int64_t begin, int64_t end) {
    _Alignas(LINE) float total[BYTE_ALL * BYTE_PANELS * I8_PANEL];
    const int64_t panel_bytes = p->blocks * I8_BLOCK_BYTES;
    /* Of one thread: the weights that follow these in memory are, in a model's layer, those of the next product. */
    const bool whole = begin == 0 && end * I8_PANEL >= p->y.cols;
    for (int64_t panel = begin, n; panel < end; panel += n) {
        n = end - panel >= BYTE_PANELS ? BYTE_PANELS : 1;
        struct bytes_block t = {.p = p, .total = total, .panel = panel, .panel_bytes = panel_bytes};
        t.direct = (panel + n) * I8_PANEL <= p->y.cols;
        if (panel + n < end || whole) t.lines = n * I8_BLOCK_BYTES / LINE;
        for (t.b = 0; t.b < p->blocks; t.b++) {
            t.w = p->w + panel * panel_bytes + t.b * I8_BLOCK_BYTES;
            t.ahead = p->w + (panel + n) * panel_bytes + t.b * t.lines * LINE;
            (n == 1 ? bytes_one : bytes_all)(&t);
        }
        for (int64_t row = 0; row < p->y.rows && !t.direct; row++)
            for (int64_t v = 0; v < n; v++)
                wide_put(p, row, panel + v, _mm512_load_ps(total + (row * BYTE_PANELS + v) * I8_PANEL));
    }
}

enum { ROUND_TOGETHER = 4, ROUND_VECTORS = I8_BLOCK / I8_PANEL };

/* Lane l of each 128 bits of the result is op over those 128 bits of v[l]. */
#define LANES_OF(op, v)                                                                                                \
    op(_mm512_unpacklo_epi64(op(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1])),                 \
                             op(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]))),                \
       _mm512_unpackhi_epi64(op(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1])),                 \
                             op(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]))))

/* Lane l = the largest number, or the sum, of v[l]. */
WIDE_INLINE __m128i largest_of(const __m512i v[ROUND_TOGETHER]) {
    const __m512i all = LANES_OF(_mm512_max_epi32, v);
    const __m256i half = _mm256_max_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    return _mm_max_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}
WIDE_INLINE __m128i sum_of(const __m512i v[ROUND_TOGETHER]) {
    const __m512i all = LANES_OF(_mm512_add_epi32, v);
    const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

/* As i8_scale, of four blocks. */
WIDE_INLINE __m128 bytes_scales(__m128 *scales, __m128i bits) {
    const __m128 largest = _mm_castsi128_ps(bits);
    const __mmask8 finite = _mm_cmplt_epi32_mask(bits, _mm_set1_epi32(0x7f800000));
    const __mmask8 some = _mm_mask_cmp_ps_mask(finite, largest, _mm_set1_ps(1e-30f), _CMP_GE_OQ);
    *scales = _mm_mask_mov_ps(_mm_set1_ps(NAN), finite, _mm_maskz_mul_ps(some, largest, _mm_set1_ps(1.0f / 127)));
    return _mm_maskz_div_ps(some, _mm_set1_ps(127), largest);
}

/* As round_block of matmul_i8.c, lower bytes only: the first n numbers of `blocks` blocks, a constant wherever this is
 * inlined. Their largest numbers, scales and sums are computed together. */
WIDE_INLINE void bytes_round_blocks(unsigned char *to, float *scale, int32_t *offset, const float *x, int64_t n,
                                    int blocks) {
    const __m512i sign = _mm512_set1_epi32(0x7fffffff), one = _mm512_set1_epi8(1);
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __mmask8 there = (__mmask8)((1 << blocks) - 1);
    __m512 part[ROUND_TOGETHER][ROUND_VECTORS];
    __m512i of[ROUND_TOGETHER] = {0};
    _Alignas(16) float factors[ROUND_TOGETHER];
    for (int b = 0; b < blocks; b++)
        for (int v = 0; v < ROUND_VECTORS; v++) {
            const int64_t at = b * I8_BLOCK + v * I8_PANEL, left = n - at;
            const __mmask16 lanes = left >= I8_PANEL ? (__mmask16)0xffff
                                    : left <= 0      ? 0
                                                     : (__mmask16)((1u << left) - 1);
            part[b][v] = _mm512_maskz_loadu_ps(lanes, x + at);
            of[b] = _mm512_max_epi32(of[b], _mm512_and_si512(_mm512_castps_si512(part[b][v]), sign));
        }
    __m128 scales;
    _mm_store_ps(factors, bytes_scales(&scales, largest_of(of)));
    _mm_mask_storeu_ps(scale, there, scales);
    for (int b = 0; b < blocks; b++) {
        const __m512 factor = _mm512_set1_ps(factors[b]);
        const __mmask16 some = _mm512_cmp_ps_mask(factor, _mm512_setzero_ps(), _CMP_GT_OQ);
        __m512i q[ROUND_VECTORS];
        for (int v = 0; v < ROUND_VECTORS; v++)
            q[v] = _mm512_maskz_cvtps_epi32(some, _mm512_mul_ps(part[b][v], factor));
        const __m512i bytes = _mm512_permutexvar_epi32(
            order, _mm512_packs_epi16(_mm512_packs_epi32(q[0], q[1]), _mm512_packs_epi32(q[2], q[3])));
        _mm512_storeu_si512(to + b * I8_BLOCK, bytes);
        of[b] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), one, bytes);
    }
    _mm_mask_storeu_epi32(offset, there, _mm_mullo_epi32(sum_of(of), _mm_set1_epi32(-128)));
}

WIDE void bytes_round(unsigned char *row, const float *x, int64_t in) {
    const int64_t blocks = (in + I8_BLOCK - 1) / I8_BLOCK;
    float *scale = (float *)(void *)(row + 2 * I8_BLOCK * blocks);
    int32_t *offset = (int32_t *)(void *)(scale + blocks);
    unsigned char *bytes = row + blocks * I8_BLOCK;
    int64_t b = 0;
    for (; b + ROUND_TOGETHER <= blocks; b += ROUND_TOGETHER)
        bytes_round_blocks(bytes + b * I8_BLOCK, scale + b, offset + b, x + b * I8_BLOCK, in - b * I8_BLOCK,
                           ROUND_TOGETHER);
    for (; b + 2 <= blocks; b += 2)
        bytes_round_blocks(bytes + b * I8_BLOCK, scale + b, offset + b, x + b * I8_BLOCK, in - b * I8_BLOCK, 2);
    if (b < blocks)
        bytes_round_blocks(bytes + b * I8_BLOCK, scale + b, offset + b, x + b * I8_BLOCK, in - b * I8_BLOCK, 1);
}

/* ---- AVX-VNNI and AVX2 ---- */

static void half_put(const struct matmul_i8_rows *p, int64_t row, int64_t panel, const float *total) {
    float *y = mat_row(p->y, row) + panel * I8_PANEL;
    const int64_t left = p->y.cols - panel * I8_PANEL, n = left < I8_PANEL ? left : I8_PANEL;
    for (int64_t o = 0; o < n; o++)
        y[o] = p->accumulate ? y[o] + total[o] : total[o];
}

#define PAIR static __attribute__((target("avx2,fma,avxvnni"), noinline))
#define PAIR_INLINE static inline __attribute__((target("avx2,fma,avxvnni"), always_inline))
enum { HALVES = 2, HALF_LANES = I8_PANEL / HALVES, PAIR_ROWS = 2 };

PAIR_INLINE void pair_add(__m256i *sum, __m256i w, __m256i x) {
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(*sum) : "x"(w), "x"(x));
}

/* `rows` is a constant wherever this is inlined. */
PAIR_INLINE void pair_block(const struct matmul_i8_rows *p, int64_t row, int64_t panel, int rows) {
    const int64_t blocks = p->blocks, plane = blocks * I8_BLOCK;
    const unsigned char *w = p->w + panel * blocks * I8_BLOCK_BYTES, *x = p->x + row * p->row_bytes;
    __m256 total[PAIR_ROWS][HALVES];
    for (int r = 0; r < rows; r++)
        for (int h = 0; h < HALVES; h++)
            total[r][h] = _mm256_setzero_ps();
    for (int64_t b = 0; b < blocks; b++, w += I8_BLOCK_BYTES, x += I8_BLOCK) {
        __m256i high[PAIR_ROWS][HALVES], low[PAIR_ROWS][HALVES];
        for (int r = 0; r < rows; r++)
            for (int h = 0; h < HALVES; h++) {
                high[r][h] = _mm256_setzero_si256();
                low[r][h] = _mm256_set1_epi32(matmul_i8_offsets(p, p->x + (row + r) * p->row_bytes)[b]);
            }
        for (int s = 0; s < I8_STEPS; s++) {
            const unsigned char *step = w + s * I8_STEP;
            __builtin_prefetch(step + AHEAD, 0, 3);
            for (int r = 0; r < rows; r++) {
                const unsigned char *of = x + r * p->row_bytes + 4 * s;
                const __m256i upper = _mm256_set1_epi32(four_at(of)), lower = _mm256_set1_epi32(four_at(of + plane));
                for (int h = 0; h < HALVES; h++) {
                    const __m256i weights = _mm256_loadu_si256((const __m256i *)(const void *)(step + h * LINE / 2));
                    pair_add(&high[r][h], weights, upper);
                    pair_add(&low[r][h], weights, lower);
                }
            }
        }
        const float *scales = (const float *)(const void *)(w + I8_STEPS * I8_STEP);
        for (int r = 0; r < rows; r++) {
            const __m256 of_x = _mm256_set1_ps(matmul_i8_scales(p, p->x + (row + r) * p->row_bytes)[b]);
            for (int h = 0; h < HALVES; h++) {
                const __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(high[r][h], 8), low[r][h]);
                const __m256 scale = _mm256_mul_ps(_mm256_loadu_ps(scales + h * HALF_LANES), of_x);
                total[r][h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), scale, total[r][h]);
            }
        }
    }
    for (int r = 0; r < rows; r++) {
        float out[I8_PANEL];
        for (int h = 0; h < HALVES; h++)
            _mm256_storeu_ps(out + h * HALF_LANES, total[r][h]);
        half_put(p, row + r, panel, out);
    }
}

PAIR void pair_panels(const struct matmul_i8_rows *p, int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; panel++) {
        int64_t row = 0;
        for (; row + PAIR_ROWS <= p->y.rows; row += PAIR_ROWS)
            pair_block(p, row, panel, PAIR_ROWS);
        if (row < p->y.rows) pair_block(p, row, panel, 1);
    }
}

#define OLD static __attribute__((target("avx2,fma"), noinline))
enum { QUARTERS = 4 };

/* A sum vector holds, for each of 4 outputs, those of inputs 0 and 1 and those of inputs 2 and 3, side by side. */
OLD void old_block(const struct matmul_i8_rows *p, int64_t row, int64_t panel) {
    const unsigned char *w = p->w + panel * p->blocks * I8_BLOCK_BYTES, *of = p->x + row * p->row_bytes, *x = of;
    __m256 total[HALVES] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int64_t b = 0; b < p->blocks; b++, w += I8_BLOCK_BYTES, x += 2 * I8_BLOCK) {
        __m256i sum[QUARTERS];
        for (int q = 0; q < QUARTERS; q++)
            sum[q] = _mm256_setzero_si256();
        for (int s = 0; s < I8_STEPS; s++) {
            const unsigned char *step = w + s * I8_STEP;
            const __m256i numbers = _mm256_set1_epi64x(eight_at(x + 8 * s));
            __builtin_prefetch(step + AHEAD, 0, 3);
            for (int q = 0; q < QUARTERS; q++) {
                const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(step + q * LINE / QUARTERS));
                sum[q] = _mm256_add_epi32(sum[q], _mm256_madd_epi16(_mm256_cvtepu8_epi16(bytes), numbers));
            }
        }
        const __m256 of_x = _mm256_set1_ps(matmul_i8_scales(p, of)[b]);
        const __m256i offset = _mm256_set1_epi32(matmul_i8_offsets(p, of)[b]);
        const float *scales = (const float *)(const void *)(w + I8_STEPS * I8_STEP);
        for (int h = 0; h < HALVES; h++) {
            const __m256i pairs = _mm256_hadd_epi32(sum[2 * h], sum[2 * h + 1]);
            const __m256i all = _mm256_add_epi32(_mm256_permute4x64_epi64(pairs, 0xd8), offset);
            const __m256 scale = _mm256_mul_ps(_mm256_loadu_ps(scales + h * HALF_LANES), of_x);
            total[h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(all), scale, total[h]);
        }
    }
    float out[I8_PANEL];
    for (int h = 0; h < HALVES; h++)
        _mm256_storeu_ps(out + h * HALF_LANES, total[h]);
    half_put(p, row, panel, out);
}

OLD void old_panels(const struct matmul_i8_rows *p, int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; panel++)
        for (int64_t row = 0; row < p->y.rows; row++)
            old_block(p, row, panel);
}

/* clang 14 does not know the name of AVX-VNNI in __builtin_cpu_supports. */
static bool has_avx_vnni(void) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}

struct matmul_i8_method matmul_i8_vectors(enum matmul_i8_path path) {
    const bool old = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
    if (path == I8_AVX512_VNNI && wide) return (struct matmul_i8_method){wide_panels, true, bytes_panels, bytes_round};
    if (path == I8_AVX_VNNI && old && has_avx_vnni())
        return (struct matmul_i8_method){.panels = pair_panels, .split = true};
    if (path == I8_AVX2 && old) return (struct matmul_i8_method){.panels = old_panels};
    return (struct matmul_i8_method){0};
}
