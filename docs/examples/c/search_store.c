/* search_store.c -- the five chunks of a store that fit a text best: search_store STORE TEXT [MODEL].
 *
 *     cc search_store.c $(pkg-config --cflags --libs drt) -o search_store
 *
 * Prints a line for each: rank, score, chunk id, source of the document, text. MODEL: the folder of the model that the
 * store was built with; without it, the model that is installed with the library. */
#include <drt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { K = 5 };

static void need(enum drt_status status) {
    if (status == DRT_OK) return;
    fprintf(stderr, "search_store: %s\n", drt_message());
    exit(1);
}

static void print_hit(int rank, const struct drt_hit *hit, struct drt_store *store, struct drt_tokenizer *tokenizer) {
    struct drt_chunk chunk;
    struct drt_document *document;
    char *text, *c;
    size_t bytes;
    need(drt_store_chunks(store, &chunk, NULL, NULL, &hit->chunk, 1));
    need(drt_store_document(store, &document, chunk.document));
    need(drt_store_chunk_text(store, tokenizer, &text, &bytes, hit->chunk));
    for (c = text; c < text + bytes; c++)
        if ((unsigned char)*c < ' ') *c = ' ';
    printf("%d\t%.4f\t%lld\t%s\t%s\n", rank, (double)hit->score, (long long)hit->chunk, document->source, text);
    drt_free(text);
    drt_free(document);
}

int main(int argc, char **argv) {
    struct drt_model *model;
    struct drt_store *store;
    struct drt_searcher *searcher;
    struct drt_hit hits[K];
    struct drt_search how;
    const char *text;
    int i;
    if (argc < 3) {
        fprintf(stderr, "usage: search_store STORE TEXT [MODEL]\n");
        return 2;
    }
    text = argv[2];
    memset(&how, 0, sizeof how); /* zero is the default of every member */
    how.size = sizeof how;
    how.k = K;
    need(drt_model_open(&model, argc > 3 ? argv[3] : NULL, NULL));
    need(drt_store_open(&store, argv[1]));
    need(drt_searcher_open(&searcher, store, model, NULL));
    need(drt_search_texts(searcher, hits, &text, NULL, 1, &how));
    for (i = 0; i < K && hits[i].chunk >= 0; i++)
        print_hit(i + 1, &hits[i], store, drt_model_tokenizer(model));
    drt_searcher_close(searcher);
    drt_store_close(store);
    drt_model_close(model);
    return 0;
}
