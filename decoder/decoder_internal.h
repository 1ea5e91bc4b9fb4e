/* decoder_internal.h -- structs and functions for the files of the decoder; only decoder/ includes it.
 *
 * decoder_weights.c finds the weights. decoder_state.c has the state of one text between calls. decoder_fuse.c builds
 * the GCA blocks: which rows read which retrieved chunks. decoder_head.c computes logits and losses. decoder_step.c
 * decodes a single id in one kernel, decoder_batch.c one id of each of many texts, decoder_rows.c the same on a GPU.
 * decoder.c has the loops.
 *
 * *_device: the device's buffer for the host memory of the same name (device_buffer); NULL if they share memory. */
#pragma once
#include "base/clock.h"
#include "decoder/decoder.h"
#include "model/recurrent.h"
#include "kernels/ops.h"
#include "kernels/decode_rows/decode_rows.h"
#include "kernels/device/device_pair.h"

enum { DECODER_TILE = 64 }; /* keys of one tile of a GPU's attention; no tile extends over the end of a ring */
struct decoder_weights {
    struct mat embed, final_norm, narrow_embed;
    struct block_weights *layers, *narrow; /* lower layers, then each group's; narrow: in bf16 or 8 bits, or NULL */
    int64_t narrow_rows; /* products of at most so many rows read `narrow`: few in bf16, any number in 8 bits */
    struct block_weights *step; struct mat step_head; /* 8 bits on a GPU (narrow: these as bf16), or NULL */
    struct mat query_norm[MODEL_GROUPS_MAX], query_proj[MODEL_GROUPS_MAX];
    struct recurrent_weights recurrent; struct mat key_proj; /* [memory_size, d]; data NULL: none */
};
enum status decoder_weights_find(struct decoder_weights *out, const struct model_config *c, const struct weights *w);

/* Activations of a pass. x begins with rows for a chunk that an earlier pass began: completed chunks are contiguous. */
struct decoder_scratch {
    struct mat x, h, q, sum, gate_up, qkv;                /* qkv: on a CPU, else NULL */
    struct mat query_norm, query;                         /* query: float32 */
    struct mat key, key_proj;            /* key_proj: [d, d], zeros from row memory_size on; NULL: none */
    int32_t *ids, *chunk_ids, *ids_device;
    int64_t *selected;                                    /* ids of the pass whose rows the head computes */
    struct device_pair nll; float *logits_device;
};

struct decoder {
    struct device *dev;
    struct model_config config;
    struct decoder_weights weights;
    struct decoder_scratch scratch;
    struct decode_step_weights *step_weights;             /* of the kernel for a single id; NULL: the device has none */
    struct decode_rows *rows;                             /* for ids of several texts on a GPU; NULL: it has none */
    struct decoder_packed *packed[2]; struct decoder_passages *passages;  /* of decoder_passages.c; NULL: none so far */
    struct decoder_batch_scratch *batch;                  /* of decoder_batch.c; NULL: no batch was computed so far */
    struct decoder_rows *rows_batch;                      /* of decoder_rows.c; NULL: the same */
    enum dtype type, ring_type;          /* of weights and activations; of rings: bf16 with 8-bit weights */
    int64_t max_tokens, max_positions, max_chunks;        /* of one pass */
    int64_t logit_rows;                                   /* rows of one head product */
    int positions;                                        /* of a chunk, including its landmark */
};
enum status decoder_create_mat(struct decoder *d, struct mat *out, enum dtype type, int64_t rows, int64_t cols);

/* Keys (the first half of the columns) and values of recent positions: position p is in row p % rows. */
struct decoder_ring { struct mat both, keys, values; };

/* The neighbours that the current chunk reads: the last row of the group's last retrieval. k 0: none yet. */
struct decoder_current {
    struct gca_pool pool;
    int32_t *slot; float *weight; int k;
    size_t slot_capacity, weight_capacity;
};

/* row_begin, slot and weight of a group's blocks, contiguous in this order. built_for: positions of the pass that they
 * were built for; 0: none. */
struct decoder_blocks { struct device_stage stage; int64_t built_for; };

struct decoder_state {
    struct decoder *decoder;
    struct retriever *retriever;
    struct decoder_watch watch;
    struct decoder_times times;
    int64_t tokens;
    bool spent;                          /* a retriever failed during a call, so the state cannot be used */
    bool owes;                           /* retrieval after a chunk's end is still to be done: decoder_rows_settle */
    struct decoder_ring *rings; void *ring_memory; int64_t ring_rows;     /* [layers] */
    int32_t *chunk_ids, *marked_ids;                      /* of the current chunk, and of the marked one */
    int64_t marked;                                       /* tokens of decoder_state_mark; -1: none */
    struct mat chunk_rows;                                /* its lower outputs; data NULL if the encoder reads ids */
    struct decoder_current current[MODEL_GROUPS_MAX];
    struct decoder_blocks blocks[MODEL_GROUPS_MAX];
    struct decode_step *step;                             /* NULL: the decoder has no step_weights */
    bool stepped;                                         /* it computed the last id, with a key state and logits */
    struct recurrent_state recurrent; struct mat inputs;  /* [groups, d]: inputs of the groups' first layers */
    float *watched;                                       /* rows downloaded for the watch; NULL with shared memory */
};

/* Ids that are computed together. Row r of the pass has position first + r. */
struct decoder_pass {
    int64_t n, positions;                                 /* number of ids, and of ids with landmarks */
    int64_t first, first_chunk, in_chunk; /* position and chunk of the first id, and its index within the chunk */
    int64_t completed;                                    /* number of chunks that end in this pass */
    struct mat keys; int key_layer; bool states; struct mat key_states; /* as in struct decoder_output */
};
/* Returns the next pass over a text of which `left` ids remain, as long as possible. */
struct decoder_pass decoder_make_pass(const struct decoder_state *s, int64_t left);
/* Returns the row of the pass's id j. Each chunk that ended before j has added one landmark row. */
static inline int64_t decoder_pass_row(const struct decoder *d, const struct decoder_pass *p, int64_t j) {
    return model_config_landmarks(&d->config) ? j + (p->in_chunk + j) / d->config.chunk : j;
}
static inline struct mat decoder_no_rstd(int64_t rows) { return mat_f32(NULL, rows, 1); } /* 1/rms is not needed */
/* Keeps the last row of `found` (n > 0) as the current neighbours. Call it after the blocks of this pass were built. */
enum status decoder_current_set(struct decoder_state *s, int group, const struct neighbours *found);
/* Determines which rows of the pass read which slots. The current chunk reads the current neighbours; the following
 * chunks read `found` (n may be 0). The blocks cover the rows from `begin` on. blocks.blocks 0: no row reads any. */
struct decoder_fusion { struct gca_pool pool; struct gca_blocks blocks; int64_t begin; };
enum status decoder_blocks_build(struct decoder_fusion *out, struct decoder_state *s, int group,
                                 const struct decoder_pass *p, const struct neighbours *found);
void decoder_blocks_free(struct decoder_blocks *b, struct device *dev);
/* With Landmark Attention, rings grow until positions 0 .. positions - 1 fit. Other rings keep their size and wrap. */
enum status decoder_state_reserve(struct decoder_state *s, int64_t positions);
enum status decoder_retrieve(struct decoder_state *s, struct neighbours *found, int group, struct mat landmarks,
                             const struct decoder_pass *p);
/* Computes logits and losses of the pass, whose first id is number `offset` of the call's `total` ids. */
void decoder_head(struct decoder_state *s, const struct decoder_output *out, const struct decoder_pass *p, struct mat x,
                  int64_t offset, int64_t total);
void decoder_queue_ops(const struct decoder *d, const struct decoder_output *out);       /* `pick` and `then` */
void decoder_batch_free(struct decoder *d);               /* frees what decoder_batch.c allocated */
void decoder_watch_rows(struct decoder_state *s, const char *what, int group, int64_t first, struct mat rows);
