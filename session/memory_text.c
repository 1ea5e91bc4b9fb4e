/* memory_text.c -- see memory_text.h. Key states of the own past lie in a ring in memory of the device. */
#include "session/memory_text.h"
#include "base/memory.h"
#include "kernels/ops.h"
#include <assert.h>
#include <math.h>

enum { STATS = 5 };

struct memory_text {
    struct memory_text_config config;
    struct memory_source *source; /* NULL: own past alone */
    int64_t n, ring;              /* ids so far; positions of the ring */
    int32_t *ids;
    size_t ids_capacity;
    struct mat fresh, keys; /* [pass, d] of the call in hand; [ring, d] */
    int32_t *value, *none;  /* [ring]; a target that is none */
    float *square, *stats, *tau;
    struct mat weights, p; /* [1, columns], [1, vocab_size] */
    int64_t searched;      /* ids that the last search knew; -1: none was made */
    int64_t *chunks;
    float *p_here; /* this process's side, as the next */
    float stats_here[STATS];
    double *log_mixed;
    double g;
    struct token_memory entries; /* of the mixture that was made last */
    int32_t *column;             /* [1 + MEMORY_CONTRIBUTORS_MAX]: the id, then the columns found for it */
    float *column_weight;
};

static bool memory_text_finds(const struct memory_text *t) {
    return t->config.kind != MEMORY_OWN;
}
static bool memory_text_looks_back(const struct memory_text *t) {
    return t->config.kind != MEMORY_CORPUS;
}

static enum status memory_text_source(struct memory_text *t) {
    struct engine *e = t->config.engine;
    const struct memory_config *c = t->config.memory;
    const struct memory_source_config config = {.device = e->device,
                                                .model = &e->model.config,
                                                .decoder = e->decoder,
                                                .view = e->view,
                                                .lexical = t->config.lexical,
                                                .k = c->k,
                                                .before = c->before,
                                                .after = c->after,
                                                .key_layer = c->key_layer};
    TRY(memory_allocate(&t->chunks, (size_t)c->k));
    return memory_source_create(&t->source, &config);
}

static enum status memory_text_allocate(struct memory_text *t) {
    struct engine *e = t->config.engine;
    struct device *dev = e->device;
    const struct memory_config *c = t->config.memory;
    int64_t cols = e->model.config.hidden, pass = engine_pass(e), vocab = e->model.config.vocab_size, columns = 0;
    const float tau = (float)c->mixture[t->config.kind].tau;
    const int32_t none = -1;
    t->searched = -1;
    t->ring = t->config.past + pass;
    if (memory_text_finds(t)) columns += (int64_t)c->k * (c->before + 1 + c->after) * e->model.config.chunk;
    if (memory_text_looks_back(t)) columns += t->config.past;
    t->fresh = mat_dense(NULL, decoder_type(e->decoder), pass, cols);
    t->keys = mat_dense(NULL, decoder_type(e->decoder), t->ring, cols);
    t->weights = mat_f32(NULL, 1, columns);
    t->p = mat_f32(NULL, 1, vocab);
    struct mat *mats[] = {&t->fresh, &t->keys, &t->weights, &t->p};
    for (size_t i = 0; i < ARRAY_LEN(mats); i++)
        TRY(device_allocate(dev, &mats[i]->data, mat_bytes(*mats[i])));
    TRY(device_allocate(dev, &t->value, (size_t)t->ring));
    TRY(device_allocate(dev, &t->square, (size_t)t->ring));
    TRY(device_allocate(dev, &t->stats, (size_t)STATS));
    TRY(device_allocate(dev, &t->tau, 1));
    TRY(device_allocate(dev, &t->none, 1));
    TRY(device_allocate(dev, &t->column, 1 + MEMORY_CONTRIBUTORS_MAX));
    TRY(device_allocate(dev, &t->column_weight, MEMORY_CONTRIBUTORS_MAX));
    TRY(memory_allocate(&t->p_here, (size_t)vocab));
    TRY(memory_allocate(&t->log_mixed, (size_t)vocab));
    device_upload(dev, t->tau, &tau, sizeof tau);
    device_upload(dev, t->none, &none, sizeof none);
    return memory_text_finds(t) ? memory_text_source(t) : STATUS_OK;
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
    void *there[] = {t->fresh.data, t->keys.data, t->weights.data, t->p.data, t->value,        t->none,
                     t->square,     t->stats,     t->tau,          t->column, t->column_weight};
    memory_source_free(t->source);
    for (size_t i = 0; i < ARRAY_LEN(there); i++)
        device_release(dev, there[i]);
    memory_free(t->ids);
    memory_free(t->chunks);
    memory_free(t->p_here);
    memory_free(t->log_mixed);
    memory_free(t);
}

/* ---- the own past ---- */

/* The last n ids join the ring: their key states, and the id that follows each position before the last. */
static void memory_text_remember(struct memory_text *t, int64_t n) {
    struct device *dev = t->config.engine->device;
    int64_t first = t->n - n;
    for (int64_t i = 0, part; i < n; i += part) {
        int64_t at = (first + i) % t->ring;
        part = n - i < t->ring - at ? n - i : t->ring - at;
        struct mat keys = mat_rows(t->keys, at, part);
        device_copy_rows(dev, keys, mat_rows(t->fresh, i, part));
        dev->ops->token_memory->squares(dev, t->square + at, keys);
    }
    for (int64_t p = first > 0 ? first - 1 : 0, part; p < t->n - 1; p += part) {
        int64_t at = p % t->ring;
        part = t->n - 1 - p < t->ring - at ? t->n - 1 - p : t->ring - at;
        device_upload(dev, t->value + at, t->ids + p + 1, (size_t)part * sizeof *t->value);
    }
}

/* ---- the mixture ---- */

static enum status memory_text_entries(struct memory_text *t, struct token_memory *memory) {
    const int64_t row_begin[2] = {0, 1};
    *memory = (struct token_memory){.tau = t->tau};
    if (memory_text_finds(t)) {
        if (t->searched < 0 || t->n - t->searched >= t->config.memory->every) {
            TRY(memory_source_find(t->source, t->chunks, t->ids, &t->n, 1, (struct store_range){0}));
            t->searched = t->n;
        }
        TRY(memory_source_load(t->source, &memory->slots, t->chunks, row_begin, 1));
    }
    if (memory_text_looks_back(t))
        memory->past = (struct memory_past){.keys = t->keys,
                                            .value = t->value,
                                            .square = t->square,
                                            .length = 1,
                                            .first = t->n - 1,
                                            .ring = t->ring,
                                            .limit = (int)t->config.past};
    return STATUS_OK;
}

static void memory_text_mix(struct memory_text *t, float *logits) {
    int64_t vocab = t->config.engine->model.config.vocab_size;
    float features[MEMORY_FEATURES], top = logits[0];
    double sum = 0, moment = 0;
    for (int64_t v = 1; v < vocab; v++)
        top = logits[v] > top ? logits[v] : top;
    for (int64_t v = 0; v < vocab; v++) {
        double below = (double)(logits[v] - top), e = exp(below);
        sum += e;
        moment += e > 0 ? e * below : 0;
    }
    features[MEMORY_ENTROPY] = (float)(log(sum) - moment / sum);
    features[MEMORY_LARGEST] = (float)-log(sum);
    features[MEMORY_LSE] = t->stats_here[1];
    features[MEMORY_NEAREST] = t->stats_here[2];
    features[MEMORY_SQUARES] = t->stats_here[3];
    t->g = memory_gate_open(&t->config.memory->mixture[t->config.kind].gate, features);
    for (int64_t v = 0; v < vocab; v++) {
        double log_lm = (double)(logits[v] - top) - log(sum);
        t->log_mixed[v] = memory_mixed(log_lm, log((double)t->p_here[v]), t->g);
        logits[v] = (float)t->log_mixed[v];
    }
}

enum status memory_text_feed(struct memory_text *t, struct decoder_state *state, float *logits, const int32_t *ids,
                             int64_t n) {
    struct device *dev = t->config.engine->device;
    const struct token_memory_ops *ops = dev->ops->token_memory;
    const struct decoder_output out = {
        .logits = logits, .keys = mat_rows(t->fresh, 0, n), .key_layer = t->config.memory->key_layer};
    assert(n <= t->fresh.rows);
    TRY(memory_grow(&t->ids, &t->ids_capacity, (size_t)(t->n + n)));
    for (int64_t i = 0; i < n; i++)
        t->ids[t->n + i] = ids[i];
    TRY(decoder_forward(state, &out, ids, n));
    t->n += n;
    if (memory_text_looks_back(t)) memory_text_remember(t, n);
    if (!logits) return STATUS_OK;
    struct token_memory memory;
    struct mat here = mat_rows(t->fresh, n - 1, 1);
    float *s = t->stats;
    TRY(memory_text_entries(t, &memory));
    ops->forward(dev, (struct token_memory_stats){s, s + 1, s + 2, s + 3, s + 4}, here, &memory, t->none);
    ops->weights(dev, t->weights, here, &memory);
    ops->distribution(dev, t->p, t->weights, &memory);
    device_download(dev, t->stats_here, t->stats, sizeof t->stats_here);
    device_download(dev, t->p_here, t->p.data, mat_bytes(t->p));
    TRY(device_sync(dev));
    memory_text_mix(t, logits);
    t->entries = memory;
    return STATUS_OK;
}

double memory_text_share(const struct memory_text *t, int32_t id) {
    double share = exp(log((double)t->p_here[id]) + log(t->g) - t->log_mixed[id]);
    return t->g > 0 && t->p_here[id] > 0 ? share : 0;
}

/* Columns are laid out as token_memory.h says: the passages' ids, then the own past from the newest on. */
static enum status memory_text_origin(struct memory_text *t, struct memory_contributor *out, int64_t column) {
    const struct memory_slots *slots = &t->entries.slots;
    int64_t passages = (int64_t)slots->k * slots->slot_rows;
    struct memory_origin origin;
    if (column >= passages) {
        *out = (struct memory_contributor){
            .own = true, .chunk = -1, .document = -1, .offset = t->n - 1 - (column - passages)};
        return STATUS_OK;
    }
    TRY(memory_source_origin(t->source, &origin, t->chunks[column / slots->slot_rows], column % slots->slot_rows));
    *out =
        (struct memory_contributor){.chunk = origin.chunk, .document = origin.document, .offset = origin.token_offset};
    return STATUS_OK;
}

enum status memory_text_contributors(struct memory_text *t, struct memory_contributor *out, int *count, int n,
                                     int32_t id) {
    struct device *dev = t->config.engine->device;
    int32_t column[MEMORY_CONTRIBUTORS_MAX];
    float weight[MEMORY_CONTRIBUTORS_MAX];
    const double share = memory_text_share(t, id);
    assert(n >= 1 && n <= MEMORY_CONTRIBUTORS_MAX);
    *count = 0;
    if (share <= 0) return STATUS_OK;
    device_upload(dev, t->column, &id, sizeof id);
    dev->ops->token_memory->contributors(dev, t->column + 1, t->column_weight, t->weights, &t->entries, t->column, n,
                                         0);
    device_download(dev, column, t->column + 1, (size_t)n * sizeof *column);
    device_download(dev, weight, t->column_weight, (size_t)n * sizeof *weight);
    TRY(device_sync(dev));
    while (*count < n && column[*count] >= 0 && weight[*count] > 0) {
        TRY(memory_text_origin(t, &out[*count], column[*count]));
        out[*count].share = share * (double)weight[*count] / (double)t->p_here[id];
        ++*count;
    }
    return STATUS_OK;
}
