/* text_query.c -- see text_query.h.
 *
 * In generation, a query is the decoder's landmark state after a complete chunk. So the decoder reads the query text,
 * and the query of its last landmark is used. The text must end at the end of a chunk, so its last whole chunks are
 * used (at most TEXT_QUERY_CHUNKS). A text shorter than one chunk is repeated until it fills one, because training data
 * has repeated text, but no padding before a text. */
#include "session/text_query.h"
#include "base/memory.h"
#include <assert.h>
#include <math.h>
#include <string.h>

enum { QUERY_CHUNKS = TEXT_QUERY_CHUNKS };

/* A retriever that keeps the last query of group 0 and finds no neighbours. */
struct catcher {
    struct retriever retriever;
    struct device *device;
    float *query;
    int32_t slot[QUERY_CHUNKS];
    float weight[QUERY_CHUNKS], score[QUERY_CHUNKS];
    int64_t id[QUERY_CHUNKS];
    int8_t source[QUERY_CHUNKS];
    struct gca_pool pool;
    int64_t cols;
};

static enum status catch_append(struct retriever *r, int64_t first, const int32_t *ids, struct mat hidden, int64_t n) {
    (void)r, (void)first, (void)ids, (void)hidden, (void)n;
    return STATUS_OK;
}

static enum status catch_query(struct retriever *r, struct neighbours *out, int group, int64_t first,
                               struct mat queries, int64_t n) {
    struct catcher *c = (struct catcher *)r;
    (void)first;
    if (group == 0) device_download(c->device, c->query, mat_row(queries, n - 1), (size_t)c->cols * sizeof *c->query);
    *out = (struct neighbours){.pool = c->pool,
                               .n = n,
                               .k = 1,
                               .slot = c->slot,
                               .weight = c->weight,
                               .score = c->score,
                               .id = c->id,
                               .source = c->source};
    return STATUS_OK;
}

/* The pool has one slot that no neighbour uses, because ops need a matrix in device memory of the model's type. */
static enum status catcher_init(struct catcher *c, const struct text_query_model *m, float *query) {
    enum { SLOT_ROWS = 64 };
    struct mat slot = mat_dense(NULL, decoder_type(m->decoder), SLOT_ROWS, m->config->hidden);
    *c = (struct catcher){
        .retriever = {.append = catch_append, .retrieve = catch_query, .max_queries = QUERY_CHUNKS},
        .device = m->device,
        .query = query,
        .cols = m->config->hidden,
        .pool = {.slot_rows = SLOT_ROWS, .live_rows = m->config->chunk, .off_by_one = m->config->softmax_off_by_one},
    };
    for (int i = 0; i < QUERY_CHUNKS; i++) {
        c->slot[i] = -1;
        c->score[i] = -INFINITY;
        c->id[i] = -1;
        c->source[i] = NEIGHBOUR_NONE;
    }
    TRY(device_allocate(m->device, &slot.data, (size_t)(slot.rows * slot.cols * dtype_bytes(slot.type))));
    c->pool.keys = c->pool.values = slot;
    return STATUS_OK;
}

/* Writes the last whole chunks of the text, or repeats the text up to one chunk. */
static int64_t query_ids(int32_t *out, const int32_t *ids, int64_t n, int64_t chunk) {
    int64_t chunks = n / chunk < QUERY_CHUNKS ? n / chunk : QUERY_CHUNKS, length = chunks > 0 ? chunks * chunk : chunk;
    for (int64_t i = 1; i <= length; i++)
        out[length - i] = ids[n - 1 - (i - 1) % n];
    return length;
}

static enum status run_decoder(struct catcher *c, const struct text_query_model *m, const int32_t *ids, int64_t n) {
    struct decoder_state *state = NULL;
    const struct decoder_output none = {0};
    TRY(decoder_state_create(&state, m->decoder, &c->retriever));
    enum status s = decoder_forward(state, &none, ids, n);
    decoder_state_free(state);
    return s;
}

/* A Base LM makes no queries, so the landmark of the last chunk is used, with a sketch of the text. */
static enum status query_of_states(float *out, const struct text_query_model *model, const int32_t *ids, int64_t n) {
    const int64_t chunk = model->config->chunk;
    int32_t *used = NULL;
    TRY(memory_allocate(&used, (size_t)chunk));
    for (int64_t i = 0; i < chunk; i++)
        used[i] = n >= chunk ? ids[n - chunk + i] : i < n ? ids[i] : -1;
    const enum status s = state_landmarks_make(model->states, out, used, 1);
    if (s == STATUS_OK) state_landmarks_sketch(model->states, out, ids, n, STATE_QUERY_SKETCH);
    memory_free(used);
    return s;
}

enum status text_query(float *out, const struct text_query_model *model, const int32_t *ids, int64_t n) {
    struct catcher catcher;
    int32_t *used;
    assert(n >= 1);
    if (model->config->base_lm) return query_of_states(out, model, ids, n);
    TRY(memory_allocate(&used, (size_t)QUERY_CHUNKS * (size_t)model->config->chunk));
    enum status s;
    TRY_GOTO(s, catcher_init(&catcher, model, out), out);
    TRY_GOTO(s, run_decoder(&catcher, model, used, query_ids(used, ids, n, model->config->chunk)), out);
    s = device_sync(model->device);
out:
    device_release(model->device, catcher.pool.keys.data);
    memory_free(used);
    return s;
}
