/* tokenizer_bpe.c -- byte-pair merges of one word, and a cache of words.
 *
 * A merge joins two adjacent symbols. The merge of the lowest rank is applied first, and of equal ranks the leftmost,
 * until none applies. For short words, each round searches all pairs for the lowest rank, with AVX-512 in a register.
 * Long words (whole paragraphs, if nothing splits the text) first apply frequent merges to all occurrences
 * at once, and then use a heap of candidates over a linked list, O(n log n).
 *
 * The cache has three parts: short words, of at most 15 bytes with at most 4 ids, two in each cache line; longer ones,
 * of at most 24 bytes with at most 8 ids; and words of up to 96 bytes, most of them runs of one character in technical
 * text. English text has 99.7 % short words, and 98 to 99.5 % of all words are found. The cache is larger than a
 * processor's second cache, so the lines of many words are requested at once. */
#include "base/memory.h"
#include "data/tokenizer/tokenizer_internal.h"
#include "data/tokenizer/utf8.h"
#include <stdio.h>
#include <string.h>
#include <xxhash.h>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#define PAIR_NONE UINT32_MAX
enum { SHORT_MAX = 96, SHORT_SETS_BITS = 17, SETS_BITS = 14, CHARS_DIRECT = 0x10000, FREQUENT = 32 };

enum { WORD_BYTES_MAX = 24, WORD_IDS_MAX = 8, SHORT_WORD_BYTES = 15, SHORT_WORD_IDS = 4 };
struct word { /* pairs; the first of a pair is the newer one */
    uint64_t text[WORD_BYTES_MAX / 8];
    int32_t ids[WORD_IDS_MAX];
    uint8_t bytes, n_ids;
};
/* Longer words, mostly runs of one character. */
enum { RUN_BYTES_MAX = 96, RUN_IDS_MAX = 39, RUNS_BITS = 9 };
struct run {
    int32_t ids[RUN_IDS_MAX];
    char text[RUN_BYTES_MAX];
    uint8_t bytes, n_ids;
};
/* Pairs, each in one cache line. The last byte of the text is its length, and in the cache also its number of ids, from
 * bit 4 on. If these are more than fit, they are found among the long words, or merged again. */
struct short_word {
    uint64_t text[2];
    int32_t ids[SHORT_WORD_IDS];
};
enum { LENGTH_BIT = 56, IDS_BIT = LENGTH_BIT + 4 };
#define NOINLINE __attribute__((noinline))
#define TEXT_MASK ((UINT64_C(1) << IDS_BIT) - 1)

struct symbol {
    int32_t id;
    int32_t previous, next;
}; /* -1: none; id < 0: the symbol was merged into another */

static const struct merge *find_merge(const struct tokenizer *t, int32_t left, int32_t right) {
    uint64_t pair = bpe_pair(left, right);
    for (size_t i = bpe_slot(pair);; i++) {
        const struct merge *m = &t->merges[i & t->merge_mask];
        if (m->rank < 0) return NULL;
        if (m->pair == pair) return m;
    }
}

/* Returns the token of the model's vocabulary with this text. Added tokens are not in that vocabulary. */
static int32_t find_in_model(const struct tokenizer *t, const char *text, size_t bytes) {
    int32_t id = tokenizer_find(t, text, bytes);
    return id >= 0 && t->tokens[id].flags & TOKEN_OF_MODEL ? id : -1;
}

/* Makes the tables of the ids of bytes and characters, and determines whether a text without a pre-tokeniser may be
 * divided before U+2581. */
static enum status prepare_bytes(struct tokenizer *t) {
    for (int b = 0; b < 256; b++) {
        char spelling[8];
        int length = t->byte_level ? utf8_encode(spelling, byte_level_code[b])
                                   : snprintf(spelling, sizeof spelling, "<0x%02X>", (unsigned)b);
        t->byte_id[b] = t->byte_level || t->byte_fallback ? find_in_model(t, spelling, (size_t)length) : -1;
        if (t->byte_level && t->byte_fallback && t->byte_id[b] < 0)
            return tokenizer_refuse(t, "model", "byte_fallback of a byte-level alphabet with gaps");
    }
    return STATUS_OK;
}

static bool starts_with_mark(const struct tokenizer *t, int32_t id) {
    const struct token *token = &t->tokens[id];
    return token->bytes >= 3 && memcmp(t->spellings.data + token->at, "\xE2\x96\x81", 3) == 0;
}

static bool ends_with_mark(const struct tokenizer *t, int32_t id) {
    const struct token *token = &t->tokens[id];
    return token->bytes >= 3 && memcmp(t->spellings.data + token->at + token->bytes - 3, "\xE2\x96\x81", 3) == 0;
}

enum status bpe_prepare(struct tokenizer *t) {
    TRY(prepare_bytes(t));
    if (t->byte_level) return STATUS_OK;
    TRY(memory_allocate(&t->char_id, CHARS_DIRECT));
    for (uint32_t code = 0; code < CHARS_DIRECT; code++) {
        char spelling[4];
        t->char_id[code] = find_in_model(t, spelling, (size_t)utf8_encode(spelling, code));
    }
    t->cut_at_space = !t->ignore_merges && t->char_id[0x2581] >= 0;
    for (size_t i = 0; i <= t->merge_mask && t->cut_at_space; i++) {
        if (t->merges[i].rank < 0) continue;
        int32_t left = (int32_t)(t->merges[i].pair >> 32), right = (int32_t)(uint32_t)t->merges[i].pair;
        if (!ends_with_mark(t, left) && starts_with_mark(t, right)) t->cut_at_space = false;
    }
    return STATUS_OK;
}

enum status bpe_words_create(struct tokenizer_scratch *s) {
    if (!s->short_words) {
        const size_t n = ((size_t)2 << SHORT_SETS_BITS) + 2;
        TRY(memory_allocate_aligned(&s->short_words, n));
        memset(s->short_words, 0, n * sizeof *s->short_words);
    }
    if (!s->runs) TRY(memory_allocate_zero(&s->runs, (size_t)1 << RUNS_BITS));
    if (!s->words) TRY(memory_allocate_zero(&s->words, (size_t)2 << SETS_BITS));
    return STATUS_OK;
}

static enum status push_ids(struct tokenizer_scratch *s, const int32_t *ids, size_t n) {
    if (s->n_ids + n > s->ids_capacity) TRY(memory_grow(&s->ids, &s->ids_capacity, s->n_ids + n));
    memcpy(s->ids + s->n_ids, ids, n * sizeof *ids);
    s->n_ids += n;
    return STATUS_OK;
}

/* ---- the first symbols of a word --------------------------------------------------------------------------- */

static int32_t character_id(const struct tokenizer *t, uint32_t code, const char *text, int length) {
    return code < CHARS_DIRECT ? t->char_id[code] : find_in_model(t, text, (size_t)length);
}

/* Appends the fallback tokens of a character's bytes. Returns false if one of the bytes has none. */
static bool fallback_ids(const struct tokenizer *t, int32_t ids[4], const char *text, int length) {
    for (int i = 0; i < length; i++) {
        ids[i] = t->byte_id[(uint8_t)text[i]];
        if (ids[i] < 0) return false;
    }
    return t->byte_fallback;
}

/* Appends at most one symbol per byte. As in the reference, a byte or character without id and fallback is dropped,
 * runs of `unknown` are fused if the file requires it, and a pending `unknown` is appended after fallback bytes. */
static size_t first_symbols(const struct tokenizer *t, int32_t *ids, const char *word, size_t bytes) {
    size_t n = 0;
    if (t->byte_level && t->unk_id < 0) {
        for (size_t i = 0; i < bytes; i++) {
            int32_t id = t->byte_id[(uint8_t)word[i]];
            if (id >= 0) ids[n++] = id;
        }
        return n;
    }
    bool pending = false;
    int length;
    for (size_t i = 0; i < bytes; i += (size_t)length) {
        int32_t id, fallback[4];
        if (t->byte_level) {
            length = 1;
            id = t->byte_id[(uint8_t)word[i]];
        } else {
            uint32_t code = utf8_decode(word + i, &length);
            id = character_id(t, code, word + i, length);
        }
        if (id >= 0) {
            if (pending) ids[n++] = t->unk_id;
            pending = false;
            ids[n++] = id;
        } else if (!t->byte_level && fallback_ids(t, fallback, word + i, length)) {
            memcpy(ids + n, fallback, (size_t)length * sizeof *ids);
            n += (size_t)length;
        } else if (t->unk_id >= 0) {
            if (pending && !t->fuse_unk) ids[n++] = t->unk_id;
            pending = true;
        }
    }
    if (pending) ids[n++] = t->unk_id;
    return n;
}

/* ---- merging ------------------------------------------------------------------------------------------------ */

#if defined(__AVX512F__)
enum { REGISTER_MAX = 16, POSITION_BITS = 4 };

/* The key of the pair (left, right) at a position, or all bits if it has no merge. A branch here would often be
 * predicted wrongly. */
static inline int pair_key(const struct pair_rows *p, int32_t left, uint32_t row, int32_t right, uint32_t position) {
    const struct pair_slot slot = p->slots[row + (uint32_t)right];
    __builtin_prefetch(&p->made[slot.rank]);
    return (int)((slot.rank << POSITION_BITS | position) | -(uint32_t)(slot.left != left));
}

/* The least of 16 numbers. */
static inline uint32_t least_of(__m512i x) {
    const __m256i a = _mm256_min_epu32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
    __m128i b = _mm_min_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    b = _mm_min_epu32(b, _mm_shuffle_epi32(b, _MM_SHUFFLE(1, 0, 3, 2)));
    b = _mm_min_epu32(b, _mm_shuffle_epi32(b, _MM_SHUFFLE(2, 3, 0, 1)));
    return (uint32_t)_mm_cvtsi128_si32(b);
}

/* Merges at most 16 symbols. The keys of the pairs, rank << 4 | position, stay in a register: the least is the leftmost
 * pair of the lowest rank. A symbol that was merged into the one before it keeps its position, and has no bit in
 * `alive`. Before the first symbol and after the last one is an id that is in no pair. */
static size_t merge_in_register(const struct tokenizer *t, int32_t *ids, size_t n) {
    const struct pair_rows *p = &t->pairs;
    const int32_t outside = (int32_t)t->n_tokens;
    int32_t id[REGISTER_MAX + 2]; /* id[i + 1], row[i + 1]: of the symbol at position i */
    uint32_t row[REGISTER_MAX + 2];
    const __mmask16 symbols = (__mmask16)((1u << n) - 1), inner = symbols >> 1;
    const __m512i none = _mm512_set1_epi32(-1);
    __m512i kept = _mm512_maskz_loadu_epi32(symbols, ids);
    const __m512i rights = _mm512_maskz_loadu_epi32(inner, ids + 1);
    const __m512i rows = _mm512_mask_i32gather_epi32(none, symbols, kept, p->rows, 4);
    const __m512i at = _mm512_add_epi32(rows, rights);
    const __m512i lefts = _mm512_mask_i32gather_epi32(none, inner, at, &p->slots->left, 8);
    const __mmask16 found = _mm512_mask_cmpeq_epi32_mask(inner, lefts, kept);
    const __m512i ranks = _mm512_mask_i32gather_epi32(none, found, at, &p->slots->rank, 8);
    const __m512i positions = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i keys = _mm512_mask_or_epi32(none, found, _mm512_slli_epi32(ranks, POSITION_BITS), positions);
    id[0] = id[REGISTER_MAX + 1] = outside;
    row[0] = 0;
    _mm512_storeu_si512(id + 1, kept);
    _mm512_storeu_si512(row + 1, rows);
    uint32_t alive = symbols;
    for (uint32_t key; (key = least_of(keys)) != PAIR_NONE;) {
        const struct made made = p->made[key >> POSITION_BITS];
        const uint32_t i = key & (REGISTER_MAX - 1), bit = 1u << i;
        const uint32_t after = alive & (~bit ^ (bit - 1)), gone = after & -after, rest = after ^ gone;
        const uint32_t before = alive & (bit - 1);
        const uint32_t next = (uint32_t)__builtin_ctz(rest | 1u << REGISTER_MAX) + 1; /* plus 1, as in id */
        const uint32_t previous = 31 - (uint32_t)__builtin_clz(before << 1 | 1);
        alive ^= gone;
        id[i + 1] = made.id;
        row[i + 1] = made.row;
        const int right = pair_key(p, made.id, made.row, id[next], i);
        const int left = pair_key(p, id[previous], row[previous], made.id, previous - 1);
        kept = _mm512_mask_set1_epi32(kept, (__mmask16)bit, made.id);
        keys = _mm512_mask_set1_epi32(keys, (__mmask16)gone, -1);
        keys = _mm512_mask_set1_epi32(keys, (__mmask16)bit, right);
        keys = _mm512_mask_set1_epi32(keys, (__mmask16)((1u << previous) >> 1), left);
    }
    const size_t left = (size_t)__builtin_popcount(alive);
    _mm512_mask_storeu_epi32(ids, (__mmask16)((1u << left) - 1), _mm512_maskz_compress_epi32((__mmask16)alive, kept));
    return left;
}
#endif

/* The rank of the pair, or PAIR_NONE. */
static inline uint32_t pair_rank(const struct pair_rows *p, int32_t left, int32_t right) {
    const struct pair_slot slot = p->slots[p->rows[left] + (uint32_t)right];
    return slot.left == left ? slot.rank : PAIR_NONE;
}

static size_t merge_short(const struct tokenizer *t, int32_t *ids, size_t n) {
#if defined(__AVX512F__)
    if (n <= REGISTER_MAX) return merge_in_register(t, ids, n);
#endif
    const struct pair_rows *p = &t->pairs;
    uint32_t rank[SHORT_MAX]; /* of the pair (i, i + 1) */
    for (size_t i = 0; i + 1 < n; i++)
        rank[i] = pair_rank(p, ids[i], ids[i + 1]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == PAIR_NONE) break;
        ids[best] = p->made[rank[best]].id;
        n--;
        memmove(ids + best + 1, ids + best + 2, (n - best - 1) * sizeof *ids);
        if (n > best + 1) {
            memmove(rank + best, rank + best + 1, (n - best - 1) * sizeof *rank);
            rank[best] = pair_rank(p, ids[best], ids[best + 1]);
        }
        if (best > 0) rank[best - 1] = pair_rank(p, ids[best - 1], ids[best]);
    }
    return n;
}

/* Entries are rank << 32 | position, so the smallest has the lowest rank, and of equal ranks the leftmost position. */
static enum status heap_push(struct tokenizer_scratch *s, uint64_t entry) {
    if (s->heap_count == s->heap_capacity) TRY(memory_grow(&s->heap, &s->heap_capacity, s->heap_count + 1));
    size_t i = s->heap_count++;
    for (; i > 0 && s->heap[(i - 1) / 2] > entry; i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = entry;
    return STATUS_OK;
}

static uint64_t heap_pop(struct tokenizer_scratch *s) {
    uint64_t top = s->heap[0], entry = s->heap[--s->heap_count];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= s->heap_count) break;
        if (child + 1 < s->heap_count && s->heap[child + 1] < s->heap[child]) child++;
        if (s->heap[child] >= entry) break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = entry;
    return top;
}

static enum status offer_pair(const struct tokenizer *t, struct tokenizer_scratch *s, int32_t left) {
    if (left < 0 || s->symbols[left].next < 0) return STATUS_OK;
    const struct merge *m = find_merge(t, s->symbols[left].id, s->symbols[s->symbols[left].next].id);
    return m ? heap_push(s, (uint64_t)(uint32_t)m->rank << 32 | (uint32_t)left) : STATUS_OK;
}

/* Applies the merge of lowest rank to all its occurrences in place, if there are many: each such merge halves a long
 * run of spaces or dashes, which would otherwise need one heap entry per byte. *n is the new length; *done: no merge is
 * left. Returns false if the heap must be used, because the merge occurs rarely or made a pair of lower rank, which
 * must be merged first. */
static bool merge_frequent(const struct tokenizer *t, int32_t *ids, size_t *n, bool *done) {
    const struct merge *best = NULL;
    size_t occurrences = 0, kept = 0;
    for (size_t i = 0; i + 1 < *n; i++) {
        const struct merge *m = find_merge(t, ids[i], ids[i + 1]);
        if (!m || (best && m->rank > best->rank)) continue;
        occurrences = best && m->rank == best->rank ? occurrences + 1 : 1;
        best = m;
    }
    *done = !best;
    if (!best || occurrences < *n / FREQUENT) return false;
    const int32_t left = (int32_t)(best->pair >> 32), right = (int32_t)(uint32_t)best->pair;
    bool lower = false;
    for (size_t i = 0; i < *n; kept++) {
        bool here = !lower && i + 1 < *n && ids[i] == left && ids[i + 1] == right;
        ids[kept] = here ? best->id : ids[i];
        i += here ? 2 : 1;
        if (!here) continue;
        const struct merge *before = kept > 0 ? find_merge(t, ids[kept - 1], best->id) : NULL;
        const struct merge *after = i < *n ? find_merge(t, best->id, ids[i]) : NULL;
        lower = (before && before->rank < best->rank) || (after && after->rank < best->rank);
    }
    *n = kept;
    return !lower;
}

static enum status merge_long(const struct tokenizer *t, struct tokenizer_scratch *s, int32_t *ids, size_t *n) {
    bool done = false;
    while (merge_frequent(t, ids, n, &done)) {
    }
    if (done) return STATUS_OK;
    if (s->symbols_capacity < *n) TRY(memory_grow(&s->symbols, &s->symbols_capacity, *n));
    struct symbol *symbols = s->symbols;
    s->heap_count = 0;
    for (size_t i = 0; i < *n; i++)
        symbols[i] = (struct symbol){ids[i], (int32_t)i - 1, i + 1 < *n ? (int32_t)i + 1 : -1};
    for (size_t i = 0; i + 1 < *n; i++)
        TRY(offer_pair(t, s, (int32_t)i));
    while (s->heap_count > 0) {
        uint64_t entry = heap_pop(s);
        int32_t at = (int32_t)(uint32_t)entry, right = symbols[at].next;
        if (symbols[at].id < 0 || right < 0) continue;
        /* An entry is stale if one of its two symbols has changed since it was added. */
        const struct merge *m = find_merge(t, symbols[at].id, symbols[right].id);
        if (!m || (uint32_t)m->rank != entry >> 32) continue;
        symbols[at].id = m->id;
        symbols[at].next = symbols[right].next;
        symbols[right].id = -1;
        if (symbols[right].next >= 0) symbols[symbols[right].next].previous = at;
        TRY(offer_pair(t, s, symbols[at].previous));
        TRY(offer_pair(t, s, at));
    }
    size_t kept = 0;
    for (int32_t i = 0; i >= 0; i = symbols[i].next)
        ids[kept++] = symbols[i].id;
    *n = kept;
    return STATUS_OK;
}

/* Appends the ids of a word that is not in the cache. */
static enum status merge_word(const struct tokenizer *t, struct tokenizer_scratch *s, const char *word, size_t bytes) {
    s->hits--; /* all words are counted there first */
    s->misses++;
    if (t->ignore_merges) {
        int32_t id = -1;
        if (t->byte_level) {
            s->out.size = 0;
            for (size_t i = 0; i < bytes; i++) {
                char spelling[4];
                TRY(bytes_append(&s->out, spelling, (size_t)utf8_encode(spelling, byte_level_code[(uint8_t)word[i]])));
            }
            id = find_in_model(t, s->out.data, s->out.size);
        } else {
            id = find_in_model(t, word, bytes);
        }
        if (id >= 0) return push_ids(s, &id, 1);
    }
    if (s->n_ids + bytes > s->ids_capacity) TRY(memory_grow(&s->ids, &s->ids_capacity, s->n_ids + bytes));
    int32_t *ids = s->ids + s->n_ids;
    size_t n = first_symbols(t, ids, word, bytes);
    if (n <= SHORT_MAX)
        n = merge_short(t, ids, n);
    else
        TRY(merge_long(t, s, ids, &n));
    s->n_ids += n;
    return STATUS_OK;
}

/* ---- the cache ---------------------------------------------------------------------------------------------- */

/* A short word of a text, and its set. A long word has the set after the last, which is empty. */
struct lookup {
    uint64_t text[2];
    struct short_word *set;
};

/* The word, and zeros, as `size` bytes (16 or 24, a constant). readable: bytes from `word` on that may be read. */
static inline void load_text(uint64_t *out, size_t size, const char *word, size_t bytes, size_t readable) {
    static const uint8_t kept[2 * WORD_BYTES_MAX] = {
        255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
        255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255}; /* followed by as many zeros */
    if (readable < size) {
        memset(out, 0, size);
        memcpy(out, word, bytes);
        return;
    }
    uint64_t mask[WORD_BYTES_MAX / 8];
    memcpy(out, word, size); /* a constant number of bytes is faster to copy */
    memcpy(mask, kept + WORD_BYTES_MAX - bytes, size);
    for (size_t i = 0; i < size / 8; i++)
        out[i] &= mask[i];
}

/* The same for a short word, with its length. */
static inline void load_short(uint64_t out[2], const char *word, size_t bytes, size_t readable) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
    (void)readable; /* bytes that the mask excludes are not read */
    _mm_storeu_si128((__m128i *)out, _mm_maskz_loadu_epi8((__mmask16)((1u << bytes) - 1), word));
#else
    load_text(out, 2 * sizeof *out, word, bytes, readable);
#endif
    out[1] |= (uint64_t)bytes << LENGTH_BIT;
}

static inline struct short_word *find_short(struct tokenizer_scratch *s, const uint64_t w[2]) {
    const unsigned __int128 product = (unsigned __int128)(w[0] ^ 0x9E3779B97F4A7C15u) * (w[1] ^ 0xD6E8FEB86659FD93u);
    return s->short_words + 2 * (((uint64_t)product ^ (uint64_t)(product >> 64)) >> (64 - SHORT_SETS_BITS));
}

static inline struct word *find_long(struct tokenizer_scratch *s, const uint64_t w[3], size_t bytes) {
    uint64_t h = (w[0] ^ (uint64_t)bytes << 56) * 0x9E3779B97F4A7C15u;
    h = (h ^ h >> 32 ^ w[1]) * 0xD6E8FEB86659FD93u;
    h = (h ^ h >> 32 ^ w[2]) * 0x9E3779B97F4A7C15u;
    return s->words + 2 * (h >> (64 - SETS_BITS));
}

/* Requests the line of the cache that copy_short reads. */
static inline void begin_word(struct lookup *l, struct tokenizer_scratch *s, const char *word, size_t bytes,
                              size_t readable) {
    if (bytes > SHORT_WORD_BYTES) {
        *l = (struct lookup){{0, UINT64_C(1) << LENGTH_BIT}, s->short_words + ((size_t)2 << SHORT_SETS_BITS)};
        return;
    }
    load_short(l->text, word, bytes, readable);
    l->set = find_short(s, l->text);
    __builtin_prefetch(l->set);
}

/* Copies SHORT_WORD_IDS ids of a short word, and returns how many it has, or -1 if they are not in its set. */
static inline int copy_short(int32_t *out, const struct lookup *l) {
    struct short_word *set = l->set;
    const uint64_t first = set[0].text[0] ^ l->text[0], second = set[0].text[1] ^ l->text[1];
    if ((first | second << (64 - IDS_BIT)) == 0) {
        memcpy(out, set[0].ids, sizeof set[0].ids);
        return second >> IDS_BIT <= SHORT_WORD_IDS ? (int)(second >> IDS_BIT) : -1;
    }
    const struct short_word entry = set[1];
    const uint64_t other = entry.text[1] ^ l->text[1];
    if (entry.text[0] != l->text[0] || other << (64 - IDS_BIT) != 0 || other >> IDS_BIT > SHORT_WORD_IDS) return -1;
    set[1] = set[0];
    set[0] = entry;
    memcpy(out, entry.ids, sizeof entry.ids);
    return (int)(other >> IDS_BIT);
}

static bool same_word(const struct word *entry, const uint64_t w[3], size_t bytes) {
    return entry->bytes == bytes && entry->text[0] == w[0] && entry->text[1] == w[1] && entry->text[2] == w[2];
}

static void keep_long(struct word *set, const uint64_t text[3], size_t bytes, const int32_t *ids, size_t n) {
    set[1] = set[0];
    memcpy(set[0].text, text, sizeof set[0].text);
    memcpy(set[0].ids, ids, n * sizeof *ids);
    set[0].bytes = (uint8_t)bytes;
    set[0].n_ids = (uint8_t)n;
}

/* A new word replaces the second of its set, which moves to the front when it is found. So a word that occurs once
 * replaces no frequent one. */
static void keep_short(struct short_word *set, const uint64_t text[2], const int32_t *ids, size_t n) {
    struct short_word entry = {{text[0], text[1] | (uint64_t)n << IDS_BIT}, {0}};
    if (n <= SHORT_WORD_IDS) memcpy(entry.ids, ids, n * sizeof *ids);
    set[1] = entry;
}

/* Appends the ids of a run, which is a word of more than WORD_BYTES_MAX bytes. */
static enum status end_run(const struct tokenizer *t, struct tokenizer_scratch *s, const char *word, size_t bytes) {
    struct run *entry = bytes <= RUN_BYTES_MAX ? &s->runs[XXH3_64bits(word, bytes) >> (64 - RUNS_BITS)] : NULL;
    if (entry && entry->bytes == bytes && memcmp(entry->text, word, bytes) == 0)
        return push_ids(s, entry->ids, entry->n_ids);
    const size_t before = s->n_ids;
    TRY(merge_word(t, s, word, bytes));
    const size_t n = s->n_ids - before;
    if (!entry || n > RUN_IDS_MAX) return STATUS_OK;
    memcpy(entry->text, word, bytes);
    memcpy(entry->ids, s->ids + before, n * sizeof *entry->ids);
    entry->bytes = (uint8_t)bytes;
    entry->n_ids = (uint8_t)n;
    return STATUS_OK;
}

/* Appends the ids of a word of at most WORD_BYTES_MAX bytes, which is among the long ones, or will be if it has few
 * ids and is not a short one. */
static enum status end_long(const struct tokenizer *t, struct tokenizer_scratch *s, const char *word, size_t bytes,
                            size_t readable) {
    uint64_t text[WORD_BYTES_MAX / 8];
    load_text(text, sizeof text, word, bytes, readable);
    struct word *set = find_long(s, text, bytes);
    for (int i = 0; i < 2; i++)
        if (same_word(&set[i], text, bytes)) return push_ids(s, set[i].ids, set[i].n_ids);
    const size_t before = s->n_ids;
    TRY(merge_word(t, s, word, bytes));
    const size_t n = s->n_ids - before;
    if (n <= WORD_IDS_MAX) keep_long(set, text, bytes, s->ids + before, n);
    return STATUS_OK;
}

/* Appends the ids of a word that copy_short does not find. */
static NOINLINE enum status end_word(const struct tokenizer *t, struct tokenizer_scratch *s, const struct lookup *l,
                                     const char *word, size_t bytes, size_t readable) {
    if (bytes > WORD_BYTES_MAX) return end_run(t, s, word, bytes);
    const size_t before = s->n_ids;
    bool marked = bytes > SHORT_WORD_BYTES; /* it is among the long words, or a mark says so */
    for (int i = 0; i < 2; i++)
        marked |= l->set[i].text[0] == l->text[0] && (l->set[i].text[1] & TEXT_MASK) == l->text[1];
    if (marked) return end_long(t, s, word, bytes, readable);
    TRY(merge_word(t, s, word, bytes));
    const size_t n = s->n_ids - before;
    if (n <= WORD_IDS_MAX) keep_short(l->set, l->text, s->ids + before, n);
    if (n <= SHORT_WORD_IDS || n > WORD_IDS_MAX) return STATUS_OK;
    uint64_t text[WORD_BYTES_MAX / 8];
    load_text(text, sizeof text, word, bytes, readable);
    struct word *set = find_long(s, text, bytes);
    if (!same_word(&set[0], text, bytes)) keep_long(set, text, bytes, s->ids + before, n);
    return STATUS_OK;
}

static enum status reserve_ids(struct tokenizer_scratch *s, size_t n) {
    return s->n_ids + n > s->ids_capacity ? memory_grow(&s->ids, &s->ids_capacity, s->n_ids + n) : STATUS_OK;
}

enum status bpe_encode(const struct tokenizer *t, struct tokenizer_scratch *s, const char *word, size_t bytes) {
    struct lookup l;
    if (bytes == 0) return STATUS_OK;
    begin_word(&l, s, word, bytes, bytes);
    s->hits++;
    TRY(reserve_ids(s, SHORT_WORD_IDS));
    const int n = copy_short(s->ids + s->n_ids, &l);
    if (n < 0) return end_word(t, s, &l, word, bytes, bytes);
    s->n_ids += (size_t)n;
    return STATUS_OK;
}

enum status bpe_encode_scanned(const struct tokenizer *t, struct tokenizer_scratch *s, const char *text, size_t bytes) {
    enum { IDS_COPIED = SCANNER_WORDS_MAX * SHORT_WORD_IDS };
    struct lookup words[SCANNER_WORDS_MAX];
    size_t ends[SCANNER_WORDS_MAX];
    for (size_t at = 0; at < bytes;) {
        const int n = scanner_words(t->scanner, t->classes, text, bytes, at, ends);
        size_t begin = at;
        for (int i = 0; i < n; begin = ends[i++])
            begin_word(&words[i], s, text + begin, ends[i] - begin, bytes - begin);
        TRY(reserve_ids(s, IDS_COPIED));
        int32_t *out = s->ids + s->n_ids;
        for (int i = 0; i < n; at = ends[i++]) {
            const int copied = copy_short(out, &words[i]);
            if (copied >= 0) {
                out += copied;
                continue;
            }
            s->n_ids = (size_t)(out - s->ids);
            TRY(end_word(t, s, &words[i], text + at, ends[i] - at, bytes - at));
            TRY(reserve_ids(s, IDS_COPIED));
            out = s->ids + s->n_ids;
        }
        s->n_ids = (size_t)(out - s->ids);
        s->hits += (uint64_t)n;
    }
    return STATUS_OK;
}
