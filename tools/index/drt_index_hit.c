/* drt_index_hit.c -- the output of drt-index search and get for a chunk. */
#include "base/formats/json.h"
#include "data/readers/reader.h"
#include "tools/index/drt_index.h"
#include "tools/shared/streams.h"
#include <limits.h>
#include <string.h>

static void put_int(struct json_writer *w, const char *key, int64_t value) {
    json_write_key(w, key);
    json_write_int(w, value);
}

void drt_index_document_json(struct json_writer *w, const struct store_document *d) {
    json_write_key(w, "source"), json_write_string(w, d->source);
    json_write_key(w, "key"), json_write_string(w, d->key);
    put_int(w, "line", (int64_t)d->line);
    put_int(w, "offset", (int64_t)d->offset);
}

void drt_index_hit_json(struct json_writer *w, const struct hit_view *h, const char *method) {
    const struct store_chunk *c = h->chunk;
    json_write_object(w);
    if (h->rank > 0) {
        put_int(w, "rank", h->rank);
        json_write_key(w, "score"), json_write_double(w, (double)h->score);
    }
    if (method) json_write_key(w, "searched_by"), json_write_string(w, method);
    put_int(w, "chunk", c->id);
    put_int(w, "document", c->document);
    drt_index_document_json(w, h->document);
    put_int(w, "chunk_in_document", c->in_document);
    put_int(w, "chunks_of_document", h->document->chunks);
    put_int(w, "token_offset", c->token_offset);
    put_int(w, "tokens", c->n_tokens);
    json_write_key(w, "text"), json_write_bytes(w, h->text, h->bytes);
    json_write_object_end(w);
}

void drt_index_hit_text(const struct hit_view *h) {
    const struct store_chunk *c = h->chunk;
    const struct store_document *d = h->document;
    if (h->rank > 0) printf("%d. score %.4f  ", h->rank, (double)h->score);
    streams_print_line(stdout, d->source, strlen(d->source), INT_MAX);
    if (d->key[0]) {
        fputs("  [", stdout);
        streams_print_line(stdout, d->key, strlen(d->key), INT_MAX);
        fputc(']', stdout);
    }
    const char *unit = reader_offset_unit(d->source);
    bool bytes_only = strcmp(unit, "byte") == 0;
    if (d->line) printf("  %s %llu", bytes_only ? "line" : "row", (unsigned long long)d->line);
    printf("  %s %llu\n   document %lld, chunk %lld of %lld (tokens %lld to %lld), chunk id %lld\n   ", unit,
           (unsigned long long)d->offset, (long long)c->document, (long long)c->in_document + 1, (long long)d->chunks,
           (long long)c->token_offset, (long long)(c->token_offset + c->n_tokens - 1), (long long)c->id);
    streams_print_line(stdout, h->text, h->bytes, INT_MAX);
    printf("\n\n");
}
