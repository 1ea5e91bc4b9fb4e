/* memory_source_found.c -- searches whose hits stay on the device: after the plan, this process does nothing. */
#include "base/clock.h"
#include "base/minmax.h"
#include "indexer/retrieve/memory_source_internal.h"
#include "kernels/ops.h"
#include <assert.h>

static enum status found_allocate(struct memory_source *m, struct source_found *f) {
    static const int64_t row_begin[2] = {0, 1};
    struct device *dev = m->config.device;
    const size_t k = (size_t)m->config.k;
    TRY(device_pair_allocate(dev, &f->chunks, k * sizeof(int64_t)));
    TRY(device_allocate(dev, &f->scores, k));
    TRY(device_allocate(dev, &f->marks, 1));
    TRY(device_allocate(dev, &f->row_begin, 2));
    TRY(device_allocate(dev, &f->passages.slot, k));
    TRY(device_allocate(dev, &f->passages.entries, k));
    device_upload(dev, f->row_begin, row_begin, sizeof row_begin);
    return device_fault(dev);
}

enum status source_found_allocate(struct memory_source *m) {
    for (int turn = 0; turn < MEMORY_FOUND_TURNS; turn++)
        TRY(found_allocate(m, &m->found[turn]));
    return STATUS_OK;
}

enum status source_ordered_allocate(struct memory_source *m) {
    struct device *dev = m->config.device;
    const struct candidate_terms terms = candidate_order_terms(m->order);
    const size_t n = (size_t)m->found_k;
    if (m->found_k > CANDIDATES_MAX || m->packed->chunk_rows > CANDIDATES_ROWS_MAX) return STATUS_OK;
    TRY(device_allocate(dev, &m->ordered.idf, (size_t)terms.vocab));
    TRY(device_allocate(dev, &m->ordered.chunk, n));
    TRY(device_allocate(dev, &m->ordered.score, n));
    TRY(device_allocate(dev, &m->ordered.landmark, n));
    device_upload(dev, m->ordered.idf, terms.idf, (size_t)terms.vocab * sizeof *terms.idf);
    return device_fault(dev);
}

void source_found_free(struct memory_source *m) {
    struct device *dev = m->config.device;
    device_release(dev, m->ordered.idf);
    device_release(dev, m->ordered.chunk);
    device_release(dev, m->ordered.score);
    device_release(dev, m->ordered.landmark);
    for (int turn = 0; turn < MEMORY_FOUND_TURNS; turn++) {
        struct source_found *f = &m->found[turn];
        device_pair_release(dev, &f->chunks);
        device_release(dev, f->scores);
        device_release(dev, f->marks);
        device_release(dev, f->row_begin);
        device_release(dev, f->passages.slot);
        device_release(dev, f->passages.entries);
    }
}

bool memory_source_finds_on_device(const struct memory_source *m, struct mat vector) {
    const struct memory_finder *f = &m->config.finder;
    return m->lexical && (!m->order || m->ordered.idf) && m->found[0].marks &&
           (vector.data || !searcher_ranks_vectors(f->searcher)) &&
           searcher_finds_on_device(f->searcher, m->found_k, f->landmark_weight);
}

/* Searches with an order: more chunks are found, and the best k of them become the hits. */
static enum status found_order(struct memory_source *m, const struct source_found *f, const struct searcher_query *q) {
    struct device *dev = m->config.device;
    struct searcher *searcher = m->config.finder.searcher;
    const struct source_ordered *o = &m->ordered;
    float *landmark = searcher_ranks_vectors(searcher) ? o->landmark : NULL;
    TRY(searcher_queue_on_device(searcher, (struct searcher_found){o->chunk, o->score, landmark}, q));
    struct candidates c = {.chunk = o->chunk,
                           .score = o->score,
                           .landmark = landmark,
                           .n = q->k,
                           .query = q->tokens->ids,
                           .query_ids = q->tokens->n,
                           .terms = candidate_order_terms(m->order),
                           .of = m->packed};
    c.terms.idf = o->idf;
    dev->ops->candidates->order(dev, f->chunks.device, f->scores, &c, m->config.k);
    return STATUS_OK;
}

enum status memory_source_find_on_device(struct memory_source *m, int turn, struct memory_found *out,
                                         const int32_t *ids, int64_t at, struct mat vector) {
    const double start = clock_seconds();
    struct device *dev = m->config.device;
    struct source_found *f = &m->found[turn];
    const int k = m->config.k;
    struct searcher_query q;
    assert(memory_source_finds_on_device(m, vector) && turn >= 0 && turn < MEMORY_FOUND_TURNS);
    TRY(memory_source_words(m, &q, ids, at));
    q.device_vectors = vector;
    const struct searcher_found hits = {f->chunks.device, f->scores, NULL};
    TRY(m->order ? found_order(m, f, &q) : searcher_queue_on_device(m->config.finder.searcher, hits, &q));
    device_fetch(dev, f->chunks.host, f->chunks.device, (size_t)k * sizeof(int64_t));
    const float tokens = (float)max_i64(memory_source_query(m, at), 1);
    dev->ops->next_token->marks(dev, f->marks, f->chunks.device, f->scores, k, tokens);
    dev->ops->packed_keys->passages(dev, f->passages, m->packed, f->chunks.device, k, m->config.before,
                                    m->config.after);
    *out = (struct memory_found){
        .slots = memory_source_packed(m, f->passages, f->row_begin, 1, 1), .marks = f->marks, .chunks = f->chunks.host};
    m->stats.found++;
    m->stats.find_seconds += clock_seconds() - start;
    return STATUS_OK;
}
