/* ref_lexical_scan.c -- see ref_lexical_scan.h: random lists, and their bytes. */
#include "tests/ref/search/ref_lexical_scan.h"

static void lexical_scan_set(uint8_t *to, int64_t bit, bool value) {
    to[bit / 8] = (uint8_t)(to[bit / 8] | value << (bit % 8));
}

/* Returns the block's bytes; out is zero. */
static int64_t lexical_scan_encode(uint8_t *out, uint32_t *form, const uint32_t *chunks, const uint8_t *codes, int n,
                                   uint32_t base) {
    uint32_t steps[LEXICAL_SCAN_BLOCK], any = 0;
    int width = 0, greatest = 0, marked = 0;
    for (int i = 0; i < n; i++) {
        steps[i] = chunks[i] - (i ? chunks[i - 1] + 1 : base);
        any |= steps[i];
        if (codes[i] - 1 > greatest) greatest = codes[i] - 1;
    }
    while (any >> width)
        width++;
    for (int i = 0; i < n; i++)
        for (int b = 0; b < width; b++) {
            int64_t in_lane = i / 4 * width + b, bit = n == LEXICAL_SCAN_BLOCK
                                                           ? (in_lane / 32 * 4 + i % 4) * 32 + in_lane % 32
                                                           : (int64_t)i * width + b;
            lexical_scan_set(out, bit, steps[i] >> b & 1);
        }
    int64_t bytes = ((int64_t)n * width + 7) / 8;
    *form = (uint32_t)width | (uint32_t)greatest << 5;
    if (greatest > 0) {
        for (int i = 0; i < n; i++)
            lexical_scan_set(out + bytes, i, codes[i] > 1);
        bytes += (n + 7) / 8;
    }
    if (greatest > 1) {
        for (int i = 0; i < n; i++)
            if (codes[i] > 1) lexical_scan_set(out + bytes, marked++, codes[i] > 2);
        bytes += (marked + 7) / 8;
    }
    return bytes;
}

static void lexical_scan_number(uint8_t *to, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++)
        to[i] = (uint8_t)(value >> 8 * i);
}

/* Appends a list; `postings` is memory for it. */
static void lexical_scan_append(struct lexical_scan_case *c, int64_t stored) {
    struct lexical_scan_list_case *from = &c->stored[stored];
    int32_t n_chunks = c->segments[from->segment].chunks;
    struct lexical_scan_list *l = &c->encoded[stored];
    uint32_t *chunks = malloc((size_t)(n_chunks + 1) * sizeof *chunks);
    uint8_t *codes = malloc((size_t)n_chunks + 1), *table, *at = c->postings + c->bytes;
    *l = (struct lexical_scan_list){.begin = c->bytes};
    for (int32_t i = 0; i < n_chunks; i++)
        if (from->codes[i]) chunks[l->n] = (uint32_t)i, codes[l->n++] = from->codes[i];
    table = calloc((size_t)l->n / 16 + 8, 1);
    if (from->dense) {
        for (int32_t i = 0; i < n_chunks; i++)
            at[i / 4] = (uint8_t)(at[i / 4] | from->codes[i] << (i % 4 * 2));
        l->bytes = (uint32_t)(n_chunks + 3) / 4;
    }
    uint32_t blocks = from->dense ? 0 : (l->n + LEXICAL_SCAN_BLOCK - 1) / LEXICAL_SCAN_BLOCK;
    for (uint32_t b = 0; b < blocks; b++) {
        uint32_t first = b * LEXICAL_SCAN_BLOCK, form;
        int n = (int)(l->n - first < LEXICAL_SCAN_BLOCK ? l->n - first : LEXICAL_SCAN_BLOCK);
        l->bytes += (uint32_t)lexical_scan_encode(at + l->bytes, &form, chunks + first, codes + first, n,
                                                  b ? chunks[first - 1] + 1 : 0);
        lexical_scan_number(table + 8 * b, chunks[first + (uint32_t)n - 1] | form << 24, 4);
        lexical_scan_number(table + 8 * b + 4, l->bytes, 4);
        l->form = form;
    }
    if (blocks == 1 && stored % 2) { /* both kinds: known and unknown */
        l->from = chunks[0];
        l->until = chunks[l->n - 1] + 1;
    }
    c->bytes += l->bytes;
    if (blocks > 1) {
        memcpy(c->postings + c->bytes, table, 8 * blocks);
        c->bytes += 8 * blocks;
    }
    free(chunks), free(codes), free(table);
}

/* A list of about n postings, evenly spread or mostly in one range, so that gaps are short and long. */
static void lexical_scan_draw(struct lexical_scan_list_case *l, struct rng *rng, int32_t chunks, int64_t n) {
    int greatest = 1 + (int)rng_below(rng, 3);
    bool stretch = rng_below(rng, 3) == 0;
    int64_t from = stretch ? (int64_t)rng_below(rng, (uint64_t)chunks) : 0, length = stretch ? chunks / 10 + 1 : chunks;
    l->codes = calloc((size_t)chunks + 1, 1);
    for (int64_t i = 0; i < n; i++) {
        int64_t at =
            i % 7 ? from + (int64_t)rng_below(rng, (uint64_t)length) : (int64_t)rng_below(rng, (uint64_t)chunks);
        if (at < chunks) l->codes[at] = (uint8_t)(1 + rng_below(rng, (uint64_t)greatest));
    }
}

/* A list for kinds whose sums are known: all chunks, those from a share of all on, or those up to it. */
static void lexical_scan_fill(struct lexical_scan_case *c, int64_t segment, int64_t i, int64_t each,
                              enum lexical_scan_kind kind) {
    struct lexical_scan_list_case *l = &c->stored[c->n_stored++];
    int64_t chunks = c->segments[segment].chunks, from = 0, until = chunks;
    if (kind == LEXICAL_SCAN_RISING) from = (chunks - 1) * i / each;
    if (kind == LEXICAL_SCAN_FALLING) until = 1 + (chunks - 1) * i / each;
    l->segment = segment;
    l->dense = i % 3 == 2;
    l->codes = calloc((size_t)chunks + 1, 1);
    memset(l->codes + from, 1, (size_t)(until - from));
}

/* Lists of exactly 1, 127, 128, 129 and 256 postings if the segment has so many chunks, of all chunks, and random
 * ones. */
static void lexical_scan_store(struct lexical_scan_case *c, struct rng *rng, int64_t segment, int64_t i) {
    static const int exact[] = {1, 127, 128, 129, 256};
    struct lexical_scan_list_case *l = &c->stored[c->n_stored];
    int32_t chunks = c->segments[segment].chunks;
    l->segment = segment;
    l->dense = i % 4 == 3;
    if (i < (int64_t)ARRAY_LEN(exact) && exact[i] <= chunks) {
        l->dense = false;
        l->codes = calloc((size_t)chunks + 1, 1);
        for (int left = exact[i]; left > 0;) {
            int64_t at = (int64_t)rng_below(rng, (uint64_t)chunks);
            left -= l->codes[at] == 0;
            l->codes[at] = (uint8_t)(1 + rng_below(rng, 3));
        }
    } else {
        int64_t n = 1 + (int64_t)rng_below(rng, (uint64_t)chunks * (l->dense ? 2 : 1));
        lexical_scan_draw(l, rng, chunks, i % 3 ? n / 20 + 1 : n);
        for (int32_t j = 0; i == 5 && j < chunks; j++)
            l->codes[j] = 1;
    }
    c->n_stored++;
}

struct lexical_scan_case lexical_scan_case_make(struct rng *rng, const int32_t *chunks, int64_t segments, int64_t each,
                                                int64_t queries, enum lexical_scan_kind kind) {
    struct lexical_scan_case c = {.n_lists = 0};
    int64_t windows = 0, id = 5, lists = segments * each;
    size_t most = LEXICAL_SCAN_PAD;
    c.segments = calloc((size_t)segments, sizeof *c.segments);
    c.stored = calloc((size_t)lists, sizeof *c.stored), c.encoded = calloc((size_t)lists, sizeof *c.encoded);
    c.lists = calloc((size_t)(lists * queries) + 1, sizeof *c.lists);
    c.origin = calloc((size_t)(lists * queries), sizeof *c.origin);
    c.parts = calloc((size_t)(segments * queries), sizeof *c.parts);
    c.queries = calloc((size_t)queries, sizeof *c.queries);
    for (int64_t s = 0; s < segments; s++) {
        c.segments[s] = (struct lexical_scan_segment){id, chunks[s], (int32_t)windows};
        windows += (chunks[s] + LEXICAL_SCAN_WINDOW - 1) / LEXICAL_SCAN_WINDOW;
        id += chunks[s] + (int64_t)rng_below(rng, 9);
        most += (size_t)each * ((size_t)chunks[s] * 5 + 64);
        for (int64_t i = 0; i < each && chunks[s] > 0; i++)
            if (kind <= LEXICAL_SCAN_EQUAL)
                lexical_scan_store(&c, rng, s, i);
            else
                lexical_scan_fill(&c, s, i, each, kind);
    }
    c.postings = calloc(most, 1);
    for (int64_t i = 0; i < c.n_stored; i++)
        lexical_scan_append(&c, i);
    c.bytes += LEXICAL_SCAN_PAD;
    CHECK(c.bytes <= most);
    c.absent = calloc((size_t)windows, LEXICAL_SCAN_WINDOW / 8);
    for (int64_t i = 0; i < windows * LEXICAL_SCAN_WINDOW; i++)
        lexical_scan_set(c.absent, i, rng_below(rng, 9) == 0);
    for (int64_t q = 0; q < queries; q++) {
        int64_t from = (int64_t)rng_below(rng, (uint64_t)id);
        c.queries[q] = (struct lexical_scan_query){{from, from + (int64_t)rng_below(rng, (uint64_t)id)}, 0x1p-20f};
        if (q % 2 == 0) c.queries[q].hole[1] = from;
        for (int64_t s = 0; s < segments; s++) {
            struct lexical_scan_part *part = &c.parts[q * segments + s];
            part->first = (int32_t)c.n_lists;
            for (int dense = 0; dense < 2; dense++)
                for (int64_t i = 0; i < c.n_stored; i++) {
                    if (c.stored[i].segment != s || c.stored[i].dense != dense || rng_below(rng, 2)) continue;
                    struct lexical_scan_list *l = &c.lists[c.n_lists];
                    *l = c.encoded[i];
                    int32_t weight = kind == LEXICAL_SCAN_RANDOM
                                         ? 1 + (int32_t)rng_below(rng, (UINT64_C(1) << 30) / (uint64_t)(4 * lists))
                                         : 1000;
                    for (int code = 0; code < 3; code++)
                        l->weight[code] = weight * (code + 2) / 2;
                    c.origin[c.n_lists++] = i;
                    *(dense ? &part->dense : &part->sparse) += 1;
                }
        }
    }
    c.scan =
        (struct lexical_scan){c.postings, c.segments, c.lists, c.parts, c.queries, NULL, segments, queries, windows};
    return c;
}

void lexical_scan_case_free(struct lexical_scan_case *c) {
    for (int64_t i = 0; i < c->n_stored; i++)
        free(c->stored[i].codes);
    free(c->stored), free(c->encoded), free(c->lists), free(c->origin), free(c->parts), free(c->queries);
    free(c->segments), free(c->postings), free(c->absent);
}
