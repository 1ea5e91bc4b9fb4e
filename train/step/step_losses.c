/* step_losses.c -- the losses besides the next token's: masked tokens of the encoder, and the contrastive loss. */
#include "kernels/device/collective.h"
#include "train/step/step_internal.h"
#include <math.h>

/* -log p(id) of the masked rows, under the tied head (model.md §9.2): their states are gathered, and their gradients
 * are scattered back. */
void step_mlm(struct step *s, const struct step_task *task) {
    const struct ops *ops = s->dev->ops;
    struct step_masked *m = &s->masked;
    struct mat x = mat_rows(m->x, 0, m->count), dx = mat_rows(m->dx, 0, m->count);
    if (m->count == 0) return;
    struct mat embed = weights_tensor(optimizer_weights(s->optimizer), "model.embed_tokens.weight");
    struct mat dembed = weights_tensor(optimizer_gradients(s->optimizer), "model.embed_tokens.weight");
    ops->embed->forward(s->dev, x, encoder_train_states(s->encoder), m->rows, 0);
    struct loss_rows rows = {.targets = m->targets, .scale = task->mlm_scale};
    ops->loss->forward_backward(s->dev, m->nll, dx, dembed, x, embed, rows);
    ops->embed->backward(s->dev, encoder_train_dstates(s->encoder), dx, m->rows, -1);
}

int64_t step_first_query(const struct step *s) {
    return s->config.group ? collective_rank(s->config.group) * s->queries : 0;
}

/* All-gather as a sum: each row is zero in all processes but one, so the sum keeps its bits. */
static enum status step_gather_landmarks(struct step *s, struct mat own) {
    struct step_gathered *g = &s->gathered;
    device_clear(s->dev, g->f32.data, mat_bytes(g->f32));
    device_clear(s->dev, g->gradient.data, mat_bytes(g->gradient));
    s->dev->ops->elementwise->convert(s->dev, mat_rows(g->f32, step_first_query(s), own.rows), own);
    TRY(collective_sum(s->config.group, g->f32.data, g->f32.rows * g->f32.cols));
    if (g->table.data != g->f32.data) s->dev->ops->elementwise->convert(s->dev, g->table, g->f32);
    return STATUS_OK;
}

static enum status step_scatter_gradients(struct step *s, struct mat dlandmarks) {
    struct mat all = s->gathered.gradient;
    TRY(collective_sum(s->config.group, all.data, all.rows * all.cols));
    s->dev->ops->elementwise->add(s->dev, dlandmarks, dlandmarks, mat_rows(all, step_first_query(s), dlandmarks.rows));
    return STATUS_OK;
}

/* The positive of a query is the landmark of a chunk (step_positives.c); its negatives are the other landmarks of the
 * micro-batch of all processes, except its own chunk's. Candidates from the corpus are not negatives. A positive of
 * another sample is no negative, either: samples may have one question, which then fits the statements of all. */
enum status step_contrast(struct step *s, const struct step_task *task) {
    struct mat own = mat_rows(encoder_train_landmarks(s->encoder), 0, s->queries);
    struct mat down = mat_rows(encoder_train_dlandmarks(s->encoder), 0, s->queries);
    bool one = !s->config.group, samples = task->batch->samples;
    struct mat landmarks = one ? own : s->gathered.table, dlandmarks = one ? down : s->gathered.gradient;
    if (!one) TRY(step_gather_landmarks(s, own));
    if (!one && samples) TRY(collective_sum(s->config.group, s->contrast_alone, landmarks.rows));
    for (int g = 0; g < s->model.groups; g++) {
        struct step_neighbours *c = &s->neighbours[g];
        struct loss_contrast how = {.targets = s->contrast_targets,
                                    .excluded = s->contrast_excluded,
                                    .alone = samples ? s->contrast_alone : NULL,
                                    .scale = 1.0f / sqrtf((float)s->model.hidden),
                                    .weight = task->contrast_scale};
        s->dev->ops->loss->contrastive(s->dev, c->contrast_nll, c->contrast_hit,
                                       s->config.cut_query ? c->dquery_cut : c->dquery, dlandmarks, c->query, landmarks,
                                       how);
    }
    return one ? STATUS_OK : step_scatter_gradients(s, down);
}
