/* picker.c -- see picker.h. A pick's ticket says which one wrote a result: those that were dropped may write, too. */
#include "decoder/logits/picker.h"
#include "base/clock.h"
#include "base/memory.h"
#include <assert.h>
#include <stdatomic.h>

enum { PICKER_SLOTS = 2, PICKER_SPINS = 1 << 16 };
static const double picker_patience = 10; /* seconds, then the device is asked what went wrong */

struct picker {
    struct device *dev;
    const struct sampler *sampler;
    int64_t last, rows;                 /* ids that the penalty reads; of the list */
    uint32_t *banned;                   /* these three: memory of the device */
    int32_t *seen;                      /* NULL: no penalty */
    int32_t *ids;                       /* [PICKER_SLOTS] */
    struct pick_result *results;        /* [PICKER_SLOTS], pinned */
    struct pick_result *results_device; /* the device's address of results */
    uint64_t tickets, ticket[PICKER_SLOTS];
    bool logprob[PICKER_SLOTS];
    unsigned first, queued; /* the slot of the first queued pick is first % PICKER_SLOTS */
};

/* The ids that the penalty reads. */
static enum status picker_allocate_seen(struct picker *p) {
    const struct pick_rule rule = sampler_rule(p->sampler);
    p->last = rule.repeat_last;
    p->rows = rule.penalty != 1 ? rule.repeat_last + PICKER_SLOTS : 0;
    return p->rows > 0 ? device_allocate(p->dev, &p->seen, (size_t)p->rows) : STATUS_OK;
}

static enum status picker_allocate(struct picker *p, const struct sampler_config *c, int vocab_size) {
    const size_t words = ((size_t)vocab_size + 31) / 32;
    uint32_t *banned = NULL;
    enum status status = STATUS_OK;
    TRY(device_allocate(p->dev, &p->ids, PICKER_SLOTS));
    TRY(device_allocate_host(p->dev, &p->results, PICKER_SLOTS));
    p->results_device = device_reach(p->dev, p->results);
    assert(p->results_device);
    for (int i = 0; i < PICKER_SLOTS; i++)
        p->results[i].ticket = 0;
    TRY(picker_allocate_seen(p));
    if (c->n_banned == 0) return STATUS_OK;
    TRY(device_allocate(p->dev, &p->banned, words));
    TRY(memory_allocate_zero(&banned, words));
    for (int64_t i = 0; i < c->n_banned; i++)
        banned[c->banned[i] / 32] |= 1U << (c->banned[i] % 32);
    device_upload(p->dev, p->banned, banned, words * sizeof *banned);
    memory_free(banned);
    return status;
}

enum status picker_create(struct picker **out, struct device *dev, const struct sampler *sampler,
                          const struct sampler_config *config, int vocab_size) {
    struct picker *p;
    assert(!dev->shares_memory);
    TRY(memory_allocate_zero(&p, 1));
    p->dev = dev, p->sampler = sampler;
    enum status status = picker_allocate(p, config, vocab_size);
    if (status != STATUS_OK) {
        picker_free(p);
        return status;
    }
    *out = p;
    return STATUS_OK;
}

/* A dropped pick may still write a result: its ticket is an old one. */
enum status picker_configure(struct picker *p) {
    picker_drop(p);
    device_release(p->dev, p->seen);
    p->seen = NULL;
    return picker_allocate_seen(p);
}

void picker_free(struct picker *p) {
    if (!p) return;
    device_release(p->dev, p->banned); /* waits for picks that are queued */
    device_release(p->dev, p->seen);
    device_release(p->dev, p->ids);
    device_release_host(p->dev, p->results);
    memory_free(p);
}

void picker_see(struct picker *p, const int32_t *ids, int64_t n) {
    int64_t at = sampler_rule(p->sampler).n_seen;
    picker_drop(p);
    if (!p->seen) return;
    if (n > p->rows) ids += n - p->rows, at += n - p->rows, n = p->rows;
    for (int64_t i = 0, part; i < n; i += part) {
        const int64_t row = (at + i) % p->rows;
        part = n - i < p->rows - row ? n - i : p->rows - row;
        device_upload(p->dev, p->seen + row, ids + i, (size_t)part * sizeof *ids);
    }
}

void picker_queue(struct picker *p, struct pick_row *row, const float *logits, bool logprob, int n_best) {
    const unsigned slot = (p->first + p->queued) % PICKER_SLOTS;
    assert(p->queued < PICKER_SLOTS && (logprob || n_best == 0));
    p->ticket[slot] = ++p->tickets << 32;
    p->logprob[slot] = logprob;
    p->results[slot].id = -1;
    p->results[slot].n_best = 0;
    *row = (struct pick_row){.logits = logits,
                             .rule = sampler_rule(p->sampler),
                             .banned = p->banned,
                             .seen = p->seen,
                             .seen_rows = p->rows,
                             .id = p->ids + slot,
                             .result = p->results_device + slot,
                             .ticket = p->ticket[slot],
                             .logprob = logprob,
                             .n_best = n_best};
    row->rule.n_seen += p->queued;
    row->rule.number += p->queued;
    p->queued++;
}

int picker_queued(const struct picker *p) {
    return (int)p->queued;
}

void picker_drop(struct picker *p) {
    p->queued = 0;
}

const int32_t *picker_id(const struct picker *p) {
    assert(p->queued > 0);
    return p->ids + (p->first + p->queued - 1) % PICKER_SLOTS;
}

/* The id of the pick in the slot; -1: it is not there yet. */
static int32_t picker_arrived(const struct picker *p, unsigned slot) {
    const volatile struct pick_result *r = &p->results[slot];
    const uint64_t ticket = r->ticket;
    if (ticket >> 32 != p->ticket[slot] >> 32) return -1;
    const int32_t id = (int32_t)(uint32_t)ticket;
    if (p->logprob[slot] && r->id != id) return -1;
    atomic_thread_fence(memory_order_acquire);
    return id;
}

enum status picker_wait(struct picker *p, const struct pick_result **out) {
    const unsigned slot = p->first % PICKER_SLOTS;
    const double start = clock_seconds();
    int32_t id;
    assert(p->queued > 0);
    /* Without a pause instruction: after some of them a virtual machine's processor is taken away for a while. */
    for (int64_t spins = 1; (id = picker_arrived(p, slot)) < 0; spins++) {
        if (spins % PICKER_SPINS || clock_seconds() - start < picker_patience) continue;
        TRY(device_sync(p->dev));
        if (picker_arrived(p, slot) < 0) return fail(STATUS_IO, "GPU: pick: no id came");
    }
    p->first++, p->queued--;
    p->results[slot].id = id;
    *out = &p->results[slot];
    return STATUS_OK;
}
