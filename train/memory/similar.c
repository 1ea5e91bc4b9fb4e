/* similar.c -- see similar.h: the corpus, and the passages of a batch. */
#include "base/memory.h"
#include "train/memory/similar_internal.h"
#include <assert.h>
#include <string.h>

/* ---- the corpus ---------------------------------------------------------------------------------------------------
 */

/* Chunks lie in the order of documents, so a document's are a range. */
static enum status similar_index_documents(struct similar_text *t, const struct batches_corpus *chunks) {
    t->chunks = chunks->chunks;
    t->documents = batches_documents(t->batches);
    t->first_document = t->documents > 0 ? batches_document_of(t->batches, 0) : 0;
    TRY(memory_allocate_zero(&t->document_first, (size_t)t->documents + 1));
    int64_t *first = t->document_first;
    for (int64_t c = 0; c < chunks->chunks; c++)
        first[chunks->documents[c][0] - t->first_document + 1]++;
    for (int64_t d = 0; d < t->documents; d++)
        first[d + 1] += first[d];
    return STATUS_OK;
}

static enum status similar_collect(struct similar *n) {
    TRY(batches_corpus_make(&n->corpus, n->text.batches));
    TRY(similar_index_documents(&n->text, &n->corpus));
    if (n->valid.batches) {
        TRY(batches_corpus_make(&n->valid_corpus, n->valid.batches));
        TRY(similar_index_documents(&n->valid, &n->valid_corpus));
    }
    if (!n->pool.batches) return STATUS_OK;
    return batches_corpus_append(&n->corpus, n->pool.batches);
}

enum status similar_open(struct similar **out, const struct similar_config *config) {
    struct similar *n;
    assert(config->passages > 0 && config->span > 0);
    TRY(memory_allocate_zero(&n, 1));
    n->config = *config;
    n->model = *config->model;
    n->config.model = NULL;
    n->each = config->passages + SIMILAR_SPARE;
    n->text.batches = config->text;
    n->pool.batches = config->pool;
    n->valid.batches = config->valid;
    enum status s = similar_collect(n);
    if (s == STATUS_OK) s = similar_find(n);
    n->config.path = NULL, n->config.progress = NULL, n->config.threads = NULL; /* borrowed for the call */
    if (s == STATUS_OK)
        *out = n;
    else
        similar_free(n);
    return s;
}

void similar_free(struct similar *n) {
    if (!n) return;
    similar_packing_free(n->packing);
    batches_corpus_free(&n->corpus);
    batches_corpus_free(&n->valid_corpus);
    struct similar_text *texts[] = {&n->text, &n->pool, &n->valid};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        memory_free(texts[i]->document_first);
        memory_free(texts[i]->found);
    }
    memory_free(n);
}

/* ---- a batch ------------------------------------------------------------------------------------------------------
 */

static int64_t similar_document_first(const struct similar_text *t, int32_t document) {
    return t->document_first[document - t->first_document];
}

int64_t similar_chunk_start(const struct similar *n, const struct similar_text *t, int64_t chunk) {
    const struct batches_corpus *of = t == &n->valid ? &n->valid_corpus : &n->corpus;
    int32_t document = of->documents[chunk][0];
    return batches_document_start(t->batches, document) +
           (chunk - similar_document_first(t, document)) * n->model.chunk;
}

/* The last chunk of the position's document that ends at or before it; -1: there is none. */
static int64_t similar_asking(const struct similar *n, const struct similar_text *t, int64_t position) {
    int32_t document = batches_document_of(t->batches, position);
    int64_t done = (position - batches_document_start(t->batches, document)) / n->model.chunk;
    return done == 0 ? -1 : similar_document_first(t, document) + done - 1;
}

/* The passage that begins with a chunk, and the id after it; -1 after its document's end. */
static void similar_write_passage(const struct similar *n, int32_t *out, int64_t chunk) {
    int64_t size = n->model.chunk;
    int32_t document = n->corpus.documents[chunk][0];
    for (int64_t i = 0; i <= n->config.span; i++) {
        int64_t c = chunk + i, ids = i == n->config.span ? 1 : size;
        bool same = c < n->corpus.chunks && n->corpus.documents[c][0] == document;
        for (int64_t j = 0; j < ids; j++)
            out[i * size + j] = same ? n->corpus.ids[c * size + j] : -1;
    }
}

size_t similar_ids(const struct similar *n, int64_t blocks) {
    return (size_t)(blocks * n->config.passages * (n->config.span * n->model.chunk + 1));
}

size_t similar_documents(const struct similar *n, int64_t blocks) {
    return (size_t)(blocks * n->config.passages);
}

/* The passages of one block: what its documents and the next block's do not have. */
static void similar_fill_block(const struct similar *n, int32_t *ids, int32_t *documents, int64_t asking,
                               const struct similar_text *t, const int32_t barred[2]) {
    int64_t numbers = n->config.span * n->model.chunk + 1;
    int used = 0;
    for (int i = 0; asking >= 0 && i < n->each && used < n->config.passages; i++) {
        int32_t chunk = t->found[asking * n->each + i];
        if (chunk < 0) break;
        int32_t document = n->corpus.documents[chunk][0];
        if (document >= barred[0] && document <= barred[1]) continue;
        similar_write_passage(n, ids + used * numbers, chunk);
        documents[used++] = document;
    }
    for (; used < n->config.passages; used++) {
        for (int64_t i = 0; i < numbers; i++)
            ids[used * numbers + i] = -1;
        documents[used] = -1;
    }
}

void similar_fill(const struct similar *n, struct batch *batch, int32_t *ids, int32_t *documents, bool valid) {
    const struct similar_text *t = valid ? &n->valid : &n->text;
    int64_t chunk = n->model.chunk, each = n->model.base_lm ? batch->chunks / chunk : batch->chunks;
    int64_t numbers = n->config.passages * (n->config.span * chunk + 1);
    for (int64_t b = 0; b < batch->sequences * each; b++) {
        int64_t position = batch->starts[b / each] + b % each * chunk;
        bool last = b % each == each - 1;
        const int32_t barred[2] = {batch->documents[b][0], batch->documents[last ? b : b + 1][1]};
        similar_fill_block(n, ids + b * numbers, documents + b * n->config.passages, similar_asking(n, t, position), t,
                           barred);
    }
    batch->passages = ids;
    batch->passage_documents = documents;
}
