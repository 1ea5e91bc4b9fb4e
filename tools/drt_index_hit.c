/* drt_index_hit.c -- what drt-index search prints of a hit. */
#include "base/json.h"
#include "tools/drt_index.h"

void drt_index_hit_json(int rank, const struct store_hit *hit, const struct store_chunk *c,
                        const struct store_document *d, const char *text, size_t bytes) {
    struct json_writer w;
    json_write_open(&w, stdout, 0);
    json_write_object(&w);
    json_write_key(&w, "rank"), json_write_int(&w, rank);
    json_write_key(&w, "score"), json_write_double(&w, (double)hit->score);
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

/* Line ends and control characters would break the layout (and could play with a terminal). */
static void print_on_one_line(const char *text, size_t bytes) {
    bool space = false;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char ch = (unsigned char)text[i];
        bool blank = ch <= ' ' || ch == 0x7f;
        if (!blank) fputc(ch, stdout);
        if (blank && !space) fputc(' ', stdout);
        space = blank;
    }
}

void drt_index_hit_text(int rank, const struct store_hit *hit, const struct store_chunk *c,
                        const struct store_document *d, const char *text, size_t bytes) {
    printf("%d. score %.4f  %s", rank, (double)hit->score, d->source);
    if (d->key[0]) printf("  [%s]", d->key);
    if (d->line) printf("  line %llu", (unsigned long long)d->line);
    printf("  byte %llu\n   document %lld, chunk %lld of %lld (tokens %lld to %lld), chunk id %lld\n   ",
           (unsigned long long)d->offset, (long long)c->document, (long long)c->in_document + 1, (long long)d->chunks,
           (long long)c->token_offset, (long long)(c->token_offset + c->n_tokens - 1), (long long)c->id);
    print_on_one_line(text, bytes);
    printf("\n\n");
}
