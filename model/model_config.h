/* model_config.h -- config.json of a model folder (keys: model.md §0). */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MODEL_GROUPS_MAX = 8, MODEL_UNREAD_MAX = 200 };
enum encoder_input { ENCODER_INPUT_HIDDEN, ENCODER_INPUT_TOKENS };   /* decoder variant, encoder-decoder variant */

struct model_config {
    int vocab_size, hidden, ffn, heads, head_dim;          /* head_dim = hidden / heads */
    /* decoder_layers: the lower layers, then one number per group */
    int lower_layers, groups, group_layers[MODEL_GROUPS_MAX];
    int encoder_layers;
    int chunk; /* real ids per chunk: 63 (63 + landmark) or 64; also the rows of its K and V that are read */
    int topk, window;                    /* window: a position sees itself and the `window` positions before it */
    int32_t landmark_id, mask_id, pad_id, eos_id;          /* the keys chunk_id, ...; -1 if the key is absent */
    float rms_eps;                       /* of the decoder and enc_prenorm; all other norms of the encoder use 1e-6 */
    float rope_theta;                    /* of the encoder: 10000 */
    enum encoder_input encoder_input;
    bool retrieval_proj;
    bool softmax_off_by_one;             /* default: chunk == 63 */
    /* The trained token memory (docs/model.md). memory_layer: the layer of the keys, from 1; 0: none. memory_size:
     * numbers of a projected key; 0: the state is the key. */
    int memory_layer, memory_size;
    /* A Block-Recurrent Transformer (docs/model.md §10.1), which is otherwise a Base LM: its recurrent layer, from 1
     * (0: none); number of state vectors; positions between two updates of the state. */
    int recurrent_layer, recurrent_states, recurrent_block;
    /* Landmark Attention (docs/model.md §10.2), which is otherwise a Base LM: ids of a block (0: none), which is then
     * also `chunk`; earlier blocks that a position of a running text reads. */
    int landmark_block, landmark_topk;
    /* Numbers of the sketch of a chunk's words in a landmark of a Base LM (docs/model.md §10.3): 8 to 65536; 0:
     * none. */
    int landmark_sketch;
    bool base_lm;                        /* no encoder and no groups; landmarks only with landmark_block */
    char unread[MODEL_UNREAD_MAX]; /* the keys that no code reads, "a, b"; "..." at the end if there were too many */
};

/* Reads JSON text. Unknown keys are ignored and listed in `unread`, because published configs have unused ones.
 * Messages name missing and impossible values. encoder_layers 0 with a single entry in decoder_layers means a Base
 * LM. */
enum status model_config_parse(struct model_config *out, const char *name, const void *json, size_t bytes);
enum status model_config_load(struct model_config *out, const char *model_folder);   /* <folder>/config.json */
/* The key that was meant by one that is not read, with the number of typing errors (0: only a part is the same); NULL:
 * none is near (base/formats/near_name.h). */
const char *model_config_near_key(const char *name, size_t length, int *edits);

/* Returns the number of all decoder layers, lower and upper. */
int model_config_layers(const struct model_config *c);
/* Returns the layer of a token memory's keys, if nothing else is chosen: memory_layer, or the last. */
int model_config_key_layer(const struct model_config *c);
/* Returns how many numbers a key of the token memory has if it reads layer key_layer (from 1): memory_size if the model
 * has a projection for this layer, otherwise hidden. */
int model_config_key_size(const struct model_config *c, int key_layer);
/* Returns how many numbers a landmark of a store has: hidden, and landmark_sketch of the sketch after them. */
int model_config_landmark_size(const struct model_config *c);
/* Whether a landmark follows each `chunk` ids. */
static inline bool model_config_landmarks(const struct model_config *c) { return !c->base_lm || c->landmark_block > 0; }
/* What a text is divided into: chunks of `chunk` ids, or single ids in a model without landmarks. Return the number of
 * ids of one such unit, and the number of its positions (with its landmark). */
int model_config_ids(const struct model_config *c);
int model_config_positions(const struct model_config *c);
