/* indexer_feed.c -- reads and tokenizes documents ahead of the encoder, and returns them in input order.
 *
 * Worker threads parse and tokenize. One of them at a time also reads: it claims the next slots of a ring and reads a
 * document into each. So decompression and the search for the ends of lines are serial, the rest is parallel, and slots
 * have the order of the input. Each worker has some documents that were read and wait. So if the system stops the one
 * that reads for a while, the others have work. The bytes of waiting documents are limited. One document may exceed the
 * limit, so that a document larger than the lookahead can pass. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/system/threads.h"
#include "indexer/build/indexer.h"
#include "indexer/build/indexer_internal.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* A worker reads, or tokenizes, up to TURN documents of together about TURN_BYTES at a time. */
enum { RING = 8192, TURN = 32, TURN_BYTES = 1 << 17 };
enum { TURNS_AHEAD = 4 }; /* for each worker, that are read and wait for it */
/* The consumer takes up to so many documents that are ready at a time. Their slots are free after the last of them. */
enum { TAKEN = 64, RELEASED_SHARE = 16 };
/* A worker that waited for space continues when so much of the ring and of the lookahead is free. With less, the two
 * threads would wake each other for each document. */
enum { SPACE_SHARE = 4 };

/* Of a document that was read: its strings and its text or ids, in one piece of memory. */
struct raw {
    char *source, *key, *text;
    uint32_t *ids;
    size_t bytes, n_ids;
    bool unparsed;
};

enum slot_state { SLOT_FREE, SLOT_CLAIMED, SLOT_READY };
struct slot {
    enum slot_state state;
    enum status status;
    bool end;
    char *message; /* of a failure; NULL: none, or no memory for it */
    struct raw raw;
    struct feed_item item;
};

struct feed {
    struct feed_config config;
    struct slot *slots;   /* [RING] */
    pthread_mutex_t lock; /* protects all members below, and the states of slots */
    pthread_cond_t work, ready;
    int64_t head, begun, tail; /* next slot to return, to tokenize, to read into */
    uint64_t bytes;            /* bytes of all documents that are not yet released */
    uint64_t waiting_bytes;    /* of text and ids from slot `begun` on */
    bool reading;              /* a worker reads */
    int waiting;               /* workers that wait for work */
    bool wants_space;          /* because there is no space */
    bool finished, closing;    /* finished: the input has ended or failed; closing: feed_close waits */
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

static size_t raw_bytes(const struct raw *raw) {
    return raw->bytes + raw->n_ids * sizeof *raw->ids;
}

static bool has_space(const struct feed *f) {
    return f->tail - f->head <= RING - TURN && f->bytes < f->config.lookahead_bytes;
}

/* Wakes the worker that waits for space, if there is enough. The caller holds the lock. */
static void indexer_feed_space(struct feed *f) {
    if (!f->wants_space || f->tail - f->head > RING - RING / SPACE_SHARE ||
        f->bytes > f->config.lookahead_bytes - f->config.lookahead_bytes / SPACE_SHARE)
        return;
    f->wants_space = false;
    pthread_cond_signal(&f->work);
}

/* Reads the next document into the slot. Of the worker that reads. */
static enum status read_document(struct feed *f, struct slot *slot) {
    struct document d;
    int more = 0;
    TRY(reader_next_unparsed(f->config.reader, &d, &more));
    slot->end = !more;
    if (!more) return STATUS_OK;
    slot->item.after = reader_position(f->config.reader);
    reader_progress(f->config.reader, &slot->item.read_done, &slot->item.read_total);
    return copy_document(&slot->raw, &slot->item, &d);
}

/* Whether this worker is one too many for documents of ids: they need no tokenizing, and more threads would only wait
 * for each other. */
static bool indexer_feed_leaves(struct feed *f, const struct raw *raw) {
    pthread_mutex_lock(&f->lock);
    const bool leave = raw->ids && f->config.id_workers > 0 && f->live > f->config.id_workers;
    f->live -= leave;
    pthread_mutex_unlock(&f->lock);
    return leave;
}

static void keep_message(struct slot *slot) {
    char *message;
    if (memory_copy_string(&message, status_message()) == STATUS_OK) slot->message = message;
}

/* Returns whether more may follow. Of the worker that reads. */
static bool read_slot(struct feed *f, struct slot *slot) {
    memset(&slot->item, 0, sizeof slot->item);
    slot->end = false;
    slot->raw = (struct raw){0};
    slot->status = read_document(f, slot);
    if (slot->status != STATUS_OK) keep_message(slot);
    const struct raw *raw = &slot->raw;
    slot->item.charge = (uint64_t)raw->bytes * (FEED_BYTES_PER_TEXT_BYTE - 2) + raw->n_ids * 2 * sizeof(int32_t);
    return slot->status == STATUS_OK && !slot->end;
}

/* Reads some documents. The caller holds the lock, which is not held meanwhile. */
static void read_turn(struct feed *f) {
    const int64_t tail = f->tail;
    int n = 0;
    uint64_t bytes = 0, charge = 0;
    bool more = true;
    f->reading = true;
    pthread_mutex_unlock(&f->lock);
    while (more && n < TURN && bytes < TURN_BYTES) {
        struct slot *slot = &f->slots[(tail + n++) % RING];
        more = read_slot(f, slot);
        bytes += raw_bytes(&slot->raw);
        charge += slot->item.charge;
    }
    pthread_mutex_lock(&f->lock);
    for (int i = 0; i < n; i++)
        f->slots[(tail + i) % RING].state = SLOT_CLAIMED;
    f->tail += n;
    f->bytes += charge;
    f->waiting_bytes += bytes;
    f->finished = f->finished || !more;
    f->reading = false;
    if (f->finished)
        pthread_cond_broadcast(&f->work);
    else if (f->waiting > 0)
        pthread_cond_signal(&f->work);
}

/* Whether the caller is to read. The caller holds the lock. */
static bool reads_next(const struct feed *f) {
    const uint64_t turns = TURNS_AHEAD * (uint64_t)(f->live > 1 ? f->live : 1);
    return !f->reading && !f->finished && f->waiting_bytes < turns * TURN_BYTES && has_space(f);
}

/* Takes documents that were read, from slot *first on, and reads before that if few wait. Returns their number; 0:
 * there will be none. */
static int indexer_feed_take(struct feed *f, int64_t *first) {
    int n = 0;
    size_t bytes = 0;
    pthread_mutex_lock(&f->lock);
    while (!f->closing) {
        if (reads_next(f)) {
            read_turn(f);
            continue;
        }
        if (f->begun < f->tail || f->finished) break;
        f->wants_space = f->wants_space || !f->reading;
        f->waiting++;
        pthread_cond_wait(&f->work, &f->lock);
        f->waiting--;
    }
    *first = f->begun;
    while (!f->closing && f->begun < f->tail && n < TURN && bytes < TURN_BYTES) {
        bytes += raw_bytes(&f->slots[f->begun++ % RING].raw);
        n++;
    }
    f->waiting_bytes -= bytes;
    pthread_mutex_unlock(&f->lock);
    return n;
}

/* Parses and tokenizes. made: whether there are tools. */
static void finish_slot(struct feed *f, const struct tools *tools, enum status made, struct slot *slot) {
    if (slot->status == STATUS_OK && !slot->end) {
        slot->status = made == STATUS_OK ? finish_document(f, tools, &slot->item, &slot->raw) : made;
        if (slot->status != STATUS_OK) keep_message(slot);
    }
    if (slot->status == STATUS_OK) return;
    memory_free(slot->item.memory);
    slot->item.memory = NULL;
}

static void indexer_feed_settle(struct feed *f, int64_t first, int n, double seconds) {
    pthread_mutex_lock(&f->lock);
    for (int i = 0; i < n; i++) {
        struct slot *slot = &f->slots[(first + i) % RING];
        const bool document = slot->status == STATUS_OK && !slot->end;
        const uint64_t charge = document ? slot->item.document.n_ids * sizeof(int32_t) + 1024 : 0;
        f->bytes += charge - slot->item.charge;
        slot->item.charge = charge;
        slot->state = SLOT_READY;
    }
    f->seconds += seconds;
    if (first == f->head) pthread_cond_broadcast(&f->ready); /* the one that is waited for */
    indexer_feed_space(f);
    pthread_mutex_unlock(&f->lock);
}

static enum status make_tools(struct tools *tools, const struct feed *f) {
    TRY(document_parser_create(&tools->parser, f->config.reader));
    return f->config.tokenizer ? tokenizer_scratch_create(&tools->scratch, f->config.tokenizer) : STATUS_OK;
}

static void *indexer_feed_work(void *context) {
    struct feed *f = context;
    struct tools tools = {0};
    const enum status made = make_tools(&tools, f);
    bool leave = false;
    int64_t first;
    for (int n; !leave && (n = indexer_feed_take(f, &first)) > 0;) {
        const double start = clock_seconds();
        leave = indexer_feed_leaves(f, &f->slots[first % RING].raw);
        for (int i = 0; i < n; i++)
            finish_slot(f, &tools, made, &f->slots[(first + i) % RING]);
        indexer_feed_settle(f, first, n, clock_seconds() - start);
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
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->work, NULL);
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
        return status == STATUS_OK ? STATUS_OK : fail(status, "%s", slot->message ? slot->message : "out of memory");
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
    pthread_cond_broadcast(&f->work);
    pthread_mutex_unlock(&f->lock);
    for (int i = 0; i < f->n_threads; i++)
        pthread_join(f->threads[i], NULL);
    for (int i = 0; i < RING; i++) {
        memory_free(f->slots[i].item.memory);
        memory_free(f->slots[i].message);
    }
    pthread_cond_destroy(&f->ready);
    pthread_cond_destroy(&f->work);
    pthread_mutex_destroy(&f->lock);
    memory_free(f->slots);
    memory_free(f);
}
