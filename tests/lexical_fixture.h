/* lexical_fixture.h -- chunks in memory, segments made of them, and their scores by plain loops. */
#pragma once
#include "base/crc32c.h"
#include "base/file.h"
#include "base/rng.h"
#include "store/lexical/lexical_build.h"
#include "store/lexical/lexical_format_internal.h"
#include "tests/test.h"

/* Corrects the checksums of changed bytes, so that these bytes are read. */
static inline void lexical_fixture_mend(uint8_t *bytes, size_t size) {
    if (size < LEXICAL_HEADER_BYTES + LEXICAL_FOOTER_BYTES) return;
    uint8_t *footer = bytes + size - LEXICAL_FOOTER_BYTES, *at = bytes + LEXICAL_HEADER_BYTES;
    for (int i = 0; i < LEXICAL_PARTS; i++) {
        uint64_t n = little_endian_get(footer + 40 + 8 * i, 8);
        if (n > (uint64_t)(footer - at)) return;
        little_endian_put(footer + 64 + 4 * i, crc32c(0, at, n), 4);
        at += n;
    }
    little_endian_put(footer + 92, crc32c(crc32c(0, bytes, LEXICAL_HEADER_BYTES), footer, 92), 4);
}

enum { LEXICAL_FIXTURE_CHUNK = 24 };
struct lexical_corpus {
    int32_t (*ids)[LEXICAL_FIXTURE_CHUNK];
    int *lengths;
    int64_t n;
    int vocab;
};

/* Ids have frequencies as in text: a few are in nearly all chunks, most are in few. Every seventh chunk is short. */
static inline void lexical_corpus_random(struct lexical_corpus *c, int64_t n, int vocab, uint64_t seed) {
    struct rng r = rng_make(seed, 1);
    *c = (struct lexical_corpus){malloc((size_t)n * sizeof *c->ids), malloc((size_t)n * sizeof *c->lengths), n, vocab};
    for (int64_t i = 0; i < n; i++) {
        c->lengths[i] = i % 7 == 6 ? 1 + (int)rng_below(&r, LEXICAL_FIXTURE_CHUNK) : LEXICAL_FIXTURE_CHUNK;
        for (int j = 0; j < LEXICAL_FIXTURE_CHUNK; j++) {
            double u = (double)rng_uniform(&r);
            c->ids[i][j] = (int32_t)((double)vocab * u * u * u * u);
            if (j > 0 && rng_below(&r, 5) == 0) c->ids[i][j] = (c->ids[i][j - 1] * 7 + 1) % vocab;
        }
    }
}
static inline void lexical_corpus_free(struct lexical_corpus *c) {
    free(c->ids);
    free(c->lengths);
}

static inline void lexical_fixture_build(const char *path, const struct lexical_corpus *c, int64_t from, int64_t to,
                                         uint64_t max_ram) {
    struct lexical_builder *b;
    uint64_t bytes;
    uint32_t crc, found;
    const struct lexical_build config = {.vocab_size = c->vocab, .first_chunk = from, .max_ram = max_ram};
    CHECK_OK(lexical_builder_create(&b, path, &config));
    for (int64_t i = from; i < to; i++) CHECK_OK(lexical_builder_add(b, c->ids[i], c->lengths[i]));
    CHECK_EQ(lexical_builder_chunks(b), to - from);
    CHECK_OK(lexical_builder_publish(b, &bytes, &crc));
    CHECK_OK(file_checksum(&found, path));
    CHECK_EQ(crc, found);
}

/* The chunks in `parts` segments of unequal lengths. */
static inline struct lexical *lexical_fixture_open(const struct lexical_corpus *c, int parts, const char *name) {
    static char paths[64][700];
    const char *list[64];
    struct lexical *x;
    for (int64_t i = 0, from = 0; i < parts; i++) {
        int64_t to = c->n * (i + 1) * (i + 2) / (parts * (parts + 1));
        snprintf(paths[i], sizeof paths[i], "%s/%s-%d-%d.lexical", test_folder(), name, parts, (int)i);
        lexical_fixture_build(paths[i], c, from, to, 0);
        list[i] = paths[i];
        from = to;
    }
    CHECK_OK(lexical_open(&x, list, parts));
    return x;
}

/* b -1: of token a alone */
static inline int lexical_fixture_count(const int32_t *ids, int n, int32_t a, int32_t b) {
    int count = 0;
    for (int i = 0; i + (b >= 0) < n; i++) count += ids[i] == a && (b < 0 || ids[i + 1] == b);
    return count;
}

/* scores[n] += weight * idf * s(f) of one key, as in lexical.h. */
static inline void lexical_fixture_term(double *scores, const struct lexical_corpus *c, int32_t a, int32_t b,
                                        double weight) {
    double have = 0;
    int *counts = malloc((size_t)c->n * sizeof *counts);
    for (int64_t i = 0; i < c->n; i++) {
        counts[i] = lexical_fixture_count(c->ids[i], c->lengths[i], a, b);
        have += counts[i] > 0;
    }
    double idf = log(1 + ((double)c->n - have + 0.5) / (have + 0.5));
    for (int64_t i = 0; i < c->n; i++) {
        double s = counts[i] >= 3 ? 4 : counts[i];
        scores[i] += weight * idf * s * 2.2 / (s + 1.2);
    }
    free(counts);
}

static inline void lexical_fixture_scores(double *scores, const struct lexical_corpus *c, const struct lexical_query *q,
                                          const struct lexical_search *how) {
    memset(scores, 0, (size_t)c->n * sizeof *scores);
    for (int i = 0; i < q->n; i++) {
        int32_t a = q->ids[i], b = i + 1 < q->n ? q->ids[i + 1] : -1;
        bool again = false, pair_again = false;
        for (int j = 0; j < i; j++) {
            again = again || q->ids[j] == a;
            pair_again = pair_again || (q->ids[j] == a && q->ids[j + 1] == b);
        }
        if (a < 0) continue;
        if (!again || how->counted) lexical_fixture_term(scores, c, a, -1, 1);
        if (b >= 0 && how->pair_weight > 0 && (!pair_again || how->counted))
            lexical_fixture_term(scores, c, a, b, (double)how->pair_weight);
    }
}
