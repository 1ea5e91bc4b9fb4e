/* store_fixture.h -- documents and landmarks made from a number, for the tests and benchmarks of the store.
 *
 * Document i has 1 to 40 ids and clustered landmarks; both are functions of i, so that a test can compute the contents
 * of a store. Landmarks have the type of landmark_fixture.h. */
#pragma once
#include "base/rng.h"
#include "tests/unit/store/landmark_fixture.h"
#include <sys/wait.h>
enum { FIXTURE_CHUNK = 8, FIXTURE_IDS_MAX = 40, FIXTURE_CLUSTERS = 20 };

[[maybe_unused]] static struct store_writer_config fixture_config(int dim, int vocab) {
    struct store_writer_config c = {.max_catalog_bytes = 256 << 20, .landmarks = fixture_type()};
    memset(c.fingerprint.encoder, 0xe1, 16);
    memset(c.fingerprint.tokenizer, 0x70, 16);
    c.fingerprint.chunk_tokens = FIXTURE_CHUNK;
    c.fingerprint.dim = dim;
    c.fingerprint.vocab_size = vocab;
    return c;
}

[[maybe_unused]] static size_t fixture_ids(int32_t ids[FIXTURE_IDS_MAX], int64_t document, int vocab) {
    struct rng r = rng_make(11, (uint64_t)document);
    size_t n = 1 + rng_below(&r, FIXTURE_IDS_MAX);
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)rng_below(&r, (uint64_t)vocab);
    return n;
}

/* A centre of one of 20 clusters plus noise, like landmarks of related text. */
[[maybe_unused]] static void fixture_vector(float *out, int dim, uint64_t number, float noise) {
    struct rng r = rng_make(12, number), centre = rng_make(13, number % FIXTURE_CLUSTERS);
    for (int i = 0; i < dim; i++) out[i] = rng_normal(&centre) + noise * rng_normal(&r);
}
[[maybe_unused]] static void fixture_landmark(float *out, int dim, int64_t document, int64_t in_document) {
    fixture_vector(out, dim, (uint64_t)(document * 7 + in_document), 0.5f);
}

[[maybe_unused]] static void fixture_hash(uint8_t out[16], int64_t document) {
    uint32_t words[4];
    rng_philox(words, 14, 0, (uint64_t)document);
    memcpy(out, words, 16);
}

/* Adds one document and its landmarks to the open shard. */
[[maybe_unused]] static enum status fixture_add(struct store_writer *w, const struct store_writer_config *c,
                                                int64_t document, bool *duplicate) {
    int32_t ids[FIXTURE_IDS_MAX];
    char key[32];
    int dim = c->fingerprint.dim;
    struct store_new_document d = {.ids = ids, .source = "corpus.jsonl", .key = key, .offset = (uint64_t)document * 100,
                                   .line = (uint64_t)document + 1, .bytes = 99};
    d.n_ids = fixture_ids(ids, document, c->fingerprint.vocab_size);
    snprintf(key, sizeof key, "doc-%lld", (long long)document);
    fixture_hash(d.hash, document);
    TRY(store_shard_document(w, &d, duplicate));
    if (*duplicate) return STATUS_OK;
    int64_t chunks = ((int64_t)d.n_ids + FIXTURE_CHUNK - 1) / FIXTURE_CHUNK;
    float *row = malloc((size_t)dim * sizeof *row);
    enum status s = STATUS_OK;
    for (int64_t i = 0; i < chunks && s == STATUS_OK; i++) {
        fixture_landmark(row, dim, document, i);
        s = store_shard_landmarks(w, row, 1);
    }
    free(row);
    return s;
}

/* One shard of documents [begin, end); the cursor is the next one's number. */
[[maybe_unused]] static enum status fixture_shard(struct store_writer *w, const struct store_writer_config *c,
                                                  int64_t begin, int64_t end) {
    TRY(store_shard_begin(w));
    bool duplicate;
    for (int64_t i = begin; i < end; i++) {
        enum status s = fixture_add(w, c, i, &duplicate);
        if (s != STATUS_OK) {
            store_shard_discard(w);
            return s;
        }
    }
    return store_shard_seal(w, &end, sizeof end);
}

/* A whole store: documents [0, end) in shards of `per_shard`, published. */
[[maybe_unused]] static void fixture_store(const char *dir, const struct store_writer_config *c, int64_t begin,
                                           int64_t end, int64_t per_shard, const char *index) {
    struct store_writer *w;
    CHECK_OK(store_writer_open(&w, dir, c, true));
    for (int64_t i = begin; i < end; i += per_shard)
        CHECK_OK(fixture_shard(w, c, i, i + per_shard < end ? i + per_shard : end));
    CHECK_OK(store_writer_publish(w, &(struct store_publish){.index = index, .seed = 1}));
    store_writer_close(w);
}

/* The same in a separate process, since a process may open a store only once. */
[[maybe_unused]] static void fixture_store_elsewhere(const char *dir, const struct store_writer_config *c,
                                                     int64_t begin, int64_t end, int64_t per_shard, const char *index) {
    pid_t child = fork();
    if (child == 0) {
        fixture_store(dir, c, begin, end, per_shard, index);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Same chunks, same bits of score (struct store_hit has padding: no memcmp of the whole). */
[[maybe_unused]] static bool fixture_same_hits(const struct store_hit *a, const struct store_hit *b, int n) {
    for (int i = 0; i < n; i++)
        if (a[i].chunk != b[i].chunk || memcmp(&a[i].score, &b[i].score, sizeof a[i].score) != 0) {
            fprintf(stderr, "hit %d: chunk %lld score %.9g, chunk %lld score %.9g\n", i, (long long)a[i].chunk,
                    (double)a[i].score, (long long)b[i].chunk, (double)b[i].score);
            return false;
        }
    return true;
}
