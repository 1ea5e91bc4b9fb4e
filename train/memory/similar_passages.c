/* similar_passages.c -- see similar_passages.h: the tables of the corpus, and the passages of a batch. */
#include "base/memory.h"
#include "train/memory/similar_passages_internal.h"
#include <assert.h>
#include <string.h>

/* ---- the corpus ---------------------------------------------------------------------------------------------------
 */

/* Chunks are ordered by document, so that the chunks of a document are a range. */
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
    enum status s = batches_corpus_make(&n->corpus, n->text.batches);
    if (s != STATUS_OK) return fail_context(s, "data");
    TRY(similar_index_documents(&n->text, &n->corpus));
    if (n->valid.batches) {
        s = batches_corpus_make(&n->valid_corpus, n->valid.batches);
        if (s != STATUS_OK) return fail_context(s, "valid");
        TRY(similar_index_documents(&n->valid, &n->valid_corpus));
    }
    if (!n->pool.batches) return STATUS_OK;
    s = batches_corpus_append(&n->corpus, n->pool.batches);
    return s == STATUS_OK ? s : fail_context(s, "pool_data");
}

enum status similar_open(struct similar **out, const struct similar_config *config) {
    struct similar *n;
    assert(config->passages > 0 && config->span > 0 && config->passages + config->coming <= SIMILAR_MAX);
    assert(config->model->chunk <= SIMILAR_CHUNK_MAX);
    TRY(memory_allocate_zero(&n, 1));
    n->config = *config;
    n->model = *config->model;
    n->config.model = NULL;
    n->each = config->passages + SIMILAR_SPARE;
    if (config->coming > 0) n->each_coming = config->coming + config->passages + SIMILAR_SPARE;
    n->text.batches = config->text;
    n->pool.batches = config->pool;
    n->valid.batches = config->valid;
    enum status s;
    TRY_GOTO(s, similar_collect(n), out);
    s = similar_find(n);
out:
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
        memory_free(texts[i]->coming);
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

/* The last chunk of the position's document that ends at or before the position; -1: there is none. */
static int64_t similar_asking(const struct similar *n, const struct similar_text *t, int64_t position) {
    int32_t document = batches_document_of(t->batches, position);
    int64_t done = (position - batches_document_start(t->batches, document)) / n->model.chunk;
    return done == 0 ? -1 : similar_document_first(t, document) + done - 1;
}

/* Copies the ids of the passage that begins with a chunk, and the id that follows it; -1 after the end of the
 * document. */
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
    return similar_documents(n, blocks) * (size_t)(n->config.span * n->model.chunk + 1);
}

size_t similar_documents(const struct similar *n, int64_t blocks) {
    return (size_t)(blocks * (n->config.passages + n->config.coming));
}

/* The output slots of one block, and the documents that its passages must not come from: its own and those of the next
 * block. */
struct similar_block {
    int32_t *ids, *documents;
    int32_t barred[2];
    const int32_t *taken; /* [n_taken] chunks that have a slot */
    int n_taken;
};

static bool similar_usable(const struct similar *n, const struct similar_block *b, int32_t chunk) {
    int32_t document = n->corpus.documents[chunk][0];
    for (int i = 0; i < b->n_taken; i++)
        if (b->taken[i] == chunk) return false;
    return document < b->barred[0] || document > b->barred[1];
}

/* Fills slots first .. first + most - 1 with allowed ones of the [each] chunks that a search found (NULL: none), and
 * writes their numbers to `taken`. Returns how many slots have a passage. */
static int similar_fill_slots(const struct similar *n, const struct similar_block *b, int first, int most,
                              const int32_t *found, int each, int32_t *taken) {
    int64_t numbers = n->config.span * n->model.chunk + 1;
    int used = 0;
    for (int i = 0; found && i < each && used < most && found[i] >= 0; i++) {
        if (!similar_usable(n, b, found[i])) continue;
        similar_write_passage(n, b->ids + (first + used) * numbers, found[i]);
        b->documents[first + used] = n->corpus.documents[found[i]][0];
        taken[used++] = found[i];
    }
    for (int slot = first + used; slot < first + most; slot++) {
        for (int64_t i = 0; i < numbers; i++)
            b->ids[slot * numbers + i] = -1;
        b->documents[slot] = -1;
    }
    return used;
}

static void similar_fill_block(const struct similar *n, struct similar_block *b, const struct similar_text *t,
                               int64_t asking) {
    int32_t taken[SIMILAR_MAX];
    int passages = n->config.passages, coming = n->config.coming;
    bool known = asking >= 0;
    b->taken = taken;
    b->n_taken = 0;
    b->n_taken = similar_fill_slots(n, b, 0, passages, known ? t->found + asking * n->each : NULL, n->each, taken);
    if (coming == 0) return;
    const int32_t *found = known ? t->coming + asking * n->each_coming : NULL;
    similar_fill_slots(n, b, passages, coming, found, n->each_coming, taken + b->n_taken);
}

void similar_fill(const struct similar *n, struct batch *batch, int32_t *ids, int32_t *documents, bool valid) {
    const struct similar_text *t = valid ? &n->valid : &n->text;
    int64_t chunk = n->model.chunk, each = n->model.base_lm ? batch->chunks / chunk : batch->chunks;
    int64_t slots = n->config.passages + n->config.coming, numbers = slots * (n->config.span * chunk + 1);
    for (int64_t b = 0; b < batch->sequences * each; b++) {
        int64_t position = batch->starts[b / each] + b % each * chunk;
        bool last = b % each == each - 1;
        struct similar_block to = {.ids = ids + b * numbers,
                                   .documents = documents + b * slots,
                                   .barred = {batch->documents[b][0], batch->documents[last ? b : b + 1][1]}};
        similar_fill_block(n, &to, t, similar_asking(n, t, position));
    }
    batch->passages = ids;
    batch->passage_documents = documents;
}
