/* verify.c -- checks all parts of a store and reports what is wrong; changes nothing. */
#include "base/memory.h"
#include "store/catalog/commit_record_internal.h"
#include "store/catalog/frozen_internal.h"
#include "store/catalog/record_format_internal.h"
#include "store/keys/keys_file_internal.h"
#include "store/keys/keys_layout_internal.h"
#include "store/verify_internal.h"
#include <stdio.h>
#include <string.h>

const char *const remedy_repair = "run drt-index repair", *const remedy_build = "build the store again in a new folder";

char *message_remedy(char *text) {
    static const char *const begins[] = {", run drt-index", ": run drt-index", ": remove it and run"};
    char *at = NULL;
    for (size_t i = 0; i < ARRAY_LEN(begins) && !at; i++)
        at = strstr(text, begins[i]);
    return at;
}

enum status finding(struct findings *f, enum status s, const char *file, const char *remedy) {
    if (s == STATUS_OK || s == STATUS_NO_MEMORY || s == STATUS_INTERRUPTED || s == STATUS_FAULT) return s;
    char text[1024];
    snprintf(text, sizeof text, "%s", status_message());
    char *at = text, *advice = message_remedy(text);
    size_t n = strlen(file);
    if (strncmp(at, file, n) == 0 && strncmp(at + n, ": ", 2) == 0) at += n + 2;
    if (!advice && (advice = strstr(text, remedy_freeze))) advice -= 2;
    if (!advice && (advice = strstr(text, ": restore the store"))) remedy = advice + 2; /* no command can mend it */
    if (advice) *advice = 0; /* removes the remedy from the message, because it is printed separately */
    f->count++;
    if (f->problem) f->problem(f->context, file, at, f->frozen ? remedy_freeze : remedy);
    return STATUS_OK;
}

enum status stored_file_verify(const char *path, struct stored_file recorded, bool deep) {
    TRY(stored_file_check(path, recorded, "run drt-index verify"));
    if (!deep) return STATUS_OK;
    uint32_t crc = 0;
    TRY(file_checksum(&crc, path));
    if (crc != recorded.crc)
        return fail(STATUS_CORRUPT, "%s: its bytes changed: CRC32C %08x, recorded %08x", path, crc, recorded.crc);
    return STATUS_OK;
}

enum status shard_file_verify(const char *dir, enum shard_kind kind, const struct shard_record *r,
                              const struct store_fingerprint *f, bool deep) {
    char path[FILE_PATH_MAX];
    TRY(shard_path(path, dir, kind, r->first_file_shard, r->last_file_shard));
    TRY(stored_file_verify(path, kind == SHARD_TOKENS ? r->token_file : r->landmark_file, deep));
    struct shard_map map;
    TRY(shard_open(&map, dir, kind, r, f));
    shard_close(&map);
    return STATUS_OK;
}

/* ---- records ---- */

static enum status verify_wrong(const struct catalog *c, enum catalog_table table, int64_t number, const char *what) {
    return fail(STATUS_CORRUPT, "%s: table %s, record %lld: %s", catalog_path(c), catalog_table_name(table),
                (long long)number, what);
}

static enum status check_count(struct catalog_txn *t, const struct catalog *c, enum catalog_table table,
                               int64_t count) {
    uint64_t n = catalog_count(t, table);
    if (n == (uint64_t)count) return STATUS_OK;
    return fail(STATUS_CORRUPT, "%s: table %s has %llu records, %lld belong there", catalog_path(c),
                catalog_table_name(table), (unsigned long long)n, (long long)count);
}

struct document_walk {
    int64_t number, chunk, shard, token;
};

/* Checks one document against the counts of the documents before it and the ranges of its shard. */
static enum status check_document(struct document_walk *w, const struct catalog *c, const struct document_record *d,
                                  const struct shard_record *shards, int64_t n_shards, int chunk_tokens) {
    while (w->shard < n_shards && w->number >= shards[w->shard].first_document + shards[w->shard].documents) {
        w->shard++;
        w->token = 0;
    }
    if (w->shard >= n_shards) return verify_wrong(c, TABLE_DOCUMENTS, w->number, "belongs to no shard");
    if (d->shard != w->shard || d->token_offset != w->token || d->first_chunk != w->chunk || d->tokens < 1 ||
        d->chunks != (d->tokens + chunk_tokens - 1) / chunk_tokens || w->token + d->tokens > shards[w->shard].tokens)
        return verify_wrong(c, TABLE_DOCUMENTS, w->number, "its position or size does not follow from its neighbours");
    w->token += d->tokens;
    w->chunk += d->chunks;
    w->number++;
    return STATUS_OK;
}

/* Calls `each` for every document, and checks their numbers. */
typedef enum status document_visit(void *context, int64_t number, const struct document_record *d);
static enum status each_document(struct catalog_txn *t, const struct catalog *c, document_visit *each, void *context) {
    struct catalog_walk *walk;
    TRY(catalog_walk_begin(&walk, t, TABLE_DOCUMENTS, 0));
    enum status s = STATUS_OK;
    for (int64_t i = 0; s == STATUS_OK; i++) {
        bool more = false;
        struct bytes key, value;
        struct document_record d;
        s = catalog_walk_next(walk, &more, &key, &value);
        if (s != STATUS_OK || !more) break;
        if (catalog_key_number(key) != (uint64_t)i) s = verify_wrong(c, TABLE_DOCUMENTS, i, "is missing");
        if (s == STATUS_OK) s = record_decode_document(value, c, &d);
        if (s == STATUS_OK) s = each(context, i, &d);
    }
    catalog_walk_end(walk);
    return s;
}

struct document_context {
    struct catalog_txn *t;
    const struct catalog *c;
    const struct shard_record *shards;
    int64_t n_shards;
    int chunk_tokens;
    struct document_walk walk;
    int64_t published; /* documents */
};

static enum status visit_document(void *context, int64_t number, const struct document_record *d) {
    struct document_context *x = context;
    (void)number;
    return check_document(&x->walk, x->c, d, x->shards, x->n_shards, x->chunk_tokens);
}

enum status documents_verify(struct catalog_txn *t, const struct catalog *c, const struct generation_record *sealed,
                             const struct shard_record *shards, int chunk_tokens, bool deep) {
    TRY(check_count(t, c, TABLE_DOCUMENTS, sealed->documents));
    if (!deep) return STATUS_OK;
    struct document_context x = {
        .t = t, .c = c, .shards = shards, .n_shards = sealed->shards, .chunk_tokens = chunk_tokens};
    TRY(each_document(t, c, visit_document, &x));
    if (x.walk.chunk != sealed->chunks)
        return verify_wrong(c, TABLE_DOCUMENTS, x.walk.number - 1, "documents and shards disagree about the chunks");
    return STATUS_OK;
}

static enum status visit_run(void *context, int64_t number, const struct document_record *d) {
    struct document_context *x = context;
    struct catalog_key key = catalog_key((uint64_t)d->first_chunk);
    struct bytes value;
    struct run_record r;
    enum status s = catalog_get(x->t, &value, TABLE_RUNS, key.bytes, sizeof key.bytes);
    if (s == STATUS_NOT_FOUND) return verify_wrong(x->c, TABLE_RUNS, d->first_chunk, "is missing");
    TRY(s);
    TRY(record_decode_run(value, x->c, &r));
    if (r.document != number || r.shard != d->shard || r.token_offset != d->token_offset || r.tokens != d->tokens ||
        r.chunks != d->chunks)
        return verify_wrong(x->c, TABLE_RUNS, d->first_chunk, "does not agree with its document");
    return STATUS_OK;
}

enum status runs_verify(struct catalog_txn *t, const struct catalog *c, const struct generation_record *sealed,
                        bool deep) {
    TRY(check_count(t, c, TABLE_RUNS, sealed->documents));
    struct document_context x = {.t = t, .c = c};
    return deep ? each_document(t, c, visit_run, &x) : STATUS_OK;
}

static enum status visit_hash(void *context, int64_t number, const struct document_record *d) {
    struct document_context *x = context;
    if (d->shard < x->n_shards && shard_is_dropped(&x->shards[d->shard])) return STATUS_OK;
    bool found, deleted;
    int64_t document = -1;
    TRY(record_is_deleted(x->t, number, &deleted));
    TRY(record_find_hash(x->t, d->hash, &found, &document));
    if (deleted && document == number)
        return verify_wrong(x->c, TABLE_HASHES, number, "the document was deleted, and has a hash");
    if (deleted) return STATUS_OK;
    bool waits = number >= x->published && (!found || document < x->published);
    if (!waits && (!found || document != number))
        return verify_wrong(x->c, TABLE_HASHES, number, "the hash of this document is missing or leads elsewhere");
    return STATUS_OK;
}

enum status hashes_verify(struct catalog_txn *t, const struct catalog *c, const struct generation_record *sealed,
                          const struct generation_record *published, const struct shard_record *shards, bool deep) {
    int64_t documents = sealed->documents, waiting = sealed->documents - published->documents;
    for (int64_t i = 0; i < sealed->shards; i++)
        if (shard_is_dropped(&shards[i])) documents -= shards[i].documents;
    documents -= (int64_t)catalog_count(t, TABLE_DELETED);
    int64_t hashes = (int64_t)catalog_count(t, TABLE_HASHES);
    if (hashes > documents || hashes < documents - waiting) TRY(check_count(t, c, TABLE_HASHES, documents));
    struct document_context x = {
        .t = t, .c = c, .shards = shards, .n_shards = sealed->shards, .published = published->documents};
    return deep ? each_document(t, c, visit_hash, &x) : STATUS_OK;
}

enum status published_covered(bool *out, const struct segment_record *list, int64_t n,
                              const struct shard_record *shards, const struct generation_record *published,
                              bool has_index) {
    *out = n == 0;
    return has_index ? segments_cover(out, list, n, shards, published) : STATUS_OK;
}

/* Whether the lexical segments contain all chunks that were not dropped. */
static enum status lexical_covered(bool *out, const struct lexical_record *record, const struct shard_record *shards,
                                   const struct generation_record *published) {
    struct store_hole *ranges;
    struct store_dropped dropped = {0};
    TRY(record_dropped_holes(&ranges, &dropped.n, shards, published->shards));
    dropped.ranges = ranges;
    *out = lexical_record_covers(record, dropped, published->chunks);
    memory_free(ranges);
    return STATUS_OK;
}

enum status lexical_segment_verify(const char *path, const struct lexical_segment_record *r, int vocab_size, bool deep,
                                   const struct progress *progress) {
    struct lexical_range range;
    struct lexical *x;
    struct lexical_info info;
    TRY(stored_file_verify(path, r->file, deep));
    if (deep) TRY(lexical_verify(&range, path, progress));
    TRY(lexical_open(&x, &path, 1));
    range = lexical_segment_range(x, 0);
    lexical_info(x, &info);
    lexical_close(x);
    if (range.first_chunk == r->first_chunk && range.chunks == r->chunks && info.vocab_size == vocab_size)
        return STATUS_OK;
    return fail(STATUS_CORRUPT, "%s: holds chunks %lld to %lld, recorded are %lld to %lld, or is of another vocabulary",
                path, (long long)range.first_chunk, (long long)(range.first_chunk + range.chunks - 1),
                (long long)r->first_chunk, (long long)(r->first_chunk + r->chunks - 1));
}

/* ---- keys of a token memory ---- */

static const char *const remedy_keys = "remove the file and run drt-index keys with the model of the keys";

/* Checks a file of keys, whatever the model. */
static enum status keys_check(const char *path, struct keys_range range, const struct store_fingerprint *store,
                              bool deep) {
    struct keys_file f;
    enum status s = keys_file_open(&f, path, NULL, NULL);
    if (s == STATUS_NOT_FOUND) return STATUS_OK;
    if (s == STATUS_OK) s = keys_file_in(&f, path, range);
    if (s == STATUS_OK && f.head.spec.chunk_tokens != store->chunk_tokens)
        s = fail(STATUS_CORRUPT, "%s: is of chunks of %d tokens, the store's have %d", path, f.head.spec.chunk_tokens,
                 store->chunk_tokens);
    if (s == STATUS_OK && deep) s = keys_file_verify(&f, path);
    keys_file_close(&f);
    return s;
}

enum status keys_verify(struct findings *f, struct catalog_txn *t, const struct catalog *c, const char *dir,
                        int64_t chunks, bool deep, const struct progress *progress) {
    struct store_fingerprint store;
    struct keys_layout layout;
    char path[FILE_PATH_MAX];
    int format;
    TRY(record_get_fingerprint(t, c, &store, &format));
    enum status s = keys_layout_read(&layout, t, c, chunks);
    if (s != STATUS_OK) return finding(f, s, catalog_path(c), remedy_repair);
    s = file_join(path, dir, "keys");
    const int64_t files = s == STATUS_OK && file_exists(path) ? layout.files : 0; /* none: without a look for each */
    for (int64_t i = 0; i < files && s == STATUS_OK; i++) {
        s = keys_path(path, dir, i);
        if (s == STATUS_OK)
            s = finding(f, keys_check(path, keys_layout_range(&layout, i), &store, deep), path, remedy_keys);
        if (deep) progress_step(progress, "verify keys", "files", i + 1, files);
        if (s == STATUS_OK && progress_stop_requested(progress))
            s = fail(STATUS_INTERRUPTED, "%s: stopped while its keys were verified", dir);
    }
    keys_layout_free(&layout);
    return s;
}

/* ---- the whole store ---- */

struct verify {
    const char *dir;
    bool deep;
    const struct progress *progress;
    struct findings *f;
    struct catalog *c;
    struct catalog_txn *t;
    struct store_fingerprint fingerprint;
    enum store_landmarks landmark_type;
    struct generation_record generation, sealed;
    struct shard_record *shards;
    char record[FILE_PATH_MAX]; /* catalog/commit */
};

/* Whether the newest snapshot still names this file. A writer may have merged or dropped its shards after this
 * program's snapshot was taken. */
static bool shard_still_named(struct verify *v, const struct shard_record *file) {
    struct catalog_txn *t;
    bool named = true;
    if (catalog_begin(&t, v->c, false) != STATUS_OK) return true;
    enum status s = record_names_shard_file(t, v->c, file->first_file_shard, file->last_file_shard, &named);
    catalog_abort(t);
    return named || s != STATUS_OK;
}

/* Verifies the two files of a shard. If both are damaged, the remedy for the landmarks is that for the tokens, because
 * landmarks are encoded from tokens. */
static enum status verify_shard_file(struct verify *v, const struct shard_record *file) {
    bool tokens_good = true;
    for (int i = 0; i < SHARD_FILES; i++) {
        char path[FILE_PATH_MAX], remedy[SHARD_REMEDY_MAX];
        const enum shard_kind kind = shard_file_kind(v->landmark_type, i);
        TRY(shard_path(path, v->dir, kind, file->first_file_shard, file->last_file_shard));
        shard_remedy(remedy, tokens_good ? kind : SHARD_TOKENS, file);
        enum status s = shard_file_verify(v->dir, kind, file, &v->fingerprint, v->deep);
        if (s == STATUS_OK || !shard_still_named(v, file)) continue;
        if (kind == SHARD_TOKENS) tokens_good = false;
        /* Of an unpublished shard only its own work is lost: the next build makes it again. */
        TRY(finding(v->f, s, path, file->number < v->generation.shards ? remedy : remedy_repair));
    }
    return STATUS_OK;
}

static enum status verify_shards(struct verify *v) {
    for (int64_t i = 0; i < v->sealed.shards; i = v->shards[i].last_file_shard + 1) {
        struct shard_record file = record_of_shard_file(v->shards, i);
        if (!shard_is_dropped(&file)) TRY(verify_shard_file(v, &file));
        progress_step(v->progress, "verify shards", "shards", file.last_file_shard + 1, v->sealed.shards);
        if (progress_stop_requested(v->progress)) return fail(STATUS_INTERRUPTED, "%s: verify was stopped", v->dir);
    }
    return STATUS_OK;
}

static enum status verify_segment(struct verify *v, const struct segment_record *r) {
    char path[FILE_PATH_MAX];
    TRY(index_path(path, v->dir, r->number));
    TRY(stored_file_verify(path, r->file, v->deep));
    if (!v->deep) return STATUS_OK;
    struct vectors *opened;
    bool known;
    TRY(segment_open(&opened, v->dir, r, v->fingerprint.dim));
    vectors_free(opened);
    const struct segment_shape shape = {v->fingerprint.dim, r->chunks, r->first_chunk};
    TRY(segment_check_file(path, &shape, true, &known));
    if (!known)
        progress_note(v->progress,
                      "%s: of an index of this type only the checksum is checked: search it only where you trust its "
                      "source, or make another (drt-index repair --index exact)",
                      path);
    return STATUS_OK;
}

/* Whether the newest snapshot still names this index file. A writer may have replaced it after this program's
 * snapshot was taken. */
static bool still_named(struct verify *v, int64_t number) {
    struct catalog_txn *t;
    struct index_record index = {0};
    struct segment_record *list = NULL;
    int64_t n = 0;
    if (catalog_begin(&t, v->c, false) != STATUS_OK) return true;
    bool named = record_get_index(t, v->c, &index) != STATUS_OK || index.template_number == number ||
                 record_list_segments(t, v->c, &list, &n) != STATUS_OK;
    for (int64_t i = 0; i < n; i++)
        named = named || list[i].number == number;
    memory_free(list);
    catalog_abort(t);
    return named;
}

static enum status index_finding(struct verify *v, enum status s, const char *path, int64_t number) {
    return s == STATUS_OK || !still_named(v, number) ? STATUS_OK : finding(v->f, s, path, remedy_repair);
}

static enum status verify_index(struct verify *v) {
    const char *catalog = catalog_path(v->c);
    char path[FILE_PATH_MAX];
    struct index_record index;
    enum status s = record_get_index(v->t, v->c, &index);
    if (s != STATUS_OK) return finding(v->f, s, catalog, remedy_repair);
    if (index.template_number) {
        TRY(index_path(path, v->dir, index.template_number));
        TRY(index_finding(v, stored_file_verify(path, index.template_file, v->deep), path, index.template_number));
    }
    struct segment_record *list;
    int64_t n;
    s = record_list_segments(v->t, v->c, &list, &n);
    if (s != STATUS_OK) return finding(v->f, s, catalog, remedy_repair);
    bool covered = true;
    if (v->generation.shards <= v->sealed.shards) /* if not, the damage was reported before */
        s = published_covered(&covered, list, n, v->shards, &v->generation, index.template_number > 0);
    if (s == STATUS_OK && !covered)
        s = finding(v->f, fail(STATUS_CORRUPT, "%s: segments do not cover the chunks", catalog), catalog,
                    remedy_repair);
    for (int64_t i = 0; i < n && s == STATUS_OK; i++) {
        s = index_path(path, v->dir, list[i].number);
        if (s == STATUS_OK) s = index_finding(v, verify_segment(v, &list[i]), path, list[i].number);
        progress_step(v->progress, "verify index", "segments", i + 1, n);
    }
    memory_free(list);
    return s;
}

static bool lexical_still_named(struct verify *v, int64_t number) {
    struct catalog_txn *t;
    struct lexical_record record = {0};
    if (catalog_begin(&t, v->c, false) != STATUS_OK) return true;
    bool named = record_get_lexical(t, v->c, &record) != STATUS_OK;
    for (int64_t i = 0; i < record.n; i++)
        named = named || record.list[i].number == number;
    lexical_record_free(&record);
    catalog_abort(t);
    return named;
}

static enum status verify_lexical(struct verify *v) {
    const char *catalog = catalog_path(v->c);
    struct lexical_record record;
    char path[FILE_PATH_MAX];
    enum status s = record_get_lexical(v->t, v->c, &record);
    if (s != STATUS_OK) return finding(v->f, s, catalog, remedy_repair);
    bool covered = true;
    if (record.wanted && v->generation.shards <= v->sealed.shards)
        s = lexical_covered(&covered, &record, v->shards, &v->generation);
    if (s == STATUS_OK && !covered)
        s = finding(v->f, fail(STATUS_CORRUPT, "%s: the lexical index does not cover the chunks", catalog), catalog,
                    remedy_repair);
    for (int64_t i = 0; i < record.n && s == STATUS_OK; i++) {
        s = lexical_path(path, v->dir, record.list[i].number);
        if (s != STATUS_OK) break;
        s = lexical_segment_verify(path, &record.list[i], v->fingerprint.vocab_size, v->deep, v->progress);
        if (s != STATUS_OK && s != STATUS_INTERRUPTED)
            s = lexical_still_named(v, record.list[i].number) ? finding(v->f, s, path, remedy_repair) : STATUS_OK;
        progress_step(v->progress, "verify lexical index", "segments", i + 1, record.n);
    }
    lexical_record_free(&record);
    return s;
}

static enum status verify_generations(struct verify *v) {
    struct catalog_walk *walk;
    TRY(catalog_walk_begin(&walk, v->t, TABLE_GENERATIONS, 0));
    struct generation_record before = {0}, g;
    enum status s;
    for (;;) {
        bool more;
        struct bytes key, value;
        s = catalog_walk_next(walk, &more, &key, &value);
        if (s != STATUS_OK || !more) break;
        s = record_decode_generation(key, value, v->c, &g);
        if (s != STATUS_OK) break;
        if (g.number != before.number + 1 || g.chunks < before.chunks || g.documents < before.documents ||
            g.tokens < before.tokens || g.shards < before.shards || g.shards > v->sealed.shards ||
            g.chunks > v->sealed.chunks || g.documents > v->sealed.documents) {
            s = verify_wrong(v->c, TABLE_GENERATIONS, g.number,
                             "does not follow from the one before, or from the shards");
            break;
        }
        before = g;
    }
    catalog_walk_end(walk);
    return s;
}

static enum status note_orphan_file(void *context, const char *path) {
    struct verify *v = context;
    progress_note(v->progress,
                  "%s: left over by an interrupted write, a merge, a drop or an earlier index; harmless, the next "
                  "command that writes "
                  "removes it",
                  path);
    return STATUS_OK;
}

static enum status verify_catalog(struct verify *v) {
    const char *catalog = catalog_path(v->c);
    enum status s = catalog_check(v->c);
    int format = 0;
    if (s == STATUS_OK) s = record_get_identity(v->t, v->c, &v->fingerprint, &format, &v->landmark_type);
    if (s == STATUS_VERSION || s == STATUS_NOT_FOUND) return s;
    TRY(finding(v->f, catalog_check_record(v->c, format), v->record, remedy_repair));
    if (s == STATUS_OK) s = record_get_generation(v->t, v->c, &v->generation);
    if (s == STATUS_OK) s = record_get_sealed(v->t, v->c, &v->sealed, NULL, NULL);
    if (s == STATUS_OK) s = record_list_shards(v->t, v->c, &v->shards, v->sealed.shards);
    if (s != STATUS_OK) return finding(v->f, s, catalog, remedy_build);
    TRY(finding(v->f, verify_generations(v), catalog, remedy_build));
    TRY(finding(v->f, documents_verify(v->t, v->c, &v->sealed, v->shards, v->fingerprint.chunk_tokens, v->deep),
                catalog, remedy_build));
    TRY(finding(v->f, runs_verify(v->t, v->c, &v->sealed, v->deep), catalog, remedy_repair));
    TRY(finding(v->f, hashes_verify(v->t, v->c, &v->sealed, &v->generation, v->shards, v->deep), catalog,
                remedy_repair));
    TRY(verify_shards(v));
    TRY(verify_index(v));
    TRY(verify_lexical(v));
    TRY(keys_verify(v->f, v->t, v->c, v->dir, v->generation.chunks, v->deep, v->progress));
    return orphan_files_each(v->dir, v->c, note_orphan_file, v);
}

/* Runs before LMDB opens the catalog. Repair can correct this damage from the record or from the meta pages. */
static enum status verify_commit(struct verify *v, const char *data) {
    char folder[FILE_PATH_MAX];
    bool found, unwritten;
    TRY(file_join(folder, v->dir, "catalog"));
    /* there is no store yet */
    if (catalog_is_unwritten(&unwritten, folder) != STATUS_OK || unwritten) return STATUS_OK;
    enum status s = commit_record_check(&found, folder);
    if (s == STATUS_VERSION) return s;
    bool in_record = s != STATUS_OK && strncmp(status_message(), v->record, strlen(v->record)) == 0;
    return finding(v->f, s, in_record ? v->record : data, remedy_repair);
}

/* The catalog of a snapshot has a checksum of its whole data file. */
static enum status verify_frozen(struct verify *v, const char *data) {
    char folder[FILE_PATH_MAX], path[FILE_PATH_MAX];
    struct frozen_record frozen;
    TRY(file_join(folder, v->dir, "catalog"));
    TRY(file_join(path, folder, "frozen"));
    enum status s = frozen_read(&frozen, &v->f->frozen, folder);
    if (s == STATUS_VERSION) return s;
    if (s != STATUS_OK) return finding(v->f, s, strstr(status_message(), data) ? data : path, remedy_freeze);
    return v->f->frozen && v->deep ? finding(v->f, frozen_check(&frozen, folder), data, remedy_freeze) : STATUS_OK;
}

enum status store_verify(const char *dir, bool deep, const struct progress *p, store_problem *problem, void *context,
                         int64_t *problems) {
    struct findings f = {.problem = problem, .context = context};
    struct verify v = {.dir = dir, .deep = deep, .progress = p, .f = &f};
    char path[FILE_PATH_MAX];
    TRY(file_join(path, dir, "catalog/data.mdb"));
    TRY(file_join(v.record, dir, "catalog/commit"));
    enum status s = verify_frozen(&v, path);
    if (s == STATUS_OK && f.count == 0) s = verify_commit(&v, path);
    if (s != STATUS_OK || f.count > 0) {
        *problems = f.count;
        return s;
    }
    s = catalog_open(&v.c, dir, false, 0);
    if (s == STATUS_OK) s = catalog_begin(&v.t, v.c, false);
    if (s == STATUS_OK)
        s = verify_catalog(&v);
    else if (s == STATUS_CORRUPT)
        s = finding(&f, s, path, remedy_build);
    memory_free(v.shards);
    catalog_abort(v.t);
    catalog_close(v.c);
    *problems = f.count;
    return s;
}
