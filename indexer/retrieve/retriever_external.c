/* retriever_external.c -- searches a corpus whose landmarks an external encoder made.
 *
 * The query of chunk t is the text of chunk t. The external encoder ranks the chunks. But the decoder was trained with
 * weights from the scores of its own landmarks. So this model's encoder encodes the candidates, and their landmarks are
 * scored with the decoder's query, as in a store of this model. */
#include "base/memory.h"
#include "indexer/retrieve/retriever_internal.h"
#include <math.h>
#include <string.h>

enum status corpus_external_open(struct corpus_external *x, const struct chunk_retriever_config *config,
                                 int64_t max_queries, int k) {
    size_t n = (size_t)(max_queries * k), dim = (size_t)config->model->hidden, chunk = (size_t)config->model->chunk;
    size_t other = (size_t)external_encoder_fingerprint(config->external).dim;
    TRY(memory_allocate(&x->vectors, (size_t)max_queries * other));
    TRY(memory_allocate(&x->query_ids, (size_t)max_queries * chunk));
    TRY(memory_allocate(&x->ids, n * chunk));
    TRY(device_pair_allocate(config->device, &x->rows, n * dim * sizeof(float)));
    if (!config->device->shares_memory) TRY(memory_allocate(&x->queries, (size_t)max_queries * dim));
    return STATUS_OK;
}

void corpus_external_close(struct corpus_external *x, struct device *dev) {
    memory_free(x->vectors);
    memory_free(x->query_ids);
    memory_free(x->ids);
    memory_free(x->queries);
    device_pair_release(dev, &x->rows);
}

/* All groups search for the same chunks, one after another, so the query vectors are made once. */
enum status corpus_external_vectors(struct corpus_side *c, int64_t first, int64_t n) {
    struct corpus_external *x = &c->external;
    int64_t chunk = c->config.model->chunk, tail_begin = c->tail_end - c->tail_count;
    if (x->first == first && x->n == n) return STATUS_OK;
    x->n = 0;
    for (int64_t i = 0; i < n * chunk; i++) {
        int64_t at = first * chunk + i;
        x->query_ids[i] = at >= tail_begin && at < c->tail_end ? c->tail[at - tail_begin] : -1;
    }
    TRY(external_encoder_queries(c->config.external, x->vectors, x->query_ids, n));
    x->first = first;
    x->n = n;
    return STATUS_OK;
}

/* Copies the ids of the candidates of all lists, from entry `before[i]` of list i on. *m is the
 * number of candidates. */
static enum status external_read(struct corpus_side *c, struct corpus_lists to, const int64_t *before, int64_t n,
                                 int64_t *m) {
    int64_t chunk = c->config.model->chunk;
    *m = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = before[i]; j < to.used[i]; j++) {
            const struct neighbour_candidate *one = &to.lists[i * to.stride + j];
            struct store_chunk at;
            TRY(store_view_ids(c->view, &at, c->external.ids + *m * chunk, one->id, one->offset));
            ++*m;
        }
    return STATUS_OK;
}

enum status corpus_external_score(struct corpus_side *c, struct corpus_lists to, const int64_t *before,
                                  struct mat queries, int64_t n) {
    struct corpus_external *x = &c->external;
    struct device *dev = c->config.device;
    int64_t dim = c->config.model->hidden, m, row = 0;
    TRY(external_read(c, to, before, n, &m));
    if (m == 0) return STATUS_OK;
    const struct encoder_output out = {.landmarks = x->rows.device};
    encoder_encode(c->config.encoder, &out, x->ids, m);
    device_pair_download(dev, &x->rows, (size_t)(m * dim) * sizeof(float));
    const float *q = x->queries ? x->queries : queries.data, *rows = x->rows.host;
    if (x->queries) device_download(dev, x->queries, queries.data, mat_bytes(mat_rows(queries, 0, n)));
    TRY(device_sync(dev));
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = before[i]; j < to.used[i]; j++, row++) {
            double dot = 0;
            for (int64_t d = 0; d < dim; d++)
                dot += (double)q[i * dim + d] * (double)rows[row * dim + d];
            to.lists[i * to.stride + j].score = (float)(dot / sqrt((double)dim));
        }
    return STATUS_OK;
}
