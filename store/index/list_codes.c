/* list_codes.c -- see list_codes_internal.h.
 *
 * With AVX-512 VNNI one instruction multiplies 64 codes by 64 weights of 8 bits, so a weight is represented by two: 128
 * * high + low. Four rows at a time share the loaded weights. With AVX2, 16 codes at a time are widened to 16 bits and
 * multiplied by whole weights. Both are compiled under a target attribute, and called only if the processor has the
 * instructions. A single query is bound by memory, with 2 instructions for 64 bytes. A list is some pages in the middle
 * of a file, so the processor's own prefetching stops at each page; the loop prefetches 4 KiB in advance: 31 instead of
 * 25 GB/s. */
#include "store/index/list_codes_internal.h"
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { WEIGHT_MOST = 16256 /* 128 * 127: high fits in 8 bits */, AHEAD = 4096, LINE = 64 /* bytes */ };
#define SUM_MOST 2147000000.0

void code_query_make(struct code_query *out, void *memory, const float *query, struct code_range range, int dim) {
    size_t padded = code_padded(dim);
    double base = 0, most = 0, sum = 0;
    *out = (struct code_query){
        .weight = memory, .high = (int8_t *)memory + 2 * padded, .low = (int8_t *)memory + 3 * padded, .unit = 1};
    memset(memory, 0, code_query_bytes(dim));
    for (int i = 0; i < dim; i++) {
        double weight = fabs((double)query[i] * (double)range.step[i]);
        base += (double)query[i] * (double)range.low[i];
        most = weight > most ? weight : most;
        sum += weight;
    }
    if (!isfinite(base) || !isfinite(sum)) return;
    out->base = base;
    if (most > 0) out->unit = most / WEIGHT_MOST;
    /* rounding adds at most half a unit to each weight */
    double allowed = SUM_MOST / 255 - dim;
    if (sum / out->unit > allowed) out->unit = sum / allowed;
    for (int i = 0; i < dim; i++) {
        int weight = (int)lrint((double)query[i] * (double)range.step[i] / out->unit);
        out->weight[i] = (int16_t)weight;
        out->high[i] = (int8_t)((weight + 64) >> 7);
        out->low[i] = (int8_t)(weight - 128 * out->high[i]);
    }
}

static void sums_plain(int32_t *out, const uint8_t *codes, int64_t n, const struct code_query *query, int dim) {
    for (int64_t r = 0; r < n; r++, codes += dim) {
        int32_t sum = 0;
        for (int i = 0; i < dim; i++)
            sum += query->weight[i] * codes[i];
        out[r] = sum;
    }
}

#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2")))
#define VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
#define VNNI_INLINE static inline __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni"), always_inline))

/* ---- AVX2 ---- */

static inline __attribute__((target("avx2"), always_inline)) int32_t sum_of_8(__m256i x) {
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}

AVX2 static void sums_avx2(int32_t *out, const uint8_t *codes, int64_t n, const struct code_query *query, int dim) {
    const int whole = dim / 16 * 16;
    for (int64_t r = 0; r < n; r++, codes += dim) {
        __m256i acc = _mm256_setzero_si256();
        for (int i = 0; i < dim && query->alone; i += LINE)
            __builtin_prefetch(codes + AHEAD + i);
        for (int i = 0; i < whole; i += 16)
            acc = _mm256_add_epi32(
                acc,
                _mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(codes + i))),
                                  _mm256_load_si256((const __m256i *)(const void *)(query->weight + i))));
        int32_t sum = sum_of_8(acc);
        for (int i = whole; i < dim; i++)
            sum += query->weight[i] * codes[i];
        out[r] = sum;
    }
}

/* ---- AVX-512 VNNI ---- */

/* 128 * high + low. A lane may overflow, but the sum of all lanes cannot. */
VNNI_INLINE __m256i lanes_of(__m512i high, __m512i low) {
    __m512i both = _mm512_add_epi32(_mm512_slli_epi32(high, 7), low);
    return _mm256_add_epi32(_mm512_castsi512_si256(both), _mm512_extracti64x4_epi64(both, 1));
}

VNNI_INLINE void add_codes(__m512i *high, __m512i *low, __m512i codes, __m512i w_high, __m512i w_low) {
    *high = _mm512_dpbusd_epi32(*high, codes, w_high);
    *low = _mm512_dpbusd_epi32(*low, codes, w_low);
}

/* rows: 1 or 4; ahead: prefetches later rows */
VNNI_INLINE void rows_vnni(int32_t *out, const uint8_t *codes, const struct code_query *query, int dim, int rows,
                           bool ahead) {
    __m512i high[4], low[4];
    int i = 0;
    for (int r = 0; r < rows; r++)
        high[r] = low[r] = _mm512_setzero_si512();
    for (; i + 64 <= dim; i += 64) {
        __m512i w_high = _mm512_load_si512(query->high + i), w_low = _mm512_load_si512(query->low + i);
        for (int r = 0; r < rows; r++) {
            const uint8_t *at = codes + (size_t)r * (size_t)dim + i;
            if (ahead) __builtin_prefetch(at + AHEAD);
            add_codes(&high[r], &low[r], _mm512_loadu_si512(at), w_high, w_low);
        }
    }
    if (i < dim) {
        __mmask64 rest = (UINT64_C(1) << (dim - i)) - 1;
        __m512i w_high = _mm512_load_si512(query->high + i), w_low = _mm512_load_si512(query->low + i);
        for (int r = 0; r < rows; r++)
            add_codes(&high[r], &low[r], _mm512_maskz_loadu_epi8(rest, codes + (size_t)r * (size_t)dim + i), w_high,
                      w_low);
    }
    if (rows == 1) {
        out[0] = sum_of_8(lanes_of(high[0], low[0]));
        return;
    }
    __m256i ab = _mm256_hadd_epi32(lanes_of(high[0], low[0]), lanes_of(high[1], low[1]));
    __m256i cd = _mm256_hadd_epi32(lanes_of(high[2], low[2]), lanes_of(high[3], low[3]));
    __m256i abcd = _mm256_hadd_epi32(ab, cd);
    _mm_storeu_si128((__m128i *)(void *)out,
                     _mm_add_epi32(_mm256_castsi256_si128(abcd), _mm256_extracti128_si256(abcd, 1)));
}

VNNI static void sums_vnni(int32_t *out, const uint8_t *codes, int64_t n, const struct code_query *query, int dim) {
    int64_t r = 0;
    for (; r + 4 <= n && query->alone; r += 4)
        rows_vnni(out + r, codes + (size_t)r * (size_t)dim, query, dim, 4, true);
    for (; r + 4 <= n; r += 4)
        rows_vnni(out + r, codes + (size_t)r * (size_t)dim, query, dim, 4, false);
    for (; r < n; r++)
        rows_vnni(out + r, codes + (size_t)r * (size_t)dim, query, dim, 1, false);
}
#endif

code_sums *code_sums_at(int level) {
#if defined(__x86_64__)
    if (level == 1) return __builtin_cpu_supports("avx2") ? sums_avx2 : NULL;
    if (level == 2)
        return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                       __builtin_cpu_supports("avx512vnni")
                   ? sums_vnni
                   : NULL;
#endif
    return level == 0 ? sums_plain : NULL;
}

code_sums *code_sums_best(void) {
    int level = CODE_SUMS_LEVELS - 1;
    while (!code_sums_at(level))
        level--;
    return code_sums_at(level);
}
