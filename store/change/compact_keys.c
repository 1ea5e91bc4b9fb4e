/* compact_keys.c -- see compact_keys_internal.h. Documents are in the same order in both stores. Keys of a chunk depend
 * only on the text of its document, so they are also those of the new store. */
#include "base/minmax.h"
#include "store/change/compact_keys_internal.h"
#include "store/keys/store_keys.h"
#include "store/verify_internal.h"
#include "store/view_internal.h"
#include <stdio.h>
#include <string.h>

struct compact_keys {
    struct store_view *from, *to;
    int64_t from_documents, to_documents;
    struct store_keys *keys; /* of `from` */
    struct store_keys_spec spec;
    struct keys_layout layout; /* of `to` */
    int64_t next;              /* document of `from` */
    const struct progress *progress;
};

/* Finds the document of `from` that has this hash: the next one, but for copies, which the new store does not have. */
static enum status source_of(struct compact_keys *c, struct store_document *out, const uint8_t hash[16]) {
    for (; c->next < c->from_documents; c->next++) {
        const enum status s = store_view_document(c->from, out, c->next);
        if (s == STATUS_NOT_FOUND) continue; /* it was deleted, or is of a dropped shard */
        TRY(s);
        if (memcmp(out->hash, hash, sizeof out->hash) != 0) continue;
        c->next++;
        return STATUS_OK;
    }
    return fail(STATUS_CORRUPT, "%s has a document that %s lacks", c->to->store->dir, c->from->store->dir);
}

/* The chunks of `to` that are added next, with their source. */
struct chunk_pair {
    int64_t document, to, from, left; /* left: chunks of the document from here on */
    int64_t gap;                      /* chunks before them that were deleted from `to` meanwhile */
};
static enum status pair_next_document(struct compact_keys *c, struct chunk_pair *p) {
    struct store_document to, from;
    uint8_t hash[16];
    enum status s = STATUS_NOT_FOUND;
    while (s == STATUS_NOT_FOUND && p->document < c->to_documents)
        s = store_view_document(c->to, &to, p->document++);
    p->gap = (s == STATUS_OK ? to.first_chunk : c->layout.chunks) - p->to;
    if (s == STATUS_NOT_FOUND) return STATUS_OK; /* the rest was deleted */
    TRY(s);
    memcpy(hash, to.hash, sizeof hash);
    p->left = to.chunks;
    TRY(source_of(c, &from, hash));
    p->from = from.first_chunk;
    if (from.chunks == p->left) return STATUS_OK;
    return fail(STATUS_CORRUPT, "%s has a document of another size than %s", c->to->store->dir, c->from->store->dir);
}

/* Adds chunks up to the end of a file or of the document. file NULL: none is written. */
static enum status pair_append(struct compact_keys *c, struct chunk_pair *p, struct store_keys_file *file,
                               int64_t end) {
    if (p->left == 0 && p->gap == 0) TRY(pair_next_document(c, p));
    const int64_t gap = min_i64(p->gap, end - p->to);
    if (file && gap > 0) TRY(store_keys_append(file, (struct store_key_rows){0}, gap));
    p->gap -= gap;
    p->to += gap;
    for (; p->left > 0 && p->to < end; p->to++, p->from++, p->left--) {
        struct store_key_rows rows;
        if (file) TRY(store_keys_chunk(c->keys, &rows, p->from));
        if (file) TRY(store_keys_append(file, rows, 1));
    }
    return STATUS_OK;
}

/* Writes a file of `to`, or only moves on if it is complete. */
static enum status file_compact(struct compact_keys *c, struct chunk_pair *p, int64_t number) {
    const struct keys_range range = keys_layout_range(&c->layout, number);
    struct store_keys_file *file = NULL;
    bool complete;
    enum status s = STATUS_OK;
    TRY(store_keys_complete(&complete, c->to, &c->layout, number, &c->spec));
    if (!complete) TRY(store_keys_begin(&file, c->to, &c->layout, number, &c->spec));
    while (p->to < range.end && s == STATUS_OK)
        s = pair_append(c, p, file, range.end);
    if (s == STATUS_OK && file) return store_keys_publish(file);
    store_keys_discard(file);
    return s;
}

static enum status files_compact(struct compact_keys *c) {
    struct chunk_pair p = {0};
    for (int64_t i = 0; i < c->layout.files; i++) {
        if (progress_stop_requested(c->progress))
            return fail(STATUS_INTERRUPTED, "stopped while keys were copied: run the same command again");
        TRY(file_compact(c, &p, i));
        progress_step(c->progress, "copy keys", "files", i + 1, c->layout.files);
    }
    return STATUS_OK;
}

static enum status copy_all(struct compact_keys *c) {
    struct store_info info;
    store_view_info(c->from, &info);
    c->from_documents = info.documents;
    store_view_info(c->to, &info);
    c->to_documents = info.documents;
    TRY(keys_layout_open(&c->layout, c->to));
    TRY(store_keys_open(&c->keys, c->from, &c->spec, "the store"));
    store_keys_in_order(c->keys);
    return files_compact(c);
}

/* A store without its keys is complete, so damage of keys is only a note. */
static enum status compact_keys_conclude(enum status s, const char *to, const struct progress *progress) {
    char why[600];
    int64_t removed;
    if (s != STATUS_CORRUPT) return s;
    snprintf(why, sizeof why, "%s", status_message());
    char *remedy = message_remedy(why);
    if (remedy) *remedy = 0;
    progress_note(progress, "%s: has no keys of a token memory, because %s: run drt-index keys --store %s", to, why,
                  to);
    return store_keys_remove(&removed, to);
}

enum status compact_keys(int64_t *chunks, const char *to, struct store_view *from, const struct progress *progress) {
    struct store_keys_state state;
    struct store *store;
    struct store_view *view = NULL;
    *chunks = 0;
    struct store_keys_usage usage;
    TRY(store_keys_state(&state, from));
    TRY(store_keys_usage(&usage, from->store->dir));
    if (usage.files == 0) return STATUS_OK;
    if (state.chunks < state.all) {
        progress_note(progress,
                      "%s: keys of a token memory are not copied, because the old store has those of %lld of %lld "
                      "chunks: run drt-index keys --store %s",
                      to, (long long)state.chunks, (long long)state.all, to);
        return STATUS_OK;
    }
    TRY(store_open(&store, to));
    enum status s = store_view_open(&view, store);
    struct compact_keys c = {.from = from, .to = view, .spec = state.spec, .progress = progress};
    /* Keys that were made in the new store meanwhile, for another model, stay. */
    if (s == STATUS_OK) s = store_keys_state(&state, view);
    const bool other = state.chunks > 0 && memcmp(&state.spec, &c.spec, sizeof c.spec) != 0;
    if (s == STATUS_OK && !other) s = copy_all(&c);
    if (s == STATUS_OK && !other) *chunks = c.layout.chunks;
    store_keys_close(c.keys);
    keys_layout_free(&c.layout);
    store_view_close(view);
    store_close(store);
    return compact_keys_conclude(s, to, progress);
}
