/* golden_decode.c -- drt_decode*: a prompt in one call, then one id at a time. */
#include "indexer/retrieve/retriever.h"
#include "tests/golden/golden.h"

void golden_decode(struct golden *g) {
    int64_t prompt = golden_tensor(g, "in.ids")->count, steps = golden_tensor(g, "in.next_ids")->count,
            vocab = g->config.vocab_size;
    int32_t *ids = golden_ints(g, "in.ids"), *next = golden_ints(g, "in.next_ids");
    float *logits = golden_zeroed((steps + 1) * vocab, sizeof *logits);
    struct golden_run r;
    golden_run_create(&r, g, prompt + steps);
    struct chunk_retriever_config how = {
        .device = g->dev, .model = &g->config, .encoder = g->encoder, .own_past = true, .exclude_document = -1};
    struct retriever *retriever;
    struct decoder_state *s;
    CHECK_OK(chunk_retriever_create(&retriever, &how));
    CHECK_OK(decoder_state_create(&s, g->decoder, retriever));
    struct decoder_watch watch = golden_run_watch(&r);
    decoder_state_watch(s, &watch);

    struct decoder_output out = {.logits = logits};
    CHECK_OK(decoder_forward(s, &out, ids, prompt));
    for (int64_t i = 0; i < steps; i++) {
        out.logits = logits + (i + 1) * vocab;
        CHECK_OK(decoder_forward(s, &out, next + i, 1));
    }
    golden_compare(g, "out.prefill_last", logits, vocab, TOLERANCE_DECODE);
    golden_compare(g, "out.logits", logits + vocab, steps * vocab, TOLERANCE_DECODE);
    for (int i = 0; i < r.groups; i++) {
        char index[96], weight[96];
        golden_name(index, "out.index.g%d", i);
        int64_t rows = golden_tensor(g, index)->shape[0], first = prompt / g->config.chunk - 1;
        CHECK(first >= 0 && first + rows <= r.chunks);
        struct golden_group *p = &r.group[i];
        struct golden_choice ours = {.index = p->index + first * r.k,
                                     .weight = p->weight + first * r.k,
                                     .score = p->score + first * r.k,
                                     .rows = rows,
                                     .k = r.k};
        golden_compare_choice(g, &ours, index, NULL, golden_name(weight, "out.weight.g%d", i), NULL, TOLERANCE_DECODE);
    }
    decoder_state_free(s);
    retriever->free(retriever);
    golden_run_free(&r);
    free(ids), free(next), free(logits);
}
