/* schedule.h -- the values that change from step to step: a function of the step's number, so that a resumed run is
 * exact. */
#pragma once
#include "train/step/pool.h"
#include "train/step/step.h"
#include <stdint.h>

struct schedule {
    int64_t steps;                       /* of the whole run */
    int64_t warmup;                      /* linear from 0: step t has lr * t / warmup */
    double lr, min_lr;                   /* then a cosine, min_lr at the last step */
    double mlm_rate, mlm_weight, mlm_until;            /* until: fraction of the steps (model.md §9.2) */
    double gumbel_until;                 /* fraction of the steps after which retrieval has no noise */
    double corpus_alone;                 /* fraction of the sequences */
    double copies_rate, copies_until;    /* fraction of the queries, falling to 0 at copies_until * steps */
    double contrastive_weight;
    /* weight 0 before start, then rising over `ramp` steps */
    int64_t contrastive_reach, contrastive_start, contrastive_ramp;
    double memory_weight, memory_drop_past;
    int64_t memory_start;                /* weight 0 before */
    double teach_weight, teach_temperature;
    int64_t teach_start;
    enum pool_kind pool, pool_before;
    int64_t pool_start;                  /* the first step with `pool`; `pool_before` until then */
    uint64_t seed;
};

/* step: from 1. */
void schedule_at(struct step_now *out, const struct schedule *s, int64_t step);
