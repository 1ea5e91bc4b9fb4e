/* memory_text.c -- see memory_text.h. Key states of the own past lie in a ring in memory of the device. */
#include "session/memory_text.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/minmax.h"
#include "kernels/ops.h"
#include <assert.h>
#include <math.h>

enum { STATS = 5 };

/* One of the memories that are read. */
struct text_side {
    bool read;
    struct mat weights, p; /* [1, columns], [1, vocab_size], memory of the device as the next two */
    float *stats, *tau;
    float *p_here, stats_here[STATS]; /* this process's side */
    struct token_memory entries;      /* of the mixture that was made last */
};

struct memory_text {
    struct memory_text_config config;
    struct memory_source *source; /* NULL: own past alone */
    int64_t n, ring;              /* ids so far; positions of the ring */
    int32_t *ids;
    size_t ids_capacity;
    struct mat fresh, keys; /* [pass, d] of the call in hand; [ring, d] */
    int32_t *value, *none;  /* [ring]; a target that is none */
    float *square;
    struct text_side side[MEMORY_SIDES];
    int64_t searched; /* ids that the last search knew; -1: none was made */
    int64_t *chunks;
    float *scores; /* of the chunks */
    struct memory_marks marks;
    double *log_mixed, g[1 + MEMORY_SIDES];
    double seconds;  /* from the forward pass to the mixture */
    int32_t *column; /* [1 + MEMORY_CONTRIBUTORS_MAX]: an id, then the columns found for it; memory of the device */
    float *column_weight;
};

static enum status memory_text_source(struct memory_text *t) {
    struct engine *e = t->config.engine;
    const struct memory_config *c = t->config.memory;
    const struct memory_source_config config = {.device = e->device,
                                                .model = &e->model.config,
                                                .decoder = e->decoder,
                                                .view = e->view,
                                                .finder = t->config.finder,
                                                .k = c->k,
                                                .before = c->before,
                                                .after = c->after,
                                                .key_layer = c->key_layer};
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
    int64_t columns = side == MEMORY_OWN ? t->config.past : (int64_t)c->k * (c->before + 1 + c->after) * model->chunk;
    s->read = true;
    s->weights = mat_f32(NULL, 1, columns);
    s->p = mat_f32(NULL, 1, model->vocab_size);
    TRY(device_allocate(dev, &s->weights.data, mat_bytes(s->weights)));
    TRY(device_allocate(dev, &s->p.data, mat_bytes(s->p)));
    TRY(device_allocate(dev, &s->stats, (size_t)STATS));
    TRY(device_allocate(dev, &s->tau, 1));
    TRY(memory_allocate(&s->p_here, (size_t)model->vocab_size));
    device_upload(dev, s->tau, &tau, sizeof tau);
    return STATUS_OK;
}

static enum status memory_text_allocate(struct memory_text *t) {
    struct engine *e = t->config.engine;
    struct device *dev = e->device;
    int64_t cols = e->model.config.hidden, pass = engine_pass(e);
    const int32_t none = -1;
    t->searched = -1;
    t->ring = t->config.past + pass;
    t->fresh = mat_dense(NULL, decoder_type(e->decoder), pass, cols);
    t->keys = mat_dense(NULL, decoder_type(e->decoder), t->ring, cols);
    TRY(device_allocate(dev, &t->fresh.data, mat_bytes(t->fresh)));
    TRY(device_allocate(dev, &t->keys.data, mat_bytes(t->keys)));
    TRY(device_allocate(dev, &t->value, (size_t)t->ring));
    TRY(device_allocate(dev, &t->square, (size_t)t->ring));
    TRY(device_allocate(dev, &t->none, 1));
    TRY(device_allocate(dev, &t->column, 1 + MEMORY_CONTRIBUTORS_MAX));
    TRY(device_allocate(dev, &t->column_weight, MEMORY_CONTRIBUTORS_MAX));
    TRY(memory_allocate(&t->log_mixed, (size_t)e->model.config.vocab_size));
    device_upload(dev, t->none, &none, sizeof none);
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
    void *there[] = {t->fresh.data, t->keys.data, t->value, t->none, t->square, t->column, t->column_weight};
    memory_source_free(t->source);
    for (size_t i = 0; i < ARRAY_LEN(there); i++)
        device_release(dev, there[i]);
    for (int side = 0; side < MEMORY_SIDES; side++) {
        struct text_side *s = &t->side[side];
        void *of_side[] = {s->weights.data, s->p.data, s->stats, s->tau};
        for (size_t i = 0; i < ARRAY_LEN(of_side); i++)
            device_release(dev, of_side[i]);
        memory_free(s->p_here);
    }
    memory_free(t->ids);
    memory_free(t->chunks);
    memory_free(t->scores);
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

static enum status text_search(struct memory_text *t) {
    if (t->searched >= 0 && t->n - t->searched < t->config.memory->every) return STATUS_OK;
    TRY(memory_source_find(t->source, t->chunks, t->scores, t->ids, &t->n, 1, (struct memory_scope){0}));
    t->marks = memory_source_marks(t->source, t->chunks, t->scores, memory_source_query(t->source, t->n));
    t->searched = t->n;
    return STATUS_OK;
}

/* The distribution of one memory for the id after the last: p_here and stats_here. */
static enum status side_read(struct memory_text *t, int side, struct mat state) {
    struct device *dev = t->config.engine->device;
    const struct token_memory_ops *ops = dev->ops->token_memory;
    struct text_side *s = &t->side[side];
    struct token_memory memory = {.tau = s->tau};
    const int64_t row_begin[2] = {0, 1};
    float *x = s->stats;
    if (side == MEMORY_CORPUS) {
        TRY(text_search(t));
        TRY(memory_source_load(t->source, &memory.slots, t->chunks, row_begin, 1));
    } else {
        memory.past = (struct memory_past){.keys = t->keys,
                                           .value = t->value,
                                           .square = t->square,
                                           .length = 1,
                                           .first = t->n - 1,
                                           .ring = t->ring,
                                           .limit = (int)t->config.past};
    }
    ops->forward(dev, (struct token_memory_stats){x, x + 1, x + 2, x + 3, x + 4}, state, &memory, t->none);
    ops->weights(dev, s->weights, state, &memory);
    ops->distribution(dev, s->p, s->weights, &memory);
    device_download(dev, s->stats_here, s->stats, sizeof s->stats_here);
    device_download(dev, s->p_here, s->p.data, mat_bytes(s->p));
    s->entries = memory;
    return device_sync(dev);
}

/* top: the model's top token; log_sum: of its logits' exponentials. */
static struct memory_evidence side_evidence(const struct memory_text *t, int side, const float *logits, int64_t top,
                                            double log_sum) {
    const struct text_side *s = &t->side[side];
    int64_t vocab = t->config.engine->model.config.vocab_size, best = 0, past = min_i64(t->n - 1, t->config.past);
    if (!s->read) return (struct memory_evidence){0};
    for (int64_t v = 1; v < vocab; v++)
        best = s->p_here[v] > s->p_here[best] ? v : best;
    return (struct memory_evidence){.entries = side == MEMORY_OWN ? (float)past : t->marks.entries,
                                    .lse = s->stats_here[1],
                                    .nearest = s->stats_here[2],
                                    .squares = s->stats_here[3],
                                    .top = logf(s->p_here[best]),
                                    .of_top = logf(s->p_here[top]),
                                    .lm_of_top = (float)((double)logits[best] - log_sum),
                                    .token = (float)best,
                                    .best = side == MEMORY_OWN ? 0 : t->marks.best,
                                    .kth = side == MEMORY_OWN ? 0 : t->marks.kth,
                                    .mean = side == MEMORY_OWN ? 0 : t->marks.mean};
}

static void memory_text_mix(struct memory_text *t, float *logits) {
    int64_t vocab = t->config.engine->model.config.vocab_size, top = 0;
    struct memory_evidence of[MEMORY_SIDES];
    double sum = 0, moment = 0, log_p[MEMORY_SIDES];
    for (int64_t v = 1; v < vocab; v++)
        top = logits[v] > logits[top] ? v : top;
    const double largest = (double)logits[top];
    for (int64_t v = 0; v < vocab; v++) {
        double below = (double)logits[v] - largest, e = exp(below);
        sum += e;
        moment += e > 0 ? e * below : 0;
    }
    const struct memory_lm_evidence lm = {(float)(log(sum) - moment / sum), (float)-log(sum)};
    for (int side = 0; side < MEMORY_SIDES; side++)
        of[side] = side_evidence(t, side, logits, top, largest + log(sum));
    memory_gate_weights(t->g, &t->config.memory->mixture[t->config.kind].gate, &lm, of);
    for (int64_t v = 0; v < vocab; v++) {
        double log_lm = (double)logits[v] - largest - log(sum);
        for (int side = 0; side < MEMORY_SIDES; side++)
            log_p[side] = t->side[side].read ? log((double)t->side[side].p_here[v]) : -INFINITY;
        t->log_mixed[v] = memory_mixed(t->g, log_lm, log_p);
        logits[v] = (float)t->log_mixed[v];
    }
}

enum status memory_text_feed(struct memory_text *t, struct decoder_state *state, float *logits, const int32_t *ids,
                             int64_t n) {
    const struct decoder_output out = {
        .logits = logits, .keys = mat_rows(t->fresh, 0, n), .key_layer = t->config.memory->key_layer};
    assert(n <= t->fresh.rows);
    TRY(memory_grow(&t->ids, &t->ids_capacity, (size_t)(t->n + n)));
    for (int64_t i = 0; i < n; i++)
        t->ids[t->n + i] = ids[i];
    TRY(decoder_forward(state, &out, ids, n));
    t->n += n;
    if (t->side[MEMORY_OWN].read) memory_text_remember(t, n);
    if (!logits) return STATUS_OK;
    const double start = clock_seconds();
    for (int side = 0; side < MEMORY_SIDES; side++)
        if (t->side[side].read) TRY(side_read(t, side, mat_rows(t->fresh, n - 1, 1)));
    memory_text_mix(t, logits);
    t->seconds += clock_seconds() - start;
    return STATUS_OK;
}

struct memory_text_times memory_text_times(const struct memory_text *t) {
    const struct memory_source_stats s = t->source ? memory_source_stats(t->source) : (struct memory_source_stats){0};
    return (struct memory_text_times){.find = s.find_seconds,
                                      .encode = s.encode_seconds,
                                      .mix = t->seconds - s.find_seconds - s.encode_seconds,
                                      .queries = s.found,
                                      .encoded = s.encoded};
}

/* The part of the id's probability that one memory gave. */
static double side_share(const struct memory_text *t, int side, int32_t id) {
    const struct text_side *s = &t->side[side];
    if (!s->read || !(t->g[1 + side] > 0) || !(s->p_here[id] > 0)) return 0;
    return exp(log((double)s->p_here[id]) + log(t->g[1 + side]) - t->log_mixed[id]);
}

double memory_text_share(const struct memory_text *t, int32_t id) {
    double share = 0;
    for (int side = 0; side < MEMORY_SIDES; side++)
        share += side_share(t, side, id);
    return share;
}

/* ---- which entries gave it ---- */

/* Columns are laid out as token_memory.h says: the passages' ids, or the own past from the newest on. */
static enum status side_origin(struct memory_text *t, int side, struct memory_contributor *out, int64_t column) {
    const struct memory_slots *slots = &t->side[side].entries.slots;
    struct memory_origin origin;
    if (side == MEMORY_OWN) {
        *out = (struct memory_contributor){.own = true, .chunk = -1, .document = -1, .offset = t->n - 1 - column};
        return STATUS_OK;
    }
    TRY(memory_source_origin(t->source, &origin, t->chunks[column / slots->slot_rows], column % slots->slot_rows));
    *out =
        (struct memory_contributor){.chunk = origin.chunk, .document = origin.document, .offset = origin.token_offset};
    return STATUS_OK;
}

/* The at most n entries of one memory that gave the id most, the largest first. */
static enum status side_contributors(struct memory_text *t, int side, struct memory_contributor *out, int *count, int n,
                                     int32_t id) {
    struct device *dev = t->config.engine->device;
    const struct text_side *s = &t->side[side];
    int32_t column[MEMORY_CONTRIBUTORS_MAX];
    float weight[MEMORY_CONTRIBUTORS_MAX];
    const double share = side_share(t, side, id);
    *count = 0;
    if (share <= 0) return STATUS_OK;
    device_upload(dev, t->column, &id, sizeof id);
    dev->ops->token_memory->contributors(dev, t->column + 1, t->column_weight, s->weights, &s->entries, t->column, n,
                                         0);
    device_download(dev, column, t->column + 1, (size_t)n * sizeof *column);
    device_download(dev, weight, t->column_weight, (size_t)n * sizeof *weight);
    TRY(device_sync(dev));
    while (*count < n && column[*count] >= 0 && weight[*count] > 0) {
        TRY(side_origin(t, side, &out[*count], column[*count]));
        out[*count].share = share * (double)weight[*count] / (double)s->p_here[id];
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
