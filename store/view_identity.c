/* view_identity.c -- one number that two processes compare, to check that they read the same store. */
#include "base/crc32c.h"
#include "store/view_internal.h"
#include <string.h>

enum { IDENTITY_DOCUMENTS = 64 };

static uint32_t identity_add(uint32_t crc, const int64_t *fields, size_t n) {
    return crc32c(crc, fields, n * sizeof *fields);
}

/* Covers the generation, its deleted and dropped chunks, and the files of its index. */
static uint32_t identity_records(const struct store_view *v) {
    const struct store_fingerprint *f = &v->store->fingerprint;
    const int64_t sizes[] = {f->chunk_tokens,         f->dim,
                             f->vocab_size,           f->metric,
                             v->generation.number,    v->generation.chunks,
                             v->generation.documents, v->generation.tokens};
    const int64_t type = v->store->landmarks;
    uint32_t crc = crc32c(0, f->encoder, sizeof f->encoder);
    crc = crc32c(crc, f->tokenizer, sizeof f->tokenizer);
    crc = identity_add(crc, sizes, ARRAY_LEN(sizes));
    /* a store with fp16 rows has the number that older programs compute for it */
    if (type != STORE_LANDMARKS_F16) crc = identity_add(crc, &type, 1);
    for (int64_t i = 0; i < v->n_dropped; i++)
        crc = identity_add(crc, (const int64_t[]){v->dropped[i].begin, v->dropped[i].end}, 2);
    for (int64_t i = 0; i < v->n_segments; i++) {
        const struct segment_record *r = &v->segments[i].record;
        crc = identity_add(crc, (const int64_t[]){r->number, r->first_chunk, r->chunks, (int64_t)r->file.bytes}, 4);
        crc = identity_add(crc, (const int64_t[]){(int64_t)r->file.crc}, 1);
    }
    return crc;
}

/* Covers a sample of the documents. Files of shards are not covered, because a merge replaces them without changing
 * their contents. */
static enum status identity_documents(struct store_view *v, uint32_t *crc) {
    const int64_t all = v->generation.documents, n = all < IDENTITY_DOCUMENTS ? all : IDENTITY_DOCUMENTS;
    *crc = 0;
    for (int64_t i = 0; i < n; i++) {
        struct store_document d;
        const int64_t number = n > 1 ? (int64_t)((__int128)(all - 1) * i / (n - 1)) : 0;
        const enum status s = store_view_document(v, &d, number);
        if (s == STATUS_NOT_FOUND) continue;
        TRY(s);
        *crc = identity_add(*crc, (const int64_t[]){number, d.first_chunk, d.tokens}, 3);
        *crc = crc32c(*crc, d.hash, sizeof d.hash);
    }
    return STATUS_OK;
}

enum status store_view_identity(struct store_view *v, uint64_t *out) {
    uint32_t documents;
    TRY(identity_documents(v, &documents));
    *out = (uint64_t)identity_records(v) << 32 | documents;
    return STATUS_OK;
}
