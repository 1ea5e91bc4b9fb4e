/* generate_text.c -- streams text with its provenance: generate_text STORE PROMPT [TOKENS [MODEL]].
 *
 *     cc generate_text.c $(pkg-config --cflags --libs drt) -o generate_text
 *
 * The text goes to standard output token by token. Where the model begins to read other chunks of the store, lines on
 * standard error name them. Greedy: the same prompt gives the same text. */
#include <drt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void need(enum drt_status status) {
    if (status == DRT_OK) return;
    fprintf(stderr, "generate_text: %s\n", drt_message());
    exit(1);
}

struct reader {
    struct drt_store *store;
    int64_t first; /* chunk of the largest weight that was read last; -1: none */
};

/* Which chunks of which documents the model reads, when that changes. */
static void print_sources(struct reader *r, const struct drt_token *token) {
    int i;
    if (token->n_neighbours == 0 || token->neighbours[0].chunk == r->first) return;
    r->first = token->neighbours[0].chunk;
    for (i = 0; i < token->n_neighbours; i++) {
        const struct drt_neighbour *n = &token->neighbours[i];
        struct drt_document *document;
        need(drt_store_document(r->store, &document, n->document));
        fprintf(stderr, "from position %lld on: weight %.3f, chunk %lld, %s at token %lld\n",
                (long long)token->position, (double)n->weight, (long long)n->chunk, document->source,
                (long long)n->token_offset);
        drt_free(document);
    }
}

static bool on_token(void *context, const struct drt_token *token) {
    print_sources((struct reader *)context, token);
    fwrite(token->text, 1, token->bytes, stdout);
    return fflush(stdout) != 0; /* true ends the generation */
}

int main(int argc, char **argv) {
    struct drt_session_config config;
    struct drt_session *session;
    struct drt_model *model;
    struct reader reader;
    enum drt_end end;
    if (argc < 3) {
        fprintf(stderr, "usage: generate_text STORE PROMPT [TOKENS [MODEL]]\n");
        return 2;
    }
    reader.first = -1;
    need(drt_model_open(&model, argc > 4 ? argv[4] : NULL, NULL));
    need(drt_store_open(&reader.store, argv[1]));
    memset(&config, 0, sizeof config); /* zero is the default of every member */
    config.size = sizeof config;
    config.corpus = true;
    config.store = reader.store;
    config.max_tokens = argc > 3 ? strtol(argv[3], NULL, 10) : 100;
    need(drt_session_open(&session, model, &config));
    need(drt_session_feed(session, argv[2], strlen(argv[2]), NULL, 0));
    need(drt_session_generate(session, on_token, &reader, &end));
    printf("\n");
    drt_session_close(session);
    drt_store_close(reader.store);
    drt_model_close(model);
    return 0;
}
