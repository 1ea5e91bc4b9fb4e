/* corpus_pool.c -- the corpus on the device, and exact search in it.
 *
 * Both tables have one row more than there are chunks, for empty results (topk.h, gather). The search itself leaves
 * excluded documents out. Noise is added only to the scores of the best results: over a million landmarks the largest
 * noise values would decide. */
#include "train/step/corpus_pool.h"
#include "base/memory.h"
#include "kernels/device/carve.h"
#include "kernels/ops.h"
#include <assert.h>
#include <stdbool.h>

enum { UPLOAD_CHUNKS = 4096 };

struct corpus_pool {
    struct device *dev;
    int64_t chunks, max_queries, positions, hidden;
    enum dtype type; /* of the landmarks */
    int candidates;
    bool refreshed;
    void *memory;
    size_t bytes;
    int32_t *ids, *documents; /* [chunks + 1, positions], [chunks + 1, 2] */
    struct mat landmarks;     /* [chunks, d] */
    /* Buffers of a search, for max_queries queries. */
    int32_t *none, *all; /* the begin (0) and end (chunks) of every query's range */
    int64_t *found, *kept;
    float *score;
};

static void corpus_pool_layout(void *of, struct carve *c) {
    struct corpus_pool *p = of;
    int64_t wide = p->max_queries * p->candidates * CORPUS_POOL_NOISE;
    p->ids = carve_bytes(c, (p->chunks + 1) * p->positions, sizeof *p->ids);
    p->documents = carve_bytes(c, p->chunks + 1, 2 * sizeof *p->documents);
    p->landmarks = carve_mat(c, p->type, p->chunks, p->hidden);
    p->none = carve_bytes(c, p->max_queries, sizeof *p->none);
    p->all = carve_bytes(c, p->max_queries, sizeof *p->all);
    p->found = carve_bytes(c, wide, sizeof *p->found);
    p->kept = carve_bytes(c, p->max_queries * p->candidates, sizeof *p->kept);
    p->score = carve_bytes(c, wide, sizeof *p->score);
}

/* Uploads rows first .. first+n-1 of the table of ids, each with the landmark id at its end. The row after the last
 * chunk holds pads. */
static void corpus_pool_upload_ids(struct corpus_pool *p, int32_t *rows, const int32_t *ids, int64_t first, int64_t n,
                                   int32_t landmark) {
    int64_t real = p->positions - 1;
    for (int64_t r = 0; r < n; r++) {
        for (int64_t i = 0; i < real; i++)
            rows[r * p->positions + i] = first + r < p->chunks ? ids[(first + r) * real + i] : -1;
        rows[r * p->positions + real] = landmark;
    }
    device_upload(p->dev, p->ids + first * p->positions, rows, (size_t)(n * p->positions) * sizeof *rows);
}

static enum status corpus_pool_upload(struct corpus_pool *p, const int32_t *ids, const int32_t (*documents)[2],
                                      int32_t landmark) {
    static const int32_t of_all[2] = {0, INT32_MAX};
    int32_t *buffer;
    int64_t elements = UPLOAD_CHUNKS * p->positions > p->max_queries ? UPLOAD_CHUNKS * p->positions : p->max_queries;
    TRY(memory_allocate(&buffer, (size_t)elements));
    for (int64_t first = 0; first <= p->chunks; first += UPLOAD_CHUNKS) {
        int64_t left = p->chunks + 1 - first;
        corpus_pool_upload_ids(p, buffer, ids, first, left < UPLOAD_CHUNKS ? left : UPLOAD_CHUNKS, landmark);
    }
    device_upload(p->dev, p->documents, documents, (size_t)p->chunks * sizeof *documents);
    device_upload(p->dev, p->documents + 2 * p->chunks, of_all, sizeof of_all);
    for (int64_t i = 0; i < p->max_queries; i++)
        buffer[i] = (int32_t)p->chunks;
    device_upload(p->dev, p->all, buffer, (size_t)p->max_queries * sizeof *p->all);
    device_clear(p->dev, p->none, (size_t)p->max_queries * sizeof *p->none);
    memory_free(buffer);
    return device_sync(p->dev);
}

enum status corpus_pool_create(struct corpus_pool **out, struct device *dev, const struct model_config *model,
                               const struct corpus_pool_config *config) {
    struct corpus_pool *p;
    int64_t chunks = config->chunks;
    assert(config->max_queries > 0 && config->candidates > 0 && config->candidates <= CORPUS_POOL_CANDIDATES_MAX);
    if (model->base_lm || model->encoder_input != ENCODER_INPUT_TOKENS)
        return fail(STATUS_INVALID, "training: pool corpus needs encoder_input \"tokens\" in the model's config");
    if (chunks < 1 || chunks > INT32_MAX / 2)
        return fail(STATUS_INVALID, "training: pool corpus: %lld chunks of text: must be 1 to %d", (long long)chunks,
                    INT32_MAX / 2);
    TRY(memory_allocate_zero(&p, 1));
    p->dev = dev;
    p->chunks = chunks;
    p->max_queries = config->max_queries;
    p->positions = model_config_positions(model);
    p->candidates = config->candidates;
    p->hidden = model->hidden;
    p->type = config->type;
    enum status s;
    TRY_GOTO(s, carve_device(dev, &p->memory, &p->bytes, corpus_pool_layout, p), out);
    TRY_GOTO(s, corpus_pool_upload(p, config->ids, config->documents, model->landmark_id), out);
    *out = p;
out:
    if (s != STATUS_OK) corpus_pool_free(p);
    return s;
}

void corpus_pool_free(struct corpus_pool *p) {
    if (!p) return;
    device_release(p->dev, p->memory);
    memory_free(p);
}

size_t corpus_pool_bytes(const struct corpus_pool *p) {
    return p->bytes;
}

void corpus_pool_refresh(struct corpus_pool *p, struct encoder_train *encoder) {
    int64_t most = encoder_train_max_chunks(encoder);
    for (int64_t first = 0; first < p->chunks; first += most) {
        int64_t n = p->chunks - first < most ? p->chunks - first : most;
        encoder_train_encode(encoder, mat_rows(p->landmarks, first, n), p->ids + first * p->positions, n);
    }
    p->refreshed = true;
}

void corpus_pool_search(struct corpus_pool *p, int32_t *ids, int32_t (*documents)[2], struct mat queries,
                        const int32_t (*barred)[2], bool gumbel, uint64_t seed) {
    const struct topk_ops *topk = p->dev->ops->topk;
    int64_t n = queries.rows, results = n * p->candidates;
    int from = gumbel ? CORPUS_POOL_NOISE * p->candidates : p->candidates;
    assert(p->refreshed && n <= p->max_queries && queries.type == p->landmarks.type);
    struct topk_rows rows = {.own_begin = p->none,
                             .own_end = p->none,
                             .sequence_end = p->none,
                             .other_begin = p->none,
                             .other_end = p->all,
                             .document_of = (const int32_t(*)[2])p->documents,
                             .document_barred = barred};
    int64_t *selected = gumbel ? p->kept : p->found;
    struct topk_sampling sampling = {.queries = queries, .landmarks = p->landmarks, .rows = rows, .k = from};
    topk->sample(p->dev, p->found, NULL, p->score, &sampling);
    if (gumbel) topk->subsample(p->dev, selected, p->found, p->score, n, from, p->candidates, seed);
    topk->gather(p->dev, ids, p->ids, p->chunks + 1, p->positions, selected, results);
    topk->gather(p->dev, documents[0], p->documents, p->chunks + 1, 2, selected, results);
}
