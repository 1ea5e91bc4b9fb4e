/* test_store.c -- the promises of store.h on small stores: contents, search, journal, refusals. */
#include "base/half.h"
#include "tests/store_fixture.h"
#include <stdbool.h>

static char path_buffer[600];
static const char *path(const char *name) {
    snprintf(path_buffer, sizeof path_buffer, "%s/%s", test_folder(), name);
    return path_buffer;
}
static char dir_buffer[600];
static const char *new_dir(void) {
    static int number;
    snprintf(dir_buffer, sizeof dir_buffer, "%s/store-%d", test_folder(), number++);
    return dir_buffer;
}

/* Checks all that a view returns for documents [0, n) of the fixture, whatever shards they are in. */
static void check_contents(struct store_view *v, const struct store_writer_config *c, int64_t n) {
    int dim = c->fingerprint.dim;
    int64_t chunk = 0, tokens = 0;
    float *row = malloc((size_t)dim * 4), *want = malloc((size_t)dim * 4);
    for (int64_t d = 0; d < n; d++) {
        int32_t ids[FIXTURE_IDS_MAX];
        int64_t n_ids = (int64_t)fixture_ids(ids, d, c->fingerprint.vocab_size);
        struct store_document doc;
        CHECK_OK(store_view_document(v, &doc, d));
        char key[32];
        snprintf(key, sizeof key, "doc-%lld", (long long)d);
        CHECK_STR(doc.key, key);
        CHECK_STR(doc.source, "corpus.jsonl");
        CHECK_EQ(doc.id, d);
        CHECK_EQ(doc.first_chunk, chunk);
        CHECK_EQ(doc.tokens, n_ids);
        CHECK_EQ(doc.chunks, (n_ids + FIXTURE_CHUNK - 1) / FIXTURE_CHUNK);
        CHECK_EQ(doc.offset, d * 100);
        CHECK_EQ(doc.line, d + 1);
        CHECK_EQ(doc.bytes, 99);
        uint8_t hash[16];
        fixture_hash(hash, d);
        CHECK(memcmp(hash, doc.hash, 16) == 0);
        for (int64_t i = 0; i < doc.chunks; i++, chunk++) {
            struct store_chunk got;
            int32_t got_ids[FIXTURE_CHUNK];
            CHECK_OK(store_view_chunk(v, &got, got_ids, chunk));
            CHECK_EQ(got.id, chunk);
            CHECK_EQ(got.document, d);
            CHECK_EQ(got.in_document, i);
            CHECK_EQ(got.token_offset, i * FIXTURE_CHUNK);
            CHECK_EQ(got.n_tokens, i + 1 < doc.chunks ? FIXTURE_CHUNK : n_ids - i * FIXTURE_CHUNK);
            for (int j = 0; j < FIXTURE_CHUNK; j++)
                CHECK_EQ(got_ids[j], j < got.n_tokens ? ids[i * FIXTURE_CHUNK + j] : -1);
            const int64_t from = i * FIXTURE_CHUNK + 2; /* the same from the third id on, into the next chunk */
            CHECK_OK(store_view_ids(v, &got, got_ids, chunk, 2));
            CHECK(got.id == chunk && got.token_offset == from);
            for (int j = 0; j < FIXTURE_CHUNK; j++)
                CHECK_EQ(got_ids[j], from + j < n_ids ? ids[from + j] : -1);
            CHECK_EQ(got.n_tokens, from >= n_ids ? 0 : n_ids - from < FIXTURE_CHUNK ? n_ids - from : FIXTURE_CHUNK);
            enum { LONG = 2 * FIXTURE_CHUNK + 3 };
            int32_t passages[3 * LONG];
            memset(passages, 0x55, sizeof passages);
            CHECK_OK(store_view_passages(v, passages, LONG, (const int64_t[]){chunk, -1, doc.first_chunk}, 3));
            for (int j = 0; j < LONG; j++) {
                CHECK_EQ(passages[j], i * FIXTURE_CHUNK + j < n_ids ? ids[i * FIXTURE_CHUNK + j] : -1);
                CHECK_EQ(passages[LONG + j], 0x55555555);
                CHECK_EQ(passages[2 * LONG + j], j < n_ids ? ids[j] : -1);
            }
            CHECK_OK(store_view_landmark(v, row, chunk));
            fixture_landmark(want, dim, d, i);
            for (int j = 0; j < dim; j++)
                CHECK(row[j] == half_from_f16(half_to_f16(want[j])));
        }
        tokens += n_ids;
    }
    struct store_info info;
    store_view_info(v, &info);
    CHECK_EQ(info.chunks, chunk);
    CHECK_EQ(info.documents, n);
    CHECK_EQ(info.tokens, tokens);
    struct store_chunk none;
    int32_t ids[FIXTURE_CHUNK];
    struct store_document no_document;
    CHECK_FAILS(store_view_chunk(v, &none, ids, chunk), STATUS_NOT_FOUND, "there is no chunk");
    CHECK_FAILS(store_view_chunk(v, &none, ids, -1), STATUS_NOT_FOUND, "there is no chunk");
    CHECK_FAILS(store_view_passages(v, ids, FIXTURE_CHUNK, &chunk, 1), STATUS_NOT_FOUND, "there is no chunk");
    CHECK_FAILS(store_view_landmark(v, row, chunk), STATUS_NOT_FOUND, "there is no chunk");
    CHECK_FAILS(store_view_document(v, &no_document, n), STATUS_NOT_FOUND, "there is no document");
    free(row);
    free(want);
}

static void open_view(struct store **s, struct store_view **v, const char *dir) {
    CHECK_OK(store_open(s, dir));
    CHECK_OK(store_view_open(v, *s));
}

static void contents(int dim, int vocab, const char *index) {
    struct store_writer_config c = fixture_config(dim, vocab);
    const char *dir = new_dir();
    fixture_store(dir, &c, 0, 150, 40, index);
    struct store *s;
    struct store_view *v;
    open_view(&s, &v, dir);
    check_contents(v, &c, 150);
    struct store_info info;
    store_view_info(v, &info);
    CHECK_EQ(info.generation, 1);
    CHECK_EQ(info.shards, 4);
    CHECK_EQ(info.dropped_documents, 0);
    CHECK(info.landmark_bytes == (uint64_t)info.chunks * (uint64_t)dim * 2 + 4 * 96);
    CHECK(info.token_bytes == (uint64_t)info.tokens * (vocab > 65536 ? 4 : 2) + 4 * 96);
    CHECK(info.catalog_bytes > 4096);
    CHECK(memcmp(&info.fingerprint, &c.fingerprint, sizeof c.fingerprint) == 0);
    store_view_close(v);
    store_close(s);
}

/* The expected hits: every chunk's double-precision score, sorted by insertion. */
static void reference_search(struct store_view *v, struct store_hit *hits, const float *query, int dim, int64_t chunks,
                             int k, struct store_range exclude) {
    float *row = malloc((size_t)dim * 4);
    int n = 0;
    for (int64_t i = 0; i < chunks; i++) {
        if (i >= exclude.begin && i < exclude.end) continue;
        CHECK_OK(store_view_landmark(v, row, i));
        double sum = 0;
        for (int j = 0; j < dim; j++)
            sum += (double)row[j] * (double)query[j];
        float score = (float)(sum / sqrt(dim));
        int at = n < k ? n++ : k;
        if (at == k && !(score > hits[k - 1].score)) continue;
        if (at == k) at = k - 1;
        while (at > 0 && hits[at - 1].score < score) {
            hits[at] = hits[at - 1];
            at--;
        }
        hits[at] = (struct store_hit){i, score};
    }
    while (n < k)
        hits[n++] = (struct store_hit){-1, -INFINITY};
    free(row);
}

static void exact_search(struct threads *threads, int dim) {
    struct store_writer_config c = fixture_config(dim, 500);
    const char *dir = new_dir();
    fixture_store(dir, &c, 0, 900, 300, "exact");
    struct store *s;
    struct store_view *v;
    open_view(&s, &v, dir);
    struct store_info info;
    store_view_info(v, &info);
    CHECK_STR(info.index, "exact");
    CHECK_EQ(info.segments, 0);
    enum { Q = 70, K = 9 };
    float *queries = malloc((size_t)Q * (size_t)dim * 4);
    struct store_range ranges[Q];
    struct store_hit hits[Q * K], one[K], want[K];
    for (int q = 0; q < Q; q++) {
        fixture_vector(queries + (size_t)q * (size_t)dim, dim, 1000000 + (uint64_t)q, 1.0f);
        ranges[q] = (struct store_range){q * 11, q * 11 + (q % 3) * 40};
    }
    for (int excluding = 0; excluding < 2; excluding++) {
        struct store_search how = {.k = K, .exact = true, .threads = threads, .exclude = excluding ? ranges : NULL};
        CHECK_OK(store_view_search(v, hits, queries, Q, &how));
        for (int q = 0; q < Q; q++) {
            struct store_range range = excluding ? ranges[q] : (struct store_range){0, 0};
            const float *query = queries + (size_t)q * (size_t)dim;
            reference_search(v, want, query, dim, info.chunks, K, range);
            for (int i = 0; i < K; i++)
                CHECK(fabsf(hits[q * K + i].score - want[i].score) < 1e-4f);
            /* A query has the same bits alone, in a batch, with and without threads. */
            struct store_search alone = {.k = K, .exact = true, .exclude = excluding ? &range : NULL};
            CHECK_OK(store_view_search(v, one, query, 1, &alone));
            CHECK(fixture_same_hits(one, hits + q * K, K));
            for (int i = 0; i < K; i++) {
                CHECK(one[i].chunk < range.begin || one[i].chunk >= range.end);
                if (i)
                    CHECK(one[i - 1].score > one[i].score ||
                          (one[i - 1].score == one[i].score && one[i - 1].chunk < one[i].chunk));
            }
        }
    }
    /* k larger than the number of chunks; everything excluded. */
    struct store_hit *many = malloc((size_t)(info.chunks + 5) * sizeof *many);
    struct store_search all = {.k = (int)info.chunks + 5};
    CHECK_OK(store_view_search(v, many, queries, 1, &all));
    CHECK(many[info.chunks - 1].chunk >= 0);
    for (int i = 0; i < 5; i++)
        CHECK_EQ(many[info.chunks + i].chunk, -1);
    struct store_range everything = {0, info.chunks};
    struct store_search nothing = {.k = 1, .exclude = &everything};
    CHECK_OK(store_view_search(v, many, queries, 1, &nothing));
    CHECK_EQ(many[0].chunk, -1);
    free(many);
    free(queries);
    store_view_close(v);
    store_close(s);
}

/* Recall against the scan, exclusion, several segments; scores equal to the scan's. */
static void approximate_search(struct threads *threads, const char *index, double recall_wanted) {
    enum { DIM = 32, Q = 60, K = 8 };
    struct store_writer_config c = fixture_config(DIM, 500);
    const char *dir = new_dir();
    fixture_store(dir, &c, 0, 1500, 400, index);
    fixture_store(dir, &c, 1500, 1800, 400, "auto"); /* auto keeps the user's kind */
    fixture_store(dir, &c, 1800, 1850, 400, index);
    struct store *s;
    struct store_view *v;
    open_view(&s, &v, dir);
    struct store_info info;
    store_view_info(v, &info);
    CHECK_STR(info.index, index);
    CHECK_EQ(info.generation, 3);
    CHECK_EQ(info.segments, 3);
    CHECK(info.index_bytes > 0);
    check_contents(v, &c, 1850);
    static float queries[Q * DIM];
    static struct store_hit exact[Q * K], hits[Q * K], filtered[Q * K];
    struct store_range ranges[Q];
    for (int q = 0; q < Q; q++)
        fixture_vector(queries + q * DIM, DIM, (uint64_t)(q * 37), 0.7f);
    struct store_search scan = {.k = K, .exact = true, .threads = threads}, by_index = {.k = K, .threads = threads};
    CHECK_OK(store_view_search(v, exact, queries, Q, &scan));
    CHECK_OK(store_view_search(v, hits, queries, Q, &by_index));
    int found = 0;
    for (int q = 0; q < Q; q++) {
        for (int i = 0; i < K; i++)
            for (int j = 0; j < K; j++)
                if (hits[q * K + i].chunk == exact[q * K + j].chunk) {
                    found++;
                    CHECK(hits[q * K + i].score == exact[q * K + j].score);
                }
        ranges[q] = (struct store_range){exact[q * K].chunk - 20, exact[q * K].chunk + 20};
        if (q % 5 == 4) ranges[q].end = ranges[q].begin;
    }
    double recall = found / (double)(Q * K);
    printf("%s: recall@%d %.3f\n", index, K, recall);
    CHECK(recall >= recall_wanted);
    by_index.exclude = ranges;
    CHECK_OK(store_view_search(v, filtered, queries, Q, &by_index));
    for (int q = 0; q < Q; q++)
        for (int i = 0; i < K; i++) {
            CHECK(filtered[q * K + i].chunk >= 0);
            CHECK(filtered[q * K + i].chunk < ranges[q].begin || filtered[q * K + i].chunk >= ranges[q].end);
            if (q % 5 == 4) CHECK(filtered[q * K + i].chunk == hits[q * K + i].chunk);
        }
    /* With all lists and many candidates only the codes can lose a hit. */
    struct store_search wide = {.k = K, .nprobe = 1 << 20, .candidates = 400};
    CHECK_OK(store_view_search(v, hits, queries, Q, &wide));
    int best = 0;
    for (int q = 0; q < Q; q++)
        best += hits[q * K].chunk == exact[q * K].chunk;
    CHECK(best >= (strncmp(index, "HNSW", 4) == 0 ? Q * 9 / 10 : Q)); /* a graph may not reach every vector */
    store_view_close(v);
    store_close(s);
}

static void journal_and_duplicates(void) {
    struct store_writer_config c = fixture_config(8, 100);
    const char *dir = new_dir();
    struct store_writer *w, *second;
    CHECK_OK(store_writer_open(&w, dir, &c, true));
    CHECK_FAILS(store_writer_open(&second, dir, &c, true), STATUS_BUSY, "another writer");
    struct store_journal j;
    CHECK_OK(store_writer_journal(w, &j));
    CHECK_EQ(j.shards + j.documents + j.chunks + j.duplicates + (int64_t)j.cursor_bytes, 0);
    CHECK_OK(fixture_shard(w, &c, 0, 10));
    /* A document is a duplicate if the open shard or the journal has it. */
    bool duplicate;
    CHECK_OK(store_shard_begin(w));
    CHECK_OK(fixture_add(w, &c, 5, &duplicate));
    CHECK(duplicate);
    CHECK_EQ(store_shard_chunks(w), 0);
    CHECK_OK(fixture_add(w, &c, 10, &duplicate));
    CHECK(!duplicate);
    CHECK_OK(fixture_add(w, &c, 10, &duplicate));
    CHECK(duplicate);
    CHECK_OK(store_shard_seal(w, "cursor", 6));
    CHECK_OK(store_writer_journal(w, &j));
    CHECK_EQ(j.shards, 2);
    CHECK_EQ(j.documents, 11);
    CHECK_EQ(j.duplicates, 2);
    CHECK(j.cursor_bytes == 6 && memcmp(j.cursor, "cursor", 6) == 0);
    store_writer_close(w);
    /* Not published: a reader sees nothing. */
    struct store *s;
    struct store_view *v;
    CHECK_OK(store_open(&s, dir));
    CHECK_FAILS(store_view_open(&v, s), STATUS_NOT_FOUND, "nothing is published");
    store_close(s);
    /* After a resumption the journal exists; after a drop it does not, and its documents are new again. */
    CHECK_OK(store_writer_open(&w, dir, &c, false));
    CHECK_OK(store_writer_journal(w, &j));
    CHECK_EQ(j.documents, 11);
    CHECK_OK(store_writer_drop_journal(w));
    CHECK_OK(store_writer_journal(w, &j));
    CHECK_EQ(j.shards + j.documents + j.chunks + j.duplicates + (int64_t)j.cursor_bytes, 0);
    CHECK_FAILS(store_writer_publish(w, &(struct store_publish){0}), STATUS_INVALID, "nothing to publish");
    CHECK_OK(fixture_shard(w, &c, 0, 12));
    CHECK_OK(store_writer_publish(w, &(struct store_publish){0}));
    CHECK_OK(store_writer_publish(w, &(struct store_publish){0})); /* again: makes no new generation */
    CHECK_OK(fixture_shard(w, &c, 12, 20));
    CHECK_OK(store_writer_drop_journal(w));
    store_writer_close(w);
    open_view(&s, &v, dir);
    struct store_info info;
    store_view_info(v, &info);
    CHECK_EQ(info.generation, 1);
    check_contents(v, &c, 12);
    store_view_close(v);
    store_close(s);
    fixture_verify(dir, true);
}

static void refusals(void) {
    struct store_writer_config c = fixture_config(8, 100), other = c;
    const char *dir = new_dir();
    struct store *s;
    struct store_writer *w;
    CHECK_FAILS(store_open(&s, dir), STATUS_NOT_FOUND, "no store here");
    CHECK_FAILS(store_writer_open(&w, dir, &c, false), STATUS_NOT_FOUND, "no store here");
    CHECK_OK(store_writer_open(&w, dir, &c, true));
    bool duplicate;
    int32_t ids[3] = {1, 2, 100};
    struct store_new_document d = {.ids = ids, .n_ids = 3, .source = "s", .key = "k"};
    CHECK_OK(store_shard_begin(w));
    CHECK_FAILS(store_shard_document(w, &d, &duplicate), STATUS_INVALID, "outside the vocabulary");
    d.n_ids = 0;
    CHECK_FAILS(store_shard_document(w, &d, &duplicate), STATUS_INVALID, "without tokens");
    d.n_ids = 2;
    CHECK_OK(store_shard_document(w, &d, &duplicate)); /* the refused document left nothing */
    float row[8] = {0, 1, 2, 3, 4, 5, 6, NAN}, good[8] = {1};
    CHECK_FAILS(store_shard_landmarks(w, row, 1), STATUS_INVALID, "fp16");
    CHECK_FAILS(store_shard_seal(w, NULL, 0), STATUS_INVALID, "0 landmarks");
    CHECK_OK(store_shard_begin(w));
    CHECK_OK(store_shard_document(w, &d, &duplicate));
    CHECK(!duplicate);
    CHECK_OK(store_shard_landmarks(w, good, 1));
    CHECK_OK(store_shard_seal(w, NULL, 0));
    const char *bad[] = {"nonsense", "IVF4096,SQ8", "IVF1,PQ5np", "PQ16x4fs", "IVF1,RaBitQ"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK_FAILS(store_writer_publish(w, &(struct store_publish){.index = bad[i]}), STATUS_INVALID, bad[i]);
    CHECK_OK(store_writer_publish(w, &(struct store_publish){0}));
    store_writer_close(w);
    other.fingerprint.dim = 16;
    CHECK_FAILS(store_writer_open(&w, dir, &other, false), STATUS_MISMATCH,
                "built with landmark dimensions 8, but the model has 16");
    other = c;
    other.fingerprint.encoder[3] = 0;
    CHECK_FAILS(store_writer_open(&w, dir, &other, false), STATUS_MISMATCH, "encoder weights e1e1e1e1");
    CHECK_OK(store_check_fingerprint("a", &c.fingerprint, "b", &c.fingerprint));
    /* A folder with other files is refused. */
    char note[700];
    const char *home = new_dir();
    mkdir(home, 0777);
    snprintf(note, sizeof note, "%s/letter.txt", home);
    fclose(fopen(note, "w"));
    CHECK_FAILS(store_writer_open(&w, home, &c, true), STATUS_INVALID, "letter.txt is there");
    (void)path;
}

/* A view does not change with an addition or a replaced index. */
static void view_keeps_its_generation(void) {
    struct store_writer_config c = fixture_config(16, 100);
    const char *dir = new_dir();
    fixture_store(dir, &c, 0, 300, 100, "IVF8,SQ8");
    struct store *s;
    struct store_view *v, *newer;
    open_view(&s, &v, dir);
    float query[16];
    fixture_vector(query, 16, 3, 0.5f);
    struct store_hit before[5], after[5];
    struct store_search how = {.k = 5};
    CHECK_OK(store_view_search(v, before, query, 1, &how));
    fixture_store_elsewhere(dir, &c, 300, 400, 100, "IVF8,SQ8");
    fixture_store_elsewhere(dir, &c, 400, 500, 100, "IVF4,SQfp16");
    fixture_store_elsewhere(dir, &c, 500, 510, 100, "auto"); /* the next writer removed the replaced files */
    CHECK_OK(store_view_search(v, after, query, 1, &how));
    CHECK(fixture_same_hits(before, after, 5));
    check_contents(v, &c, 300);
    CHECK_OK(store_view_open(&newer, s));
    check_contents(newer, &c, 510);
    struct store_info info;
    store_view_info(newer, &info);
    CHECK_STR(info.index, "IVF4,SQfp16");
    CHECK_EQ(info.generation, 4);
    store_view_close(newer);
    store_view_close(v);
    store_close(s);
}

/* Many small additions do not make many segments. */
static void segments_stay_few(void) {
    struct store_writer_config c = fixture_config(8, 100);
    const char *dir = new_dir();
    for (int64_t i = 0; i < 32; i++)
        fixture_store(dir, &c, i * 20, i * 20 + 20, 20, "IVF4,SQ8");
    struct store *s;
    struct store_view *v;
    open_view(&s, &v, dir);
    struct store_info info;
    store_view_info(v, &info);
    CHECK(info.segments <= 7);
    check_contents(v, &c, 640);
    store_view_close(v);
    store_close(s);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    struct threads *threads;
    CHECK_OK(threads_create(&threads, 2));
    contents(16, 1000, "auto");
    contents(12, 70000, "Flat"); /* ids of 4 bytes, a dimension that is no multiple of the vector width */
    exact_search(threads, 32);
    exact_search(NULL, 19);
    approximate_search(threads, "IVF16,SQ8", 0.95);
    approximate_search(threads, "IVF16_HNSW32,SQfp16", 0.95);
    approximate_search(threads, "PCA24,IVF8,SQ8", 0.9);
    approximate_search(threads, "IVF8,PQ16x4np", 0.7);
    approximate_search(threads, "HNSW16,SQ8", 0.9);
    approximate_search(threads, "SQ8", 0.98);
    journal_and_duplicates();
    refusals();
    view_keeps_its_generation();
    segments_stay_few();
    threads_free(threads);
    return test_done();
}
