/* encoder_internal.h -- for the files of the encoder: its packed weights (encoder_weights.c), the workspace of a
 * thread, and the layers for one batch (encoder_layers.c). encoder.c distributes batches over threads, records them for
 * replay, or issues them part by part. */
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
    /* chunk_k and chunk_v if products write to the slots, otherwise chunk_kv */
    struct encoder_matrix chunk_k, chunk_v, chunk_kv;
    struct encoder_matrix landmark;      /* packed NULL if the config has no retrieval_proj */
    void *memory;                        /* all packed matrices */
    size_t bytes;
};

enum status encoder_weights_create(struct encoder_weights *out, struct device *dev, const struct model_config *config,
                                   const struct weights *weights);
void encoder_weights_free(struct encoder_weights *w, struct device *dev);

/* Batches of at most this many chunks (what the cache lacks for one token) are recorded and replayed, because launching
 * their ops one by one would take longer than the ops. */
enum { ENCODER_REPLAY_CHUNKS = 16 };
/* The ids of more chunks than this are sent from pinned memory. From other memory a copy of so many bytes waits for all
 * ops before it, so that a GPU would pause after each batch. Fewer ids are copied at once. */
enum { ENCODER_SEND_CHUNKS = 256 };

/* The memory of one thread for a batch. The rows of chunk c are c*S .. c*S+S-1. */
struct encoder_workspace {
    int32_t *ids, *ids_device;                        /* [B*S] ids, then [B] slots, and their buffer on the device */
    struct mat x, norm, qkv, gate_up;                 /* [B*S, d], [B*S, d], [B*S, 3d], [B*S, 2f] */
    struct mat landmark, landmark_norm, landmark_out; /* [B, d]: for landmark rows only, in the last layer */
};

/* In an encoder of one layer that gives only landmarks, a position's key and value depend on its id alone, apart from
 * the rotation of the key, and the landmark's query and residual are the same in every chunk. So they are computed once
 * for all ids. They have the bits of those that are computed for a chunk, because a product's row does not depend on
 * other rows. */
struct encoder_known {
    struct mat keys_values;     /* [vocab_size, 2d], not rotated */
    struct mat query, residual; /* [B, d]: the landmark's, B times; the query is rotated */
    void *memory;               /* of all; NULL: the encoder has more layers, or other input */
    bool made;
    int64_t chunks; /* encoded so far; the table is made when they were as much work as it is */
};

/* The arguments of a call, which the threads share. */
struct encoder_job {
    struct encoder *e;
    const struct encoder_output *out;
    const int32_t *ids;
    struct mat hidden;                   /* data NULL: the input is ids */
};

/* A chunk that is encoded in parts. ids [chunk + 1]: its ids and its slot. */
struct encoder_later {
    struct encoder_job job;
    struct encoder_output out;
    int32_t *ids;
    int next, parts;                     /* next: the part to issue next; parts: their number; 0 of 0: no chunk */
};

/* The recorded encoding of keys and values of few chunks, for one pool. */
struct encoder_recorded {
    struct device_replay *replay;
    void *keys, *values;
};

struct encoder {
    struct device *dev;
    struct model_config config;
    struct encoder_weights weights;
    enum dtype type;              /* of weights and activations */
    struct encoder_workspace *workspaces; /* one for each thread */
    /* threads: number of threads with their own batches; 1 if the ops themselves are parallel */
    int threads, positions;
    int64_t batch;
    void *memory;        /* of the workspaces */
    int32_t *ids;        /* of the workspaces, in memory of this process; NULL if memory is shared */
    int32_t *sent;       /* [B*S] pinned: ids of a batch for device_send; NULL: batches are too small */
    void *block_memory;  /* of the next three members, on the device */
    int64_t *block_rows; /* [B+1] 0, 1, 2 ...: each landmark reads its own chunk */
    int32_t *block_slots;
    float *block_weights;
    struct encoder_known known;
    struct encoder_later later;
    struct encoder_recorded recorded[ENCODER_REPLAY_CHUNKS + 1]; /* by number of chunks */
    size_t bytes;
};

/* Copies the ids of the job's chunks first .. first + chunks - 1 to the device, and then their slots. */
void encoder_stage(const struct encoder_job *job, struct device *dev, const struct encoder_workspace *w, int64_t first,
                   int64_t chunks);
/* Encodes all rows of staged chunks. The parts 0 .. encoder_parts - 1 must be called in this order. */
int encoder_parts(const struct encoder *e);
void encoder_part(const struct encoder_job *job, struct device *dev, const struct encoder_workspace *w, int64_t first,
                  int64_t chunks, int part);
/* Makes the table of e->known, with the ops of the whole device, in the first workspace. */
void encoder_known_make(struct encoder *e);
/* Encodes only the landmarks of staged chunks. */
void encoder_landmarks(const struct encoder_job *job, struct device *dev, const struct encoder_workspace *w,
                       int64_t first, int64_t chunks);
