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
    int lower_layers, groups, group_layers[MODEL_GROUPS_MAX];   /* decoder_layers: lower first, then one per group */
    int encoder_layers;
    int chunk; /* real ids a chunk: 63 (63 + landmark) or 64; also the live rows of its K and V */
    int topk, window;                    /* a position sees itself and the `window` before it */
    int32_t landmark_id, mask_id, pad_id, eos_id;          /* chunk_id, ...; -1 where the key is absent */
    float rms_eps;                       /* of the decoder and enc_prenorm; inside the encoder it is 1e-6 */
    float rope_theta;                    /* of the encoder: 10000 */
    enum encoder_input encoder_input;
    bool retrieval_proj;
    bool softmax_off_by_one;             /* default: chunk == 63 */
    /* Token memory, trained (docs/model.md): key layer from 1, 0: none; numbers of a projected key, 0: the state is
     * the key. */
    int memory_layer, memory_size;
    /* A Block-Recurrent Transformer (docs/model.md §10.1), which is a Base LM otherwise: its recurrent layer from 1, 0:
     * none; state vectors; positions from one update of the state to the next. */
    int recurrent_layer, recurrent_states, recurrent_block;
    /* Landmark Attention (docs/model.md §10.2), a Base LM otherwise: ids of a block, which `chunk` is then, too, 0:
     * none; earlier blocks that a position of a running text reads. */
    int landmark_block, landmark_topk;
    bool base_lm;                        /* no encoder, no groups; landmarks with landmark_block alone */
    char unread[MODEL_UNREAD_MAX];       /* the keys that nothing here reads, "a, b"; "..." where they were too many */
};

/* Reads JSON text. Unknown keys change nothing and are kept in `unread` (published configs carry dead ones); missing or
 * impossible values are named. encoder_layers 0 with a single entry in decoder_layers means a Base LM. */
enum status model_config_parse(struct model_config *out, const char *name, const void *json, size_t bytes);
enum status model_config_load(struct model_config *out, const char *model_folder);   /* <folder>/config.json */

/* All decoder layers: lower and upper. */
int model_config_layers(const struct model_config *c);
/* Numbers of a key of the token memory that reads layer key_layer (from 1): memory_size where the model has a
 * projection for it, else hidden. */
int model_config_key_size(const struct model_config *c, int key_layer);
/* Whether a landmark follows each `chunk` ids. */
static inline bool model_config_landmarks(const struct model_config *c) { return !c->base_lm || c->landmark_block > 0; }
/* What a text is divided into: chunks of `chunk` ids, or without landmarks single ids. Ids of one, and its positions:
 * with its landmark. */
int model_config_ids(const struct model_config *c);
int model_config_positions(const struct model_config *c);
