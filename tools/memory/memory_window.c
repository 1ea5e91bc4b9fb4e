/* memory_window.c -- see memory_window.h. Probabilities of the model are made of logits in this process's memory. */
#include "tools/memory/memory_window.h"
#include "base/clock.h"
#include "base/memory.h"
#include "kernels/ops.h"
#include <math.h>
#include <string.h>

enum { STATS = 5 };

struct memory_window {
    struct memory_window_config config;
    struct memory_read *reads;
    int n_reads;
    struct memory_source *source; /* NULL: own past alone */
    struct mat keys;              /* [context, d] */
    int32_t *next, *next_there;   /* [context] the id after each */
    float *square;                /* [context] memory of the device, as the next two */
    float *stats_there;           /* [STATS * context] */
    float *tau_there;             /* [n_reads] */
    float *stats;                 /* this process's side */
    float *logits;                /* [pass, vocabulary] */
    float *log_p, *entropy, *largest;
    int64_t *at, *row_begin, *chunks; /* of the searches of a window */
    size_t chunks_capacity;
};

/* ---- start and end ---- */

static enum status window_source(struct memory_window *w) {
    struct engine *e = w->config.engine;
    const struct memory_config *c = w->config.memory;
    bool wanted = false;
    for (int i = 0; i < w->n_reads; i++)
        wanted = wanted || w->reads[i].found || w->reads[i].drawn;
    if (!wanted) return STATUS_OK;
    const struct memory_source_config config = {.device = e->device,
                                                .model = &e->model.config,
                                                .decoder = e->decoder,
                                                .view = e->view,
                                                .lexical = w->config.lexical,
                                                .k = c->k,
                                                .before = c->before,
                                                .after = c->after,
                                                .key_layer = c->key_layer};
    return memory_source_create(&w->source, &config);
}

static enum status window_allocate(struct memory_window *w) {
    struct engine *e = w->config.engine;
    struct device *dev = e->device;
    size_t n = (size_t)w->config.context;
    w->keys = mat_dense(NULL, decoder_type(e->decoder), w->config.context, e->model.config.hidden);
    TRY(device_allocate(dev, &w->keys.data, mat_bytes(w->keys)));
    TRY(memory_allocate(&w->next, n));
    TRY(device_allocate(dev, &w->next_there, n));
    TRY(device_allocate(dev, &w->square, n));
    TRY(device_allocate(dev, &w->stats_there, STATS * n));
    TRY(device_allocate(dev, &w->tau_there, (size_t)w->n_reads));
    TRY(memory_allocate(&w->stats, STATS * n));
    TRY(device_allocate_host(dev, &w->logits, (size_t)engine_pass(e) * (size_t)e->model.config.vocab_size));
    TRY(memory_allocate(&w->log_p, n));
    TRY(memory_allocate(&w->entropy, n));
    TRY(memory_allocate(&w->largest, n));
    TRY(memory_allocate(&w->at, n));
    TRY(memory_allocate(&w->row_begin, n + 1));
    for (int i = 0; i < w->n_reads; i++) {
        TRY(memory_allocate(&w->reads[i].log_p, n));
        TRY(memory_allocate(&w->reads[i].lse, n));
        TRY(memory_allocate(&w->reads[i].nearest, n));
        TRY(memory_allocate(&w->reads[i].squares, n));
        device_upload(dev, w->tau_there + i, &w->reads[i].tau, sizeof w->reads[i].tau);
    }
    return window_source(w);
}

enum status memory_window_create(struct memory_window **out, const struct memory_window_config *config,
                                 struct memory_read *reads, int n_reads) {
    struct memory_window *w = NULL;
    TRY(memory_allocate_zero(&w, 1));
    w->config = *config;
    w->reads = reads;
    w->n_reads = n_reads;
    enum status s = window_allocate(w);
    if (s != STATUS_OK) {
        memory_window_free(w);
        return s;
    }
    *out = w;
    return STATUS_OK;
}

void memory_window_free(struct memory_window *w) {
    if (!w) return;
    struct device *dev = w->config.engine->device;
    memory_source_free(w->source);
    void *there[] = {w->keys.data, w->next_there, w->square, w->stats_there, w->tau_there};
    void *here[] = {w->next, w->stats, w->log_p, w->entropy, w->largest, w->at, w->row_begin, w->chunks};
    for (size_t i = 0; i < ARRAY_LEN(there); i++)
        device_release(dev, there[i]);
    for (size_t i = 0; i < ARRAY_LEN(here); i++)
        memory_free(here[i]);
    device_release_host(dev, w->logits);
    for (int i = 0; i < w->n_reads; i++) {
        memory_free(w->reads[i].log_p);
        memory_free(w->reads[i].lse);
        memory_free(w->reads[i].nearest);
        memory_free(w->reads[i].squares);
    }
    memory_free(w);
}

struct memory_source_stats memory_window_stats(const struct memory_window *w) {
    return w->source ? memory_source_stats(w->source) : (struct memory_source_stats){0};
}

/* ---- the trunk ---- */

struct lm_rows {
    struct memory_window *w;
    const int32_t *target; /* of the pass' first row */
    int64_t first;         /* index of that row's results; below 0: not scored */
};

static void lm_row(const struct lm_rows *t, int64_t row) {
    struct memory_window *w = t->w;
    int64_t vocab = w->config.engine->model.config.vocab_size, to = t->first + row;
    const float *x = w->logits + row * vocab;
    float top = x[0];
    double sum = 0, moment = 0;
    if (to < 0) return;
    for (int64_t v = 1; v < vocab; v++)
        top = x[v] > top ? x[v] : top;
    for (int64_t v = 0; v < vocab; v++) {
        float below = x[v] - top, e = expf(below);
        sum += (double)e;
        moment += e > 0 ? (double)(e * below) : 0;
    }
    w->log_p[to] = (float)((double)(x[t->target[row]] - top) - log(sum));
    w->largest[to] = (float)-log(sum);
    w->entropy[to] = (float)(log(sum) - moment / sum);
}
static void lm_body(void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    for (int64_t row = begin; row < end; row++)
        lm_row(context, row);
}

/* Key states of ids 0 .. n-2, and what the model gives to tokens first .. n-1. */
static enum status window_trunk(struct memory_window *w, const int32_t *ids, int64_t n, int64_t first) {
    struct engine *e = w->config.engine;
    const int64_t pass = engine_pass(e);
    struct decoder_state *state = NULL;
    enum status s = decoder_state_create(&state, e->decoder, NULL);
    for (int64_t i = 0; i < n - 1 && s == STATUS_OK; i += pass) {
        int64_t part = n - 1 - i < pass ? n - 1 - i : pass;
        const struct decoder_output out = {.logits = w->logits,
                                           .logits_all = true,
                                           .keys = mat_rows(w->keys, i, part),
                                           .key_layer = w->config.memory->key_layer};
        s = decoder_forward(state, &out, ids + i, part);
        struct lm_rows rows = {.w = w, .target = w->next + i, .first = i - (first - 1)};
        if (s == STATUS_OK) threads_for(e->device->threads, part, 1, lm_body, &rows);
    }
    decoder_state_free(state);
    return s;
}

/* ---- the memories ---- */

/* Rows begin .. end-1 of the window with one read. */
static enum status window_read(struct memory_window *w, struct memory_read *read, const struct memory_slots *slots,
                               int64_t n, int64_t first, int64_t begin, int64_t end) {
    struct device *dev = w->config.engine->device;
    int64_t rows = end - begin, to = begin - (first - 1);
    double start = clock_seconds();
    struct token_memory memory = {.tau = w->tau_there + (read - w->reads)};
    if (slots) memory.slots = *slots;
    if (read->past)
        memory.past = (struct memory_past){.keys = mat_rows(w->keys, 0, n - 1),
                                           .value = w->next_there,
                                           .square = w->square,
                                           .length = rows,
                                           .first = begin,
                                           .ring = n - 1,
                                           .limit = (int)(n - 1)};
    float *there = w->stats_there;
    const struct token_memory_stats stats = {there, there + rows, there + 2 * rows, there + 3 * rows, there + 4 * rows};
    dev->ops->token_memory->forward(dev, stats, mat_rows(w->keys, begin, rows), &memory, w->next_there + begin);
    device_download(dev, w->stats, there, (size_t)(STATS * rows) * sizeof *there);
    TRY(device_sync(dev));
    float *const results[] = {read->log_p, read->lse, read->nearest, read->squares};
    for (size_t i = 0; i < ARRAY_LEN(results); i++)
        memcpy(results[i] + to, w->stats + (int64_t)i * rows, (size_t)rows * sizeof *w->stats);
    read->seconds += clock_seconds() - start;
    return STATUS_OK;
}

/* All searches of the window: found, or random. Then groups of as many blocks as the pool takes. */
static enum status window_slots(struct memory_window *w, const int32_t *ids, int64_t n, int64_t first, int64_t document,
                                bool drawn) {
    const int k = w->config.memory->k, every = w->config.memory->every;
    int64_t searches = 0, group = memory_source_slots(w->source) / k;
    struct store_range exclude;
    double start = clock_seconds();
    TRY(memory_source_document(w->source, &exclude, document));
    for (int64_t at = first; at < n; at += every)
        w->at[searches++] = at;
    TRY(memory_grow(&w->chunks, &w->chunks_capacity, (size_t)(searches * k)));
    TRY(drawn ? memory_source_draw(w->source, w->chunks, w->at, searches, exclude, w->config.seed)
              : memory_source_find(w->source, w->chunks, ids, w->at, searches, exclude));
    for (int64_t b = 0, blocks; b < searches; b += blocks) {
        struct memory_slots slots;
        blocks = searches - b < group ? searches - b : group;
        int64_t begin = w->at[b] - 1, end = b + blocks < searches ? w->at[b + blocks] - 1 : n - 1;
        for (int64_t i = 0; i < blocks; i++)
            w->row_begin[i] = w->at[b + i] - 1 - begin;
        w->row_begin[blocks] = end - begin;
        TRY(memory_source_load(w->source, &slots, w->chunks + b * k, w->row_begin, (int)blocks));
        TRY(device_sync(w->config.engine->device));
        double loaded = clock_seconds();
        for (int i = 0; i < w->n_reads; i++) {
            struct memory_read *read = &w->reads[i];
            if (drawn ? !read->drawn : !read->found) continue;
            read->seconds += loaded - start;
            TRY(window_read(w, read, &slots, n, first, begin, end));
        }
        start = clock_seconds();
    }
    return STATUS_OK;
}

enum status memory_window_run(struct memory_window *w, struct memory_lm *out, const int32_t *ids, int64_t n,
                              int64_t first, int64_t document) {
    struct device *dev = w->config.engine->device;
    bool found = false, drawn = false;
    double start = clock_seconds();
    for (int64_t i = 0; i < n; i++)
        w->next[i] = i + 1 < n ? ids[i + 1] : -1;
    TRY(window_trunk(w, ids, n, first));
    device_upload(dev, w->next_there, w->next, (size_t)n * sizeof *w->next);
    dev->ops->token_memory->squares(dev, w->square, mat_rows(w->keys, 0, n - 1));
    for (int i = 0; i < w->n_reads; i++) {
        struct memory_read *read = &w->reads[i];
        read->seconds += clock_seconds() - start;
        found = found || read->found;
        drawn = drawn || read->drawn;
    }
    for (int i = 0; i < w->n_reads; i++)
        if (!w->reads[i].found && !w->reads[i].drawn)
            TRY(window_read(w, &w->reads[i], NULL, n, first, first - 1, n - 1));
    if (found) TRY(window_slots(w, ids, n, first, document, false));
    if (drawn) TRY(window_slots(w, ids, n, first, document, true));
    *out = (struct memory_lm){w->log_p, w->entropy, w->largest};
    return STATUS_OK;
}

void memory_window_features(float features[MEMORY_FEATURES], const struct memory_lm *lm, const struct memory_read *read,
                            int64_t i) {
    features[MEMORY_ENTROPY] = lm->entropy[i];
    features[MEMORY_LARGEST] = lm->largest[i];
    features[MEMORY_NEAREST] = read->nearest[i];
    features[MEMORY_LSE] = read->lse[i];
    features[MEMORY_SQUARES] = read->squares[i];
}
