/* lexical_window.c -- see lexical_window_internal.h. */
#include "store/lexical/lexical_window_internal.h"
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* ---- by vectors of the target, and by AVX-512 if this processor has it ---- */

static void plain_select(struct lexical_selected *out, const int32_t *sums, int n, int32_t low, int32_t high) {
    int found = 0;
    for (int c = 0; c < n; c += LEXICAL_GROUP) { /* chunks that are selected are rare: most groups have none */
        int32_t most = sums[c];
        for (int i = 1; i < LEXICAL_GROUP; i++)
            most = sums[c + i] > most ? sums[c + i] : most;
        if (most < low) continue;
        for (int i = c; i < c + LEXICAL_GROUP; i++) {
            out->chunks[found] = (uint32_t)i;
            out->sums[found] = sums[i];
            found += sums[i] >= low && sums[i] < high;
        }
    }
    out->n = found;
}

static void plain_dense(struct lexical_selected *s, const uint8_t *codes, const int32_t *weight, int32_t least) {
    int kept = 0;
    for (int i = 0; i < s->n; i++) {
        const uint32_t c = s->chunks[i];
        const int32_t sum = s->sums[i] + weight[lexical_dense_code(codes, c)];
        s->chunks[kept] = c;
        s->sums[kept] = sum;
        kept += sum >= least;
    }
    s->n = kept;
}

/* Writes the weights of a block's postings. */
static void plain_weights(int32_t out[LEXICAL_BLOCK], const struct lexical_block *b, const int32_t *weight) {
    for (int i = 0; i < LEXICAL_BLOCK; i++)
        out[i] = weight[1];
    for (int half = 0; half < LEXICAL_BLOCK / 64; half++)
        for (uint64_t more = b->twice[half]; more; more &= more - 1) {
            const int i = __builtin_ctzll(more);
            out[half * 64 + i] = weight[2 + (int)(b->thrice[half] >> i & 1)];
        }
}

#if defined(__x86_64__)
#define WIDE __attribute__((target("avx512f,avx512bw,avx512vl,bmi2,popcnt"), noinline))

WIDE static void wide_weights(int32_t out[LEXICAL_BLOCK], const struct lexical_block *b, const int32_t *weight) {
    const __m512i once = _mm512_set1_epi32(weight[1]), twice = _mm512_set1_epi32(weight[2]);
    const __m512i thrice = _mm512_set1_epi32(weight[3]);
#pragma GCC unroll 8
    for (int i = 0; i < LEXICAL_BLOCK; i += 16) {
        const __m512i x = _mm512_mask_mov_epi32(once, (__mmask16)(b->twice[i / 64] >> i % 64), twice);
        _mm512_storeu_si512(out + i, _mm512_mask_mov_epi32(x, (__mmask16)(b->thrice[i / 64] >> i % 64), thrice));
    }
}

WIDE static void wide_select(struct lexical_selected *out, const int32_t *sums, int n, int32_t low, int32_t high) {
    const __m512i lows = _mm512_set1_epi32(low), highs = _mm512_set1_epi32(high);
    const __m512i position = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    int found = 0;
    for (int c = 0; c < n; c += LEXICAL_GROUP) {
        const __m512i x = _mm512_loadu_si512(sums + c);
        __mmask16 good = _mm512_cmpge_epi32_mask(x, lows);
        if (!good) continue;
        good = _mm512_mask_cmplt_epi32_mask(good, x, highs);
        const __m512i chunks = _mm512_add_epi32(position, _mm512_set1_epi32(c));
        _mm512_storeu_si512(out->chunks + found, _mm512_maskz_compress_epi32(good, chunks));
        _mm512_storeu_si512(out->sums + found, _mm512_maskz_compress_epi32(good, x));
        found += __builtin_popcount(good);
    }
    out->n = found;
}

/* The codes of 16 chunks are in one word of 32 bits. A word may end up to 3 bytes after the list, where the map still
 * has the segment's footer. */
WIDE static void wide_dense(struct lexical_selected *s, const uint8_t *codes, const int32_t *weight, int32_t least) {
    const __m512i weights = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)weight));
    const __m512i leasts = _mm512_set1_epi32(least), fifteen = _mm512_set1_epi32(15), three = _mm512_set1_epi32(3);
    int kept = 0;
    for (int i = 0; i < s->n; i += 16) {
        const __mmask16 there = (__mmask16)(s->n - i >= 16 ? 0xffff : (1 << (s->n - i)) - 1);
        const __m512i c = _mm512_maskz_loadu_epi32(there, s->chunks + i);
        const __m512i words =
            _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), there, _mm512_srli_epi32(c, 4), codes, 4);
        const __m512i shift = _mm512_slli_epi32(_mm512_and_si512(c, fifteen), 1);
        const __m512i code = _mm512_and_si512(_mm512_srlv_epi32(words, shift), three);
        const __m512i sum =
            _mm512_add_epi32(_mm512_maskz_loadu_epi32(there, s->sums + i), _mm512_permutexvar_epi32(code, weights));
        const __mmask16 good = _mm512_mask_cmpge_epi32_mask(there, sum, leasts);
        _mm512_storeu_si512(s->chunks + kept, _mm512_maskz_compress_epi32(good, c));
        _mm512_storeu_si512(s->sums + kept, _mm512_maskz_compress_epi32(good, sum));
        kept += __builtin_popcount(good);
    }
    s->n = kept;
}

#else
static void wide_weights(int32_t out[LEXICAL_BLOCK], const struct lexical_block *b, const int32_t *weight) {
    plain_weights(out, b, weight);
}
static void wide_select(struct lexical_selected *out, const int32_t *sums, int n, int32_t low, int32_t high) {
    plain_select(out, sums, n, low, high);
}
static void wide_dense(struct lexical_selected *s, const uint8_t *codes, const int32_t *weight, int32_t least) {
    plain_dense(s, codes, weight, least);
}
#endif

void lexical_block_weights(int32_t out[LEXICAL_BLOCK], const struct lexical_block *b, const int32_t *weight,
                           enum lexical_vectors vectors) {
    (vectors == LEXICAL_WIDE ? wide_weights : plain_weights)(out, b, weight);
}

/* ---- a sparse list, all chunks ---- */

void lexical_cursor_seek(struct lexical_cursor *c, const struct lexical_list *list, uint32_t chunk) {
    c->block.n = c->at = 0;
    c->next = lexical_list_seek(list, 0, chunk);
}

/* A query has a hundred lists and more, whose blocks are read in turns: the next one is loaded into the cache. */
static void prefetch_block(const struct lexical_list *list, uint32_t next) {
    enum { LINE = 64, LINES = 5 };
    if (list->kind != LEXICAL_BLOCKS || next >= list->blocks) return;
    const uint8_t *skip = list->skips + (size_t)next * LEXICAL_SKIP_BYTES;
    const uint64_t begin = little_endian_get(skip - 4, 4);
    const uint8_t *data = list->data + (begin < list->bytes ? begin : 0);
    for (int i = 0; i < LINES; i++)
        __builtin_prefetch(data + i * LINE);
    __builtin_prefetch(skip + LINE);
}

/* Decodes the cursor's next block. Returns false if it is damaged. */
static bool cursor_load(struct lexical_cursor *c, const struct lexical_weighted *w) {
    if (!lexical_list_block(&w->list, &c->block, c->next++)) return false;
    prefetch_block(&w->list, c->next);
    lexical_block_weights(c->weights, &c->block, w->weight, lexical_vectors_widest());
    c->at = 0;
    return true;
}

bool lexical_window_add(int32_t *sums, struct lexical_cursor *c, const struct lexical_weighted *w, uint32_t begin,
                        uint32_t end) {
    /* where the sum of chunk 0 would be, so that a chunk's number needs no subtraction */
    int32_t *const from_zero = (int32_t *)((uintptr_t)sums - (uintptr_t)begin * sizeof *sums);
    for (;;) {
        if (c->at == c->block.n) {
            if (c->next >= w->list.blocks) return true;
            if (!cursor_load(c, w)) return false;
            while (c->at < c->block.n && c->block.chunks[c->at] < begin)
                c->at++;
        }
        const uint32_t *chunks = c->block.chunks;
        const int32_t *weights = c->weights;
        const int n = c->block.n;
        int to = c->at;
        if (chunks[n - 1] < end) {
#pragma GCC unroll 8
            for (; to < n; to++)
                from_zero[chunks[to]] += weights[to];
        } else {
            for (; chunks[to] < end; to++)
                from_zero[chunks[to]] += weights[to];
        }
        c->at = to;
        if (to < n) return true;
    }
}

/* ---- a sparse list, selected chunks ---- */

/* Returns the first posting of the block whose chunk is not smaller, or the last one. */
static int find_in_block(const struct lexical_block *b, uint32_t chunk) {
    const uint32_t *at = b->chunks;
    for (int n = b->n; n > 1;) {
        const int half = n / 2;
        at += at[half - 1] < chunk ? half : 0;
        n -= half;
    }
    return (int)(at - b->chunks);
}

bool lexical_selected_add_sparse(struct lexical_selected *s, struct lexical_cursor *c, const struct lexical_weighted *w,
                                 uint32_t begin, int32_t least) {
    int kept = 0;
    for (int i = 0; i < s->n; i++) {
        const uint32_t chunk = begin + s->chunks[i];
        int32_t sum = s->sums[i];
        if (c->block.n == 0 || c->block.chunks[c->block.n - 1] < chunk) {
            c->next = lexical_list_next(&w->list, c->next, chunk);
            c->at = c->block.n = 0;
            if (c->next < w->list.blocks && !cursor_load(c, w)) return false;
        }
        if (c->block.n > 0) {
            const int at = find_in_block(&c->block, chunk);
            if (c->block.chunks[at] == chunk) sum += c->weights[at];
        }
        s->chunks[kept] = s->chunks[i];
        s->sums[kept] = sum;
        kept += sum >= least;
    }
    s->n = kept;
    return true;
}

/* ---- selection and dense lists ---- */

void lexical_window_select(struct lexical_selected *out, const int32_t *sums, int n, int32_t low, int32_t high,
                           enum lexical_vectors vectors) {
    (vectors == LEXICAL_WIDE ? wide_select : plain_select)(out, sums, n, low, high);
}

void lexical_selected_add_dense(struct lexical_selected *s, const struct lexical_weighted *w, uint32_t begin,
                                int32_t least, enum lexical_vectors vectors) {
    (vectors == LEXICAL_WIDE ? wide_dense : plain_dense)(s, w->list.data + begin / 4, w->weight, least);
}
