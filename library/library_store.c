/* library_store.c -- views of a store: documents, chunks, texts, samples, mapped landmarks. */
#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include "library/library_internal.h"
#include "store/catalog/open_once.h"
#include "store/keys/store_keys.h"
#include "store/shards/landmark_file.h"
#include <stdio.h>
#include <string.h>

/* ---- handles ------------------------------------------------------------------------------------------------ */

static void library_directory_release(struct library_directory *d) {
    if (!d || atomic_fetch_sub(&d->users, 1) > 1) return;
    store_close(d->store);
    memory_free(d);
}

struct drt_store *library_store_use(struct drt_store *s) {
    if (s) atomic_fetch_add(&s->users, 1);
    return s;
}

void library_store_release(struct drt_store *s) {
    if (!s || atomic_fetch_sub(&s->users, 1) > 1) return;
    store_view_close(s->view);
    library_directory_release(s->directory);
    pthread_mutex_destroy(&s->lock);
    memory_free(s);
}

enum status library_store_path(char out[FILE_PATH_MAX], const char *path) {
    TRY(file_absolute(out, path));
    return catalog_not_open(out);
}

static enum status library_directory_open(struct library_directory **out, const char *path) {
    struct library_directory *d = NULL;
    char absolute[FILE_PATH_MAX]; /* files are opened when they are needed */
    TRY(file_absolute(absolute, path));
    TRY(memory_allocate_zero(&d, 1));
    d->users = 1;
    enum status status = store_open(&d->store, absolute);
    if (status != STATUS_OK) {
        memory_free(d);
        return status;
    }
    *out = d;
    return STATUS_OK;
}

/* Opens a view. It takes over one user of the directory. */
static enum status library_view_create(struct drt_store **out, struct library_directory *directory, const char *path) {
    struct drt_store *s = NULL;
    enum status status = memory_allocate_zero(&s, 1);
    if (status != STATUS_OK) {
        library_directory_release(directory);
        return status;
    }
    s->users = 1;
    s->directory = directory;
    pthread_mutex_init(&s->lock, NULL);
    snprintf(s->path, sizeof s->path, "%s", path);
    status = store_view_open(&s->view, directory->store);
    if (status != STATUS_OK) {
        library_store_release(s);
        return status;
    }
    store_view_info(s->view, &s->info);
    struct store_keys_state keys;
    if (store_keys_state(&keys, s->view) == STATUS_OK) /* otherwise nothing can read them */
        s->keys_files = keys.files, s->keys_chunks = keys.chunks;
    *out = s;
    return STATUS_OK;
}

enum drt_status drt_store_open(struct drt_store **out, const char *path) {
    struct library_directory *directory = NULL;
    LIBRARY_NEEDS(out);
    LIBRARY_NEEDS(path);
    LIBRARY_TRY(library_directory_open(&directory, path));
    return (enum drt_status)library_view_create(out, directory, path);
}

enum drt_status drt_store_view(struct drt_store **out, struct drt_store *store) {
    LIBRARY_NEEDS(out);
    LIBRARY_NEEDS(store);
    atomic_fetch_add(&store->directory->users, 1);
    return (enum drt_status)library_view_create(out, store->directory, store->path);
}

void drt_store_close(struct drt_store *store) {
    library_store_release(store);
}

enum drt_status drt_store_info(struct drt_store *store, struct drt_store_info *out) {
    LIBRARY_NEEDS(store);
    LIBRARY_NEEDS(out);
    const struct store_info *i = &store->info;
    const struct drt_store_info info = {.generation = i->generation,
                                        .chunks = i->chunks,
                                        .documents = i->documents,
                                        .tokens = i->tokens,
                                        .dropped_chunks = i->dropped_chunks,
                                        .dropped_documents = i->dropped_documents,
                                        .dropped_tokens = i->dropped_tokens,
                                        .shards = i->shards,
                                        .segments = i->segments,
                                        .duplicates = i->duplicates,
                                        .token_bytes = i->token_bytes,
                                        .landmark_bytes = i->landmark_bytes,
                                        .index_bytes = i->index_bytes,
                                        .catalog_bytes = i->catalog_bytes,
                                        .dim = i->fingerprint.dim,
                                        .chunk = i->fingerprint.chunk_tokens,
                                        .vocab_size = i->fingerprint.vocab_size,
                                        .format = i->format,
                                        .lexical = i->lexical,
                                        .path = store->path,
                                        .index = i->index,
                                        .landmarks = store_landmarks_name(i->landmarks),
                                        .keys_files = store->keys_files,
                                        .keys_chunks = store->keys_chunks};
    return (enum drt_status)library_fill(out, &info, sizeof info, "struct drt_store_info");
}

/* ---- documents ---------------------------------------------------------------------------------------------- */

/* Makes one allocation for the struct and both strings. */
struct drt_document library_document_of(const struct store_document *d) {
    struct drt_document document = {.id = d->id,
                                    .first_chunk = d->first_chunk,
                                    .chunks = d->chunks,
                                    .tokens = d->tokens,
                                    .offset = d->offset,
                                    .line = d->line,
                                    .bytes = d->bytes,
                                    .source = d->source,
                                    .key = d->key};
    memcpy(document.hash, d->hash, sizeof document.hash);
    return document;
}

static enum status library_document(struct drt_document **out, struct store_view *view, int64_t document) {
    struct store_document d;
    void *memory = NULL;
    TRY(store_view_document(view, &d, document));
    const size_t source = strlen(d.source) + 1, key = strlen(d.key) + 1;
    TRY(memory_allocate_bytes(&memory, sizeof **out + source + key, 1));
    struct drt_document *copy = memory;
    char *text = (char *)(copy + 1);
    *copy = library_document_of(&d);
    copy->source = memcpy(text, d.source, source);
    copy->key = memcpy(text + source, d.key, key);
    *out = copy;
    return STATUS_OK;
}

enum drt_status drt_store_document(struct drt_store *store, struct drt_document **out, int64_t document) {
    LIBRARY_NEEDS(store);
    LIBRARY_NEEDS(out);
    library_lock(&store->lock);
    enum status status = library_document(out, store->view, document);
    library_unlock(&store->lock);
    return (enum drt_status)status;
}

enum drt_status drt_store_find_document(struct drt_store *store, int64_t *document, const uint8_t hash[16]) {
    int64_t found = -1;
    LIBRARY_NEEDS(store);
    LIBRARY_NEEDS(document);
    LIBRARY_NEEDS(hash);
    library_lock(&store->lock);
    enum status status = store_view_find_document(store->view, &found, hash);
    library_unlock(&store->lock);
    LIBRARY_TRY(status);
    if (found < 0) return (enum drt_status)fail(STATUS_NOT_FOUND, "%s: has no document of this hash", store->path);
    *document = found;
    return DRT_OK;
}

/* Gets the ids of a document's chunks, one chunk after another. */
static enum status library_document_ids(struct drt_store *s, int32_t **ids, int64_t *n, int64_t document) {
    struct store_document d;
    struct store_chunk c;
    int32_t *all = NULL;
    int64_t count = 0;
    TRY(store_view_document(s->view, &d, document));
    TRY(memory_allocate(&all, (size_t)(d.chunks * s->info.fingerprint.chunk_tokens)));
    for (int64_t i = 0; i < d.chunks; i++) {
        enum status status = store_view_chunk(s->view, &c, all + count, d.first_chunk + i);
        if (status != STATUS_OK) {
            memory_free(all);
            return status;
        }
        count += c.n_tokens;
    }
    *ids = all;
    *n = count;
    return STATUS_OK;
}

enum drt_status drt_store_document_ids(struct drt_store *store, int32_t **ids, int64_t *n, int64_t document) {
    LIBRARY_NEEDS(store);
    LIBRARY_NEEDS(ids);
    LIBRARY_NEEDS(n);
    library_lock(&store->lock);
    enum status status = library_document_ids(store, ids, n, document);
    library_unlock(&store->lock);
    return (enum drt_status)status;
}

static enum status library_check_tokenizer(const struct drt_store *s, const struct drt_tokenizer *t) {
    uint8_t hash[16];
    tokenizer_fingerprint(t->tokenizer, hash);
    if (memcmp(hash, s->info.fingerprint.tokenizer, sizeof hash) == 0) return STATUS_OK;
    return fail(STATUS_MISMATCH, "%s: was built with another tokenizer; use that of the model that built it", s->path);
}

enum drt_status drt_store_document_text(struct drt_store *store, struct drt_tokenizer *tokenizer, char **text,
                                        size_t *bytes, int64_t document) {
    int32_t *ids = NULL;
    int64_t n = 0;
    LIBRARY_NEEDS(store);
    LIBRARY_NEEDS(tokenizer);
    LIBRARY_NEEDS(text);
    LIBRARY_NEEDS(bytes);
    LIBRARY_TRY(library_check_tokenizer(store, tokenizer));
    enum drt_status status = drt_store_document_ids(store, &ids, &n, document);
    if (status != DRT_OK) return status;
    enum status decoded = library_decode(tokenizer, text, bytes, ids, (size_t)n, false);
    memory_free(ids);
    return (enum drt_status)decoded;
}

/* ---- chunks ------------------------------------------------------------------------------------------------- */

static enum status library_chunks(struct drt_store *s, struct drt_chunk *out, int32_t *ids, float *rows,
                                  const int64_t *chunks, int64_t n) {
    const int64_t chunk = s->info.fingerprint.chunk_tokens, dim = s->info.fingerprint.dim;
    struct store_chunk c;
    int32_t *one = NULL;
    enum status status = STATUS_OK;
    if (!ids) TRY(memory_allocate(&one, (size_t)chunk));
    for (int64_t i = 0; i < n && status == STATUS_OK; i++) {
        if (out || ids) status = store_view_chunk(s->view, &c, ids ? ids + i * chunk : one, chunks[i]);
        if (status == STATUS_OK && rows) status = store_view_landmark(s->view, rows + i * dim, chunks[i]);
        if (status == STATUS_OK && out)
            out[i] = (struct drt_chunk){.id = c.id,
                                        .document = c.document,
                                        .in_document = c.in_document,
                                        .token_offset = c.token_offset,
                                        .n_tokens = c.n_tokens};
    }
    memory_free(one);
    return status;
}

enum drt_status drt_store_chunks(struct drt_store *store, struct drt_chunk *out, int32_t *ids, float *rows,
                                 const int64_t *chunks, int64_t n) {
    LIBRARY_NEEDS(store);
    LIBRARY_CHECK(n >= 0, "%s: n is %lld", __func__, (long long)n);
    LIBRARY_CHECK(chunks || n == 0, "%s: chunks is NULL", __func__);
    library_lock(&store->lock);
    enum status status = library_chunks(store, out, ids, rows, chunks, n);
    library_unlock(&store->lock);
    return (enum drt_status)status;
}

enum drt_status drt_store_chunk_text(struct drt_store *store, struct drt_tokenizer *tokenizer, char **text,
                                     size_t *bytes, int64_t chunk) {
    struct store_chunk c;
    int32_t *ids = NULL;
    LIBRARY_NEEDS(store);
    LIBRARY_NEEDS(tokenizer);
    LIBRARY_NEEDS(text);
    LIBRARY_NEEDS(bytes);
    LIBRARY_TRY(library_check_tokenizer(store, tokenizer));
    LIBRARY_TRY(memory_allocate(&ids, (size_t)store->info.fingerprint.chunk_tokens));
    library_lock(&store->lock);
    enum status status = store_view_chunk(store->view, &c, ids, chunk);
    library_unlock(&store->lock);
    if (status == STATUS_OK) status = library_decode(tokenizer, text, bytes, ids, (size_t)c.n_tokens, false);
    memory_free(ids);
    return (enum drt_status)status;
}

enum drt_status drt_store_sample(struct drt_store *store, int64_t *chunks, int64_t n, uint64_t seed) {
    LIBRARY_NEEDS(store);
    LIBRARY_CHECK(n >= 0, "%s: n is %lld", __func__, (long long)n);
    LIBRARY_CHECK(chunks || n == 0, "%s: chunks is NULL", __func__);
    const struct store_dropped dropped = store_view_dropped(store->view);
    const int64_t there = store->info.chunks - store->info.dropped_chunks;
    if (there <= 0) return (enum drt_status)fail(STATUS_NOT_FOUND, "%s: has no chunk", store->path);
    struct rng rng = rng_make(seed, 0);
    for (int64_t i = 0; i < n; i++)
        chunks[i] = store_dropped_nth(dropped, (int64_t)rng_below(&rng, (uint64_t)there));
    return DRT_OK;
}

/* ---- mapped landmarks ---------------------------------------------------------------------------------------- */

struct drt_landmarks {
    struct landmark_file *file;
};

enum drt_status drt_landmarks_open(struct drt_landmarks **out, struct drt_store *store, int64_t first) {
    struct drt_landmarks *l = NULL;
    LIBRARY_NEEDS(out);
    LIBRARY_NEEDS(store);
    LIBRARY_TRY(memory_allocate_zero(&l, 1));
    library_lock(&store->lock);
    enum status status = landmark_file_open(&l->file, store->view, first);
    library_unlock(&store->lock);
    if (status != STATUS_OK) {
        memory_free(l);
        return (enum drt_status)status;
    }
    *out = l;
    return DRT_OK;
}

void drt_landmarks_close(struct drt_landmarks *landmarks) {
    if (landmarks) landmark_file_close(landmarks->file);
    memory_free(landmarks);
}

enum drt_status drt_landmarks_rows(const struct drt_landmarks *landmarks, struct drt_landmark_rows *out) {
    LIBRARY_NEEDS(landmarks);
    LIBRARY_NEEDS(out);
    const struct landmark_rows l = landmark_file_rows(landmarks->file);
    if (!l.rows.half)
        return (enum drt_status)fail(STATUS_UNSUPPORTED,
                                     "%s: the store has landmarks of type i8: call "
                                     "drt_landmarks_codes",
                                     __func__);
    *out = (struct drt_landmark_rows){.rows = l.rows.half, .first = l.first, .n = l.rows.n, .dim = l.rows.dim};
    return DRT_OK;
}

enum drt_status drt_landmarks_codes(const struct drt_landmarks *landmarks, struct drt_landmark_codes *out) {
    LIBRARY_NEEDS(landmarks);
    LIBRARY_NEEDS(out);
    const struct landmark_rows l = landmark_file_rows(landmarks->file);
    if (!l.rows.codes)
        return (enum drt_status)fail(STATUS_UNSUPPORTED,
                                     "%s: the store has landmarks of type f16: call "
                                     "drt_landmarks_rows",
                                     __func__);
    *out = (struct drt_landmark_codes){
        .codes = l.rows.codes, .scales = l.rows.scales, .first = l.first, .n = l.rows.n, .dim = l.rows.dim};
    return DRT_OK;
}

enum drt_status drt_landmarks_next(struct drt_store *store, int64_t *first, int64_t from) {
    LIBRARY_NEEDS(store);
    LIBRARY_NEEDS(first);
    LIBRARY_CHECK(from >= 0, "%s: from is %lld", __func__, (long long)from);
    *first = -1;
    if (from >= store->info.chunks) return DRT_OK;
    const struct store_range span = store_dropped_span(store_view_dropped(store->view), from, store->info.chunks);
    if (span.begin < span.end) *first = span.begin;
    return DRT_OK;
}
