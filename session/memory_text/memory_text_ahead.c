/* memory_text_ahead.c -- the pass of a text with a token memory that is queued before its id is known.
 *
 * Where the mixture searches, the id is a word of the query. If the device needs nothing else of this process, the
 * decode step alone is queued ahead. While it computes, this process receives the id, plans the search, and queues the
 * scans, the keys of what they find and the mixture after the step. The query of a search by landmarks is made of
 * states on the device, of which the step writes the last. */
#include "decoder/batch/decoder_ahead.h"
#include "session/memory_text/memory_text_internal.h"
#include <assert.h>

bool memory_text_ahead_takes(const struct memory_text *t, const struct decoder_state *state) {
    if (!decoder_ahead_takes(state, true)) return false;
    return !memory_text_searches(t, t->n + 1) ||
           (!t->config.late && memory_source_finds_on_device(t->source, t->query));
}

bool memory_text_ahead_waits(const struct memory_text *t) {
    return t->waiting.then != NULL;
}

/* What follows the decode step that memory_text_ahead queues. */
struct text_ahead {
    struct memory_text *t;
    const struct decoder_state *state;
    const int32_t *id;
    struct text_waiting mix;
};
static void text_queue_ahead(struct memory_text *t, struct next_token_task task, const struct text_waiting *mix) {
    memory_text_queue_mix(t, t->now->log_p, task);
    t->now->mixed = NULL;
    mix->then(mix->context, t->config.engine->device);
}
static void text_mix_ahead(void *context, struct device *dev) {
    const struct text_ahead *a = context;
    struct memory_text *t = a->t;
    (void)dev;
    t->n++;
    if (memory_text_searches(t, t->n)) {
        t->waiting = a->mix;
        return;
    }
    struct next_token_task task = memory_text_task(t, a->state, &a->mix.made, 1);
    task.append.picked = a->id;
    text_queue_ahead(t, task, &a->mix);
}

enum status memory_text_ahead(struct memory_text *t, struct decoder_state *state, float **logits, const int32_t *id,
                              device_ops *then, void *context) {
    const int32_t unknown = -1;
    assert(memory_text_ahead_takes(t, state) && !t->ahead);
    TRY(memory_text_ids(t, &unknown, 1));
    t->now = memory_text_other(t);
    t->ahead = true;
    *logits = t->now->log_p;
    struct text_ahead ahead = {t, state, id, {memory_text_keys(t, true, 1), then, context}};
    const struct decoder_output out = {.logits_device = t->now->logits,
                                       .keys = ahead.mix.made.keys,
                                       .key_layer = ahead.mix.made.key_layer,
                                       .states = ahead.mix.made.states,
                                       .then = text_mix_ahead,
                                       .context = &ahead};
    TRY(decoder_ahead_step(state, &out, id));
    return t->waiting.then ? memory_source_prepare(t->source, t->ids, t->n - 1) : STATUS_OK;
}

/* The search and the mixture that wait for the text's last id. */
static enum status text_search_ahead(struct memory_text *t, const struct decoder_state *state) {
    const struct text_waiting mix = t->waiting;
    const int turn = t->found.on_device ? !t->found.turn : 0;
    struct memory_found found;
    t->waiting.then = NULL;
    memory_text_vector(t);
    TRY(memory_source_find_on_device(t->source, turn, &found, t->ids, t->n, t->query));
    t->found_before = t->found;
    t->found = (struct text_found){
        .searched = t->n, .slots = found.slots, .on_device = found.marks, .chunks = found.chunks, .turn = turn};
    struct next_token_task task = memory_text_task(t, state, &mix.made, 1);
    task.step.ready = NULL; /* the decode step is not the device's last op */
    text_queue_ahead(t, task, &mix);
    return device_fault(t->config.engine->device);
}

enum status memory_text_ahead_known(struct memory_text *t, struct decoder_state *state, int32_t id) {
    assert(t->ahead);
    t->ids[t->n - 1] = id;
    decoder_ahead_known(state, id);
    return t->waiting.then ? text_search_ahead(t, state) : STATUS_OK;
}

void memory_text_ahead_joins(struct memory_text *t) {
    t->ahead = false;
}

void memory_text_ahead_undo(struct memory_text *t, struct decoder_state *state) {
    assert(t->ahead);
    t->waiting.then = NULL;
    if (t->found.searched == t->n) {
        device_fetch_wait(t->config.engine->device); /* the next search writes where this one did */
        t->found = t->found_before;
    }
    t->n--;
    t->ahead = false;
    t->now = memory_text_other(t);
    decoder_ahead_undo(state);
}
