/* encoder_internal.h -- what the files of the encoder share: its weights, packed for products (encoder_weights.c), the memory of
 * a worker, and a batch's way through the layers (encoder_layers.c), which encoder.c deals out to workers, records, or issues
 * part by part. */
#pragma once
#include "encoder/encoder.h"
#include "model/block.h"

/* A matrix packed by dev->ops->matmul->pack. */
struct encoder_matrix { void *packed; int64_t out, in; };

struct encoder_layer {
    struct mat input_norm, post_norm;
    struct encoder_matrix qkv, q, kv, o, gate_up, down;
};

struct encoder_weights {
    struct mat embedding, prenorm, norm;
    struct encoder_layer *layers;
    struct encoder_matrix chunk_k, chunk_v, chunk_kv;    /* k and v where a chunk's rows go straight to its slot, else kv */
    struct encoder_matrix landmark;      /* packed NULL without retrieval_proj */
    void *memory;                        /* all packed matrices */
    size_t bytes;
};

enum status encoder_weights_create(struct encoder_weights *out, struct device *dev, const struct model_config *config,
                                   const struct weights *weights);
void encoder_weights_free(struct encoder_weights *w, struct device *dev);

/* So many chunks at most are what a step of decoding misses: their ops are recorded, for launches would cost more than
 * the work. */
enum { ENCODER_REPLAY_CHUNKS = 16 };

/* What one worker needs for a batch; all rows of chunk c at c*S .. c*S+S-1. */
struct encoder_workspace {
    int32_t *ids, *room;                              /* [B*S] with [B] slots behind, and the device's side of them */
    struct mat x, norm, qkv, gate_up;                 /* [B*S, d], [B*S, d], [B*S, 3d], [B*S, 2f] */
    struct mat landmark, landmark_norm, landmark_out; /* [B, d]: the shorter way of the last layer */
};

/* The job that workers share. */
struct encoder_job {
    struct encoder *e;
    const struct encoder_output *out;
    const int32_t *ids;
    struct mat hidden; /* data NULL: ids */
};

/* The chunk that is encoded part by part, its ids and slot kept: [chunk + 1]. */
struct encoder_later {
    struct encoder_job job;
    struct encoder_output out;
    int32_t *ids;
    int next, parts; /* the part to be issued next, of so many; 0 of 0: there is none */
};

/* Keys and values of few chunks, recorded for one pool. */
struct encoder_recorded {
    struct device_replay *replay;
    void *keys, *values;
};

struct encoder {
    struct device *dev;
    struct model_config config;
    struct encoder_weights weights;
    enum dtype type;              /* of weights and activations */
    struct encoder_workspace *workspaces; /* one for each worker */
    int workers, positions;       /* workers: 1 where the device's parallelism is inside of ops */
    int64_t batch;
    void *memory;        /* of the workspaces */
    int32_t *ids;        /* of the workspaces, this process's side */
    void *block_memory;  /* of the three behind, memory of the device */
    int64_t *block_rows; /* [B+1] 0, 1, 2 ...: each landmark reads its own chunk */
    int32_t *block_slots;
    float *block_weights;
    struct encoder_later later;
    struct encoder_recorded recorded[ENCODER_REPLAY_CHUNKS + 1]; /* by chunks */
    size_t bytes;
};

/* Ids of the job's chunks first .. first + chunks - 1, and slots behind them, to the device. */
void encoder_stage(const struct encoder_job *job, struct device *dev, const struct encoder_workspace *w, int64_t first, int64_t chunks);
/* All rows of staged chunks in the order of the work, a part at a time: part 0 .. encoder_parts - 1. */
int encoder_parts(const struct encoder *e);
void encoder_part(const struct encoder_job *job, struct device *dev, const struct encoder_workspace *w, int64_t first, int64_t chunks, int part);
/* The landmarks of staged chunks and nothing else: the shorter way. */
void encoder_landmarks(const struct encoder_job *job, struct device *dev, const struct encoder_workspace *w, int64_t first, int64_t chunks);
