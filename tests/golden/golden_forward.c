/* golden_forward.c -- whole texts in one pass: drt_* (also the forward half of the gradient cases) and lm_base. */
#include "indexer/retrieve/retriever.h"
#include "tests/golden/golden.h"

/* The encoder's output for each chunk of the text, by a direct call. */
struct encoded {
    float *states, *landmarks, *k, *v;
};

static void encode_text(struct encoded *e, struct golden *g, const int32_t *ids, const float *lower, int64_t chunks) {
    int64_t d = g->config.hidden, positions = model_config_positions(&g->config);
    struct mat keys = golden_put(g, NULL, chunks * 64, d, g->type),
               values = golden_put(g, NULL, chunks * 64, d, g->type);
    struct mat landmarks = golden_put(g, NULL, chunks, d, DTYPE_F32),
               states = golden_put(g, NULL, chunks * positions, d, DTYPE_F32);
    struct encoder_output out = {.landmarks = landmarks.data, .states = states.data, .keys = keys, .values = values};
    if (g->config.encoder_input == ENCODER_INPUT_TOKENS)
        encoder_encode(g->encoder, &out, ids, chunks);
    else
        encoder_encode_hidden(g->encoder, &out, golden_put(g, lower, chunks * positions, d, g->type), chunks);
    golden_get(g, e->landmarks, landmarks);
    golden_get(g, e->states, states);
    golden_get(g, e->k, keys);
    golden_get(g, e->v, values);
}

/* All scores of a group, by the retriever's op. */
static void all_scores(float *scores, struct golden *g, const float *query, const float *landmarks, int64_t chunks) {
    int64_t d = g->config.hidden;
    int64_t *index = golden_zeroed(chunks * chunks, sizeof *index), *visible = golden_zeroed(chunks, sizeof *visible);
    float *sorted = golden_zeroed(chunks * chunks, sizeof *sorted);
    for (int64_t t = 0; t < chunks; t++)
        visible[t] = t;
    int64_t *index_device = golden_put_bytes(g, NULL, chunks * chunks, sizeof *index);
    float *sorted_device = golden_put_bytes(g, NULL, chunks * chunks, sizeof *sorted);
    g->dev->ops->topk->forward(g->dev, index_device, sorted_device, golden_put(g, query, chunks, d, DTYPE_F32),
                               golden_put(g, landmarks, chunks, d, DTYPE_F32),
                               golden_put_bytes(g, visible, chunks, sizeof *visible), (int)chunks);
    golden_get_bytes(g, index, index_device, chunks * chunks, sizeof *index);
    golden_get_bytes(g, sorted, sorted_device, chunks * chunks, sizeof *sorted);
    for (int64_t i = 0; i < chunks * chunks; i++)
        scores[i] = -INFINITY;
    for (int64_t i = 0; i < chunks * chunks; i++)
        if (index[i] >= 0) scores[i / chunks * chunks + index[i]] = sorted[i];
    free(index), free(visible), free(sorted);
}

/* The masked-token loss of drt_mlm: encoder output against the embedding, at masked positions. */
static void compare_mlm(struct golden *g, const struct encoded *e, const int32_t *ids, const int32_t *mask,
                        int64_t chunks, double ar_loss) {
    int64_t chunk = g->config.chunk, d = g->config.hidden, rows = chunks * (chunk + 1), length = chunks * chunk;
    int32_t *targets = golden_zeroed(rows, sizeof *targets);
    float *all = golden_zeroed(rows, sizeof *all), *nll = golden_zeroed(length, sizeof *nll);
    for (int64_t r = 0; r < rows; r++)
        targets[r] = -1;
    for (int64_t i = 0; i < length; i++)
        if (mask[i]) targets[i + i / chunk] = ids[i];
    float *all_device = golden_put_bytes(g, NULL, rows, sizeof *all_device);
    g->dev->ops->loss->forward(g->dev, all_device, golden_put(g, e->states, rows, d, g->type),
                               weights_tensor(&g->weights, "model.embed_tokens.weight"),
                               golden_put_bytes(g, targets, rows, sizeof *targets));
    golden_get_bytes(g, all, all_device, rows, sizeof *all);
    double sum = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < length; i++) {
        nll[i] = all[i + i / chunk];
        sum += (double)nll[i];
        count += mask[i] != 0;
    }
    float mlm = (float)(sum / (double)count), ar = (float)ar_loss, both = (float)(sum / (double)count + ar_loss);
    golden_compare(g, "out.mlm_nll", nll, length, TOLERANCE);
    golden_compare(g, "out.mlm_loss", &mlm, 1, TOLERANCE_LOSS);
    golden_compare(g, "out.ar_loss", &ar, 1, TOLERANCE_LOSS);
    golden_compare(g, "out.loss", &both, 1, TOLERANCE_LOSS);
    free(targets), free(all), free(nll);
}

static struct retriever *make_retriever(struct golden *g, const int32_t *mask) {
    if (g->config.base_lm) return NULL;
    struct chunk_retriever_config how = {
        .device = g->dev, .model = &g->config, .encoder = g->encoder, .own_past = true, .exclude_document = -1};
    struct retriever *r;
    CHECK_OK(chunk_retriever_create(&r, &how));
    return mask ? golden_masked_create(g, r, mask) : r;
}

/* The rows of all sequences, concatenated as in the file. */
struct whole {
    struct golden_run *runs;
    struct encoded encoded;
    float *scores[MODEL_GROUPS_MAX];
    int64_t n, chunks, length;
};

static float *join(const struct whole *w, const float *(*part)(const struct golden_run *, int), int group,
                   int64_t count) {
    float *all = golden_zeroed(w->n * count, sizeof *all);
    for (int64_t i = 0; i < w->n; i++)
        memcpy(all + i * count, part(&w->runs[i], group), (size_t)count * sizeof *all);
    return all;
}
static const float *part_lower(const struct golden_run *r, int group) {
    return (void)group, r->lower;
}
static const float *part_gca0(const struct golden_run *r, int group) {
    return (void)group, r->gca0;
}
static const float *part_final(const struct golden_run *r, int group) {
    return (void)group, r->final;
}
static const float *part_logits(const struct golden_run *r, int group) {
    return (void)group, r->logits;
}
static const float *part_nll(const struct golden_run *r, int group) {
    return (void)group, r->nll;
}
static const float *part_query(const struct golden_run *r, int group) {
    return r->group[group].query;
}
static const float *part_weight(const struct golden_run *r, int group) {
    return r->group[group].weight;
}
static const float *part_score(const struct golden_run *r, int group) {
    return r->group[group].score;
}

static void compare_part(struct golden *g, const struct whole *w, const char *name,
                         const float *(*part)(const struct golden_run *, int), int group, int64_t count) {
    if (!golden_has(g, name)) return;
    float *all = join(w, part, group, count);
    golden_compare(g, name, all, w->n * count, TOLERANCE);
    free(all);
}

static void compare_group(struct golden *g, const struct whole *w, int group) {
    char index[96], weight[96], name[96];
    int64_t rows = w->chunks, k = g->config.topk;
    compare_part(g, w, golden_name(name, "out.query.g%d", group), part_query, group, rows * g->config.hidden);
    golden_compare(g, golden_name(name, "out.scores.g%d", group), w->scores[group], w->n * rows * rows, TOLERANCE);
    float *weights = join(w, part_weight, group, rows * k), *scores = join(w, part_score, group, rows * k);
    int32_t *indices = golden_zeroed(w->n * rows * k, sizeof *indices);
    for (int64_t i = 0; i < w->n; i++)
        memcpy(indices + i * rows * k, w->runs[i].group[group].index, (size_t)(rows * k) * sizeof *indices);
    struct golden_choice ours = {
        .index = indices, .weight = weights, .score = scores, .rows = w->n * rows, .k = (int)k};
    golden_compare_choice(g, &ours, golden_name(index, "out.index.g%d", group), NULL,
                          golden_name(weight, "out.weight.g%d", group), NULL, TOLERANCE);
    free(weights), free(scores), free(indices);
}

static void compare_all(struct golden *g, const struct whole *w, double loss) {
    int64_t d = g->config.hidden, positions = w->runs[0].positions, states = w->chunks * w->runs[0].chunk_positions * d;
    compare_part(g, w, "out.lower", part_lower, 0, positions * d);
    compare_part(g, w, "out.gca0", part_gca0, 0, positions * d);
    compare_part(g, w, "out.final", part_final, 0, positions * d);
    compare_part(g, w, "out.logits", part_logits, 0, w->length * g->config.vocab_size);
    compare_part(g, w, "out.nll", part_nll, 0, w->length);
    float mean = (float)loss;
    if (!golden_has(g, "out.mlm_loss")) golden_compare(g, "out.loss", &mean, 1, TOLERANCE_LOSS);
    if (g->config.base_lm) return;
    golden_compare(g, "out.enc", w->encoded.states, w->n * states, TOLERANCE);
    golden_compare(g, "out.landmark", w->encoded.landmarks, w->n * w->chunks * d, TOLERANCE);
    golden_compare(g, "out.chunk_k", w->encoded.k, w->n * w->chunks * 64 * d, TOLERANCE);
    golden_compare(g, "out.chunk_v", w->encoded.v, w->n * w->chunks * 64 * d, TOLERANCE);
    for (int i = 0; i < g->config.groups; i++)
        compare_group(g, w, i);
}

static void create_encoded(struct encoded *e, int64_t chunks, int64_t positions, int64_t d) {
    e->states = golden_zeroed(chunks * positions * d, sizeof(float));
    e->landmarks = golden_zeroed(chunks * d, sizeof(float));
    e->k = golden_zeroed(chunks * 64 * d, sizeof(float));
    e->v = golden_zeroed(chunks * 64 * d, sizeof(float));
}

static void encode_sequence(struct golden *g, struct whole *w, int64_t i, const int32_t *ids, const int32_t *mask) {
    int64_t d = g->config.hidden, chunks = w->chunks, positions = w->runs[i].chunk_positions;
    int32_t *read = golden_zeroed(w->length, sizeof *read);
    for (int64_t j = 0; j < w->length; j++)
        read[j] = mask && mask[j] ? g->config.mask_id : ids[j];
    struct encoded at = {.states = w->encoded.states + i * chunks * positions * d,
                         .landmarks = w->encoded.landmarks + i * chunks * d,
                         .k = w->encoded.k + i * chunks * 64 * d,
                         .v = w->encoded.v + i * chunks * 64 * d};
    encode_text(&at, g, read, w->runs[i].lower, chunks);
    for (int group = 0; group < g->config.groups; group++)
        all_scores(w->scores[group] + i * chunks * chunks, g, w->runs[i].group[group].query, at.landmarks, chunks);
    free(read);
}

void golden_forward(struct golden *g) {
    const struct tensor_view *shape = golden_tensor(g, "in.ids");
    CHECK_EQ(shape->dims, 2);
    struct whole w = {.n = shape->shape[0], .length = shape->shape[1]};
    int32_t *ids = golden_ints(g, "in.ids"), *mask = golden_has(g, "in.mask") ? golden_ints(g, "in.mask") : NULL;
    /* Files without labels are scored against their ids (tests/golden/README.md). */
    int32_t *labels = golden_ints(g, golden_has(g, "in.labels") ? "in.labels" : "in.ids");
    w.runs = golden_zeroed(w.n, sizeof *w.runs);
    double sum = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < w.n; i++) {
        struct golden_run *r = &w.runs[i];
        golden_run_create(r, g, w.length);
        w.chunks = r->chunks;
        struct retriever *retriever = make_retriever(g, mask);
        golden_run_forward(r, g, retriever, ids + i * w.length, labels + i * w.length);
        if (retriever) retriever->free(retriever);
        sum += golden_run_loss(r, labels + i * w.length, &count);
    }
    if (!g->config.base_lm) {
        create_encoded(&w.encoded, w.n * w.chunks, w.runs[0].chunk_positions, g->config.hidden);
        for (int i = 0; i < g->config.groups; i++)
            w.scores[i] = golden_zeroed(w.n * w.chunks * w.chunks, sizeof(float));
        for (int64_t i = 0; i < w.n; i++)
            encode_sequence(g, &w, i, ids + i * w.length, mask);
    }
    compare_all(g, &w, sum / (double)count);
    if (mask) compare_mlm(g, &w.encoded, ids, mask, w.chunks, sum / (double)count);
    for (int64_t i = 0; i < w.n; i++)
        golden_run_free(&w.runs[i]);
    for (int i = 0; i < g->config.groups; i++)
        free(w.scores[i]);
    free(w.encoded.states), free(w.encoded.landmarks), free(w.encoded.k), free(w.encoded.v);
    free(w.runs), free(ids), free(mask), free(labels);
}
