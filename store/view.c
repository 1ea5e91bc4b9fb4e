/* view.c -- reads a store: a generation, its mapped files, and chunks and documents by number.
 *
 * Records below a generation's counts never change, so a view holds LMDB's snapshot only during a call, and a
 * long-lived reader does not keep the writer from reusing pages. The files of a replaced index stay mapped, and only
 * the next opening of the writer unlinks them. So a view that opens while an index is replaced retries at most once or
 * twice.
 *
 * A merge of shards changes which file holds a chunk, but not the chunk, its tokens or its landmark. A view maps a
 * shard's files when it first needs them. If a file is missing then, the view reads the newest list of shards and keeps
 * its own counts. If its shards were dropped, the view treats their chunks as dropped from then on. store_view_dropped
 * still gives the ids that were dropped when the view was opened. */
#include "base/crc32c.h"
#include "base/memory.h"
#include "store/catalog/record_format_internal.h"
#include "store/view_internal.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { OPEN_RETRIES = 5 };
/* in a larger store, sizes are checked when files are mapped, so that opening stays fast */
enum { OPEN_CHECK_FILES = 4096 };

/* ---- fingerprints ---- */

static void to_hex(char out[33], const uint8_t bytes[16]) {
    for (int i = 0; i < 16; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

static enum status check_same_hash(const char *field, const char *store, const uint8_t a[16], const char *model,
                                   const uint8_t b[16]) {
    if (memcmp(a, b, 16) == 0) return STATUS_OK;
    char left[33], right[33];
    to_hex(left, a);
    to_hex(right, b);
    return fail(STATUS_MISMATCH, "%s was built with %s %s, but %s has %s; use the model that built it", store, field,
                left, model, right);
}

static enum status check_same(const char *field, const char *store, int32_t a, const char *model, int32_t b) {
    if (a == b) return STATUS_OK;
    return fail(STATUS_MISMATCH, "%s was built with %s %d, but %s has %d; use the model that built it", store, field, a,
                model, b);
}

enum status store_check_fingerprint(const char *store, const struct store_fingerprint *a, const char *model,
                                    const struct store_fingerprint *b) {
    if (a->dim == 0 && b->dim > 0)
        return fail(STATUS_UNSUPPORTED,
                    "%s has no landmarks (it was built with --landmarks none): its chunks are found by words alone, by "
                    "--searcher lexical of drt-index search or --memory; build a store with landmarks for the rest",
                    store);
    TRY(check_same("landmark dimensions", store, a->dim, model, b->dim));
    TRY(check_same("tokens a chunk", store, a->chunk_tokens, model, b->chunk_tokens));
    TRY(check_same("vocabulary size", store, a->vocab_size, model, b->vocab_size));
    TRY(check_same("metric", store, a->metric, model, b->metric));
    TRY(check_same_hash("tokenizer", store, a->tokenizer, model, b->tokenizer));
    return check_same_hash("encoder weights", store, a->encoder, model, b->encoder);
}

/* ---- the store ---- */

static enum status check_files(const struct store *s, struct catalog_txn *t) {
    struct generation_record g;
    TRY(record_get_generation(t, s->catalog, &g));
    struct shard_record *shards;
    TRY(record_list_shards(t, s->catalog, &shards, g.shards));
    enum status status = STATUS_OK;
    int64_t files = 0;
    for (int64_t i = 0; i < g.shards; i = shards[i].last_file_shard + 1)
        files++;
    for (int64_t i = 0; files <= OPEN_CHECK_FILES && i < g.shards && status == STATUS_OK;
         i = shards[i].last_file_shard + 1) {
        struct shard_record file = record_of_shard_file(shards, i);
        char path[FILE_PATH_MAX], remedy[SHARD_REMEDY_MAX];
        if (shard_is_dropped(&file)) continue;
        shard_remedy(remedy, SHARD_TOKENS, &file);
        status = shard_path(path, s->dir, SHARD_TOKENS, i, file.last_file_shard);
        if (status == STATUS_OK) status = stored_file_check(path, file.token_file, remedy);
        const enum shard_kind kind = shard_landmark_kind(s->landmarks);
        shard_remedy(remedy, kind, &file);
        if (status == STATUS_OK) status = shard_path(path, s->dir, kind, i, file.last_file_shard);
        if (status == STATUS_OK) status = stored_file_check(path, file.landmark_file, remedy);
    }
    memory_free(shards);
    return status;
}

static enum status open_store(struct store *s) {
    TRY(catalog_open(&s->catalog, s->dir, false, 0));
    struct catalog_txn *t;
    TRY(catalog_begin(&t, s->catalog, false));
    enum status status = record_get_identity(t, s->catalog, &s->fingerprint, &s->format, &s->landmarks);
    if (status == STATUS_OK) status = catalog_check_record(s->catalog, s->format);
    for (int i = 0; status == STATUS_OK; i++) {
        status = check_files(s, t);
        if (status != STATUS_CORRUPT || i == OPEN_RETRIES) break;
        catalog_pause(t); /* a writer may have merged or dropped shards since the list was read */
        status = catalog_renew(t);
    }
    catalog_abort(t);
    return status;
}

enum status store_open(struct store **out, const char *dir) {
    struct store *s;
    TRY(memory_allocate_zero(&s, 1));
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
    TRY(segment_check_file(path, &(struct segment_shape){dim, r->chunks, r->first_chunk}, false, NULL));
    return vectors_open(out, path, dim, r->chunks, r->first_chunk, true);
}

static void close_shards(struct store_view *v) {
    shard_maps_close(&v->tokens);
    landmarks_close(&v->landmarks);
    memory_free(v->shards);
    v->shards = NULL;
    v->n_shards = 0;
}

/* Maps the shards of the list. Takes ownership of the list. On failure the list is freed and the old one stays. */
static enum status open_shards(struct store_view *v, struct shard_record *shards, int64_t n) {
    const struct store *store = v->store;
    struct landmarks landmarks = {0};
    struct shard_maps tokens;
    enum status s = landmarks_open(&landmarks, store->dir, &store->fingerprint,
                                   (struct landmarks_list){store->landmarks, shards, n}, v->generation.chunks,
                                   (struct store_ranges){v->deleted.ranges, v->deleted.n});
    if (s == STATUS_OK) s = shard_maps_open(&tokens, store->dir, SHARD_TOKENS, &store->fingerprint, shards, n);
    if (s != STATUS_OK) {
        landmarks_close(&landmarks);
        memory_free(shards);
        return s;
    }
    close_shards(v);
    v->shards = shards;
    v->n_shards = n;
    v->landmarks = landmarks;
    v->tokens = tokens;
    v->landmarks.maps.catalog = v->tokens.catalog = store->catalog;
    if (v->map_budget) v->landmarks.maps.budget = v->tokens.budget = v->map_budget;
    return STATUS_OK;
}

void view_limit_maps(struct store_view *v, int64_t files) {
    v->map_budget = v->landmarks.maps.budget = v->tokens.budget = files;
}

/* Reads the newest list of shards. The view uses it if it has other files for the same chunks, or lacks some
 * of these chunks. */
static enum status take_newest_shards(struct store_view *v, bool *changed) {
    const struct catalog *c = v->store->catalog;
    struct generation_record newest;
    struct shard_record *shards = NULL;
    TRY(catalog_renew(v->txn));
    enum status s = record_get_generation(v->txn, c, &newest);
    if (s == STATUS_OK) s = record_list_shards(v->txn, c, &shards, newest.shards);
    catalog_pause(v->txn);
    TRY(s);
    *changed = false;
    for (int64_t i = 0; i < v->n_shards && i < newest.shards && !*changed; i++)
        *changed = shards[i].first_file_shard != v->shards[i].first_file_shard ||
                   shards[i].last_file_shard != v->shards[i].last_file_shard ||
                   shard_is_dropped(&shards[i]) != shard_is_dropped(&v->shards[i]);
    if (!*changed || shard_records_chunks(shards, newest.shards) < v->generation.chunks) {
        memory_free(shards);
        *changed = false;
        return STATUS_OK;
    }
    return open_shards(v, shards, newest.shards);
}

bool view_follow_shards(struct store_view *v, enum status *s) {
    bool changed = false;
    if (*s != STATUS_CORRUPT) return false;
    enum status taken = take_newest_shards(v, &changed);
    if (taken != STATUS_OK) *s = taken;
    return taken == STATUS_OK && changed;
}

/* Closes all files, so that opening can be repeated. */
static void close_files(struct store_view *v) {
    for (int64_t i = 0; v->segments && i < v->n_segments; i++)
        vectors_free(v->segments[i].vectors);
    memory_free(v->segments);
    v->segments = NULL;
    v->n_segments = 0;
    close_shards(v);
    memory_free(v->dropped);
    v->dropped = NULL;
    v->n_dropped = 0;
    memory_free(v->deleted.ranges);
    v->deleted = (struct deleted_list){0};
    view_close_lexical(v);
}

static enum status read_catalog(struct store_view *v, struct segment_record **segments, int64_t *n) {
    const struct catalog *c = v->store->catalog;
    TRY(record_get_generation(v->txn, c, &v->generation));
    if (v->generation.number == 0)
        return fail(STATUS_NOT_FOUND, "%s: nothing is published yet, finish the build first", v->store->dir);
    TRY(record_get_index(v->txn, c, &v->index));
    struct shard_record *shards;
    TRY(record_list_shards(v->txn, c, &shards, v->generation.shards));
    enum status s = record_list_deleted(v->txn, c, &v->deleted, v->generation.documents);
    if (s != STATUS_OK) {
        memory_free(shards);
        return s;
    }
    TRY(open_shards(v, shards, v->generation.shards));
    const struct store_dropped dropped = landmarks_dropped(&v->landmarks);
    TRY(memory_allocate(&v->dropped, (size_t)dropped.n));
    if (dropped.n) memcpy(v->dropped, dropped.ranges, (size_t)dropped.n * sizeof *v->dropped);
    v->n_dropped = dropped.n;
    TRY(view_read_lexical(v));
    return record_list_segments(v->txn, c, segments, n);
}

static enum status open_files(struct store_view *v, const struct segment_record *segments, int64_t n) {
    const struct store *store = v->store;
    bool covered = true;
    if (n) TRY(segments_cover(&covered, segments, n, v->shards, &v->generation));
    if (shard_records_chunks(v->shards, v->n_shards) != v->generation.chunks || !covered)
        return fail(STATUS_CORRUPT,
                    "%s: shards, segments and generation disagree about the chunks, run drt-index repair",
                    catalog_path(store->catalog));
    TRY(memory_allocate_zero(&v->segments, (size_t)n));
    for (int64_t i = 0; i < n; i++) {
        v->segments[i].record = segments[i];
        v->n_segments = i + 1;
        TRY(segment_open(&v->segments[i].vectors, store->dir, &segments[i], store->fingerprint.dim));
    }
    return STATUS_OK;
}

/* A generation may be replaced after its record is read and before its files are opened. That is not damage: the newer
 * generation is opened. */
static enum status open_generation(struct store_view *v) {
    int64_t failed = -1;
    for (int i = 0;; i++) {
        struct segment_record *segments = NULL;
        int64_t n = 0;
        enum status s = read_catalog(v, &segments, &n);
        catalog_pause(v->txn);
        bool again = s == STATUS_OK && v->generation.number != failed && i < OPEN_RETRIES;
        failed = v->generation.number;
        if (s == STATUS_OK) s = catalog_check_folder(v->store->catalog);
        if (s == STATUS_OK) s = open_files(v, segments, n);
        memory_free(segments);
        if (s == STATUS_OK) view_open_lexical(v);
        bool damaged = s == STATUS_CORRUPT || (s == STATUS_OK && v->lexical_status != STATUS_OK);
        if (!damaged || !again) return s;
        close_files(v);
        TRY(catalog_renew(v->txn));
    }
}

enum status store_view_open(struct store_view **out, struct store *store) {
    struct store_view *v;
    TRY(memory_allocate_zero(&v, 1));
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

const char *store_view_path(const struct store_view *v) {
    return v->store->dir;
}

void store_view_close(struct store_view *v) {
    if (!v) return;
    close_files(v);
    catalog_abort(v->txn);
    memory_free(v->text);
    memory_free(v);
}

enum status store_view_cursor(struct store_view *v, uint8_t cursor[STORE_CURSOR_MAX], size_t *bytes) {
    *bytes = 0;
    if (v->generation.shards == 0) return STATUS_OK;
    TRY(catalog_renew(v->txn));
    struct catalog_key key = catalog_key((uint64_t)v->generation.shards - 1);
    struct bytes value;
    struct shard_record r = {0};
    enum status s = catalog_get(v->txn, &value, TABLE_SHARDS, key.bytes, sizeof key.bytes);
    if (s == STATUS_OK)
        s = record_decode_shard((struct bytes){key.bytes, sizeof key.bytes}, value, v->store->catalog, &r);
    if (s == STATUS_OK && r.cursor_bytes) memcpy(cursor, r.cursor, r.cursor_bytes);
    *bytes = r.cursor_bytes;
    catalog_pause(v->txn);
    return s;
}

void store_view_info(const struct store_view *v, struct store_info *out) {
    *out = (struct store_info){.fingerprint = v->store->fingerprint,
                               .format = v->store->format,
                               .landmarks = v->store->landmarks,
                               .generation = (uint64_t)v->generation.number};
    out->chunks = v->generation.chunks;
    out->documents = v->generation.documents;
    out->tokens = v->generation.tokens;
    out->segments = v->n_segments;
    out->duplicates = v->generation.duplicates;
    for (int64_t i = 0; i < v->generation.shards; i = v->shards[i].last_file_shard + 1) {
        struct shard_record file = record_of_shard_file(v->shards, i);
        out->shards += !shard_is_dropped(&file);
        out->token_bytes += file.token_file.bytes;
        out->landmark_bytes += file.landmark_file.bytes;
    }
    for (int64_t i = 0; i < v->generation.shards; i++) {
        const struct shard_record *r = &v->shards[i];
        if (!shard_is_dropped(r)) continue;
        out->dropped_shards++;
        out->dropped_chunks += r->chunks;
        out->dropped_documents += r->documents;
        out->dropped_tokens += r->tokens;
    }
    out->deleted_chunks = v->deleted.chunks;
    out->deleted_documents = v->deleted.documents;
    out->deleted_tokens = v->deleted.tokens;
    out->dropped_chunks += v->deleted.chunks;
    out->dropped_documents += v->deleted.documents;
    out->dropped_tokens += v->deleted.tokens;
    for (int64_t i = 0; i < v->n_segments; i++)
        out->index_bytes += v->segments[i].record.file.bytes;
    if (v->index.template_number) out->index_bytes += v->index.template_file.bytes;
    out->lexical = v->lexical_record.wanted || v->lexical_status != STATUS_OK;
    out->lexical_segments = v->lexical_record.n;
    out->lexical_bytes = lexical_record_bytes(&v->lexical_record);
    out->catalog_bytes = catalog_bytes(v->store->catalog);
    out->frozen = catalog_is_frozen(v->store->catalog);
    snprintf(out->index, sizeof out->index, "%s", v->index.factory);
    out->index_chosen = v->index.chosen;
}

struct store_dropped store_view_dropped(const struct store_view *v) {
    return (struct store_dropped){v->dropped, v->n_dropped};
}

/* ---- documents and chunks ---- */

/* Fails for a document or chunk of a dropped shard. The records of its documents exist for views of older
 * generations. */
static enum status check_not_dropped(const struct store_view *v, int64_t shard, const char *what, int64_t number) {
    if (shard >= v->generation.shards || !shard_is_dropped(&v->shards[shard])) return STATUS_OK;
    return fail(STATUS_NOT_FOUND, "%s: %s %lld was dropped with shard %lld", v->store->dir, what, (long long)number,
                (long long)shard);
}

static enum status copy_document(struct store_view *v, struct store_document *out, int64_t document) {
    struct document_record d;
    TRY(record_get_document(v->txn, v->store->catalog, &d, document));
    TRY(check_not_dropped(v, d.shard, "document", document));
    if (!store_dropped_live(store_view_dropped(v), d.first_chunk))
        return fail(STATUS_NOT_FOUND, "%s: document %lld was deleted", v->store->dir, (long long)document);
    return document_record_copy(out, &v->text, &v->text_capacity, document, &d);
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
    /* Fails for a chunk that this view does not have: a chunk of a sealed, unpublished shard, or of a
     * later generation. */
    if (!found || *document >= v->generation.documents) *document = -1;
    return STATUS_OK;
}

static enum status no_chunk(const struct store_view *v, int64_t chunk) {
    if (chunk >= 0 && chunk < v->generation.chunks)
        return fail(STATUS_NOT_FOUND, "%s: chunk %lld was %s", v->store->dir, (long long)chunk,
                    store_dropped_live(landmarks_missing(&v->landmarks), chunk) ? "deleted with its document"
                                                                                : "dropped with its shard");
    return fail(STATUS_NOT_FOUND, "%s: there is no chunk %lld, the store has %lld", v->store->dir, (long long)chunk,
                (long long)v->generation.chunks);
}

static enum status bad_token(const struct store_view *v, const struct shard_record *shard, int64_t token) {
    char path[FILE_PATH_MAX];
    TRY(shard_path(path, v->store->dir, SHARD_TOKENS, shard->first_file_shard, shard->last_file_shard));
    return fail(STATUS_CORRUPT, "%s: token %lld is outside the vocabulary, run drt-index verify --deep", path,
                (long long)token);
}

/* Copies n ids of a run, and -1 to the rest of ids [length]. The record's numbers are checked against the shard before
 * its tokens are read. */
static enum status copy_ids(struct store_view *v, int32_t *ids, int length, const struct run_record *run, int64_t at,
                            int n) {
    const struct store_fingerprint *f = &v->store->fingerprint;
    const struct shard_record *shard = run->shard < v->n_shards ? &v->shards[run->shard] : NULL;
    if (!shard || run->token_offset + run->tokens > shard->tokens)
        return fail(STATUS_CORRUPT, "%s: the run of document %lld points outside its token shard, run drt-index repair",
                    catalog_path(v->store->catalog), (long long)run->document);
    bool full;
    shard_maps_begin(&v->tokens);
    TRY(shard_maps_touch(&v->tokens, &full, run->shard));
    const struct shard_map *m = shard_maps_get(&v->tokens, run->shard);
    int64_t first = shard->first_token - m->first_row + run->token_offset + at;
    for (int i = 0; i < n; i++) {
        uint32_t id = shard_id(m, first + i);
        if (id >= (uint32_t)f->vocab_size) return bad_token(v, shard, first + i);
        ids[i] = (int32_t)id;
    }
    for (int i = n; i < length; i++)
        ids[i] = -1;
    return STATUS_OK;
}

enum status store_view_chunk(struct store_view *v, struct store_chunk *out, int32_t *ids, int64_t chunk) {
    return store_view_ids(v, out, ids, chunk, 0);
}

/* Finds the run of a chunk, in a transaction. */
static enum status find_run(struct store_view *v, int64_t *first, struct run_record *run, int64_t chunk) {
    if (chunk < 0 || chunk >= v->generation.chunks) return no_chunk(v, chunk);
    if (!store_dropped_live((struct store_dropped){v->dropped, v->n_dropped}, chunk) && v->deleted.n > 0)
        return no_chunk(v, chunk);
    TRY(record_find_run(v->txn, v->store->catalog, first, run, chunk));
    if (run->tokens > (chunk - *first) * (int64_t)v->store->fingerprint.chunk_tokens) return STATUS_OK;
    return fail(STATUS_CORRUPT, "%s: the run of chunk %lld has too few tokens, run drt-index repair",
                catalog_path(v->store->catalog), (long long)chunk);
}

/* Reads ids [length] of a run from token `at` on; *n: how many there are. */
static enum status run_ids(struct store_view *v, int32_t *ids, int length, int *n, const struct run_record *run,
                           int64_t at, int64_t chunk) {
    const int64_t left = run->tokens - at;
    enum status s;
    *n = left < length ? left > 0 ? (int)left : 0 : length;
    do {
        s = check_not_dropped(v, run->shard, "chunk", chunk);
        if (s == STATUS_OK) s = copy_ids(v, ids, length, run, at, *n);
    } while (view_follow_shards(v, &s));
    return s;
}

enum status store_view_ids(struct store_view *v, struct store_chunk *out, int32_t *ids, int64_t chunk, int offset) {
    assert(offset >= 0 && offset < v->store->fingerprint.chunk_tokens);
    struct run_record run;
    int64_t first;
    TRY(catalog_renew(v->txn));
    enum status s = find_run(v, &first, &run, chunk);
    catalog_pause(v->txn);
    TRY(s);
    const int chunk_tokens = (int)v->store->fingerprint.chunk_tokens;
    struct store_chunk found = {.id = chunk,
                                .document = run.document,
                                .in_document = chunk - first,
                                .token_offset = (chunk - first) * chunk_tokens + offset};
    TRY(run_ids(v, ids, chunk_tokens, &found.n_tokens, &run, found.token_offset, chunk));
    *out = found;
    return STATUS_OK;
}

enum status store_view_passages(struct store_view *v, int32_t *ids, int length, const int64_t *chunks, int64_t n) {
    enum { TOGETHER = 64 }; /* chunks whose runs are found in one transaction */
    struct run_record run[TOGETHER];
    int64_t first[TOGETHER];
    for (int64_t i = 0; i < n; i += TOGETHER) {
        const int64_t end = n - i < TOGETHER ? n - i : TOGETHER;
        enum status s = STATUS_OK;
        TRY(catalog_renew(v->txn));
        for (int64_t j = 0; j < end && s == STATUS_OK; j++)
            if (chunks[i + j] >= 0) s = find_run(v, &first[j], &run[j], chunks[i + j]);
        catalog_pause(v->txn);
        TRY(s);
        for (int64_t j = 0; j < end; j++) {
            const int64_t chunk = chunks[i + j], tokens = v->store->fingerprint.chunk_tokens;
            int there;
            if (chunk >= 0)
                TRY(run_ids(v, ids + (i + j) * length, length, &there, &run[j], (chunk - first[j]) * tokens, chunk));
        }
    }
    return STATUS_OK;
}

static enum status find_landmark(const struct store_view *v, int64_t chunk) {
    bool there =
        chunk >= 0 && chunk < v->generation.chunks && store_dropped_live(landmarks_dropped(&v->landmarks), chunk);
    return there ? STATUS_OK : no_chunk(v, chunk);
}

enum status store_view_needs_landmarks(const struct store_view *v) {
    if (v->store->landmarks != STORE_LANDMARKS_NONE) return STATUS_OK;
    return fail(STATUS_UNSUPPORTED,
                "%s: has no landmarks (it was built with --landmarks none): search by words (--searcher lexical)",
                v->store->dir);
}

enum status store_view_landmark(struct store_view *v, float *out, int64_t chunk) {
    enum status s;
    TRY(store_view_needs_landmarks(v));
    do {
        s = find_landmark(v, chunk);
        if (s == STATUS_OK) s = landmarks_to_float(out, &v->landmarks, chunk, 1);
    } while (view_follow_shards(v, &s));
    return s;
}

enum status store_view_landmark_rows(struct store_view *v, struct store_rows *rows, int64_t first) {
    int64_t mapped;
    enum status s;
    TRY(store_view_needs_landmarks(v));
    do {
        s = find_landmark(v, first);
        if (s == STATUS_OK) s = landmarks_map(&v->landmarks, &mapped, first, 1);
    } while (view_follow_shards(v, &s));
    TRY(s);
    *rows = landmarks_rows(&v->landmarks, first);
    struct store_range there = store_dropped_span(landmarks_dropped(&v->landmarks), first, first + rows->n);
    rows->n = there.end - there.begin;
    return STATUS_OK;
}
