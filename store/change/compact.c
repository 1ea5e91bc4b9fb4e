/* compact.c -- makes a new store of the documents that a view has. It uses only the functions of store.h, and
 * compact_keys.c for the keys of a token memory.
 *
 * Documents are copied in the order of their ids, with their tokens and their landmarks as stored. The cursor of each
 * shard names the source's generation and the next document, so that a killed call can be repeated. */
#include "base/file.h"
#include "base/memory.h"
#include "store/change/compact_keys_internal.h"
#include "store/store.h"
#include <string.h>

struct compact_cursor {
    uint64_t generation;
    int64_t next;
};

struct compact {
    const struct store_compact *how;
    struct store_compact_report *report;
    struct store *store;
    struct store_view *view;
    struct store_info info;
    enum store_landmarks landmarks; /* of `to` */
    struct store_writer *w;
    const char *from, *to;
    struct compact_cursor at;
    bool open; /* whether a shard is open */
    int32_t *ids;
    size_t capacity;
    float *row;
    char *text;
    size_t text_capacity;
};

/* Copies the strings of a document, because the view's next call would overwrite them. */
static enum status compact_strings(struct compact *c, const struct store_document *d, struct store_new_document *out) {
    const size_t source = strlen(d->source) + 1, key = strlen(d->key) + 1;
    TRY(memory_grow(&c->text, &c->text_capacity, source + key));
    memcpy(c->text, d->source, source);
    memcpy(c->text + source, d->key, key);
    *out = (struct store_new_document){
        .source = c->text, .key = c->text + source, .offset = d->offset, .line = d->line, .bytes = d->bytes};
    memcpy(out->hash, d->hash, sizeof out->hash);
    return STATUS_OK;
}

static enum status compact_tokens(struct compact *c, const struct store_document *d, size_t *n) {
    const size_t chunk = (size_t)c->info.fingerprint.chunk_tokens;
    *n = 0;
    TRY(memory_grow(&c->ids, &c->capacity, ((size_t)d->chunks + 1) * chunk));
    for (int64_t i = d->first_chunk; i < d->first_chunk + d->chunks; i++) {
        struct store_chunk found;
        TRY(store_view_chunk(c->view, &found, c->ids + *n, i));
        *n += (size_t)found.n_tokens;
    }
    return STATUS_OK;
}

static enum status compact_document(struct compact *c, int64_t number) {
    struct store_document d;
    struct store_new_document added;
    bool duplicate = false;
    enum status s = store_view_document(c->view, &d, number);
    if (s == STATUS_NOT_FOUND) return STATUS_OK; /* it was deleted, or is of a dropped shard */
    TRY(s);
    TRY(compact_strings(c, &d, &added));
    TRY(compact_tokens(c, &d, &added.n_ids));
    added.ids = c->ids;
    if (!c->open) TRY(store_shard_begin(c->w));
    c->open = true;
    TRY(store_shard_document(c->w, &added, &duplicate));
    if (duplicate) return STATUS_OK;
    for (int64_t i = d.first_chunk; i < d.first_chunk + d.chunks; i++) {
        if (c->info.fingerprint.dim > 0) TRY(store_view_landmark(c->view, c->row, i));
        TRY(store_shard_landmarks(c->w, c->row, 1));
    }
    c->report->documents++;
    c->report->chunks += d.chunks;
    c->report->tokens += d.tokens;
    return STATUS_OK;
}

static enum status compact_seal(struct compact *c) {
    if (!c->open) return STATUS_OK;
    c->open = false;
    return store_shard_seal(c->w, &c->at, sizeof c->at);
}

static enum status compact_documents(struct compact *c) {
    const int64_t wanted = c->how->shard_chunks ? c->how->shard_chunks : STORE_COMPACT_SHARD;
    for (; c->at.next < c->info.documents;) {
        if (progress_stop_requested(c->how->publish.progress))
            return fail(STATUS_INTERRUPTED, "%s: stopped; sealed shards are kept, run the command again", c->to);
        TRY(compact_document(c, c->at.next));
        c->at.next++;
        if (c->open && store_shard_chunks(c->w) >= wanted) TRY(compact_seal(c));
        if (c->at.next % 64 == 0)
            progress_step(c->how->publish.progress, "copy documents", "documents", c->at.next, c->info.documents);
    }
    return compact_seal(c);
}

/* Continues at a cursor of `to`, if the cursor is of this compaction. */
static enum status compact_continue(struct compact *c, const uint8_t *cursor, size_t bytes) {
    struct compact_cursor found = {0};
    if (bytes == sizeof found) memcpy(&found, cursor, sizeof found);
    if (bytes != sizeof found || found.generation != c->info.generation || found.next < 0 ||
        found.next > c->info.documents)
        return fail(STATUS_MISMATCH,
                    "%s: holds another store, or the compaction of another generation of %s: take "
                    "another folder, or remove this one",
                    c->to, c->from);
    c->at = found;
    return STATUS_OK;
}

/* Finds the position where an earlier call was killed. */
static enum status compact_resume(struct compact *c) {
    struct store_journal journal;
    TRY(store_writer_journal(c->w, &journal));
    c->report->documents = journal.documents;
    c->report->chunks = journal.chunks;
    return journal.shards ? compact_continue(c, journal.cursor, journal.cursor_bytes) : STATUS_OK;
}

/* *done: `to` is published already. Fails if something else is published there. */
static enum status compact_published(struct compact *c, bool *done) {
    struct store *store = NULL;
    struct store_view *view = NULL;
    struct store_info info;
    uint8_t cursor[STORE_CURSOR_MAX];
    size_t bytes = 0;
    *done = false;
    enum status s = store_open(&store, c->to);
    if (s == STATUS_OK) s = store_view_open(&view, store);
    if (s == STATUS_OK) {
        store_view_info(view, &info);
        *done = info.chunks > 0;
        if (*done) s = store_view_cursor(view, cursor, &bytes);
        if (*done && s == STATUS_OK) s = compact_continue(c, cursor, bytes);
        if (*done && s == STATUS_OK && info.landmarks != c->landmarks)
            s = fail(STATUS_MISMATCH, "%s: has landmarks of type %s, not %s: take another folder", c->to,
                     store_landmarks_name(info.landmarks), store_landmarks_name(c->landmarks));
        c->report->documents = info.documents;
        c->report->chunks = info.chunks;
    } else if (s == STATUS_NOT_FOUND) {
        s = STATUS_OK;
    }
    store_view_close(view);
    store_close(store);
    return s;
}

static enum status compact_write(struct compact *c) {
    const struct store_writer_config config = {.fingerprint = c->info.fingerprint, .landmarks = c->landmarks};
    TRY(memory_allocate(&c->row, (size_t)c->info.fingerprint.dim));
    TRY(store_writer_open(&c->w, c->to, &config, true));
    TRY(compact_resume(c));
    TRY(compact_documents(c));
    struct store_publish publish = c->how->publish;
    if (!publish.index) publish.index = c->info.index_chosen ? c->info.index : "auto";
    if (publish.lexical == STORE_LEXICAL_KEEP && c->info.lexical) publish.lexical = STORE_LEXICAL_ON;
    TRY(store_writer_publish(c->w, &publish));
    store_writer_close(c->w);
    c->w = NULL;
    return STATUS_OK;
}

static enum status compact_all(struct compact *c) {
    TRY(file_apart(c->to, &c->from, 1));
    TRY(store_open(&c->store, c->from));
    TRY(store_view_open(&c->view, c->store));
    store_view_info(c->view, &c->info);
    if (c->info.chunks == c->info.dropped_chunks)
        return fail(STATUS_INVALID, "%s: has no document left to make a store of", c->from);
    bool done;
    c->at = (struct compact_cursor){.generation = c->info.generation};
    c->landmarks = c->how->landmarks == STORE_LANDMARKS_KEEP ? c->info.landmarks : c->how->landmarks;
    if ((c->landmarks == STORE_LANDMARKS_NONE) != (c->info.landmarks == STORE_LANDMARKS_NONE))
        return fail(STATUS_INVALID, "%s: has landmarks of type %s: %s are made of it by drt-index build alone", c->from,
                    store_landmarks_name(c->info.landmarks),
                    c->landmarks == STORE_LANDMARKS_NONE ? "stores without landmarks" : "landmarks");
    TRY(store_index_check(c->how->publish.index, c->info.fingerprint.dim));
    TRY(compact_published(c, &done));
    if (!done) TRY(compact_write(c));
    return compact_keys(&c->report->keys_chunks, c->to, c->view, c->how->publish.progress);
}

enum status store_compact(struct store_compact_report *out, const char *from, const char *to,
                          const struct store_compact *how) {
    *out = (struct store_compact_report){0};
    struct compact c = {.how = how, .report = out, .from = from, .to = to};
    enum status s = compact_all(&c);
    if (c.open) store_shard_discard(c.w);
    store_writer_abandon(c.w);
    store_view_close(c.view);
    store_close(c.store);
    memory_free(c.ids);
    memory_free(c.row);
    memory_free(c.text);
    return s;
}
