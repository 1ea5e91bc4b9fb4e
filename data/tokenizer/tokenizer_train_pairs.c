/* tokenizer_train_pairs.c -- numbers for pairs of ids, which do not change when the table grows, and the
 * queue of merges. */
#include "base/memory.h"
#include "data/tokenizer/tokenizer_train_internal.h"

enum { SLOTS_FIRST = 1 << 12, WAYS = 4 };

/* ---- the table --------------------------------------------------------------------------------------------------- */

static enum status grow_slots(struct pair_table *p) {
    size_t size = p->slots ? 2 * (p->mask + 1) : SLOTS_FIRST;
    uint32_t *slots;
    TRY(memory_allocate_zero(&slots, size));
    memory_free(p->slots);
    p->slots = slots;
    p->mask = size - 1;
    for (size_t k = 0; k < p->count; k++) {
        size_t i = bpe_slot(p->items[k].key) & p->mask;
        while (p->slots[i] != 0)
            i = (i + 1) & p->mask;
        p->slots[i] = (uint32_t)k + 1;
    }
    return STATUS_OK;
}

enum status pair_table_find(struct pair_table *p, uint64_t key, uint32_t *number) {
    if (!p->slots || 2 * p->count > p->mask) TRY(grow_slots(p));
    size_t i = bpe_slot(key) & p->mask;
    for (; p->slots[i] != 0; i = (i + 1) & p->mask) {
        if (p->items[p->slots[i] - 1].key != key) continue;
        *number = p->slots[i] - 1;
        return STATUS_OK;
    }
    if (p->count >= UINT32_MAX - 1) return fail(STATUS_UNSUPPORTED, "more than 4 billion different pairs");
    TRY(memory_grow(&p->items, &p->capacity, p->count + 1));
    p->items[p->count] = (struct pair){.key = key};
    *number = (uint32_t)p->count++;
    p->slots[i] = *number + 1;
    return STATUS_OK;
}

void pair_table_free(struct pair_table *p) {
    memory_free(p->items);
    memory_free(p->slots);
    *p = (struct pair_table){0};
}

/* ---- the queue: a heap with four children a node, the next merge first ------------------------------------------ */

/* Orders candidates: the most frequent pair first, of equal frequencies the one with the lowest ids. A pair is queued
 * once, so no two candidates are equal, and the order of merges is unique. */
static bool comes_before(const struct candidate *a, const struct candidate *b) {
    if (a->count != b->count) return a->count > b->count;
    return a->key < b->key;
}

enum status queue_push(struct queue *q, const struct candidate *c) {
    TRY(memory_grow(&q->items, &q->capacity, q->count + 1));
    size_t i = q->count++;
    for (; i > 0 && comes_before(c, &q->items[(i - 1) / WAYS]); i = (i - 1) / WAYS)
        q->items[i] = q->items[(i - 1) / WAYS];
    q->items[i] = *c;
    return STATUS_OK;
}

/* Moves `c` down from the free slot at the top. */
static void tokenizer_train_pairs_sink(struct queue *q, struct candidate c) {
    size_t i = 0;
    for (;;) {
        size_t first = WAYS * i + 1, best = first;
        if (first >= q->count) break;
        size_t end = first + WAYS < q->count ? first + WAYS : q->count;
        for (size_t k = first + 1; k < end; k++)
            if (comes_before(&q->items[k], &q->items[best])) best = k;
        if (!comes_before(&q->items[best], &c)) break;
        q->items[i] = q->items[best];
        i = best;
    }
    q->items[i] = c;
}

void queue_pop(struct queue *q) {
    struct candidate last = q->items[--q->count];
    if (q->count > 0) tokenizer_train_pairs_sink(q, last);
}

/* Also correct if the count increases; the candidate then stays first. */
void queue_lower(struct queue *q, uint64_t count) {
    struct candidate c = q->items[0];
    c.count = count;
    tokenizer_train_pairs_sink(q, c);
}

void queue_free(struct queue *q) {
    memory_free(q->items);
    *q = (struct queue){0};
}
