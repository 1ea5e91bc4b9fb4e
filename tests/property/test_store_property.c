/* test_store_property.c -- a store against a model of it in memory, under random calls.
 *
 * Calls: begin, document (also repeated ones), seal, discard, drop the journal, publish with some index, close and open
 * again, and compare: every chunk, document and landmark, and exact search, must be that of the model. Then two other
 * processes read while the writer continues: each view must be a complete generation. */
#include "base/half.h"
#include "tests/store_fixture.h"
#include <stdbool.h>

enum { DIM = 8, VOCAB = 150, DOCUMENTS_MAX = 4000, POOL = 600, STEPS = 1500, K = 6 };

struct model {
    int64_t documents[DOCUMENTS_MAX]; /* fixture numbers, in the order of the store's ids */
    int64_t published, sealed, open;  /* numbers of documents: published <= sealed <= open */
    int64_t duplicates_published, duplicates_sealed, duplicates_open;
    bool has[POOL];
    bool in_shard;
};

static int64_t chunks_of(int64_t document) {
    int32_t ids[FIXTURE_IDS_MAX];
    return ((int64_t)fixture_ids(ids, document, VOCAB) + FIXTURE_CHUNK - 1) / FIXTURE_CHUNK;
}

static void forget(struct model *m, int64_t from) {
    for (int64_t i = from; i < m->open; i++)
        m->has[m->documents[i]] = false;
    m->open = from;
}

static void check_search(struct store_view *v, const struct store_info *info, const float *rows) {
    float query[DIM];
    struct store_hit hits[K], scan[K];
    fixture_vector(query, DIM, 77, 1.0f);
    struct store_search how = {.k = K, .nprobe = 1 << 20, .candidates = (int)info->chunks},
                        exact = {.k = K, .exact = true};
    CHECK_OK(store_view_search(v, hits, query, 1, &how)); /* every list: must equal the scan */
    CHECK_OK(store_view_search(v, scan, query, 1, &exact));
    CHECK(fixture_same_hits(hits, scan, K));
    float best = -INFINITY;
    for (int64_t c = 0; c < info->chunks; c++) {
        double sum = 0;
        for (int i = 0; i < DIM; i++)
            sum += (double)rows[c * DIM + i] * (double)query[i];
        if ((float)(sum / sqrt(DIM)) > best) best = (float)(sum / sqrt(DIM));
    }
    if (info->chunks) CHECK(fabsf(hits[0].score - best) < 1e-5f);
}

static void compare_store(const char *dir, const struct model *m) {
    struct store *s;
    struct store_view *v;
    CHECK_OK(store_open(&s, dir));
    if (m->published == 0) {
        CHECK_FAILS(store_view_open(&v, s), STATUS_NOT_FOUND, "nothing is published");
        store_close(s);
        return;
    }
    CHECK_OK(store_view_open(&v, s));
    struct store_info info;
    store_view_info(v, &info);
    CHECK_EQ(info.documents, m->published);
    CHECK_EQ(info.duplicates, m->duplicates_published);
    float *rows = malloc((size_t)info.chunks * DIM * sizeof *rows);
    int64_t chunk = 0;
    for (int64_t d = 0; d < m->published; d++) {
        int64_t number = m->documents[d], n = chunks_of(number);
        int32_t ids[FIXTURE_IDS_MAX], got[FIXTURE_CHUNK];
        size_t n_ids = fixture_ids(ids, number, VOCAB);
        struct store_document doc;
        CHECK_OK(store_view_document(v, &doc, d));
        CHECK_EQ(doc.first_chunk, chunk);
        CHECK_EQ(doc.line, number + 1);
        for (int64_t i = 0; i < n; i++, chunk++) {
            struct store_chunk c;
            float want[DIM];
            CHECK_OK(store_view_chunk(v, &c, got, chunk));
            CHECK_EQ(c.document, d);
            CHECK_EQ(c.n_tokens, i + 1 < n ? FIXTURE_CHUNK : (int64_t)n_ids - i * FIXTURE_CHUNK);
            CHECK(memcmp(got, ids + i * FIXTURE_CHUNK, (size_t)c.n_tokens * sizeof *got) == 0);
            CHECK_OK(store_view_landmark(v, rows + chunk * DIM, chunk));
            fixture_landmark(want, DIM, number, i);
            fixture_round(want, DIM);
            CHECK(memcmp(rows + chunk * DIM, want, sizeof want) == 0);
        }
    }
    CHECK_EQ(chunk, info.chunks);
    check_search(v, &info, rows);
    free(rows);
    store_view_close(v);
    store_close(s);
}

static void add_document(struct store_writer *w, const struct store_writer_config *c, struct model *m, struct rng *r) {
    int64_t number = (int64_t)rng_below(r, POOL);
    bool duplicate;
    CHECK_OK(fixture_add(w, c, number, &duplicate));
    CHECK_EQ(duplicate, m->has[number]);
    if (duplicate) {
        m->duplicates_open++;
        return;
    }
    m->has[number] = true;
    m->documents[m->open++] = number;
}

static void end_shard(struct store_writer *w, struct model *m, bool seal) {
    if (!m->in_shard) return;
    m->in_shard = false;
    if (seal) {
        CHECK_OK(store_shard_seal(w, &m->open, sizeof m->open));
        m->sealed = m->open;
        m->duplicates_sealed = m->duplicates_open;
    } else {
        store_shard_discard(w);
        forget(m, m->sealed);
        m->duplicates_open = m->duplicates_sealed;
    }
}

static void publish(struct store_writer *w, struct model *m, struct rng *r) {
    static const char *const kinds[] = {"auto", "auto", "exact", "IVF4,SQ8", "IVF2,Flat", "Flat"};
    end_shard(w, m, true);
    struct store_publish how = {.index = kinds[rng_below(r, ARRAY_LEN(kinds))], .seed = 3, .max_ram = 64 << 20};
    int64_t chunks = 0;
    for (int64_t i = 0; i < m->sealed; i++)
        chunks += chunks_of(m->documents[i]);
    enum status s = store_writer_publish(w, &how);
    if (chunks < 4) return (void)(s == STATUS_OK); /* too few chunks to train some kinds of index */
    if (s != STATUS_OK) fprintf(stderr, "%s: %s\n", how.index, status_message());
    CHECK(s == STATUS_OK);
    m->published = m->sealed;
    m->duplicates_published = m->duplicates_sealed;
}

static void random_calls(const struct store_writer_config *c) {
    static struct model m;
    struct rng r = rng_make(test_seed(), 1);
    char dir[600];
    snprintf(dir, sizeof dir, "%s/store", test_folder());
    struct store_writer *w;
    CHECK_OK(store_writer_open(&w, dir, c, true));
    for (int i = 0; i < 5; i++) { /* enough chunks for every kind of index from the start */
        if (!m.in_shard) CHECK_OK(store_shard_begin(w));
        m.in_shard = true;
        add_document(w, c, &m, &r);
    }
    for (int step = 0; step < STEPS; step++) {
        uint64_t what = rng_below(&r, 40);
        if (what < 28) {
            if (!m.in_shard) CHECK_OK(store_shard_begin(w));
            m.in_shard = true;
            add_document(w, c, &m, &r);
        } else if (what < 32)
            end_shard(w, &m, true);
        else if (what < 33)
            end_shard(w, &m, false);
        else if (what < 34) {
            end_shard(w, &m, false);
            CHECK_OK(store_writer_drop_journal(w));
            forget(&m, m.published);
            m.sealed = m.published;
            m.duplicates_open = m.duplicates_sealed = m.duplicates_published;
        } else if (what < 36) {
            if (m.open > 2) publish(w, &m, &r);
        } else {
            end_shard(w, &m, what == 36);
            store_writer_close(w);
            compare_store(dir, &m);
            CHECK_OK(store_writer_open(&w, dir, c, false));
            struct store_journal j;
            CHECK_OK(store_writer_journal(w, &j));
            CHECK_EQ(j.documents, m.sealed - m.published);
            CHECK_EQ(j.duplicates, m.duplicates_sealed - m.duplicates_published);
        }
    }
    publish(w, &m, &r);
    store_writer_close(w);
    compare_store(dir, &m);
    fixture_verify(dir, true);
    printf("%lld documents, %lld duplicates\n", (long long)m.published, (long long)m.duplicates_published);
}

/* ---- readers beside the writer ---- */

enum { ROUNDS = 12, PER_ROUND = 30 };

/* Opens view after view until it sees the last round's generation; each view must have a whole number of rounds. */
static int reader(const char *dir) {
    int64_t last = 0;
    for (int views = 0; last < ROUNDS * PER_ROUND; views++) {
        struct store *s;
        struct store_view *v;
        if (store_open(&s, dir) != STATUS_OK) continue;
        enum status status = store_view_open(&v, s);
        if (status == STATUS_OK) {
            struct store_info info;
            store_view_info(v, &info);
            CHECK(info.documents >= last && info.documents % PER_ROUND == 0);
            last = info.documents;
            float query[DIM];
            struct store_hit hits[K];
            fixture_vector(query, DIM, (uint64_t)views, 1.0f);
            CHECK_OK(store_view_search(v, hits, query, 1, &(struct store_search){.k = K}));
            for (int i = 0; i < K; i++)
                CHECK(hits[i].chunk >= 0 && hits[i].chunk < info.chunks);
            struct store_document d;
            CHECK_OK(store_view_document(v, &d, info.documents - 1));
            CHECK_EQ(d.first_chunk + d.chunks, info.chunks);
            store_view_close(v);
        } else {
            CHECK_EQ(status, STATUS_NOT_FOUND);
        }
        store_close(s);
    }
    return 0;
}

static void readers_beside_writer(const struct store_writer_config *c) {
    char dir[600];
    snprintf(dir, sizeof dir, "%s/beside", test_folder());
    pid_t readers[2];
    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        readers[i] = fork();
        CHECK(readers[i] >= 0);
        if (readers[i] == 0) _exit(reader(dir));
    }
    for (int64_t round = 0; round < ROUNDS; round++)
        fixture_store(dir, c, round * PER_ROUND, (round + 1) * PER_ROUND, 10,
                      round % 3 == 2 ? "IVF3,SQ8" : "IVF2,SQfp16");
    for (int i = 0; i < 2; i++) {
        int status;
        CHECK(waitpid(readers[i], &status, 0) == readers[i]);
        CHECK_EQ(status, 0);
    }
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    struct store_writer_config c = fixture_config(DIM, VOCAB);
    random_calls(&c);
    readers_beside_writer(&c);
    return test_done();
}
