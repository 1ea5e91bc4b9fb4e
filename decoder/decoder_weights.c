/* decoder_weights.c -- the decoder's tensors, by their published names (model.md §12; §10 for the Base LM). */
#include "base/memory.h"
#include "decoder/decoder_internal.h"
#include <stdio.h>

enum status decoder_weights_find(struct decoder_weights *out, const struct model_config *c,
                                 const struct weights *weights) {
    void *layers;
    TRY(memory_allocate_zero(&layers, (size_t)model_config_layers(c), sizeof *out->layers));
    *out = (struct decoder_weights){.layers = layers};
    for (int i = 0; i < model_config_layers(c); i++)
        block_weights_decoder(&out->layers[i], c, weights, i);

    const char *model = c->base_lm ? "language_model.model" : "model";
    char name[96];
    snprintf(name, sizeof name, "%s.embed_tokens.weight", model);
    out->embed = weights_tensor(weights, name);
    snprintf(name, sizeof name, "%s.norm.weight", model);
    out->final_norm = weights_tensor(weights, name);
    for (int g = 0; g < c->groups; g++) {
        snprintf(name, sizeof name, "model.lmk_norms.%d.weight", g);
        out->query_norm[g] = weights_tensor(weights, name);
        snprintf(name, sizeof name, "model.lmk_q_proj.%d.weight", g);
        if (c->retrieval_proj) out->query_proj[g] = weights_tensor(weights, name);
    }
    return STATUS_OK;
}
