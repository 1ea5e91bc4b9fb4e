/* document_stream.c -- see document_stream_internal.h. Blocks of documents are encoded in a ring of slots. A block is
 * always of the same documents, so neither their order nor the first failure depends on the threads. */
#include "base/memory.h"
#include "base/system/threads.h"
#include "store/catalog/deleted_records_internal.h"
#include "store/parts/document_stream_internal.h"
#include <stdio.h>
#include <string.h>

enum { BLOCK_DOCUMENTS = 1024, STREAM_THREADS = 4, SLOTS = 4 * STREAM_THREADS, MESSAGE_MAX = 1024 };

struct document_block {
    struct encoded_document documents[BLOCK_DOCUMENTS]; /* value: NULL, because `values` may move */
    int64_t n;
    uint8_t *values;
    size_t used, capacity;
    bool full; /* it can be read; protected by the stream's lock */
    enum status status;
    char message[MESSAGE_MAX];
};

struct document_stream {
    struct document_source from;
    struct document_block *slots; /* block i is in slot i % SLOTS */
    int64_t blocks;
    pthread_mutex_t lock; /* protects `full` of the slots, and the members up to `closing` */
    pthread_cond_t changed;
    int64_t begun;   /* blocks that a thread has begun */
    int64_t current; /* the block that the caller reads */
    bool closing;
    pthread_t threads[STREAM_THREADS];
    int n_threads;
    int64_t at;    /* the next document in the current block */
    size_t offset; /* of its value */
};

/* ---- encoding ---- */

/* Whether the files of the document's shard have this number. (A merged file has the documents of several shards.) */
static bool is_in_shard(const struct document_source *from, const struct document_record *d, int64_t number) {
    if (d->shard >= from->n_shards) return false;
    const struct shard_record *r = &from->shards[d->shard], *first = &from->shards[r->first_file_shard],
                              *last = &from->shards[r->last_file_shard];
    return number >= first->first_document && number < last->first_document + last->documents;
}

static enum status document_encode(struct document_block *b, const struct document_source *from,
                                   struct encoded_document *out, int64_t number, struct document_record d) {
    out->dropped = shard_is_dropped(&from->shards[d.shard]);
    number += from->base.documents;
    d.first_chunk += from->base.chunks;
    d.shard += from->base.shards;
    const struct run_record run = {number, d.shard, d.token_offset, d.tokens, d.chunks};
    const size_t bytes = document_record_bytes(&d);
    TRY(memory_grow(&b->values, &b->capacity, b->used + bytes));
    b->used += document_record_encode(b->values + b->used, &d);
    run_record_encode(out->run, &run);
    out->number = number;
    out->first_chunk = d.first_chunk;
    out->chunks = d.chunks;
    out->tokens = d.tokens;
    out->value_bytes = bytes;
    memcpy(out->hash, d.hash, sizeof out->hash);
    return STATUS_OK;
}

static enum status document_read(struct document_block *b, const struct document_source *from, struct catalog_walk *w,
                                 int64_t number) {
    bool more;
    struct bytes key, value;
    struct document_record d;
    TRY(catalog_walk_next(w, &more, &key, &value));
    if (!more || catalog_key_number(key) != (uint64_t)number)
        return fail(STATUS_CORRUPT, "%s: document %lld is missing, run drt-index verify", catalog_path(from->catalog),
                    (long long)number);
    TRY(record_decode_document(value, from->catalog, &d));
    if (!is_in_shard(from, &d, number))
        return fail(STATUS_CORRUPT, "%s: document %lld is in no shard, run drt-index verify",
                    catalog_path(from->catalog), (long long)number);
    return document_encode(b, from, &b->documents[b->n], number, d);
}

static enum status block_read(struct document_block *b, const struct document_source *from, struct catalog_txn *t,
                              int64_t begin, int64_t end) {
    struct catalog_walk *walk;
    const bool any_deleted = catalog_count(t, TABLE_DELETED) > 0;
    TRY(catalog_walk_begin(&walk, t, TABLE_DOCUMENTS, (uint64_t)begin));
    enum status s = STATUS_OK;
    for (int64_t i = begin; i < end && s == STATUS_OK; i++) {
        struct encoded_document *d = &b->documents[b->n];
        d->deleted = false;
        s = document_read(b, from, walk, i);
        if (s == STATUS_OK && any_deleted) s = record_is_deleted(t, i, &d->deleted);
        if (s == STATUS_OK) b->n++;
    }
    catalog_walk_end(walk);
    return s;
}

static void block_fill(struct document_stream *stream, int64_t block) {
    struct document_block *b = &stream->slots[block % SLOTS];
    const struct document_source *from = &stream->from;
    const int64_t begin = from->begin + block * BLOCK_DOCUMENTS, left = from->end - begin;
    struct catalog_txn *t;
    b->n = 0;
    b->used = 0;
    b->status = catalog_begin(&t, from->catalog, false);
    if (b->status == STATUS_OK) {
        b->status = block_read(b, from, t, begin, begin + (left < BLOCK_DOCUMENTS ? left : BLOCK_DOCUMENTS));
        catalog_abort(t);
    }
    if (b->status != STATUS_OK) snprintf(b->message, sizeof b->message, "%s", status_message());
}

/* ---- threads ---- */

/* Encodes the next block. The caller holds the lock, and there is a free slot. */
static void fill_next(struct document_stream *s) {
    const int64_t block = s->begun++;
    pthread_mutex_unlock(&s->lock);
    block_fill(s, block);
    pthread_mutex_lock(&s->lock);
    s->slots[block % SLOTS].full = true;
    pthread_cond_broadcast(&s->changed);
}

static void *stream_body(void *context) {
    struct document_stream *s = context;
    pthread_mutex_lock(&s->lock);
    while (!s->closing && s->begun < s->blocks) {
        if (s->begun < s->current + SLOTS)
            fill_next(s);
        else
            pthread_cond_wait(&s->changed, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

enum status document_stream_open(struct document_stream **out, const struct document_source *from, int threads) {
    struct document_stream *s;
    TRY(memory_allocate_zero(&s, 1));
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->from = *from;
    s->blocks = (from->end - from->begin + BLOCK_DOCUMENTS - 1) / BLOCK_DOCUMENTS;
    enum status status = memory_allocate_zero(&s->slots, SLOTS);
    if (status != STATUS_OK) {
        document_stream_close(s);
        return status;
    }
    if (threads > STREAM_THREADS) threads = STREAM_THREADS;
    while (s->n_threads < threads && s->n_threads < s->blocks - 1 &&
           threads_start(&s->threads[s->n_threads], stream_body, s))
        s->n_threads++;
    *out = s;
    return STATUS_OK;
}

void document_stream_close(struct document_stream *s) {
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < s->n_threads; i++)
        pthread_join(s->threads[i], NULL);
    for (int i = 0; i < SLOTS && s->slots; i++)
        memory_free(s->slots[i].values);
    memory_free(s->slots);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    memory_free(s);
}

/* Waits until the current block is full. */
static enum status await_block(struct document_stream *s, struct document_block *b) {
    pthread_mutex_lock(&s->lock);
    while (!b->full) {
        if (s->begun == s->current)
            fill_next(s);
        else
            pthread_cond_wait(&s->changed, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return b->status == STATUS_OK ? STATUS_OK : fail(b->status, "%s", b->message);
}

static void release_block(struct document_stream *s, struct document_block *b) {
    pthread_mutex_lock(&s->lock);
    b->full = false;
    s->current++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    s->at = 0;
    s->offset = 0;
}

enum status document_stream_next(struct document_stream *s, const struct encoded_document **out) {
    struct document_block *b = &s->slots[s->current % SLOTS];
    if (s->at > 0 && s->at == b->n) {
        release_block(s, b);
        b = &s->slots[s->current % SLOTS];
    }
    if (s->at == 0) TRY(await_block(s, b));
    struct encoded_document *d = &b->documents[s->at++];
    d->value = b->values + s->offset;
    s->offset += d->value_bytes;
    *out = d;
    return STATUS_OK;
}
