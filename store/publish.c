/* publish.c -- completes the index, then makes a new generation visible by one LMDB transaction.
 *
 * All segments share one trained template, so a list number means the same list in all of them. New chunks get a
 * segment of their own. Older segments that are not larger are rebuilt together with them. This keeps the number of
 * segments, each of which costs a read at search, logarithmic in the number of additions. */
#include "base/memory.h"
#include "base/system/fault.h"
#include "store/index/list_rows_internal.h"
#include "store/lexical/lexical_follow_internal.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

struct build {
    struct store_writer *w;
    const struct store_publish *how;
    struct index_plan plan;
    struct index_record index; /* as it will be in the new generation */
    struct segment_record *old, *fresh;
    int64_t n_old, n_kept, n_fresh; /* the first n_kept of `old` stay */
    size_t fresh_capacity;
    struct shard_record *shards;
    struct landmarks landmarks; /* of all chunks of the new generation */
    const struct publish_change *change;
    int64_t begin; /* the first chunk that gets a new segment */
    struct lexical_record lexical;
    bool lexical_changed;
};

static struct index_build rows_of(struct build *b) {
    return (struct index_build){.dir = b->w->dir,
                                .stopped = "sealed shards are kept, run the command again to publish",
                                .landmarks = &b->landmarks,
                                .how = b->how};
}

/* Number of chunks of shards that are not dropped. */
static int64_t live_chunks(struct build *b) {
    const struct index_build rows = rows_of(b);
    return index_build_live(&rows);
}

static enum status make_template(struct build *b) {
    char path[FILE_PATH_MAX];
    struct vectors *v;
    TRY(index_plan_enough(&b->plan, live_chunks(b)));
    TRY(vectors_make(&v, b->plan.factory, b->landmarks.dim));
    b->index.template_number = b->index.next_number++;
    b->index.trained_chunks = b->landmarks.chunks;
    const struct index_build rows = rows_of(b);
    enum status s = index_build_train(&rows, v, &b->plan);
    if (s == STATUS_OK) s = index_path(path, b->w->dir, b->index.template_number);
    if (s == STATUS_OK) s = vectors_write(v, path);
    vectors_free(v);
    if (s == STATUS_OK) s = stored_file_of(&b->index.template_file, path);
    if (s == STATUS_OK) s = fault_point("store:publish:template-written");
    return s;
}

/* FAISS reads the file up to the lists' ids and codes, which end it, without checks. So the checksum of that first part
 * is compared at every opening. If the layout is unknown, the checksum of the whole file is compared. */
static enum status record_files(const struct build *b, struct segment_record *r, const char *path) {
    TRY(stored_file_of(&r->file, path));
    r->head = r->file;
    if (b->plan.lists <= 0 || b->plan.code_bytes <= 0) return STATUS_OK;
    uint64_t tail = (uint64_t)r->chunks * (uint64_t)(b->plan.code_bytes + 8);
    if (tail >= r->file.bytes || r->file.bytes - tail + 64 < b->index.template_file.bytes) return STATUS_OK;
    r->head.bytes = r->file.bytes - tail;
    return file_head_checksum(&r->head.crc, path, r->head.bytes);
}

/* FAISS assigns the rows to lists. */
static enum status fill_segment(struct build *b, struct segment_record *r, struct vectors *v, const char *path) {
    const struct index_build rows = rows_of(b);
    TRY(index_build_fill(&rows, v, r->first_chunk, r->first_chunk + r->chunks, b->landmarks.chunks));
    TRY(vectors_write(v, path));
    return record_files(b, r, path);
}

static enum status make_segment(struct build *b, int64_t begin, int64_t end) {
    struct segment_record r = {.number = b->index.next_number++, .first_chunk = begin, .chunks = end - begin};
    TRY(memory_grow(&b->fresh, &b->fresh_capacity, (size_t)b->n_fresh + 1));
    char path[FILE_PATH_MAX];
    TRY(index_path(path, b->w->dir, r.number));
    struct vectors *v;
    char template[FILE_PATH_MAX];
    const struct index_build rows = rows_of(b);
    TRY(index_path(template, b->w->dir, b->index.template_number));
    TRY(index_build_open_template(&v, template, b->index.template_file, b->landmarks.dim, "run drt-index repair"));
    bool own = list_rows_supported(&rows, v);
    enum status s = STATUS_OK;
    const struct store_assignment *assignment = &b->how->assignment;
    if (own && assignment->available) s = assignment->available(assignment->context, &own);
    if (s == STATUS_OK && own) s = list_rows_make_segment(&rows, v, &r, template, path, b->landmarks.chunks);
    if (s == STATUS_NO_MEMORY) { /* of a GPU, which other programs may use */
        s = STATUS_OK;
        progress_note(b->how->progress, "%s: chunks are assigned to lists by FAISS: %s", b->w->dir, status_message());
        own = false;
    }
    if (s == STATUS_OK && !own) s = fill_segment(b, &r, v, path);
    vectors_free(v);
    TRY(s);
    b->fresh[b->n_fresh++] = r;
    return fault_point("store:publish:segment-written");
}

static enum status make_segments(struct build *b) {
    struct store_range there = {b->begin, b->begin};
    const struct index_build rows = rows_of(b);
    for (;;) { /* no segment may extend over dropped ids */
        there = store_dropped_span(landmarks_dropped(&b->landmarks), there.end, b->landmarks.chunks);
        if (there.begin == there.end) return STATUS_OK;
        int64_t left = there.end - there.begin, count = (left + b->plan.segment_rows - 1) / b->plan.segment_rows;
        for (int64_t i = 0; i < count; i++) {
            TRY(index_build_check_stop(&rows));
            TRY(make_segment(b, there.begin + left * i / count, there.begin + left * (i + 1) / count));
        }
    }
}

static int64_t segments_end(const struct build *b) {
    return b->n_kept ? b->old[b->n_kept - 1].first_chunk + b->old[b->n_kept - 1].chunks : 0;
}

/* Decides which old segments stay. */
static void keep_segments(struct build *b, bool rebuild) {
    b->n_kept = rebuild ? 0 : b->n_old;
    for (int64_t i = 0; i < b->change->n_shards; i++)
        while (b->n_kept > 0 && segments_end(b) > b->change->shards[i].first_chunk)
            b->n_kept--;
    int64_t fresh = live_chunks(b) - store_dropped_rank(landmarks_dropped(&b->landmarks), segments_end(b));
    while (fresh > 0 && b->n_kept > 0) {
        int64_t last = b->old[b->n_kept - 1].chunks;
        if (last > fresh || last + fresh > b->plan.segment_rows) break;
        fresh += last;
        b->n_kept--;
    }
    b->begin = segments_end(b);
}

/* Uses an index that was made before, and makes segments for the chunks that it lacks. */
static enum status take_made(struct build *b) {
    const struct publish_made *made = b->change->made;
    b->index = made->index;
    TRY(memory_grow(&b->fresh, &b->fresh_capacity, (size_t)made->n));
    for (int64_t i = 0; i < made->n; i++)
        b->fresh[b->n_fresh++] = made->segments[i];
    b->begin = made->end;
    return make_segments(b);
}

static enum status make_index(struct build *b, const struct generation_record *target) {
    struct store_writer *w = b->w;
    struct catalog_txn *t;
    TRY(catalog_begin(&t, w->catalog, false));
    enum status s = record_list_shards(t, w->catalog, &b->shards, target->shards);
    if (s == STATUS_OK) s = record_list_segments(t, w->catalog, &b->old, &b->n_old);
    catalog_abort(t);
    TRY(s);
    for (int64_t i = 0; i < b->change->n_shards; i++)
        b->shards[b->change->shards[i].number] = b->change->shards[i];
    int64_t chunks = shard_records_chunks(b->shards, target->shards);
    if (chunks != target->chunks)
        return fail(STATUS_CORRUPT, "%s: shards hold %lld chunks, the generation has %lld, run drt-index verify",
                    catalog_path(w->catalog), (long long)chunks, (long long)target->chunks);
    TRY(landmarks_open(&b->landmarks, w->dir, &w->fingerprint,
                       (struct landmarks_list){w->landmark_type, b->shards, target->shards}, chunks,
                       (struct store_ranges){0}));
    memcpy(b->index.factory, b->plan.factory, sizeof b->index.factory);
    b->index.chosen = b->plan.chosen;
    if (strcmp(b->plan.factory, "exact") == 0) {
        b->index.template_number = 0;
        b->index.trained_chunks = 0;
        b->index.template_file = (struct stored_file){0};
        return STATUS_OK;
    }
    if (b->change->made) return take_made(b);
    bool rebuild = b->change->rebuild || b->plan.rebuild || b->index.template_number == 0;
    keep_segments(b, rebuild);
    if (rebuild) TRY(make_template(b));
    return make_segments(b);
}

static enum status make_lexical(struct build *b, const struct generation_record *target) {
    struct catalog_txn *t;
    const struct lexical_request request = {
        .shards = b->shards, .n_shards = target->shards, .changed = &b->lexical_changed};
    TRY(catalog_begin(&t, b->w->catalog, false));
    enum status s = record_get_lexical(t, b->w->catalog, &b->lexical);
    catalog_abort(t);
    if (s != STATUS_CORRUPT) TRY(s); /* verify reports damage, and repair rebuilds the file */
    return s == STATUS_OK ? lexical_record_make(&b->lexical, b->w, b->how, &request) : STATUS_OK;
}

static enum status remove_hashes(struct store_writer *w, struct catalog_txn *t, const struct shard_record *r) {
    for (int64_t i = r->first_document; i < r->first_document + r->documents; i++) {
        struct document_record d;
        bool found;
        int64_t document = -1;
        TRY(record_get_document(t, w->catalog, &d, i));
        TRY(record_find_hash(t, d.hash, &found, &document));
        if (found && document == i) TRY(catalog_delete(t, TABLE_HASHES, d.hash, sizeof d.hash));
        struct catalog_key key = catalog_key((uint64_t)i);
        TRY(catalog_delete(t, TABLE_DELETED, key.bytes, sizeof key.bytes));
    }
    return STATUS_OK;
}

static enum status record_shard(struct store_writer *w, struct catalog_txn *t, const struct shard_record *changed) {
    struct shard_record r; /* from the catalog, because the list has no cursors */
    TRY(record_get_shard(t, w->catalog, &r, changed->number));
    r.token_file = changed->token_file;
    r.landmark_file = changed->landmark_file;
    TRY(record_put_shard(t, &r));
    return shard_is_dropped(changed) ? remove_hashes(w, t, changed) : STATUS_OK;
}

enum status publish_record_shards(struct store_writer *w, struct catalog_txn *t, const struct publish_change *change) {
    bool encoded = false;
    for (int64_t i = 0; i < change->n_shards; i++) {
        TRY(record_shard(w, t, &change->shards[i]));
        encoded = encoded || !shard_is_dropped(&change->shards[i]);
    }
    return encoded ? record_add_encoded(t, w->catalog) : STATUS_OK;
}

/* Deletes the documents that are replaced, and gives their hashes to the documents that replace them. */
static enum status record_replaced(const struct build *b, struct catalog_txn *t, const struct generation_record *g) {
    const struct catalog *c = b->w->catalog;
    if (b->how->n_replaced == 0) return STATUS_OK;
    TRY(publish_delete(c, t, b->how->replaced, b->how->n_replaced));
    for (int64_t i = b->w->published.documents; i < g->documents; i++) {
        struct document_record d;
        bool deleted;
        TRY(record_is_deleted(t, i, &deleted));
        TRY(record_get_document(t, c, &d, i));
        if (!deleted) TRY(record_add_hash(t, d.hash, i));
    }
    return fault_point("store:update:replaced");
}

static enum status record_generation(const struct build *b, struct catalog_txn *t, const struct generation_record *g) {
    for (int64_t i = b->n_kept; i < b->n_old; i++) {
        struct catalog_key key = catalog_key((uint64_t)b->old[i].number);
        TRY(catalog_delete(t, TABLE_SEGMENTS, key.bytes, sizeof key.bytes));
    }
    for (int64_t i = 0; i < b->n_fresh; i++)
        TRY(record_put_segment(t, &b->fresh[i]));
    TRY(publish_record_shards(b->w, t, b->change));
    TRY(record_replaced(b, t, g));
    if (b->w->part.parts > 0) {
        const struct part_record part = {b->w->part, true, g->shards, g->documents, g->chunks};
        TRY(record_put_part(t, &part));
    }
    TRY(record_put_index(t, &b->index));
    if (b->change->made) TRY(record_put_indexed(t, &b->change->made->indexed));
    if (b->lexical_changed) TRY(record_put_lexical(t, &b->lexical));
    TRY(record_put_generation(t, g));
    return fault_point("store:publish:before-commit");
}

static enum status commit_generation(const struct build *b, const struct generation_record *g) {
    struct catalog_txn *t;
    TRY(catalog_begin(&t, b->w->catalog, true));
    enum status s = record_generation(b, t, g);
    if (s != STATUS_OK) {
        catalog_abort(t);
        return s;
    }
    return catalog_commit(t);
}

static enum status publish_plan(struct build *b, const struct generation_record *target) {
    struct catalog_txn *t;
    TRY(catalog_begin(&t, b->w->catalog, false));
    enum status s = record_get_index(t, b->w->catalog, &b->index);
    catalog_abort(t);
    TRY(s);
    const struct publish_made *made = b->change->made;
    if (made && made->end == target->chunks) return STATUS_OK; /* no chunk lacks a segment */
    const char *wanted = b->how->index_later ? "exact" : b->how->index;
    TRY(index_plan_make(&b->plan, wanted, &b->index, target->chunks, b->w->fingerprint.dim, b->w->landmark_type,
                        store_publish_max_ram(b->how)));
    if (b->how->index_later) b->plan.chosen = false;
    if (b->plan.reason[0] && strcmp(b->plan.factory, "exact") != 0)
        progress_note(b->how->progress, "%s: index auto is %s: %s", b->w->dir, b->plan.factory, b->plan.reason);
    return STATUS_OK;
}

/* *shards: of the new generation; NULL: it is the one before. */
static enum status publish_listed(struct store_writer *w, struct shard_record **shards,
                                  const struct generation_record *target, const struct store_publish *how,
                                  const struct publish_change *change) {
    static const struct publish_change none = {0};
    struct build b = {.w = w, .how = how, .change = change ? change : &none};
    TRY(publish_plan(&b, target));
    bool same = w->published.number > 0 && target->shards == w->published.shards && !b.change->rebuild &&
                b.change->n_shards == 0 && how->n_replaced == 0 && !b.plan.rebuild &&
                strcmp(b.plan.factory, b.index.factory) == 0 && b.plan.chosen == b.index.chosen;
    if (same) return publish_lexical(w, how, NULL, false);
    struct generation_record g = *target;
    g.number = w->published.number + 1;
    enum status s = make_index(&b, target);
    if (s == STATUS_OK) s = make_lexical(&b, target);
    if (s == STATUS_OK) s = commit_generation(&b, &g);
    landmarks_close(&b.landmarks);
    if (s == STATUS_OK)
        *shards = b.shards;
    else
        memory_free(b.shards);
    memory_free(b.old);
    memory_free(b.fresh);
    lexical_record_free(&b.lexical);
    TRY(seal_failure(s));
    w->published = g;
    return fault_point("store:publish:committed");
}

enum status publish_generation(struct store_writer *w, const struct generation_record *target,
                               const struct store_publish *how, const struct publish_change *change) {
    struct shard_record *shards = NULL;
    const enum status s = publish_listed(w, &shards, target, how, change);
    memory_free(shards);
    return s;
}

/* Completes the lexical index before the other index is made, so that it holds no memory meanwhile. */
static enum status finish_follower(struct store_writer *w, const struct store_publish *how) {
    struct lexical_follower *f = w->follower;
    bool done = false;
    if (!f) return STATUS_OK;
    w->follower = NULL;
    w->followed = (struct lexical_segment_record){0};
    struct lexical_segment_record made;
    enum status s = STATUS_OK;
    if (how->lexical == STORE_LEXICAL_ON) s = lexical_follower_finish(f, &made, &done, how->progress);
    if (done) w->followed = made;
    lexical_follower_free(f);
    TRY(seal_failure(s));
    return done ? fault_point("store:lexical:followed") : STATUS_OK;
}

enum status store_writer_publish(struct store_writer *w, const struct store_publish *how) {
    assert(!w->shard);
    TRY(store_writer_wait(w));
    if (w->sealed.chunks == 0) return fail(STATUS_INVALID, "%s: nothing to publish, no document was stored", w->dir);
    TRY(finish_follower(w, how));
    struct generation_record target = w->sealed;
    target.duplicates += w->loose_duplicates;
    struct shard_record *shards = NULL;
    enum status s = publish_listed(w, &shards, &target, how, NULL);
    if (s == STATUS_OK) {
        w->sealed.duplicates = target.duplicates;
        w->loose_duplicates = 0;
        s = merge_small_shards(w, shards, how->merge_chunks, how->progress);
    }
    memory_free(shards);
    return s;
}
