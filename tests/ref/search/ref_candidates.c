/* ref_candidates.c -- see ref_candidates.h. */
#include "tests/ref/search/ref_candidates.h"

/* ---- a case ---- */

static int some(struct rng *rng, int n) {
    return (int)rng_below(rng, (uint64_t)n);
}

/* Documents of one to four chunks. Most ids are of the vocabulary. */
static void make_documents(struct candidates_case *c, struct rng *rng, int vocab) {
    const int rows = c->of.chunk_rows;
    int before = 0, begin = 0, chunks = 0;
    for (int d = 0; begin < c->of.chunks; d++, before = begin - chunks) {
        const bool copy = d > 0 && begin + chunks <= c->of.chunks && some(rng, 3) == 0;
        const int left = (int)c->of.chunks - begin;
        if (!copy) chunks = 1 + some(rng, left < 4 ? left : 4);
        const int length = chunks * rows - some(rng, rows), deleted = some(rng, 20) == 0;
        for (int i = 0; i < chunks * rows; i++) {
            const int32_t id = some(rng, 200) ? some(rng, vocab) : vocab + 3, at = begin * rows + i;
            c->ids[at] = copy ? c->ids[before * rows + i] : i < length && !deleted ? id : -1;
        }
        for (int i = 0; i < chunks; i++)
            c->document[begin + i] = d;
        begin += chunks;
    }
    for (int64_t r = 0; r < c->of.chunks * rows; r++) {
        const int64_t next = r + 1, of = next / rows;
        const bool has = of < c->of.chunks && c->document[of] == c->document[r / rows];
        c->value[r] = has && c->ids[r] >= 0 ? c->ids[next] : -1;
        if (r % rows == 0) c->first_id[r / rows] = c->ids[r];
    }
}

/* Pieces of documents, single ids, and some that are no words. */
static void make_query(struct candidates_case *c, struct rng *rng, int vocab) {
    for (int at = 0; at < c->c.query_ids;) {
        int64_t from = (int64_t)rng_below(rng, (uint64_t)(c->of.chunks * c->of.chunk_rows));
        for (int piece = some(rng, 9); piece >= 0 && at < c->c.query_ids; piece--, from++)
            c->query[at++] = piece && from < c->of.chunks * c->of.chunk_rows ? c->ids[from] : some(rng, vocab + 2) - 1;
    }
}

static void make_found(struct candidates_case *c, struct rng *rng) {
    int64_t *all = malloc((size_t)c->of.chunks * sizeof *all);
    const int n = c->c.n, found = n - some(rng, 1 + n / 4);
    for (int i = 0; i < c->of.chunks; i++)
        all[i] = i;
    for (int i = 0; i < n; i++) { /* different ones; neighbours of equal content are often both there */
        const int64_t other = i + some(rng, (int)c->of.chunks - i), chunk = all[other];
        all[other] = all[i], all[i] = chunk;
        c->chunk[i] = i < found && (i == 0 || some(rng, 30)) ? chunk : -1;
        c->score[i] = c->chunk[i] < 0 ? -INFINITY : (float)some(rng, 3) * 7.3F;
        c->landmark[i] = c->chunk[i] < 0 || some(rng, 9) == 0 ? -INFINITY : ((float)some(rng, 5) - 2) * 0.013F;
    }
    free(all);
}

/* ---- features ---- */

void candidates_case_ids(const struct candidates_case *c, int32_t *ids, int i) {
    const int64_t chunk = c->chunk[i], rows = c->of.chunk_rows, all = c->of.chunks * rows;
    for (int64_t j = 0; j < 2 * rows; j++) {
        const int64_t at = chunk * rows + j;
        ids[j] = at < all && c->document[at / rows] == c->document[chunk] ? c->ids[at] : -1;
    }
}

/* Of all candidates: those of words by candidate_features, which tests/unit/kernels compares with plain loops. */
static void make_features(const struct candidates_case *c) {
    struct candidate_query q = {.vocab = c->c.terms.vocab, .words = calloc((size_t)c->c.terms.vocab, 1)};
    candidate_query_set(&q, c->query, c->c.query_ids, c->idf);
    for (int i = 0; i < c->c.n; i++) {
        int32_t ids[2 * CANDIDATES_ROWS_MAX];
        if (c->chunk[i] < 0) continue;
        candidates_case_ids(c, ids, i);
        candidate_features(c->features[i], &q, ids, c->of.chunk_rows, 2 * c->of.chunk_rows);
        c->features[i][CANDIDATE_SCORE] = c->score[i];
        if (c->c.landmark && c->landmark[i] > -INFINITY)
            c->features[i][CANDIDATE_COSINE] = c->landmark[i] * c->c.terms.landmark_by;
    }
    free(q.words);
}

struct candidates_case candidates_case_make(struct rng *rng, int rows, int n, int vocab, int query_ids, bool landmark) {
    struct candidates_case c = {.of = {.chunks = n + some(rng, 40), .chunk_rows = rows}};
    const size_t chunks = (size_t)c.of.chunks, all = chunks * (size_t)rows, found = (size_t)n;
    c.chunk = malloc(found * sizeof *c.chunk), c.score = malloc(found * sizeof *c.score);
    c.landmark = malloc(found * sizeof *c.landmark), c.features = malloc(found * sizeof *c.features);
    c.query = malloc((size_t)(query_ids + 1) * sizeof *c.query), c.idf = malloc((size_t)vocab * sizeof *c.idf);
    c.ids = malloc(all * sizeof *c.ids), c.value = malloc(all * sizeof *c.value);
    c.first_id = malloc(chunks * sizeof *c.first_id), c.document = malloc(chunks * sizeof *c.document);
    for (int id = 0; id < vocab; id++)
        c.idf[id] = 10 * rng_uniform(rng);
    for (int f = 0; f < CANDIDATE_FEATURES; f++)
        c.weights[f] = (double)rng_normal(rng);
    c.c.n = n, c.c.query_ids = query_ids;
    c.c.terms = (struct candidate_terms){.vocab = vocab, .landmark_by = sqrtf(384)};
    make_documents(&c, rng, vocab);
    make_query(&c, rng, vocab);
    make_found(&c, rng);
    c.c.chunk = c.chunk, c.c.score = c.score, c.c.landmark = landmark ? c.landmark : NULL;
    c.c.query = c.query, c.c.terms.idf = c.idf;
    c.of.value = c.value, c.of.first_id = c.first_id;
    make_features(&c);
    return c; /* the caller sets terms.weights and of, whose addresses change with the copy */
}

void candidates_case_free(struct candidates_case *c) {
    free(c->chunk), free(c->score), free(c->landmark), free(c->features), free(c->query), free(c->idf);
    free(c->ids), free(c->value), free(c->first_id), free(c->document);
}

/* ---- results ---- */

static double sum_of(const struct candidates_case *c, int i, double *size) {
    double sum = 0;
    for (int f = 0; f < CANDIDATE_FEATURES; f++) {
        sum += c->weights[f] * (double)c->features[i][f];
        *size += fabs(c->weights[f] * (double)c->features[i][f]);
    }
    return sum;
}

/* Candidate a may be before b. */
static void check_before(const struct candidates_case *c, int a, int b) {
    double size = 1;
    const double x = sum_of(c, a, &size), y = sum_of(c, b, &size);
    CHECK(x >= y - 1e-6 * size);
    if (memcmp(c->features[a], c->features[b], sizeof *c->features) == 0) CHECK(a < b);
}

void candidates_case_check(const struct candidates_case *c, const int64_t *chunk, const float *score, int k) {
    int of_chunks = 0, kept = 0, before = -1;
    bool *taken = calloc((size_t)c->c.n, sizeof *taken);
    for (int i = 0; i < c->c.n; i++)
        of_chunks += c->chunk[i] >= 0;
    for (; kept < k && chunk[kept] >= 0; kept++) {
        int at = 0;
        while (at < c->c.n && c->chunk[at] != chunk[kept])
            at++;
        CHECK(at < c->c.n && !taken[at] && score[kept] == c->score[at]);
        taken[at] = true;
        if (before >= 0) check_before(c, before, at);
        before = at;
    }
    CHECK_EQ(kept, of_chunks < k ? of_chunks : k);
    for (int i = 0; i < c->c.n; i++)
        if (c->chunk[i] >= 0 && !taken[i]) check_before(c, before, i);
    for (; kept < k; kept++)
        CHECK(chunk[kept] == -1 && score[kept] == -INFINITY);
    free(taken);
}
