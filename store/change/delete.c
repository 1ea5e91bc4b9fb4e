/* delete.c -- deletes documents.
 *
 * One transaction records them in the table "deleted", removes their hashes and publishes a generation with the same
 * counts. Their records, tokens and landmarks stay. So all ids stay, and views of older generations read the same as
 * before. */
#include "base/memory.h"
#include "base/system/fault.h"
#include "store/catalog/deleted_records_internal.h"
#include "store/writer_internal.h"
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

enum { STEP = 1 << 16 }; /* documents between two calls of progress */

struct delete {
    const char *dir;
    const struct store_delete *how;
    struct store_delete_report *report;
    struct store_writer *w;  /* NULL in a dry run */
    struct catalog *catalog; /* the writer's; in a dry run, opened by this call */
    struct generation_record published;
    struct shard_record *shards;
    const char **keys; /* [n_keys] in byte order */
    int64_t *list;     /* documents to be deleted, ascending */
    size_t n, capacity;
    char *text;
    size_t text_capacity;
};

static enum status delete_report(struct delete *d, int64_t number, const struct document_record *r) {
    d->report->documents++;
    d->report->chunks += r->chunks;
    d->report->tokens += r->tokens;
    if (!d->how->document) return STATUS_OK;
    struct store_document out;
    TRY(document_record_copy(&out, &d->text, &d->text_capacity, number, r));
    d->how->document(d->how->context, r->shard, &out);
    return STATUS_OK;
}

static int key_order(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum status delete_sort_keys(struct delete *d) {
    const size_t n = (size_t)d->how->n_keys;
    TRY(memory_allocate(&d->keys, n));
    if (n > 0) memcpy(d->keys, d->how->keys, n * sizeof *d->keys);
    qsort(d->keys, n, sizeof *d->keys, key_order);
    return STATUS_OK;
}

static bool source_matches(const struct delete *d, const char *source) {
    for (int i = 0; i < d->how->n_sources; i++)
        if (fnmatch(d->how->sources[i], source, 0) == 0) return true;
    return d->how->n_sources == 0;
}

/* Sets *matches. The text of the record has no NUL at its end, so it is copied. */
static enum status delete_matches(struct delete *d, bool *matches, const struct document_record *r) {
    TRY(memory_grow(&d->text, &d->text_capacity, r->source_bytes + r->key_bytes + 2));
    char *source = d->text, *key = source + r->source_bytes + 1;
    if (r->source_bytes) memcpy(source, r->source, r->source_bytes);
    source[r->source_bytes] = 0;
    if (r->key_bytes) memcpy(key, r->key, r->key_bytes);
    key[r->key_bytes] = 0;
    const bool named = d->how->n_keys == 0 ||
                       (r->key_bytes > 0 && bsearch(&key, d->keys, (size_t)d->how->n_keys, sizeof *d->keys, key_order));
    *matches = named && source_matches(d, source);
    return STATUS_OK;
}

/* *gone: whether the published generation lacks the document. */
static enum status delete_look(struct delete *d, struct catalog_txn *t, int64_t number, struct document_record *r,
                               bool *gone) {
    TRY(record_get_document(t, d->catalog, r, number));
    if (r->shard < 0 || r->shard >= d->published.shards)
        return fail(STATUS_CORRUPT, "%s: document %lld is of shard %lld, which is not published, run drt-index repair",
                    d->dir, (long long)number, (long long)r->shard);
    *gone = shard_is_dropped(&d->shards[r->shard]);
    return *gone ? STATUS_OK : record_is_deleted(t, number, gone);
}

static enum status delete_add(struct delete *d, int64_t number, const struct document_record *r) {
    TRY(memory_grow(&d->list, &d->capacity, d->n + 1));
    d->list[d->n++] = number;
    return delete_report(d, number, r);
}

static int delete_order(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Collects the documents that are given by number, each once. */
static enum status delete_find_named(struct delete *d, struct catalog_txn *t) {
    int64_t *sorted;
    const int64_t n = d->how->n_documents;
    TRY(memory_allocate(&sorted, (size_t)n));
    if (n > 0) memcpy(sorted, d->how->documents, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, delete_order);
    enum status s = STATUS_OK;
    for (int64_t i = 0; i < n && s == STATUS_OK; i++) {
        struct document_record r;
        bool gone;
        if (i > 0 && sorted[i] == sorted[i - 1]) continue;
        if (sorted[i] < 0 || sorted[i] >= d->published.documents) {
            s = fail(STATUS_NOT_FOUND, "%s: there is no document %lld, the store has %lld", d->dir,
                     (long long)sorted[i], (long long)d->published.documents);
            break;
        }
        s = delete_look(d, t, sorted[i], &r, &gone);
        if (s == STATUS_OK && gone)
            progress_note(d->how->progress, "%s: document %lld was deleted before", d->dir, (long long)sorted[i]);
        if (s == STATUS_OK && !gone) s = delete_add(d, sorted[i], &r);
    }
    memory_free(sorted);
    return s;
}

static enum status delete_find_matching(struct delete *d, struct catalog_txn *t) {
    TRY(delete_sort_keys(d));
    for (int64_t i = 0; i < d->published.documents; i++) {
        struct document_record r;
        bool gone, matches;
        if (i % STEP == 0 && progress_stop_requested(d->how->progress))
            return fail(STATUS_INTERRUPTED, "%s: stopped; nothing was deleted", d->dir);
        if (i % STEP == 0)
            progress_step(d->how->progress, "look for documents", "documents", i, d->published.documents);
        TRY(delete_look(d, t, i, &r, &gone));
        if (gone) continue;
        TRY(delete_matches(d, &matches, &r));
        if (matches) TRY(delete_add(d, i, &r));
    }
    return STATUS_OK;
}

static enum status delete_find(struct delete *d) {
    struct catalog_txn *t;
    TRY(catalog_begin(&t, d->catalog, false));
    enum status s = record_get_generation(t, d->catalog, &d->published);
    if (s == STATUS_OK) s = record_list_shards(t, d->catalog, &d->shards, d->published.shards);
    const bool by_text = d->how->n_sources > 0 || d->how->n_keys > 0;
    if (s == STATUS_OK) s = by_text ? delete_find_matching(d, t) : delete_find_named(d, t);
    catalog_abort(t);
    d->report->generation = (uint64_t)d->published.number;
    return s;
}

static enum status delete_one(const struct catalog *c, struct catalog_txn *t, int64_t number) {
    struct document_record r;
    bool found;
    int64_t holder = -1;
    TRY(record_get_document(t, c, &r, number));
    const struct deleted_record gone = {number, r.first_chunk, r.chunks, r.tokens};
    TRY(record_find_hash(t, r.hash, &found, &holder));
    if (found && holder == number) TRY(catalog_delete(t, TABLE_HASHES, r.hash, sizeof r.hash));
    return record_put_deleted(t, &gone);
}

enum status publish_delete(const struct catalog *c, struct catalog_txn *t, const int64_t *documents, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        TRY(delete_one(c, t, documents[i]));
    return STATUS_OK;
}

static enum status delete_write(struct delete *d, struct catalog_txn *t, const struct generation_record *g) {
    TRY(publish_delete(d->catalog, t, d->list, (int64_t)d->n));
    TRY(record_put_generation(t, g));
    return fault_point("store:delete:before-commit");
}

static enum status delete_commit(struct delete *d) {
    struct catalog_txn *t;
    struct generation_record g = d->w->published;
    g.number++;
    TRY(catalog_begin(&t, d->catalog, true));
    enum status s = delete_write(d, t, &g);
    if (s != STATUS_OK) {
        catalog_abort(t);
        return s;
    }
    TRY(catalog_commit(t));
    d->w->published = g;
    d->report->generation = (uint64_t)g.number;
    return fault_point("store:delete:committed");
}

enum status store_delete(struct store_delete_report *out, const char *dir, const struct store_delete *how) {
    *out = (struct store_delete_report){0};
    struct delete d = {.dir = dir, .how = how, .report = out};
    enum status s = how->dry_run ? catalog_open(&d.catalog, dir, false, 0) : writer_open(&d.w, dir, NULL, false);
    if (d.w) d.catalog = d.w->catalog;
    if (s == STATUS_OK) s = delete_find(&d);
    if (s == STATUS_OK && d.w && d.n > 0) s = delete_commit(&d);
    if (!d.w) catalog_close(d.catalog);
    store_writer_close(d.w);
    memory_free(d.shards);
    memory_free(d.keys);
    memory_free(d.list);
    memory_free(d.text);
    return s;
}
