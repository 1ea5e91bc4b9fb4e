/* schedule.c -- see schedule.h. */
#include "train/step/schedule.h"
#include "base/rng.h"
#include <assert.h>
#include <math.h>

static double schedule_lr(const struct schedule *s, int64_t step) {
    static const double pi = 3.14159265358979323846;
    if (step < s->warmup) return s->lr * (double)step / (double)s->warmup;
    if (s->steps <= s->warmup) return s->lr;
    double progress = (double)(step - s->warmup) / (double)(s->steps - s->warmup);
    if (progress > 1.0) progress = 1.0;
    return s->min_lr + (s->lr - s->min_lr) * 0.5 * (1.0 + cos(pi * progress));
}

static double schedule_contrastive_weight(const struct schedule *s, int64_t step) {
    int64_t since = step - s->contrastive_start;
    if (since < 0) return 0.0;
    return since >= s->contrastive_ramp ? s->contrastive_weight
                                        : s->contrastive_weight * (double)since / (double)s->contrastive_ramp;
}

static double schedule_copies_rate(const struct schedule *s, double part) {
    return part < s->copies_until ? s->copies_rate * (1.0 - part / s->copies_until) : 0.0;
}

void schedule_at(struct step_now *out, const struct schedule *s, int64_t step) {
    assert(step >= 1);
    enum { STREAM_STEPS = 3 };
    struct rng rng = rng_make(s->seed, (uint64_t)STREAM_STEPS << 56 | (uint64_t)step);
    double part = (double)step / (double)s->steps;
    bool mlm = s->mlm_rate > 0.0 && part <= s->mlm_until;
    *out = (struct step_now){.optimizer = {.lr = (float)schedule_lr(s, step), .step = step},
                             .seed = rng_u64(&rng),
                             .mlm_rate = mlm ? (float)s->mlm_rate : 0.0f,
                             .mlm_weight = mlm ? (float)s->mlm_weight : 0.0f,
                             .no_noise = part > s->gumbel_until,
                             .corpus_alone = (float)s->corpus_alone,
                             .copy_rate = (float)schedule_copies_rate(s, part),
                             .contrastive_reach = s->contrastive_reach,
                             .contrastive_weight = (float)schedule_contrastive_weight(s, step),
                             .memory_weight = step >= s->memory_start ? (float)s->memory_weight : 0.0f,
                             .teach_weight = step >= s->teach_start ? (float)s->teach_weight : 0.0f,
                             .teach_temperature = (float)s->teach_temperature,
                             .memory_drop_past = (float)s->memory_drop_past,
                             .pool = step >= s->pool_start ? s->pool : s->pool_before};
}
