/* mend_fixture.h -- stores whose landmarks are computed from their tokens, so that a repair can compute them again. */
#pragma once
#include "tests/unit/store/damage_fixture.h"

/* shift: added to every value, as rounding on another device would change it. */
struct mend_encoding { int dim; float shift; };

/* Landmarks of n chunks; context: struct mend_encoding. */
static inline enum status mend_encode(void *context, float *rows, const int32_t *ids, int64_t n) {
    const struct mend_encoding *how = context;
    int dim = how->dim;
    for (int64_t c = 0; c < n; c++) {
        uint64_t seed = 0;
        for (int i = 0; i < FIXTURE_CHUNK; i++) seed = seed * 1000003 + (uint64_t)(ids[c * FIXTURE_CHUNK + i] + 1);
        fixture_vector(rows + c * dim, dim, seed >> 8, 0.5f);
        for (int i = 0; i < dim; i++) rows[c * dim + i] += how->shift;
    }
    return STATUS_OK;
}

/* Returns the number of problems after a repair with an encoder; *found (NULL is fine): the last of them. */
static inline int mend_repair(const struct store_writer_config *c, float shift, struct found *found) {
    int64_t problems = -1;
    struct found other;
    struct mend_encoding how = {c->fingerprint.dim, shift};
    const struct store_encoder encoder = {.fingerprint = c->fingerprint, .encode = mend_encode, .context = &how};
    found = found ? found : &other;
    *found = (struct found){0};
    CHECK_OK(store_repair(dir, NULL, &encoder, remember, found, &problems));
    return (int)problems;
}

/* Adds documents [begin, end) as one shard; those that the store has are skipped. *taken: the number added. */
static enum status mend_shard(struct store_writer *w, const struct store_writer_config *c, int64_t begin, int64_t end,
                              int *taken) {
    float rows[FIXTURE_IDS_MAX * 64];
    struct mend_encoding how = {c->fingerprint.dim, 0};
    *taken = 0;
    TRY(store_shard_begin(w));
    enum status s = STATUS_OK;
    for (int64_t i = begin; i < end && s == STATUS_OK; i++) {
        int32_t ids[FIXTURE_IDS_MAX], chunks[FIXTURE_IDS_MAX * FIXTURE_CHUNK];
        char key[32];
        bool duplicate = false;
        struct store_new_document d = {
            .ids = ids, .source = "corpus.jsonl", .key = key, .line = (uint64_t)i + 1, .bytes = 9};
        d.n_ids = fixture_ids(ids, i, c->fingerprint.vocab_size);
        snprintf(key, sizeof key, "doc-%lld", (long long)i);
        fixture_hash(d.hash, i);
        s = store_shard_document(w, &d, &duplicate);
        if (s != STATUS_OK || duplicate) continue;
        int64_t n = ((int64_t)d.n_ids + FIXTURE_CHUNK - 1) / FIXTURE_CHUNK;
        for (int64_t j = 0; j < n * FIXTURE_CHUNK; j++) chunks[j] = j < (int64_t)d.n_ids ? ids[j] : -1;
        s = mend_encode(&how, rows, chunks, n);
        if (s == STATUS_OK) s = store_shard_landmarks(w, rows, n);
        ++*taken;
    }
    if (s != STATUS_OK || *taken == 0) {
        store_shard_discard(w);
        return s;
    }
    return store_shard_seal(w, &end, sizeof end);
}

/* Documents [begin, end) in shards of `each`, published, and merged up to files of merge_chunks (0: not). */
static enum status mend_add(const char *folder, const struct store_writer_config *c, int64_t begin, int64_t end,
                            int64_t each, const char *index, int64_t merge_chunks) {
    struct store_writer *w;
    TRY(store_writer_open(&w, folder, c, true));
    enum status s = STATUS_OK;
    int taken;
    for (int64_t i = begin; i < end && s == STATUS_OK; i += each)
        s = mend_shard(w, c, i, i + each < end ? i + each : end, &taken);
    const struct store_publish how = {.index = index, .seed = 1, .merge_chunks = merge_chunks};
    if (s == STATUS_OK) s = store_writer_publish(w, &how);
    store_writer_close(w);
    return s;
}
