/* golden_corpus.c -- drt_encdec_corpus: one text, retrieval from its own past, from a corpus, and from both. */
#include "golden.h"
#include "indexer/retriever.h"

static void compare_mode(struct golden *g, const char *mode, struct retriever *retriever, const int32_t *ids,
                         const int32_t *labels, int64_t length) {
    char name[96], index[96], source[96], weight[96], score[96];
    struct golden_run r;
    golden_run_create(&r, g, length);
    golden_run_forward(&r, g, retriever, ids, labels);
    int64_t count = 0;
    double sum = golden_run_loss(&r, labels, &count);
    float loss = (float)(sum / (double)count);
    golden_compare(g, golden_name(name, "out.%s.logits", mode), r.logits, length * g->config.vocab_size, TOLERANCE);
    golden_compare(g, golden_name(name, "out.%s.nll", mode), r.nll, length, TOLERANCE);
    golden_compare(g, golden_name(name, "out.%s.loss", mode), &loss, 1, TOLERANCE_LOSS);
    for (int i = 0; i < r.groups; i++) {
        struct golden_group *p = &r.group[i];
        golden_compare(g, golden_name(name, "out.%s.query.g%d", mode, i), p->query, r.chunks * r.d, TOLERANCE);
        struct golden_choice ours = {
            .index = p->index, .source = p->source, .weight = p->weight, .score = p->score, .rows = r.chunks, .k = r.k};
        golden_compare_choice(g, &ours, golden_name(index, "out.%s.index.g%d", mode, i),
                              golden_name(source, "out.%s.source.g%d", mode, i),
                              golden_name(weight, "out.%s.weight.g%d", mode, i),
                              golden_name(score, "out.%s.selected_scores.g%d", mode, i), TOLERANCE);
    }
    golden_run_free(&r);
    retriever->free(retriever);
}

void golden_corpus(struct golden *g) {
    const struct tensor_view *shape = golden_tensor(g, "in.ids"), *corpus = golden_tensor(g, "in.corpus_ids");
    CHECK(shape->dims == 2 && shape->shape[0] == 1 && corpus->dims == 2 && corpus->shape[1] == g->config.chunk);
    int64_t length = shape->shape[1], chunks = corpus->shape[0], own = length / g->config.chunk;
    int32_t *ids = golden_ints(g, "in.ids"), *labels = golden_ints(g, "in.labels"),
            *corpus_ids = golden_ints(g, "in.corpus_ids");

    struct retriever *r = golden_memory_create(g, corpus_ids, chunks, false, true, own);
    golden_compare(g, "out.corpus_landmark", golden_memory_landmarks(r), chunks * g->config.hidden, TOLERANCE);
    compare_mode(g, "corpus", r, ids, labels, length);
    compare_mode(g, "both", golden_memory_create(g, corpus_ids, chunks, true, true, own), ids, labels, length);
    struct chunk_retriever_config how = {
        .device = g->dev, .model = &g->config, .encoder = g->encoder, .self = true, .exclude_document = -1};
    CHECK_OK(chunk_retriever_create(&r, &how));
    compare_mode(g, "self", r, ids, labels, length);
    free(ids), free(labels), free(corpus_ids);
}
