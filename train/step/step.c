/* step.c -- one training step: its memory, its micro-batches, its report. */
#include "train/step/step.h"
#include "base/memory.h"
#include "kernels/device/collective.h"
#include "train/step/step_teach_internal.h"
#include <assert.h>
#include <math.h>

static enum status step_check(const struct model_config *m, const struct step_config *c,
                              const struct corpus_pool *corpus) {
    bool retrieval = c->pool != POOL_NONE || c->contrastive || c->mlm || c->teach;
    if (m->base_lm && retrieval)
        return fail(STATUS_INVALID, "training: a Base LM has no retrieval: pool none, no contrastive loss, no mlm");
    if (c->memory && m->memory_layer == 0)
        return fail(STATUS_INVALID, "training: memory.weight needs memory_layer in the model's config");
    if (c->teach && (m->encoder_input != ENCODER_INPUT_TOKENS || !c->memory || c->reads.passages == 0 ||
                     (c->teach_gradient == TEACH_PROJECTIONS && !m->retrieval_proj)))
        return fail(STATUS_INVALID, "training: teach needs encoder_input \"tokens\", a token memory with passages, and "
                                    "retrieval_proj in the model's config where projections alone learn");
    if (c->mlm && (m->encoder_input != ENCODER_INPUT_TOKENS || m->mask_id < 0))
        return fail(STATUS_INVALID, "training: mlm needs encoder_input \"tokens\" and a mask_id in the model's config");
    if (c->pool != POOL_CORPUS) return STATUS_OK;
    if (m->encoder_input != ENCODER_INPUT_TOKENS)
        return fail(STATUS_INVALID, "training: pool corpus needs encoder_input \"tokens\" in the model's config");
    assert(corpus && c->candidates > 0);
    return STATUS_OK;
}

static void step_layout_selection(struct step_neighbours *out, struct carve *c, const struct step *s) {
    int64_t Q = s->queries, results = Q * s->model.topk, more = results + s->model.topk;
    *out = (struct step_neighbours){
        .index = carve_bytes(c, results, sizeof(int64_t)),
        .slot = carve_bytes(c, more, sizeof(int32_t)),
        .score = carve_bytes(c, results, sizeof(float)),
        .weight = carve_bytes(c, more, sizeof(float)),
        .dweight = carve_bytes(c, more, sizeof(float)),
        .dquery = carve_mat(c, DTYPE_F32, Q, s->model.hidden),
        .contrast_nll = carve_bytes(c, Q, sizeof(float)),
        .contrast_hit = carve_bytes(c, Q, sizeof(float)),
    };
    bool teach = s->config.teach && s->config.teach_gradient != TEACH_ALL;
    if (s->config.cut_query || teach) out->dquery_cut = carve_mat(c, DTYPE_F32, Q, s->model.hidden);
}

static void step_layout(void *of, struct carve *c) {
    struct step *s = of;
    int64_t n = s->rows, Q = s->queries;
    size_t word = sizeof(int32_t);
    s->ids = carve_bytes(c, n, word);
    s->targets = carve_bytes(c, n, word);
    s->nll = carve_bytes(c, n, sizeof(float));
    if (s->model.base_lm) return;
    struct step_visible *v = &s->visible;
    s->encoder_ids = carve_bytes(c, s->max_chunks * s->positions, word);
    s->row_begin = carve_bytes(c, Q + 1, sizeof(int64_t));
    int32_t **ranges[] = {&v->own_begin, &v->own_end,          &v->sequence_end,     &v->none,
                          &v->batch_end, &s->contrast_targets, &s->contrast_excluded};
    for (size_t i = 0; i < ARRAY_LEN(ranges); i++)
        *ranges[i] = carve_bytes(c, Q, word);
    v->candidates_begin = carve_bytes(c, s->model.groups * Q, word);
    v->candidates_end = carve_bytes(c, s->model.groups * Q, word);
    v->document_of = carve_bytes(c, s->max_chunks, 2 * word);
    v->barred = carve_bytes(c, Q, 2 * word);
    for (int g = 0; g < s->model.groups; g++)
        step_layout_selection(&s->neighbours[g], c, s);
    s->inverse_begin = carve_bytes(c, s->max_chunks + 1, word);
    s->inverse_entry = carve_bytes(c, Q * s->model.topk, word);
    int64_t all = Q * (s->config.group ? collective_world(s->config.group) : 1);
    s->contrast_alone = carve_bytes(c, all, sizeof(float));
    if (s->config.contrastive && s->config.group) {
        struct step_gathered *g = &s->gathered;
        g->f32 = carve_mat(c, DTYPE_F32, all, s->model.hidden);
        g->table = s->config.type == DTYPE_F32 ? g->f32 : carve_mat(c, s->config.type, all, s->model.hidden);
        g->gradient = carve_mat(c, DTYPE_F32, all, s->model.hidden);
    }
    if (!s->config.mlm) return;
    s->masked.rows = carve_bytes(c, n, word);
    s->masked.targets = carve_bytes(c, n, word);
    s->masked.nll = carve_bytes(c, n, sizeof(float));
    s->masked.x = carve_mat(c, s->config.type, n, s->model.hidden);
    s->masked.dx = carve_mat(c, s->config.type, n, s->model.hidden);
}

static enum status step_allocate(struct step *s) {
    TRY(carve_device(s->dev, &s->memory, &s->bytes, step_layout, s));
    int64_t ids = 4 * s->rows > 4 * s->model.topk ? 4 * s->rows : 4 * s->model.topk;
    TRY(memory_allocate_zero(&s->ids_host, (size_t)ids));
    return memory_allocate_zero(&s->floats_host, (size_t)s->rows);
}

static enum status step_create_memory(struct step *s) {
    struct memory_loss_config how = s->config.reads;
    const struct weights *w = optimizer_weights(s->optimizer), *g = optimizer_gradients(s->optimizer);
    if (!s->config.memory) return STATUS_OK;
    how.sequences = s->config.sequences;
    how.chunks = s->config.chunks;
    how.recompute = s->config.recompute;
    TRY(memory_loss_create(&s->mixture, s->dev, &s->model, &how, w, g, optimizer_master(s->optimizer)));
    decoder_train_keep_keys(s->decoder, s->model.memory_layer);
    return STATUS_OK;
}

static enum status step_create_parts(struct step *s, const struct params *initial) {
    const struct step_config *c = &s->config;
    bool encoder = c->pool != POOL_NONE || c->contrastive || c->mlm || c->teach;
    TRY(optimizer_create(&s->optimizer, s->dev, &c->optimizer, initial, c->type));
    const struct weights *w = optimizer_weights(s->optimizer), *g = optimizer_gradients(s->optimizer);
    TRY(decoder_train_create(&s->decoder, s->dev, &s->model, w, g, c->sequences, c->chunks, c->recompute));
    if (encoder) TRY(encoder_train_create(&s->encoder, s->dev, &s->model, w, g, s->max_chunks, c->recompute));
    TRY(step_create_memory(s));
    if (c->teach) TRY(step_teach_create(&s->teach, s));
    TRY(step_allocate(s));
    step_constants_upload(s);
    return device_sync(s->dev);
}

enum status step_create(struct step **out, struct device *dev, const struct model_config *model,
                        const struct step_config *config, const struct params *initial, struct corpus_pool *corpus) {
    struct step *s;
    assert(config->sequences > 0 && config->chunks > 0);
    TRY(step_check(model, config, corpus));
    TRY(memory_allocate_zero(&s, 1));
    s->dev = dev;
    s->model = *model;
    s->config = *config;
    s->corpus = corpus;
    if (config->pool != POOL_CORPUS) s->config.candidates = 0;
    s->positions = model_config_positions(model);
    s->queries = config->sequences * config->chunks;
    s->rows = s->queries * s->positions;
    s->max_chunks = step_candidates_begin(s, model->groups) + step_teach_chunks(config, s->queries);
    enum status status = step_create_parts(s, initial);
    if (status == STATUS_OK)
        *out = s;
    else
        step_free(s);
    return status;
}

void step_free(struct step *s) {
    if (!s) return;
    step_teach_free(s->teach, s->dev);
    memory_loss_free(s->mixture);
    encoder_train_free(s->encoder);
    decoder_train_free(s->decoder);
    optimizer_free(s->optimizer);
    device_release(s->dev, s->memory);
    memory_free(s->ids_host);
    memory_free(s->floats_host);
    memory_free(s);
}

struct optimizer *step_optimizer(struct step *s) {
    return s->optimizer;
}

size_t step_bytes(const struct step *s) {
    /* Weights, gradient and two moments in float32, and the copy to compute with. */
    size_t each = 4 * sizeof(float) + (s->config.type == DTYPE_F32 ? 0 : (size_t)dtype_bytes(s->config.type));
    size_t weights = (size_t)params_elements(optimizer_master(s->optimizer)->table) * each;
    size_t encoder = s->encoder ? encoder_train_bytes(s->encoder) : 0;
    size_t memory = s->mixture ? memory_loss_bytes(s->mixture) : 0;
    size_t teach = s->teach ? step_teach_bytes(s->teach) : 0;
    return weights + decoder_train_bytes(s->decoder) + encoder + memory + teach + s->bytes;
}

void step_refresh_corpus(struct step *s) {
    if (s->corpus) corpus_pool_refresh(s->corpus, s->encoder);
}

/* The forward pass of both towers, up to the last layer. */
static void step_forward(struct step *s, const struct step_task *task) {
    step_batch_upload(s, task);
    struct mat lower = decoder_train_lower(s->decoder, s->ids);
    if (task->encode) step_encode(s, task, lower);
    for (int g = 0; g < s->model.groups; g++)
        step_group_forward(s, task, g);
}

static void step_clear_dqueries(struct step *s) {
    for (int g = 0; g < s->model.groups; g++) {
        struct mat both[] = {s->neighbours[g].dquery, s->neighbours[g].dquery_cut};
        for (int i = 0; i < 2; i++)
            if (both[i].data) device_clear(s->dev, both[i].data, mat_bytes(both[i]));
    }
}

/* Reads the memory: the mixture decides what each row's own loss counts. */
static void step_read_memory(struct step *s, const struct step_task *task) {
    float drop = task->now ? task->now->memory_drop_past : 0.0f;
    uint64_t hash = step_mix(task->seed ^ 0x6d656d6f7279u);
    const struct memory_loss_now now = {.weight = task->now ? task->now->memory_weight : 0.0f,
                                        .drop_past = (float)(hash >> 40) < drop * 0x1p24f,
                                        .alone = !task->now};
    decoder_train_score(s->decoder, s->nll, s->targets);
    memory_loss_forward(s->mixture, task->batch, decoder_train_keys(s->decoder), s->nll, s->targets, now);
}

static void step_teach_add(struct step *s, struct step_sums *sums, const struct step_task *task) {
    const struct step_teach_sums now = step_teach_run(s, task);
    const double values[] = {now.loss, now.hits, now.gain, now.best};
    for (int i = 0; i < (int)ARRAY_LEN(values); i++)
        sums->teach[i] += values[i];
}

/* True if nothing uses what a backward pass through the trunk would give: it is not updated, and the memory's
 * projection, temperature and gate learn without it. */
static bool step_trunk_rests(const struct step *s, const struct step_task *task) {
    return s->model.base_lm && s->config.optimizer.trunk == 0.0f && task->memory &&
           s->config.reads.gradient == MEMORY_GRADIENT_PROJECTION;
}

static enum status step_micro_batch(struct step *s, struct step_sums *sums, const struct step_task *task) {
    bool rests = step_trunk_rests(s, task);
    step_forward(s, task);
    step_clear_dqueries(s);
    struct loss_rows rows = {.targets = s->targets, .scale = task->scale};
    if (task->memory) {
        step_read_memory(s, task);
        rows.weight = memory_loss_row_weights(s->mixture);
    }
    decoder_train_loss(s->decoder, s->nll, rows);
    if (s->mixture)
        decoder_train_add_dkeys(s->decoder, task->memory ? memory_loss_backward(s->mixture, s->targets, task->scale)
                                                         : (struct mat){0});
    if (task->teach) step_teach_add(s, sums, task);
    if (task->mlm) step_mlm(s, task);
    if (task->contrast) TRY(step_contrast(s, task));
    for (int g = s->model.groups - 1; g >= 0 && !rests; g--)
        step_group_backward(s, task, g);
    if (task->encode) {
        bool hidden = s->model.encoder_input == ENCODER_INPUT_HIDDEN;
        encoder_train_backward(s->encoder, hidden ? decoder_train_dhidden(s->decoder) : (struct mat){0});
    }
    if (!rests) decoder_train_lower_backward(s->decoder);

    /* All work is queued now, so waiting for the losses leaves no gap on the device. */
    sums->nll += step_sum(s, s->nll, s->rows);
    if (task->mlm) sums->mlm += step_sum(s, s->masked.nll, s->masked.count);
    for (int g = 0; task->contrast && g < s->model.groups; g++) {
        sums->contrast += step_sum(s, s->neighbours[g].contrast_nll, s->queries);
        sums->hits += step_sum(s, s->neighbours[g].contrast_hit, s->queries);
    }
    if (task->pool == POOL_CORPUS) step_neighbours_sum(s, sums);
    return STATUS_OK;
}

/* Counts over all micro-batches of a step: the scales of its losses. */
static struct step_sums step_count_targets(const struct step *s, const struct step_task *task,
                                           const struct batch *batches, int n, int64_t first) {
    struct step_sums sums = {0};
    for (int i = 0; i < n; i++) {
        sums.scored += batches[i].scored;
        if (task->teach) sums.taught += s->model.groups * step_teach_count(s, &batches[i]);
        if (task->mlm) sums.masked += step_masked_count(s, &batches[i], task->now, (first + i) * s->rows);
        for (int64_t r = 0; task->contrast && r < s->queries; r++)
            sums.pairs += step_positive(s, &batches[i], task->now, r, (first + i) * s->rows) >= 0 ? s->model.groups : 0;
    }
    return sums;
}

static double step_mean(double sum, int64_t n) {
    return n > 0 ? sum / (double)n : (double)NAN;
}

static float step_share(float weight, int64_t n) {
    return n > 0 ? weight / (float)n : 0.0f;
}

/* Over all processes; counts stay exact in double. */
static enum status step_sum_counts(struct collective *group, struct step_sums *sums) {
    double all[] = {(double)sums->scored, (double)sums->masked, (double)sums->pairs, (double)sums->taught};
    if (!group) return STATUS_OK;
    TRY(collective_sum_host(group, all, ARRAY_LEN(all)));
    sums->scored = (int64_t)all[0];
    sums->masked = (int64_t)all[1];
    sums->pairs = (int64_t)all[2];
    sums->taught = (int64_t)all[3];
    return STATUS_OK;
}

static enum status step_sum_results(struct step *s, struct step_sums *sums) {
    double all[] = {sums->nll,      sums->mlm,        sums->contrast,    sums->hits,         sums->corpus_weight,
                    sums->weight,   sums->memory.nll, sums->memory.gate, sums->memory.share, sums->teach[0],
                    sums->teach[1], sums->teach[2],   sums->teach[3]};
    if (!s->config.group) return STATUS_OK;
    const struct weights *g = optimizer_gradients(s->optimizer);
    TRY(collective_sum(s->config.group, g->data, params_elements(g->table)));
    TRY(collective_sum_host(s->config.group, all, ARRAY_LEN(all)));
    sums->nll = all[0];
    sums->mlm = all[1];
    sums->contrast = all[2];
    sums->hits = all[3];
    sums->corpus_weight = all[4];
    sums->weight = all[5];
    sums->memory = (struct memory_loss_sums){all[6], all[7], all[8]};
    for (int i = 0; i < 4; i++)
        sums->teach[i] = all[9 + i];
    return STATUS_OK;
}

enum status step_run(struct step *s, struct step_report *out, const struct batch *batches, int n,
                     const struct step_now *now) {
    assert(n > 0 && (now->pool == POOL_NONE || s->encoder) && (now->pool != POOL_CORPUS || s->config.candidates > 0));
    struct step_task task = {
        .now = now,
        .pool = now->pool,
        .retrieve = now->pool != POOL_NONE,
        .mlm = s->config.mlm && now->mlm_rate > 0.0f,
        .contrast = s->config.contrastive && now->contrastive_weight > 0.0f,
        .memory = s->mixture && now->memory_weight > 0.0f,
    };
    task.teach = s->teach && task.memory && now->teach_weight > 0.0f;
    task.encode = task.retrieve || task.mlm || task.contrast || task.teach;
    int64_t first = s->config.group ? (int64_t)collective_rank(s->config.group) * n : 0;
    struct step_sums sums = step_count_targets(s, &task, batches, n, first);
    TRY(step_sum_counts(s->config.group, &sums));
    task.scale = step_share(1.0f, sums.scored);
    task.mlm_scale = step_share(now->mlm_weight, sums.masked);
    task.contrast_scale = step_share(now->contrastive_weight, sums.pairs);
    task.teach_scale = step_share(now->teach_weight, sums.taught);

    optimizer_clear_gradients(s->optimizer);
    if (task.memory) memory_loss_begin(s->mixture);
    for (int i = 0; i < n; i++) {
        task.batch = &batches[i];
        task.first_row = (first + i) * s->rows;
        task.seed = step_mix(now->seed ^ step_mix((uint64_t)(first + i)));
        TRY(step_micro_batch(s, &sums, &task));
    }
    if (task.memory) {
        memory_loss_finish(s->mixture, task.scale);
        sums.memory = memory_loss_sums(s->mixture);
    }
    TRY(step_sum_results(s, &sums));
    int64_t mixed = task.memory ? sums.scored : 0;
    *out = (struct step_report){.loss = step_mean(sums.nll, sums.scored),
                                .mlm_loss = step_mean(sums.mlm, sums.masked),
                                .contrastive_loss = step_mean(sums.contrast, sums.pairs),
                                .contrastive_accuracy = step_mean(sums.hits, sums.pairs),
                                .corpus_weight = sums.weight > 0 ? sums.corpus_weight / sums.weight : (double)NAN,
                                .memory_loss = step_mean(sums.memory.nll, mixed),
                                .memory_gate = step_mean(sums.memory.gate, mixed),
                                .memory_share = step_mean(sums.memory.share, mixed),
                                .teach_loss = step_mean(sums.teach[0], sums.taught),
                                .teach_accuracy = step_mean(sums.teach[1], sums.taught),
                                .teach_gain = step_mean(sums.teach[2], sums.taught),
                                .teach_best_gain = step_mean(sums.teach[3], sums.taught),
                                .gradient_norm = (double)NAN,
                                .memory_gradient_norm = -1.0,
                                .retriever_gradient_norm = -1.0,
                                .scored = sums.scored};
    if (now->optimizer.lr < 0.0f) return device_sync(s->dev);
    double norms[OPTIMIZER_PARTS];
    optimizer_step(s->optimizer, &now->optimizer);
    TRY(optimizer_gradient_norms(s->optimizer, norms));
    out->gradient_norm = norms[OPTIMIZER_TRUNK];
    out->memory_gradient_norm = norms[OPTIMIZER_MEMORY];
    out->retriever_gradient_norm = norms[OPTIMIZER_RETRIEVER];
    return STATUS_OK;
}

enum status step_evaluate(struct step *s, double *sum_nll, double *sum_mixed, const struct batch *batch,
                          enum pool_kind pool) {
    bool retrieve = pool != POOL_NONE;
    assert(!sum_mixed || s->mixture);
    assert((!retrieve || s->encoder) && (pool != POOL_CORPUS || s->config.candidates > 0));
    struct step_task task = {.batch = batch, .pool = pool, .retrieve = retrieve, .encode = retrieve};
    step_forward(s, &task);
    if (sum_mixed) {
        memory_loss_begin(s->mixture);
        step_read_memory(s, &task);
    } else {
        decoder_train_score(s->decoder, s->nll, s->targets);
    }
    int64_t each = s->rows / s->config.sequences;
    for (int64_t r = 0; sum_mixed && r < s->rows; r++)
        sum_mixed[r / each] = (r % each ? sum_mixed[r / each] : 0.0) + (double)memory_loss_nll(s->mixture)[r];
    for (int i = 0; i < s->config.sequences; i++)
        sum_nll[i] = step_sum(s, s->nll + i * each, each);
    return device_sync(s->dev);
}

static enum status step_download(struct step *s, struct params *out, const struct weights *w) {
    void *to = (void *)params_at(out, 0)->data;
    assert(to && params_elements(out) == params_elements(w->table) && w->type == DTYPE_F32);
    device_download(s->dev, to, w->data, (size_t)params_elements(out) * sizeof(float));
    return device_sync(s->dev);
}

enum status step_weights(struct step *s, struct params *out) {
    return step_download(s, out, optimizer_master(s->optimizer));
}

enum status step_gradients(struct step *s, struct params *out) {
    return step_download(s, out, optimizer_gradients(s->optimizer));
}
