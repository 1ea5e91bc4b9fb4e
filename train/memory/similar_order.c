/* similar_order.c -- groups similar windows of a batch: a greedy pass over the random order of windows. */
#include "base/memory.h"
#include "train/memory/similar_passages_internal.h"
#include <assert.h>
#include <string.h>

/* An epoch's windows, and for one window the number of its chunks' results that lie in each other window. */
struct packing {
    const struct similar *n;
    int64_t length, capacity, windows, start; /* ids of a window; windows that the arrays hold */
    int group;
    int64_t *shuffled;
    int64_t *votes; /* [windows]; only the entries in `touched` are not 0 */
    int64_t *touched, n_touched;
    int64_t *chunk_first; /* [windows + 1]: the first chunk that begins in each window */
    bool *used;           /* [windows] */
};

/* The window in which a chunk of the text begins; -1: none. */
static int64_t packing_window_of(const struct packing *p, int64_t chunk) {
    int64_t at = similar_chunk_start(p->n, &p->n->text, chunk) - p->start;
    return at < 0 || at >= p->windows * p->length ? -1 : at / p->length;
}

static void packing_vote(struct packing *p, int64_t window) {
    const struct similar *n = p->n;
    p->n_touched = 0;
    for (int64_t c = p->chunk_first[window]; c < p->chunk_first[window + 1]; c++)
        for (int i = 0; i < n->each; i++) {
            int32_t found = n->text.found[c * n->each + i];
            if (found < 0 || found >= n->text.chunks) continue; /* a chunk of the pool */
            int64_t other = packing_window_of(p, found);
            if (other < 0 || p->used[other]) continue;
            if (p->votes[other]++ == 0) p->touched[p->n_touched++] = other;
        }
}

/* The unused window with the most votes, the earlier of equals; -1: no window has a vote. */
static int64_t packing_best(const struct packing *p) {
    int64_t best = -1;
    for (int64_t i = 0; i < p->n_touched; i++) {
        int64_t w = p->touched[i];
        if (p->used[w]) continue;
        if (best < 0 || p->votes[w] > p->votes[best] || (p->votes[w] == p->votes[best] && w < best)) best = w;
    }
    return best;
}

static void packing_fill(struct packing *p, int64_t *order, const int64_t *shuffled, int64_t phase) {
    int64_t next = 0, group = p->group;
    for (int64_t at = 0; at < p->windows;) {
        int64_t size = group - (phase + at) % group;
        if (size > p->windows - at) size = p->windows - at;
        while (p->used[shuffled[next]])
            next++;
        int64_t leader = shuffled[next];
        p->used[leader] = true;
        order[at++] = leader;
        packing_vote(p, leader);
        for (int64_t i = 1; i < size; i++) {
            int64_t w = packing_best(p);
            if (w < 0) {
                while (p->used[shuffled[next]])
                    next++;
                w = shuffled[next];
            }
            p->used[w] = true;
            order[at++] = w;
        }
        for (int64_t i = 0; i < p->n_touched; i++)
            p->votes[p->touched[i]] = 0;
    }
}

static void packing_index_chunks(struct packing *p) {
    const struct similar *n = p->n;
    int64_t window = 0;
    for (int64_t c = 0; c < n->text.chunks; c++) {
        int64_t at = similar_chunk_start(n, &n->text, c) - p->start;
        while (window <= p->windows && at >= window * p->length)
            p->chunk_first[window++] = c;
    }
    while (window <= p->windows)
        p->chunk_first[window++] = n->text.chunks;
}

enum status similar_set_group(struct similar *n, int64_t length, int group) {
    struct packing *p;
    assert(!n->packing && group > 1);
    TRY(memory_allocate_zero(&p, 1));
    n->packing = p;
    *p = (struct packing){.n = n, .length = length, .capacity = batches_windows(n->text.batches), .group = group};
    TRY(memory_allocate(&p->shuffled, (size_t)p->capacity));
    TRY(memory_allocate_zero(&p->votes, (size_t)p->capacity));
    TRY(memory_allocate(&p->touched, (size_t)p->capacity));
    TRY(memory_allocate(&p->chunk_first, (size_t)p->capacity + 1));
    return memory_allocate_zero(&p->used, (size_t)p->capacity);
}

void similar_packing_free(struct packing *p) {
    if (!p) return;
    memory_free(p->shuffled);
    memory_free(p->votes);
    memory_free(p->touched);
    memory_free(p->chunk_first);
    memory_free(p->used);
    memory_free(p);
}

void similar_arrange(void *context, int64_t *order, int64_t windows, int64_t start, int64_t phase) {
    struct packing *p = ((struct similar *)context)->packing;
    assert(p && windows <= p->capacity);
    p->windows = windows;
    p->start = start;
    memcpy(p->shuffled, order, (size_t)windows * sizeof *order);
    memset(p->used, 0, (size_t)windows * sizeof *p->used);
    packing_index_chunks(p);
    packing_fill(p, order, p->shuffled, phase);
}
