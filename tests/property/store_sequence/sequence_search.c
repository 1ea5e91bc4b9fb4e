/* sequence_search.c -- searches of a view against plain loops over the model's documents. */
#include "store/lexical/lexical.h"
#include "tests/property/store_sequence/sequence.h"

enum { K = 24, QUERY = 14 };

static int by_score(const void *a, const void *b) {
    const struct store_hit *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return (x->chunk > y->chunk) - (x->chunk < y->chunk);
}

static bool excluded(const struct store_range *e, int64_t chunk) {
    return e && chunk >= e->begin && chunk < e->end;
}

/* Scores are sums of integers divided by 4: exact in float32 whatever the order. */
static int64_t scan(struct store_hit *hits, const struct sequence *m, const float *query, const struct store_range *e) {
    int64_t n = 0;
    for (int64_t d = 0; d < m->published; d++)
        for (int64_t i = 0; i < m->documents[d].chunks && !sequence_gone(m, d); i++) {
            int32_t ids[FIXTURE_CHUNK];
            float row[SEQUENCE_DIM], sum = 0;
            if (excluded(e, m->documents[d].first_chunk + i)) continue;
            sequence_chunk_ids(ids, &m->documents[d], i);
            sequence_landmark(row, ids);
            for (int j = 0; j < SEQUENCE_DIM; j++)
                sum += row[j] * query[j];
            hits[n++] = (struct store_hit){m->documents[d].first_chunk + i, sum / 4};
        }
    qsort(hits, (size_t)n, sizeof *hits, by_score);
    for (int64_t i = n; i < K; i++)
        hits[i].chunk = -1;
    return n;
}

static const char *compare_hits(const struct store_hit *found, const struct store_hit *wanted) {
    for (int i = 0; i < K; i++) {
        SEQUENCE_WANT(found[i].chunk == wanted[i].chunk);
        SEQUENCE_WANT(found[i].chunk < 0 || found[i].score == wanted[i].score);
    }
    return NULL;
}

const char *sequence_compare_search(const struct sequence *m, struct store_view *v, struct rng *r) {
    struct store_hit found[K];
    float query[SEQUENCE_DIM];
    const int64_t chunks = sequence_chunks(m, m->published), begin = (int64_t)rng_below(r, (uint64_t)chunks);
    const struct store_range some = {begin, begin + (int64_t)rng_below(r, 60)}, *e = rng_below(r, 2) ? &some : NULL;
    for (int i = 0; i < SEQUENCE_DIM; i++)
        query[i] = (float)((int)rng_below(r, 17) - 8);
    struct store_search exact = {.k = K, .exact = true, .exclude = e};
    /* every list and every candidate: the index must find what a scan finds */
    struct store_search all = {.k = K, .nprobe = 1 << 20, .candidates = (int)chunks + K, .exclude = e};
    if (m->type == STORE_LANDMARKS_NONE) {
        SEQUENCE_WANT(store_view_search(v, found, query, 1, &exact) == STATUS_UNSUPPORTED);
        return NULL;
    }
    struct store_hit *wanted = malloc((size_t)(chunks + K) * sizeof *wanted);
    scan(wanted, m, query, e);
    const char *bad = store_view_search(v, found, query, 1, &exact) == STATUS_OK
                          ? compare_hits(found, wanted)
                          : sequence_differs(__FILE__, __LINE__, "exact search");
    if (!bad)
        bad = store_view_search(v, found, query, 1, &all) == STATUS_OK
                  ? compare_hits(found, wanted)
                  : sequence_differs(__FILE__, __LINE__, "search of the index");
    free(wanted);
    return bad;
}

/* ---- words ---- */

/* The chunks of shards that are not dropped: the statistics include those of deleted documents. */
struct words {
    struct lexical_corpus corpus;
    int64_t *id;
    bool *gone;
    double *scores;
};

static void words_make(struct words *w, const struct sequence *m) {
    const size_t n = (size_t)sequence_chunks(m, m->published) + 1;
    *w = (struct words){{malloc(n * sizeof *w->corpus.ids), malloc(n * sizeof(int)), 0, sequence_vocab()},
                        malloc(n * sizeof *w->id),
                        malloc(n * sizeof *w->gone),
                        malloc(n * sizeof *w->scores)};
    for (int64_t d = 0; d < m->published; d++)
        for (int64_t i = 0; i < m->documents[d].chunks && !m->shards[m->documents[d].shard].dropped; i++) {
            const int64_t at = w->corpus.n++;
            memset(w->corpus.ids[at], 0xff, sizeof w->corpus.ids[at]);
            w->corpus.lengths[at] = sequence_chunk_ids(w->corpus.ids[at], &m->documents[d], i);
            w->id[at] = m->documents[d].first_chunk + i;
            w->gone[at] = m->documents[d].deleted;
        }
}

static void words_free(struct words *w) {
    lexical_corpus_free(&w->corpus);
    free(w->id);
    free(w->gone);
    free(w->scores);
}

/* Each hit has the score of its chunk. Chunks with the same ids are in order. No chunk is better than the last hit, and
 * none with its ids has a smaller number. */
static const char *words_compare(const struct words *w, const struct store_hit *hits, const struct store_range *e) {
    static const double rounding = 2e-5;
    int64_t wanted = 0, found = 0, last = -1;
    for (int64_t i = 0; i < w->corpus.n; i++)
        wanted += w->scores[i] > 0 && !w->gone[i] && !excluded(e, w->id[i]);
    for (int j = 0; j < K && hits[j].chunk >= 0; j++, found++) {
        const int64_t before = last;
        for (last = 0; last < w->corpus.n && w->id[last] != hits[j].chunk;)
            last++;
        SEQUENCE_WANT(last < w->corpus.n && !w->gone[last] && !excluded(e, w->id[last]));
        SEQUENCE_WANT(fabs((double)hits[j].score - w->scores[last]) <= rounding * (1 + w->scores[last]));
        w->scores[last] = -w->scores[last]; /* found */
        if (j == 0) continue;
        const bool same = memcmp(w->corpus.ids[before], w->corpus.ids[last], sizeof w->corpus.ids[last]) == 0;
        SEQUENCE_WANT(hits[j - 1].score >= hits[j].score && (!same || hits[j - 1].chunk < hits[j].chunk));
    }
    SEQUENCE_WANT(found == (wanted < K ? wanted : K));
    for (int64_t i = 0; i < w->corpus.n && found == K; i++) {
        if (w->scores[i] <= 0 || w->gone[i] || excluded(e, w->id[i])) continue;
        SEQUENCE_WANT(w->scores[i] <= (double)hits[K - 1].score * (1 + rounding) + rounding);
        const bool same = memcmp(w->corpus.ids[i], w->corpus.ids[last], sizeof w->corpus.ids[i]) == 0;
        SEQUENCE_WANT(!same || w->id[i] > w->id[last]);
    }
    return NULL;
}

static const char *words_query(struct words *w, const struct lexical *x, struct store_view *v, struct rng *r) {
    int32_t ids[QUERY];
    struct store_hit hits[K];
    if (w->corpus.n == 0) return NULL;
    const int64_t from = (int64_t)rng_below(r, (uint64_t)w->corpus.n);
    for (int i = 0; i < QUERY; i++)
        ids[i] = i < 6 ? w->corpus.ids[from][i % w->corpus.lengths[from]]
                       : (int32_t)rng_below(r, (uint64_t)sequence_vocab());
    const struct lexical_query query = {ids, 1 + (int)rng_below(r, QUERY)};
    const struct store_range e = {w->id[from] - 2, w->id[from] + (int64_t)rng_below(r, 9)};
    const struct lexical_search how = {.k = K,
                                       .pair_weight = rng_below(r, 2) ? LEXICAL_PAIR_WEIGHT : 0,
                                       .counted = rng_below(r, 2),
                                       .exclude = &e,
                                       .absent = store_view_dropped(v)};
    SEQUENCE_WANT_OK(lexical_search(x, hits, &query, 1, &how));
    lexical_fixture_scores(w->scores, &w->corpus, &query, &how);
    return words_compare(w, hits, &e);
}

const char *sequence_compare_words(const struct sequence *m, struct store_view *v, struct rng *r) {
    const struct lexical *x;
    struct lexical_info info;
    const enum status s = store_view_lexical(&x, v);
    if (!m->lexical) {
        SEQUENCE_WANT(s == STATUS_UNSUPPORTED);
        return NULL;
    }
    SEQUENCE_WANT_OK(s);
    lexical_info(x, &info);
    SEQUENCE_WANT(info.chunks == sequence_indexed(m));
    struct words w;
    words_make(&w, m);
    const char *bad = words_query(&w, x, v, r);
    words_free(&w);
    return bad;
}
