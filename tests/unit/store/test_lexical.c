/* test_lexical.c -- the lexical index against plain loops: scores, order, segments, threads, memory, damage. */
#include "base/memory.h"
#include "store/lexical/hybrid_hits.h"
#include "store/lexical/lexical_lists.h"
#include "store/lexical/lexical_segment_internal.h"
#include "tests/lexical_fixture.h"

enum { QUERY = 40, K_MAX = 300, MANY = TEST_RACES ? 17000 : 40000 }; /* MANY: several windows in one segment */

static bool excluded(const struct lexical_search *how, int64_t chunk) {
    return how->exclude && chunk >= how->exclude->begin && chunk < how->exclude->end;
}

/* The hits are the k best by `scores`, in order; sums of doubles and of integers may differ by `rounding`. */
static void check_hits(const struct store_hit *hits, const double *scores, int64_t n,
                       const struct lexical_search *how) {
    static const double rounding = 2e-5;
    int64_t left = 0;
    for (int64_t i = 0; i < n; i++)
        left += scores[i] > rounding && !excluded(how, i);
    double worst = INFINITY;
    for (int i = 0; i < how->k; i++) {
        if (hits[i].chunk < 0) {
            CHECK(left <= i);
            worst = 0;
            continue;
        }
        CHECK(!excluded(how, hits[i].chunk) && hits[i].chunk < n);
        CHECK(fabs((double)hits[i].score - scores[hits[i].chunk]) <= rounding * (1 + scores[hits[i].chunk]));
        if (i > 0)
            CHECK(hits[i].score < hits[i - 1].score ||
                  (hits[i].score == hits[i - 1].score && hits[i].chunk > hits[i - 1].chunk));
        worst = (double)hits[i].score;
    }
    for (int64_t i = 0; i < n; i++) { /* no better chunk is missing */
        bool found = excluded(how, i) || scores[i] <= worst + rounding * (1 + worst);
        for (int j = 0; j < how->k && !found; j++)
            found = hits[j].chunk == i;
        CHECK(found);
    }
}

static void random_query(int32_t *ids, int n, const struct lexical_corpus *c, struct rng *r) {
    int64_t from = (int64_t)rng_below(r, (uint64_t)c->n);
    for (int i = 0; i < n; i++) /* half of the query is from a chunk, so that pairs and rare ids occur */
        ids[i] = i < n / 2 ? c->ids[from][i % c->lengths[from]] : c->ids[rng_below(r, (uint64_t)c->n)][0];
    ids[n / 2] = -1;
}

/* What earlier searches left does not change a hit: after the same query, after one with higher scores, and after one
 * with lower scores. */
static void check_cache(const struct lexical *x, struct lexical_cache *cache, const struct store_hit *hits,
                        const struct lexical_query *q, struct lexical_search how) {
    static struct store_hit other[K_MAX], want[K_MAX];
    const struct lexical_query few = {q->ids, 1};
    CHECK_OK(lexical_search(x, want, &few, 1, &how));
    how.cache = cache;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(lexical_search(x, other, q, 1, &how));
        CHECK(memcmp(hits, other, (size_t)how.k * sizeof *hits) == 0);
        if (i == 0) continue;
        CHECK_OK(lexical_search(x, other, &few, 1, &how));
        CHECK(memcmp(want, other, (size_t)how.k * sizeof *hits) == 0);
    }
}

/* The same bits from one segment and from several, with one thread and with several, for single queries and for
 * batches. */
static void check_corpus(const struct lexical_corpus *c, const char *name, int queries) {
    /* with 40 segments a search has more than 32 windows, and begins with a sample of them */
    struct lexical *one = lexical_fixture_open(c, 1, name), *many = lexical_fixture_open(c, c->n > 1000 ? 40 : 5, name);
    struct threads *threads;
    struct lexical_cache *cache[2];
    CHECK_OK(threads_create(&threads, 3));
    for (int i = 0; i < 2; i++)
        CHECK_OK(lexical_cache_create(&cache[i]));
    struct rng r = rng_make(test_seed(), 2);
    static struct store_hit hits[K_MAX], other[2 * K_MAX];
    static float scores[K_MAX];
    double *want = malloc((size_t)c->n * sizeof *want);
    int64_t chunks[K_MAX];
    for (int i = 0; i < queries; i++) {
        int32_t ids[QUERY];
        struct lexical_query q[2] = {{ids, 1 + (int)rng_below(&r, QUERY)}, {ids, 1}};
        random_query(ids, QUERY, c, &r);
        struct store_range range[2] = {{(int64_t)rng_below(&r, (uint64_t)c->n), 0}, {0, 0}};
        range[0].end = range[0].begin + (int64_t)rng_below(&r, (uint64_t)c->n);
        struct lexical_search how = {.k = 1 + (int)rng_below(&r, K_MAX),
                                     .pair_weight = i % 3 ? LEXICAL_PAIR_WEIGHT : 0,
                                     .counted = i % 4 == 1,
                                     .exclude = i % 2 ? range : NULL};
        CHECK_OK(lexical_search(one, hits, q, 1, &how));
        if (!TEST_RACES) {
            lexical_fixture_scores(want, c, q, &how);
            check_hits(hits, want, c->n, &how);
        }
        check_cache(one, cache[0], hits, q, how);
        how.threads = threads;
        check_cache(many, cache[1], hits, q, how);
        CHECK_OK(lexical_search(many, other, q, 1, &how));
        CHECK(memcmp(hits, other, (size_t)how.k * sizeof *hits) == 0);
        CHECK_OK(lexical_search(one, other, q, 2, &how));
        CHECK(memcmp(hits, other, (size_t)how.k * sizeof *hits) == 0);
        int n = 0; /* worst first: any order */
        for (int j = how.k - 1; j >= 0; j--)
            if (hits[j].chunk >= 0) chunks[n++] = hits[j].chunk;
        CHECK_OK(lexical_score(many, scores, chunks, n, q, &how));
        for (int j = 0; j < n; j++)
            CHECK(scores[j] == hits[n - 1 - j].score);
    }
    threads_free(threads);
    for (int i = 0; i < 2; i++)
        lexical_cache_free(cache[i]);
    lexical_close(one);
    lexical_close(many);
    free(want);
}

static void test_random(void) {
    static const struct {
        int64_t chunks;
        int vocab, queries;
    } cases[] = {{1, 5, 6}, {90, 40, 12}, {1500, 3000, 12}, {MANY, 5000, 6}, {MANY / 2, LEXICAL_VOCAB_MAX, 4}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct lexical_corpus c;
        lexical_corpus_random(&c, cases[i].chunks, cases[i].vocab, test_seed() + i);
        char name[32];
        snprintf(name, sizeof name, "random%d", (int)i);
        check_corpus(&c, name, TEST_RACES ? 4 : cases[i].queries); /* 4: all settings of a search */
        lexical_corpus_free(&c);
    }
}

/* Scores of any chunks, also excluded ones and those that do not exist, are the same with what a search left in the
 * cache: of its query, and of another one. */
static void check_kept_scores(const struct lexical *x, int64_t chunks_of_all, const struct lexical_query *q,
                              const struct lexical_search *with_cache, struct rng *r) {
    enum { CHUNKS = 50 };
    int64_t chunks[CHUNKS];
    float scores[CHUNKS], want[CHUNKS];
    struct lexical_search without = *with_cache;
    const struct lexical_query others[] = {*q, {q->ids, q->n - 1}, *q};
    without.cache = NULL;
    for (int i = 0; i < CHUNKS; i++)
        chunks[i] = (int64_t)rng_below(r, (uint64_t)chunks_of_all + 100);
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        CHECK_OK(lexical_score(x, scores, chunks, CHUNKS, &others[i], with_cache));
        CHECK_OK(lexical_score(x, want, chunks, CHUNKS, &others[i], &without));
        CHECK(memcmp(scores, want, sizeof scores) == 0);
    }
}

/* A running text: each query has most tokens of the one before. With a cache, whose sums are then kept, the hits are
 * the same as without one, whatever is excluded, and after a jump to another text. */
static void check_running(const struct lexical *x, const struct lexical_corpus *c, struct threads *threads) {
    enum { STEPS = 40, LENGTH = 64, TEXT = 4000 };
    static const struct store_hole holes[] = {{100, 300, 0}, {1000, 1001, 200}};
    static int32_t text[TEXT + LENGTH];
    static struct store_hit hits[K_MAX], want[K_MAX];
    struct lexical_cache *cache;
    struct rng r = rng_make(test_seed(), 4);
    CHECK_OK(lexical_cache_create(&cache));
    for (int i = 0; i < TEXT + LENGTH; i++)
        text[i] = i % 7 ? c->ids[i / 8 % c->n][i % 8 % c->lengths[i / 8 % c->n]] : (int32_t)rng_below(&r, 20);
    for (int step = 0, at = 0; step < STEPS; step++) {
        at = step % 15 == 14 ? (int)rng_below(&r, TEXT) : (at + (int)rng_below(&r, 12)) % TEXT;
        struct store_range range = {(int64_t)rng_below(&r, (uint64_t)c->n), 0};
        range.end = range.begin + (int64_t)rng_below(&r, (uint64_t)c->n / 4);
        const struct lexical_query q = {text + at, LENGTH};
        struct lexical_search how = {.k = 1 + step / 10 * 25,
                                     .pair_weight = step / 20 ? 0.25f : LEXICAL_PAIR_WEIGHT,
                                     .exclude = step % 3 ? &range : NULL,
                                     .threads = threads};
        if (step % 4 == 1) how.absent = (struct store_dropped){holes, 2};
        CHECK_OK(lexical_search(x, want, &q, 1, &how));
        how.cache = cache;
        CHECK_OK(lexical_search(x, hits, &q, 1, &how));
        CHECK(memcmp(hits, want, (size_t)how.k * sizeof *hits) == 0);
        if (step % 5 != 4) check_kept_scores(x, c->n, &q, &how, &r);
        for (int i = 0; i < how.k && how.absent.n > 0; i++)
            CHECK(hits[i].chunk != 1000 && !(hits[i].chunk >= 100 && hits[i].chunk < 300));
    }
    lexical_cache_free(cache);
}

static void test_running(void) {
    struct lexical_corpus c;
    struct threads *threads;
    CHECK_OK(threads_create(&threads, 3));
    lexical_corpus_random(&c, MANY, 3000, test_seed() + 9);
    struct lexical *one = lexical_fixture_open(&c, 1, "running"), *many = lexical_fixture_open(&c, 40, "running");
    check_running(one, &c, NULL);
    check_running(one, &c, threads);
    check_running(many, &c, threads);
    lexical_close(one);
    lexical_close(many);
    threads_free(threads);
    lexical_corpus_free(&c);
}

/* Bytes as ids, of the repository's own documents. */
static void test_text(void) {
    const char *source = getenv("DRT_SOURCE");
    static const char *const files[] = {"docs/store-format.md", "CONTRIBUTING.md", "store/store.h", "CHANGELOG.md"};
    struct lexical_corpus c = {calloc(1 << 16, sizeof *c.ids), calloc(1 << 16, sizeof *c.lengths), 0, 256};
    for (size_t i = 0; source && i < ARRAY_LEN(files); i++) {
        char path[700];
        struct file_map map;
        snprintf(path, sizeof path, "%s/%s", source, files[i]);
        CHECK_OK(file_map(&map, path));
        for (size_t at = 0; at < map.size; at += LEXICAL_FIXTURE_CHUNK, c.n++)
            for (size_t j = at; j < map.size && j < at + LEXICAL_FIXTURE_CHUNK; j++)
                c.ids[c.n][c.lengths[c.n]++] = map.data[j];
        file_unmap(&map);
    }
    if (c.n > 0) check_corpus(&c, "text", 12);
    lexical_corpus_free(&c);
}

/* Chunks of equal scores are in the order of their ids, for any k. */
static void test_ties(void) {
    struct lexical_corpus c;
    lexical_corpus_random(&c, 20000, 3, test_seed());
    for (int64_t i = 0; i < c.n; i++) {
        c.lengths[i] = 2;
        c.ids[i][0] = 0;
        c.ids[i][1] = i % 4 == 3 ? 2 : 1;
    }
    struct lexical *x = lexical_fixture_open(&c, 2, "ties");
    struct store_hit hits[50];
    int32_t ids[1] = {2};
    struct store_range range = {8, 100};
    struct threads *threads;
    CHECK_OK(threads_create(&threads, 2));
    CHECK_OK(lexical_search(x, hits, &(struct lexical_query){ids, 1}, 1,
                            &(struct lexical_search){.k = 50, .exclude = &range, .threads = threads}));
    for (int i = 0; i < 50; i++)
        CHECK_EQ(hits[i].chunk, i < 2 ? 4 * i + 3 : 4 * (i + 23) + 3);
    threads_free(threads);
    lexical_close(x);
    lexical_corpus_free(&c);
}

static void test_nothing(void) {
    struct lexical *x;
    struct store_hit hits[3];
    float score;
    int32_t ids[] = {-1, 400, 7};
    int64_t chunk = 5;
    struct lexical_search how = {.k = 3, .pair_weight = 1};
    CHECK_OK(lexical_open(&x, NULL, 0));
    CHECK_OK(lexical_search(x, hits, &(struct lexical_query){ids, 3}, 1, &how));
    CHECK_EQ(hits[0].chunk, -1);
    lexical_close(x);
    struct lexical_corpus c;
    lexical_corpus_random(&c, 4, 5, 1);
    x = lexical_fixture_open(&c, 1, "nothing");
    for (int n = 0; n <= 3; n++) {
        CHECK_OK(lexical_search(x, hits, &(struct lexical_query){ids, n}, 1, &how));
        CHECK_EQ(hits[0].chunk, -1);
    }
    CHECK_OK(lexical_score(x, &score, &chunk, 1, &(struct lexical_query){c.ids[0], c.lengths[0]}, &how));
    CHECK(score == 0);
    lexical_close(x);
    lexical_corpus_free(&c);
}

static void read_bytes(uint8_t **out, size_t *n, const char *path) {
    struct file_map map;
    CHECK_OK(file_map(&map, path));
    *out = malloc(map.size);
    *n = map.size;
    memcpy(*out, map.data, map.size);
    file_unmap(&map);
}

static void write_bytes(const char *path, const uint8_t *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
}

/* With the least memory dozens of runs are merged, buckets are sorted in parts, and the file has the same bytes. With a
 * vocabulary of three the postings of a single token or pair do not fit in that memory. */
static void test_memory(int vocab) {
    struct lexical_corpus c;
    char path[2][700];
    uint8_t *bytes[2];
    size_t n[2];
    lexical_corpus_random(&c, 30000, vocab, test_seed());
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/memory%d.lexical", test_folder(), i);
        lexical_fixture_build(path[i], &c, 100, c.n, i ? 1 : 0);
        read_bytes(&bytes[i], &n[i], path[i]);
    }
    CHECK_EQ(n[0], n[1]);
    CHECK(memcmp(bytes[0], bytes[1], n[0]) == 0);
    struct lexical_range range;
    CHECK_OK(lexical_verify(&range, path[0], NULL));
    CHECK_EQ(range.first_chunk, 100);
    CHECK_EQ(range.chunks, c.n - 100);
    free(bytes[0]);
    free(bytes[1]);
    lexical_corpus_free(&c);
}

/* One thread and many make the same bytes, also with fewer ids than threads. */
static void test_threads(void) {
    static const int vocabs[] = {3, 2000};
    char one[700], many[700];
    snprintf(one, sizeof one, "%s/one.lexical", test_folder());
    snprintf(many, sizeof many, "%s/many.lexical", test_folder());
    for (size_t v = 0; v < ARRAY_LEN(vocabs); v++) {
        struct lexical_corpus c;
        uint8_t *want, *got;
        size_t wanted, n;
        lexical_corpus_random(&c, 30000, vocabs[v], test_seed()); /* more than one block of ids */
        lexical_fixture_build(one, &c, 0, c.n, 0);
        read_bytes(&want, &wanted, one);
        for (int count = 2; count <= 40; count += TEST_RACES ? 35 : 5) {
            struct lexical_builder *b;
            struct threads *threads;
            uint64_t bytes;
            uint32_t crc;
            CHECK_OK(threads_create(&threads, count));
            const struct lexical_build config = {.vocab_size = c.vocab, .threads = threads};
            CHECK_OK(lexical_builder_create(&b, many, &config));
            for (int64_t i = 0; i < c.n; i++)
                CHECK_OK(lexical_builder_add(b, c.ids[i], c.lengths[i]));
            CHECK_OK(lexical_builder_publish(b, &bytes, &crc));
            threads_free(threads);
            read_bytes(&got, &n, many);
            CHECK_EQ(n, wanted);
            CHECK(memcmp(got, want, n) == 0);
            free(got);
        }
        free(want);
        lexical_corpus_free(&c);
    }
}

/* For a change of any byte, or a cut anywhere, verify finds it and a search terminates. */
static void test_damage(void) {
    struct lexical_corpus c;
    char path[700];
    uint8_t *bytes;
    size_t n;
    lexical_corpus_random(&c, 1100, 4, test_seed()); /* lists of all three kinds */
    for (int64_t i = 0; i < c.n; i++)
        c.lengths[i] = 1 + (i % 9 == 0) + (i % 100 == 0);
    snprintf(path, sizeof path, "%s/damage.lexical", test_folder());
    lexical_fixture_build(path, &c, 0, c.n, 0);
    read_bytes(&bytes, &n, path);
    struct lexical_range range;
    for (size_t i = 0; i < n; i++) {
        bytes[i] ^= (uint8_t)(1 << (i % 8));
        write_bytes(path, bytes, n);
        enum status s = lexical_verify(&range, path, NULL);
        CHECK(s == STATUS_CORRUPT || s == STATUS_VERSION);
        CHECK(strncmp(status_message(), path, strlen(path)) == 0);
        bytes[i] ^= (uint8_t)(1 << (i % 8));
        if (i % 7) continue;
        write_bytes(path, bytes, i);
        CHECK_FAILS(lexical_verify(&range, path, NULL), STATUS_CORRUPT, "run drt-index repair");
    }
    write_bytes(path, bytes, n);
    CHECK_OK(lexical_verify(&range, path, NULL));
    free(bytes);
    lexical_corpus_free(&c);
}

/* A file with valid checksums whose skips, dense bits or counts do not fit its lists. */
static void test_forged(void) {
    struct lexical_corpus c;
    struct lexical_segment s;
    struct lexical_list blocks, dense;
    struct lexical_range range;
    char path[700];
    uint8_t *bytes;
    size_t n, at[3];
    lexical_corpus_random(&c, 2001, 3, test_seed());
    for (int64_t i = 0; i < c.n; i++) {
        c.lengths[i] = 1;
        c.ids[i][0] = i % 11 == 0 ? 2 : i % 5 == 0;
    }
    snprintf(path, sizeof path, "%s/forged.lexical", test_folder());
    lexical_fixture_build(path, &c, 0, c.n, 0);
    CHECK_OK(lexical_segment_open(&s, path));
    CHECK_OK(lexical_segment_find(&s, &blocks, 2));
    CHECK_OK(lexical_segment_find(&s, &dense, 1));
    CHECK(blocks.kind == LEXICAL_BLOCKS && dense.kind == LEXICAL_DENSE && blocks.n == 182);
    at[0] = (size_t)(blocks.skips + LEXICAL_SKIP_BYTES - s.map.data); /* last chunk of the last block: 1991 */
    at[1] = (size_t)(dense.data + dense.bytes - 1 - s.map.data);      /* a chunk after the last */
    at[2] = s.map.size - LEXICAL_FOOTER_BYTES + 32;                   /* count of postings */
    lexical_segment_close(&s);
    read_bytes(&bytes, &n, path);
    for (size_t i = 0; i < ARRAY_LEN(at); i++) {
        uint8_t bit = i == 0 ? 8 : i == 1 ? 0x80 : 1;
        bytes[at[i]] ^= bit;
        lexical_fixture_mend(bytes, n);
        write_bytes(path, bytes, n);
        CHECK_FAILS(lexical_verify(&range, path, NULL), STATUS_CORRUPT, i < 2 ? "a list of postings" : "footer counts");
        bytes[at[i]] ^= bit;
    }
    lexical_fixture_mend(bytes, n);
    write_bytes(path, bytes, n);
    CHECK_OK(lexical_verify(&range, path, NULL));
    free(bytes);
    lexical_corpus_free(&c);
}

static bool always(void *context) {
    (void)context;
    return true;
}

static void test_refusals(void) {
    struct lexical_builder *b;
    struct lexical_range range;
    struct lexical *x;
    char path[700], second[700];
    uint64_t bytes;
    uint32_t crc;
    snprintf(path, sizeof path, "%s/refused.lexical", test_folder());
    snprintf(second, sizeof second, "%s/second.lexical", test_folder());
    CHECK_FAILS(lexical_builder_create(&b, path, &(struct lexical_build){.vocab_size = LEXICAL_VOCAB_MAX + 1}),
                STATUS_UNSUPPORTED, "262144 ids, not 262145");
    CHECK_FAILS(lexical_builder_create(&b, "/no/such/folder/x", &(struct lexical_build){.vocab_size = 5}),
                STATUS_NOT_FOUND, "/no/such/folder/x");
    CHECK_OK(lexical_builder_create(&b, path, &(struct lexical_build){.vocab_size = 5}));
    CHECK_FAILS(lexical_builder_add(b, (const int32_t[]){1, 5}, 2), STATUS_INVALID, "token id 5 is outside");
    CHECK_FAILS(lexical_builder_add(b, (const int32_t[]){-1}, 1), STATUS_INVALID, "token id -1 is outside");
    CHECK_OK(lexical_builder_add(b, (const int32_t[]){1, 4}, 2));
    lexical_builder_discard(b);
    CHECK(!file_exists(path));
    CHECK_FAILS(lexical_verify(&range, path, NULL), STATUS_NOT_FOUND, "refused.lexical");
    struct lexical_corpus c;
    lexical_corpus_random(&c, 4000, 300, 3);
    struct progress stop = {.stop_requested = always};
    CHECK_OK(lexical_builder_create(&b, path, &(struct lexical_build){.vocab_size = c.vocab, .progress = &stop}));
    for (int64_t i = 0; i < c.n; i++)
        CHECK_OK(lexical_builder_add(b, c.ids[i], c.lengths[i]));
    CHECK_FAILS(lexical_builder_publish(b, &bytes, &crc), STATUS_INTERRUPTED, "stopped");
    CHECK(!file_exists(path));
    lexical_fixture_build(path, &c, 0, 50, 0);
    lexical_fixture_build(second, &c, 49, 100, 0);
    CHECK_FAILS(lexical_open(&x, (const char *const[]){path, second}, 2), STATUS_MISMATCH, "do not follow");
    lexical_corpus_free(&c);
}

/* Both methods unpack the chunks that were encoded, for every width, and read at most LEXICAL_PAD bytes after the
 * block. */
static void test_unpack(void) {
    struct rng r = rng_make(test_seed(), 3);
    for (int width = 0; width <= LEXICAL_WIDTH_MAX; width++)
        for (int n = LEXICAL_BLOCK; n > 0; n -= 1 + n % 37) {
            uint32_t chunks[LEXICAL_BLOCK], out[LEXICAL_BLOCK], base = (uint32_t)rng_below(&r, 1000), at = base;
            uint8_t codes[LEXICAL_BLOCK], bytes[LEXICAL_BLOCK_BYTES];
            unsigned form;
            for (int i = 0; i < n; i++, at++) { /* the last difference has the whole width */
                at += i + 1 < n ? (uint32_t)rng_below(&r, (UINT64_C(1) << width)) : (1u << width) - 1;
                chunks[i] = at;
                codes[i] = (uint8_t)rng_below(&r, LEXICAL_CODES);
            }
            size_t size = lexical_block_encode(bytes, &form, chunks, codes, n, base), packed;
            CHECK_EQ(lexical_form_width(form), width);
            packed = lexical_packed_bytes(n, width);
            uint8_t *copy = calloc(packed + LEXICAL_PAD, 1); /* the address sanitizer sees a read after it */
            memcpy(copy, bytes, packed);
            for (int vectors = LEXICAL_NARROW; vectors <= (int)lexical_vectors_widest(); vectors++) {
                memset(out, 0xff, sizeof out);
                lexical_unpack(out, copy, n, width, base, (enum lexical_vectors)vectors);
                CHECK(memcmp(out, chunks, (size_t)n * sizeof *out) == 0);
            }
            free(copy);
            struct lexical_block block;
            if (at > LEXICAL_CHUNKS_MAX) continue;
            copy = calloc(size + LEXICAL_PAD, 1);
            memcpy(copy, bytes, size);
            CHECK(lexical_block_decode(&block, copy, size, n, form, base, at));
            for (int i = 0; i < n; i++)
                CHECK(block.chunks[i] == chunks[i] && lexical_block_code(&block, i) == codes[i]);
            CHECK(!lexical_block_decode(&block, copy, size, n, form, base, at - 1));
            free(copy);
        }
}

static void test_hybrid(void) {
    const struct store_hit a[] = {{7, 9}, {3, 8}, {5, 1}, {-1, 0}}, b[] = {{5, 0.9f}, {8, 0.5f}, {7, 0.4f}};
    int64_t ids[7];
    CHECK_EQ(hybrid_candidates(ids, a, 4, b, 3), 4);
    static const int64_t want[] = {3, 5, 7, 8};
    CHECK(memcmp(ids, want, sizeof want) == 0);
    struct store_hit hits[5];
    CHECK_OK(hybrid_weighted(hits, 5, ids, (const float[]){8, 1, 9, NAN}, (const float[]){0, 0.9f, -0.1f, 1}, 4, 10));
    static const int64_t order[] = {5, 3, 7, -1, -1}; /* 10, 8, 8: a tie goes to the smaller id */
    for (int i = 0; i < 5; i++)
        CHECK_EQ(hits[i].chunk, order[i]);
    CHECK_OK(hybrid_reciprocal_rank(hits, 5, a, 4, b, 3, 1, 60));
    static const int64_t ranks[] = {5, 7, 3, 8, -1}; /* 1/63 + 1/61 and 1/61 + 1/63 tie, then 1/62 twice */
    for (int i = 0; i < 5; i++)
        CHECK_EQ(hits[i].chunk, ranks[i]);
    CHECK_OK(hybrid_reciprocal_rank(hits, 1, a, 4, b, 3, 0, 60));
    CHECK_EQ(hits[0].chunk, 7);
}

/* Two lists of many hits, with the same chunks in opposite orders. Loops over all pairs of them would take minutes. */
static void test_hybrid_many(void) {
    enum { HITS = 400000 };
    struct store_hit *lists[2], *hits;
    bool *seen;
    for (int i = 0; i < 2; i++)
        CHECK_OK(memory_allocate(&lists[i], HITS));
    CHECK_OK(memory_allocate(&hits, HITS));
    CHECK_OK(memory_allocate_zero(&seen, HITS));
    for (int64_t i = 0; i < HITS; i++)
        lists[0][i] = lists[1][HITS - 1 - i] = (struct store_hit){.chunk = i};
    CHECK_OK(hybrid_reciprocal_rank(hits, HITS, lists[0], HITS, lists[1], HITS, 1, 60));
    for (int64_t i = 0; i < HITS; i++) {
        const int64_t c = hits[i].chunk;
        CHECK(c >= 0 && c < HITS && !seen[c]);
        seen[c] = true;
        CHECK(hits[i].score == 1 / (60 + (float)(c + 1)) + 1 / (60 + (float)(HITS - c)));
        if (i == 0) continue;
        CHECK(hits[i].score < hits[i - 1].score || (hits[i].score == hits[i - 1].score && c > hits[i - 1].chunk));
    }
    for (int i = 0; i < 2; i++)
        memory_free(lists[i]);
    memory_free(hits);
    memory_free(seen);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    test_random();
    test_text();
    test_running();
    test_ties();
    test_threads();
    if (TEST_RACES) return test_done(); /* the rest starts no thread */
    test_nothing();
    test_memory(4000);
    test_memory(3);
    test_memory(LEXICAL_VOCAB_MAX);
    test_damage();
    test_forged();
    test_refusals();
    test_unpack();
    test_hybrid();
    test_hybrid_many();
    return test_done();
}
