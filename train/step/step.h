/* step.h -- one training step: batches in, losses out, weights moved (model.md §6.4, §6.5, §9; training.md).
 *
 * Owns everything on the device that outlives a step: float32 weights, moments, gradients, the copy to compute with
 * (bf16 on a GPU, the weights themselves on the CPU), both towers' activations, the corpus pool's index. Allocates at
 * create only. Equal inputs give equal bits. One thread at a time. */
#pragma once
#include "base/status.h"
#include "kernels/device/device.h"
#include "model/model_config.h"
#include "model/params.h"
#include "train/step/batch.h"
#include "train/step/optimizer.h"
#include "train/step/pool.h"
#include <stdbool.h>

struct corpus_pool;                      /* train/step/corpus_pool.h */
struct collective;                       /* kernels/device/collective.h */

struct step_config {
    int sequences;                       /* N of a micro-batch */
    int64_t chunks;                      /* C (Base LM: positions) */
    struct optimizer_config optimizer;
    enum dtype type;                     /* activations: DTYPE_F32, or DTYPE_BF16 on a GPU */
    bool recompute;                      /* of both towers */
    enum pool_kind pool;
    int candidates;                      /* POOL_CORPUS: encoded afresh per query */
    bool gumbel;                         /* noise on the choice */
    bool cut_query;                      /* the contrastive loss does not move the trunk */
    bool contrastive;                    /* room for it is taken at create */
    bool mlm;
    /* Processes that train one model together, or NULL. Each runs its own micro-batches; counts, losses and gradients are
     * summed over all of them, so that W processes with n micro-batches take the step of one process with W*n (rank r has
     * micro-batches r*n ..), but for the order of a float32 sum. One thing crosses them: the contrastive loss of micro-batch
     * i has the landmarks of all processes' micro-batches i to tell apart, as one process has whose micro-batch is W times
     * as large. Borrowed. */
    struct collective *group;
};

/* What may change from step to step. */
struct step_now {
    struct optimizer_now optimizer;
    uint64_t seed;                       /* of this step: Gumbel noise and masks */
    float mlm_rate, mlm_weight;          /* rate 0: no masking, no loss */
    float contrastive_weight;            /* 0: off */
    int64_t contrastive_reach;           /* a query is to find a chunk 1 .. reach behind its own, of the same document; 0: as 1 */
    bool no_noise;                       /* none on the choice, whatever step_config.gumbel says */
    float corpus_alone;                  /* POOL_CORPUS: part of the sequences that do not see their own past */
    /* POOL_CORPUS: part of the queries that see one neighbour alone, in which words of the chunk to come are written. Real
     * neighbours repeat so little of it that a model learns from them what a text is about, and not to read. */
    float copy_rate;
    enum pool_kind pool;                 /* POOL_CORPUS may begin as POOL_OWN or POOL_BATCH */
};

/* Means over what was scored; NaN where there was nothing. */
struct step_report {
    double loss, mlm_loss, contrastive_loss, contrastive_accuracy, gradient_norm;
    double corpus_weight;                /* POOL_CORPUS: the part of the choices' weight that lies on chunks of the corpus */
    int64_t scored;
};

struct step;
/* `initial`: its data is read at create only, its table borrowed until step_free. `corpus` NULL unless POOL_CORPUS; borrowed. */
enum status step_create(struct step **out, struct device *dev, const struct model_config *model, const struct step_config *config,
                        const struct params *initial, struct corpus_pool *corpus);
void step_free(struct step *s);                           /* NULL is fine */
size_t step_bytes(const struct step *s);                  /* of device memory held */
/* Makes the corpus pool's index anew with the encoder as it is (POOL_CORPUS; between steps). Who runs the steps decides when:
 * before the first, then every `refresh` steps. */
void step_refresh_corpus(struct step *s);
/* Gradients of `count` micro-batches are summed (each batch weighed by its scored targets over all of theirs), then the
 * optimizer moves the weights, unless now.optimizer.lr is < 0: then gradients stay to be looked at (tests, golden cases). */
enum status step_run(struct step *s, struct step_report *out, const struct batch *batches, int count, const struct step_now *now);
/* sum_nll [sequences]: sum of the losses over the scored targets of each of a batch's sequences, as the model stands: no
 * noise, no mask, nothing moved. */
enum status step_evaluate(struct step *s, double *sum_nll, const struct batch *batch, enum pool_kind pool);
/* For checkpoints, tests: float32 on the host. */
enum status step_weights(struct step *s, struct params *out);
enum status step_gradients(struct step *s, struct params *out);
struct optimizer *step_optimizer(struct step *s);
