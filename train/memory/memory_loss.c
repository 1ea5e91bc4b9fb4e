/* memory_loss.c -- see memory_loss.h. One matrix holds the keys of all entries: first those of the micro-batch's own
 * rows (read as own past and by other sequences), then those of the passages. */
#include "base/memory.h"
#include "train/memory/memory_loss_internal.h"
#include <assert.h>
#include <math.h>
#include <string.h>

static const char KEY_PROJ[] = "memory.key_proj.weight", LOG_TAU[] = "memory.log_tau", GATE[] = "memory.gate.weight";
static const char *const gradient_names[] = {"all", "states", "projection"};

const char *memory_gradient_name(enum memory_gradient gradient) {
    return gradient_names[gradient];
}

int memory_gradient_find(const char *name) {
    for (int i = 0; i < (int)ARRAY_LEN(gradient_names); i++)
        if (strcmp(name, gradient_names[i]) == 0) return i;
    return -1;
}

/* ---- creation -----------------------------------------------------------------------------------------------------
 */

static void memory_loss_layout(void *of, struct carve *c) {
    struct memory_loss *m = of;
    int64_t all = m->all_rows, n = m->rows, size = model_config_key_size(&m->model, m->model.memory_layer);
    size_t number = sizeof(float), word = sizeof(int32_t);
    m->keys = carve_mat(c, m->type, all, size);
    m->gradient = carve_mat(c, DTYPE_F32, n, size);
    m->dkeys = carve_mat(c, DTYPE_F32, all, size);
    m->dkeys_typed = m->type == DTYPE_F32 ? m->dkeys : carve_mat(c, m->type, all, size);
    bool trunk = m->config.gradient != MEMORY_GRADIENT_PROJECTION;
    if (trunk) m->dstates = carve_mat(c, m->type, n, m->model.hidden);
    if (trunk && all > n) m->dpassages = carve_mat(c, m->type, all - n, m->model.hidden);
    m->value = carve_bytes(c, all, word);
    m->slot = carve_bytes(c, m->blocks * m->k, word);
    m->passage_ids = carve_bytes(c, all - n, word);
    m->square = carve_bytes(c, all, number);
    m->stats = carve_bytes(c, STATS * n, number);
    m->dlog_p = carve_bytes(c, n, number);
    m->dlse = carve_bytes(c, n, number);
    m->row_weight = carve_bytes(c, n, number);
    m->tau = carve_bytes(c, 1, number);
    m->dtau = carve_bytes(c, 1, number);
    m->row_begin = carve_bytes(c, m->blocks + 1, sizeof(int64_t));
    m->inverse_begin = carve_bytes(c, m->slots + 1, word);
    m->inverse_entry = carve_bytes(c, m->blocks * m->k, word);
}

/* The config of the lower layers alone: the passages pass through no layer above the one that gives the keys. */
static struct model_config memory_lower_model(const struct model_config *model) {
    struct model_config c = *model;
    int left = model->memory_layer;
    c.lower_layers = left < c.lower_layers ? left : c.lower_layers;
    left -= c.lower_layers;
    for (int g = 0; g < model->groups; g++) {
        c.group_layers[g] = left < c.group_layers[g] ? left : c.group_layers[g];
        left -= c.group_layers[g];
        if (c.group_layers[g] > 0) c.groups = g + 1;
    }
    if (model->memory_layer <= model->lower_layers) c.groups = 0;
    return c;
}

static enum status memory_loss_create_passages(struct memory_loss *m) {
    if (m->config.passages == 0) return STATUS_OK;
    const struct model_config lower = memory_lower_model(&m->model);
    int64_t chunks = m->model.base_lm ? (int64_t)m->config.span * m->model.chunk : m->config.span;
    TRY(decoder_train_create(&m->passages, m->dev, &lower, m->weights, m->gradients,
                             (int)(m->blocks * memory_passages(m)), chunks,
                             m->config.recompute || m->config.gradient != MEMORY_GRADIENT_ALL));
    decoder_train_keep_keys(m->passages, m->model.memory_layer);
    return STATUS_OK;
}

static void memory_loss_upload_blocks(struct memory_loss *m) {
    int64_t begin[512];
    for (int64_t b = 0; b <= m->blocks;) {
        int64_t n = 0;
        while (n < (int64_t)ARRAY_LEN(begin) && b + n <= m->blocks)
            begin[n] = (b + n) * m->block_rows, n++;
        device_upload(m->dev, m->row_begin + b, begin, (size_t)n * sizeof *begin);
        b += n;
    }
}

static enum status memory_loss_allocate(struct memory_loss *m) {
    size_t n = (size_t)m->rows, lists = (size_t)(m->blocks * m->k), passages = 2 * (size_t)(m->all_rows - m->rows);
    TRY(memory_loss_create_passages(m));
    TRY(carve_device(m->dev, &m->memory, &m->bytes, memory_loss_layout, m));
    TRY(memory_allocate_zero(&m->ids_host, (lists > passages ? lists : passages) + 1));
    TRY(memory_allocate_zero(&m->host, (STATS + 1) * n));
    TRY(memory_allocate_zero(&m->nll, n));
    TRY(memory_allocate_zero(&m->weight_host, n));
    memory_loss_upload_blocks(m);
    return device_sync(m->dev);
}

enum status memory_loss_create(struct memory_loss **out, struct device *dev, const struct model_config *model,
                               const struct memory_loss_config *config, const struct weights *weights,
                               const struct weights *gradients, const struct weights *parameters) {
    struct memory_loss *m;
    assert(model->memory_layer > 0 && model->chunk > 0 && (config->passages == 0 || config->read >= config->passages));
    assert(config->unread == 0 || config->passages > 0);
    TRY(memory_allocate_zero(&m, 1));
    m->dev = dev;
    m->model = *model;
    m->config = *config;
    m->weights = weights, m->gradients = gradients, m->parameters = parameters;
    m->type = weights->type;
    m->block_rows = model->base_lm ? model->chunk : model_config_positions(model);
    m->sequence_rows = config->chunks * (model->base_lm ? 1 : m->block_rows);
    m->rows = config->sequences * m->sequence_rows;
    m->blocks_each = m->sequence_rows / m->block_rows;
    m->blocks = config->sequences * m->blocks_each;
    m->all_rows = m->rows + m->blocks * memory_passages(m) * config->span * m->block_rows;
    m->slots = m->all_rows / m->block_rows;
    int64_t others = config->group > 1 ? (config->group - 1) * m->blocks_each : 0;
    m->k = (int)(others + (config->passages ? config->read * config->span : 0));
    assert(m->sequence_rows % m->block_rows == 0);
    enum status s = memory_loss_allocate(m);
    if (s == STATUS_OK)
        *out = m;
    else
        memory_loss_free(m);
    return s;
}

void memory_loss_free(struct memory_loss *m) {
    if (!m) return;
    decoder_train_free(m->passages);
    device_release(m->dev, m->memory);
    memory_free(m->ids_host);
    memory_free(m->host);
    memory_free(m->nll);
    memory_free(m->weight_host);
    memory_free(m);
}

size_t memory_loss_bytes(const struct memory_loss *m) {
    return m->bytes + (m->passages ? decoder_train_bytes(m->passages) : 0);
}

/* ---- forward ------------------------------------------------------------------------------------------------------
 */

void memory_loss_begin(struct memory_loss *m) {
    float log_tau, gate[MEMORY_LOSS_FEATURES];
    device_download(m->dev, &log_tau, weights_tensor(m->parameters, LOG_TAU).data, sizeof log_tau);
    device_download(m->dev, gate, weights_tensor(m->parameters, GATE).data, sizeof gate);
    m->mixture = (struct memory_loss_mixture){.tau = exp((double)log_tau)};
    for (int i = 0; i < MEMORY_LOSS_FEATURES; i++)
        m->mixture.gate[i] = (double)gate[i];
    float tau = (float)m->mixture.tau;
    device_upload(m->dev, m->tau, &tau, sizeof tau);
    device_clear(m->dev, m->dtau, sizeof *m->dtau);
}

static void memory_loss_project(struct memory_loss *m, struct mat keys, struct mat states) {
    if (m->model.memory_size > 0)
        m->dev->ops->matmul->forward(m->dev, keys, states, weights_tensor(m->weights, KEY_PROJ), false);
    else
        device_copy_rows(m->dev, keys, states);
}

struct token_memory_stats memory_loss_stats(const struct memory_loss *m) {
    int64_t n = m->rows;
    return (struct token_memory_stats){.log_p = m->stats,
                                       .lse = m->stats + n,
                                       .nearest = m->stats + 2 * n,
                                       .squares = m->stats + 3 * n,
                                       .largest = m->stats + 4 * n};
}

struct memory_slots memory_loss_slots(const struct memory_loss *m, int k) {
    return (struct memory_slots){.keys = m->keys,
                                 .value = m->value,
                                 .slot = m->slot,
                                 .square = m->square,
                                 .row_begin = m->row_begin,
                                 .slot_rows = m->block_rows,
                                 .blocks = (int)m->blocks,
                                 .k = k,
                                 .block_rows = m->block_rows};
}

static void memory_loss_entries(struct memory_loss *m, struct memory_loss_now now) {
    int64_t past = m->config.past;
    if (!m->model.base_lm) past = past * m->block_rows / m->model.chunk;
    if (past > m->sequence_rows) past = m->sequence_rows;
    m->now = (struct token_memory){.tau = m->tau};
    m->now.past = (struct memory_past){.keys = mat_rows(m->keys, 0, m->rows),
                                       .value = m->value,
                                       .square = m->square,
                                       .length = m->sequence_rows,
                                       .ring = m->sequence_rows,
                                       .limit = now.drop_past ? 0 : (int)past};
    if (m->k > 0) m->now.slots = memory_loss_slots(m, m->k);
    m->reads = m->k > 0 || m->now.past.limit > 0;
}

/* Computes the mixture of every row on the host. The upload reuses the arrays of the download: the gradients by log_p,
 * then those by lse. */
static void memory_loss_mix(struct memory_loss *m, const int32_t *targets) {
    int64_t n = m->rows;
    const float *log_p = m->host, *lse = log_p + n, *nearest = lse + n, *squares = nearest + n, *largest = squares + n,
                *nll = largest + n;
    double part = (double)m->part;
    bool own_loss_alone = m->config.gradient == MEMORY_GRADIENT_PROJECTION;
    for (int64_t r = 0; r < n; r++) {
        struct memory_mixture_result out = {0};
        const struct memory_mixture_row row = {-(double)nll[r],    (double)log_p[r],   (double)lse[r],
                                               (double)nearest[r], (double)squares[r], (double)largest[r]};
        if (targets[r] >= 0) out = memory_mixture_row(&m->mixture, &row, part);
        m->nll[r] = (float)out.nll;
        m->weight_host[r] = own_loss_alone ? 1.0f : (float)(1.0 - part * out.share);
        m->host[r] = (float)(part * out.dlog_p);
        m->host[n + r] = (float)(part * out.dlse);
    }
}

void memory_loss_forward(struct memory_loss *m, const struct batch *batch, struct mat states, const float *nll,
                         const int32_t *targets, struct memory_loss_now now) {
    const struct token_memory_ops *op = m->dev->ops->token_memory;
    size_t bytes = (size_t)m->rows * sizeof(float);
    m->part = now.weight;
    m->states = states;
    memory_loss_upload(m, batch, now.alone);
    memory_loss_entries(m, now);
    memory_loss_project(m, mat_rows(m->keys, 0, m->rows), states);
    if (m->passages)
        memory_loss_project(m, mat_rows(m->keys, m->rows, m->all_rows - m->rows),
                            decoder_train_passages(m->passages, m->passage_ids));
    op->squares(m->dev, m->square, m->keys);
    op->forward(m->dev, memory_loss_stats(m), mat_rows(m->keys, 0, m->rows), &m->now, targets);
    device_download(m->dev, m->host, m->stats, STATS * bytes);
    device_download(m->dev, m->host + STATS * m->rows, nll, bytes);
    memory_loss_mix(m, batch->targets);
    device_upload(m->dev, m->row_weight, m->weight_host, bytes);
}

const float *memory_loss_nll(const struct memory_loss *m) {
    return m->nll;
}
const float *memory_loss_row_weights(const struct memory_loss *m) {
    return m->row_weight;
}
struct memory_loss_sums memory_loss_sums(const struct memory_loss *m) {
    return (struct memory_loss_sums){m->mixture.nll, m->mixture.opened, m->mixture.share};
}

/* ---- backward -----------------------------------------------------------------------------------------------------
 */

static struct gca_inverse memory_loss_inverse(struct memory_loss *m) {
    if (m->k == 0) return (struct gca_inverse){0};
    m->dev->ops->gca->invert(m->dev, m->inverse_begin, m->inverse_entry, m->slot, m->blocks * m->k, m->slots);
    return (struct gca_inverse){.begin = m->inverse_begin, .entry = m->inverse_entry, .slots = m->slots};
}

/* The gradient of the keys becomes a gradient of the states from which the keys were projected. */
static void memory_loss_project_back(struct memory_loss *m, struct mat dstates, struct mat dkeys, struct mat states) {
    const struct matmul_ops *matmul = m->dev->ops->matmul;
    if (m->model.memory_size == 0) {
        if (dstates.data) device_copy_rows(m->dev, dstates, dkeys);
        return;
    }
    matmul->backward_weight(m->dev, weights_tensor(m->gradients, KEY_PROJ), dkeys, states);
    if (dstates.data) matmul->backward_input(m->dev, dstates, dkeys, weights_tensor(m->weights, KEY_PROJ), false);
}

struct mat memory_loss_backward(struct memory_loss *m, const int32_t *targets, float scale) {
    const struct ops *ops = m->dev->ops;
    int64_t n = m->rows, rest = m->all_rows - n;
    bool keys = m->config.gradient != MEMORY_GRADIENT_STATES;
    for (int64_t i = 0; i < 2 * n; i++)
        m->host[i] *= scale;
    device_upload(m->dev, m->dlog_p, m->host, (size_t)n * sizeof(float));
    device_upload(m->dev, m->dlse, m->host + n, (size_t)n * sizeof(float));
    device_clear(m->dev, m->gradient.data, mat_bytes(m->gradient));
    device_clear(m->dev, m->dkeys.data, mat_bytes(m->dkeys));
    if (m->reads) {
        const struct token_memory_gradients to = {.dstates = m->gradient,
                                                  .dkeys = keys && m->k > 0 ? m->dkeys : (struct mat){0},
                                                  .dpast = keys ? m->gradient : (struct mat){0},
                                                  .dtau = m->dtau,
                                                  .dlog_p = m->dlog_p,
                                                  .dlse = m->dlse,
                                                  .inverse = keys ? memory_loss_inverse(m) : (struct gca_inverse){0}};
        ops->token_memory->backward(m->dev, &to, mat_rows(m->keys, 0, n), &m->now, targets, memory_loss_stats(m));
    }
    struct mat own = mat_rows(m->dkeys, 0, n);
    ops->elementwise->add(m->dev, own, own, m->gradient);
    if (m->dkeys_typed.data != m->dkeys.data) ops->elementwise->convert(m->dev, m->dkeys_typed, m->dkeys);
    memory_loss_project_back(m, m->dstates, mat_rows(m->dkeys_typed, 0, n), m->states);
    if (m->passages && keys) {
        memory_loss_project_back(m, m->dpassages, mat_rows(m->dkeys_typed, n, rest), decoder_train_keys(m->passages));
        if (m->dpassages.data) decoder_train_passages_backward(m->passages, m->dpassages);
    }
    return m->dstates;
}

void memory_loss_finish(struct memory_loss *m, float scale) {
    float dtau, dlog_tau, dgate[MEMORY_LOSS_FEATURES];
    device_download(m->dev, &dtau, m->dtau, sizeof dtau);
    dlog_tau = (float)((double)dtau * m->mixture.tau);
    for (int i = 0; i < MEMORY_LOSS_FEATURES; i++)
        dgate[i] = (float)((double)scale * m->mixture.dgate[i]);
    device_upload(m->dev, weights_tensor(m->gradients, LOG_TAU).data, &dlog_tau, sizeof dlog_tau);
    device_upload(m->dev, weights_tensor(m->gradients, GATE).data, dgate, sizeof dgate);
}
