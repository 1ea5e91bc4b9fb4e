/* encode.c -- computes a landmark file again from its tokens: cuts them into the same chunks, encodes these block by
 * block, and publishes the file under the same name. After a kill the file is either the complete old one or the
 * complete new one.
 *
 * The rows of dropped shards in the file are computed too, so that its bytes equal the recorded ones. */
#include "base/memory.h"
#include "base/system/fault.h"
#include "store/writer_internal.h"

enum { BLOCK_CHUNKS = 1024 };

struct encode {
    const struct store_writer *w;
    const struct shard_record *shards; /* all shards; the index is the shard's number */
    const struct shard_record *file;   /* the shards of the file, described as one */
    const struct store_encoder *encoder;
    const struct progress *progress;
    struct catalog_txn *t;
    struct shard_map tokens;
    struct shard_writer *landmarks;
    int32_t *ids;    /* [BLOCK_CHUNKS, chunk_tokens] */
    float *rows;     /* [BLOCK_CHUNKS, dim] */
    int64_t pending; /* number of chunks in ids */
};

static enum status encode_pending(struct encode *e) {
    if (progress_stop_requested(e->progress))
        return fail(STATUS_INTERRUPTED, "%s: stopped while shard %lld was encoded again; run the command again",
                    e->w->dir, (long long)e->file->number);
    if (e->pending > 0) TRY(e->encoder->encode(e->encoder->context, e->rows, e->ids, e->pending));
    TRY(shard_write_rows(e->landmarks, e->rows, e->pending));
    e->pending = 0;
    progress_step(e->progress, "encode again", "chunks", shard_rows(e->landmarks), e->file->chunks);
    return STATUS_OK;
}

static enum status encode_document(struct encode *e, const struct document_record *d) {
    const struct store_fingerprint *f = &e->w->fingerprint;
    int64_t first = e->shards[d->shard].first_token - e->tokens.first_row + d->token_offset;
    if (first < 0 || d->tokens > e->tokens.count - first)
        return fail(STATUS_CORRUPT, "%s: shard %lld has fewer tokens than its documents, run drt-index verify --deep",
                    catalog_path(e->w->catalog), (long long)d->shard);
    for (int64_t at = 0; at < d->tokens; at += f->chunk_tokens) {
        int32_t *out = e->ids + e->pending * f->chunk_tokens;
        for (int64_t i = 0; i < f->chunk_tokens; i++) {
            out[i] = -1;
            if (at + i >= d->tokens) continue;
            uint32_t id = shard_id(&e->tokens, first + at + i);
            if (id >= (uint32_t)f->vocab_size)
                return fail(STATUS_CORRUPT,
                            "%s: shard %lld has a token outside the vocabulary, run drt-index drop --shard %lld",
                            e->w->dir, (long long)d->shard, (long long)d->shard);
            out[i] = (int32_t)id;
        }
        if (++e->pending == BLOCK_CHUNKS) TRY(encode_pending(e));
    }
    return STATUS_OK;
}

static enum status encode_documents(struct encode *e) {
    const struct shard_record *r = e->file;
    for (int64_t i = r->first_document; i < r->first_document + r->documents; i++) {
        struct document_record d;
        TRY(record_get_document(e->t, e->w->catalog, &d, i));
        TRY(encode_document(e, &d));
    }
    TRY(encode_pending(e));
    if (shard_rows(e->landmarks) == r->chunks) return STATUS_OK;
    return fail(STATUS_CORRUPT, "%s: shard %lld has %lld chunks, its documents have %lld, run drt-index verify --deep",
                catalog_path(e->w->catalog), (long long)r->number, (long long)r->chunks,
                (long long)shard_rows(e->landmarks));
}

static enum status encode_open(struct encode *e) {
    const struct store_writer *w = e->w;
    const struct store_fingerprint *f = &w->fingerprint;
    TRY(memory_allocate(&e->ids, BLOCK_CHUNKS * (size_t)f->chunk_tokens));
    TRY(memory_allocate(&e->rows, BLOCK_CHUNKS * (size_t)f->dim));
    TRY(shard_open(&e->tokens, w->dir, SHARD_TOKENS, e->file, f));
    TRY(catalog_begin(&e->t, w->catalog, false));
    return shard_create(&e->landmarks, w->dir, shard_landmark_kind(w->landmark_type), e->file, f);
}

enum status shard_encode(struct stored_file *out, const struct store_writer *w, const struct shard_record *shards,
                         const struct shard_record *file, const struct store_encoder *encoder,
                         const struct progress *progress) {
    struct encode e = {.w = w, .shards = shards, .file = file, .encoder = encoder, .progress = progress};
    enum status s;
    TRY_GOTO(s, encode_open(&e), out);
    TRY_GOTO(s, encode_documents(&e), out);
    TRY_GOTO(s, fault_point("store:encode:before-publish"), out);
    s = shard_publish(e.landmarks, out);
    e.landmarks = NULL;
    if (s == STATUS_OK) s = fault_point("store:encode:published");
out:
    shard_discard(e.landmarks);
    catalog_abort(e.t);
    shard_close(&e.tokens);
    memory_free(e.rows);
    memory_free(e.ids);
    return s;
}
