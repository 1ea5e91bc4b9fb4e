/* picked.h -- texts whose ids a GPU picks, for benchmarks: what session/generation_batch.c does, without a session. */
#pragma once
#include "decoder/batch/decoder_ahead.h"
#include "decoder/batch/decoder_batch.h"
#include "decoder/logits/picker.h"
#include "kernels/ops.h"
#include "tests/test.h"

struct picked {
    struct device *dev;
    struct decoder_state *state;
    struct sampler *sampler;
    struct picker *picker;
    float *logits_device[2];
    int now, vocab;
    bool known;                          /* `id` is to be fed; else its pass is queued */
    int32_t id;
};

static inline void picked_open(struct picked *p, struct device *dev, struct decoder_state *state,
                               const struct sampler_config *config, int vocab) {
    *p = (struct picked){.dev = dev, .state = state, .vocab = vocab, .known = true};
    CHECK_OK(sampler_create(&p->sampler, config, vocab));
    CHECK_OK(picker_create(&p->picker, dev, p->sampler, config, vocab));
    for (int i = 0; i < 2; i++) CHECK_OK(device_allocate(dev, &p->logits_device[i], (size_t)vocab));
}
static inline void picked_close(struct picked *p) {
    picker_free(p->picker);
    sampler_free(p->sampler);
    for (int i = 0; i < 2; i++) device_release(p->dev, p->logits_device[i]);
}

static inline void picked_take(struct picked *p) {
    const struct pick_result *r;
    const bool ahead = picker_queued(p->picker) > 1;
    CHECK_OK(picker_wait(p->picker, &r));
    p->id = r->id;
    p->known = !ahead;
    sampler_picked(p->sampler, p->id);
    if (ahead) decoder_ahead_known(p->state, p->id);
}

static inline struct pick_row picked_row(struct picked *p) {
    struct pick_row row;
    picker_queue(p->picker, &row, p->logits_device[p->now], false, 0);
    return row;
}

/* The next id of one text. */
static inline void picked_next(struct picked *p) {
    if (p->known) {
        const struct pick_row row = picked_row(p);
        const struct decoder_output out = {.logits_device = p->logits_device[p->now], .pick = &row};
        CHECK_OK(decoder_forward(p->state, &out, &p->id, 1));
    }
    if (decoder_ahead_takes(p->state, true)) {
        const int32_t *id = picker_id(p->picker);
        p->now = !p->now;
        const struct pick_row row = picked_row(p);
        const struct decoder_output out = {.logits_device = p->logits_device[p->now], .pick = &row};
        CHECK_OK(decoder_ahead_step(p->state, &out, id));
    }
    picked_take(p);
}

struct picked_round { struct picked *at[DECODER_BATCH_MAX]; int n; };
static inline void picked_round_queue(void *context, struct device *dev) {
    const struct picked_round *round = context;
    struct pick_row rows[DECODER_BATCH_MAX];
    for (int i = 0; i < round->n; i++) {
        rows[i] = picked_row(round->at[i]);
    }
    dev->ops->pick->rows(dev, rows, round->n, round->at[0]->vocab);
}
static inline void picked_round_pass(struct picked_round *round, bool ahead) {
    struct decoder_state *states[DECODER_BATCH_MAX];
    float *logits[DECODER_BATCH_MAX];
    struct decode_step_id ids[DECODER_BATCH_MAX];
    for (int i = 0; i < round->n; i++) {
        struct picked *p = round->at[i];
        p->now = !p->now;
        states[i] = p->state, logits[i] = p->logits_device[p->now];
        ids[i] = (struct decode_step_id){p->id, ahead ? picker_id(p->picker) : NULL};
    }
    const struct decoder_ahead_batch batch = {states, logits, ids, round->n, picked_round_queue, round};
    CHECK_OK(decoder_ahead_forward(&batch));
}

/* The next id of each of n texts, of which none or all have a pass queued. */
static inline void picked_batch(struct picked *all, int n) {
    struct picked_round round = {.n = n};
    bool ahead = true;
    for (int i = 0; i < n; i++) round.at[i] = &all[i];
    if (all[0].known) picked_round_pass(&round, false);
    for (int i = 0; i < n; i++) {
        CHECK_OK(decoder_ahead_settle(all[i].state));
        ahead = ahead && decoder_ahead_takes(all[i].state, false);
    }
    if (ahead) picked_round_pass(&round, true);
    for (int i = 0; i < n; i++) picked_take(&all[i]);
}
