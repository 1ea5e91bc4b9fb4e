/* tokenizer_train_words.c -- counts the distinct words of a corpus.
 *
 * Texts are copied into a batch and divided into slices. When the batch is full, every thread counts slices into its
 * own table, which is small enough for its cache. Then every thread merges its share of the words (by hash) from all
 * these tables. So a rare word is stored once for any number of threads, and no table needs a lock. */
#include "base/memory.h"
#include "data/tokenizer/tokenizer_train_internal.h"
#include "data/tokenizer/utf8.h"
#include <string.h>
#include <xxhash.h>

enum { SLICE_BYTES = 64 << 10, BATCH_BYTES = 8 << 20, SLOTS_FIRST = 1 << 12 };

/* ---- the table --------------------------------------------------------------------------------------------------- */

static uint64_t slot_of(uint64_t hash, size_t number) {
    return (hash & 0xFFFFFFFF00000000u) | (uint64_t)(number + 1);
}

static enum status grow_slots(struct word_table *w) {
    size_t size = w->slots ? 2 * (w->mask + 1) : SLOTS_FIRST;
    uint64_t *slots;
    TRY(memory_allocate_zero(&slots, size));
    memory_free(w->slots);
    w->slots = slots;
    w->mask = size - 1;
    for (size_t k = 0; k < w->count; k++) {
        size_t i = w->items[k].hash & w->mask;
        while (w->slots[i] != 0)
            i = (i + 1) & w->mask;
        w->slots[i] = slot_of(w->items[k].hash, k);
    }
    return STATUS_OK;
}

static enum status word_table_add(struct word_table *w, const char *text, size_t bytes, uint64_t hash, uint64_t count) {
    if (!w->slots || 2 * w->count > w->mask) TRY(grow_slots(w));
    size_t i = hash & w->mask;
    for (; w->slots[i] != 0; i = (i + 1) & w->mask) {
        if ((w->slots[i] ^ hash) >> 32 != 0) continue;
        struct word_count *item = &w->items[(uint32_t)w->slots[i] - 1];
        if (item->hash != hash || item->bytes != bytes || memcmp(w->text.data + item->at, text, bytes) != 0) continue;
        item->count += count;
        return STATUS_OK;
    }
    if (w->count >= UINT32_MAX - 1 || bytes > INT32_MAX)
        return fail(STATUS_UNSUPPORTED, "more than 4 billion different words, or one of more than 2 GiB");
    TRY(memory_grow(&w->items, &w->capacity, w->count + 1));
    size_t at = w->text.size;
    TRY(bytes_append(&w->text, text, bytes));
    w->items[w->count] = (struct word_count){at, hash, count, (uint32_t)bytes};
    w->slots[i] = slot_of(hash, w->count++);
    return STATUS_OK;
}

/* Keeps its memory. */
static void word_table_clear(struct word_table *w) {
    if (w->slots) memset(w->slots, 0, (w->mask + 1) * sizeof *w->slots);
    w->count = w->text.size = 0;
}

void word_table_free(struct word_table *w) {
    memory_free(w->items);
    memory_free(w->slots);
    bytes_free(&w->text);
    *w = (struct word_table){0};
}

/* ---- counting ---------------------------------------------------------------------------------------------------- */

static enum status count_words(struct counter *c, struct word_table *w, const char *text, size_t bytes, uint64_t *n) {
    for (size_t at = 0; at < bytes; ++*n) {
        size_t length = scanner_next(c->scanner, c->classes, text, bytes, at);
        TRY(word_table_add(w, text + at, length, XXH3_64bits(text + at, length), 1));
        at += length;
    }
    return STATUS_OK;
}

/* Counts slices into the thread's own table. A failure sets a flag, because its message belongs to that thread. */
static void count_slices(void *context, int64_t begin, int64_t end, int worker) {
    struct counter *c = context;
    for (int64_t i = begin; i < end && !c->failed[worker]; i++) {
        const char *text = c->batch.data + c->slices[i].at;
        size_t bytes = c->slices[i].bytes;
        struct bytes repaired = {0};
        enum status status = STATUS_OK;
        if (utf8_valid_prefix(text, bytes) != bytes) {
            uint64_t replaced;
            status = utf8_repair(&repaired.data, &repaired.capacity, &repaired.size, &replaced, text, bytes);
            text = repaired.data;
            bytes = repaired.size;
        }
        if (status == STATUS_OK) status = count_words(c, &c->parts[worker], text, bytes, &c->words[worker]);
        bytes_free(&repaired);
        c->failed[worker] = status != STATUS_OK;
    }
}

static enum status take_share(struct counter *c, int64_t share) {
    for (int p = 0; p < c->n_tables; p++) {
        const struct word_table *part = &c->parts[p];
        for (size_t k = 0; k < part->count; k++) {
            const struct word_count *item = &part->items[k];
            if ((int64_t)((item->hash >> 20) % (uint64_t)c->n_tables) != share) continue;
            TRY(word_table_add(&c->shares[share], part->text.data + item->at, item->bytes, item->hash, item->count));
        }
    }
    return STATUS_OK;
}

static void take_shares(void *context, int64_t begin, int64_t end, int worker) {
    struct counter *c = context;
    for (int64_t share = begin; share < end; share++)
        if (take_share(c, share) != STATUS_OK) c->failed[worker] = true;
}

static enum status tokenizer_train_words_check(const struct counter *c) {
    for (int i = 0; i < c->n_tables; i++)
        if (c->failed[i])
            return fail(STATUS_NO_MEMORY, "out of memory while counting words: give less text, or text with fewer "
                                          "different words");
    return STATUS_OK;
}

enum status counter_flush(struct counter *c) {
    threads_for(c->pool, (int64_t)c->n_slices, 1, count_slices, c);
    TRY(tokenizer_train_words_check(c));
    threads_for(c->pool, c->n_tables, 1, take_shares, c);
    TRY(tokenizer_train_words_check(c));
    for (int i = 0; i < c->n_tables; i++)
        word_table_clear(&c->parts[i]);
    c->n_slices = c->batch.size = 0;
    return STATUS_OK;
}

/* Divides a long document before a space that follows a visible ASCII character. Every pattern ends a word there and
 * does not read text before a word, so the words are the same. */
static size_t slice_end(const char *text, size_t bytes) {
    for (size_t at = SLICE_BYTES; at < bytes; at++) {
        const char *space = memchr(text + at, ' ', bytes - at);
        if (!space) break;
        at = (size_t)(space - text);
        if (text[at - 1] > ' ' && text[at - 1] < 0x7F) return at;
    }
    return bytes;
}

enum status counter_add(struct counter *c, const char *text, size_t bytes) {
    while (bytes > 0) {
        size_t end = slice_end(text, bytes);
        if (c->n_slices > 0 && c->batch.size + end > (size_t)BATCH_BYTES * (size_t)c->n_tables) TRY(counter_flush(c));
        TRY(memory_grow(&c->slices, &c->slices_capacity, c->n_slices + 1));
        c->slices[c->n_slices] = (struct slice){c->batch.size, end};
        TRY(bytes_append(&c->batch, text, end));
        c->n_slices++;
        text += end;
        bytes -= end;
    }
    return STATUS_OK;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static enum status find_pattern(const char *name, enum scanner *out) {
    static const struct {
        const char *name;
        enum scanner scanner;
    } patterns[] = {{"gpt2", SCANNER_GPT2}, {"llama3", SCANNER_CL100K}, {"qwen2", SCANNER_QWEN2}};
    for (size_t i = 0; i < ARRAY_LEN(patterns); i++)
        if (!name || strcmp(patterns[i].name, name) == 0) {
            *out = patterns[i].scanner;
            return STATUS_OK;
        }
    return fail(STATUS_INVALID, "unknown pattern \"%s\": one of gpt2, llama3, qwen2", name);
}

enum status counter_create(struct counter *c, const char *pattern, struct threads *pool) {
    c->pool = pool;
    c->n_tables = threads_count(pool);
    TRY(find_pattern(pattern, &c->scanner));
    TRY(scanner_classes(&c->classes));
    size_t n = (size_t)c->n_tables;
    TRY(memory_allocate_zero(&c->parts, n));
    TRY(memory_allocate_zero(&c->shares, n));
    TRY(memory_allocate_zero(&c->words, n));
    return memory_allocate_zero(&c->failed, n);
}

void counter_free(struct counter *c) {
    for (int i = 0; i < c->n_tables; i++) {
        if (c->parts) word_table_free(&c->parts[i]);
        if (c->shares) word_table_free(&c->shares[i]);
    }
    memory_free(c->parts);
    memory_free(c->shares);
    memory_free(c->words);
    memory_free(c->failed);
    memory_free(c->slices);
    memory_free(c->classes);
    bytes_free(&c->batch);
    *c = (struct counter){0};
}
