/* step.h -- one training step: forward, backward and update over micro-batches (model.md §6.4, §6.5, §9).
 *
 * A step owns device memory for the float32 weights, the moments, the gradients, the copy that the towers compute with
 * (bf16 on a GPU, the weights themselves on the CPU), and the activations of both towers. Only step_create allocates.
 * Equal inputs give equal bits. One thread at a time. */
#pragma once
#include "base/status.h"
#include "kernels/device/device.h"
#include "model/model_config.h"
#include "model/params.h"
#include "train/memory/memory_loss.h"
#include "train/step/batch.h"
#include "train/step/optimizer.h"
#include "train/step/pool.h"
#include <stdbool.h>

struct corpus_pool;                      /* train/step/corpus_pool.h */
struct collective;                       /* kernels/device/collective.h */

/* How far back the gradient of a taught retriever flows. */
enum teach_gradient {
    TEACH_PROJECTIONS,                   /* lmk_q_proj and lmk_k_proj, which the model must have */
    TEACH_ENCODER,                       /* the encoder, and of the query what contrastive.cut_query allows */
    TEACH_ALL,                           /* TEACH_ENCODER, and the decoder's layers */
};
const char *teach_gradient_name(enum teach_gradient gradient);     /* "projections", "encoder", "all" */
int teach_gradient_find(const char *name);                /* -1: no such name */

struct step_config {
    int sequences;                       /* N of a micro-batch */
    int64_t chunks;                      /* C (Base LM: positions) */
    struct optimizer_config optimizer;
    enum dtype type;                     /* activations: DTYPE_F32, or DTYPE_BF16 on a GPU */
    bool recompute;                      /* of both towers */
    enum pool_kind pool;
    int candidates;                      /* POOL_CORPUS: chunks encoded for each query */
    bool gumbel;                         /* noise on the scores of retrieval */
    bool cut_query;                      /* the contrastive loss's gradient does not reach the trunk */
    bool contrastive;                    /* whether buffers for it are allocated */
    bool mlm;
    /* Whether there is a loss through a token memory (docs/token-memory.md); the model needs memory_layer. step_create
     * sets sequences, chunks and recompute of `reads` to the values of this struct. */
    bool memory;
    struct memory_loss_config reads;
    /* Whether the retriever is taught what the memory's reader gains (step_teach.c); needs `memory` with passages. */
    bool teach;
    enum teach_gradient teach_gradient;
    /* Processes that train one model together, or NULL. Each runs its own micro-batches; counts, losses and
     * gradients are summed over all of them, so that W processes with n micro-batches take the step of one process
     * with W*n (rank r has micro-batches r*n ..), except for the order of float32 sums. The contrastive loss of
     * micro-batch i has the landmarks of all processes' micro-batches i as negatives, as in one process whose
     * micro-batch is W times as large. Borrowed. */
    struct collective *group;
};

/* Values that may change from step to step. */
struct step_now {
    struct optimizer_now optimizer;
    uint64_t seed;                       /* of this step's Gumbel noise and masks */
    float mlm_rate, mlm_weight;          /* rate 0: no masking, no loss */
    float contrastive_weight;            /* 0: off */
    /* A query's positive is one of the next `reach` chunks of its document; 0: as 1. */
    int64_t contrastive_reach;
    bool no_noise;                       /* no noise, even if step_config.gumbel is set */
    /* POOL_CORPUS: fraction of the sequences that do not retrieve from their own past. */
    float corpus_alone;
    /* POOL_CORPUS: fraction of the queries whose only neighbour contains ids of the next chunk. Real neighbours repeat
     * little of the next chunk: from them a model learns topics, but not to copy. */
    float copy_rate;
    /* memory_weight: the mixture's part of the loss; 0: off. memory_drop_past: fraction of the micro-batches in which
     * no position reads its own past. */
    float memory_weight, memory_drop_past;
    float teach_weight, teach_temperature;                /* weight 0: off; temperature in nats of a chunk */
    enum pool_kind pool;                 /* a run with POOL_CORPUS may begin with POOL_OWN_PAST or POOL_BATCH */
};

/* Results of a step: means over the scored items; NaN if there were none. */
struct step_report {
    double loss, mlm_loss, contrastive_loss, contrastive_accuracy;
    /* Before clipping: of the trunk and the parts that are clipped with it, and of the parts that are clipped apart
     * (optimizer.h); -1: the part is not clipped apart. */
    double gradient_norm, memory_gradient_norm, retriever_gradient_norm;
    /* POOL_CORPUS: the fraction of the retrieval weights that corpus chunks have. */
    double corpus_weight;
    /* The mixture's loss, its mean gate, and the memory's mean part of the probability of the next id. */
    double memory_loss, memory_gate, memory_share;
    /* The taught retriever: KL divergence; fraction of the queries whose first candidate has the largest gain; the mean
     * gain of the first candidate, and the mean of the largest gain, in nats a chunk. */
    double teach_loss, teach_accuracy, teach_gain, teach_best_gain;
    int64_t scored;
};

struct step;
/* The data of `initial` is only read during this call; its table is borrowed until step_free. `corpus` is borrowed, and
 * NULL unless the pool is POOL_CORPUS. */
enum status step_create(struct step **out, struct device *dev, const struct model_config *model,
                        const struct step_config *config, const struct params *initial, struct corpus_pool *corpus);
void step_free(struct step *s);                           /* NULL is fine */
size_t step_bytes(const struct step *s);                  /* of device memory held */
/* POOL_CORPUS: computes the corpus pool's index with the current encoder. Call it between steps: before the first, then
 * every `refresh` steps. */
void step_refresh_corpus(struct step *s);
/* Sums the gradients of `count` micro-batches, each weighted by its share of the scored targets, then updates the
 * weights. now.optimizer.lr < 0: no update; step_gradients then returns the gradients (tests). */
enum status step_run(struct step *s, struct step_report *out, const struct batch *batches, int count,
                     const struct step_now *now);
/* sum_nll [sequences]: sum of the losses over the scored targets of each sequence of a batch, without noise, mask or
 * update. sum_mixed [sequences] (NULL: not wanted; needs step_config.memory): the same of the mixture, which reads the
 * own past and passages alone. */
enum status step_evaluate(struct step *s, double *sum_nll, double *sum_mixed, const struct batch *batch,
                          enum pool_kind pool);
/* Download all weights, or all gradients, as float32 (checkpoints, tests). */
enum status step_weights(struct step *s, struct params *out);
enum status step_gradients(struct step *s, struct params *out);
struct optimizer *step_optimizer(struct step *s);
