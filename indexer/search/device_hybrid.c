/* device_hybrid.c -- see device_hybrid.h. */
#include "indexer/search/device_hybrid.h"
#include "base/memory.h"
#include "base/minmax.h"
#include "kernels/device/carve.h"
#include "kernels/ops.h"
#include <assert.h>

enum { BATCH = DEVICE_LEXICAL_BATCH };

struct device_hybrid {
    struct device_hybrid_config config;
    void *memory; /* of the parts below, on the device */
    size_t bytes;
    struct device_stage hole; /* int64 [BATCH][2] */
    struct hit_buffer found;
};

/* What a batch of n queries needs between its ops. */
struct hybrid_parts {
    int64_t n;
    int words, landmarks;
    struct mat vectors; /* [n, dim] */
    struct hit_list of_words, of_landmarks;
    float *bm25; /* of the landmarks' chunks */
};

static void hybrid_divide(struct hybrid_parts *p, struct carve *c) {
    const int64_t words = p->n * p->words, landmarks = p->n * p->landmarks;
    p->vectors.data = carve_bytes(c, p->n * p->vectors.cols, sizeof(float));
    p->of_words.index = carve_bytes(c, words, sizeof(int64_t));
    p->of_words.score = carve_bytes(c, words, sizeof(float));
    p->of_landmarks.index = carve_bytes(c, landmarks, sizeof(int64_t));
    p->of_landmarks.score = carve_bytes(c, landmarks, sizeof(float));
    p->bm25 = carve_bytes(c, landmarks, sizeof(float));
}

static enum status hybrid_parts_of(struct device_hybrid *h, struct hybrid_parts *p, int64_t n,
                                   const struct device_hybrid_how *how) {
    const struct mat rows = h->config.landmarks.lists.rows;
    struct carve count = {0};
    *p = (struct hybrid_parts){n, how->words.k, how->landmarks, mat_f32(NULL, n, rows.cols), {0}, {0}, NULL};
    hybrid_divide(p, &count);
    if (count.used > h->bytes) {
        device_release(h->config.device, h->memory);
        h->memory = NULL, h->bytes = 0;
        TRY(device_allocate_bytes(h->config.device, &h->memory, count.used));
        h->bytes = count.used;
    }
    struct carve real = {.base = h->memory};
    hybrid_divide(p, &real);
    return STATUS_OK;
}

enum status device_hybrid_create(struct device_hybrid **out, const struct device_hybrid_config *config) {
    struct device_hybrid *h;
    TRY(memory_allocate_zero(&h, 1));
    h->config = *config;
    const enum status s = device_stage_reserve(config->device, &h->hole, sizeof(int64_t[BATCH][2]));
    if (s == STATUS_OK)
        *out = h;
    else
        device_hybrid_free(h);
    return s;
}

void device_hybrid_free(struct device_hybrid *h) {
    if (!h) return;
    device_release(h->config.device, h->memory);
    device_stage_release(h->config.device, &h->hole);
    hit_buffer_release(&h->found, h->config.device);
    memory_free(h);
}

/* *out: the ranges that queries never find; NULL: none. */
static void hybrid_holes(struct device_hybrid *h, const int64_t (**out)[2], const struct searcher_query *q) {
    int64_t(*hole)[2] = h->hole.host;
    *out = NULL;
    if (!q->exclude) return;
    for (int64_t i = 0; i < q->n; i++) {
        hole[i][0] = q->exclude[i].begin;
        hole[i][1] = q->exclude[i].end;
    }
    device_stage_upload(h->config.device, &h->hole, (size_t)q->n * sizeof *hole);
    *out = device_stage_device(h->config.device, &h->hole);
}

enum status device_hybrid_queue(struct device_hybrid *h, struct searcher_found out, const struct searcher_query *q,
                                const struct device_hybrid_how *how) {
    struct device *dev = h->config.device;
    const struct landmark_lists *l = &h->config.landmarks;
    const int64_t(*hole)[2];
    struct hybrid_parts p;
    assert(q->n <= BATCH && q->bm25 && how->weight > 0);
    TRY(hybrid_parts_of(h, &p, q->n, how));
    if (q->device_vectors.data)
        p.vectors = mat_rows(q->device_vectors, 0, q->n);
    else
        device_upload(dev, p.vectors.data, q->vectors, mat_bytes(p.vectors));
    hybrid_holes(h, &hole, q);
    dev->ops->ivf_scan->forward(dev, p.of_landmarks.index, p.of_landmarks.score, p.vectors, l->lists, hole,
                                how->nprobe > 0 ? how->nprobe : l->nprobe, p.landmarks);
    const struct device_lexical_given given = {p.of_landmarks.index, p.bm25, p.landmarks};
    TRY(device_lexical_queue_into(h->config.lexical, p.of_words.index, p.of_words.score, q->tokens, q->n, &how->words,
                                  &given));
    const struct hybrid_merge merge = {.queries = p.vectors,
                                       .words = {p.of_words.index, p.of_words.score, p.words},
                                       .landmarks = {p.of_landmarks.index, p.bm25, p.landmarks},
                                       .rows = l->lists.rows,
                                       .row_of = l->row_of,
                                       .chunks = l->chunks,
                                       .weight = how->weight,
                                       .product = out.landmark};
    dev->ops->hybrid->merge(dev, out.chunk, out.score, &merge, q->k);
    return STATUS_OK;
}

/* Queries first .. first+n-1. */
static struct searcher_query hybrid_batch(const struct searcher_query *q, int64_t first, int64_t n, int64_t dim) {
    struct searcher_query batch = *q;
    batch.n = n;
    batch.tokens += first;
    if (q->vectors) batch.vectors += first * dim;
    if (q->device_vectors.data) batch.device_vectors = mat_rows(q->device_vectors, first, n);
    if (q->exclude) batch.exclude += first;
    return batch;
}

enum status device_hybrid_search(struct device_hybrid *h, struct store_hit *hits, const struct searcher_query *q,
                                 const struct device_hybrid_how *how) {
    struct device *dev = h->config.device;
    struct device_hybrid_how batch_how = *how;
    TRY(hit_buffer_reserve(&h->found, dev, min_i64(q->n, BATCH) * q->k));
    for (int64_t i = 0, n; i < q->n; i += n) {
        n = min_i64(q->n - i, BATCH);
        const int64_t count = n * q->k;
        const struct searcher_query batch = hybrid_batch(q, i, n, h->config.landmarks.lists.rows.cols);
        const struct hit_list hits_host = hit_buffer_host(&h->found, count),
                              hits_device = hit_buffer_mapped(&h->found, count);
        batch_how.words.exclude = batch.exclude;
        TRY(device_hybrid_queue(h, (struct searcher_found){hits_device.index, hits_device.score, NULL}, &batch,
                                &batch_how));
        device_fetch(dev, hits_host.index, hits_device.index, hit_list_bytes(count));
        device_fetch_wait(dev);
        TRY(device_fault(dev));
        for (int64_t j = 0; j < count; j++)
            hits[i * q->k + j] = (struct store_hit){.chunk = hits_host.index[j], .score = hits_host.score[j]};
    }
    return STATUS_OK;
}
