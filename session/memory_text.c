/* memory_text.c -- see memory_text.h. Keys of the text's own past are in a ring buffer in device memory. Where they are
 * projected states, the mixture of a single id projects its state, so that the decode step computes the layers. */
#include "session/memory_text.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/minmax.h"
#include "kernels/ops.h"
#include "session/memory_search.h"
#include <assert.h>
#include <math.h>
#include <string.h>

/* One of the memories that are read. Pointers and matrices are device memory. */
struct text_side {
    bool read;
    struct mat weights;         /* [1, columns] */
    float *p, *tau;             /* [vocab_size]; [1] */
    struct token_memory memory; /* of the last mixture */
};

struct memory_text {
    struct memory_text_config config;
    struct memory_source *source; /* NULL: only the text's own past */
    int64_t n, ring;              /* n: ids so far; ring: positions of the ring buffer */
    int32_t *ids;
    size_t ids_capacity;
    struct mat projection;  /* [m, d]; data NULL: the state is the key, m is d */
    struct mat state;       /* [1, d], with a projection */
    struct mat fresh, keys; /* fresh: [pass, m] of the current call; keys: [ring, m] */
    int32_t *value;         /* [ring] */
    float *square;
    struct text_side side[MEMORY_SIDES];
    int64_t searched; /* number of ids at the last search; -1: there was none */
    int64_t *chunks;
    float *scores; /* of the found chunks */
    struct memory_marks marks;
    struct memory_gate *gate; /* these three are in device memory */
    /* [vocab_size]: the model's logits; the mixture, if the device cannot write it to the caller's memory */
    float *logits, *log_p;
    double *g;          /* [1 + MEMORY_SIDES], allocated with device_allocate_host */
    const float *mixed; /* the caller's array with log p of the last mixture; NULL: it is in log_p */
    double seconds;     /* from the end of the forward pass to the mixture */
    int32_t *column; /* [1 + MEMORY_CONTRIBUTORS_MAX]: an id, then the columns that were found for it; device memory */
    float *column_weight;
    struct mat last; /* [1]: the state of the last mixture, or its key if `last_is_key` */
    bool last_is_key;
    struct mat marked,
        marked_logits; /* [1] copies of `last` and `logits` of memory_text_mark; data NULL: none so far */
    int64_t marked_n, marked_searched;
    int64_t *marked_chunks; /* what the search at marked_searched found */
    struct memory_marks marked_marks;
    bool marked_is_key;
};

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
    struct text_side *s = &t->side[side];
    const float tau = (float)c->mixture[t->config.kind].tau[side];
    int64_t columns =
        side == MEMORY_OWN_PAST ? t->config.past : (int64_t)c->k * (c->before + 1 + c->after) * model->chunk;
    if (!dev->shares_memory && columns > NEXT_TOKEN_COLUMNS_MAX)
        return fail(STATUS_UNSUPPORTED,
                    "a token memory of %lld tokens: a GPU reads at most %d: take a smaller past or K",
                    (long long)columns, (int)NEXT_TOKEN_COLUMNS_MAX);
    s->read = true;
    s->weights = mat_f32(NULL, 1, columns);
    TRY(device_allocate(dev, &s->weights.data, mat_bytes(s->weights)));
    TRY(device_allocate(dev, &s->p, (size_t)model->vocab_size));
    TRY(device_allocate(dev, &s->tau, 1));
    device_upload(dev, s->tau, &tau, sizeof tau);
    s->memory.tau = s->tau;
    return STATUS_OK;
}

static enum status memory_text_allocate(struct memory_text *t) {
    struct engine *e = t->config.engine;
    struct device *dev = e->device;
    const int key_layer = t->config.memory->key_layer;
    int64_t cols = model_config_key_size(&e->model.config, key_layer), pass = engine_pass(e);
    size_t vocab = (size_t)e->model.config.vocab_size;
    t->searched = -1;
    t->ring = t->config.past + pass;
    t->fresh = mat_dense(NULL, decoder_type(e->decoder), pass, cols);
    t->keys = mat_dense(NULL, decoder_type(e->decoder), t->ring, cols);
    t->projection = decoder_projection(e->decoder, key_layer);
    t->state = mat_dense(NULL, decoder_type(e->decoder), 1, e->model.config.hidden);
    TRY(device_allocate(dev, &t->state.data, mat_bytes(t->state)));
    TRY(device_allocate(dev, &t->fresh.data, mat_bytes(t->fresh)));
    TRY(device_allocate(dev, &t->keys.data, mat_bytes(t->keys)));
    TRY(device_allocate(dev, &t->value, (size_t)t->ring));
    TRY(device_allocate(dev, &t->square, (size_t)t->ring));
    TRY(device_allocate(dev, &t->gate, 1));
    TRY(device_allocate(dev, &t->logits, vocab));
    TRY(device_allocate(dev, &t->log_p, vocab));
    TRY(device_allocate_host(dev, &t->g, 1 + MEMORY_SIDES));
    TRY(device_allocate(dev, &t->column, 1 + MEMORY_CONTRIBUTORS_MAX));
    TRY(device_allocate(dev, &t->column_weight, MEMORY_CONTRIBUTORS_MAX));
    device_upload(dev, t->gate, &t->config.memory->mixture[t->config.kind].gate, sizeof *t->gate);
    for (int side = 0; side < MEMORY_SIDES; side++)
        if (memory_kind_reads(t->config.kind, side)) TRY(side_allocate(t, side));
    return t->side[MEMORY_CORPUS].read ? memory_text_source(t) : STATUS_OK;
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

void memory_text_free(struct memory_text *t) {
    if (!t) return;
    struct device *dev = t->config.engine->device;
    void *device_memory[] = {t->state.data, t->fresh.data,    t->keys.data,   t->value,
                             t->square,     t->gate,          t->logits,      t->log_p,
                             t->column,     t->column_weight, t->marked.data, t->marked_logits.data};
    memory_source_free(t->source);
    for (size_t i = 0; i < ARRAY_LEN(device_memory); i++)
        device_release(dev, device_memory[i]);
    for (int side = 0; side < MEMORY_SIDES; side++) {
        struct text_side *s = &t->side[side];
        void *of_side[] = {s->weights.data, s->p, s->tau};
        for (size_t i = 0; i < ARRAY_LEN(of_side); i++)
            device_release(dev, of_side[i]);
    }
    device_release_host(dev, t->g);
    memory_free(t->ids);
    memory_free(t->chunks);
    memory_free(t->scores);
    memory_free(t->marked_chunks);
    memory_free(t);
}

/* ---- the text's own past ---- */

/* Adds the last n ids to the ring buffer: their keys, and for each position before the last the id
 * that follows it. */
static void memory_text_remember(struct memory_text *t, struct mat keys, int64_t n) {
    struct device *dev = t->config.engine->device;
    int64_t first = t->n - n;
    for (int64_t i = 0, part; i < n; i += part) {
        int64_t at = (first + i) % t->ring;
        part = n - i < t->ring - at ? n - i : t->ring - at;
        struct mat to = mat_rows(t->keys, at, part), from = mat_rows(keys, i, part);
        if (to.data != from.data) device_copy_rows(dev, to, from);
        dev->ops->token_memory->squares(dev, t->square + at, to);
    }
    for (int64_t p = first > 0 ? first - 1 : 0, part; p < t->n - 1; p += part) {
        int64_t at = p % t->ring;
        part = t->n - 1 - p < t->ring - at ? t->n - 1 - p : t->ring - at;
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

/* ---- the mixture ---- */

/* The corpus side reads the chunks of the last search. */
static enum status text_load(struct memory_text *t) {
    static const int64_t row_begin[2] = {0, 1};
    return memory_source_load(t->source, &t->side[MEMORY_CORPUS].memory.slots, t->chunks, row_begin, 1);
}

/* Searches if a search is due. The corpus side then reads the chunks that were found. */
static enum status text_search(struct memory_text *t, bool *searched) {
    *searched = t->searched < 0 || t->n - t->searched >= t->config.memory->every;
    if (!*searched) return STATUS_OK;
    TRY(memory_source_find(t->source, t->chunks, t->scores, t->ids, &t->n, 1, (struct memory_scope){0}));
    t->marks = memory_source_marks(t->source, t->chunks, t->scores, memory_source_query(t->source, t->n));
    TRY(text_load(t));
    t->searched = t->n;
    return STATUS_OK;
}

static struct next_token_side text_side_of(struct memory_text *t, int side) {
    struct text_side *s = &t->side[side];
    if (!s->read) return (struct next_token_side){0};
    if (side == MEMORY_OWN_PAST)
        s->memory.past = (struct memory_past){.keys = t->keys,
                                              .value = t->value,
                                              .square = t->square,
                                              .length = 1,
                                              .first = t->n - 1,
                                              .ring = t->ring,
                                              .limit = (int)t->config.past};
    const float past = (float)min_i64(t->n - 1, t->config.past);
    return (struct next_token_side){.memory = s->memory,
                                    .marks =
                                        side == MEMORY_OWN_PAST ? (struct memory_marks){.entries = past} : t->marks,
                                    .weights = s->weights,
                                    .p = s->p};
}

/* Writes log p of the next id into `logits`; NULL: into log_p, without a wait. task: the state, what is appended and
 * the decode step. */
static enum status memory_text_mix(struct memory_text *t, float *logits, struct next_token_task task) {
    struct device *dev = t->config.engine->device;
    const int64_t vocab = t->config.engine->model.config.vocab_size;
    float *direct = logits ? device_reach(dev, logits) : NULL, *out_device = direct ? direct : t->log_p;
    task.gate = t->gate, task.logits = t->logits, task.vocab = vocab;
    bool searched = false;
    if (t->side[MEMORY_CORPUS].read) TRY(text_search(t, &searched));
    if (searched || t->config.serial) task.step.ready = NULL; /* the decode step is not the device's last op */
    for (int side = 0; side < MEMORY_SIDES; side++)
        task.side[side] = text_side_of(t, side);
    dev->ops->next_token->mix(dev, out_device, device_reach(dev, t->g), &task);
    t->mixed = logits;
    if (logits) {
        device_fetch(dev, logits, out_device, (size_t)vocab * sizeof *logits);
        device_fetch_wait(dev);
    }
    return device_fault(dev);
}

/* Where the pass of n ids writes their key states. The key of a single id is written into the ring buffer at once, or
 * the mixture projects its state. */
static struct decoder_batch_keys memory_text_keys(const struct memory_text *t, bool mix, int64_t n) {
    const bool raw = n == 1 && mix && t->projection.data;
    return (struct decoder_batch_keys){.keys = raw      ? t->state
                                               : n == 1 ? mat_rows(t->keys, t->n % t->ring, 1)
                                                        : mat_rows(t->fresh, 0, n),
                                       .key_layer = t->config.memory->key_layer,
                                       .states = raw};
}

static enum status memory_text_ids(struct memory_text *t, const int32_t *ids, int64_t n) {
    TRY(memory_grow(&t->ids, &t->ids_capacity, (size_t)(t->n + n)));
    for (int64_t i = 0; i < n; i++)
        t->ids[t->n + i] = ids[i];
    return STATUS_OK;
}

/* What follows the pass that fed n ids. */
static enum status memory_text_fed(struct memory_text *t, struct decoder_state *state,
                                   const struct decoder_batch_keys *made, bool mix, float *logits, int64_t n) {
    const bool own_past = t->side[MEMORY_OWN_PAST].read, one = n == 1;
    t->n += n;
    if (own_past && !(one && mix)) memory_text_remember(t, made->keys, n);
    if (!mix) return STATUS_OK;
    const double start = clock_seconds();
    t->last = mat_rows(made->keys, n - 1, 1), t->last_is_key = !made->states;
    struct next_token_task task = {.state = t->last, .step = decoder_state_step(state)};
    if (made->states) task.projection = t->projection;
    if (own_past && one) task.append = memory_text_append(t);
    if (own_past && !one) task.step.ready = NULL; /* keys were squared after the decode step: it is not the last op */
    enum status s = memory_text_mix(t, logits, task);
    t->seconds += clock_seconds() - start;
    return s;
}

/* mix: whether a mixture is wanted; logits as in memory_text_mix. */
static enum status memory_text_pass(struct memory_text *t, struct decoder_state *state, bool mix, float *logits,
                                    const int32_t *ids, int64_t n) {
    const struct decoder_batch_keys made = memory_text_keys(t, mix, n);
    const struct decoder_output out = {
        .logits_device = mix ? t->logits : NULL, .keys = made.keys, .key_layer = made.key_layer, .states = made.states};
    assert(n <= t->fresh.rows);
    TRY(memory_text_ids(t, ids, n));
    TRY(decoder_forward(state, &out, ids, n));
    return memory_text_fed(t, state, &made, mix, logits, n);
}

enum status memory_text_begin(struct memory_text *t, struct decoder_batch_keys *keys, float **logits, int32_t id) {
    *keys = memory_text_keys(t, true, 1);
    *logits = t->logits;
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
    *logits = t->log_p;
    return memory_text_pass(t, state, true, NULL, ids, n);
}

enum status memory_text_search_again(struct memory_text *t, float **logits) {
    struct next_token_task task = {.state = t->last};
    if (!t->side[MEMORY_CORPUS].read || t->searched == t->n) return STATUS_OK;
    if (!t->last_is_key) task.projection = t->projection;
    const double start = clock_seconds();
    t->searched = -1;
    enum status s = memory_text_mix(t, *logits, task);
    if (!*logits) *logits = t->log_p;
    t->seconds += clock_seconds() - start;
    return s;
}

enum status memory_text_mark(struct memory_text *t) {
    struct device *dev = t->config.engine->device;
    const int64_t vocab = t->config.engine->model.config.vocab_size;
    if (!t->marked.data) {
        t->marked = mat_dense(NULL, t->last.type, 1, max_i64(t->fresh.cols, t->state.cols));
        TRY(device_allocate(dev, &t->marked.data, mat_bytes(t->marked)));
    }
    if (!t->marked_logits.data) {
        t->marked_logits = mat_f32(NULL, 1, vocab);
        TRY(device_allocate(dev, &t->marked_logits.data, mat_bytes(t->marked_logits)));
    }
    device_copy_rows(dev, mat_cols(t->marked, 0, t->last.cols), t->last);
    device_copy_rows(dev, t->marked_logits, mat_f32(t->logits, 1, vocab));
    t->marked_n = t->n, t->marked_is_key = t->last_is_key;
    if (!t->side[MEMORY_CORPUS].read) return STATUS_OK;
    const size_t k = (size_t)t->config.memory->k;
    if (!t->marked_chunks) TRY(memory_allocate(&t->marked_chunks, k));
    memcpy(t->marked_chunks, t->chunks, k * sizeof *t->chunks);
    t->marked_searched = t->searched, t->marked_marks = t->marks;
    return STATUS_OK;
}

/* The corpus side reads the chunks of the marked search, whose passages may have left the pool. */
static enum status memory_text_rewind_search(struct memory_text *t) {
    if (!t->side[MEMORY_CORPUS].read) return STATUS_OK;
    assert(t->marked_searched >= 0);
    memcpy(t->chunks, t->marked_chunks, (size_t)t->config.memory->k * sizeof *t->chunks);
    t->searched = t->marked_searched, t->marks = t->marked_marks;
    return text_load(t);
}

enum status memory_text_rewind(struct memory_text *t, float *logits) {
    struct device *dev = t->config.engine->device;
    const int64_t cols = t->marked_is_key ? t->fresh.cols : t->state.cols;
    assert(t->marked.data && t->n - t->marked_n <= t->ring - t->config.past);
    t->n = t->marked_n, t->last_is_key = t->marked_is_key;
    t->last = t->marked_is_key ? mat_rows(t->fresh, 0, 1) : t->state;
    device_copy_rows(dev, t->last, mat_cols(t->marked, 0, cols));
    device_copy_rows(dev, mat_f32(t->logits, 1, t->config.engine->model.config.vocab_size), t->marked_logits);
    struct next_token_task task = {.state = t->last};
    if (!t->last_is_key) task.projection = t->projection;
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

/* Returns the id's probability in one memory. */
static float side_p(const struct memory_text *t, int side, int32_t id) {
    float p = 0;
    if (t->side[side].read) device_download(t->config.engine->device, &p, t->side[side].p + id, sizeof p);
    return p;
}

/* Returns the part of the id's probability that one memory gave. */
static double side_share(const struct memory_text *t, int side, int32_t id, float p) {
    float mixed;
    if (!(p > 0)) return 0;
    if (t->mixed)
        mixed = t->mixed[id];
    else
        device_download(t->config.engine->device, &mixed, t->log_p + id, sizeof mixed);
    return t->g[1 + side] > 0 ? exp(log((double)p) + log(t->g[1 + side]) - (double)mixed) : 0;
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
    const struct memory_slots *slots = &t->side[side].memory.slots;
    struct memory_origin origin;
    if (side == MEMORY_OWN_PAST) {
        *out = (struct memory_contributor){.own_past = true, .chunk = -1, .document = -1, .offset = t->n - 1 - column};
        return STATUS_OK;
    }
    TRY(memory_source_origin(t->source, &origin, t->chunks[column / slots->slot_rows], column % slots->slot_rows));
    *out =
        (struct memory_contributor){.chunk = origin.chunk, .document = origin.document, .offset = origin.token_offset};
    return STATUS_OK;
}

/* Finds the at most n entries of one memory that gave the largest parts of an id's probability, the largest first. */
static enum status side_contributors(struct memory_text *t, int side, struct memory_contributor *out, int *count, int n,
                                     int32_t id) {
    struct device *dev = t->config.engine->device;
    const struct text_side *s = &t->side[side];
    int32_t column[MEMORY_CONTRIBUTORS_MAX];
    float weight[MEMORY_CONTRIBUTORS_MAX];
    const float p = side_p(t, side, id);
    const double share = side_share(t, side, id, p);
    *count = 0;
    if (share <= 0) return STATUS_OK;
    device_upload(dev, t->column, &id, sizeof id);
    dev->ops->token_memory->contributors(dev, t->column + 1, t->column_weight, s->weights, &s->memory, t->column, n, 0);
    device_download(dev, column, t->column + 1, (size_t)n * sizeof *column);
    device_download(dev, weight, t->column_weight, (size_t)n * sizeof *weight);
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
