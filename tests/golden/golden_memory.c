/* golden_memory.c -- retrievers for the golden cases that a store cannot serve exactly: a corpus whose landmarks stay
 * in float32, and a text whose encoder input is masked. decoder/neighbours.h makes the selection. */
#include "decoder/neighbours.h"
#include "tests/golden/golden.h"

struct memory {
    struct retriever base;
    struct golden *g;
    bool own_past, corpus;
    int64_t corpus_chunks, own_chunks;
    struct mat landmarks;    /* slots of the corpus, then of the text's own past; all three in memory of the device */
    struct mat keys, values; /* one slot for each */
    float *corpus_landmarks; /* on the host */
    int32_t *slot;
    float *weight, *score;
    int64_t *id;
    int8_t *source; /* results of the whole text, so that none is overwritten */
};

enum { SLOT_ROWS = 64 };

static void encode(struct memory *m, const int32_t *ids, int64_t slot, int64_t n) {
    struct encoder_output out = {.landmarks = mat_row(m->landmarks, slot),
                                 .keys = mat_rows(m->keys, slot * SLOT_ROWS, n * SLOT_ROWS),
                                 .values = mat_rows(m->values, slot * SLOT_ROWS, n * SLOT_ROWS)};
    encoder_encode(m->g->encoder, &out, ids, n);
}

static enum status append(struct retriever *base, int64_t first, const int32_t *ids, struct mat hidden, int64_t n) {
    struct memory *m = (struct memory *)base;
    (void)hidden;
    encode(m, ids, m->corpus_chunks + first, n);
    return STATUS_OK;
}

static int64_t candidates(struct memory *m, struct neighbour_candidate *list, struct mat query, int64_t first,
                          int64_t visible, int8_t source, int k) {
    struct golden *g = m->g;
    int64_t index[64], used = 0, *index_device;
    float score[64], *score_device;
    CHECK(k <= 64);
    index_device = golden_put_bytes(g, NULL, k, sizeof *index);
    score_device = golden_put_bytes(g, NULL, k, sizeof *score);
    g->dev->ops->topk->forward(g->dev, index_device, score_device, query, mat_rows(m->landmarks, first, visible),
                               golden_put_bytes(g, &visible, 1, sizeof visible), k);
    golden_get_bytes(g, index, index_device, k, sizeof *index);
    golden_get_bytes(g, score, score_device, k, sizeof *score);
    for (int i = 0; i < 3; i++)
        device_release(g->dev, g->device_memory[--g->n_device_memory]);
    for (int i = 0; i < k && index[i] >= 0; i++)
        list[used++] = (struct neighbour_candidate){.score = score[i], .source = source, .id = index[i]};
    return used;
}

static enum status retrieve(struct retriever *base, struct neighbours *out, int group, int64_t first,
                            struct mat queries, int64_t n) {
    struct memory *m = (struct memory *)base;
    const struct model_config *c = &m->g->config;
    int k = c->topk;
    int64_t start = (group * m->own_chunks + first) * k;
    for (int64_t i = 0; i < n; i++) {
        struct neighbour_candidate list[128];
        int64_t used = 0, at = start + i * k;
        struct mat query = mat_rows(queries, i, 1);
        if (m->own_past) used += candidates(m, list + used, query, m->corpus_chunks, first + i, NEIGHBOUR_OWN_PAST, k);
        if (m->corpus) used += candidates(m, list + used, query, 0, m->corpus_chunks, NEIGHBOUR_CORPUS, k);
        struct neighbour_row row = {
            .id = m->id + at, .score = m->score + at, .weight = m->weight + at, .source = m->source + at};
        neighbours_select(&row, k, list, used);
        for (int64_t j = at; j < at + k; j++)
            m->slot[j] = (int32_t)(m->id[j] < 0                       ? -1
                                   : m->source[j] == NEIGHBOUR_CORPUS ? m->id[j]
                                                                      : m->corpus_chunks + m->id[j]);
    }
    *out = (struct neighbours){.pool = {.keys = m->keys,
                                        .values = m->values,
                                        .slot_rows = SLOT_ROWS,
                                        .live_rows = c->chunk,
                                        .off_by_one = c->softmax_off_by_one},
                               .n = n,
                               .k = k,
                               .slot = m->slot + start,
                               .weight = m->weight + start,
                               .score = m->score + start,
                               .id = m->id + start,
                               .source = m->source + start};
    return STATUS_OK;
}

static void destroy(struct retriever *base) {
    struct memory *m = (struct memory *)base;
    free(m->corpus_landmarks), free(m->slot), free(m->weight), free(m->score), free(m->id), free(m->source), free(m);
}

struct retriever *golden_memory_create(struct golden *g, const int32_t *corpus_ids, int64_t corpus_chunks,
                                       bool own_past, bool corpus, int64_t own_chunks) {
    struct memory *m = golden_zeroed(1, sizeof *m);
    int64_t chunks = corpus_chunks + own_chunks, d = g->config.hidden,
            results = own_chunks * g->config.topk * g->config.groups;
    m->base = (struct retriever){.append = append, .retrieve = retrieve, .free = destroy, .max_queries = 5};
    m->g = g, m->own_past = own_past, m->corpus = corpus, m->corpus_chunks = corpus_chunks, m->own_chunks = own_chunks;
    m->landmarks = golden_put(g, NULL, chunks, d, DTYPE_F32);
    m->keys = golden_put(g, NULL, chunks * SLOT_ROWS, d, g->type);
    m->values = golden_put(g, NULL, chunks * SLOT_ROWS, d, g->type);
    m->corpus_landmarks = golden_zeroed(corpus_chunks * d, sizeof(float));
    m->slot = golden_zeroed(results, sizeof *m->slot);
    m->weight = golden_zeroed(results, sizeof *m->weight);
    m->score = golden_zeroed(results, sizeof *m->score);
    m->id = golden_zeroed(results, sizeof *m->id);
    m->source = golden_zeroed(results, sizeof *m->source);
    encode(m, corpus_ids, 0, corpus_chunks);
    golden_get(g, m->corpus_landmarks, mat_rows(m->landmarks, 0, corpus_chunks));
    return &m->base;
}

const float *golden_memory_landmarks(const struct retriever *r) {
    return ((const struct memory *)r)->corpus_landmarks;
}

/* ---- masked encoder input */
struct masked {
    struct retriever base, *inner;
    const struct model_config *config;
    const int32_t *mask;
};

static enum status masked_append(struct retriever *base, int64_t first, const int32_t *ids, struct mat hidden,
                                 int64_t n) {
    struct masked *m = (struct masked *)base;
    int64_t count = n * m->config->chunk, start = first * m->config->chunk;
    int32_t *copy = golden_zeroed(count, sizeof *copy);
    for (int64_t i = 0; i < count; i++)
        copy[i] = m->mask[start + i] ? m->config->mask_id : ids[i];
    enum status status = m->inner->append(m->inner, first, copy, hidden, n);
    free(copy);
    return status;
}

static enum status masked_retrieve(struct retriever *base, struct neighbours *out, int group, int64_t first,
                                   struct mat queries, int64_t n) {
    struct masked *m = (struct masked *)base;
    return m->inner->retrieve(m->inner, out, group, first, queries, n);
}

static void masked_free(struct retriever *base) {
    struct masked *m = (struct masked *)base;
    m->inner->free(m->inner);
    free(m);
}

struct retriever *golden_masked_create(struct golden *g, struct retriever *inner, const int32_t *mask) {
    struct masked *m = golden_zeroed(1, sizeof *m);
    *m = (struct masked){.base = {.append = masked_append,
                                  .retrieve = masked_retrieve,
                                  .free = masked_free,
                                  .max_queries = inner->max_queries},
                         .inner = inner,
                         .config = &g->config,
                         .mask = mask};
    return &m->base;
}
