/* test_library_store.c -- drt.h: building, adding and resuming; documents, chunks, texts, samples, mapped landmarks. */
#include "base/half.h"
#include "tests/library_fixture.h"
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

enum { DIM = 32, CHUNK = 63 };

static void infos(struct library_world *w) {
    struct drt_store_info info = {.size = sizeof info};
    struct drt_store *again = NULL, *view = NULL;
    CALL_OK(drt_store_info(w->store, &info));
    CHECK(info.documents == LIBRARY_DOCUMENTS && info.chunks > 2 * LIBRARY_DOCUMENTS && info.generation == 1);
    CHECK(info.dim == DIM && info.chunk == CHUNK && info.vocab_size == 271 && info.shards > 1 && !info.dropped_chunks);
    CHECK_STR(info.path, w->store_path);
    CHECK_STR(info.index, "exact");
    CALL_FAILS(drt_store_info(NULL, &info), DRT_INVALID, "store is NULL");
    CALL_FAILS(drt_store_info(w->store, NULL), DRT_INVALID, "out is NULL");
    CALL_FAILS(drt_store_open(&again, w->store_path), DRT_BUSY, "open");
    CALL_FAILS(drt_store_open(&again, "/no/store"), DRT_NOT_FOUND, "/no/store");
    CALL_FAILS(drt_store_open(NULL, w->store_path), DRT_INVALID, "out is NULL");
    CALL_FAILS(drt_store_open(&again, NULL), DRT_INVALID, "path is NULL");
    CALL_OK(drt_store_view(&view, w->store));
    drt_store_close(w->store); /* the view keeps the directory open */
    CALL_OK(drt_store_info(view, &info));
    CHECK_EQ(info.documents, LIBRARY_DOCUMENTS);
    CALL_FAILS(drt_store_open(&again, w->store_path), DRT_BUSY, "open");
    drt_store_close(view);
    CALL_OK(drt_store_open(&w->store, w->store_path));
    CALL_FAILS(drt_store_view(&view, NULL), DRT_INVALID, "store is NULL");
    drt_store_close(NULL);
}

/* A child opens the store that its parent has open, and the parent's handle stays valid. */
static void forked(struct library_world *w) {
    struct drt_store *own = NULL;
    struct drt_store_info info = {.size = sizeof info};
    int code = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        bool right = drt_store_open(&own, w->store_path) == DRT_OK && drt_store_info(own, &info) == DRT_OK &&
                     info.documents == LIBRARY_DOCUMENTS && drt_store_open(&own, w->store_path) == DRT_BUSY;
        _exit(right ? 0 : 1);
    }
    CHECK(child > 0 && waitpid(child, &code, 0) == child && WIFEXITED(code));
    CHECK_EQ(WEXITSTATUS(code), 0);
    CALL_FAILS(drt_store_open(&own, w->store_path), DRT_BUSY, "open");
    CALL_OK(drt_store_info(w->store, &info));
}

static void documents(struct library_world *w) {
    struct drt_tokenizer *t = drt_model_tokenizer(w->model);
    char text[4096], *stored = NULL, *part = NULL;
    int32_t *ids = NULL;
    for (int i = 0; i < LIBRARY_DOCUMENTS; i += 13) {
        struct drt_document *d = NULL;
        struct drt_chunk c;
        size_t bytes = 0, at = 0;
        int64_t n = 0, found = -1;
        char key[32];
        library_text(text, i);
        CALL_OK(drt_store_document(w->store, &d, i));
        snprintf(key, sizeof key, "doc-%d", i);
        CHECK(d->id == i && d->line == (uint64_t)i + 1 && d->bytes == strlen(text));
        CHECK_STR(d->key, key);
        CHECK_STR(d->source, "memory");
        XXH128_canonical_t hash;
        XXH128_canonicalFromHash(&hash, XXH3_128bits(text, strlen(text)));
        CHECK(memcmp(hash.digest, d->hash, sizeof d->hash) == 0);
        CALL_OK(drt_store_find_document(w->store, &found, hash.digest));
        CHECK_EQ(found, i);
        CALL_OK(drt_store_document_text(w->store, t, &stored, &bytes, i));
        CHECK_STR(stored, text);
        CALL_OK(drt_store_document_ids(w->store, &ids, &n, i));
        CHECK_EQ(n, d->tokens);
        for (int64_t k = 0; k < d->chunks; k++) {
            const int64_t chunk = d->first_chunk + k;
            CALL_OK(drt_store_chunk_text(w->store, t, &part, &bytes, chunk));
            CHECK(memcmp(part, text + at, bytes) == 0);
            at += bytes;
            drt_free(part);
            CALL_OK(drt_store_chunks(w->store, &c, NULL, NULL, &chunk, 1));
            CHECK(c.id == chunk && c.document == i && c.in_document == k && c.token_offset == k * CHUNK);
        }
        CHECK_EQ(at, strlen(text));
        d->hash[0] ^= 1;
        CALL_FAILS(drt_store_find_document(w->store, &found, d->hash), DRT_NOT_FOUND, "hash");
        drt_free(d);
        drt_free(stored);
        drt_free(ids);
    }
}

/* Rows of a batch, of the mapped files and of the encoder are equal. */
static void chunks(struct library_world *w) {
    enum { N = 20 };
    int64_t sample[N], same[N], first = 0, seen = 0;
    struct drt_chunk c[N];
    int32_t ids[N * CHUNK];
    float rows[N * DIM], encoded[N * DIM], row[DIM];
    struct drt_store_info info = {.size = sizeof info};
    CALL_OK(drt_store_info(w->store, &info));
    CALL_OK(drt_store_sample(w->store, sample, N, 5));
    CALL_OK(drt_store_sample(w->store, same, N, 5));
    CHECK(memcmp(sample, same, sizeof same) == 0);
    CALL_OK(drt_store_sample(w->store, same, N, 6));
    CHECK(memcmp(sample, same, sizeof same) != 0);
    CALL_OK(drt_store_chunks(w->store, c, ids, rows, sample, N));
    CALL_OK(drt_model_encode(w->model, encoded, ids, N));
    CHECK_CLOSE(rows, encoded, N * DIM, 0.02);
    for (int i = 0; i < N; i++)
        CHECK(c[i].id == sample[i] && sample[i] < info.chunks &&
              (c[i].n_tokens == CHUNK) == (ids[i * CHUNK + CHUNK - 1] >= 0));
    CALL_OK(drt_store_chunks(w->store, NULL, NULL, NULL, NULL, 0));
    CALL_OK(drt_landmarks_next(w->store, &first, 0));
    while (first >= 0) {
        struct drt_landmarks *l = NULL;
        struct drt_landmark_rows mapped;
        CALL_OK(drt_landmarks_open(&l, w->store, first));
        CALL_OK(drt_landmarks_rows(l, &mapped));
        CHECK(mapped.first == first && mapped.n > 0 && mapped.dim == DIM);
        for (int i = 0; i < N; i++) {
            if (sample[i] < first || sample[i] >= first + mapped.n) continue;
            half_from_f16_row(row, mapped.rows + (sample[i] - first) * DIM, DIM);
            CHECK_CLOSE(row, rows + i * DIM, DIM, 0);
            seen++;
        }
        CALL_OK(drt_landmarks_next(w->store, &first, first + mapped.n));
        drt_landmarks_close(l);
    }
    CHECK_EQ(seen, N);
}

static void chunk_failures(struct library_world *w) {
    struct drt_landmarks *l = NULL;
    struct drt_landmark_rows rows;
    struct drt_document *d = NULL;
    struct drt_tokenizer *other = NULL, *t = drt_model_tokenizer(w->model);
    int64_t id = 1 << 20;
    char *text = NULL, path[1200];
    size_t bytes;
    const char *source = getenv("DRT_SOURCE");
    CALL_FAILS(drt_store_chunks(w->store, NULL, (int32_t[CHUNK]){0}, NULL, &id, 1), DRT_NOT_FOUND, "1048576");
    CALL_FAILS(drt_store_chunks(w->store, NULL, NULL, (float[DIM]){0}, &id, 1), DRT_NOT_FOUND, "1048576");
    CALL_FAILS(drt_store_chunks(w->store, NULL, NULL, NULL, NULL, 1), DRT_INVALID, "chunks is NULL");
    CALL_FAILS(drt_store_chunks(NULL, NULL, NULL, NULL, NULL, 0), DRT_INVALID, "store is NULL");
    CALL_FAILS(drt_store_chunks(w->store, NULL, NULL, NULL, &id, -1), DRT_INVALID, "-1");
    CALL_FAILS(drt_store_document(w->store, &d, 1000), DRT_NOT_FOUND, "1000");
    CALL_FAILS(drt_store_document(w->store, NULL, 0), DRT_INVALID, "out is NULL");
    CALL_FAILS(drt_store_chunk_text(w->store, t, &text, &bytes, -1), DRT_NOT_FOUND, "-1");
    CALL_FAILS(drt_store_chunk_text(w->store, NULL, &text, &bytes, 0), DRT_INVALID, "tokenizer is NULL");
    CALL_FAILS(drt_store_document_text(w->store, t, NULL, &bytes, 0), DRT_INVALID, "text is NULL");
    CALL_FAILS(drt_store_document_ids(w->store, NULL, &id, 0), DRT_INVALID, "ids is NULL");
    CALL_FAILS(drt_store_sample(w->store, NULL, 3, 0), DRT_INVALID, "chunks is NULL");
    CALL_FAILS(drt_store_sample(w->store, &id, -1, 0), DRT_INVALID, "-1");
    CALL_FAILS(drt_store_find_document(w->store, &id, NULL), DRT_INVALID, "hash is NULL");
    CALL_FAILS(drt_landmarks_open(&l, w->store, 1 << 20), DRT_NOT_FOUND, "1048576");
    CALL_FAILS(drt_landmarks_open(NULL, w->store, 0), DRT_INVALID, "out is NULL");
    CALL_FAILS(drt_landmarks_rows(NULL, &rows), DRT_INVALID, "landmarks is NULL");
    CALL_FAILS(drt_landmarks_next(w->store, NULL, 0), DRT_INVALID, "first is NULL");
    CALL_FAILS(drt_landmarks_next(w->store, &id, -1), DRT_INVALID, "-1");
    CALL_OK(drt_landmarks_next(w->store, &id, 1 << 20));
    CHECK_EQ(id, -1);
    drt_landmarks_close(NULL);
    snprintf(path, sizeof path, "%s/tests/unit/data/tokenizer/joined.json", source ? source : ".");
    CALL_OK(drt_tokenizer_open(&other, path));
    CALL_FAILS(drt_store_chunk_text(w->store, other, &text, &bytes, 0), DRT_MISMATCH, "tokenizer");
    drt_tokenizer_close(other);
}

/* Mapped rows outlive the store, its handle and its files. */
static void lifetimes(struct library_world *w) {
    struct drt_landmarks *l = NULL;
    struct drt_landmark_rows rows;
    struct drt_report report = {.size = sizeof report};
    struct library_corpus corpus = {.next = 30, .documents = 50};
    struct drt_build_config build = {
        .size = sizeof build, .next = library_next, .next_context = &corpus, .append = true};
    struct drt_store_info info = {.size = sizeof info};
    uint16_t before[DIM];
    CALL_OK(drt_landmarks_open(&l, w->store, 0));
    CALL_OK(drt_landmarks_rows(l, &rows));
    memcpy(before, rows.rows, sizeof before);
    CALL_FAILS(drt_store_build(w->store_path, w->model, &build, &report), DRT_BUSY, "close it first");
    drt_store_close(w->store);
    CALL_OK(drt_store_build(w->store_path, w->model, &build, &report));
    CHECK(report.documents == 20 && report.duplicates == 10 && report.generation == 2 && report.chunks > 0);
    CHECK(memcmp(before, rows.rows, sizeof before) == 0);
    CALL_OK(drt_store_open(&w->store, w->store_path));
    CALL_OK(drt_store_info(w->store, &info));
    CHECK(info.documents == 50 && info.duplicates == 10);
    drt_landmarks_close(l);
}

struct stopping {
    struct library_corpus corpus;
    int stop_at, calls, reports;
};
static int stopping_next(void *context, struct drt_text *out) {
    struct stopping *s = context;
    return s->corpus.next == s->stop_at ? -1 : library_next(&s->corpus, out);
}
static void count_report(void *context, const struct drt_progress_event *event) {
    ((struct stopping *)context)->reports += event->stage || event->note;
}
static bool never(void *context) {
    ((struct stopping *)context)->calls++;
    return false;
}

/* A build that its source of documents stopped continues, and makes the same store as an uninterrupted one. */
static void resumed(struct library_world *w) {
    struct stopping s = {.corpus.documents = LIBRARY_DOCUMENTS, .stop_at = 25};
    struct drt_build_config build = {.size = sizeof build,
                                     .next = stopping_next,
                                     .next_context = &s,
                                     .progress = {count_report, never, &s},
                                     .shard_chunks = 64};
    struct drt_report report = {.size = sizeof report};
    struct drt_store *store = NULL;
    struct drt_store_info info = {.size = sizeof info};
    char path[700];
    snprintf(path, sizeof path, "%s/resumed", test_folder());
    CALL_FAILS(drt_store_build(path, w->model, &build, &report), DRT_INTERRUPTED, "again");
    CHECK(s.calls > 0);
    CALL_FAILS(drt_store_open(&store, path), DRT_NOT_FOUND, "published");
    s.stop_at = -1;
    s.corpus.next = 1; /* other documents than before */
    CALL_FAILS(drt_store_build(path, w->model, &build, &report), DRT_MISMATCH, "changed");
    s.corpus.next = 0;
    CALL_OK(drt_store_build(path, w->model, &build, &report));
    CHECK(report.resumed_documents > 0 && report.resumed_documents <= 25);
    CHECK_EQ(report.documents + report.resumed_documents, LIBRARY_DOCUMENTS);
    s.corpus.next = 0;
    CALL_OK(drt_store_build(path, w->model, &build, &report));
    CHECK(report.already_built);
    CALL_OK(drt_store_open(&store, path));
    CALL_OK(drt_store_info(store, &info));
    CHECK_EQ(info.documents, LIBRARY_DOCUMENTS);
    drt_store_close(store);
}

/* A store of 8-bit landmarks: codes and scales are mapped, their numbers are those of chunks; the other function
 * refuses each type. compact makes a store of the other type. */
static void coded(struct library_world *w) {
    struct library_corpus corpus = {.documents = 12};
    struct drt_build_config build = {
        .size = sizeof build, .next = library_next, .next_context = &corpus, .landmarks = "i4"};
    struct drt_store_info info = {.size = sizeof info};
    struct drt_landmark_codes codes;
    struct drt_landmark_rows rows;
    struct drt_landmarks *l = NULL;
    struct drt_store *store = NULL;
    char path[700], wide[700];
    float row[DIM], half[DIM];
    snprintf(path, sizeof path, "%s/coded", test_folder());
    snprintf(wide, sizeof wide, "%s/wide", test_folder());
    CALL_FAILS(drt_store_build(path, w->model, &build, NULL), DRT_INVALID, "landmarks i4: choose f16, i8 or none");
    build.landmarks = "i8";
    CALL_OK(drt_store_build(path, w->model, &build, NULL));
    struct drt_compact_config compact = {.size = sizeof compact, .threads = 1, .landmarks = "half"};
    CALL_FAILS(drt_store_compact(wide, path, &compact, NULL), DRT_INVALID, "landmarks half");
    compact.landmarks = "f16";
    CALL_OK(drt_store_compact(wide, path, &compact, NULL));
    CALL_OK(drt_store_open(&store, path));
    CALL_OK(drt_store_info(store, &info));
    CHECK_STR(info.landmarks, "i8");
    CHECK_EQ(info.format, 5);
    CALL_OK(drt_landmarks_open(&l, store, 0));
    CALL_FAILS(drt_landmarks_rows(l, &rows), DRT_UNSUPPORTED, "type i8: call drt_landmarks_codes");
    CALL_FAILS(drt_landmarks_codes(NULL, &codes), DRT_INVALID, "landmarks is NULL");
    CALL_OK(drt_landmarks_codes(l, &codes));
    CHECK(codes.first == 0 && codes.n == info.chunks && codes.dim == DIM);
    drt_store_close(store); /* the map outlives it */
    CALL_OK(drt_store_open(&store, wide));
    CALL_OK(drt_store_info(store, &info));
    CHECK_STR(info.landmarks, "f16");
    for (int64_t i = 0; i < codes.n; i++) {
        CALL_OK(drt_store_chunks(store, NULL, NULL, half, &i, 1));
        for (int d = 0; d < DIM; d++)
            row[d] = (float)codes.codes[i * DIM + d] * codes.scales[i];
        CHECK(memcmp(row, half, sizeof row) == 0);
    }
    drt_landmarks_close(l);
    CALL_OK(drt_landmarks_open(&l, store, 0));
    CALL_FAILS(drt_landmarks_codes(l, &codes), DRT_UNSUPPORTED, "type f16: call drt_landmarks_rows");
    CALL_OK(drt_landmarks_rows(l, &rows));
    drt_landmarks_close(l);
    drt_store_close(store);
}

/* Without landmarks: searched by words with the scores of BM25, which a store with landmarks finds as well. */
static void by_words(struct library_world *w) {
    enum { K = 4 };
    struct library_corpus corpus = {.documents = 12};
    struct drt_build_config build = {
        .size = sizeof build, .next = library_next, .next_context = &corpus, .landmarks = "none"};
    struct drt_store_info info = {.size = sizeof info};
    const struct drt_searcher_config lexical = {.size = sizeof lexical, .kind = DRT_SEARCH_LEXICAL},
                                     hybrid = {.size = sizeof hybrid, .kind = DRT_SEARCH_HYBRID};
    const struct drt_search how = {.size = sizeof how, .k = K};
    const float vector[DIM] = {1};
    struct drt_searcher *searcher;
    struct drt_landmarks *l;
    struct drt_store *store;
    struct drt_hit hits[2][K];
    char path[700];
    for (int with = 0; with < 2; with++) {
        snprintf(path, sizeof path, "%s/%s", test_folder(), with ? "with-landmarks" : "by-words");
        corpus.next = 0;
        CALL_OK(drt_store_build(path, w->model, &build, NULL));
        CALL_OK(drt_store_open(&store, path));
        CALL_OK(drt_store_info(store, &info));
        CHECK_EQ(info.dim, with ? DIM : 0);
        CHECK_STR(info.landmarks, with ? "f16" : "none");
        CALL_OK(drt_searcher_open(&searcher, store, w->model, with ? &lexical : NULL));
        const char *text = "the river of stone";
        CALL_OK(drt_search_texts(searcher, hits[with], &text, NULL, 1, &how));
        CHECK(hits[with][0].chunk >= 0);
        if (!with) {
            for (int i = 1; i < K && hits[0][i].chunk >= 0; i++)
                CHECK(hits[0][i].score <= hits[0][i - 1].score);
            CALL_FAILS(drt_search_vectors(searcher, hits[1], vector, 1, &how), DRT_INVALID, "not vectors");
            CALL_FAILS(drt_landmarks_open(&l, store, 0), DRT_UNSUPPORTED, "has no landmarks");
            struct drt_searcher *none = NULL;
            CALL_FAILS(drt_searcher_open(&none, store, w->model, &hybrid), DRT_UNSUPPORTED, "no landmarks");
            CALL_FAILS(drt_searcher_open(&none, store, NULL, NULL), DRT_UNSUPPORTED, "needs a model");
        }
        drt_searcher_close(searcher);
        drt_store_close(store);
        build.landmarks = NULL;
    }
    for (int i = 0; i < K; i++)
        CHECK_EQ(hits[0][i].chunk, hits[1][i].chunk);
    build.append = true; /* what is added has none either */
    snprintf(path, sizeof path, "%s/by-words", test_folder());
    corpus = (struct library_corpus){.documents = 3, .next = 0};
    CALL_OK(drt_store_build(path, w->model, &build, NULL));
}

static int bad_text(void *context, struct drt_text *out) {
    (void)context;
    out->bytes = 5;
    return 1;
}

static void build_failures(struct library_world *w) {
    struct library_corpus corpus = {.documents = 3};
    const char *const inputs[] = {"/no/such/corpus.jsonl", NULL};
    char path[700];
    struct drt_build_config build = {.size = sizeof build};
    snprintf(path, sizeof path, "%s/none", test_folder());
    CALL_FAILS(drt_store_build(path, w->model, NULL, NULL), DRT_INVALID, "config is NULL");
    CALL_FAILS(drt_store_build(path, w->model, &build, NULL), DRT_INVALID, "either inputs or next");
    build.inputs = inputs;
    CALL_FAILS(drt_store_build(path, w->model, &build, NULL), DRT_INVALID, "n_inputs");
    build.n_inputs = 2;
    CALL_FAILS(drt_store_build(path, w->model, &build, NULL), DRT_INVALID, "inputs[1]");
    build.n_inputs = 1;
    CALL_FAILS(drt_store_build(path, w->model, &build, NULL), DRT_NOT_FOUND, "/no/such/corpus.jsonl");
    CALL_FAILS(drt_store_build(NULL, w->model, &build, NULL), DRT_INVALID, "path is NULL");
    CALL_FAILS(drt_store_build(path, NULL, &build, NULL), DRT_INVALID, "model is NULL");
    build.format = "word";
    CALL_FAILS(drt_store_build(path, w->model, &build, NULL), DRT_INVALID, "word");
    build.next = library_next, build.next_context = &corpus;
    CALL_FAILS(drt_store_build(path, w->model, &build, NULL), DRT_INVALID, "either");
    build.inputs = NULL, build.format = NULL, build.next = bad_text;
    CALL_FAILS(drt_store_build(path, w->model, &build, NULL), DRT_INVALID, "no text");
    build.next = library_next, build.append = true;
    CALL_FAILS(drt_store_build(path, w->model, &build, NULL), DRT_NOT_FOUND, "no built store");
    build.append = false, build.shard_chunks = -1;
    CALL_FAILS(drt_store_build(path, w->model, &build, NULL), DRT_INVALID, "shard_chunks");
}

int main(int argc, char **argv) {
    struct library_world w;
    test_start(argc, argv, 1);
    library_world_open(&w);
    infos(&w);
    forked(&w);
    documents(&w);
    chunks(&w);
    chunk_failures(&w);
    lifetimes(&w);
    resumed(&w);
    coded(&w);
    by_words(&w);
    build_failures(&w);
    library_world_close(&w);
    return test_done();
}
