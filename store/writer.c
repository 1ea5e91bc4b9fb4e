/* writer.c -- the writer: lock, open shard, seal, journal.
 *
 * Order of a seal: each data file is written under a temporary name, synced and renamed, and its folder is synced; then
 * one LMDB transaction records the shard, its documents, runs and hashes, and perhaps the shards after it. A killed
 * writer leaves either a recorded shard or orphan files, which the next writer removes. */
#include "base/memory.h"
#include "base/system/fault.h"
#include "store/catalog/frozen_internal.h"
#include "store/catalog/record_format_internal.h"
#include "store/lexical/lexical_follow_internal.h"
#include "store/shards/known_hashes_internal.h"
#include "store/writer_internal.h"
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *const writer_folders[WRITER_FOLDERS] = {"tokens", "landmarks", "index", "lexical"};

/* ---- opening ---- */

static enum status take_lock(struct store_writer *w) {
    char path[FILE_PATH_MAX];
    TRY(file_join(path, w->dir, "lock"));
    const bool there = file_exists(path);
    enum status s = file_lock(&w->lock, path);
    w->made.lock = s == STATUS_OK && !there;
    if (s == STATUS_BUSY)
        return fail(STATUS_BUSY, "%s: another writer is at work on this store, wait until it is done", w->dir);
    if (s == STATUS_IO && access(w->dir, W_OK) != 0)
        return fail(STATUS_READ_ONLY, "%s: no permission to write in this store", w->dir);
    return s;
}

/* Checks that a new store's folder is empty, so that a mistake such as `--out ~` does not mix a store
 * with other files. */
static enum status check_folder(const char *dir) {
    DIR *folder = opendir(dir);
    if (!folder) return fail_errno("%s", dir);
    enum status s = STATUS_OK;
    for (struct dirent *entry; s == STATUS_OK && (entry = readdir(folder));) {
        const char *name = entry->d_name;
        bool ours = name[0] == '.' || strcmp(name, "catalog") == 0 || strcmp(name, "lock") == 0;
        for (size_t i = 0; i < WRITER_FOLDERS; i++)
            ours = ours || strcmp(name, writer_folders[i]) == 0;
        if (!ours)
            s = fail(STATUS_INVALID, "%s: not a store and not empty (%s is there), choose another folder", dir, name);
    }
    closedir(folder);
    return s;
}

static enum status make_folders(struct store_writer *w) {
    for (size_t i = 0; i < WRITER_FOLDERS; i++) {
        char path[FILE_PATH_MAX];
        TRY(file_join(path, w->dir, writer_folders[i]));
        const bool there = file_is_directory(path);
        TRY(file_make_directory(path));
        w->made.folders[i] = !there;
    }
    return file_sync_directory(w->dir);
}

static enum status check_type(const struct store_writer *w, const struct store_writer_config *config) {
    if (!config || config->landmarks == STORE_LANDMARKS_KEEP || config->landmarks == w->landmark_type) return STATUS_OK;
    return fail(STATUS_MISMATCH, "%s: the store has landmarks of type %s, not %s: choose another folder, or that type",
                w->dir, store_landmarks_name(w->landmark_type), store_landmarks_name(config->landmarks));
}

/* Reads the catalog's state. An empty catalog gets the fingerprint and the type of landmarks. A catalog of an older
 * format is raised to the newest format for its type. */
static enum status read_state(struct store_writer *w, const struct store_writer_config *config) {
    struct catalog_txn *t;
    int format = STORE_FORMAT_VERSION;
    int64_t loose = 0; /* duplicates that earlier generations counted after their last shard */
    TRY(catalog_begin(&t, w->catalog, false));
    enum status s = record_get_identity(t, w->catalog, &w->fingerprint, &format, &w->landmark_type);
    bool fresh = s == STATUS_NOT_FOUND && config;
    if (s == STATUS_OK) s = catalog_check_record(w->catalog, format);
    if (s == STATUS_OK) s = record_get_generation(t, w->catalog, &w->published);
    if (s == STATUS_OK) s = record_get_sealed(t, w->catalog, &w->sealed, &w->published, &loose);
    if (s == STATUS_OK) w->sealed.duplicates += loose;
    catalog_abort(t);
    if (!fresh) {
        TRY(s);
        if (w->published.shards > w->sealed.shards || w->published.chunks > w->sealed.chunks)
            return fail(STATUS_CORRUPT, "%s: generation %lld has more shards than are recorded, run drt-index verify",
                        catalog_path(w->catalog), (long long)w->published.number);
        if (config) TRY(store_check_fingerprint(w->dir, &w->fingerprint, "the model", &config->fingerprint));
        TRY(check_type(w, config));
        if (format == record_format_of(w->landmark_type)) return catalog_renew_record(w->catalog);
    }
    if (fresh) {
        w->fingerprint = config->fingerprint;
        w->landmark_type = config->landmarks == STORE_LANDMARKS_KEEP ? STORE_LANDMARKS_F16 : config->landmarks;
    }
    TRY(catalog_begin(&t, w->catalog, true));
    s = record_put_format(t, w->landmark_type); /* also in an older store, because new records have this format */
    if (s == STATUS_OK) s = record_put_fingerprint(t, &w->fingerprint);
    if (s == STATUS_OK) s = fault_point("store:create:before-commit");
    if (s != STATUS_OK) {
        catalog_abort(t);
        return s;
    }
    TRY(catalog_commit(t));
    return fault_point("store:create:committed");
}

/* Refuses to make a new catalog beside data files. They would become orphan files and be removed, and hours of
 * encoding would be lost. */
static enum status check_no_shards(const char *dir) {
    char path[FILE_PATH_MAX];
    for (size_t i = 0; i < WRITER_FOLDERS; i++) {
        TRY(file_join(path, dir, writer_folders[i]));
        if (writer_folder_has_files(path))
            return fail(STATUS_CORRUPT,
                        "%s: is not empty, but catalog/data.mdb is missing or empty: restore the catalog, or choose "
                        "another folder",
                        path);
    }
    return STATUS_OK;
}

static enum status remove_file(void *context, const char *path) {
    (void)context;
    return file_remove(path);
}

static enum status remove_orphan_file(void *context, const char *path) {
    TRY(fault_point("store:open:before-remove"));
    return remove_file(context, path);
}

static enum status make_store_folder(struct store_writer *w) {
    const bool there = file_exists(w->dir);
    TRY(file_make_directory(w->dir));
    w->made.store = !there;
    return STATUS_OK;
}

static enum status open_writer(struct store_writer *w, const struct store_writer_config *config, bool create) {
    char folder[FILE_PATH_MAX], path[FILE_PATH_MAX];
    bool unwritten;
    TRY(frozen_refuse(w->dir)); /* before a lock file is created there */
    TRY(file_join(folder, w->dir, "catalog"));
    TRY(file_join(path, folder, "data.mdb"));
    bool exists = file_exists(path);
    if (!exists && !create) return fail(STATUS_NOT_FOUND, "%s: no store here (no catalog/data.mdb)", w->dir);
    if (!exists) TRY(make_store_folder(w));
    if (!exists) TRY(check_folder(w->dir));
    TRY(catalog_is_unwritten(&unwritten, folder));
    if (unwritten) TRY(check_no_shards(w->dir));
    TRY(take_lock(w));
    w->made.catalog = !file_exists(folder);
    TRY(make_folders(w));
    TRY(fault_point("store:open:locked"));
    TRY(catalog_open(&w->catalog, w->dir, true, config ? config->max_catalog_bytes : 0));
    TRY(read_state(w, config));
    TRY(orphan_files_each(w->dir, w->catalog, remove_orphan_file, NULL));
    if (w->sealed.documents == 0) TRY(known_hashes_create(&w->known));
    if (config && config->held_bytes > 0) TRY(held_pool_create(&w->held, config->held_bytes));
    TRY(catalog_begin(&w->lookup, w->catalog, false));
    catalog_pause(w->lookup);
    return STATUS_OK;
}

enum status writer_open(struct store_writer **out, const char *dir, const struct store_writer_config *config,
                        bool create) {
    struct store_writer *w;
    TRY(memory_allocate_zero(&w, 1));
    w->lock = -1;
    enum status s = STATUS_OK;
    if (snprintf(w->dir, sizeof w->dir, "%s", dir) >= FILE_PATH_MAX)
        s = fail(STATUS_INVALID, "%.100s...: path is too long", dir);
    if (s == STATUS_OK) s = open_writer(w, config, create);
    if (s != STATUS_OK) {
        store_writer_abandon(w);
        return s;
    }
    *out = w;
    return STATUS_OK;
}

enum status store_writer_open(struct store_writer **out, const char *dir, const struct store_writer_config *config,
                              bool create) {
    const struct store_fingerprint *f = &config->fingerprint;
    const int least = config->landmarks == STORE_LANDMARKS_NONE ? 0 : 1;
    assert(config->landmarks != STORE_LANDMARKS_NONE || f->dim == 0);
    if (f->chunk_tokens < 1 || f->chunk_tokens > 65536 || f->dim < least || f->dim > 65536 || f->vocab_size < 1)
        return fail(STATUS_INVALID, "%s: %d ids a chunk, %d dimensions, %d ids in all: out of range", dir,
                    f->chunk_tokens, f->dim, f->vocab_size);
    return writer_open(out, dir, config, create);
}

/* Seals the shards that are complete. */
static void close_shards(struct store_writer *w) {
    seal_queue_free(w->queue);
    lexical_follower_free(w->follower);
    w->follower = NULL;
    store_shard_discard(w);
    known_hashes_free(w->known);
    held_pool_free(w->held);
}

static void close_catalog(struct store_writer *w) {
    catalog_abort(w->lookup);
    catalog_close(w->catalog);
}

static void writer_unlock(struct store_writer *w) {
    if (w->lock >= 0) close(w->lock); /* releases the flock */
    memory_free(w);
}

void store_writer_close(struct store_writer *w) {
    if (!w) return;
    close_shards(w);
    close_catalog(w);
    writer_unlock(w);
}

/* Whether this writer created the store and no shard is recorded. (w->sealed also counts shards whose sealing failed.)
 * Files of such shards are removed, as the next writer would do. */
static bool is_unused(const struct store_writer *w) {
    struct catalog_txn *t;
    if (!w->catalog) return true;
    if (!w->made.catalog || w->published.number > 0 || catalog_begin(&t, w->catalog, false) != STATUS_OK) return false;
    const uint64_t n = catalog_count(t, TABLE_SHARDS);
    catalog_abort(t);
    return n == 0 && orphan_files_each(w->dir, w->catalog, remove_file, NULL) == STATUS_OK;
}

void store_writer_abandon(struct store_writer *w) {
    if (!w) return;
    close_shards(w);
    const bool unused = is_unused(w);
    close_catalog(w);
    if (unused) writer_remove_made(w);
    writer_unlock(w);
}

/* ---- the journal ---- */

enum status store_writer_journal(struct store_writer *w, struct store_journal *out) {
    *out = (struct store_journal){
        .generation = (uint64_t)w->published.number,
        .shards = w->sealed.shards - w->published.shards,
        .documents = w->sealed.documents - w->published.documents,
        .chunks = w->sealed.chunks - w->published.chunks,
        .duplicates = w->sealed.duplicates - w->published.duplicates,
    };
    if (out->shards == 0) return STATUS_OK;
    TRY(catalog_renew(w->lookup));
    struct shard_record r = {0};
    uint64_t number;
    struct bytes value;
    enum status s = catalog_get_last(w->lookup, &number, &value, TABLE_SHARDS);
    struct catalog_key key = catalog_key(number);
    if (s == STATUS_OK) s = record_decode_shard((struct bytes){key.bytes, sizeof key.bytes}, value, w->catalog, &r);
    if (s == STATUS_OK && r.cursor_bytes) memcpy(out->cursor, r.cursor, r.cursor_bytes);
    out->cursor_bytes = r.cursor_bytes;
    catalog_pause(w->lookup);
    return s;
}

static enum status delete_numbers(struct catalog_txn *t, enum catalog_table table, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
        struct catalog_key key = catalog_key((uint64_t)i);
        TRY(catalog_delete(t, table, key.bytes, sizeof key.bytes));
    }
    return STATUS_OK;
}

static enum status delete_journal(struct store_writer *w, struct catalog_txn *t) {
    for (int64_t i = w->published.documents; i < w->sealed.documents; i++) {
        struct document_record d;
        TRY(record_get_document(t, w->catalog, &d, i));
        bool found;
        int64_t document = -1;
        TRY(record_find_hash(t, d.hash, &found, &document));
        if (found && document == i) TRY(catalog_delete(t, TABLE_HASHES, d.hash, sizeof d.hash));
        TRY(delete_numbers(t, TABLE_RUNS, d.first_chunk, d.first_chunk + 1));
    }
    TRY(delete_numbers(t, TABLE_DOCUMENTS, w->published.documents, w->sealed.documents));
    TRY(delete_numbers(t, TABLE_DELETED, w->published.documents, w->sealed.documents));
    TRY(delete_numbers(t, TABLE_SHARDS, w->published.shards, w->sealed.shards));
    return fault_point("store:drop:before-commit");
}

/* Numbers of dropped shards of the journal are used again, because no reader has seen them. */
static enum status remove_shard_files(const struct store_writer *w, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
        char path[FILE_PATH_MAX];
        for (int file = 0; file < SHARD_FILES; file++) {
            TRY(shard_path(path, w->dir, shard_file_kind(w->landmark_type, file), i, i));
            TRY(file_remove(path));
        }
    }
    return STATUS_OK;
}

enum status store_writer_drop_journal(struct store_writer *w) {
    assert(!w->shard);
    if (w->sealed.shards == w->published.shards) return STATUS_OK;
    struct catalog_txn *t;
    TRY(catalog_begin(&t, w->catalog, true));
    enum status s = delete_journal(w, t);
    if (s != STATUS_OK) {
        catalog_abort(t);
        return s;
    }
    TRY(catalog_commit(t));
    int64_t end = w->sealed.shards;
    w->sealed = w->published;
    w->sealed.number = w->sealed.shards;
    TRY(fault_point("store:drop:committed"));
    return remove_shard_files(w, w->sealed.shards, end);
}

/* ---- the open shard ---- */

/* Returns the record of the open shard with the fields that are known before sealing. */
static struct shard_record open_record(const struct store_writer *w) {
    return (struct shard_record){.number = w->sealed.shards,
                                 .first_file_shard = w->sealed.shards,
                                 .last_file_shard = w->sealed.shards,
                                 .first_chunk = w->sealed.chunks,
                                 .first_document = w->sealed.documents,
                                 .first_token = w->sealed.tokens};
}

static void shard_close_files(struct store_shard *s) {
    shard_discard(s->tokens);
    shard_discard(s->landmarks);
    s->tokens = s->landmarks = NULL;
}

void shard_free(struct store_shard *s) {
    if (!s) return;
    shard_close_files(s);
    memory_free(s->documents);
    memory_free(s->text);
    memory_free(s->slots);
    memory_free(s);
}

enum status store_shard_begin(struct store_writer *w) {
    struct store_shard *shard;
    assert(!w->shard);
    TRY(catalog_check_writable(w->catalog)); /* otherwise this shard's files would replace those of a recorded shard */
    TRY(memory_allocate_zero(&shard, 1));
    shard->writer = w;
    const struct shard_record r = open_record(w);
    enum status s = shard_create(&shard->tokens, w->dir, SHARD_TOKENS, &r, &w->fingerprint);
    const enum shard_kind kind = shard_landmark_kind(w->landmark_type);
    if (s == STATUS_OK) s = shard_create(&shard->landmarks, w->dir, kind, &r, &w->fingerprint);
    if (s == STATUS_OK) shard_hold(shard->tokens, w->held);
    if (s == STATUS_OK) shard_hold(shard->landmarks, w->held);
    if (s == STATUS_OK) s = fault_point("store:shard:begun");
    if (s == STATUS_OK)
        w->shard = shard;
    else
        shard_free(shard);
    return s;
}

struct store_shard *store_shard_open(struct store_writer *w) {
    return w->shard;
}

void store_shard_discard(struct store_writer *w) {
    shard_free(w->shard);
    w->shard = NULL;
}

void store_shard_discard_duplicates(struct store_writer *w) {
    assert(w->shard && w->shard->n_documents == 0);
    w->loose_duplicates += w->shard->duplicates;
    store_shard_discard(w);
}

int64_t store_shard_chunks(const struct store_writer *w) {
    return w->shard ? w->shard->chunks : 0;
}

/* Returns the slot of this hash, or the free slot for it. The bits of the hash are random enough to select a slot. */
static size_t slot_of(const struct store_shard *s, const uint8_t hash[16]) {
    uint64_t h;
    memcpy(&h, hash, sizeof h);
    size_t i = (size_t)h & (s->n_slots - 1);
    while (s->slots[i] >= 0 && memcmp(s->documents[s->slots[i]].record.hash, hash, 16) != 0)
        i = (i + 1) & (s->n_slots - 1);
    return i;
}

bool shard_has(const struct store_shard *s, const uint8_t hash[16]) {
    return s->n_slots > 0 && s->slots[slot_of(s, hash)] >= 0;
}

static enum status grow_slots(struct store_shard *s) {
    if (s->n_slots > 2 * s->n_documents) return STATUS_OK;
    size_t n = s->n_slots ? 2 * s->n_slots : 64;
    int64_t *slots;
    TRY(memory_allocate(&slots, n));
    memory_free(s->slots);
    s->slots = slots;
    s->n_slots = n;
    for (size_t i = 0; i < n; i++)
        slots[i] = -1;
    for (size_t d = 0; d < s->n_documents; d++)
        slots[slot_of(s, s->documents[d].record.hash)] = (int64_t)d;
    return STATUS_OK;
}

/* The queue is searched first: a shard leaves it only after it is recorded, so one of the two always has it. */
static enum status writer_known(struct store_writer *w, const uint8_t hash[16], bool *found) {
    *found = false;
    if (!known_hashes_may_have(w->known, hash)) return STATUS_OK;
    *found = shard_has(w->shard, hash) || seal_queue_has(w->queue, hash);
    if (*found) return STATUS_OK;
    TRY(catalog_renew(w->lookup));
    int64_t document;
    enum status s = record_find_hash(w->lookup, hash, found, &document);
    catalog_pause(w->lookup);
    return s;
}

/* All memory is allocated before the ids are written, so that a failure adds nothing. */
static enum status writer_reserve(struct store_shard *s, const struct store_new_document *d) {
    TRY(grow_slots(s));
    TRY(memory_grow(&s->documents, &s->documents_capacity, s->n_documents + 1));
    return memory_grow(&s->text, &s->text_capacity, s->text_used + strlen(d->source) + strlen(d->key));
}

enum status store_shard_document(struct store_writer *w, const struct store_new_document *d, bool *duplicate) {
    struct store_shard *s = w->shard;
    assert(s);
    *duplicate = false;
    if (d->n_ids == 0)
        return fail(STATUS_INVALID, "%s: %s: a document without tokens cannot be stored, skip it", d->source, d->key);
    known_hashes_prefetch(w->known, d->hash); /* it comes while the ids are read, which another thread has written */
    TRY(shard_check_ids(s->tokens, d->ids, d->n_ids));
    if (!d->unchecked) TRY(writer_known(w, d->hash, duplicate));
    if (*duplicate) {
        s->duplicates++;
        return STATUS_OK;
    }
    TRY(writer_reserve(s, d));
    int64_t chunk_tokens = w->fingerprint.chunk_tokens;
    struct pending_document *p = &s->documents[s->n_documents];
    *p = (struct pending_document){
        .record = {.first_chunk = w->sealed.chunks + s->chunks,
                   .tokens = (int64_t)d->n_ids,
                   .shard = w->sealed.shards,
                   .token_offset = shard_rows(s->tokens),
                   .offset = d->offset,
                   .line = d->line,
                   .bytes = d->bytes,
                   .source_bytes = strlen(d->source),
                   .key_bytes = strlen(d->key)},
        .source_at = s->text_used,
        .key_at = s->text_used + strlen(d->source),
    };
    p->record.chunks = ((int64_t)d->n_ids + chunk_tokens - 1) / chunk_tokens;
    memcpy(p->record.hash, d->hash, 16);
    TRY(shard_write_ids(s->tokens, d->ids, d->n_ids));
    memcpy(s->text + p->source_at, d->source, p->record.source_bytes);
    memcpy(s->text + p->key_at, d->key, p->record.key_bytes);
    s->text_used += p->record.source_bytes + p->record.key_bytes;
    s->slots[slot_of(s, d->hash)] = (int64_t)s->n_documents++;
    s->chunks += p->record.chunks;
    known_hashes_add(w->known, d->hash);
    lexical_follower_add(w->follower, d->ids, d->n_ids);
    return STATUS_OK;
}

enum status store_shard_rows(struct store_shard *s, const float *rows, int64_t n) {
    return shard_write_rows(s->landmarks, rows, n);
}

enum status store_shard_halves(struct store_shard *s, const uint16_t *rows, int64_t n) {
    return shard_write_halves(s->landmarks, rows, n);
}

bool store_shard_is_f16(const struct store_shard *s) {
    return shard_is_f16(s->landmarks);
}

enum status store_shard_landmarks(struct store_writer *w, const float *rows, int64_t n) {
    assert(w->shard && shard_rows(w->shard->landmarks) + n <= w->shard->chunks);
    return store_shard_rows(w->shard, rows, n);
}

/* ---- sealing ---- */

static void end_record(const struct store_writer *w, const void *cursor, size_t cursor_bytes) {
    struct store_shard *s = w->shard;
    assert(s && cursor_bytes <= STORE_CURSOR_MAX);
    s->record = open_record(w);
    s->record.chunks = s->chunks;
    s->record.documents = (int64_t)s->n_documents;
    s->record.tokens = shard_rows(s->tokens);
    s->record.duplicates = s->duplicates;
    if (cursor_bytes) memcpy(s->cursor, cursor, cursor_bytes);
    s->record.cursor = s->cursor;
    s->record.cursor_bytes = cursor_bytes;
}

static void count_shard(struct store_writer *w, const struct shard_record *r) {
    w->sealed.shards++;
    w->sealed.number = w->sealed.shards;
    w->sealed.chunks += r->chunks;
    w->sealed.documents += r->documents;
    w->sealed.tokens += r->tokens;
    w->sealed.duplicates += r->duplicates;
}

enum status store_shard_seal(struct store_writer *w, const void *cursor, size_t cursor_bytes) {
    TRY(store_writer_wait(w));
    end_record(w, cursor, cursor_bytes);
    enum status s = shard_write_files(w->shard);
    if (s == STATUS_OK) s = shards_record((const struct store_shard *const *)&w->shard, 1);
    if (s == STATUS_OK) count_shard(w, &w->shard->record);
    store_shard_discard(w);
    return s == STATUS_OK ? fault_point("store:seal:committed") : s;
}

enum status store_shard_end(struct store_writer *w, const void *cursor, size_t cursor_bytes) {
    end_record(w, cursor, cursor_bytes);
    struct store_shard *s = w->shard;
    TRY(seal_queue_add(w, s));
    count_shard(w, &s->record);
    w->shard = NULL;
    return STATUS_OK;
}

enum status store_writer_follow(struct store_writer *w, uint64_t max_ram, int threads, bool yielding) {
    assert(!w->follower && !w->shard);
    TRY(store_writer_wait(w));
    return lexical_follower_create(&w->follower, w, max_ram, threads, yielding);
}

void store_writer_follow_end(struct store_writer *w) {
    lexical_follower_end(w->follower);
}

enum status store_writer_wait(struct store_writer *w) {
    return seal_queue_wait(w->queue);
}
