/* step_internal.h -- what the files of a training step share.
 *
 * step.c: creation, micro-batches. step_batch.c: uploads, masks. step_neighbours.c: neighbours, forward and backward.
 * step_copies.c: neighbours with ids of the next chunk. step_losses.c: masked-token and contrastive loss. */
#pragma once
#include "decoder/decoder_train.h"
#include "encoder/encoder_train.h"
#include "kernels/device/carve.h"
#include "kernels/ops.h"
#include "train/step/corpus_pool.h"
#include "train/step/step.h"

/* The neighbours of the queries of one group, in one micro-batch.
 *
 * Block s*C + c of decoder_train_group reads the neighbours of landmark c-1 of the same sequence: query s*C + c - 1.
 * So slot and weight have one row more than there are queries: query r writes row r + 1, and block b reads row b. No
 * chunk reads the neighbours of a sequence's last landmark: they are kept empty, and so row (s+1)*C is the empty row
 * that chunk 0 of the next sequence reads. Row 0 is always empty. dweight has the layout of weight. */
struct step_neighbours {
    int64_t *index;                      /* [Q*K] */
    int32_t *slot;                       /* [(Q+1)*K] */
    float *score, *weight, *dweight;     /* [Q*K], [(Q+1)*K], [(Q+1)*K] */
    struct mat query;                    /* borrowed from the decoder, [Q, d] */
    struct mat dquery, dquery_cut;       /* [Q, d] float32; cut: data NULL unless cut_query */
    float *contrast_nll, *contrast_hit;  /* [Q] */
};

/* The chunks that each query may retrieve. Ranges are uploaded once, since all batches have the same shape. */
struct step_visible {
    int32_t *own_begin, *own_end, *sequence_end, *none, *batch_end;            /* [Q]; the last two: by pool */
    int32_t *candidates_begin, *candidates_end;                                /* [groups * Q] */
    int32_t (*document_of)[2], (*barred)[2];                                   /* [chunks of the encoder], [Q] */
};

/* Landmarks of a micro-batch of all processes [W*Q, d], for the contrastive loss; data NULL with one process. table: of
 * the step's type, f32 itself if that is float32. */
struct step_gathered { struct mat f32, table, gradient; };

struct step_masked { int64_t count; int32_t *rows, *targets; struct mat x, dx; float *nll; };

/* Sums over a step's micro-batches. corpus_weight, weight: retrieval weights on corpus chunks, on all chunks. contrast,
 * hits: over `pairs` queries with a positive; teach: step_teach_sums, over `taught` queries. */
struct step_sums { double nll, mlm, contrast, hits, corpus_weight, weight, teach[4]; struct memory_loss_sums memory;
                   int64_t scored, masked, pairs, taught; };

struct step {
    struct device *dev;
    struct model_config model;
    struct step_config config;
    struct optimizer *optimizer;
    struct decoder_train *decoder;
    struct encoder_train *encoder;       /* NULL: not needed */
    struct corpus_pool *corpus;
    struct memory_loss *mixture;         /* NULL: no token memory */
    struct step_teach *teach;            /* NULL: not taught */
    int64_t rows, queries, positions, max_chunks;         /* n, Q = N*C, S, the encoder's */
    void *memory; size_t bytes;          /* of all members below, on the device */
    int32_t *ids, *targets, *encoder_ids;
    float *nll;
    int64_t *row_begin;                  /* [Q+1] */
    struct step_visible visible;
    struct step_neighbours neighbours[MODEL_GROUPS_MAX];
    int32_t *inverse_begin, *inverse_entry;
    int32_t *contrast_targets, *contrast_excluded;        /* [Q] */
    float *contrast_alone;               /* [Q of all processes] 1: the positive of a sample */
    struct step_masked masked;
    struct step_gathered gathered;
    int32_t *ids_host;                   /* [4n]: buffer for uploads */
    float *floats_host;                  /* [n]: buffer for downloads */
};

/* One micro-batch and what is computed for it. */
struct step_task {
    const struct batch *batch;
    const struct step_now *now;          /* NULL: evaluation */
    enum pool_kind pool;
    uint64_t seed;                       /* of this micro-batch's noise */
    int64_t first_row;                   /* number of its first row among the rows of all micro-batches */
    bool encode, retrieve, mlm, contrast, memory, teach;
    float scale, mlm_scale, contrast_scale, teach_scale;  /* of a row's loss */
};

/* Number of the first chunk that a group's queries found in the corpus; group == groups: the end of all. */
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
void step_batch_upload(struct step *s, const struct step_task *task);
/* How many rows of a batch step_batch_upload masks. */
int64_t step_masked_count(const struct step *s, const struct batch *, const struct step_now *now, int64_t first_row);
double step_sum(struct step *s, const float *values, int64_t n);              /* values: on the device; waits for it */
/* Whether chunk r + by of a batch begins within the document that chunk r ends in. */
bool step_chunk_continues(const struct step *s, const struct batch *batch, int64_t r, int64_t by);
/* step_positives.c: the chunk of the batch that query r should rank first; -1: none. first_row: as in step_task. */
int64_t step_positive(const struct step *s, const struct batch *batch, const struct step_now *now, int64_t r,
                      int64_t first_row);
/* ---- step_neighbours.c */
/* Encodes the batch, and the candidates of the first group's queries. */
void step_encode(struct step *s, const struct step_task *task, struct mat lower);
void step_group_forward(struct step *s, const struct step_task *task, int group);
void step_group_backward(struct step *s, const struct step_task *task, int group);
/* Adds the groups' weights to sums.weight and sums.corpus_weight; waits for the device. */
void step_neighbours_sum(struct step *s, struct step_sums *sums);
/* step_copies.c: whether query r of a micro-batch has only one neighbour, a copy; *hash then determines its ids. */
bool step_copy_wanted(const struct step *s, const struct step_task *task, int64_t r, uint64_t *hash);
/* step_copies.c: writes those neighbours into encoder_ids: `first` is the first candidate of query 0. */
void step_copies_write(struct step *s, const struct step_task *task, int64_t first);
void step_mlm(struct step *s, const struct step_task *task);
enum status step_contrast(struct step *s, const struct step_task *task);
/* Number of this process' first query among all processes' (0 with one process). */
int64_t step_first_query(const struct step *s);
