/* schedule.h -- the values that change from step to step, as functions of the step's number, so that a resumed run has
 * the same values. Pure functions, safe from any thread. */
#pragma once
#include "train/step/pool.h"
#include "train/step/step.h"
#include <stdint.h>

struct schedule {
    int64_t steps;                       /* of the whole run */
    int64_t warmup;                      /* rises linearly from 0: step t has lr * t / warmup */
    double lr, min_lr;                   /* then follows a cosine, which reaches min_lr at the last step */
    double mlm_rate, mlm_weight, mlm_until;            /* until: fraction of the steps (model.md §9.2) */
    double gumbel_until;                 /* fraction of the steps after which retrieval has no noise */
    double corpus_alone;                 /* fraction of the sequences that retrieve from the corpus only */
    double copies_rate, copies_until;    /* fraction of the queries, which falls to 0 at copies_until * steps */
    double contrastive_weight;
    /* The weight is 0 before `start` and rises over `ramp` steps. */
    int64_t contrastive_reach, contrastive_start, contrastive_ramp;
    double memory_weight, memory_drop_past;
    int64_t memory_start;                /* the weight is 0 before this step */
    double teach_weight, teach_temperature;
    int64_t teach_start;
    enum pool_kind pool, pool_before;
    int64_t pool_start;                  /* the first step with `pool`; `pool_before` until then */
    uint64_t seed;
};

/* step: from 1. */
void schedule_at(struct step_now *out, const struct schedule *s, int64_t step);
