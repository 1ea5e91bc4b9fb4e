/* matmul_vnni.c -- the loops of 8-bit products on vectors of x86 (matmul_i8.h has the layout).
 *
 *   AVX-512 VNNI  one instruction adds to 16 sums the products of 4 inputs each. x is in two parts, its upper and lower
 *                 bytes, with a sum each: two instructions for 64 weights. One row: a panel at a time, w is prefetched
 *                 8 KiB in advance. More: 4 rows x 2 panels x 2 parts of sums in registers.
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
    if (path == I8_AVX512_VNNI && wide) return (struct matmul_i8_method){.panels = wide_panels, .split = true};
    if (path == I8_AVX_VNNI && old && has_avx_vnni())
        return (struct matmul_i8_method){.panels = pair_panels, .split = true};
    if (path == I8_AVX2 && old) return (struct matmul_i8_method){.panels = old_panels};
    return (struct matmul_i8_method){0};
}
