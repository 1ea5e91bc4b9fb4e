/* step.h -- one training step: forward, backward and update over micro-batches (model.md §6.4, §6.5, §9).
 *
 * Owns on the device: float32 weights, moments, gradients, the copy to compute with (bf16 on a GPU, the weights
 * themselves on the CPU), and both towers' activations. Allocates only in step_create. Equal inputs give equal bits.
 * One thread at a time. */
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

/* How far the gradient of a taught retriever goes. */
enum teach_gradient {
    TEACH_PROJECTIONS,                   /* lmk_q_proj and lmk_k_proj, which the model must have */
    TEACH_ENCODER,                       /* the encoder; of the query as far as contrastive.cut_query */
    TEACH_ALL,                           /* and the decoder's layers */
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
    /* The loss through a token memory, where the model's config has memory_layer (docs/token-memory.md); its sequences,
     * chunks and recompute are this config's. */
    bool memory;
    struct memory_loss_config reads;
    /* The retriever is taught by what the memory's reader gains (step_teach.c); needs `memory` with passages. */
    bool teach;
    enum teach_gradient teach_gradient;
    /* Processes that train one model together, or NULL. Each runs its own micro-batches; counts, losses and
     * gradients are summed over all of them, so that W processes with n micro-batches take the step of one process
     * with W*n (rank r has micro-batches r*n ..), except for the order of float32 sums. The contrastive loss of
     * micro-batch i has the landmarks of all processes' micro-batches i as negatives, as in one process whose
     * micro-batch is W times as large. Borrowed. */
    struct collective *group;
};

/* What may change from step to step. */
struct step_now {
    struct optimizer_now optimizer;
    uint64_t seed;                       /* of this step: Gumbel noise and masks */
    float mlm_rate, mlm_weight;          /* rate 0: no masking, no loss */
    float contrastive_weight;            /* 0: off */
    /* a query's positive is one of the `reach` chunks after its own, of its document; 0: as 1 */
    int64_t contrastive_reach;
    bool no_noise;                       /* no noise, even if step_config.gumbel is set */
    /* POOL_CORPUS: fraction of the sequences that do not retrieve from their own past */
    float corpus_alone;
    /* POOL_CORPUS: fraction of the queries with a single neighbour that contains ids of the next chunk. Real neighbours
     * repeat little of the next chunk: from them a model learns topics, but not to copy from a neighbour. */
    float copy_rate;
    /* The mixture's part of the loss, 0: off; fraction of the micro-batches without their own past. */
    float memory_weight, memory_drop_past;
    float teach_weight, teach_temperature;                /* 0: off; nats of a chunk */
    enum pool_kind pool;                 /* a run with POOL_CORPUS may begin with POOL_OWN or POOL_BATCH */
};

/* Means over the scored items; NaN where there were none. */
struct step_report {
    double loss, mlm_loss, contrastive_loss, contrastive_accuracy;
    /* Before clipping, of the trunk and what is clipped with it; of the parts that are clipped apart (optimizer.h), -1:
     * there is none. */
    double gradient_norm, memory_gradient_norm, retriever_gradient_norm;
    /* POOL_CORPUS: the fraction of the retrieval weights on chunks of the corpus */
    double corpus_weight;
    /* Of the mixture: its loss, its mean gate, the memory's mean part of the probability of the next id. */
    double memory_loss, memory_gate, memory_share;
    /* Of the taught retriever: KL divergence; part of the queries whose first candidate is one that gains most; the
     * first one's gain, and the most that a candidate gains, nats a chunk. */
    double teach_loss, teach_accuracy, teach_gain, teach_best_gain;
    int64_t scored;
};

struct step;
/* `initial`: its data is read at create only, its table borrowed until step_free. `corpus` NULL unless POOL_CORPUS;
 * borrowed. */
enum status step_create(struct step **out, struct device *dev, const struct model_config *model,
                        const struct step_config *config, const struct params *initial, struct corpus_pool *corpus);
void step_free(struct step *s);                           /* NULL is fine */
size_t step_bytes(const struct step *s);                  /* of device memory held */
/* Computes the corpus pool's index with the current encoder (POOL_CORPUS). The caller does so between steps: before
 * the first, then every `refresh` steps. */
void step_refresh_corpus(struct step *s);
/* Sums the gradients of `count` micro-batches (weights: a batch's scored targets over those of all batches), then
 * updates the weights. now.optimizer.lr < 0: no update; step_gradients then returns the gradients (tests). */
enum status step_run(struct step *s, struct step_report *out, const struct batch *batches, int count,
                     const struct step_now *now);
/* sum_nll [sequences]: sum of the losses over the scored targets of each of a batch's sequences, without noise,
 * mask or update; sum_mixed [sequences] (NULL: not wanted): the mixture's, with step_config.memory, of the own past
 * and passages alone. */
enum status step_evaluate(struct step *s, double *sum_nll, double *sum_mixed, const struct batch *batch,
                          enum pool_kind pool);
/* Downloads of all weights or gradients, float32 (checkpoints, tests). */
enum status step_weights(struct step *s, struct params *out);
enum status step_gradients(struct step *s, struct params *out);
struct optimizer *step_optimizer(struct step *s);
