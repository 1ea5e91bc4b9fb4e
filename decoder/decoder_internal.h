/* decoder_internal.h -- what the files of the decoder share; nobody outside of decoder/ includes it.
 *
 * decoder_weights.c finds the weights, decoder_state.c holds what one text carries from call to call,
 * decoder_fuse.c lays out which rows read which retrieved chunks, decoder_head.c turns rows into logits and losses,
 * decoder.c is the loop over passes and layers.
 *
 * A member called room is the device's side of the host memory beside it (kernels/device/device.h: device_room). */
#pragma once
#include "decoder/decoder.h"
#include "model/block.h"
#include "kernels/ops.h"
#include "kernels/decode_step/decode_step.h"
#include <time.h>
enum { DECODER_TILE = 64 };              /* keys that a GPU's attention reads at once: none across a ring's end */
struct decoder_weights {
    struct mat embed, final_norm, narrow_embed;
    struct block_weights *layers, *narrow;                /* lower layers, then group by group; with bf16 matrices or NULL */
    struct mat query_norm[MODEL_GROUPS_MAX], query_proj[MODEL_GROUPS_MAX];
};
enum status decoder_weights_find(struct decoder_weights *out, const struct model_config *config, const struct weights *weights);

/* Rows the layers of a pass work on. x has room for one chunk in front of the pass, so that the rows of a chunk which
 * began in an earlier pass can be put there and complete chunks lie in one piece. */
struct decoder_scratch {
    struct mat x, h, q, sum, gate_up;
    struct mat query_norm, query;                         /* query: float32 */
    int32_t *ids, *chunk_ids, *ids_room;
    int64_t *wanted;
    float *nll, *nll_room, *logits_room;
};

struct decoder {
    struct device *dev;
    struct model_config config;
    struct decoder_weights weights;
    struct decoder_scratch scratch;
    struct decode_step_weights *step_weights;                   /* of the short way of a single id; NULL: there is none */
    enum dtype type;                                      /* of weights and activations */
    int64_t max_tokens, max_positions, max_chunks;        /* of one pass */
    int64_t logit_rows;                                   /* made at once: all of a pass where they go straight to the caller */
    int positions;                                        /* of a chunk, its landmark counted */
};
enum status decoder_create_mat(struct decoder *d, struct mat *out, enum dtype type, int64_t rows, int64_t cols);

/* Keys and values of the last positions: row position % rows, keys in the first half of its columns, values behind
 * them, so that one product writes both. */
struct decoder_ring { struct mat both, keys, values; };

/* The neighbours that serve the chunk in progress: the last row of the group's last retrieval. */
struct decoder_force { struct gca_pool pool; int32_t *slot; float *weight; int k; size_t slot_capacity, weight_capacity; };

/* row_begin, slot and weight of a group's blocks, behind one another in one piece. */
struct decoder_blocks {
    void *memory, *room;
    size_t capacity, room_bytes;
    int64_t laid;                                         /* positions of the pass for which what is in force lies there; 0: none */
};

struct decoder_state {
    struct decoder *decoder;
    struct retriever *retriever;
    struct decoder_watch watch;
    struct decoder_times times;
    int64_t tokens;
    bool spent;                                           /* a retriever failed inside a call */
    struct decoder_ring *rings; void *ring_memory;        /* one for each layer; of all of them */
    int32_t *chunk_ids;                                   /* of the chunk in progress */
    struct mat chunk_rows;                                /* its lower outputs; data NULL unless the encoder reads them */
    struct decoder_force force[MODEL_GROUPS_MAX];
    struct decoder_blocks blocks[MODEL_GROUPS_MAX];
    struct decode_step *step;                              /* NULL: its decoder has no step_weights */
    struct mat inputs;                                    /* [groups, d] of its layers */
    float *seen;                                          /* rows fetched for the watch; NULL where they can be looked at in place */
};

/* One stretch of ids worked on at once. Row r of the pass is position first + r. */
struct decoder_pass {
    int64_t n, positions;                                 /* ids, and ids with landmarks */
    int64_t first, first_chunk, in_chunk;                 /* the first id's position, chunk, and place in that chunk */
    int64_t completed;                                    /* chunks that end in this pass */
    struct mat keys; int key_layer;                       /* as in struct decoder_output */
};
/* The pass' row of its id j: each chunk that ended before j put one landmark in between. */
static inline int64_t decoder_pass_row(const struct decoder *d, const struct decoder_pass *p, int64_t j) {
    return d->config.base_lm ? j : j + (p->in_chunk + j) / d->config.chunk;
}

/* No 1/rms is wanted from a norm. */
static inline struct mat decoder_no_rstd(int64_t rows) { return mat_f32(NULL, rows, 1); }

/* Keeps the last row of `found` (n > 0) as the neighbours in force, after the blocks of this pass were laid out. */
enum status decoder_force_keep(struct decoder_state *s, int group, const struct neighbours *found);
/* Which rows of the pass read which slots: the chunk in progress by what is in force, the chunks behind it by
 * `found` (n may be 0). The rows from `begin` on are covered; blocks.blocks 0: no row reads anything. */
struct decoder_fusion { struct gca_pool pool; struct gca_blocks blocks; int64_t begin; };
enum status decoder_blocks_lay(struct decoder_fusion *out, struct decoder_state *s, int group, const struct decoder_pass *p,
                               const struct neighbours *found);
void decoder_blocks_free(struct decoder_blocks *b, struct device *dev);

/* The queries of the landmarks, and what they find. */
enum status decoder_retrieve(struct decoder_state *s, struct neighbours *found, int group, struct mat landmarks,
                             const struct decoder_pass *p);

/* Logits and losses of the pass whose ids lie at `offset` of the call's `total`. */
void decoder_head(struct decoder_state *s, const struct decoder_output *out, const struct decoder_pass *p, struct mat x,
                  int64_t offset, int64_t total);

/* decoder_step.c: one id, in one kernel (two at a chunk's end) where the device has it. *done false: take the ordinary way. */
enum status decoder_step_weights(struct decoder *d), decoder_step_create(struct decoder_state *s);
enum status decoder_step(bool *done, struct decoder_state *s, const struct decoder_output *out, const struct decoder_pass *p,
                         const int32_t *ids);

/* Shows rows (dense) to the watch, when there is one. */
void decoder_watch_rows(struct decoder_state *s, const char *what, int group, int64_t first, struct mat rows);

static inline double decoder_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
