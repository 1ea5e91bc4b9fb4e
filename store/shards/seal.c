/* seal.c -- the two steps of sealing a shard: its files, and its records in the catalog. */
#include "base/memory.h"
#include "base/system/fault.h"
#include "store/writer_internal.h"
#include <stdlib.h>
#include <string.h>

struct hashed_document {
    uint8_t hash[16];
    int64_t number;
};

static enum status record_documents(const struct store_shard *s, struct catalog_txn *t) {
    const struct shard_record *r = &s->record;
    for (size_t i = 0; i < s->n_documents; i++) {
        struct pending_document *p = &s->documents[i];
        struct document_record d = p->record;
        d.source = s->text + p->source_at;
        d.key = s->text + p->key_at;
        int64_t number = r->first_document + (int64_t)i;
        TRY(record_append_document(t, number, &d));
        struct run_record run = {number, d.shard, d.token_offset, d.tokens, d.chunks};
        TRY(record_append_run(t, d.first_chunk, &run));
    }
    TRY(record_put_shard(t, r));
    return fault_point("store:seal:before-commit");
}

static int compare_hashes(const void *a, const void *b) {
    const struct hashed_document *x = a, *y = b;
    const int order = memcmp(x->hash, y->hash, sizeof x->hash);
    return order ? order : (x->number > y->number) - (x->number < y->number);
}

/* In the order of the hashes, so that neighbours in the table are written together. */
static enum status record_hashes(const struct store_shard *const *shards, int n, struct catalog_txn *t) {
    struct hashed_document *list;
    size_t documents = 0, filled = 0;
    for (int i = 0; i < n; i++)
        documents += shards[i]->n_documents;
    TRY(memory_allocate(&list, documents));
    for (int i = 0; i < n; i++)
        for (size_t j = 0; j < shards[i]->n_documents; j++) {
            struct hashed_document *d = &list[filled++];
            d->number = shards[i]->record.first_document + (int64_t)j;
            memcpy(d->hash, shards[i]->documents[j].record.hash, sizeof d->hash);
        }
    qsort(list, documents, sizeof *list, compare_hashes);
    enum status status = STATUS_OK;
    for (size_t i = 0; i < documents && status == STATUS_OK; i++)
        status = record_add_hash(t, list[i].hash, list[i].number);
    memory_free(list);
    return status;
}

static enum status publish_files(struct store_shard *s, struct shard_record *r) {
    TRY(fault_point("store:seal:begin"));
    struct shard_writer *file = s->tokens;
    s->tokens = NULL;
    TRY(shard_publish(file, &r->token_file));
    TRY(fault_point("store:seal:tokens-written"));
    file = s->landmarks;
    s->landmarks = NULL;
    TRY(shard_publish(file, &r->landmark_file));
    return fault_point("store:seal:landmarks-written");
}

enum status seal_failure(enum status status) {
    if (status != STATUS_NO_SPACE) return status;
    return fail(status, "%s; sealed shards are kept: run the command again after that", status_message());
}

enum status shard_write_files(struct store_shard *s) {
    struct shard_record *r = &s->record;
    const long long rows = shard_rows(s->landmarks);
    enum status status = rows == s->chunks ? STATUS_OK
                                           : fail(STATUS_INVALID, "%s: shard %lld has %lld chunks but %lld landmarks",
                                                  s->writer->dir, (long long)r->number, (long long)s->chunks, rows);
    if (status == STATUS_OK) status = publish_files(s, r);
    return seal_failure(status);
}

enum status shards_record(const struct store_shard *const *shards, int n) {
    struct catalog_txn *t;
    TRY(seal_failure(catalog_begin(&t, shards[0]->writer->catalog, true)));
    enum status status = STATUS_OK;
    for (int i = 0; i < n && status == STATUS_OK; i++)
        status = record_documents(shards[i], t);
    if (status == STATUS_OK) status = record_hashes(shards, n, t);
    if (status == STATUS_OK) return seal_failure(catalog_commit(t));
    catalog_abort(t);
    return seal_failure(status);
}
