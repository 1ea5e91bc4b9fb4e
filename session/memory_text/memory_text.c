/* memory_text.c -- see memory_text.h. Keys of the text's own past are in a ring buffer in device memory. Where they are
 * projected states, the mixture of a single id projects its state, so that the decode step computes the layers. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/minmax.h"
#include "indexer/landmarks/state_landmarks.h"
#include "kernels/ops.h"
#include "session/memory_search.h"
#include "session/memory_text/memory_text_internal.h"
#include <assert.h>
#include <math.h>
#include <string.h>

static int text_mixtures(const struct memory_text *t) {
    return t->config.engine->device->shares_memory ? 1 : TEXT_MIXTURES;
}

static enum status memory_text_source(struct memory_text *t) {
    const struct memory_config *c = t->config.memory;
    const struct memory_source_config config = memory_search_source(t->config.engine, c, t->config.finder);
    TRY(memory_allocate(&t->chunks, (size_t)c->k));
    TRY(memory_allocate(&t->scores, (size_t)c->k));
    return memory_source_create(&t->source, &config);
}

static enum status side_allocate(struct memory_text *t, int side) {
    struct device *dev = t->config.engine->device;
    const struct model_config *model = &t->config.engine->model.config;
    const struct memory_config *c = t->config.memory;
    const float tau = (float)c->mixture[t->config.kind].tau[side];
    int64_t columns =
        side == MEMORY_OWN_PAST ? t->config.past : (int64_t)c->k * (c->before + 1 + c->after) * model->chunk;
    if (!dev->shares_memory && columns > NEXT_TOKEN_COLUMNS_MAX)
        return fail(STATUS_UNSUPPORTED,
                    "a token memory of %lld tokens: a GPU reads at most %d: take a smaller past or K",
                    (long long)columns, (int)NEXT_TOKEN_COLUMNS_MAX);
    t->read[side] = true;
    TRY(device_allocate(dev, &t->tau[side], 1));
    device_upload(dev, t->tau[side], &tau, sizeof tau);
    for (int i = 0; i < text_mixtures(t); i++) {
        struct text_read *r = &t->mixtures[i].side[side];
        r->weights = mat_f32(NULL, 1, columns);
        TRY(device_allocate(dev, &r->weights.data, mat_bytes(r->weights)));
        TRY(device_allocate(dev, &r->p, (size_t)model->vocab_size));
    }
    return STATUS_OK;
}

static enum status mixture_allocate(struct text_mixture *m, struct engine *e) {
    struct device *dev = e->device;
    const size_t vocab = (size_t)e->model.config.vocab_size;
    m->state = mat_dense(NULL, decoder_type(e->decoder), 1, e->model.config.hidden);
    TRY(device_allocate(dev, &m->state.data, mat_bytes(m->state)));
    TRY(device_allocate(dev, &m->logits, vocab));
    TRY(device_allocate(dev, &m->log_p, vocab));
    return device_allocate_host(dev, &m->g, 1 + MEMORY_SIDES);
}

/* For queries that are made of states: a rewind may go back by one pass. */
static enum status states_allocate(struct memory_text *t) {
    struct engine *e = t->config.engine;
    const int64_t pass = engine_pass(e), d = e->model.config.hidden, dim = model_config_landmark_size(&e->model.config);
    const enum dtype type = decoder_type(e->decoder);
    if (!memory_search_reads_states(e, t->config.memory, t->config.finder)) return STATUS_OK;
    t->query = mat_f32(NULL, 1, dim);
    TRY(device_allocate(e->device, &t->query.data, mat_bytes(t->query)));
    if (!t->projection.data) {
        t->states = t->keys;
        return STATUS_OK;
    }
    t->states = mat_dense(NULL, type, pass + MEMORY_STATES, d);
    t->fresh_states = mat_dense(NULL, type, pass, d);
    TRY(device_allocate(e->device, &t->states.data, mat_bytes(t->states)));
    return device_allocate(e->device, &t->fresh_states.data, mat_bytes(t->fresh_states));
}

static enum status memory_text_allocate(struct memory_text *t) {
    struct engine *e = t->config.engine;
    struct device *dev = e->device;
    const int key_layer = t->config.memory->key_layer;
    int64_t cols = model_config_key_size(&e->model.config, key_layer), pass = engine_pass(e);
    t->found.searched = -1;
    t->now = &t->mixtures[0];
    t->ring = max_i64(t->config.past, MEMORY_STATES) + pass;
    t->fresh = mat_dense(NULL, decoder_type(e->decoder), pass, cols);
    t->keys = mat_dense(NULL, decoder_type(e->decoder), t->ring, cols);
    t->projection = decoder_projection(e->decoder, key_layer);
    TRY(device_allocate(dev, &t->fresh.data, mat_bytes(t->fresh)));
    TRY(device_allocate(dev, &t->keys.data, mat_bytes(t->keys)));
    TRY(states_allocate(t));
    TRY(device_allocate(dev, &t->value, (size_t)t->ring));
    TRY(device_allocate(dev, &t->square, (size_t)t->ring));
    TRY(device_allocate(dev, &t->gate, 1));
    TRY(device_allocate(dev, &t->column, 1 + MEMORY_CONTRIBUTORS_MAX));
    TRY(device_allocate(dev, &t->column_weight, MEMORY_CONTRIBUTORS_MAX));
    device_upload(dev, t->gate, &t->config.memory->mixture[t->config.kind].gate, sizeof *t->gate);
    for (int i = 0; i < text_mixtures(t); i++)
        TRY(mixture_allocate(&t->mixtures[i], e));
    for (int side = 0; side < MEMORY_SIDES; side++)
        if (memory_kind_reads(t->config.kind, side)) TRY(side_allocate(t, side));
    return t->read[MEMORY_CORPUS] ? memory_text_source(t) : STATUS_OK;
}

enum status memory_text_create(struct memory_text **out, const struct memory_text_config *config) {
    struct memory_text *t = NULL;
    TRY(memory_allocate_zero(&t, 1));
    t->config = *config;
    enum status s = memory_text_allocate(t);
    if (s != STATUS_OK) {
        memory_text_free(t);
        return s;
    }
    *out = t;
    return STATUS_OK;
}

static void mixture_free(struct text_mixture *m, struct device *dev) {
    void *device_memory[] = {m->state.data,           m->logits,    m->log_p,    m->side[0].weights.data,
                             m->side[1].weights.data, m->side[0].p, m->side[1].p};
    for (size_t i = 0; i < ARRAY_LEN(device_memory); i++)
        device_release(dev, device_memory[i]);
    device_release_host(dev, m->g);
}

/* A pass may still be queued: releases keep memory until the device no longer uses it (device.h). */
void memory_text_free(struct memory_text *t) {
    if (!t) return;
    struct device *dev = t->config.engine->device;
    void *device_memory[] = {t->fresh.data,  t->keys.data,
                             t->value,       t->square,
                             t->gate,        t->column,
                             t->tau[0],      t->column_weight,
                             t->marked.data, t->marked_logits.data,
                             t->tau[1],      t->fresh_states.data,
                             t->query.data};
    if (t->projection.data) device_release(dev, t->states.data);
    memory_source_free(t->source);
    for (size_t i = 0; i < ARRAY_LEN(device_memory); i++)
        device_release(dev, device_memory[i]);
    for (int i = 0; i < TEXT_MIXTURES; i++)
        mixture_free(&t->mixtures[i], dev);
    memory_free(t->ids);
    memory_free(t->chunks);
    memory_free(t->scores);
    memory_free(t->marked_chunks);
    memory_free(t);
}

/* ---- the text's own past ---- */

/* The number of rows of a ring buffer from `row` on that are adjacent, at most n. */
static int64_t ring_run(struct mat ring, int64_t row, int64_t n) {
    return min_i64(n, ring.rows - row);
}

/* Adds rows of the last ids to a ring buffer, unless they are there. */
static void ring_add(struct memory_text *t, struct mat ring, struct mat rows) {
    const int64_t first = t->n - rows.rows;
    for (int64_t i = 0, part; i < rows.rows; i += part) {
        const int64_t at = (first + i) % ring.rows;
        part = ring_run(ring, at, rows.rows - i);
        const struct mat to = mat_rows(ring, at, part), from = mat_rows(rows, i, part);
        if (to.data != from.data) device_copy_rows(t->config.engine->device, to, from);
    }
}

/* Adds the last n ids to the ring buffer: their keys, and for each position before the last the id
 * that follows it. */
static void memory_text_remember(struct memory_text *t, struct mat keys, int64_t n) {
    struct device *dev = t->config.engine->device;
    int64_t first = t->n - n;
    ring_add(t, t->keys, mat_rows(keys, 0, n));
    for (int64_t i = 0, part; i < n; i += part) {
        const int64_t at = (first + i) % t->ring;
        part = ring_run(t->keys, at, n - i);
        dev->ops->token_memory->squares(dev, t->square + at, mat_rows(t->keys, at, part));
    }
    for (int64_t p = first > 0 ? first - 1 : 0, part; p < t->n - 1; p += part) {
        const int64_t at = p % t->ring;
        part = ring_run(t->keys, at, t->n - 1 - p);
        device_upload(dev, t->value + at, t->ids + p + 1, (size_t)part * sizeof *t->value);
    }
}

/* Describes the same step for one id as a part of the next mixture. Its key is already in the ring buffer, or becomes
 * the projection of its state. */
static struct next_token_append memory_text_append(const struct memory_text *t) {
    const int64_t newest = t->n - 1;
    return (struct next_token_append){.square = t->square + newest % t->ring,
                                      .value = newest > 0 ? t->value + (newest - 1) % t->ring : NULL,
                                      .id = t->ids[newest],
                                      .key = t->projection.data ? mat_rows(t->keys, newest % t->ring, 1).data : NULL};
}

/* ---- searching ---- */

/* The corpus side reads the chunks of the last search. */
static enum status text_load(struct memory_text *t) {
    static const int64_t row_begin[2] = {0, 1};
    t->found.on_device = NULL, t->found.chunks = t->chunks;
    return memory_source_load(t->source, &t->found.slots, t->chunks, row_begin, 1);
}

bool memory_text_searches(const struct memory_text *t, int64_t n) {
    const int64_t searched = t->found.searched;
    return t->read[MEMORY_CORPUS] && (searched < 0 || n - searched >= t->config.memory->every);
}

void memory_text_vector(struct memory_text *t) {
    const struct memory_finder *f = &t->config.finder;
    const int64_t states = min_i64(t->n, MEMORY_STATES);
    const struct state_text text = {t->states, t->n - states, states, t->ids, t->n};
    if (t->query.data) f->from_states(f->context, t->query.data, &text);
}

/* Makes the search that is due, or takes the one that is queued. The corpus side then reads the chunks that were
 * found. */
static enum status text_search(struct memory_text *t, bool *searched) {
    const bool queued = t->queued;
    t->queued = false;
    *searched = memory_text_searches(t, t->n);
    if (!*searched) return STATUS_OK;
    if (queued) {
        TRY(memory_source_collect(t->source, t->chunks, t->scores));
    } else {
        memory_text_vector(t);
        TRY(memory_source_find(t->source, t->chunks, t->scores, t->ids, &t->n, t->query, 1, (struct memory_scope){0}));
    }
    t->found.marks = memory_source_marks(t->source, t->chunks, t->scores, memory_source_query(t->source, t->n));
    TRY(text_load(t));
    t->found.searched = t->n;
    return STATUS_OK;
}

enum status memory_text_prepare(struct memory_text *t) {
    return !t->config.late && memory_text_searches(t, t->n + 1) ? memory_source_prepare(t->source, t->ids, t->n)
                                                                : STATUS_OK;
}

/* ---- the mixture ---- */

/* What the mixture after t->n ids reads of a memory. */
static struct next_token_side text_side_of(struct memory_text *t, int side) {
    struct text_read *r = &t->now->side[side];
    if (!t->read[side]) return (struct next_token_side){0};
    r->memory = (struct token_memory){.tau = t->tau[side]};
    struct next_token_side out = {.marks = t->found.marks, .weights = r->weights, .p = r->p};
    if (side == MEMORY_OWN_PAST) {
        r->memory.past = (struct memory_past){.keys = t->keys,
                                              .value = t->value,
                                              .square = t->square,
                                              .length = 1,
                                              .first = t->n - 1,
                                              .ring = t->ring,
                                              .limit = (int)t->config.past};
        out.marks = (struct memory_marks){.entries = (float)min_i64(t->n - 1, t->config.past)};
    } else {
        r->memory.slots = t->found.slots;
        out.found = t->found.on_device;
    }
    out.memory = r->memory;
    return out;
}

void memory_text_queue_mix(struct memory_text *t, float *out_device, struct next_token_task task) {
    struct device *dev = t->config.engine->device;
    task.gate = t->gate, task.logits = t->now->logits, task.vocab = t->config.engine->model.config.vocab_size;
    if (t->config.serial) task.step.ready = NULL;
    for (int side = 0; side < MEMORY_SIDES; side++)
        task.side[side] = text_side_of(t, side);
    dev->ops->next_token->mix(dev, out_device, device_reach(dev, t->now->g), &task);
}

/* Writes log p of the next id into `logits`; NULL: into log_p, without a wait. */
static enum status memory_text_mix(struct memory_text *t, float *logits, struct next_token_task task) {
    struct device *dev = t->config.engine->device;
    const int64_t vocab = t->config.engine->model.config.vocab_size;
    float *direct = logits ? device_reach(dev, logits) : NULL, *out_device = direct ? direct : t->now->log_p;
    bool searched;
    TRY(text_search(t, &searched));
    if (searched) task.step.ready = NULL; /* the decode step is not the device's last op */
    memory_text_queue_mix(t, out_device, task);
    t->now->mixed = logits;
    if (logits) {
        device_fetch(dev, logits, out_device, (size_t)vocab * sizeof *logits);
        TRY(memory_text_prepare(t));
        device_fetch_wait(dev);
    }
    return device_fault(dev);
}

struct decoder_batch_keys memory_text_keys(const struct memory_text *t, bool mix, int64_t n) {
    const bool raw = n == 1 && mix && t->projection.data;
    const struct mat state = t->states.data ? mat_rows(t->states, t->n % t->states.rows, 1) : t->now->state;
    return (struct decoder_batch_keys){.keys = raw      ? state
                                               : n == 1 ? mat_rows(t->keys, t->n % t->ring, 1)
                                                        : mat_rows(t->fresh, 0, n),
                                       .key_layer = t->config.memory->key_layer,
                                       .states = raw};
}

enum status memory_text_ids(struct memory_text *t, const int32_t *ids, int64_t n) {
    TRY(memory_grow(&t->ids, &t->ids_capacity, (size_t)(t->n + n)));
    for (int64_t i = 0; i < n; i++)
        t->ids[t->n + i] = ids[i];
    return STATUS_OK;
}

struct next_token_task memory_text_task(struct memory_text *t, const struct decoder_state *state,
                                        const struct decoder_batch_keys *made, int64_t n) {
    const bool own_past = t->read[MEMORY_OWN_PAST], one = n == 1;
    t->now->last = mat_rows(made->keys, n - 1, 1), t->now->last_is_key = !made->states;
    struct next_token_task task = {.state = t->now->last, .step = decoder_state_step(state)};
    if (made->states) task.projection = t->projection;
    if (own_past && one) task.append = memory_text_append(t);
    if (own_past && !one) task.step.ready = NULL; /* keys were squared after the decode step: it is not the last op */
    return task;
}

/* What follows the pass that fed n ids. */
static enum status memory_text_fed(struct memory_text *t, struct decoder_state *state,
                                   const struct decoder_batch_keys *made, bool mix, float *logits, int64_t n) {
    t->n += n;
    t->ahead = false;
    if (t->fresh_states.data && !made->states) ring_add(t, t->states, mat_rows(t->fresh_states, 0, n));
    if (t->read[MEMORY_OWN_PAST]) {
        if (!(n == 1 && mix)) memory_text_remember(t, made->keys, n);
    } else if (t->states.data && !t->fresh_states.data) {
        ring_add(t, t->keys, mat_rows(made->keys, 0, n)); /* which are the states */
    }
    if (!mix) return STATUS_OK;
    const double start = clock_seconds();
    enum status s = memory_text_mix(t, logits, memory_text_task(t, state, made, n));
    t->seconds += clock_seconds() - start;
    return s;
}

/* mix: whether a mixture is wanted; logits as in memory_text_mix. */
static enum status memory_text_pass(struct memory_text *t, struct decoder_state *state, bool mix, float *logits,
                                    const int32_t *ids, int64_t n) {
    const struct decoder_batch_keys made = memory_text_keys(t, mix, n);
    struct decoder_output out = {.logits_device = mix ? t->now->logits : NULL,
                                 .keys = made.keys,
                                 .key_layer = made.key_layer,
                                 .states = made.states};
    if (t->fresh_states.data && !made.states) out.key_states = mat_rows(t->fresh_states, 0, n);
    assert(n <= t->fresh.rows);
    TRY(memory_text_ids(t, ids, n));
    const double start = clock_seconds();
    t->queued = false; /* the search that the mixture needs, before the pass */
    if (mix && !t->config.late && memory_text_searches(t, t->n + n))
        TRY(memory_source_queue(t->source, &t->queued, t->ids, t->n + n));
    t->seconds += clock_seconds() - start;
    TRY(decoder_forward(state, &out, ids, n));
    return memory_text_fed(t, state, &made, mix, logits, n);
}

enum status memory_text_begin(struct memory_text *t, struct decoder_batch_keys *keys, float **logits, int32_t id) {
    *keys = memory_text_keys(t, true, 1);
    *logits = t->now->logits;
    return memory_text_ids(t, &id, 1);
}

enum status memory_text_end(struct memory_text *t, struct decoder_state *state, float *logits) {
    const struct decoder_batch_keys made = memory_text_keys(t, true, 1);
    return memory_text_fed(t, state, &made, true, logits, 1);
}

enum status memory_text_feed(struct memory_text *t, struct decoder_state *state, float *logits, const int32_t *ids,
                             int64_t n) {
    return memory_text_pass(t, state, logits != NULL, logits, ids, n);
}

enum status memory_text_feed_on_device(struct memory_text *t, struct decoder_state *state, float **logits,
                                       const int32_t *ids, int64_t n) {
    *logits = t->now->log_p;
    return memory_text_pass(t, state, true, NULL, ids, n);
}

enum status memory_text_search_again(struct memory_text *t, float **logits) {
    struct next_token_task task = {.state = t->now->last};
    if (!t->read[MEMORY_CORPUS] || t->found.searched == t->n) return STATUS_OK;
    if (!t->now->last_is_key) task.projection = t->projection;
    const double start = clock_seconds();
    t->found.searched = -1;
    enum status s = memory_text_mix(t, *logits, task);
    if (!*logits) *logits = t->now->log_p;
    t->seconds += clock_seconds() - start;
    return s;
}

enum status memory_text_mark(struct memory_text *t) {
    struct device *dev = t->config.engine->device;
    const int64_t vocab = t->config.engine->model.config.vocab_size;
    if (!t->marked.data) {
        t->marked = mat_dense(NULL, t->now->last.type, 1, max_i64(t->fresh.cols, t->now->state.cols));
        TRY(device_allocate(dev, &t->marked.data, mat_bytes(t->marked)));
    }
    if (!t->marked_logits.data) {
        t->marked_logits = mat_f32(NULL, 1, vocab);
        TRY(device_allocate(dev, &t->marked_logits.data, mat_bytes(t->marked_logits)));
    }
    device_copy_rows(dev, mat_cols(t->marked, 0, t->now->last.cols), t->now->last);
    device_fetch_wait(dev); /* found chunks */
    device_copy_rows(dev, t->marked_logits, mat_f32(t->now->logits, 1, vocab));
    t->marked_n = t->n, t->marked_is_key = t->now->last_is_key;
    if (!t->read[MEMORY_CORPUS]) return STATUS_OK;
    const size_t k = (size_t)t->config.memory->k;
    if (!t->marked_chunks) TRY(memory_allocate(&t->marked_chunks, k));
    memcpy(t->marked_chunks, t->found.chunks, k * sizeof *t->chunks);
    t->marked_searched = t->found.searched, t->marked_marks = t->found.marks;
    return STATUS_OK;
}

/* The corpus side reads the chunks of the marked search, whose passages may have left the pool. */
static enum status memory_text_rewind_search(struct memory_text *t) {
    if (!t->read[MEMORY_CORPUS]) return STATUS_OK;
    assert(t->marked_searched >= 0);
    memcpy(t->chunks, t->marked_chunks, (size_t)t->config.memory->k * sizeof *t->chunks);
    t->found.searched = t->marked_searched, t->found.marks = t->marked_marks;
    return text_load(t);
}

enum status memory_text_rewind(struct memory_text *t, float *logits) {
    struct device *dev = t->config.engine->device;
    const int64_t cols = t->marked_is_key ? t->fresh.cols : t->now->state.cols;
    assert(t->marked.data && t->n - t->marked_n <= t->ring - t->config.past);
    t->n = t->marked_n, t->now->last_is_key = t->marked_is_key;
    t->now->last = t->marked_is_key ? mat_rows(t->fresh, 0, 1) : t->now->state;
    device_copy_rows(dev, t->now->last, mat_cols(t->marked, 0, cols));
    device_copy_rows(dev, mat_f32(t->now->logits, 1, t->config.engine->model.config.vocab_size), t->marked_logits);
    struct next_token_task task = {.state = t->now->last};
    if (!t->now->last_is_key) task.projection = t->projection;
    const double start = clock_seconds();
    TRY(memory_text_rewind_search(t));
    const enum status s = memory_text_mix(t, logits, task);
    t->seconds += clock_seconds() - start;
    return s;
}

struct memory_text_times memory_text_times(const struct memory_text *t) {
    const struct memory_source_stats s = t->source ? memory_source_stats(t->source) : (struct memory_source_stats){0};
    return (struct memory_text_times){.find = s.find_seconds,
                                      .encode = s.encode_seconds,
                                      .mix = t->seconds - s.find_seconds - s.encode_seconds,
                                      .queries = s.found,
                                      .encoded = s.encoded,
                                      .copied = s.copied};
}

/* ---- what the memories gave ---- */

/* The mixture that the text's last id was picked from, or will be. */
static const struct text_mixture *text_shown(const struct memory_text *t) {
    return t->ahead ? memory_text_other(t) : t->now;
}

/* What its corpus side read. */
static const struct text_found *text_shown_found(const struct memory_text *t) {
    return t->ahead && t->found.searched == t->n ? &t->found_before : &t->found;
}

/* Returns the id's probability in one memory. */
static float side_p(const struct memory_text *t, int side, int32_t id) {
    float p = 0;
    if (t->read[side]) device_download(t->config.engine->device, &p, text_shown(t)->side[side].p + id, sizeof p);
    return p;
}

/* Returns the part of the id's probability that one memory gave. */
static double side_share(const struct memory_text *t, int side, int32_t id, float p) {
    const struct text_mixture *m = text_shown(t);
    if (!(p > 0)) return 0;
    float mixed = m->mixed ? m->mixed[id] : 0;
    if (!m->mixed) device_download(t->config.engine->device, &mixed, m->log_p + id, sizeof mixed);
    return m->g[1 + side] > 0 ? exp(log((double)p) + log(m->g[1 + side]) - (double)mixed) : 0;
}

double memory_text_share(const struct memory_text *t, int32_t id) {
    double share = 0;
    for (int side = 0; side < MEMORY_SIDES; side++)
        share += side_share(t, side, id, side_p(t, side, id));
    return share;
}

/* ---- which entries gave it ---- */

/* Finds the origin of a column. token_memory.h gives the order of columns: ids of the passages, or of the text's own
 * past with the newest first. */
static enum status side_origin(struct memory_text *t, int side, struct memory_contributor *out, int64_t column) {
    const struct text_found *found = text_shown_found(t);
    struct memory_origin origin;
    if (side == MEMORY_OWN_PAST) {
        *out = (struct memory_contributor){
            .own_past = true, .chunk = -1, .document = -1, .offset = t->n - t->ahead - 1 - column};
        return STATUS_OK;
    }
    const int64_t rows = found->slots.slot_rows;
    TRY(memory_source_origin(t->source, &origin, found->chunks[column / rows], column % rows));
    *out =
        (struct memory_contributor){.chunk = origin.chunk, .document = origin.document, .offset = origin.token_offset};
    return STATUS_OK;
}

/* Finds the at most n entries of one memory that gave the largest parts of an id's probability, the largest first. */
static enum status side_contributors(struct memory_text *t, int side, struct memory_contributor *out, int *count, int n,
                                     int32_t id) {
    struct device *dev = t->config.engine->device;
    const struct text_read *r = &text_shown(t)->side[side];
    int32_t column[MEMORY_CONTRIBUTORS_MAX];
    float weight[MEMORY_CONTRIBUTORS_MAX];
    const float p = side_p(t, side, id);
    const double share = side_share(t, side, id, p);
    *count = 0;
    if (share <= 0) return STATUS_OK;
    device_upload(dev, t->column, &id, sizeof id);
    dev->ops->token_memory->contributors(dev, t->column + 1, t->column_weight, r->weights, &r->memory, t->column, n, 0);
    device_download(dev, column, t->column + 1, (size_t)n * sizeof *column);
    device_download(dev, weight, t->column_weight, (size_t)n * sizeof *weight);
    device_fetch_wait(dev); /* found chunks */
    TRY(device_sync(dev));
    while (*count < n && column[*count] >= 0 && weight[*count] > 0) {
        TRY(side_origin(t, side, &out[*count], column[*count]));
        out[*count].share = share * (double)weight[*count] / (double)p;
        ++*count;
    }
    return STATUS_OK;
}

enum status memory_text_contributors(struct memory_text *t, struct memory_contributor *out, int *count, int n,
                                     int32_t id) {
    struct memory_contributor of[MEMORY_SIDES][MEMORY_CONTRIBUTORS_MAX];
    int found[MEMORY_SIDES], taken[MEMORY_SIDES] = {0};
    assert(n >= 1 && n <= MEMORY_CONTRIBUTORS_MAX);
    for (int side = 0; side < MEMORY_SIDES; side++)
        TRY(side_contributors(t, side, of[side], &found[side], n, id));
    for (*count = 0; *count < n; ++*count) {
        int best = -1;
        for (int side = 0; side < MEMORY_SIDES; side++)
            if (taken[side] < found[side] && (best < 0 || of[side][taken[side]].share > of[best][taken[best]].share))
                best = side;
        if (best < 0) break;
        out[*count] = of[best][taken[best]++];
    }
    return STATUS_OK;
}
