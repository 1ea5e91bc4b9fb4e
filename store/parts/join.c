/* join.c -- see parts.h.
 *
 * The joined store is written like any other. The data files of the parts are linked or copied under new names and made
 * durable. Then one LMDB transaction records the shards and documents of many of these files under new numbers. The
 * hashes of all documents follow (join_hashes.c). All large tables are appended to in the order of their keys, because
 * a random order would search and rewrite the pages of the whole table.
 *
 * Nothing is published before all parts are recorded. So a kill leaves a journal, and the next call continues after the
 * shards that it has. The header of a linked file has the numbers of its part. The records of the shards have them, too
 * (shard_record.foreign). */
#include "base/crc32c.h"
#include "base/memory.h"
#include "base/system/fault.h"
#include "base/system/threads.h"
#include "store/catalog/deleted_records_internal.h"
#include "store/catalog/record_format_internal.h"
#include "store/parts/document_stream_internal.h"
#include "store/parts/join_hashes_internal.h"
#include "store/parts/join_keys_internal.h"
#include "store/parts/part_record_internal.h"
#include "store/parts/take_file_internal.h"
#include "store/writer_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The catalogs of OPEN_PARTS parts stay open from reading their counts to taking them, because opening checks all pages
 * of a catalog. Each maps 64 GiB, so this needs open_bytes of address space; with less (ulimit -v) none stays open. */
enum { BATCH_DOCUMENTS = 1 << 16, BATCH_FILES = 1024, OPEN_PARTS = 32, HASHES_MAX = 1 << 22 };
static const uint64_t open_bytes = UINT64_C(1) << 42;

struct joined_part {
    const char *dir;
    struct store_fingerprint fingerprint;
    enum store_landmarks landmarks;
    struct part_record record;
    struct generation_record generation;
    int64_t deleted;         /* number of deleted documents */
    struct catalog *catalog; /* NULL: closed */
};

struct join {
    const char *dir;
    const struct store_join *how;
    struct store_join_report *report;
    struct joined_part *parts; /* in the order of their numbers */
    struct store_writer *w;
    bool copy; /* also set when links cannot be made */

    /* the part that is being added */
    const struct joined_part *from;
    struct shard_record *shards;
    struct document_stream *documents;
    struct generation_record base; /* counts of the parts before it */

    bool collect; /* `hashes` has those of all documents so far; otherwise they are read again from the catalog */
    struct hash_list hashes;
};

/* ---- which parts there are ------------------------------------------------------------------------------- */

static enum status read_records(struct joined_part *p, struct catalog_txn *t, const struct catalog *c) {
    struct deleted_list deleted;
    int format;
    TRY(record_get_identity(t, c, &p->fingerprint, &format, &p->landmarks));
    TRY(catalog_check_record(c, format));
    TRY(record_get_part(t, c, &p->record));
    TRY(record_get_generation(t, c, &p->generation));
    TRY(record_list_deleted(t, c, &deleted, p->generation.documents));
    memory_free(deleted.ranges);
    p->deleted = deleted.documents;
    return STATUS_OK;
}

static void part_close(struct joined_part *p) {
    catalog_close(p->catalog);
    p->catalog = NULL;
}

static enum status read_part(struct joined_part *p, const char *dir, bool keep_open) {
    struct catalog_txn *t;
    p->dir = dir;
    TRY(catalog_open(&p->catalog, dir, false, 0));
    enum status s = catalog_begin(&t, p->catalog, false);
    if (s == STATUS_OK) {
        s = read_records(p, t, p->catalog);
        catalog_abort(t);
    }
    if (!keep_open) part_close(p);
    return s;
}

/* The parts as they were given. Threads read them, because opening checks all pages of a catalog. */
struct parts_reading {
    struct join *join;
    int stay_open;        /* so many stay open */
    pthread_mutex_t lock; /* of the members below */
    int failed;           /* the first part that could not be read, or n_parts */
    enum status status;
    char message[1024];
};

static void read_body(void *context, int64_t begin, int64_t end, int worker) {
    struct parts_reading *r = context;
    (void)worker;
    for (int i = (int)begin; i < (int)end; i++) {
        const enum status s = read_part(&r->join->parts[i], r->join->how->parts[i], i < r->stay_open);
        if (s == STATUS_OK) continue;
        pthread_mutex_lock(&r->lock);
        if (i < r->failed) {
            r->failed = i;
            r->status = s;
            snprintf(r->message, sizeof r->message, "%s", status_message());
        }
        pthread_mutex_unlock(&r->lock);
    }
}

struct folder {
    dev_t device;
    ino_t inode;
    const char *path;
};

static int by_inode(const void *a, const void *b) {
    const struct folder *x = a, *y = b;
    return x->device != y->device ? (x->device > y->device) - (x->device < y->device)
                                  : (x->inode > y->inode) - (x->inode < y->inode);
}

/* A process may have a catalog open only once at a time. Folders that do not exist are reported later. */
static enum status check_folders(const struct join *j) {
    struct folder *list;
    size_t n = 0;
    TRY(memory_allocate(&list, (size_t)j->how->n_parts + 1));
    for (int i = 0; i <= j->how->n_parts; i++) {
        const char *path = i < j->how->n_parts ? j->how->parts[i] : j->dir;
        struct stat st;
        if (stat(path, &st) == 0) list[n++] = (struct folder){st.st_dev, st.st_ino, path};
    }
    qsort(list, n, sizeof *list, by_inode);
    enum status s = STATUS_OK;
    for (size_t i = 1; i < n && s == STATUS_OK; i++)
        if (by_inode(&list[i - 1], &list[i]) == 0)
            s = fail(STATUS_MISMATCH,
                     "%s and %s: are one folder: name each part once, and another folder for the store",
                     list[i - 1].path, list[i].path);
    memory_free(list);
    return s;
}

static enum status check_part(const struct joined_part *p) {
    const struct part_record *r = &p->record;
    if (r->part.parts == 0)
        return fail(STATUS_INVALID, "%s: is a store, and not a part of one (drt-index build --part i/N makes those)",
                    p->dir);
    if (!r->finished)
        return fail(STATUS_INVALID, "%s: is not finished: run its drt-index build --part %d/%d again", p->dir,
                    r->part.part, r->part.parts);
    if (r->shards != p->generation.shards || r->documents != p->generation.documents ||
        r->chunks != p->generation.chunks)
        return fail(STATUS_MISMATCH,
                    "%s: documents were added to it after it was built as part %d: build the part again, and add them "
                    "to the joined store",
                    p->dir, r->part.part);
    return STATUS_OK;
}

static int by_number(const void *a, const void *b) {
    const struct joined_part *x = a, *y = b;
    return (x->record.part.part > y->record.part.part) - (x->record.part.part < y->record.part.part);
}

static enum status check_with_first(const struct joined_part *first, const struct joined_part *p) {
    if (p->record.part.parts != first->record.part.parts)
        return fail(STATUS_MISMATCH, "%s: is one of %d parts, and %s one of %d: join the parts of one build", p->dir,
                    p->record.part.parts, first->dir, first->record.part.parts);
    TRY(store_check_fingerprint(first->dir, &first->fingerprint, p->dir, &p->fingerprint));
    if (p->landmarks != first->landmarks)
        return fail(STATUS_MISMATCH,
                    "%s: has landmarks of type %s, and %s of type %s: build both with the same --landmarks", p->dir,
                    store_landmarks_name(p->landmarks), first->dir, store_landmarks_name(first->landmarks));
    if (memcmp(p->record.part.corpus, first->record.part.corpus, sizeof first->record.part.corpus) != 0)
        return fail(STATUS_MISMATCH,
                    "%s: was built from another corpus than %s (names, sizes), or with other options: build both with "
                    "the same command but for --part",
                    p->dir, first->dir);
    return STATUS_OK;
}

static enum status join_missing(const struct join *j, int part, int parts) {
    return fail(STATUS_MISMATCH, "%s: part %d of %d is missing (%d are given): build it, or name its folder", j->dir,
                part, parts, j->how->n_parts);
}

static enum status check_numbers(const struct join *j) {
    int n = j->how->n_parts, parts = j->parts[0].record.part.parts;
    for (int i = 1; i < n; i++)
        if (j->parts[i].record.part.part == j->parts[i - 1].record.part.part)
            return fail(STATUS_MISMATCH, "%s and %s: are both part %d of %d", j->parts[i - 1].dir, j->parts[i].dir,
                        j->parts[i].record.part.part, parts);
    for (int i = 0; i < n; i++)
        if (j->parts[i].record.part.part != i + 1) return join_missing(j, i + 1, parts);
    if (n < parts) return join_missing(j, n + 1, parts);
    return STATUS_OK;
}

static enum status read_parts(struct join *j) {
    const int n = j->how->n_parts;
    struct parts_reading r = {.join = j,
                              .stay_open = memory_has_address_space(open_bytes) ? OPEN_PARTS : 0,
                              .lock = PTHREAD_MUTEX_INITIALIZER,
                              .failed = n};
    TRY(check_folders(j));
    TRY(memory_allocate_zero(&j->parts, (size_t)n));
    threads_for(j->how->publish.threads, n, 1, read_body, &r);
    for (int i = 0; i < n; i++) {
        if (i == r.failed) return fail(r.status, "%s", r.message);
        TRY(check_part(&j->parts[i]));
        TRY(check_with_first(&j->parts[0], &j->parts[i]));
    }
    qsort(j->parts, (size_t)n, sizeof *j->parts, by_number);
    return check_numbers(j);
}

static struct joined_record join_describe(const struct join *j) {
    struct joined_record r = {.parts = j->how->n_parts};
    memcpy(r.corpus, j->parts[0].record.part.corpus, sizeof r.corpus);
    for (int i = 0; i < j->how->n_parts; i++) {
        const struct generation_record *g = &j->parts[i].generation;
        uint8_t counts[6 * 8];
        const int64_t v[6] = {g->number, g->chunks, g->documents, g->tokens, g->shards, g->duplicates};
        for (int f = 0; f < 6; f++)
            little_endian_put(counts + 8 * f, (uint64_t)v[f], 8);
        r.contents = crc32c(r.contents, counts, sizeof counts);
    }
    return r;
}

/* ---- files ------------------------------------------------------------------------------------------------ */

/* The target does not exist: files that an earlier, killed call made and did not record were removed when the
 * writer was opened. */
static enum status take_file(struct join *j, enum shard_kind kind, const struct shard_record *file) {
    char from[FILE_PATH_MAX], to[FILE_PATH_MAX];
    struct stored_file recorded = kind == SHARD_TOKENS ? file->token_file : file->landmark_file;
    int64_t shift = j->base.shards;
    TRY(shard_path(from, j->from->dir, kind, file->first_file_shard, file->last_file_shard));
    TRY(shard_path(to, j->dir, kind, file->first_file_shard + shift, file->last_file_shard + shift));
    TRY(stored_file_check(from, recorded, "build this part again in an empty folder"));
    struct file_taking taking = {&j->copy, &j->report->linked, &j->report->copied, j->how->publish.progress};
    return file_take(to, from, recorded, &taking);
}

static enum status take_files(struct join *j, const struct shard_record *file) {
    if (shard_is_dropped(file)) return STATUS_OK;
    TRY(take_file(j, SHARD_TOKENS, file));
    TRY(fault_point("store:join:tokens-taken"));
    return take_file(j, shard_landmark_kind(j->from->landmarks), file);
}

static enum status sync_names(const struct join *j) {
    char path[FILE_PATH_MAX];
    TRY(file_join(path, j->dir, "tokens"));
    TRY(file_sync_directory(path));
    TRY(file_join(path, j->dir, "landmarks"));
    return file_sync_directory(path);
}

/* ---- records ---------------------------------------------------------------------------------------------- */

static enum status take_document(struct join *j, struct catalog_txn *t) {
    const struct encoded_document *d;
    TRY(document_stream_next(j->documents, &d));
    const struct catalog_key number = catalog_key((uint64_t)d->number), chunk = catalog_key((uint64_t)d->first_chunk);
    TRY(catalog_append(t, TABLE_DOCUMENTS, number.bytes, sizeof number.bytes, d->value, d->value_bytes));
    TRY(catalog_append(t, TABLE_RUNS, chunk.bytes, sizeof chunk.bytes, d->run, sizeof d->run));
    if (d->dropped) return STATUS_OK;
    const struct deleted_record deleted = {d->number, d->first_chunk, d->chunks, d->tokens};
    if (d->deleted) return record_put_deleted(t, &deleted);
    return j->collect ? hash_list_add(&j->hashes, d->hash, d->number) : STATUS_OK;
}

static enum status take_shards(struct join *j, struct catalog_txn *t, const struct shard_record *file) {
    for (int64_t i = file->first_file_shard; i <= file->last_file_shard; i++) {
        struct shard_record r = j->shards[i];
        if (!r.foreign) {
            r.foreign = j->base.shards > 0;
            r.file_number = file->number;
            r.file_chunk = file->first_chunk;
            r.file_token = file->first_token;
        }
        r.number += j->base.shards;
        r.first_file_shard += j->base.shards;
        r.last_file_shard += j->base.shards;
        r.first_chunk += j->base.chunks;
        r.first_document += j->base.documents;
        r.first_token += j->base.tokens;
        r.cursor_bytes = 0;
        TRY(record_put_shard(t, &r));
    }
    for (int64_t i = 0; i < file->documents; i++)
        TRY(take_document(j, t));
    return STATUS_OK;
}

/* Records the files of shards begin .. *end-1 in one transaction. */
static enum status take_batch(struct join *j, int64_t begin, int64_t *end) {
    int64_t documents = 0, files = 0, at = begin;
    while (at < j->from->generation.shards && documents < BATCH_DOCUMENTS && files < BATCH_FILES) {
        struct shard_record file = record_of_shard_file(j->shards, at);
        TRY(take_files(j, &file));
        documents += file.documents;
        files++;
        at = file.last_file_shard + 1;
    }
    TRY(sync_names(j));
    TRY(fault_point("store:join:files-taken"));
    struct catalog_txn *t;
    TRY(catalog_begin(&t, j->w->catalog, true));
    enum status s = STATUS_OK;
    for (int64_t i = begin; i < at && s == STATUS_OK; i = j->shards[i].last_file_shard + 1) {
        struct shard_record file = record_of_shard_file(j->shards, i);
        s = take_shards(j, t, &file);
    }
    if (s == STATUS_OK) s = fault_point("store:join:before-commit");
    if (s != STATUS_OK) {
        catalog_abort(t);
        return s;
    }
    *end = at;
    TRY(catalog_commit(t));
    return fault_point("store:join:committed");
}

static enum status take_part(struct join *j, int64_t done) {
    const struct progress *progress = j->how->publish.progress;
    enum status s = STATUS_OK;
    for (int64_t at = done; at < j->from->generation.shards && s == STATUS_OK;) {
        s = take_batch(j, at, &at);
        progress_step(progress, "join parts", "shards", j->base.shards + at, j->report->shards);
        if (s == STATUS_OK && progress_stop_requested(progress))
            s = fail(STATUS_INTERRUPTED, "%s: stopped: run the same command again to continue", j->dir);
    }
    return s;
}

/* Takes the part's shards from number `done` on. */
static enum status take_from(struct join *j, struct catalog *c, int64_t done) {
    const int64_t n = j->from->generation.shards;
    struct catalog_txn *t;
    TRY(catalog_begin(&t, c, false));
    enum status s = record_list_shards(t, c, &j->shards, n);
    catalog_abort(t);
    TRY(s);
    const struct document_source source = {.catalog = c,
                                           .shards = j->shards,
                                           .n_shards = n,
                                           .base = j->base,
                                           .begin = done < n ? j->shards[done].first_document : 0,
                                           .end = j->from->generation.documents};
    s = document_stream_open(&j->documents, &source, threads_count(j->how->publish.threads) - 1);
    if (s == STATUS_OK) s = take_part(j, done);
    document_stream_close(j->documents);
    j->documents = NULL;
    memory_free(j->shards);
    j->shards = NULL;
    return s;
}

static enum status open_and_take(struct join *j, struct joined_part *p) {
    /* shards of this part that an earlier call recorded */
    const int64_t done = j->w->sealed.shards - j->base.shards;
    enum status s = STATUS_OK;
    j->from = p;
    if (done < p->generation.shards) {
        if (!p->catalog) TRY(catalog_open(&p->catalog, p->dir, false, 0));
        s = take_from(j, p->catalog, done > 0 ? done : 0);
    }
    part_close(p); /* its keys are read through a view */
    return s;
}

static void add_counts(struct generation_record *sum, const struct generation_record *g) {
    sum->shards += g->shards;
    sum->documents += g->documents;
    sum->chunks += g->chunks;
    sum->tokens += g->tokens;
    sum->duplicates += g->duplicates;
}

/* ---- all of it --------------------------------------------------------------------------------------------- */

static enum status count_copies(struct join *j) {
    struct catalog_txn *t;
    TRY(catalog_begin(&t, j->w->catalog, false));
    j->report->copies = (int64_t)catalog_count(t, TABLE_DELETED);
    catalog_abort(t);
    for (int i = 0; i < j->how->n_parts; i++)
        j->report->copies -= j->parts[i].deleted;
    return STATUS_OK;
}

/* Makes the store, or opens what an earlier call left of it. */
static enum status join_begin(struct join *j) {
    const struct store_writer_config config = {.fingerprint = j->parts[0].fingerprint,
                                               .landmarks = j->parts[0].landmarks};
    const struct joined_record now = join_describe(j);
    struct joined_record before;
    struct catalog_txn *t;
    TRY(store_writer_open(&j->w, j->dir, &config, true));
    TRY(catalog_begin(&t, j->w->catalog, true));
    enum status s = record_get_joined(t, j->w->catalog, &before);
    bool same = before.parts == now.parts && before.contents == now.contents &&
                memcmp(before.corpus, now.corpus, sizeof now.corpus) == 0;
    bool fresh = before.parts == 0 && j->w->sealed.shards == 0;
    if (s == STATUS_OK && !same && !fresh)
        s = fail(STATUS_INVALID, "%s: a store is here already, %s: choose another folder, or remove this one", j->dir,
                 before.parts ? "joined of other parts" : "which was not joined");
    if (s == STATUS_OK && fresh) s = record_put_joined(t, &now);
    if (s != STATUS_OK || !fresh) {
        catalog_abort(t);
        j->report->already_joined = s == STATUS_OK && j->w->published.number > 0;
        return s;
    }
    TRY(catalog_commit(t));
    return fault_point("store:join:begun");
}

/* After a call that was killed, documents may be recorded without their hashes, or with some of them. */
static enum status begin_hashes(struct join *j) {
    struct catalog_txn *t;
    j->collect = j->w->sealed.shards == 0 && j->report->documents <= HASHES_MAX;
    TRY(catalog_begin(&t, j->w->catalog, false));
    const bool empty = catalog_count(t, TABLE_HASHES) == 0;
    catalog_abort(t);
    if (empty) return STATUS_OK;
    TRY(catalog_begin(&t, j->w->catalog, true));
    const enum status s = catalog_empty(t, TABLE_HASHES);
    if (s == STATUS_OK) return catalog_commit(t);
    catalog_abort(t);
    return s;
}

static enum status take_keys(struct join *j) {
    struct keys_part *parts;
    TRY(memory_allocate(&parts, (size_t)j->how->n_parts));
    for (int i = 0; i < j->how->n_parts; i++)
        parts[i] = (struct keys_part){j->parts[i].dir, j->parts[i].generation.chunks};
    const struct keys_join how = {
        .parts = parts,
        .n_parts = j->how->n_parts,
        .taking = {&j->copy, &j->report->linked, &j->report->copied, j->how->publish.progress}};
    const enum status s = keys_join(&j->report->keys_files, j->w, &how);
    memory_free(parts);
    return s;
}

static enum status join_publish(struct join *j) {
    struct store_publish how = j->how->publish;
    j->w->sealed = j->base;
    j->w->sealed.number = j->base.shards;
    TRY(join_hashes(j->w, j->collect ? &j->hashes : NULL, HASHES_MAX, &how));
    TRY(count_copies(j));
    TRY(take_keys(j));
    j->w->loose_duplicates = j->report->copies;
    how.index_later = !how.index;
    if (j->parts[0].landmarks == STORE_LANDMARKS_NONE)
        how.lexical = STORE_LEXICAL_ON; /* without landmarks, nothing else can find its chunks */
    return store_writer_publish(j->w, &how);
}

static enum status join_all(struct join *j) {
    struct generation_record all = {0};
    for (int i = 0; i < j->how->n_parts; i++)
        add_counts(&all, &j->parts[i].generation);
    *j->report = (struct store_join_report){
        .shards = all.shards, .documents = all.documents, .chunks = all.chunks, .tokens = all.tokens};
    if (all.chunks == 0) return fail(STATUS_INVALID, "%s: no part has a document: nothing was joined", j->dir);
    TRY(store_index_check(j->how->publish.index, j->parts[0].fingerprint.dim));
    TRY(join_begin(j));
    if (j->report->already_joined) return count_copies(j);
    TRY(begin_hashes(j));
    for (int i = 0; i < j->how->n_parts; i++) {
        TRY(open_and_take(j, &j->parts[i]));
        add_counts(&j->base, &j->parts[i].generation);
    }
    return join_publish(j);
}

enum status store_join(struct store_join_report *out, const char *dir, const struct store_join *how) {
    struct join j = {.dir = dir, .how = how, .report = out, .copy = how->copy};
    *out = (struct store_join_report){0};
    enum status s = how->n_parts > 0 ? read_parts(&j) : fail(STATUS_INVALID, "%s: no part is given", dir);
    if (s == STATUS_OK) s = join_all(&j);
    if (s == STATUS_OK) out->generation = (uint64_t)j.w->published.number;
    if (s == STATUS_OK) store_writer_close(j.w);
    if (s != STATUS_OK) store_writer_abandon(j.w);
    for (int i = 0; i < how->n_parts && j.parts; i++)
        part_close(&j.parts[i]);
    memory_free(j.parts);
    memory_free(j.hashes.at);
    return s;
}
