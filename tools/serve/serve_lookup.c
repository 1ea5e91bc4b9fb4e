/* serve_lookup.c -- /search and /documents/ID. */
#include "base/clock.h"
#include "base/memory.h"
#include "tools/serve/serve_job.h"

#include <string.h>

enum { DOCUMENT_CHUNKS_MAX = 16384 }; /* of one answer: about a million tokens */

static void write_key_int(struct json_writer *w, const char *key, int64_t value) {
    json_write_key(w, key);
    json_write_int(w, value);
}

static void write_key_string(struct json_writer *w, const char *key, const char *value) {
    json_write_key(w, key);
    json_write_string(w, value);
}

void lookup_write_document(struct serve_model *m, struct json_writer *w, int64_t document) {
    struct drt_document *d = NULL;
    write_key_int(w, "document", document);
    if (drt_store_document(m->store, &d, document) != DRT_OK) return;
    write_key_string(w, "name", d->source);
    write_key_string(w, "key", d->key);
    drt_free(d);
}

/* The text of `chunk` ids of a document, the first of which is within a chunk; its end is that of the document. */
static enum drt_status lookup_passage(struct serve_model *m, char **text, size_t *bytes, int64_t chunk,
                                      int64_t offset) {
    const int64_t both[] = {chunk, chunk + 1};
    const size_t length = (size_t)m->info.chunk;
    struct drt_chunk found[2];
    int32_t *ids = NULL;
    size_t used = 0;
    int n = 2;
    if (memory_allocate(&ids, 2 * length) != STATUS_OK) return DRT_NO_MEMORY;
    enum drt_status status = drt_store_chunks(m->store, found, ids, NULL, both, n);
    if (status != DRT_OK || found[1].document != found[0].document) /* the store's or the document's last chunk */
        status = drt_store_chunks(m->store, found, ids, NULL, both, n = 1);
    for (size_t i = (size_t)offset; i < (size_t)n * length && i < (size_t)offset + length; i++)
        if (status == DRT_OK && ids[i] >= 0) ids[used++] = ids[i];
    if (status == DRT_OK) status = drt_tokenizer_decode(m->tokenizer, text, bytes, ids, used, false);
    memory_free(ids);
    return status;
}

void lookup_write_text(struct serve_model *m, struct json_writer *w, int64_t chunk, int64_t token_offset) {
    char *text = NULL;
    size_t bytes = 0;
    struct drt_chunk at;
    enum drt_status status = drt_store_chunks(m->store, &at, NULL, NULL, &chunk, 1);
    if (status != DRT_OK) return;
    status = token_offset < 0 || token_offset == at.token_offset
                 ? drt_store_chunk_text(m->store, m->tokenizer, &text, &bytes, chunk)
                 : lookup_passage(m, &text, &bytes, chunk, token_offset - at.token_offset);
    if (status != DRT_OK) return;
    json_write_key(w, "text");
    json_write_bytes(w, text, bytes);
    drt_free(text);
}

static enum status lookup_hits(struct serve_model *m, struct drt_hit *hits, const struct search_request *s) {
    struct drt_searcher *searcher = NULL;
    const struct drt_search how = {.size = sizeof how, .k = (int)s->k};
    TRY(serve_model_searcher(&searcher, m, s->searcher));
    if (s->query.ids) {
        const int32_t *ids = s->query.ids;
        return serve_status(drt_search_ids(searcher, hits, &ids, &s->query.n_ids, 1, &how));
    }
    const char *text = s->query.data;
    return serve_status(drt_search_texts(searcher, hits, &text, &s->query.bytes, 1, &how));
}

static enum status lookup_search(struct serve_model *m, struct reply *reply, const struct search_request *s) {
    struct drt_hit *hits = NULL;
    struct json_writer *w = &reply->json;
    double start = clock_seconds();
    TRY(memory_allocate(&hits, (size_t)s->k));
    enum status status = lookup_hits(m, hits, s);
    double seconds = clock_seconds() - start;
    if (status == STATUS_OK) {
        struct drt_searcher_info info = {.size = sizeof info};
        json_write_object(w);
        json_write_key(w, "hits");
        json_write_array(w);
        for (int64_t i = 0; i < s->k && hits[i].chunk >= 0; i++) {
            struct drt_chunk chunk;
            if (drt_store_chunks(m->store, &chunk, NULL, NULL, &hits[i].chunk, 1) != DRT_OK) continue;
            json_write_object(w);
            write_key_int(w, "chunk", hits[i].chunk);
            json_write_key(w, "score");
            json_write_double(w, (double)hits[i].score);
            lookup_write_document(m, w, chunk.document);
            write_key_int(w, "in_document", chunk.in_document);
            write_key_int(w, "token_offset", chunk.token_offset);
            lookup_write_text(m, w, hits[i].chunk, -1);
            json_write_object_end(w);
        }
        json_write_array_end(w);
        if (drt_searcher_info(m->searchers[s->searcher], &info) == DRT_OK)
            write_key_string(w, "searched_by", info.text);
        json_write_key(w, "seconds");
        json_write_double(w, seconds);
        json_write_object_end(w);
    }
    memory_free(hits);
    return status;
}

/* Writes the text of consecutive chunks. Their ids are joined first, because a character may extend over two chunks. */
static enum status lookup_text(struct serve_model *m, struct json_writer *w, int64_t first, int64_t n) {
    int64_t *chunks = NULL;
    int32_t *ids = NULL;
    char *text = NULL;
    size_t bytes = 0, used = 0;
    enum status status;
    TRY_GOTO(status, memory_allocate(&chunks, (size_t)n), out);
    TRY_GOTO(status, memory_allocate(&ids, (size_t)n * (size_t)m->info.chunk), out);
    for (int64_t i = 0; i < n; i++)
        chunks[i] = first + i;
    TRY_GOTO(status, serve_status(drt_store_chunks(m->store, NULL, ids, NULL, chunks, n)), out);
    for (size_t i = 0; i < (size_t)n * (size_t)m->info.chunk; i++)
        if (ids[i] >= 0) ids[used++] = ids[i];
    TRY_GOTO(status, serve_status(drt_tokenizer_decode(m->tokenizer, &text, &bytes, ids, used, false)), out);
    json_write_key(w, "text");
    json_write_bytes(w, text, bytes);
out:
    drt_free(text);
    memory_free(ids);
    memory_free(chunks);
    return status;
}

static enum status lookup_document(struct serve_model *m, struct reply *reply, const struct job *job) {
    struct json_writer *w = &reply->json;
    struct drt_document *d = NULL;
    if (!m->store) return fail(STATUS_NOT_FOUND, "this server has no store: start it with --store DIR");
    if (job->document >= m->store_info.documents)
        return fail(STATUS_NOT_FOUND, "there is no document %lld: the store's documents are 0 to %lld",
                    (long long)job->document, (long long)m->store_info.documents - 1);
    TRY(serve_status(drt_store_document(m->store, &d, job->document)));
    int64_t first = job->first_chunk < d->chunks ? job->first_chunk : d->chunks, n = d->chunks - first;
    if (n > job->chunks) n = job->chunks;
    if (n > DOCUMENT_CHUNKS_MAX) n = DOCUMENT_CHUNKS_MAX;
    json_write_object(w);
    lookup_write_document(m, w, job->document);
    write_key_int(w, "chunks", d->chunks);
    write_key_int(w, "tokens", d->tokens);
    write_key_int(w, "first_chunk", d->first_chunk);
    write_key_int(w, "offset", (int64_t)d->offset);
    write_key_int(w, "line", (int64_t)d->line);
    write_key_int(w, "bytes", (int64_t)d->bytes);
    write_key_int(w, "text_first", first);
    write_key_int(w, "text_chunks", n);
    enum status status = lookup_text(m, w, d->first_chunk + first, n);
    json_write_object_end(w);
    drt_free(d);
    return status;
}

void lookup_run(struct serve *serve, struct job *job) {
    struct reply reply;
    enum status status = reply_open(&reply);
    if (status == STATUS_OK) {
        status = job->kind == ENDPOINT_SEARCH ? lookup_search(&serve->model, &reply, &job->search)
                                              : lookup_document(&serve->model, &reply, job);
        if (status == STATUS_OK) status = reply_flush(&reply);
    }
    if (status == STATUS_OK)
        job_finish(job, 200, &reply);
    else
        job_fail(job, serve_http_status(status), status_message());
    reply_close(&reply);
}
