/* indexer.c -- see indexer.h.
 *
 * One thread, the caller's, takes documents from the feed in input order. It writes their ids into the open shard, and
 * fills batches of chunks across documents. The pool encodes them, and appends the landmarks in the order of the
 * batches, while later documents are taken. A batch never crosses the end of a shard. So the batches of a shard do not
 * depend on whether the build was interrupted before it, and an interrupted build is bit-equal to an uninterrupted one.
 */
#include "indexer/build/indexer.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/minmax.h"
#include "base/system/processors.h"
#include "data/readers/ids_check.h"
#include "indexer/build/indexer_internal.h"
#include "indexer/search/assignment.h"
#include "indexer/search/clustering.h"
#include <stdio.h>
#include <string.h>

enum {
    SHARD_CHUNKS = 16384,
    HELD_BYTES = 512 << 20,      /* most of shards that are not sealed: landmarks of 30 with 384 dimensions, and ids */
    AHEAD_BYTES = 512 << 20,     /* most ids that wait for a GPU: of 128 shards */
    FILES_AHEAD_BYTES = 1 << 30, /* most of files that are decompressed while one before them is read */
    FILES_AHEAD_THREADS = 4,     /* fewer threads tokenize no faster than one decompresses */
    STOP_CHUNKS = 1024, /* after a stop request a document is finished if no more chunks than this are left of it */
};
/* Of documents that wait, 8 bytes for a byte of text: seconds of encoding on a CPU. Beside a GPU more for each thread,
 * because a long document is one thread's work, and those after it wait for it. */
static const uint64_t LOOKAHEAD_BYTES = 64 * 1024 * 1024, LOOKAHEAD_OF_THREAD = 16 * 1024 * 1024;

struct build {
    const struct indexer_config *config;
    struct indexer_report *report;
    struct store_fingerprint fingerprint;
    struct reader *reader;
    struct feed *feed;
    struct store_writer *writer; /* NULL: the store does not exist yet */
    uint64_t free_ram;           /* what the model leaves of max_ram */
    int64_t shard_chunks;
    enum store_landmarks type; /* the config's; of landmarks without dimensions NONE */
    enum store_lexical_choice lexical;
    bool shard_open;
    struct store_part part;   /* parts 0: the whole corpus */
    struct update_plan *plan; /* NULL: no update */
    struct encode_pool *pool;
    int64_t batch;         /* most chunks of a batch */
    int32_t *ids;          /* [batch, chunk]: of the pool's next batch */
    int64_t pending;       /* chunks in `ids` */
    struct cursor cursor;  /* position after the last document taken */
    int64_t sealed_chunks; /* unpublished, of this run and of the runs that it resumes */
    int64_t read_before;   /* input bytes at the end of the last document, for progress */
};

/* ---- encoding ------------------------------------------------------------------------------------------- */

/* Of the pool's thread that stores. */
static enum status store_landmarks(void *shard, struct mat rows) {
    if (rows.rows == 0) return store_shard_complete(shard);
    return rows.type == DTYPE_F16 ? store_shard_halves(shard, rows.data, rows.rows)
                                  : store_shard_rows(shard, rows.data, rows.rows);
}

static bool takes_halves(void *shard) {
    return store_shard_is_f16(shard);
}

/* Gives the pending chunks to the devices, as one batch. */
static void indexer_flush(struct build *b) {
    if (b->pending > 0) encode_pool_submit(b->pool, b->pending, store_shard_open(b->writer));
    b->pending = 0;
}

static void report_step(struct build *b, const struct feed_item *item, int64_t chunk, int64_t chunks) {
    int64_t bytes = item->read_done - b->read_before;
    int64_t part = chunks > 0 ? (int64_t)((double)bytes * (double)chunk / (double)chunks) : bytes;
    progress_step(b->config->progress, b->fingerprint.dim > 0 ? "encode" : "tokenize", "bytes", b->read_before + part,
                  item->read_total);
}

/* Cuts a document, whose ids are in the shard already, into chunks. Its last batch may stay pending. */
static enum status encode_document(struct build *b, const struct feed_item *item) {
    const struct store_new_document *d = &item->document;
    int64_t size = b->config->model->chunk, n_ids = (int64_t)d->n_ids;
    int64_t chunks = (n_ids + size - 1) / size;
    for (int64_t i = 0, some; i < chunks; i += some) {
        if (b->pending == 0) TRY(encode_pool_ids(b->pool, &b->ids));
        some = min_i64(chunks - i, b->batch - b->pending);
        const int64_t left = n_ids - i * size, have = min_i64(left, some * size);
        int32_t *out = b->ids + b->pending * size;
        memcpy(out, d->ids + i * size, (size_t)have * sizeof *out);
        for (int64_t j = have; j < some * size; j++)
            out[j] = -1;
        b->pending += some;
        if (b->pending < b->batch) continue;
        indexer_flush(b);
        report_step(b, item, i + some, chunks);
        if (chunks - i - some > STOP_CHUNKS && progress_stop_requested(b->config->progress)) return STATUS_INTERRUPTED;
    }
    b->report->chunks += chunks;
    b->report->tokens += n_ids;
    return STATUS_OK;
}

/* ---- shards --------------------------------------------------------------------------------------------- */

static void drop_shard(struct build *b) {
    if (b->pool) (void)encode_pool_drain(b->pool); /* no landmark is stored after this */
    if (b->shard_open) store_shard_discard(b->writer);
    b->shard_open = false;
    b->pending = 0;
}

/* Seals the open shard. `regular`: at a boundary that every run of this build has. Otherwise a stop request ended the
 * shard early; the next run's first shard is shorter by as many chunks, so that later boundaries stay the same. */
static enum status indexer_seal(struct build *b, bool regular) {
    indexer_flush(b);
    struct store_shard *shard = store_shard_open(b->writer);
    int64_t chunks = store_shard_chunks(b->writer);
    struct cursor cursor = b->cursor;
    cursor.since_boundary = regular ? 0 : cursor.since_boundary + chunks;
    uint8_t packed[CURSOR_BYTES_MAX];
    TRY(store_shard_end(b->writer, packed, cursor_pack(packed, &cursor)));
    TRY(encode_pool_mark(b->pool, shard));
    b->cursor = cursor;
    b->shard_open = false;
    b->sealed_chunks += chunks;
    return STATUS_OK;
}

/* Seals the shard if it has chunks. A shard that has only duplicates is discarded. */
static enum status close_shard(struct build *b, bool regular) {
    if (!b->shard_open) return STATUS_OK;
    if (store_shard_chunks(b->writer) > 0) return indexer_seal(b, regular);
    store_shard_discard_duplicates(b->writer);
    b->shard_open = false;
    return STATUS_OK;
}

static enum status open_writer(struct build *b, bool create) {
    struct store_writer_config config = {.fingerprint = b->fingerprint, .landmarks = b->type};
    config.held_bytes = (uint64_t)min_i64((int64_t)(b->free_ram / 16), HELD_BYTES);
    return store_writer_open(&b->writer, b->config->store, &config, create);
}

/* Whether chunks are encoded on the CPU. */
static bool on_cpu(const struct indexer_config *c) {
    return c->device && c->device->shares_memory;
}

static int indexer_threads(const struct indexer_config *c) {
    return c->device ? threads_count(c->device->threads) : c->threads > 0 ? c->threads : processors_available();
}

/* Makes the lexical index of a new store while chunks are encoded. Each of a build's chunks is then in one segment. */
static enum status follow_words(struct build *b) {
    const struct indexer_config *c = b->config;
    const int threads = indexer_threads(c);
    if (c->append || b->part.parts > 0 || b->lexical == STORE_LEXICAL_OFF || threads < 2) return STATUS_OK;
    /* beside a GPU it yields to the threads that the GPU waits for */
    return store_writer_follow(b->writer, b->free_ram / 4, on_cpu(c) ? threads / 2 : threads, !on_cpu(c));
}

/* In an update, *taken is false if the document needs no change. */
static enum status take_planned(const struct build *b, struct store_new_document *d, const struct feed_item *item,
                                bool *taken) {
    const int64_t index = (int64_t)item->after.documents - 1;
    *taken = !b->plan || update_plan_takes(b->plan, index) || d->n_ids > 0;
    d->unchecked = b->plan != NULL;
    return b->plan ? update_plan_check(b->plan, index, d) : STATUS_OK;
}

static enum status take_document(struct build *b, struct feed_item *item) {
    struct indexer_report *r = b->report;
    bool duplicate = false, taken;
    TRY(take_planned(b, &item->document, item, &taken));
    if (!taken) {
        /* unchanged, a duplicate, or empty: counted by the plan */
    } else if (item->document.n_ids == 0) {
        r->empty++;
        b->cursor.empty++;
    } else {
        if (!b->writer) {
            TRY(open_writer(b, true));
            TRY(follow_words(b));
        }
        if (!b->shard_open) TRY(store_shard_begin(b->writer));
        b->shard_open = true;
        TRY(store_shard_document(b->writer, &item->document, &duplicate));
        if (!duplicate) TRY(encode_document(b, item));
    }
    r->documents++;
    r->duplicates += duplicate;
    r->replaced += (int64_t)item->replaced;
    b->cursor.documents++;
    b->cursor.replaced += (int64_t)item->replaced;
    cursor_advance(&b->cursor, &item->after);
    report_step(b, item, 1, 1);
    b->read_before = item->read_done;
    if (b->shard_open && store_shard_chunks(b->writer) + b->cursor.since_boundary >= b->shard_chunks)
        return indexer_seal(b, true);
    return STATUS_OK;
}

/* Waits until all shards that were ended are sealed. */
static enum status indexer_settle(struct build *b) {
    TRY(encode_pool_drain(b->pool));
    return b->writer ? store_writer_wait(b->writer) : STATUS_OK;
}

static enum status indexer_interrupted(struct build *b) {
    TRY(indexer_settle(b));
    if (b->sealed_chunks == 0)
        return fail(STATUS_INTERRUPTED, "stopped before a shard was done: run the same command again");
    return fail(STATUS_INTERRUPTED,
                "stopped: %lld chunks of this corpus are done and kept in %s; run the same command again to resume",
                (long long)b->sealed_chunks, b->config->store);
}

static enum status take_all(struct build *b) {
    for (;;) {
        if (progress_stop_requested(b->config->progress)) {
            TRY(close_shard(b, false));
            return indexer_interrupted(b);
        }
        struct feed_item item;
        bool more;
        enum status status = feed_next(b->feed, &item, &more);
        if (status == STATUS_INTERRUPTED) { /* the source of the caller's own documents was interrupted */
            TRY(close_shard(b, false));
            return indexer_interrupted(b);
        }
        TRY(status);
        if (!more) break;
        status = take_document(b, &item);
        feed_release(b->feed, &item);
        if (status == STATUS_INTERRUPTED) { /* interrupted within a very long document */
            drop_shard(b);
            return indexer_interrupted(b);
        }
        if (status != STATUS_OK) return status;
    }
    return close_shard(b, true);
}

/* ---- start and end -------------------------------------------------------------------------------------- */

/* Reads what is published. STATUS_NOT_FOUND is not a failure: there is no store yet, or nothing in it is published.
 * With a request, the published store must equal the one that the request would make. */
static enum status indexer_published(int64_t *chunks, uint64_t *generation, const char *dir,
                                     const struct built_request *request) {
    struct store *store = NULL;
    struct store_view *view = NULL;
    *chunks = 0;
    *generation = 0;
    enum status status = store_open(&store, dir);
    if (status == STATUS_OK) status = store_view_open(&view, store);
    if (status == STATUS_OK) {
        struct store_info info;
        store_view_info(view, &info);
        *chunks = info.chunks;
        *generation = info.generation;
    }
    if (status == STATUS_NOT_FOUND) status = STATUS_OK;
    if (status == STATUS_OK && request && *chunks > 0) status = built_check(view, request);
    store_view_close(view);
    store_close(store);
    return status;
}

static enum status describe_part(struct build *b) {
    const struct reader_config *r = &b->config->reader;
    if (r->parts == 0) return STATUS_OK;
    b->part.part = r->part;
    b->part.parts = r->parts;
    return cursor_corpus(b->part.corpus, r, b->shard_chunks);
}

/* Checks that the store has not changed between the plan and the writer's lock: it would have other documents to
 * replace. */
static enum status check_plan(const struct build *b) {
    struct store_journal journal;
    if (!b->plan) return STATUS_OK;
    TRY(store_writer_journal(b->writer, &journal));
    if (journal.generation == update_plan_generation(b->plan)) return STATUS_OK;
    return fail(STATUS_BUSY, "%s: another program changed the store meanwhile: run the same command again",
                b->config->store);
}

static enum status open_store(struct build *b) {
    const struct indexer_config *c = b->config;
    struct reader_config reader = c->reader;
    reader.progress = c->progress;
    const struct built_request request = {.store = c->store,
                                          .index = c->index ? c->index : "auto",
                                          .fingerprint = &b->fingerprint,
                                          .reader = &reader,
                                          .shard_chunks = b->shard_chunks,
                                          .lexical = b->lexical,
                                          .type = b->type,
                                          .part = b->part.parts ? &b->part : NULL};
    int64_t chunks;
    uint64_t generation;
    enum status built = indexer_published(&chunks, &generation, c->store, c->append ? NULL : &request);
    if (built == STATUS_INTERRUPTED || (built != STATUS_OK && chunks == 0)) return built;
    if (chunks > 0 && !c->append && built != STATUS_OK) {
        char why[600];
        snprintf(why, sizeof why, "%s", status_message());
        if (b->part.parts > 0)
            return fail(STATUS_MISMATCH,
                        "%s: a part is built here already, of another request: build into another folder, or remove "
                        "this one; the difference: %s",
                        c->store, why);
        return fail(STATUS_INVALID,
                    "%s: a store is built here already (%lld chunks, generation %llu), of another request: put more "
                    "into it with drt-index add, or build into another folder; the difference: %s",
                    c->store, (long long)chunks, (unsigned long long)generation, why);
    }
    if (chunks > 0 && !c->append) {
        b->report->already_built = true;
        b->report->resumed_chunks = chunks;
        return STATUS_OK;
    }
    if (chunks == 0 && c->append)
        return fail(STATUS_NOT_FOUND, "%s: there is no built store to add to: use drt-index build", c->store);
    enum status status = open_writer(b, b->part.parts > 0);
    if (status == STATUS_OK && b->part.parts > 0)
        status = store_writer_part(b->writer, &b->part, &b->report->already_built);
    /* the first chunk creates the store, so that a corpus without text leaves no folder */
    if (status == STATUS_NOT_FOUND && !c->append) return STATUS_OK;
    TRY(status);
    if (c->restart) TRY(store_writer_drop_journal(b->writer));
    return check_plan(b);
}

/* An update whose store changed since it was begun has another plan now, so it begins again. */
static enum status drop_outdated(struct build *b, struct store_journal *journal) {
    const struct indexer_config *c = b->config;
    struct cursor plain;
    cursor_describe(&plain, &c->reader, b->shard_chunks);
    if (!b->plan || !cursor_of_earlier_update(journal->cursor, journal->cursor_bytes, &plain,
                                              update_plan_generation(b->plan), c->source))
        return STATUS_OK;
    progress_note(c->progress,
                  "%s: the store changed after this update was begun: it begins again, without the %lld chunks that "
                  "were done",
                  c->store, (long long)journal->chunks);
    TRY(store_writer_drop_journal(b->writer));
    journal->shards = 0;
    return STATUS_OK;
}

/* Resumes after the last sealed shard that was not published, if there is one. */
static enum status indexer_resume(struct build *b) {
    struct store_journal journal = {0};
    if (b->writer) TRY(store_writer_journal(b->writer, &journal));
    if (journal.shards > 0) TRY(drop_outdated(b, &journal));
    if (journal.shards == 0) return STATUS_OK;
    struct cursor cursor;
    TRY(cursor_unpack(&cursor, journal.cursor, journal.cursor_bytes, &b->cursor, b->config->store));
    b->cursor = cursor;
    TRY(reader_seek(b->reader, cursor.position, cursor.marks, cursor.n_marks));
    b->report->resumed_documents = b->cursor.documents;
    b->report->resumed_chunks = journal.chunks;
    b->sealed_chunks = journal.chunks;
    const struct indexer_landmarks *l = b->config->landmarks;
    if (l && l->skip) TRY(l->skip(l->encoder.context, journal.chunks));
    int64_t total;
    reader_progress(b->reader, &b->read_before, &total);
    progress_note(b->config->progress, "resuming after %lld documents and %lld chunks that are done",
                  (long long)b->cursor.documents, (long long)journal.chunks);
    return STATUS_OK;
}

static uint64_t lookahead_bytes(const struct build *b, int threads) {
    const uint64_t all = LOOKAHEAD_OF_THREAD * (uint64_t)threads,
                   wanted = on_cpu(b->config) || all < LOOKAHEAD_BYTES ? LOOKAHEAD_BYTES : all;
    return b->free_ram / 4 < wanted ? b->free_ram / 4 : wanted;
}

static enum status open_input(struct build *b) {
    const struct indexer_config *c = b->config;
    struct reader_config reader = c->reader;
    uint64_t largest = b->free_ram / 2 / FEED_BYTES_PER_TEXT_BYTE;
    if (reader.max_document_bytes == 0 || reader.max_document_bytes > largest) reader.max_document_bytes = largest;
    reader.progress = c->progress;
    if (indexer_threads(c) >= FILES_AHEAD_THREADS)
        reader.ahead_bytes = (uint64_t)min_i64((int64_t)(b->free_ram / 8), FILES_AHEAD_BYTES);
    TRY(reader_open(&b->reader, &reader));
    cursor_describe(&b->cursor, &c->reader, b->shard_chunks);
    if (b->plan) cursor_describe_update(&b->cursor, update_plan_generation(b->plan), c->source);
    TRY(indexer_resume(b));
    if (b->writer) TRY(follow_words(b));
    if (c->tokenizer) ids_check(c->progress, &c->reader, c->tokenizer);
    const int threads = indexer_threads(c);
    const struct feed_config feed = {
        .reader = b->reader,
        .tokenizer = c->tokenizer,
        .ids = indexer_ids_rules(c->model, c->tokenizer),
        .plan = b->plan,
        .source = b->plan ? c->source : NULL,
        /* one feeds many encoder threads; a GPU encodes faster than all threads tokenize, and none is fastest */
        .workers = on_cpu(c) && b->fingerprint.dim > 0 ? 1 + threads / 16 : threads,
        .id_workers = 1 + threads / 8,
        .lookahead_bytes = lookahead_bytes(b, threads),
    };
    return feed_open(&b->feed, &feed);
}

/* The devices of the pool: one for landmarks that others make, otherwise all. */
static enum status open_pool(struct build *b) {
    const struct indexer_config *c = b->config;
    struct encode_device *devices;
    const bool gpu = !on_cpu(c) && (c->encoder || !c->device);
    const int n = c->landmarks ? 1 : 1 + c->n_more;
    TRY(memory_allocate_zero(&devices, (size_t)n));
    devices[0] = (struct encode_device){.device = c->device, .encoder = c->encoder, .states = c->states};
    if (c->landmarks) devices[0] = (struct encode_device){.device = c->device, .external = &c->landmarks->encoder};
    for (int i = 1; i < n; i++)
        devices[i] = c->more[i - 1];
    b->batch = c->landmarks ? c->landmarks->batch
               : !gpu       ? INDEXER_BATCH
               : c->encoder ? encoder_batch(c->encoder)
                            : ENCODER_BATCH_GPU;
    /* the lexical index is then completed while a GPU encodes */
    const uint64_t ahead = gpu ? (uint64_t)min_i64((int64_t)(b->free_ram / 8), AHEAD_BYTES) : 0;
    const struct encode_pool_config config = {.devices = c->device ? devices : NULL,
                                              .n_devices = n,
                                              .opening = c->opening,
                                              .batch = b->batch,
                                              .chunk = c->model->chunk,
                                              .dim = b->fingerprint.dim,
                                              .ahead_bytes = ahead,
                                              .store = store_landmarks,
                                              .halves = takes_halves};
    const uint64_t bytes = encode_pool_bytes(&config);
    if (n > 1 && b->free_ram > bytes + INDEXER_WORKING_BYTES)
        b->free_ram -= bytes; /* of one device: within INDEXER_OVERHEAD_BYTES */
    const enum status s = encode_pool_open(&b->pool, &config);
    memory_free(devices);
    return s;
}

static enum status indexer_publish(struct build *b) {
    const struct indexer_config *c = b->config;
    if (b->sealed_chunks == 0 && b->part.parts > 0) return store_writer_part_empty(b->writer);
    if (b->sealed_chunks == 0 && !c->append)
        return fail(STATUS_INVALID,
                    "%s%s: empty corpus: %lld documents were read, and none has text (%lld empty, %lld bad lines "
                    "skipped): nothing was built",
                    c->reader.n_inputs > 0 ? c->reader.inputs[0] : c->store, c->reader.n_inputs > 1 ? " ..." : "",
                    (long long)b->cursor.documents, (long long)b->cursor.empty, (long long)b->report->skipped_lines);
    bool fresh = !c->append && b->lexical == STORE_LEXICAL_KEEP; /* nothing is published yet */
    int64_t n_replaced = 0;
    const int64_t *replaced = b->plan ? update_plan_replaced(b->plan, &n_replaced) : NULL;
    if (b->sealed_chunks > 0 || n_replaced > 0 || (b->writer && b->lexical != STORE_LEXICAL_KEEP)) {
        double start = clock_seconds();
        struct device *device = encode_pool_device(b->pool);
        struct device_group group; /* that assigns chunks to lists of the index */
        TRY(encode_pool_group(b->pool, &group));
        device_enter(device);
        const struct store_publish how = {.index = c->index,
                                          .lexical = fresh ? STORE_LEXICAL_ON : b->lexical,
                                          .max_ram = b->free_ram,
                                          .merge_chunks =
                                              b->shard_chunks < SHARD_CHUNKS ? b->shard_chunks : SHARD_CHUNKS,
                                          .seed = 1,
                                          .threads = device->threads,
                                          .progress = c->progress,
                                          .clustering = clustering_on(device),
                                          .assignment = assignment_on(&group),
                                          .replaced = replaced,
                                          .n_replaced = n_replaced};
        enum status status = store_writer_publish(b->writer, &how);
        memory_free(group.devices);
        b->report->publish_seconds = clock_seconds() - start;
        if (status == STATUS_INTERRUPTED) return indexer_interrupted(b);
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
}

static enum status make_plan(struct build *b) {
    const struct indexer_config *c = b->config;
    const struct update_request request = {.store = c->store,
                                           .fingerprint = &b->fingerprint,
                                           .reader = &c->reader,
                                           .source = c->source,
                                           .progress = c->progress};
    if (!c->update) return STATUS_OK;
    TRY(update_plan_make(&b->plan, &request));
    b->report->update = update_plan_counts(b->plan);
    b->report->generation = update_plan_generation(b->plan);
    return STATUS_OK;
}

/* Determines what makes the landmarks, and how much memory is left beside it. */
static enum status indexer_describe(struct build *b) {
    const struct indexer_config *c = b->config;
    const struct indexer_landmarks *l = c->landmarks;
    if (!l) TRY(indexer_fingerprint(&b->fingerprint, c->model, c->params, c->tokenizer));
    TRY(indexer_free_ram(&b->free_ram, c->max_ram, c->params, c->device, l ? NULL : c->encoder));
    if (l) b->fingerprint = l->encoder.fingerprint;
    b->type = c->type;
    b->lexical = c->lexical;
    b->report->encoded = b->fingerprint.dim > 0;
    if (b->fingerprint.dim == 0) {
        b->type = STORE_LANDMARKS_NONE;
        if (!c->append && !c->reader.parts) b->lexical = STORE_LEXICAL_ON; /* nothing else finds its chunks */
    }
    if (!l) return store_index_check(c->index, b->fingerprint.dim);
    if (b->free_ram < l->bytes + INDEXER_WORKING_BYTES)
        return fail(
            STATUS_INVALID, "--max-ram: cannot hold the external encoder: %llu MiB more are needed",
            (unsigned long long)((l->bytes + INDEXER_WORKING_BYTES - b->free_ram + INDEXER_MIB - 1) / INDEXER_MIB));
    b->free_ram -= l->bytes;
    return store_index_check(c->index, b->fingerprint.dim);
}

enum status indexer_run(struct indexer_report *report, const struct indexer_config *config) {
    double start = clock_seconds();
    memset(report, 0, sizeof *report);
    struct build b = {.config = config, .report = report};
    int64_t chunks;
    b.shard_chunks = config->shard_chunks > 0 ? config->shard_chunks : SHARD_CHUNKS;
    enum status s;
    TRY_GOTO(s, indexer_describe(&b), out);
    TRY_GOTO(s, open_pool(&b), out);
    TRY_GOTO(s, describe_part(&b), out);
    TRY_GOTO(s, make_plan(&b), out);
    if (config->update && config->dry_run) goto out;
    TRY_GOTO(s, open_store(&b), out);
    if (report->already_built) goto out;
    TRY_GOTO(s, open_input(&b), out);
    s = take_all(&b);
    if (s == STATUS_OK && b.writer) store_writer_follow_end(b.writer);
    if (s == STATUS_OK) s = indexer_settle(&b);
    report->tokenize_seconds = feed_seconds(b.feed);
    report->encode_seconds = encode_pool_seconds(b.pool);
    feed_close(b.feed); /* its memory is now free for the index */
    b.feed = NULL;
    report->passed_over = reader_passed_over(b.reader);
    report->skipped_lines = (int64_t)reader_position(b.reader).skipped;
    reader_note_left_out(b.reader, config->progress);
    if (s == STATUS_OK && config->landmarks && config->landmarks->finish)
        s = config->landmarks->finish(config->landmarks->encoder.context);
    if (s == STATUS_OK) s = indexer_publish(&b);
out:
    feed_close(b.feed);
    drop_shard(&b);
    encode_pool_close(b.pool);
    reader_close(b.reader);
    if (s == STATUS_OK) store_writer_close(b.writer); /* before reading, as LMDB allows one environment a process */
    if (s != STATUS_OK) store_writer_abandon(b.writer);
    if (s == STATUS_OK) s = indexer_published(&chunks, &report->generation, config->store, NULL);
    update_plan_free(b.plan);
    report->seconds = clock_seconds() - start;
    return s;
}
