/* drt_index_landmarks.c -- see drt_index_landmarks.h. Rows of a file are used in the order of the store's chunks: one
 * row for each chunk of each document, except documents that are empty or copies of earlier ones. */
#include "tools/index/drt_index_landmarks.h"
#include "base/file.h"
#include "base/memory.h"
#include <stdio.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* puts the hash state on the stack */
#include <xxhash.h>

enum { BATCH = 256, SAMPLE_BYTES = 1 << 16 };

enum external_kind landmark_kind(const char *name) {
    int kind = EXTERNAL_AUTO;
    while (name && kind < EXTERNAL_KINDS - 1 && strcmp(name, external_kind_names[kind]) != 0)
        kind++;
    return (enum external_kind)kind;
}

bool landmark_options_none(const struct landmark_options *o) {
    return o->type && strcmp(o->type, "none") == 0;
}

int landmark_options_check(const char *command, const struct landmark_options *o, bool append) {
    if (o->encoder && o->vectors) return drt_index_usage(command, "--encoder and --vectors: give one of them");
    if (o->kind && !o->encoder) return drt_index_usage(command, "--encoder-kind needs --encoder DIR");
    if (o->name && !o->vectors) return drt_index_usage(command, "--vectors-name needs --vectors FILE");
    if (landmark_options_none(o) && (o->encoder || o->vectors))
        return drt_index_usage(command, "--landmarks none: without --encoder and --vectors, which make landmarks");
    if (append && o->vectors && !o->name)
        return drt_index_usage(command, "--vectors needs --vectors-name NAME, the one that the store was built with");
    return -1;
}

/* ---- rows of a file ------------------------------------------------------------------------------------------- */

static enum status vectors_encode(void *context, float *rows, const int32_t *ids, int64_t n) {
    struct landmark_maker *s = context;
    int64_t got;
    (void)ids;
    TRY(query_file_rows(s->file, rows, n, &got));
    s->used += got;
    if (got == n) return STATUS_OK;
    return fail(STATUS_MISMATCH,
                "%s: has %lld vectors, and the corpus has more chunks: one row is needed for each chunk, in the order "
                "of drt-index export",
                s->path, (long long)query_file_total(s->file));
}

static enum status vectors_skip(void *context, int64_t chunks) {
    struct landmark_maker *s = context;
    for (int64_t at = 0; at < chunks; at += BATCH)
        TRY(vectors_encode(s, s->skipped, NULL, chunks - at < BATCH ? chunks - at : BATCH));
    return STATUS_OK;
}

static enum status vectors_finish(void *context) {
    struct landmark_maker *s = context;
    int64_t got;
    if (s->used < query_file_total(s->file))
        return fail(STATUS_MISMATCH,
                    "%s: has %lld vectors, but the corpus has %lld chunks (empty and repeated documents have none): "
                    "nothing was published",
                    s->path, (long long)query_file_total(s->file), (long long)s->used);
    return query_file_rows(s->file, s->skipped, 1, &got); /* checks that no row follows */
}

/* Identifies a file by its size, its beginning and its end, without reading all of it. */
static enum status sample_file(uint8_t out[16], const char *path) {
    struct file_map map;
    XXH3_state_t state;
    XXH128_canonical_t canonical;
    TRY(file_map(&map, path));
    size_t part = map.size < SAMPLE_BYTES ? map.size : SAMPLE_BYTES;
    uint64_t size = map.size;
    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, &size, sizeof size);
    XXH3_128bits_update(&state, map.data, part);
    XXH3_128bits_update(&state, map.data + map.size - part, part);
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
    memcpy(out, canonical.digest, 16);
    file_unmap(&map);
    return STATUS_OK;
}

static enum status name_hash(uint8_t out[16], const char *name) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(name, strlen(name)));
    memcpy(out, canonical.digest, 16);
    return STATUS_OK;
}

static enum status vectors_open(struct landmark_maker *s, const struct landmark_options *o,
                                const struct external_encoder_config *c) {
    struct store_fingerprint f = {.chunk_tokens = c->model->chunk, .vocab_size = c->model->vocab_size};
    s->path = o->vectors;
    TRY(query_file_open(&s->file, o->vectors, QUERY_AUTO, 0));
    if (!query_file_has_vectors(s->file))
        return fail(STATUS_INVALID, "%s: vectors come from a file whose name ends in .npy or .fbin", o->vectors);
    f.dim = query_file_dim(s->file);
    TRY(o->name ? name_hash(f.encoder, o->name) : sample_file(f.encoder, o->vectors));
    tokenizer_fingerprint(c->tokenizer, f.tokenizer);
    TRY(memory_allocate(&s->skipped, (size_t)BATCH * (size_t)f.dim));
    s->landmarks = (struct indexer_landmarks){.encoder = {.fingerprint = f, .encode = vectors_encode, .context = s},
                                              .batch = BATCH,
                                              .skip = vectors_skip,
                                              .finish = vectors_finish};
    return STATUS_OK;
}

/* ---- an external encoder ---------------------------------------------------------------------------------------- */

static enum status check_store(struct external_encoder *e, const char *path) {
    struct opened_store store;
    TRY(opened_store_open(&store, path));
    enum status s = external_encoder_check(e, path, &store.info.fingerprint);
    opened_store_close(&store);
    return s;
}

static enum status encoder_open(struct landmark_maker *s, const struct external_encoder_config *config,
                                const char *store, bool append) {
    TRY(external_encoder_open(&s->external, config));
    if (append) TRY(check_store(s->external, store));
    s->landmarks = (struct indexer_landmarks){.encoder = external_encoder_store(s->external),
                                              .batch = external_encoder_batch(s->external),
                                              .bytes = external_encoder_bytes(s->external)};
    return STATUS_OK;
}

enum status landmark_maker_open(struct landmark_maker *out, const struct landmark_options *o,
                                const struct external_encoder_config *config, const char *store, bool append) {
    struct external_encoder_config external = *config;
    *out = (struct landmark_maker){0};
    external.folder = o->encoder;
    external.kind = landmark_kind(o->kind);
    if (o->encoder) return encoder_open(out, &external, store, append);
    if (o->vectors) return vectors_open(out, o, config);
    bool none = landmark_options_none(o);
    if (append) TRY(indexer_store_without_landmarks(&none, store));
    if (none) out->landmarks = indexer_no_landmarks(config->model, config->tokenizer);
    return STATUS_OK;
}

void landmark_maker_close(struct landmark_maker *s) {
    external_encoder_close(s->external);
    query_file_close(s->file);
    memory_free(s->skipped);
    *s = (struct landmark_maker){0};
}
