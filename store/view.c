/* view.c -- reading a store: a generation, its files mapped, chunks and documents looked up by number.
 *
 * Records below a generation's counts never change, so a view needs LMDB's snapshot only for the length of one call,
 * and a long-lived reader does not keep the writer from reusing pages. Files of a replaced index stay mapped; only
 * the next opening of the writer unlinks them, so a view that opens while an index is replaced retries at most once
 * or twice. */
#include "base/crc32c.h"
#include "base/memory.h"
#include "store/view_internal.h"
#include <stdio.h>
#include <string.h>

enum { OPEN_RETRIES = 5 };

/* ---- the store ---- */

static enum status check_files(const struct store *s, struct catalog_txn *t) {
    struct generation_record g;
    TRY(record_get_generation(t, s->catalog, &g));
    struct shard_record *shards;
    TRY(record_list_shards(t, s->catalog, &shards, g.shards));
    enum status status = STATUS_OK;
    for (int64_t i = 0; i < g.shards && status == STATUS_OK; i++) {
        char path[FILE_PATH_MAX], remedy[SHARD_REMEDY_MAX];
        if (shard_is_dropped(&shards[i])) continue;
        shard_remedy(remedy, SHARD_TOKENS, i);
        status = shard_path(path, s->dir, SHARD_TOKENS, i);
        if (status == STATUS_OK) status = stored_file_check(path, shards[i].token_file, remedy);
        shard_remedy(remedy, SHARD_LANDMARKS, i);
        if (status == STATUS_OK) status = shard_path(path, s->dir, SHARD_LANDMARKS, i);
        if (status == STATUS_OK) status = stored_file_check(path, shards[i].landmark_file, remedy);
    }
    memory_free(shards);
    return status;
}

static enum status open_store(struct store *s) {
    TRY(catalog_open(&s->catalog, s->dir, false, 0));
    struct catalog_txn *t;
    TRY(catalog_begin(&t, s->catalog, false));
    enum status status = record_get_fingerprint(t, s->catalog, &s->fingerprint, &s->format);
    if (status == STATUS_OK) status = check_files(s, t);
    catalog_abort(t);
    return status;
}

enum status store_open(struct store **out, const char *dir) {
    struct store *s;
    TRY(memory_allocate_zero((void **)&s, 1, sizeof *s));
    enum status status = STATUS_OK;
    if (snprintf(s->dir, sizeof s->dir, "%s", dir) >= FILE_PATH_MAX)
        status = fail(STATUS_INVALID, "%.100s...: path is too long", dir);
    if (status == STATUS_OK) status = open_store(s);
    if (status != STATUS_OK) {
        store_close(s);
        return status;
    }
    *out = s;
    return STATUS_OK;
}

void store_close(struct store *s) {
    if (!s) return;
    catalog_close(s->catalog);
    memory_free(s);
}

/* ---- opening a view ---- */

enum status index_path(char out[FILE_PATH_MAX], const char *store, int64_t number) {
    char name[64];
    snprintf(name, sizeof name, "index/%05lld.faiss", (long long)number);
    return file_join(out, store, name);
}

enum status file_head_checksum(uint32_t *out, const char *path, uint64_t bytes) {
    struct file_map map;
    TRY(file_map(&map, path));
    enum status s = STATUS_OK;
    if (bytes > map.size)
        s = fail(STATUS_CORRUPT, "%s: shorter than recorded, run drt-index repair", path);
    else
        *out = crc32c(0, map.data, bytes);
    file_unmap(&map);
    return s;
}

enum status segment_open(struct vectors **out, const char *store, const struct segment_record *r, int dim) {
    char path[FILE_PATH_MAX];
    TRY(index_path(path, store, r->number));
    TRY(stored_file_check(path, r->file, "run drt-index repair"));
    uint32_t crc = 0;
    TRY(file_head_checksum(&crc, path, r->head.bytes));
    if (crc != r->head.crc) return fail(STATUS_CORRUPT, "%s: the index is damaged, run drt-index repair", path);
    return vectors_open(out, path, dim, r->chunks, r->first_chunk, true);
}

enum status landmarks_open(struct landmarks *out, const char *store, const struct shard_record *list, int64_t count,
                           const struct store_fingerprint *f) {
    struct landmarks l = {.dim = f->dim};
    TRY(memory_allocate_zero((void **)&l.shards, (size_t)count, sizeof *l.shards));
    for (int64_t i = 0; i < count; i++) {
        enum status s = shard_open(&l.shards[i], store, SHARD_LANDMARKS, &list[i], f);
        if (s != STATUS_OK) {
            landmarks_close(&l);
            return s;
        }
        l.n_shards++;
        l.chunks += list[i].chunks;
    }
    enum status s = record_list_dropped(&l.dropped, &l.n_dropped, list, count);
    if (s != STATUS_OK) {
        landmarks_close(&l);
        return s;
    }
    *out = l;
    return STATUS_OK;
}

void landmarks_close(struct landmarks *l) {
    for (int64_t i = 0; i < l->n_shards; i++)
        shard_close(&l->shards[i]);
    memory_free(l->shards);
    memory_free(l->dropped);
    *l = (struct landmarks){0};
}

/* Lets all files go, so that opening can be tried again. */
static void close_files(struct store_view *v) {
    for (int64_t i = 0; v->segments && i < v->n_segments; i++)
        vectors_free(v->segments[i].vectors);
    memory_free(v->segments);
    for (int64_t i = 0; v->tokens && i < v->generation.shards; i++)
        shard_close(&v->tokens[i]);
    memory_free(v->tokens);
    landmarks_close(&v->landmarks);
    memory_free(v->shards);
    v->segments = NULL;
    v->tokens = NULL;
    v->shards = NULL;
    v->n_segments = 0;
}

static enum status read_catalog(struct store_view *v, struct segment_record **segments, int64_t *n) {
    const struct catalog *c = v->store->catalog;
    TRY(record_get_generation(v->txn, c, &v->generation));
    if (v->generation.number == 0)
        return fail(STATUS_NOT_FOUND, "%s: nothing is published yet, finish the build first", v->store->dir);
    TRY(record_get_index(v->txn, c, &v->index));
    TRY(record_list_shards(v->txn, c, &v->shards, v->generation.shards));
    return record_list_segments(v->txn, c, segments, n);
}

static enum status open_files(struct store_view *v, const struct segment_record *segments, int64_t n) {
    const struct store *store = v->store;
    TRY(landmarks_open(&v->landmarks, store->dir, v->shards, v->generation.shards, &store->fingerprint));
    struct store_dropped dropped = landmarks_dropped(&v->landmarks);
    if (v->landmarks.chunks != v->generation.chunks ||
        (n && !segments_cover(segments, n, dropped, v->generation.chunks)))
        return fail(STATUS_CORRUPT,
                    "%s: shards, segments and generation disagree about the chunks, run drt-index repair",
                    catalog_path(store->catalog));
    TRY(memory_allocate_zero((void **)&v->tokens, (size_t)v->generation.shards, sizeof *v->tokens));
    for (int64_t i = 0; i < v->generation.shards; i++)
        TRY(shard_open(&v->tokens[i], store->dir, SHARD_TOKENS, &v->shards[i], &store->fingerprint));
    TRY(memory_allocate_zero((void **)&v->segments, (size_t)n, sizeof *v->segments));
    for (int64_t i = 0; i < n; i++) {
        v->segments[i].record = segments[i];
        v->n_segments = i + 1;
        TRY(segment_open(&v->segments[i].vectors, store->dir, &segments[i], store->fingerprint.dim));
    }
    return STATUS_OK;
}

/* A generation that was replaced between its record and its files' opening is not damage: take the newer one. */
static enum status open_generation(struct store_view *v) {
    int64_t failed = -1;
    for (int i = 0;; i++) {
        struct segment_record *segments = NULL;
        int64_t n = 0;
        enum status s = read_catalog(v, &segments, &n);
        catalog_pause(v->txn);
        bool again = s == STATUS_OK && v->generation.number != failed && i < OPEN_RETRIES;
        failed = v->generation.number;
        if (s == STATUS_OK) s = open_files(v, segments, n);
        memory_free(segments);
        if (s != STATUS_CORRUPT || !again) return s;
        close_files(v);
        TRY(catalog_renew(v->txn));
    }
}

enum status store_view_open(struct store_view **out, struct store *store) {
    struct store_view *v;
    TRY(memory_allocate_zero((void **)&v, 1, sizeof *v));
    v->store = store;
    enum status s = catalog_begin(&v->txn, store->catalog, false);
    if (s == STATUS_OK) s = open_generation(v);
    if (s != STATUS_OK) {
        store_view_close(v);
        return s;
    }
    *out = v;
    return STATUS_OK;
}

void store_view_close(struct store_view *v) {
    if (!v) return;
    close_files(v);
    catalog_abort(v->txn);
    memory_free(v->text);
    memory_free(v);
}

void store_view_info(const struct store_view *v, struct store_info *out) {
    *out = (struct store_info){
        .fingerprint = v->store->fingerprint, .format = v->store->format, .generation = (uint64_t)v->generation.number};
    out->chunks = v->generation.chunks;
    out->documents = v->generation.documents;
    out->tokens = v->generation.tokens;
    out->shards = v->generation.shards;
    out->segments = v->n_segments;
    out->duplicates = v->generation.duplicates;
    for (int64_t i = 0; i < v->generation.shards; i++) {
        const struct shard_record *r = &v->shards[i];
        out->token_bytes += r->token_file.bytes;
        out->landmark_bytes += r->landmark_file.bytes;
        if (!shard_is_dropped(r)) continue;
        out->dropped_shards++;
        out->dropped_chunks += r->chunks;
        out->dropped_documents += r->documents;
        out->dropped_tokens += r->tokens;
    }
    for (int64_t i = 0; i < v->n_segments; i++)
        out->index_bytes += v->segments[i].record.file.bytes;
    if (v->index.template_number) out->index_bytes += v->index.template_file.bytes;
    out->catalog_bytes = catalog_bytes(v->store->catalog);
    snprintf(out->index, sizeof out->index, "%s", v->index.factory);
}

struct store_dropped store_view_dropped(const struct store_view *v) {
    return landmarks_dropped(&v->landmarks);
}

/* ---- documents and chunks ---- */

/* The records of its documents stay, so that views of older generations read them. */
static enum status check_not_dropped(const struct store_view *v, int64_t shard, const char *what, int64_t number) {
    if (shard >= v->generation.shards || !shard_is_dropped(&v->shards[shard])) return STATUS_OK;
    return fail(STATUS_NOT_FOUND, "%s: %s %lld was dropped with shard %lld", v->store->dir, what, (long long)number,
                (long long)shard);
}

static enum status copy_document(struct store_view *v, struct store_document *out, int64_t document) {
    struct document_record d;
    TRY(record_get_document(v->txn, v->store->catalog, &d, document));
    TRY(check_not_dropped(v, d.shard, "document", document));
    TRY(memory_grow((void **)&v->text, &v->text_capacity, d.source_bytes + d.key_bytes + 2, 1));
    char *source = v->text, *key = v->text + d.source_bytes + 1;
    memcpy(source, d.source, d.source_bytes);
    source[d.source_bytes] = 0;
    memcpy(key, d.key, d.key_bytes);
    key[d.key_bytes] = 0;
    *out = (struct store_document){.id = document,
                                   .first_chunk = d.first_chunk,
                                   .chunks = d.chunks,
                                   .tokens = d.tokens,
                                   .offset = d.offset,
                                   .line = d.line,
                                   .bytes = d.bytes,
                                   .source = source,
                                   .key = key};
    memcpy(out->hash, d.hash, sizeof out->hash);
    return STATUS_OK;
}

enum status store_view_document(struct store_view *v, struct store_document *out, int64_t document) {
    if (document < 0 || document >= v->generation.documents)
        return fail(STATUS_NOT_FOUND, "%s: there is no document %lld, the store has %lld", v->store->dir,
                    (long long)document, (long long)v->generation.documents);
    TRY(catalog_renew(v->txn));
    enum status s = copy_document(v, out, document);
    catalog_pause(v->txn);
    return s;
}

enum status store_view_find_document(struct store_view *v, int64_t *document, const uint8_t hash[16]) {
    bool found = false;
    TRY(catalog_renew(v->txn));
    enum status s = record_find_hash(v->txn, hash, &found, document);
    catalog_pause(v->txn);
    TRY(s);
    /* Of a shard that is sealed and not published, or of a later generation: nothing that this view has. */
    if (!found || *document >= v->generation.documents) *document = -1;
    return STATUS_OK;
}

static enum status no_chunk(const struct store_view *v, int64_t chunk) {
    if (chunk >= 0 && chunk < v->generation.chunks)
        return fail(STATUS_NOT_FOUND, "%s: chunk %lld was dropped with its shard", v->store->dir, (long long)chunk);
    return fail(STATUS_NOT_FOUND, "%s: there is no chunk %lld, the store has %lld", v->store->dir, (long long)chunk,
                (long long)v->generation.chunks);
}

/* Numbers of the record are checked against the shard before anything is read there. */
static enum status copy_ids(const struct store_view *v, int32_t *ids, const struct run_record *run, int64_t at, int n) {
    const struct store_fingerprint *f = &v->store->fingerprint;
    const struct shard_map *m = run->shard < v->generation.shards ? &v->tokens[run->shard] : NULL;
    if (!m || run->token_offset + run->tokens > m->count)
        return fail(STATUS_CORRUPT, "%s: the run of document %lld points outside its token shard, run drt-index repair",
                    catalog_path(v->store->catalog), (long long)run->document);
    int64_t first = run->token_offset + at;
    for (int i = 0; i < n; i++) {
        uint32_t id = shard_id(m, first + i);
        if (id >= (uint32_t)f->vocab_size)
            return fail(STATUS_CORRUPT,
                        "%s/tokens/%05lld.tok: token %lld is outside the vocabulary, run drt-index verify --deep",
                        v->store->dir, (long long)run->shard, (long long)(first + i));
        ids[i] = (int32_t)id;
    }
    for (int i = n; i < f->chunk_tokens; i++)
        ids[i] = -1;
    return STATUS_OK;
}

enum status store_view_chunk(struct store_view *v, struct store_chunk *out, int32_t *ids, int64_t chunk) {
    if (chunk < 0 || chunk >= v->generation.chunks) return no_chunk(v, chunk);
    struct run_record run;
    int64_t first;
    TRY(catalog_renew(v->txn));
    enum status s = record_find_run(v->txn, v->store->catalog, &first, &run, chunk);
    catalog_pause(v->txn);
    TRY(s);
    TRY(check_not_dropped(v, run.shard, "chunk", chunk));
    int64_t chunk_tokens = v->store->fingerprint.chunk_tokens, at = (chunk - first) * chunk_tokens;
    int64_t left = run.tokens - at;
    if (left < 1)
        return fail(STATUS_CORRUPT, "%s: the run of chunk %lld has too few tokens, run drt-index repair",
                    catalog_path(v->store->catalog), (long long)chunk);
    struct store_chunk found = {
        .id = chunk, .document = run.document, .in_document = chunk - first, .token_offset = at};
    found.n_tokens = (int)(left < chunk_tokens ? left : chunk_tokens);
    TRY(copy_ids(v, ids, &run, at, found.n_tokens));
    *out = found;
    return STATUS_OK;
}

enum status store_view_landmark(struct store_view *v, float *out, int64_t chunk) {
    if (chunk < 0 || chunk >= v->generation.chunks || !store_dropped_there(landmarks_dropped(&v->landmarks), chunk))
        return no_chunk(v, chunk);
    landmarks_to_float(out, &v->landmarks, chunk, 1);
    return STATUS_OK;
}

enum status store_view_landmark_rows(struct store_view *v, const uint16_t **rows, int64_t *n, int64_t first) {
    if (first < 0 || first >= v->generation.chunks || !store_dropped_there(landmarks_dropped(&v->landmarks), first))
        return no_chunk(v, first);
    *rows = landmarks_rows(&v->landmarks, n, first);
    return STATUS_OK;
}
