/* indexer_feed.c -- reads and tokenizes documents ahead of the encoder, and returns them in input order.
 *
 * Worker threads take turns at the reader, which one lock protects. A worker that holds the lock claims the next slots
 * of a ring, reads a document into each, and parses and tokenizes them after releasing the lock. So decompression and
 * the search for the ends of lines are serial, the rest is parallel, and slots have the order of the input. The bytes
 * of waiting documents are limited. One document may exceed the limit, so that a document larger than the lookahead can
 * pass. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/system/threads.h"
#include "indexer/build/indexer.h"
#include "indexer/build/indexer_internal.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* A worker reads up to TURN documents of together about TURN_BYTES at a time. */
enum { RING = 1024, MESSAGE_MAX = 1024, TURN = 32, TURN_BYTES = 1 << 17 };
/* The consumer takes up to so many documents that are ready at a time. Their slots are free after the last of them. */
enum { TAKEN = 64, RELEASED_SHARE = 16 };
/* A worker that waited for space continues when so much of the ring and of the lookahead is free. With less, the two
 * threads would wake each other for each document. */
enum { SPACE_SHARE = 4 };

enum slot_state { SLOT_FREE, SLOT_CLAIMED, SLOT_READY };
struct slot {
    enum slot_state state;
    enum status status;
    bool end;
    char message[MESSAGE_MAX];
    struct feed_item item;
};

struct feed {
    struct feed_config config;
    struct slot *slots;      /* [RING] */
    pthread_mutex_t reading; /* held by the worker that uses the reader */
    pthread_mutex_t lock;    /* protects all members below, and the states of slots */
    pthread_cond_t space, ready;
    int64_t head, tail;     /* next slot to return, next slot to claim */
    uint64_t bytes;         /* bytes of all documents that are not yet released */
    bool wants_space;       /* a worker waits for it */
    bool finished, closing; /* finished: the input has ended or failed; closing: feed_close waits */
    double seconds;
    int live; /* workers that did not end */
    /* Of the consumer alone: the next slot to return, how many from there on are ready, and the bytes of the documents
     * that were released since `head` was set. */
    int64_t next, ready_slots;
    uint64_t released;
    pthread_t threads[64];
    int n_threads;
};

/* ---- workers -------------------------------------------------------------------------------------------- */

/* Copies a document with its strings and its text or ids into one piece of memory. */
struct raw {
    char *source, *key, *text;
    uint32_t *ids;
    size_t bytes, n_ids;
    bool unparsed;
};

static enum status copy_document(struct raw *raw, struct feed_item *item, const struct document *d) {
    size_t source = strlen(d->source) + 1, key = strlen(d->key) + 1;
    size_t body = d->ids ? d->n_ids * sizeof(uint32_t) : d->bytes;
    char *at;
    TRY(memory_allocate(&at, body + source + key + 1)); /* ids first, where the allocation is aligned */
    void *memory = at;
    *raw = (struct raw){.text = d->ids ? NULL : at,
                        .ids = d->ids ? memory : NULL,
                        .bytes = d->bytes,
                        .n_ids = d->n_ids,
                        .unparsed = d->unparsed};
    if (body) memcpy(at, d->ids ? (const void *)d->ids : d->text, body);
    raw->source = memcpy(at + body, d->source, source);
    raw->key = memcpy(at + body + source, d->key, key);
    item->memory = memory;
    item->replaced = d->replaced;
    item->document = (struct store_new_document){.offset = d->offset, .line = d->line, .bytes = d->ids ? 0 : d->bytes};
    return STATUS_OK;
}

void indexer_document_hash(uint8_t out[16], const struct document *d) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, d->ids ? XXH3_128bits(d->ids, d->n_ids * sizeof *d->ids)
                                                : XXH3_128bits(d->text, d->bytes));
    memcpy(out, canonical.digest, 16);
}

/* Of a worker. */
struct tools {
    struct tokenizer_scratch *scratch;
    struct document_parser *parser;
};

/* Makes the document of a line that was not parsed. What it points to is the parser's. */
static enum status parse_document(const struct tools *tools, struct feed_item *item, struct raw *raw) {
    struct document d = {.text = raw->text,
                         .bytes = raw->bytes,
                         .source = raw->source,
                         .key = raw->key,
                         .line = item->document.line,
                         .unparsed = raw->unparsed};
    if (!d.unparsed) return STATUS_OK;
    TRY(document_parse(tools->parser, &d));
    raw->text = (char *)d.text;
    raw->bytes = d.bytes;
    raw->key = (char *)d.key;
    item->replaced = d.replaced;
    item->document.bytes = d.bytes;
    return STATUS_OK;
}

/* Tokenizes the text, puts all that the store needs into one piece of memory, and frees the copy of the text. Ids stay
 * in their copy. */
static enum status finish_document(const struct feed *f, const struct tools *tools, struct feed_item *item,
                                   struct raw *raw) {
    TRY(parse_document(tools, item, raw));
    const int32_t *ids = (const int32_t *)raw->ids;
    size_t n_ids = raw->n_ids;
    if (f->config.plan && !update_plan_takes(f->config.plan, (int64_t)item->after.documents - 1))
        n_ids = 0;
    else if (raw->ids)
        TRY(ids_check_document(&f->config.ids, raw->source, item->document.offset, raw->ids, raw->n_ids));
    else if (raw->bytes == 0)
        n_ids = 0;
    else if (tokenizer_encode(f->config.tokenizer, tools->scratch, raw->text, raw->bytes, TOKENIZER_LITERAL, &ids,
                              &n_ids) != STATUS_OK)
        return fail_context(STATUS_INVALID, "%s: document at byte %llu", raw->source,
                            (unsigned long long)item->document.offset);
    const struct document content = {.text = raw->text, .bytes = raw->bytes, .ids = raw->ids, .n_ids = raw->n_ids};
    indexer_document_hash(item->document.hash, &content);
    if (raw->ids && n_ids == raw->n_ids && !f->config.source) { /* the copy has all that the store needs */
        item->document.ids = ids;
        item->document.n_ids = n_ids;
        item->document.source = raw->source;
        item->document.key = raw->key;
        return STATUS_OK;
    }

    const char *name = f->config.source ? f->config.source : raw->source;
    size_t source = strlen(name) + 1, key = strlen(raw->key) + 1, body = n_ids * sizeof(int32_t);
    char *at;
    TRY(memory_allocate(&at, body + source + key)); /* ids first, where the allocation is aligned */
    void *memory = at;
    if (body) memcpy(at, ids, body);
    item->document.ids = memory;
    item->document.n_ids = n_ids;
    item->document.source = memcpy(at + body, name, source);
    item->document.key = memcpy(at + body + source, raw->key, key);
    memory_free(item->memory);
    item->memory = memory;
    return STATUS_OK;
}

/* Wakes the worker that waits for space, if there is enough. The caller holds the lock. */
static void indexer_feed_space(struct feed *f) {
    if (!f->wants_space || f->tail - f->head > RING - RING / SPACE_SHARE ||
        f->bytes > f->config.lookahead_bytes - f->config.lookahead_bytes / SPACE_SHARE)
        return;
    f->wants_space = false;
    pthread_cond_broadcast(&f->space);
}

/* Claims the next slot; returns NULL if there is nothing more to do, or if there is no free one and `wait` is false.
 * charge: of the slot that was claimed before, in the same turn. The caller holds `reading`. */
static struct slot *indexer_feed_claim(struct feed *f, bool wait, uint64_t charge) {
    pthread_mutex_lock(&f->lock);
    f->bytes += charge;
    bool full;
    while ((full = f->tail - f->head >= RING || f->bytes >= f->config.lookahead_bytes) && wait && !f->closing &&
           !f->finished) {
        f->wants_space = true;
        pthread_cond_wait(&f->space, &f->lock);
    }
    struct slot *slot = NULL;
    if (!full && !f->closing && !f->finished) {
        slot = &f->slots[f->tail % RING];
        f->tail++;
        memset(&slot->item, 0, sizeof slot->item);
        slot->state = SLOT_CLAIMED;
        slot->status = STATUS_OK;
        slot->end = false;
    }
    pthread_mutex_unlock(&f->lock);
    return slot;
}

/* Reads the next document into the claimed slot. The caller holds `reading`. */
static enum status read_document(struct feed *f, struct slot *slot, struct raw *raw) {
    struct document d;
    int more = 0;
    TRY(reader_next_unparsed(f->config.reader, &d, &more));
    slot->end = !more;
    if (!more) return STATUS_OK;
    slot->item.after = reader_position(f->config.reader);
    reader_progress(f->config.reader, &slot->item.read_done, &slot->item.read_total);
    return copy_document(raw, &slot->item, &d);
}

/* Whether this worker is one too many for documents of ids: they need no tokenizing, and more threads would only wait
 * for each other at the reader. */
static bool indexer_feed_leaves(struct feed *f, const struct raw *raw) {
    pthread_mutex_lock(&f->lock);
    const bool leave = raw->ids && f->config.id_workers > 0 && f->live > f->config.id_workers;
    f->live -= leave;
    pthread_mutex_unlock(&f->lock);
    return leave;
}

/* A document that was read, or that could not be. */
struct turn {
    struct slot *slot;
    struct raw raw;
    enum status status;
};

/* Reads into a claimed slot. Returns whether more may follow. The caller holds `reading`. */
static bool read_slot(struct feed *f, struct turn *t, enum status status) {
    t->raw = (struct raw){0};
    t->status = status == STATUS_OK ? read_document(f, t->slot, &t->raw) : status;
    if (t->status != STATUS_OK) snprintf(t->slot->message, sizeof t->slot->message, "%s", status_message());
    t->slot->item.charge = (uint64_t)t->raw.bytes * (FEED_BYTES_PER_TEXT_BYTE - 2) + t->raw.n_ids * 2 * sizeof(int32_t);
    return t->status == STATUS_OK && !t->slot->end;
}

/* Takes the reader, and reads some documents. Returns their number; 0: there is nothing more to do. */
static int read_turn(struct feed *f, struct turn turns[TURN], enum status status) {
    int n = 0;
    size_t bytes = 0;
    bool more = true;
    uint64_t charge = 0;
    pthread_mutex_lock(&f->reading);
    while (more && n < TURN && bytes < TURN_BYTES) {
        struct turn *t = &turns[n];
        t->slot = indexer_feed_claim(f, n == 0, charge);
        charge = 0;
        if (!t->slot) break;
        more = read_slot(f, t, status);
        charge = t->slot->item.charge;
        bytes += t->raw.bytes + t->raw.n_ids * sizeof(uint32_t);
        n++;
    }
    pthread_mutex_lock(&f->lock);
    f->bytes += charge;
    f->finished = f->finished || !more;
    pthread_mutex_unlock(&f->lock);
    pthread_mutex_unlock(&f->reading);
    return n;
}

/* Parses and tokenizes. */
static void finish_turn(struct feed *f, const struct tools *tools, struct turn *t) {
    struct slot *slot = t->slot;
    if (t->status == STATUS_OK && !slot->end) {
        t->status = finish_document(f, tools, &slot->item, &t->raw);
        if (t->status != STATUS_OK) snprintf(slot->message, sizeof slot->message, "%s", status_message());
    }
    if (t->status == STATUS_OK) return;
    memory_free(slot->item.memory);
    slot->item.memory = NULL;
}

static void indexer_feed_settle(struct feed *f, struct turn *turns, int n, double seconds) {
    bool first = false;
    pthread_mutex_lock(&f->lock);
    for (int i = 0; i < n; i++) {
        struct slot *slot = turns[i].slot;
        const bool document = turns[i].status == STATUS_OK && !slot->end;
        const uint64_t charge = document ? slot->item.document.n_ids * sizeof(int32_t) + 1024 : 0;
        f->bytes += charge - slot->item.charge;
        slot->item.charge = charge;
        slot->status = turns[i].status;
        slot->state = SLOT_READY;
        first = first || slot == &f->slots[f->head % RING]; /* the one that is waited for */
    }
    f->seconds += seconds;
    if (first) pthread_cond_broadcast(&f->ready);
    indexer_feed_space(f);
    pthread_mutex_unlock(&f->lock);
}

static enum status make_tools(struct tools *tools, const struct feed *f) {
    TRY(document_parser_create(&tools->parser, f->config.reader));
    return f->config.tokenizer ? tokenizer_scratch_create(&tools->scratch, f->config.tokenizer) : STATUS_OK;
}

static void *indexer_feed_work(void *context) {
    struct feed *f = context;
    struct turn turns[TURN];
    struct tools tools = {0};
    const enum status made = make_tools(&tools, f);
    bool leave = false;
    for (int n; !leave && (n = read_turn(f, turns, made)) > 0;) {
        const double start = clock_seconds();
        leave = indexer_feed_leaves(f, &turns[0].raw);
        for (int i = 0; i < n; i++)
            finish_turn(f, &tools, &turns[i]);
        indexer_feed_settle(f, turns, n, clock_seconds() - start);
    }
    tokenizer_scratch_free(tools.scratch);
    document_parser_free(tools.parser);
    return NULL;
}

/* ---- the consumer's side -------------------------------------------------------------------------------- */

enum status feed_open(struct feed **out, const struct feed_config *config) {
    void *memory, *slots;
    TRY(memory_allocate_zero_bytes(&memory, 1, sizeof(struct feed)));
    enum status status = memory_allocate_zero_bytes(&slots, RING, sizeof(struct slot));
    if (status != STATUS_OK) {
        memory_free(memory);
        return status;
    }
    struct feed *f = memory;
    f->config = *config;
    f->slots = slots;
    pthread_mutex_init(&f->reading, NULL);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->space, NULL);
    pthread_cond_init(&f->ready, NULL);
    int wanted = config->workers < 1 ? 1 : config->workers;
    if (wanted > (int)ARRAY_LEN(f->threads)) wanted = (int)ARRAY_LEN(f->threads);
    for (; f->n_threads < wanted; f->n_threads++)
        if (!threads_start(&f->threads[f->n_threads], indexer_feed_work, f)) break;
    pthread_mutex_lock(&f->lock);
    f->live = f->n_threads; /* before, it was 0, so that none left while others might fail to start */
    pthread_mutex_unlock(&f->lock);
    if (f->n_threads == 0) {
        feed_close(f);
        return fail(STATUS_NO_MEMORY, "cannot start a thread that reads and tokenizes");
    }
    *out = f;
    return STATUS_OK;
}

/* Frees the slots and the bytes of the documents that were taken. The caller holds the lock. */
static void indexer_feed_free(struct feed *f) {
    f->bytes -= f->released;
    f->released = 0;
    for (; f->head < f->next; f->head++)
        f->slots[f->head % RING].state = SLOT_FREE;
    indexer_feed_space(f);
}

static void indexer_feed_wait(struct feed *f) {
    pthread_mutex_lock(&f->lock);
    indexer_feed_free(f);
    while (f->slots[f->head % RING].state != SLOT_READY)
        pthread_cond_wait(&f->ready, &f->lock);
    while (f->ready_slots < TAKEN && f->slots[(f->head + f->ready_slots) % RING].state == SLOT_READY)
        f->ready_slots++;
    pthread_mutex_unlock(&f->lock);
}

enum status feed_next(struct feed *f, struct feed_item *item, bool *more) {
    if (f->ready_slots == 0) indexer_feed_wait(f);
    struct slot *slot = &f->slots[f->next % RING];
    const enum status status = slot->status;
    *more = status == STATUS_OK && !slot->end;
    if (!*more) /* an end or a failure stays in its slot, so that the next call finds it again */
        return status == STATUS_OK ? STATUS_OK : fail(status, "%s", slot->message);
    *item = slot->item;
    slot->item.memory = NULL;
    f->next++;
    f->ready_slots--;
    return STATUS_OK;
}

void feed_release(struct feed *f, struct feed_item *item) {
    memory_free(item->memory);
    f->released += item->charge;
    memset(item, 0, sizeof *item);
    if (f->released < f->config.lookahead_bytes / RELEASED_SHARE) return;
    pthread_mutex_lock(&f->lock); /* long documents: workers need not wait for the last of those that are ready */
    indexer_feed_free(f);
    pthread_mutex_unlock(&f->lock);
}

double feed_seconds(struct feed *f) {
    pthread_mutex_lock(&f->lock);
    double seconds = f->seconds;
    pthread_mutex_unlock(&f->lock);
    return seconds;
}

void feed_close(struct feed *f) {
    if (!f) return;
    pthread_mutex_lock(&f->lock);
    f->closing = true;
    pthread_cond_broadcast(&f->space);
    pthread_mutex_unlock(&f->lock);
    for (int i = 0; i < f->n_threads; i++)
        pthread_join(f->threads[i], NULL);
    for (int i = 0; i < RING; i++)
        memory_free(f->slots[i].item.memory);
    pthread_cond_destroy(&f->ready);
    pthread_cond_destroy(&f->space);
    pthread_mutex_destroy(&f->lock);
    pthread_mutex_destroy(&f->reading);
    memory_free(f->slots);
    memory_free(f);
}
