/* external_encoder.c -- see external_encoder.h. */
#include "indexer/build/external_encoder.h"
#include "base/memory.h"
#include "data/wordpiece/wordpiece.h"
#include "encoder/bert/bert_encoder.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* the state of a hash on the stack */
#include <xxhash.h>

/* PADDED_ROWS: embeddings are often padded to a multiple of 64 or 128 rows, so a vocabulary may have fewer tokens. */
enum { BATCH = 256, BATCH_GPU = 1024, PADDED_ROWS = 128 };

const char *const external_kind_names[EXTERNAL_KINDS] = {"auto", "cosine", "dot", "e5"};

struct external_encoder {
    struct external_encoder_config config;
    enum external_kind kind; /* never AUTO */
    struct bert *bert;
    struct wordpiece *wordpiece;
    struct wordpiece_scratch *pieces;
    struct tokenizer_scratch *decoded;
    char *text;
    size_t text_capacity;
    int32_t *ids; /* of a batch of texts, one after the other */
    size_t n_ids, ids_capacity;
    int64_t begin[BATCH_GPU + 1];
};

static enum status external_open_parts(struct external_encoder *e) {
    const struct external_encoder_config *c = &e->config;
    struct bert_config sizes; /* before the weights, which take longer */
    TRY(bert_config_load(&sizes, c->folder));
    TRY(wordpiece_open(&e->wordpiece, c->folder));
    int32_t have = wordpiece_vocab_size(e->wordpiece);
    if (have > sizes.vocab_size)
        return fail(STATUS_MISMATCH, "%s: vocab.txt has %d tokens, but config.json says vocab_size %d", c->folder, have,
                    sizes.vocab_size);
    if (sizes.vocab_size - have >= PADDED_ROWS)
        return fail(STATUS_MISMATCH,
                    "%s: vocab.txt has %d tokens, but config.json says vocab_size %d: the file is not whole; copy it "
                    "again",
                    c->folder, have, sizes.vocab_size);
    if (sizes.lower && !wordpiece_lowers(e->wordpiece))
        return fail(STATUS_UNSUPPORTED,
                    "%s: sentence_bert_config.json has do_lower_case true, and the tokenizer keeps case: this is not "
                    "supported",
                    c->folder);
    TRY(wordpiece_scratch_create(&e->pieces));
    TRY(tokenizer_scratch_create(&e->decoded, c->tokenizer));
    return bert_open(&e->bert, c->folder, c->device, c->type);
}

enum status external_encoder_open(struct external_encoder **out, const struct external_encoder_config *config) {
    struct external_encoder *e;
    TRY(memory_allocate_zero(&e, 1));
    e->config = *config;
    e->kind = config->kind == EXTERNAL_AUTO ? EXTERNAL_COSINE : config->kind;
    enum status s = external_open_parts(e);
    if (s == STATUS_OK)
        *out = e;
    else
        external_encoder_close(e);
    return s;
}

void external_encoder_close(struct external_encoder *e) {
    if (!e) return;
    bert_close(e->bert);
    wordpiece_scratch_free(e->pieces);
    wordpiece_free(e->wordpiece);
    tokenizer_scratch_free(e->decoded);
    memory_free(e->text);
    memory_free(e->ids);
    memory_free(e);
}

static struct store_fingerprint external_fingerprint(const struct external_encoder *e, enum external_kind kind) {
    struct store_fingerprint f = {.chunk_tokens = e->config.model->chunk,
                                  .dim = bert_config_of(e->bert)->hidden,
                                  .vocab_size = e->config.model->vocab_size};
    uint8_t parts[2][16];
    XXH3_state_t state;
    XXH128_canonical_t canonical;
    bert_fingerprint(e->bert, parts[0]);
    wordpiece_fingerprint(e->wordpiece, parts[1]);
    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, external_kind_names[kind], strlen(external_kind_names[kind]) + 1);
    XXH3_128bits_update(&state, parts, sizeof parts);
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
    memcpy(f.encoder, canonical.digest, sizeof f.encoder);
    tokenizer_fingerprint(e->config.tokenizer, f.tokenizer);
    return f;
}

struct store_fingerprint external_encoder_fingerprint(const struct external_encoder *e) {
    return external_fingerprint(e, e->kind);
}

enum status external_encoder_check(struct external_encoder *e, const char *path,
                                   const struct store_fingerprint *store) {
    struct store_fingerprint mine = external_encoder_fingerprint(e);
    for (int kind = EXTERNAL_COSINE; kind < EXTERNAL_KINDS && e->config.kind == EXTERNAL_AUTO; kind++) {
        mine = external_fingerprint(e, (enum external_kind)kind);
        if (memcmp(mine.encoder, store->encoder, sizeof mine.encoder) != 0) continue;
        e->kind = (enum external_kind)kind;
        break;
    }
    return store_check_fingerprint(path, store, e->config.folder, &mine);
}

int64_t external_encoder_batch(const struct external_encoder *e) {
    return e->config.device->shares_memory ? BATCH : BATCH_GPU;
}

uint64_t external_encoder_bytes(const struct external_encoder *e) {
    return e->config.device->shares_memory ? bert_bytes(e->bert) : 0;
}

/* ---- texts ---------------------------------------------------------------------------------------------------- */

/* Adds one text to the batch, at position `at`. */
static enum status external_add_text(struct external_encoder *e, int64_t at, bool query, const char *text,
                                     size_t bytes) {
    const char *prefix = e->kind != EXTERNAL_E5 ? "" : query ? "query: " : "passage: ";
    const int32_t *ids;
    size_t n, before = strlen(prefix);
    if (before > 0) {
        TRY(memory_grow(&e->text, &e->text_capacity, before + bytes));
        memcpy(e->text, prefix, before);
        memcpy(e->text + before, text, bytes);
        text = e->text;
    }
    TRY(wordpiece_encode(e->wordpiece, e->pieces, text, before + bytes, (size_t)bert_config_of(e->bert)->max_tokens,
                         &ids, &n));
    if (at == 0) e->n_ids = 0;
    TRY(memory_grow(&e->ids, &e->ids_capacity, e->n_ids + n));
    memcpy(e->ids + e->n_ids, ids, n * sizeof *ids);
    e->begin[at] = (int64_t)e->n_ids;
    e->n_ids += n;
    e->begin[at + 1] = (int64_t)e->n_ids;
    return STATUS_OK;
}

static enum status external_add_chunk(struct external_encoder *e, int64_t at, bool query, const int32_t *ids) {
    const char *text;
    size_t bytes, n = 0;
    while (n < (size_t)e->config.model->chunk && ids[n] >= 0)
        n++;
    TRY(tokenizer_decode(e->config.tokenizer, e->decoded, ids, n, true, &text, &bytes));
    return external_add_text(e, at, query, text, bytes);
}

static void external_scale(const struct external_encoder *e, float *rows, int64_t n) {
    int64_t dim = bert_config_of(e->bert)->hidden;
    for (int64_t i = 0; i < n * dim; i++)
        rows[i] *= sqrtf((float)dim);
}

static enum status external_encode(struct external_encoder *e, float *rows, const int32_t *ids, int64_t n, bool query) {
    int64_t dim = bert_config_of(e->bert)->hidden, part;
    for (int64_t i = 0; i < n; i += part) {
        part = n - i < external_encoder_batch(e) ? n - i : external_encoder_batch(e);
        for (int64_t j = 0; j < part; j++)
            TRY(external_add_chunk(e, j, query, ids + (i + j) * e->config.model->chunk));
        TRY(bert_encode(e->bert, rows + i * dim, e->ids, e->begin, part, e->kind != EXTERNAL_DOT));
    }
    if (query) external_scale(e, rows, n);
    return STATUS_OK;
}

enum status external_encoder_chunks(struct external_encoder *e, float *rows, const int32_t *ids, int64_t n) {
    return external_encode(e, rows, ids, n, false);
}

static enum status external_store_encode(void *context, float *rows, const int32_t *ids, int64_t n) {
    return external_encoder_chunks(context, rows, ids, n);
}

struct store_encoder external_encoder_store(struct external_encoder *e) {
    return (struct store_encoder){
        .fingerprint = external_encoder_fingerprint(e), .encode = external_store_encode, .context = e};
}

enum status external_encoder_queries(struct external_encoder *e, float *rows, const int32_t *ids, int64_t n) {
    return external_encode(e, rows, ids, n, true);
}

enum status external_encoder_text(struct external_encoder *e, float *row, const char *text, size_t bytes) {
    TRY(external_add_text(e, 0, true, text, bytes));
    TRY(bert_encode(e->bert, row, e->ids, e->begin, 1, e->kind != EXTERNAL_DOT));
    external_scale(e, row, 1);
    return STATUS_OK;
}
