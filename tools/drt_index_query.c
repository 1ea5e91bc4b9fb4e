/* drt_index_query.c -- a text's query vector: what the model itself would ask the corpus behind that text.
 *
 * Generation queries with the decoder's landmark state behind a complete chunk, so a query text is run through the
 * decoder, and the query of its last landmark is taken. The text must end where a chunk ends: its last whole chunks
 * count (at most QUERY_CHUNKS), and a text shorter than one chunk is repeated in front of itself, because the model
 * has seen repeated text in training but no padding in front of text. */
#include "base/memory.h"
#include "tools/drt_index.h"
#include <math.h>
#include <string.h>

enum { QUERY_CHUNKS = 8 }; /* about the decoder's window: more context changes little */

/* A retriever that keeps the last query of group 0 and finds nothing. */
struct catcher {
    struct retriever retriever;
    float *query;
    int32_t slot[QUERY_CHUNKS];
    float weight[QUERY_CHUNKS], score[QUERY_CHUNKS];
    int64_t id[QUERY_CHUNKS];
    int8_t source[QUERY_CHUNKS];
    struct gca_pool pool;
    int64_t cols;
};

static enum status catch_append(struct retriever *r, int64_t first, const int32_t *ids, const float *hidden,
                                int64_t n) {
    (void)r, (void)first, (void)ids, (void)hidden, (void)n;
    return STATUS_OK;
}

static enum status catch_query(struct retriever *r, struct neighbours *out, int group, int64_t first,
                               const float *queries, int64_t n) {
    struct catcher *c = (struct catcher *)r;
    (void)first;
    if (group == 0) memcpy(c->query, queries + (n - 1) * c->cols, (size_t)c->cols * sizeof *queries);
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

static void catcher_init(struct catcher *c, float *query, const struct model_config *config) {
    *c = (struct catcher){
        .retriever = {.append = catch_append, .retrieve = catch_query, .max_queries = QUERY_CHUNKS},
        .query = query,
        .cols = config->hidden,
        .pool = {.keys = mat_f32(query, 0, config->hidden),
                 .values = mat_f32(query, 0, config->hidden),
                 .slot_rows = 64,
                 .live_rows = config->chunk,
                 .off_by_one = config->softmax_off_by_one},
    };
    for (int i = 0; i < QUERY_CHUNKS; i++) {
        c->slot[i] = -1;
        c->score[i] = -INFINITY;
        c->id[i] = -1;
        c->source[i] = NEIGHBOUR_NONE;
    }
}

/* The last whole chunks of the text, or the text repeated up to one chunk. */
static int64_t query_ids(int32_t *out, const int32_t *ids, int64_t n, int64_t chunk) {
    int64_t chunks = n / chunk < QUERY_CHUNKS ? n / chunk : QUERY_CHUNKS, length = chunks > 0 ? chunks * chunk : chunk;
    for (int64_t i = 1; i <= length; i++)
        out[length - i] = ids[n - 1 - (i - 1) % n];
    return length;
}

static enum status run_decoder(struct catcher *c, struct device *device, const struct model_folder *m,
                               const int32_t *ids, int64_t n) {
    struct decoder *decoder = NULL;
    struct decoder_state *state = NULL;
    const struct decoder_output none = {0};
    enum status s;
    TRY_GOTO(s, decoder_create(&decoder, device, &m->config, m->params, 0), out);
    TRY_GOTO(s, decoder_state_create(&state, decoder, &c->retriever), out);
    s = decoder_forward(state, &none, ids, n);
out:
    decoder_state_free(state);
    decoder_free(decoder);
    return s;
}

enum status drt_index_query(float *out, struct device *device, const struct model_folder *model, const char *text,
                            size_t bytes) {
    struct tokenizer_scratch *scratch;
    struct catcher catcher;
    const int32_t *ids;
    size_t n;
    void *memory = NULL;
    TRY(tokenizer_scratch_create(&scratch, model->tokenizer));
    enum status s;
    TRY_GOTO(s, tokenizer_encode(model->tokenizer, scratch, text, bytes, TOKENIZER_LITERAL, &ids, &n), out);
    if (n == 0) {
        s = fail(STATUS_INVALID, "the query text is empty");
        goto out;
    }
    TRY_GOTO(s, memory_allocate(&memory, (size_t)QUERY_CHUNKS * (size_t)model->config.chunk, sizeof *ids), out);
    catcher_init(&catcher, out, &model->config);
    s = run_decoder(&catcher, device, model, memory, query_ids(memory, ids, (int64_t)n, model->config.chunk));
out:
    memory_free(memory);
    tokenizer_scratch_free(scratch);
    return s;
}
