/* tokenizer_train_merge.c -- computes the merges, one after another.
 *
 * Each distinct word is a record in one array: its length in symbols, its count, its symbols. A merge visits only the
 * words in which its pair occurs (its candidate in the queue has the list). It rewrites them in place, and records how
 * the counts of the adjacent pairs change. Pairs that a merge makes are queued with their words. A count may decrease
 * after its pair was queued. When such a candidate is the first of the queue, it is queued again with its current
 * count.
 *
 * A pair is queued once. Inside a range that becomes one token, the merges do not depend on the text around it, so a
 * spelling is always made by the same merge. Therefore a pair appears when the later of its halves is made, and never
 * again after its own merge, which replaces all its occurrences. */
#include "base/memory.h"
#include "data/tokenizer/tokenizer_train_internal.h"
#include <string.h>

enum { LENGTH, COUNT, SYMBOLS = COUNT + 2 }; /* members of a record, in int32; the count has 64 bits */
enum { AHEAD = 12, STEPS_A_REPORT = 64 };

/* Numbers of the pairs of an adjacent symbol, looked up once per step. */
struct near {
    uint32_t step, pair;
};
enum side { BEFORE_OLD, BEFORE_NEW, AFTER_OLD, AFTER_NEW, SIDES };

struct fresh {
    uint32_t pair, n, last;
    uint64_t at;
};
struct touched {
    uint32_t fresh, record;
};

struct merging {
    struct tokenizer_trainer *t;
    int32_t *records;
    size_t n_records; /* in int32 */
    struct pair_table pairs;
    struct queue queue;
    uint32_t *occurrences;
    size_t n_occurrences, occurrences_capacity; /* lists of records, at candidates' `at` */
    struct near *near[SIDES];
    struct fresh *fresh;
    size_t n_fresh, fresh_capacity;
    struct touched *touched;
    size_t n_touched, touched_capacity;
    uint32_t step;
    int32_t left, right, made; /* the current merge */
};

/* ---- words as records ------------------------------------------------------------------------------------------- */

static int64_t record_count(const int32_t *record) {
    int64_t count;
    memcpy(&count, record + COUNT, sizeof count);
    return count;
}

/* Words of one byte have no pair and are left out. Each share of the words is freed after its records are made. */
static enum status make_records(struct merging *m) {
    struct tokenizer_trainer *t = m->t;
    size_t size = 0;
    for (int i = 0; i < t->counter.n_tables; i++) {
        const struct word_table *w = &t->counter.shares[i];
        size += w->text.size + w->count * SYMBOLS;
        t->report.distinct += (int64_t)w->count;
    }
    if (size > UINT32_MAX) return fail(STATUS_UNSUPPORTED, "more than 16 GiB of different words: give less text");
    TRY(memory_allocate(&m->records, size));
    for (int i = 0; i < t->counter.n_tables; i++) {
        struct word_table *w = &t->counter.shares[i];
        for (size_t k = 0; k < w->count; k++) {
            const struct word_count *item = &w->items[k];
            const uint8_t *text = (const uint8_t *)w->text.data + item->at;
            t->report.words += (int64_t)item->count;
            t->report.tokens += (int64_t)item->count * item->bytes;
            if (item->bytes == 1) continue;
            int32_t *record = m->records + m->n_records;
            record[LENGTH] = (int32_t)item->bytes;
            memcpy(record + COUNT, &item->count, sizeof item->count);
            for (uint32_t b = 0; b < item->bytes; b++)
                record[SYMBOLS + b] = t->vocabulary.byte_id[text[b]];
            m->n_records += SYMBOLS + item->bytes;
        }
        word_table_free(w);
    }
    return STATUS_OK;
}

/* ---- fresh pairs: made in the current step, queued at its end -----------------------------------------------------
 */

static enum status note_occurrence(struct merging *m, uint32_t number, uint32_t record) {
    struct pair *p = &m->pairs.items[number];
    if (p->step != m->step) {
        TRY(memory_grow(&m->fresh, &m->fresh_capacity, m->n_fresh + 1));
        m->fresh[m->n_fresh] = (struct fresh){.pair = number, .last = UINT32_MAX};
        p->step = m->step;
        p->fresh = (uint32_t)m->n_fresh++;
    }
    struct fresh *f = &m->fresh[p->fresh];
    if (f->last == record) return STATUS_OK; /* a word is listed once */
    f->last = record;
    f->n++;
    TRY(memory_grow(&m->touched, &m->touched_capacity, m->n_touched + 1));
    m->touched[m->n_touched++] = (struct touched){p->fresh, record};
    return STATUS_OK;
}

static enum status queue_fresh(struct merging *m) {
    TRY(memory_grow(&m->occurrences, &m->occurrences_capacity, m->n_occurrences + m->n_touched));
    for (size_t i = 0; i < m->n_fresh; i++) {
        struct fresh *f = &m->fresh[i];
        const struct pair *p = &m->pairs.items[f->pair];
        f->at = m->n_occurrences;
        if (p->count <= 0) { /* the pair was made and merged away in the same step */
            f->at = UINT64_MAX;
            continue;
        }
        struct candidate c = {(uint64_t)p->count, p->key, f->at, f->n};
        TRY(queue_push(&m->queue, &c));
        m->n_occurrences += f->n;
    }
    for (size_t i = 0; i < m->n_touched; i++) {
        struct fresh *f = &m->fresh[m->touched[i].fresh];
        if (f->at != UINT64_MAX) m->occurrences[f->at++] = m->touched[i].record;
    }
    m->n_fresh = m->n_touched = 0;
    return STATUS_OK;
}

/* Queues the pairs of bytes of all words, which is the first step. Its list of occurrences is by far the longest. */
static enum status count_first_pairs(struct merging *m) {
    m->step = 1;
    for (size_t at = 0; at < m->n_records;) {
        const int32_t *record = m->records + at, *symbols = record + SYMBOLS;
        int64_t count = record_count(record);
        for (int32_t i = 0; i + 1 < record[LENGTH]; i++) {
            uint32_t number;
            TRY(pair_table_find(&m->pairs, bpe_pair(symbols[i], symbols[i + 1]), &number));
            m->pairs.items[number].count += count;
            TRY(note_occurrence(m, number, (uint32_t)at));
        }
        at += SYMBOLS + (size_t)record[LENGTH];
    }
    TRY(queue_fresh(m));
    memory_free(m->touched);
    m->touched = NULL;
    m->touched_capacity = 0;
    return STATUS_OK;
}

/* ---- a merge ----------------------------------------------------------------------------------------------------- */

/* Finds the pair of the adjacent symbol `id` with the merged symbol (OLD) or with the new one (NEW). */
static enum status find_near(struct merging *m, enum side side, int32_t id, uint32_t *number) {
    struct near *near = &m->near[side][id];
    if (near->step != m->step) {
        uint64_t key = side == BEFORE_OLD   ? bpe_pair(id, m->left)
                       : side == BEFORE_NEW ? bpe_pair(id, m->made)
                       : side == AFTER_OLD  ? bpe_pair(m->right, id)
                                            : bpe_pair(m->made, id);
        TRY(pair_table_find(&m->pairs, key, &near->pair));
        near->step = m->step;
    }
    *number = near->pair;
    return STATUS_OK;
}

/* Replaces the pair on one side of an occurrence by another. */
static enum status change_near(struct merging *m, enum side old, enum side new, int32_t id, int64_t count,
                               uint32_t record) {
    uint32_t number;
    TRY(find_near(m, old, id, &number));
    m->pairs.items[number].count -= count;
    TRY(find_near(m, new, id, &number));
    m->pairs.items[number].count += count;
    return note_occurrence(m, number, record);
}

/* Works from left to right: of three equal symbols the first two are joined, and the symbols to the left are
 * already rewritten. */
static enum status merge_in_word(struct merging *m, uint32_t at) {
    int32_t *record = m->records + at, *symbols = record + SYMBOLS, n = record[LENGTH], from = 0;
    while (from + 1 < n && (symbols[from] != m->left || symbols[from + 1] != m->right))
        from++;
    int32_t to = from;
    int64_t count = record_count(record);
    while (from < n) {
        if (symbols[from] != m->left || from + 1 == n || symbols[from + 1] != m->right) {
            symbols[to++] = symbols[from++];
            continue;
        }
        if (to > 0) TRY(change_near(m, BEFORE_OLD, BEFORE_NEW, symbols[to - 1], count, at));
        if (from + 2 < n) TRY(change_near(m, AFTER_OLD, AFTER_NEW, symbols[from + 2], count, at));
        symbols[to++] = m->made;
        from += 2;
        m->t->report.tokens -= count;
    }
    record[LENGTH] = to;
    return STATUS_OK;
}

static enum status merge_first(struct merging *m) {
    struct tokenizer_trainer *t = m->t;
    struct candidate c = m->queue.items[0];
    queue_pop(&m->queue);
    m->step++;
    m->left = (int32_t)(c.key >> 32);
    m->right = (int32_t)(uint32_t)c.key;
    TRY(vocabulary_join(&t->vocabulary, m->left, m->right, &m->made));
    TRY(memory_grow(&t->merges, &t->merges_capacity, t->n_merges + 1));
    t->merges[t->n_merges++] = (struct trained_merge){m->left, m->right};
    for (uint32_t i = 0; i < c.n; i++) {
        if (i + AHEAD < c.n) __builtin_prefetch(m->records + m->occurrences[c.at + i + AHEAD]);
        TRY(merge_in_word(m, m->occurrences[c.at + i]));
    }
    return queue_fresh(m);
}

static enum status merge_all(struct merging *m, const struct progress *progress) {
    struct tokenizer_trainer *t = m->t;
    while (t->vocabulary.count < t->limit && m->queue.count > 0) {
        const struct candidate *first = &m->queue.items[0];
        uint32_t number;
        TRY(pair_table_find(&m->pairs, first->key, &number));
        uint64_t count = (uint64_t)m->pairs.items[number].count;
        if (count != first->count) {
            queue_lower(&m->queue, count);
            continue;
        }
        if (count < t->min_frequency) break;
        TRY(merge_first(m));
        if (m->step % STEPS_A_REPORT != 0) continue;
        progress_step(progress, "merge", "tokens", (int64_t)t->vocabulary.count, (int64_t)t->limit);
        if (progress_stop_requested(progress)) return fail(STATUS_INTERRUPTED, "stopped; nothing was written");
    }
    progress_step(progress, "merge", "tokens", (int64_t)t->vocabulary.count, (int64_t)t->limit);
    return STATUS_OK;
}

enum status train_merges(struct tokenizer_trainer *t, const struct progress *progress) {
    struct merging m = {.t = t};
    enum status status;
    TRY_GOTO(status, make_records(&m), out);
    for (int i = 0; i < SIDES; i++)
        TRY_GOTO(status, memory_allocate_zero(&m.near[i], t->limit), out);
    TRY_GOTO(status, count_first_pairs(&m), out);
    status = merge_all(&m, progress);
out:
    for (int i = 0; i < SIDES; i++)
        memory_free(m.near[i]);
    pair_table_free(&m.pairs);
    queue_free(&m.queue);
    memory_free(m.records);
    memory_free(m.occurrences);
    memory_free(m.fresh);
    memory_free(m.touched);
    return status;
}
