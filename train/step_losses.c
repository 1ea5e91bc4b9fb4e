/* step_losses.c -- the losses beside the next token's: masked tokens of the encoder, and the contrastive one. */
#include "train/step_internal.h"
#include <math.h>

/* -log p(id) of the masked rows alone, under the tied head (model.md §11.3): their states are taken out as rows of a
 * table, and what comes back is added to where they were. */
void step_mlm(struct step *s, const struct step_task *task) {
    const struct ops *ops = s->dev->ops;
    struct step_masked *m = &s->masked;
    struct mat x = mat_rows(m->x, 0, m->count), dx = mat_rows(m->dx, 0, m->count);
    if (m->count == 0) return;
    struct mat embed = weights_tensor(optimizer_weights(s->optimizer), "model.embed_tokens.weight");
    struct mat dembed = weights_tensor(optimizer_gradients(s->optimizer), "model.embed_tokens.weight");
    ops->embed->forward(s->dev, x, encoder_train_states(s->encoder), m->rows, 0);
    ops->loss->forward_backward(s->dev, m->nll, dx, dembed, x, embed, m->targets, task->mlm_scale);
    ops->embed->backward(s->dev, encoder_train_dstates(s->encoder), dx, m->rows, -1);
}

/* The query of chunk t must find the landmark of chunk t + 1 among all of the batch's own but its own chunk's
 * (training.md). Every group's queries take part; candidates from a corpus do not. */
void step_contrast(struct step *s, const struct step_task *task) {
    struct mat landmarks = mat_rows(encoder_train_landmarks(s->encoder), 0, s->queries);
    struct mat dlandmarks = mat_rows(encoder_train_dlandmarks(s->encoder), 0, s->queries);
    for (int g = 0; g < s->model.groups; g++) {
        struct step_choice *c = &s->choices[g];
        s->dev->ops->loss->contrastive(s->dev, c->contrast_nll, c->contrast_hit,
                                       c->dquery_cut.data ? c->dquery_cut : c->dquery, dlandmarks, c->query, landmarks,
                                       s->contrast_targets, s->contrast_excluded, 1.0f / sqrtf((float)s->model.hidden),
                                       task->contrast_scale);
    }
}
