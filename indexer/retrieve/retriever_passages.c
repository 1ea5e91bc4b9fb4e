/* retriever_passages.c -- continuations that overlap what they continue (retriever.h): those of the own past, and the
 * scores of all.
 *
 * A passage extends over the end of a chunk, so neither the store nor the own past has its landmark. The encoder makes
 * it, and the decoder's query scores it like that of a chunk: a passage that has a whole statement then gets more
 * weight than the chunk that has a part of it. */
#include "base/memory.h"
#include "indexer/retrieve/retriever_internal.h"
#include <assert.h>
#include <math.h>

enum status passages_open(struct passages *p, const struct chunk_retriever_config *config, int64_t most) {
    const size_t n = (size_t)most, dim = (size_t)config->model->hidden;
    *p = (struct passages){.dev = config->device,
                           .encoder = config->encoder,
                           .chunk = config->model->chunk,
                           .dim = config->model->hidden,
                           .most = most};
    TRY(memory_allocate(&p->ids, n * (size_t)p->chunk));
    TRY(memory_allocate(&p->scored, n));
    TRY(device_pair_allocate(p->dev, &p->rows, n * dim * sizeof(float)));
    return p->dev->shares_memory ? STATUS_OK : memory_allocate(&p->queries, n * dim);
}

void passages_close(struct passages *p) {
    if (!p->dev) return;
    memory_free(p->ids);
    memory_free(p->scored);
    memory_free(p->queries);
    device_pair_release(p->dev, &p->rows);
    *p = (struct passages){0};
}

void passages_of_own_past(struct neighbour_candidate *list, int64_t *n, int k, int64_t chunks,
                          const struct chunk_retriever_config *config) {
    const int64_t chunk_ids = config->model->chunk, step = chunk_ids - config->overlap;
    int64_t id[CHUNK_RETRIEVER_TOPK_MAX];
    float score[CHUNK_RETRIEVER_TOPK_MAX], weight[CHUNK_RETRIEVER_TOPK_MAX];
    int8_t source[CHUNK_RETRIEVER_TOPK_MAX];
    const struct neighbour_row best = {.id = id, .score = score, .weight = weight, .source = source};
    int used = 0, most = PASSAGES_PER_HIT * k;
    neighbours_select(&best, k, list, *n);
    for (int i = 0; i < k && id[i] >= 0; i++)
        for (int64_t j = 0; j <= config->continuation; j++) {
            const int64_t at = id[i] * chunk_ids + j * step;
            if (at + chunk_ids > chunks * chunk_ids) break;
            used = passages_put(list, used, most,
                                (struct neighbour_candidate){.score = j == 0 ? score[i] : NAN,
                                                             .source = NEIGHBOUR_OWN_PAST,
                                                             .id = at / chunk_ids,
                                                             .offset = (int16_t)(at % chunk_ids)});
        }
    *n = used;
}

int passages_put(struct neighbour_candidate *list, int n, int most, struct neighbour_candidate one) {
    for (int i = 0; i < n; i++)
        if (list[i].id == one.id && list[i].offset == one.offset) return n;
    if (n < most) list[n++] = one;
    return n;
}

int32_t *passages_add(struct passages *p, struct neighbour_candidate *one, int64_t query) {
    assert(p->n < p->most);
    p->scored[p->n] = (struct passage_score){one, query};
    return p->ids + p->n++ * p->chunk;
}

enum status passages_score(struct passages *p, struct mat queries) {
    const int64_t n = p->n;
    const float *q = p->queries ? p->queries : queries.data, *rows = p->rows.host;
    p->n = 0;
    if (n == 0) return STATUS_OK;
    encoder_encode(p->encoder, &(struct encoder_output){.landmarks = p->rows.device}, p->ids, n);
    device_pair_download(p->dev, &p->rows, (size_t)(n * p->dim) * sizeof(float));
    if (p->queries) device_download(p->dev, p->queries, queries.data, mat_bytes(queries));
    TRY(device_sync(p->dev));
    for (int64_t i = 0; i < n; i++) {
        double dot = 0;
        for (int64_t d = 0; d < p->dim; d++)
            dot += (double)q[p->scored[i].query * p->dim + d] * (double)rows[i * p->dim + d];
        p->scored[i].candidate->score = (float)(dot / sqrt((double)p->dim));
    }
    return STATUS_OK;
}
