/* lexical_unpack.c -- the chunks of a posting block: see lexical_format_internal.h. */
#include "store/lexical/lexical_format_internal.h"
#include <assert.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* ---- steps of fixed width ---- */

typedef uint32_t lanes __attribute__((vector_size(16)));
enum { LANES = 4, LANE_STEPS = LEXICAL_BLOCK / LANES };

static inline lanes load_lanes(const uint8_t *p) {
    lanes x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* Inlined with a constant width, so that every shift is one instruction. */
static inline __attribute__((always_inline)) void unpack_lanes(uint32_t *out, const uint8_t *in, int width) {
    lanes mask = (lanes){0} + (uint32_t)(((uint64_t)1 << width) - 1);
#pragma GCC unroll 32
    for (int j = 0; j < LANE_STEPS; j++) {
        int word = j * width / 32, shift = j * width % 32;
        lanes x = load_lanes(in + 16 * word) >> shift;
        if (shift + width > 32) x |= load_lanes(in + 16 * (word + 1)) << (32 - shift);
        x &= mask;
        memcpy(out + LANES * j, &x, sizeof x);
    }
}

static void unpack_whole(uint32_t out[LEXICAL_BLOCK], const uint8_t *in, int width) {
    switch (width) {
#define WIDTH(w)                                                                                                       \
    case w:                                                                                                            \
        unpack_lanes(out, in, w);                                                                                      \
        return
        WIDTH(1);
        WIDTH(2);
        WIDTH(3);
        WIDTH(4);
        WIDTH(5);
        WIDTH(6);
        WIDTH(7);
        WIDTH(8);
        WIDTH(9);
        WIDTH(10);
        WIDTH(11);
        WIDTH(12);
        WIDTH(13);
        WIDTH(14);
        WIDTH(15);
        WIDTH(16);
        WIDTH(17);
        WIDTH(18);
        WIDTH(19);
        WIDTH(20);
        WIDTH(21);
        WIDTH(22);
        WIDTH(23);
        WIDTH(24);
#undef WIDTH
    default:
        memset(out, 0, LEXICAL_BLOCK * sizeof *out);
    }
}

static void unpack_part(uint32_t *out, const uint8_t *in, int n, int width) {
    uint8_t padded[LEXICAL_BLOCK_BYTES + 8] = {0};
    memcpy(padded, in, lexical_packed_bytes(n, width));
    uint32_t mask = (uint32_t)(((uint64_t)1 << width) - 1);
    for (int i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, padded + i * width / 8, sizeof word); /* a width of 24 and a shift of 7 fit */
        out[i] = word >> (i * width % 8) & mask;
    }
}

/* ---- sums of steps ---- */

/* Turns differences (each less one) into chunk numbers, from `base`. It sums within four lanes, then adds the last
 * number before them, so that only one addition in four depends on the previous one. */
static void sum_steps(uint32_t *steps, int n, uint32_t base) {
    const lanes zero = {0};
    lanes before = zero + (base - 1);
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        lanes x;
        memcpy(&x, steps + i, sizeof x);
        x += 1;
        x += __builtin_shufflevector(zero, x, 0, 4, 5, 6);
        x += __builtin_shufflevector(zero, x, 0, 1, 4, 5);
        x += before;
        before = __builtin_shufflevector(x, x, 3, 3, 3, 3);
        memcpy(steps + i, &x, sizeof x);
    }
    for (uint32_t at = before[0]; i < n; i++)
        at = steps[i] += at + 1;
}

static void narrow_unpack(uint32_t *out, const uint8_t *in, int n, int width, uint32_t base) {
    if (n == LEXICAL_BLOCK)
        unpack_whole(out, in, width);
    else
        unpack_part(out, in, n, width);
    sum_steps(out, n, base);
}

/* ---- AVX-512 ---- */

#if defined(__x86_64__)
#define WIDE __attribute__((target("avx512f,avx512bw,avx512vl,bmi2"), noinline))

enum { WIDE_LANES = 16, WIDE_STEPS = WIDE_LANES / LANES };
_Static_assert((int)LEXICAL_PAD >= 3 * 16 && (int)LEXICAL_PAD <= (int)LEXICAL_FOOTER_BYTES, "bytes after a block");

/* 16 differences at a time: the four steps j .. j + 3 of all lanes. Of each lane they are in at most four words, so one
 * load reads them all. (A masked load is slow after the stores of sums.) Two permutations select each difference's word
 * and the next one. */
WIDE static void wide_unpack(uint32_t out[LEXICAL_BLOCK], const uint8_t *in, int width, uint32_t base) {
    const __m512i position = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i lane = _mm512_and_si512(position, _mm512_set1_epi32(LANES - 1));
    const __m512i bits = _mm512_mullo_epi32(_mm512_srli_epi32(position, 2), _mm512_set1_epi32(width));
    const __m512i mask = _mm512_set1_epi32((1 << width) - 1), words = _mm512_set1_epi32(32);
    const __m512i one_before = _mm512_setr_epi32(0, 0, 0, 0, 3, 3, 3, 3, 7, 7, 7, 7, 11, 11, 11, 11);
    const __m512i two_before = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 3, 3, 3, 3, 7, 7, 7, 7);
    const __m512i last = _mm512_set1_epi32(WIDE_LANES - 1);
    __m512i before = _mm512_add_epi32(position, _mm512_set1_epi32((int)base));
#pragma GCC unroll 8
    for (unsigned j = 0; j < LANE_STEPS; j += WIDE_STEPS) { /* without branches: widths change from list to list */
        const unsigned at = j * (unsigned)width, word = at / 32;
        const __m512i all = _mm512_loadu_si512(in + 16 * word);
        const __m512i bit = _mm512_add_epi32(bits, _mm512_set1_epi32((int)(at % 32)));
        const __m512i from = _mm512_or_si512(_mm512_slli_epi32(_mm512_srli_epi32(bit, 5), 2), lane);
        const __m512i shift = _mm512_and_si512(bit, _mm512_set1_epi32(31));
        const __m512i low = _mm512_permutexvar_epi32(from, all);
        const __m512i high = _mm512_permutexvar_epi32(_mm512_add_epi32(from, _mm512_set1_epi32(LANES)), all);
        __m512i x =
            _mm512_or_si512(_mm512_srlv_epi32(low, shift), _mm512_sllv_epi32(high, _mm512_sub_epi32(words, shift)));
        x = _mm512_and_si512(x, mask);
        x = _mm512_add_epi32(x, _mm512_bslli_epi128(x, 4));
        x = _mm512_add_epi32(x, _mm512_bslli_epi128(x, 8));
        x = _mm512_add_epi32(x, _mm512_maskz_permutexvar_epi32(0xfff0, one_before, x));
        x = _mm512_add_epi32(x, _mm512_maskz_permutexvar_epi32(0xff00, two_before, x));
        _mm512_storeu_si512(out + LANES * j, _mm512_add_epi32(x, before));
        before = _mm512_add_epi32(before, _mm512_permutexvar_epi32(last, x));
        before = _mm512_add_epi32(before, _mm512_set1_epi32(WIDE_LANES));
    }
}

enum lexical_vectors lexical_vectors_widest(void) {
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("bmi2");
    return wide ? LEXICAL_WIDE : LEXICAL_NARROW;
}
#else
static void wide_unpack(uint32_t out[LEXICAL_BLOCK], const uint8_t *in, int width, uint32_t base) {
    narrow_unpack(out, in, LEXICAL_BLOCK, width, base);
}
enum lexical_vectors lexical_vectors_widest(void) {
    return LEXICAL_NARROW;
}
#endif

void lexical_unpack(uint32_t out[LEXICAL_BLOCK], const uint8_t *in, int n, int width, uint32_t base,
                    enum lexical_vectors vectors) {
    if (n == LEXICAL_BLOCK && vectors == LEXICAL_WIDE)
        wide_unpack(out, in, width, base);
    else
        narrow_unpack(out, in, n, width, base);
}
