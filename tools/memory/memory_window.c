/* memory_window.c -- see memory_window.h. Probabilities of the model are computed from logits in host memory. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/minmax.h"
#include "indexer/landmarks/state_landmarks.h"
#include "kernels/ops.h"
#include "session/memory_search.h"
#include "tools/memory/memory_window_internal.h"
#include <math.h>
#include <string.h>

/* GROUP_ROWS: the most rows of a group of searches. DRAWN_ROWS: searches with the same random chunks. */
enum { GROUP_ROWS = 256, DRAWN_ROWS = 256 };

/* ---- start and end ---- */

static enum status window_source(struct memory_window *w) {
    bool wanted = false;
    for (int i = 0; i < w->n_reads; i++)
        wanted = wanted || (w->reads[i].what != MEMORY_READ_PAST && w->reads[i].what != MEMORY_READ_KNN);
    if (!wanted) return STATUS_OK;
    struct memory_source_config config = memory_search_source(w->config.engine, w->config.memory, w->config.finder);
    config.numbers = true;
    if (w->config.candidates == 0) return memory_source_create(&w->source, &config);
    const struct order_weights as_found = {.candidates = w->config.candidates};
    config.order = &as_found;
    if (w->config.group == 0) w->config.group = (int)min_i64(w->config.candidates, MEMORY_K_MAX);
    config.k = w->config.group;
    TRY(memory_allocate(&w->hits, (size_t)w->config.candidates));
    TRY(memory_grow(&w->chunks, &w->chunks_capacity, (size_t)w->config.candidates));
    TRY(memory_allocate(&w->scores, (size_t)w->config.candidates));
    return memory_source_create(&w->source, &config);
}

static enum status read_allocate(struct memory_read *read, size_t n) {
    for (int i = 0; i < MEMORY_MARKS; i++)
        TRY(memory_allocate_zero(&read->mark[i], n));
    for (int t = 0; t < read->taus; t++)
        for (int i = 0; i < MEMORY_COLUMNS; i++)
            TRY(memory_allocate(&read->column[t][i], n));
    return STATUS_OK;
}

static enum status window_allocate(struct memory_window *w) {
    struct engine *e = w->config.engine;
    struct device *dev = e->device;
    size_t n = (size_t)w->config.context;
    w->keys = mat_dense(NULL, decoder_type(e->decoder), w->config.context,
                        model_config_key_size(&e->model.config, w->config.memory->key_layer));
    TRY(device_allocate(dev, &w->keys.data, mat_bytes(w->keys)));
    if (memory_search_reads_states(e, w->config.memory, w->config.finder)) {
        w->vectors = mat_f32(NULL, w->config.context, model_config_landmark_size(&e->model.config));
        TRY(device_allocate(dev, &w->vectors.data, mat_bytes(w->vectors)));
        w->states = mat_dense(NULL, decoder_type(e->decoder), w->config.context, e->model.config.hidden);
        if (decoder_projection(e->decoder, w->config.memory->key_layer).data)
            TRY(device_allocate(dev, &w->states.data, mat_bytes(w->states)));
    }
    TRY(memory_allocate(&w->next, n));
    TRY(device_allocate(dev, &w->next_device, n));
    TRY(device_allocate(dev, &w->square, n));
    TRY(device_allocate(dev, &w->stats_device, MEMORY_STATS * n));
    TRY(device_allocate(dev, &w->tau_device, (size_t)w->n_reads));
    TRY(memory_allocate(&w->nearest, n));
    TRY(device_allocate_host(dev, &w->logits, n * (size_t)e->model.config.vocab_size));
    TRY(memory_allocate(&w->log_p, n));
    TRY(memory_allocate(&w->entropy, n));
    TRY(memory_allocate(&w->largest, n));
    TRY(memory_allocate(&w->log_sum, n));
    TRY(memory_allocate(&w->top, n));
    TRY(memory_allocate(&w->at, n));
    TRY(memory_allocate(&w->drawn_at, n));
    TRY(memory_allocate(&w->row_begin, n + 1));
    for (int i = 0; i < w->n_reads; i++) {
        struct memory_read *read = &w->reads[i];
        TRY(read_allocate(read, n));
        device_upload(dev, w->tau_device + i, &read->tau[read->taus - 1], sizeof *read->tau);
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
    void *device_memory[] = {w->keys.data, w->states.data,  w->vectors.data, w->next_device,
                             w->square,    w->stats_device, w->tau_device,   w->weights_device};
    void *host_memory[] = {w->next,     w->nearest,   w->log_p,  w->entropy, w->largest, w->log_sum, w->top, w->at,
                           w->drawn_at, w->row_begin, w->chunks, w->scores,  w->scaled,  w->spread,  w->hits};
    for (size_t i = 0; i < ARRAY_LEN(device_memory); i++)
        device_release(dev, device_memory[i]);
    for (size_t i = 0; i < ARRAY_LEN(host_memory); i++)
        memory_free(host_memory[i]);
    device_release_host(dev, w->logits);
    device_release_host(dev, w->weights);
    for (int r = 0; r < w->n_reads; r++) {
        for (int i = 0; i < MEMORY_MARKS; i++)
            memory_free(w->reads[r].mark[i]);
        for (int t = 0; t < w->reads[r].taus; t++)
            for (int i = 0; i < MEMORY_COLUMNS; i++)
                memory_free(w->reads[r].column[t][i]);
    }
    memory_free(w);
}

const char *memory_window_keys(const struct memory_window *w) {
    if (!w->source) return NULL;
    return memory_keys_names[memory_source_stored(w->source) ? MEMORY_KEYS_STORED : MEMORY_KEYS_ENCODED];
}

/* ---- the trunk ---- */

struct lm_rows {
    struct memory_window *w;
    int64_t row, first; /* first row of the pass; first scored token */
};

static void lm_row(struct memory_window *w, int64_t row, int64_t to) {
    int64_t vocab = w->config.engine->model.config.vocab_size, best = 0;
    const float *x = w->logits + row * vocab;
    double sum = 0, moment = 0;
    for (int64_t v = 1; v < vocab; v++)
        best = x[v] > x[best] ? v : best;
    float top = x[best];
    for (int64_t v = 0; v < vocab; v++) {
        float below = x[v] - top, e = expf(below);
        sum += (double)e;
        moment += e > 0 ? (double)(e * below) : 0;
    }
    w->log_p[to] = (float)((double)(x[w->next[row]] - top) - log(sum));
    w->largest[to] = (float)-log(sum);
    w->entropy[to] = (float)(log(sum) - moment / sum);
    w->log_sum[to] = (double)top + log(sum);
    w->top[to] = (int32_t)best;
}
static void lm_body(void *context, int64_t begin, int64_t end, int worker) {
    const struct lm_rows *t = context;
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        if (t->row + i >= t->first - 1) lm_row(t->w, t->row + i, t->row + i - (t->first - 1));
}

static enum status window_pass(struct memory_window *w, const int32_t *ids, int64_t n, int64_t first) {
    struct engine *e = w->config.engine;
    const int64_t pass = engine_pass(e);
    struct decoder_state *state = NULL;
    enum status s = decoder_state_create(&state, e->decoder, w->config.gca);
    for (int64_t i = 0; i < n - 1 && s == STATUS_OK; i += pass) {
        int64_t part = min_i64(n - 1 - i, pass);
        struct decoder_output out = {.logits = w->logits + i * e->model.config.vocab_size,
                                     .logits_all = true,
                                     .keys = mat_rows(w->keys, i, part),
                                     .key_layer = w->config.memory->key_layer};
        if (w->states.data) out.key_states = mat_rows(w->states, i, part);
        s = decoder_forward(state, &out, ids + i, part);
        struct lm_rows rows = {w, i, first};
        if (s == STATUS_OK) threads_for(e->device->threads, part, 1, lm_body, &rows);
    }
    decoder_state_free(state);
    return s;
}

enum status memory_window_trunk(struct memory_window *w, const int32_t *ids, int64_t n, int64_t first) {
    struct device *dev = w->config.engine->device;
    for (int64_t i = 0; i < n; i++)
        w->next[i] = i + 1 < n ? ids[i + 1] : -1;
    TRY(window_pass(w, ids, n, first));
    device_upload(dev, w->next_device, w->next, (size_t)n * sizeof *w->next);
    dev->ops->token_memory->squares(dev, w->square, mat_rows(w->keys, 0, n - 1));
    return STATUS_OK;
}

/* ---- the chunks ---- */

/* Returns a number that depends on the text, so that texts have different random chunks. */
static uint64_t text_number(const int32_t *ids, int64_t n) {
    uint64_t h = 0xcbf29ce484222325u;
    for (int64_t i = 0; i < n; i++)
        h = (h ^ (uint64_t)ids[i]) * 0x100000001b3u;
    return h;
}

/* Returns the number of chunks of a read's part of the store; 0: all. */
static int64_t window_part(const struct memory_window *w, enum memory_reads what) {
    return what < MEMORY_READ_PART ? 0 : max_i64(memory_source_chunks(w->source) >> memory_part_shift(what), 1);
}

struct mat memory_window_vectors(struct memory_window *w, const int32_t *ids, int64_t searches) {
    const struct memory_finder *f = &w->config.finder;
    const struct mat states = w->states.data ? w->states : w->keys;
    for (int64_t i = 0; i < searches && w->vectors.data; i++) {
        const int64_t n = min_i64(w->at[i], MEMORY_STATES);
        const struct state_text text = {states, w->at[i] - n, n, ids, w->at[i]};
        f->from_states(f->context, mat_row(w->vectors, i), &text);
    }
    return w->vectors;
}

/* Finds the chunks and scores of the window's searches. Random chunks are drawn once for some hundred tokens, because
 * encoding takes most of the time. They get the scores of the query that they replace. */
static enum status window_search(struct memory_window *w, enum memory_reads what, const int32_t *ids, int64_t n,
                                 int64_t searches, int64_t document) {
    struct memory_scope scope = {.end = window_part(w, what)};
    TRY(memory_source_document(w->source, &scope.exclude, document));
    if (what == MEMORY_READ_ORACLE)
        return memory_source_find_ahead(w->source, w->chunks, w->scores, ids, n, w->at, searches, scope);
    const struct mat vectors = memory_window_vectors(w, ids, searches);
    if (what == MEMORY_READ_FOUND || what >= MEMORY_READ_PART)
        return memory_source_find(w->source, w->chunks, w->scores, ids, w->at, vectors, searches, scope);
    for (int64_t i = 0; i < searches; i++)
        w->drawn_at[i] = w->at[i] / DRAWN_ROWS;
    TRY(memory_source_draw(w->source, w->chunks, w->drawn_at, searches, scope.exclude,
                           w->config.seed ^ text_number(ids, n)));
    return memory_source_score(w->source, w->scores, w->chunks, ids, w->at, vectors, searches);
}

/* Writes the gate's evidence of search i for rows begin .. end-1 of the results. */
static void window_marks(struct memory_window *w, struct memory_read *read, int64_t i, int64_t n, int64_t begin,
                         int64_t end) {
    const int k = w->config.memory->k;
    const int64_t tokens = read->what == MEMORY_READ_ORACLE
                               ? min_i64(n - w->at[i], w->config.engine->model.config.chunk)
                               : memory_source_query(w->source, w->at[i]);
    const struct memory_marks m = memory_source_marks(w->source, w->chunks + i * k, w->scores + i * k, tokens);
    for (int64_t to = begin; to < end; to++) {
        read->mark[MEMORY_ENTRIES][to] = m.entries;
        read->mark[MEMORY_BEST][to] = m.best;
        read->mark[MEMORY_KTH][to] = m.kth;
        read->mark[MEMORY_MEAN][to] = m.mean;
    }
}

static const char *window_chunks_text(enum memory_reads what) {
    return what == MEMORY_READ_RANDOM   ? "random chunks"
           : what == MEMORY_READ_ORACLE ? "chunks of the oracle"
           : what == MEMORY_READ_FOUND  ? "found chunks"
                                        : "found chunks of a part";
}

/* Reads the chunks of all searches of the window, in groups. */
static enum status window_slots(struct memory_window *w, struct memory_read *read, const int32_t *ids, int64_t n,
                                int64_t first, int64_t document) {
    const int k = w->config.memory->k, every = w->config.memory->every;
    int64_t searches = 0, group = max_i64(min_i64(memory_source_slots(w->source) / k, GROUP_ROWS / every), 1);
    for (int64_t at = first; at < n; at += every)
        w->at[searches++] = at;
    size_t score_capacity = w->chunks_capacity;
    TRY(memory_grow(&w->scores, &score_capacity, (size_t)(searches * k)));
    TRY(memory_grow(&w->chunks, &w->chunks_capacity, (size_t)(searches * k)));
    TRY(window_search(w, read->what, ids, n, searches, document));
    for (int64_t b = 0, blocks; b < searches; b += blocks) {
        struct token_memory memory = {0};
        progress_step(w->config.progress, window_chunks_text(read->what), "searches", b, searches);
        if (progress_stop_requested(w->config.progress)) return fail(STATUS_INTERRUPTED, "stopped in a window of text");
        blocks = min_i64(searches - b, group);
        int64_t begin = w->at[b] - 1, end = b + blocks < searches ? w->at[b + blocks] - 1 : n - 1;
        for (int64_t i = 0; i < blocks; i++)
            w->row_begin[i] = w->at[b + i] - 1 - begin;
        w->row_begin[blocks] = end - begin;
        for (int64_t i = 0; i < blocks; i++)
            window_marks(w, read, b + i, n, begin - (first - 1) + w->row_begin[i],
                         begin - (first - 1) + w->row_begin[i + 1]);
        TRY(memory_source_load(w->source, &memory.slots, w->chunks + b * k, w->row_begin, (int)blocks));
        TRY(memory_window_read(w, read, &memory, first, begin, end));
    }
    return STATUS_OK;
}

/* ---- the window ---- */

/* Rows that are read together. Memory has their weights over all positions before the last one. */
enum { PAST_ROWS = 64 };

static enum status window_past(struct memory_window *w, struct memory_read *read, int64_t n, int64_t first) {
    for (int64_t begin = first - 1, end; begin < n - 1; begin = end) {
        end = min_i64(begin + PAST_ROWS, n - 1);
        struct token_memory memory = {.past = {.keys = mat_rows(w->keys, 0, n - 1),
                                               .value = w->next_device,
                                               .square = w->square,
                                               .length = end - begin,
                                               .first = begin,
                                               .ring = n - 1,
                                               .limit = (int)min_i64(max_i64(end - 1, 1), w->config.past)}};
        for (int64_t row = begin; row < end; row++)
            read->mark[MEMORY_ENTRIES][row - (first - 1)] = (float)min_i64(row, w->config.past);
        TRY(memory_window_read(w, read, &memory, first, begin, end));
    }
    return STATUS_OK;
}

/* Reads the nearest entries of the whole store. */
static enum status window_knn(struct memory_window *w, struct memory_read *read, int64_t n, int64_t first,
                              int64_t document) {
    struct memory_knn *knn = w->config.knn;
    if (!memory_knn_searched(knn)) return memory_knn_add(knn, mat_rows(w->keys, first - 1, n - first), document);
    for (int64_t begin = first - 1, end; begin < n - 1; begin = end) {
        end = min_i64(begin + PAST_ROWS, n - 1);
        TRY(memory_window_nearest(w, read, memory_knn_next(knn, end - begin), first, begin, end));
    }
    return STATUS_OK;
}

static enum status window_read(struct memory_window *w, struct memory_read *read, const int32_t *ids, int64_t n,
                               int64_t first, int64_t document) {
    if (read->what == MEMORY_READ_PAST) return window_past(w, read, n, first);
    if (read->what == MEMORY_READ_KNN) return window_knn(w, read, n, first, document);
    return window_slots(w, read, ids, n, first, document);
}

enum status memory_window_run(struct memory_window *w, struct memory_lm *out, const int32_t *ids, int64_t n,
                              int64_t first, int64_t document) {
    double start = clock_seconds();
    TRY(memory_window_trunk(w, ids, n, first));
    double trunk = clock_seconds() - start;
    for (int i = 0; i < w->n_reads; i++) {
        struct memory_read *read = &w->reads[i];
        start = clock_seconds();
        TRY(window_read(w, read, ids, n, first, document));
        read->seconds += trunk + clock_seconds() - start;
    }
    *out = (struct memory_lm){w->log_p, w->entropy, w->largest};
    return STATUS_OK;
}
