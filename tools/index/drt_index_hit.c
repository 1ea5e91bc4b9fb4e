/* drt_index_hit.c -- what drt-index search prints of a hit. */
#include "base/formats/json.h"
#include "data/readers/reader.h"
#include "tools/index/drt_index.h"
#include "tools/shared/streams.h"
#include <limits.h>
#include <string.h>

void drt_index_hit_json(int rank, const char *method, const struct store_hit *hit, const struct store_chunk *c,
                        const struct store_document *d, const char *text, size_t bytes) {
    struct json_writer w;
    json_write_open(&w, stdout, 0);
    json_write_object(&w);
    json_write_key(&w, "rank"), json_write_int(&w, rank);
    json_write_key(&w, "score"), json_write_double(&w, (double)hit->score);
    json_write_key(&w, "searched_by"), json_write_string(&w, method);
    json_write_key(&w, "chunk"), json_write_int(&w, c->id);
    json_write_key(&w, "document"), json_write_int(&w, c->document);
    json_write_key(&w, "source"), json_write_string(&w, d->source);
    json_write_key(&w, "key"), json_write_string(&w, d->key);
    json_write_key(&w, "line"), json_write_int(&w, (int64_t)d->line);
    json_write_key(&w, "offset"), json_write_int(&w, (int64_t)d->offset);
    json_write_key(&w, "chunk_in_document"), json_write_int(&w, c->in_document);
    json_write_key(&w, "chunks_of_document"), json_write_int(&w, d->chunks);
    json_write_key(&w, "token_offset"), json_write_int(&w, c->token_offset);
    json_write_key(&w, "tokens"), json_write_int(&w, c->n_tokens);
    json_write_key(&w, "text"), json_write_bytes(&w, text, bytes);
    json_write_object_end(&w);
    fputc('\n', stdout);
}

void drt_index_hit_text(int rank, const struct store_hit *hit, const struct store_chunk *c,
                        const struct store_document *d, const char *text, size_t bytes) {
    printf("%d. score %.4f  ", rank, (double)hit->score);
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
    streams_print_line(stdout, text, bytes, INT_MAX);
    printf("\n\n");
}
