/* golden_corpus.c -- drt_encdec_corpus: one text, retrieval from its own past, from a corpus, and from both.
 *
 * The corpus is searched twice: in memory with float32 landmarks, which must give the file's numbers, and by a real
 * store. A store keeps landmarks in fp16 (2^-11 of each element), so scores, and all that depends on them, change a
 * little; the selected chunks must not. */
#include "indexer/retrieve/retriever.h"
#include "store/store.h"
#include "tests/golden/golden.h"

/* A score changes by at most 2^-11 sum |q_i l_i| / sqrt(d): about 1e-3 here, where that sum is near 16. Weights and
 * logits depend on differences of scores, and change less. */
static const double TOLERANCE_FP16 = 2e-3;

static void compare_mode(struct golden *g, const char *mode, struct retriever *retriever, const int32_t *ids,
                         const int32_t *labels, int64_t length, double tolerance) {
    char name[96], index[96], source[96], weight[96], score[96];
    struct golden_run r;
    golden_run_create(&r, g, length);
    golden_run_forward(&r, g, retriever, ids, labels);
    int64_t count = 0;
    double sum = golden_run_loss(&r, labels, &count);
    float loss = (float)(sum / (double)count);
    golden_compare(g, golden_name(name, "out.%s.logits", mode), r.logits, length * g->config.vocab_size, tolerance);
    golden_compare(g, golden_name(name, "out.%s.nll", mode), r.nll, length, tolerance);
    golden_compare(g, golden_name(name, "out.%s.loss", mode), &loss, 1,
                   tolerance > TOLERANCE ? tolerance : TOLERANCE_LOSS);
    for (int i = 0; i < r.groups; i++) {
        struct golden_group *p = &r.group[i];
        golden_compare(g, golden_name(name, "out.%s.query.g%d", mode, i), p->query, r.chunks * r.d, tolerance);
        struct golden_choice ours = {
            .index = p->index, .source = p->source, .weight = p->weight, .score = p->score, .rows = r.chunks, .k = r.k};
        golden_compare_choice(g, &ours, golden_name(index, "out.%s.index.g%d", mode, i),
                              golden_name(source, "out.%s.source.g%d", mode, i),
                              golden_name(weight, "out.%s.weight.g%d", mode, i),
                              golden_name(score, "out.%s.selected_scores.g%d", mode, i), tolerance);
    }
    golden_run_free(&r);
    retriever->free(retriever);
}

/* The corpus as a store with one document for each chunk; ids and landmarks as in golden_memory.c. */
static void write_store(struct golden *g, const char *path, const int32_t *ids, const float *landmarks,
                        int64_t chunks) {
    int64_t chunk = g->config.chunk, d = g->config.hidden;
    struct store_writer_config config = {
        .fingerprint = {.chunk_tokens = (int32_t)chunk, .dim = (int32_t)d, .vocab_size = g->config.vocab_size},
        .max_catalog_bytes = 1 << 26};
    struct store_writer *w;
    CHECK_OK(store_writer_open(&w, path, &config, true));
    CHECK_OK(store_shard_begin(w));
    for (int64_t i = 0; i < chunks; i++) {
        struct store_new_document doc = {.ids = ids + i * chunk, .n_ids = (size_t)chunk, .source = g->name, .key = ""};
        memcpy(doc.hash, &i, sizeof i);
        bool duplicate;
        CHECK_OK(store_shard_document(w, &doc, &duplicate));
        CHECK_OK(store_shard_landmarks(w, landmarks + i * d, 1));
    }
    CHECK_OK(store_shard_seal(w, "", 0));
    CHECK_OK(store_writer_publish(w, &(struct store_publish){.index = "exact"}));
    store_writer_close(w);
}

static void compare_with_store(struct golden *g, const float *landmarks, const int32_t *corpus_ids, int64_t chunks,
                               const int32_t *ids, const int32_t *labels, int64_t length) {
    char path[600];
    snprintf(path, sizeof path, "%s/golden-%d", test_folder(), (int)chunks);
    write_store(g, path, corpus_ids, landmarks, chunks);
    struct store *store;
    struct store_view *view;
    CHECK_OK(store_open(&store, path));
    CHECK_OK(store_view_open(&view, store));
    struct searcher *searcher;
    CHECK_OK(searcher_open(&searcher, &(struct searcher_config){.device = g->dev, .view = view}));
    static const char *modes[] = {"corpus", "both"};
    g->suffix = "(store)";
    for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
        struct chunk_retriever_config how = {.device = g->dev,
                                             .model = &g->config,
                                             .encoder = g->encoder,
                                             .own_past = i == 1,
                                             .corpus = view,
                                             .searcher = searcher,
                                             .exclude_document = -1};
        struct retriever *r;
        CHECK_OK(chunk_retriever_create(&r, &how));
        compare_mode(g, modes[i], r, ids, labels, length, TOLERANCE_FP16);
    }
    g->suffix = NULL;
    searcher_close(searcher);
    store_view_close(view);
    store_close(store);
}

void golden_corpus(struct golden *g) {
    const struct tensor_view *shape = golden_tensor(g, "in.ids"), *corpus = golden_tensor(g, "in.corpus_ids");
    CHECK(shape->dims == 2 && shape->shape[0] == 1 && corpus->dims == 2 && corpus->shape[1] == g->config.chunk);
    int64_t length = shape->shape[1], chunks = corpus->shape[0], own = length / g->config.chunk;
    int32_t *ids = golden_ints(g, "in.ids"), *labels = golden_ints(g, "in.labels"),
            *corpus_ids = golden_ints(g, "in.corpus_ids");

    struct retriever *r = golden_memory_create(g, corpus_ids, chunks, false, true, own);
    golden_compare(g, "out.corpus_landmark", golden_memory_landmarks(r), chunks * g->config.hidden, TOLERANCE);
    compare_with_store(g, golden_memory_landmarks(r), corpus_ids, chunks, ids, labels, length);
    compare_mode(g, "corpus", r, ids, labels, length, TOLERANCE);
    compare_mode(g, "both", golden_memory_create(g, corpus_ids, chunks, true, true, own), ids, labels, length,
                 TOLERANCE);
    struct chunk_retriever_config how = {
        .device = g->dev, .model = &g->config, .encoder = g->encoder, .own_past = true, .exclude_document = -1};
    CHECK_OK(chunk_retriever_create(&r, &how));
    compare_mode(g, "self", r, ids, labels, length, TOLERANCE);
    free(ids), free(labels), free(corpus_ids);
}
