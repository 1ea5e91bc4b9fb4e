/* step_internal.h -- what the files of a training step share.
 *
 * step.c makes it and runs the micro-batches, step_batch.c brings a batch onto the device and draws the mask,
 * step_choice.c chooses neighbours and takes their weights' gradient back, step_copies.c makes neighbours that repeat what
 * is to come, step_losses.c has the two losses beside the next token's. */
#pragma once
#include "decoder/decoder_train.h"
#include "encoder/encoder_train.h"
#include "kernels/device/carve.h"
#include "kernels/ops.h"
#include "train/step/corpus_pool.h"
#include "train/step/step.h"

/* What the queries of one group chose, in one step.
 *
 * Block s*C + c of decoder_train_group reads what landmark c-1 of the same sequence chose, and that is choice row
 * s*C + c - 1. So slot and weight hold one row more than there are queries, row r of the choice in row r + 1, and block b
 * reads row b as it lies. A sequence's last landmark serves nobody: its choice is kept empty, and so row (s+1)*C is the
 * nothing that the next sequence's chunk 0 reads; row 0 is empty for ever. dweight comes back by block: row b + 1. */
struct step_choice {
    int64_t *index;                      /* [Q*K] */
    int32_t *slot;                       /* [(Q+1)*K] */
    float *score, *weight, *dweight;     /* [Q*K], [(Q+1)*K], [(Q+1)*K] */
    struct mat query;                    /* of the towers, [Q, d] */
    struct mat dquery, dquery_cut;       /* [Q, d] float32; cut: data NULL unless cut_query */
    float *contrast_nll, *contrast_hit;  /* [Q] */
};

/* Who may choose what, for each query; made once, for a batch has always the same shape. */
struct step_visible {
    int32_t *own_begin, *own_end, *sequence_end, *none;                        /* [Q] */
    int32_t *batch_end;                                                        /* other ranges, by pool */
    int32_t *candidates_begin, *candidates_end;                                /* [groups * Q] */
    int32_t (*document_of)[2], (*barred)[2];                                   /* [chunks of the encoder], [Q] */
};

/* All processes' landmarks of one micro-batch behind one another, for the contrastive loss; [W*Q, d], data NULL with one process. */
struct step_gathered { struct mat f32, table, gradient; };    /* table: of the step's type, f32 itself if that is float32 */

/* The rows whose encoder ids are masked, of one micro-batch. */
struct step_masked { int64_t count; int32_t *rows, *targets; struct mat x, dx; float *nll; };

/* Sums over a step's micro-batches; on the host. */
/* weight: on corpus chunks, and on all; contrast: over `pairs` queries that have a next chunk of their document. */
struct step_sums { double nll, mlm, contrast, hits, corpus_weight, weight; int64_t scored, masked, pairs; };

struct step {
    struct device *dev;
    struct model_config model;
    struct step_config config;
    struct optimizer *optimizer;
    struct decoder_train *decoder;
    struct encoder_train *encoder;       /* NULL: nothing asks for it */
    struct corpus_pool *corpus;
    int64_t rows, queries, positions, max_chunks;         /* n, Q = N*C, S, the encoder's */
    void *memory;                        /* all below, on the device */
    size_t bytes;
    int32_t *ids, *targets, *encoder_ids;
    float *nll;
    int64_t *row_begin;                  /* [Q+1] */
    struct step_visible visible;
    struct step_choice choices[MODEL_GROUPS_MAX];
    int32_t *inverse_begin, *inverse_entry;
    int32_t *contrast_targets, *contrast_excluded;
    struct step_masked masked;
    struct step_gathered gathered;
    int32_t *host_ids;                   /* [4n]: room for uploads */
    float *host_floats;                  /* [n]: for downloads */
};

/* What is done with one micro-batch. */
struct step_task {
    const struct batch *batch;
    const struct step_now *now;          /* NULL: evaluation */
    enum pool_kind pool;
    uint64_t seed;                       /* of this micro-batch's noise */
    int64_t first_row;                   /* of all micro-batches' rows behind one another */
    bool encode, choose, mlm, contrast;
    float scale, mlm_scale, contrast_scale;               /* of a row's loss */
};

/* The first of the chunks that a group's queries found in the corpus; behind the last group's: the end. */
static inline int64_t step_candidates_begin(const struct step *s, int group) {
    return s->queries * (1 + (int64_t)group * s->config.candidates);
}

static inline uint64_t step_mix(uint64_t x) {             /* SplitMix64's finalizer */
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* ---- step_batch.c */
void step_constants_upload(struct step *s);
/* Rows of a batch that the mask takes; the same ones that step_batch_upload masks. */
int64_t step_masked_count(const struct step *s, const struct batch *batch, const struct step_now *now, int64_t first_row);
void step_batch_upload(struct step *s, const struct step_task *task);
double step_sum(struct step *s, const float *values, int64_t n);              /* of the device; waits */
/* Whether chunk r + by of a batch begins within the document that chunk r ends in: what the contrastive loss asks for. */
bool step_chunk_continues(const struct step *s, const struct batch *batch, int64_t r, int64_t by);
/* ---- step_choice.c */
/* Encodes the batch, and the candidates of its queries. */
void step_encode(struct step *s, const struct step_task *task, struct mat lower);
void step_group_forward(struct step *s, const struct step_task *task, int group);
void step_group_backward(struct step *s, const struct step_task *task, int group);
/* Adds to sums.weight and sums.corpus_weight what the groups chose; waits. */
void step_choices_sum(struct step *s, struct step_sums *sums);
/* ---- step_copies.c */
/* Whether query r of a micro-batch has one neighbour alone, its last candidate, which repeats what is to come; then *hash says how. */
bool step_copy_wanted(const struct step *s, const struct step_task *task, int64_t r, uint64_t *hash);
/* Writes those neighbours into encoder_ids: `first` is the first candidate of query 0. */
void step_copies_write(struct step *s, const struct step_task *task, int64_t first);
/* ---- step_losses.c */
void step_mlm(struct step *s, const struct step_task *task);
enum status step_contrast(struct step *s, const struct step_task *task);
/* Number of this process' first query among all processes' (0 with one process). */
int64_t step_first_query(const struct step *s);
