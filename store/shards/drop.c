/* drop.c -- removes published shards whose tokens are lost and cannot be made again.
 *
 * One transaction zeroes the files in the shards' records, removes the hashes of their documents, and publishes the
 * remaining segments. The records of the documents stay, so that views of older generations still work and the drop can
 * be repeated. The next opening of the writer removes the files. A merged file stays until all of its shards are
 * dropped. */
#include "base/memory.h"
#include "base/system/fault.h"
#include "store/writer_internal.h"

struct drop {
    const char *dir;
    const struct store_drop *how;
    struct store_drop_report *report;
    struct store_writer *w;    /* NULL in a dry run */
    struct catalog *catalog;   /* the writer's; in a dry run, opened by this call */
    struct shard_record *list; /* the given shards, each once */
    int64_t n;
    char *text; /* source and key of a document */
    size_t text_capacity;
};

static enum status check_range(const struct drop *d, int64_t published, int64_t sealed, struct store_range range) {
    int64_t wrong = range.begin < 0 || range.begin >= sealed ? range.begin : sealed;
    if (wrong != sealed || range.end > sealed)
        return fail(STATUS_NOT_FOUND, "%s: there is no shard %lld, the store has %lld", d->dir, (long long)wrong,
                    (long long)sealed);
    if (range.end > published)
        return fail(STATUS_INVALID,
                    "%s: shard %lld belongs to a build or add that is not finished: run that command again, or with "
                    "--restart to drop what it has done",
                    d->dir, (long long)(range.begin > published ? range.begin : published));
    return STATUS_OK;
}

static bool is_in_ranges(const struct store_drop *how, int64_t number) {
    for (int64_t i = 0; i < how->n_ranges; i++)
        if (number >= how->ranges[i].begin && number < how->ranges[i].end) return true;
    return false;
}

static enum status find_shards(struct drop *d, struct catalog_txn *t) {
    struct store_fingerprint f;
    struct generation_record published, sealed;
    TRY(record_get_fingerprint(t, d->catalog, &f, NULL));
    TRY(record_get_generation(t, d->catalog, &published));
    TRY(record_get_sealed(t, d->catalog, &sealed, NULL, NULL));
    for (int64_t i = 0; i < d->how->n_ranges; i++)
        TRY(check_range(d, published.shards, sealed.shards, d->how->ranges[i]));
    TRY(record_list_shards(t, d->catalog, &d->list, published.shards));
    for (int64_t i = 0; i < published.shards; i++)
        if (is_in_ranges(d->how, i)) d->list[d->n++] = d->list[i];
    d->report->generation = (uint64_t)published.number;
    return STATUS_OK;
}

/* Publishes a generation without the given shards that were not dropped before. */
static enum status publish_without(struct drop *d) {
    struct shard_record *gone;
    TRY(memory_allocate(&gone, (size_t)d->n));
    int64_t n = 0;
    for (int64_t i = 0; i < d->n; i++) {
        if (shard_is_dropped(&d->list[i])) {
            progress_note(d->how->publish.progress, "%s: shard %lld was dropped before", d->dir,
                          (long long)d->list[i].number);
            continue;
        }
        gone[n] = d->list[i];
        gone[n].token_file = gone[n].landmark_file = (struct stored_file){0};
        n++;
    }
    const struct publish_change change = {.shards = gone, .n_shards = n};
    enum status s = n > 0 ? publish_generation(d->w, &d->w->published, &d->how->publish, &change) : STATUS_OK;
    memory_free(gone);
    d->report->generation = (uint64_t)d->w->published.number;
    return s;
}

static enum status report_document(struct drop *d, int64_t shard, int64_t number, const struct document_record *r) {
    struct store_document out;
    if (!d->how->document) return STATUS_OK;
    TRY(document_record_copy(&out, &d->text, &d->text_capacity, number, r));
    d->how->document(d->how->context, shard, &out);
    return STATUS_OK;
}

static enum status report_all(struct drop *d, struct catalog_txn *t) {
    for (int64_t i = 0; i < d->n; i++) {
        const struct shard_record *r = &d->list[i];
        d->report->shards++;
        d->report->documents += r->documents;
        d->report->chunks += r->chunks;
        d->report->tokens += r->tokens;
        for (int64_t j = r->first_document; j < r->first_document + r->documents; j++) {
            struct document_record document;
            TRY(record_get_document(t, d->catalog, &document, j));
            TRY(report_document(d, r->number, j, &document));
        }
    }
    return STATUS_OK;
}

static enum status drop_all(struct drop *d) {
    struct catalog_txn *t;
    TRY(catalog_begin(&t, d->catalog, false));
    enum status s = find_shards(d, t);
    catalog_pause(t);
    if (s == STATUS_OK && d->w) s = publish_without(d);
    if (s == STATUS_OK) s = catalog_renew(t);
    if (s == STATUS_OK) s = report_all(d, t);
    catalog_abort(t);
    return s;
}

enum status store_drop(struct store_drop_report *out, const char *dir, const struct store_drop *how) {
    *out = (struct store_drop_report){0};
    struct drop d = {.dir = dir, .how = how, .report = out};
    enum status s = how->dry_run ? catalog_open(&d.catalog, dir, false, 0) : writer_open(&d.w, dir, NULL, false);
    if (d.w) d.catalog = d.w->catalog;
    if (s == STATUS_OK) s = drop_all(&d);
    if (!d.w) catalog_close(d.catalog);
    store_writer_close(d.w);
    memory_free(d.list);
    memory_free(d.text);
    return s;
}
