/* store_lexical_fixture.h -- stores with a lexical index, and their hits against plain loops over the chunks. */
#pragma once
#include "tests/lexical_fixture.h"
#include "tests/store_fixture.h"

enum { STORE_LEXICAL_VOCAB = 60, STORE_LEXICAL_QUERY = 20, STORE_LEXICAL_K = 40 };

[[maybe_unused]] static struct store_publish store_lexical_publish(enum store_lexical_choice choice) {
    return (struct store_publish){.index = "exact", .seed = 1, .lexical = choice};
}

/* Adds documents [begin, end) in shards of `each`, and publishes them as one generation. */
[[maybe_unused]] static enum status store_lexical_add(const char *dir, int64_t begin, int64_t end, int64_t each,
                                                      const struct store_publish *how) {
    const struct store_writer_config config = fixture_config(8, STORE_LEXICAL_VOCAB);
    struct store_writer *w;
    TRY(store_writer_open(&w, dir, &config, true));
    enum status s = STATUS_OK;
    for (int64_t i = begin; i < end && s == STATUS_OK; i += each)
        s = fixture_shard(w, &config, i, i + each < end ? i + each : end);
    if (s == STATUS_OK) s = store_writer_publish(w, how);
    store_writer_close(w);
    return s;
}

[[maybe_unused]] static enum status store_lexical_drop(const char *dir, int64_t shard) {
    const struct store_range range = {shard, shard + 1};
    struct store_drop_report report;
    const struct store_drop how = {.ranges = &range, .n_ranges = 1, .publish = {.index = "exact", .seed = 1}};
    return store_drop(&report, dir, &how);
}

/* The chunks that a view has; id[i]: of corpus chunk i. */
[[maybe_unused]] static void store_lexical_corpus(struct lexical_corpus *c, int64_t **id, struct store_view *v) {
    struct store_info info;
    store_view_info(v, &info);
    size_t n = (size_t)info.chunks + 1;
    *c = (struct lexical_corpus){malloc(n * sizeof *c->ids), malloc(n * sizeof *c->lengths), 0, STORE_LEXICAL_VOCAB};
    *id = malloc(n * sizeof **id);
    CHECK(c->ids && c->lengths && *id);
    for (int64_t i = 0; i < info.chunks; i++) {
        struct store_chunk chunk;
        if (!store_dropped_live(store_view_dropped(v), i)) continue;
        CHECK_OK(store_view_chunk(v, &chunk, c->ids[c->n], i));
        c->lengths[c->n] = chunk.n_tokens;
        (*id)[c->n++] = i;
    }
}

/* Each hit has its chunk's score, no better chunk is left out, none is excluded or dropped. */
[[maybe_unused]] static void store_lexical_check_query(const struct lexical *x, const struct lexical_corpus *c,
                                                       const int64_t *id, struct rng *r) {
    static const double rounding = 2e-5;
    struct store_hit hits[STORE_LEXICAL_K];
    int32_t ids[STORE_LEXICAL_QUERY];
    double *scores = malloc((size_t)(c->n + 1) * sizeof *scores), worst = 0;
    int64_t from = (int64_t)rng_below(r, (uint64_t)c->n), found = 0, wanted = 0;
    for (int i = 0; i < STORE_LEXICAL_QUERY; i++)
        ids[i] = i < 8 ? c->ids[from][i % c->lengths[from]] : (int32_t)rng_below(r, STORE_LEXICAL_VOCAB);
    const struct lexical_query query = {ids, 1 + (int)rng_below(r, STORE_LEXICAL_QUERY)};
    const struct store_range exclude = {id[from] - 2, id[from] + (int64_t)rng_below(r, 5)};
    const struct lexical_search how = {.k = STORE_LEXICAL_K, .pair_weight = LEXICAL_PAIR_WEIGHT, .exclude = &exclude};
    CHECK_OK(lexical_search(x, hits, &query, 1, &how));
    lexical_fixture_scores(scores, c, &query, &how);
    for (int64_t i = 0; i < c->n; i++) {
        if (id[i] >= exclude.begin && id[i] < exclude.end) scores[i] = 0;
        wanted += scores[i] > 0;
        for (int j = 0; j < STORE_LEXICAL_K; j++) {
            if (hits[j].chunk != id[i]) continue;
            CHECK(fabs((double)hits[j].score - scores[i]) <= rounding * (1 + scores[i]));
            if (found++ == 0 || (double)hits[j].score < worst) worst = (double)hits[j].score;
            scores[i] = 0;
        }
    }
    CHECK_EQ(found, wanted < STORE_LEXICAL_K ? wanted : STORE_LEXICAL_K);
    for (int j = 0; j < STORE_LEXICAL_K; j++) CHECK((hits[j].chunk >= 0) == (j < found));
    for (int64_t i = 0; i < c->n; i++) CHECK(scores[i] <= worst + rounding * (1 + worst));
    free(scores);
}

/* The store's lexical index finds what plain loops over its chunks find. Returns the number of its segments. */
[[maybe_unused]] static int64_t store_lexical_check(const char *dir, int queries, struct rng *r) {
    struct store *s;
    struct store_view *v;
    const struct lexical *x;
    struct lexical_corpus c;
    struct lexical_info info;
    int64_t *id;
    CHECK_OK(store_open(&s, dir));
    CHECK_OK(store_view_open(&v, s));
    CHECK_OK(store_view_lexical(&x, v));
    lexical_info(x, &info);
    store_lexical_corpus(&c, &id, v);
    CHECK_EQ(info.chunks, c.n);
    for (int i = 0; i < queries && c.n > 0; i++) store_lexical_check_query(x, &c, id, r);
    free(id);
    lexical_corpus_free(&c);
    store_view_close(v);
    store_close(s);
    return info.segments;
}

/* The findings of verify --deep. */
[[maybe_unused]] static int64_t store_lexical_problems(const char *dir) {
    int64_t problems = 0;
    CHECK_OK(store_verify(dir, true, NULL, NULL, NULL, &problems));
    return problems;
}
