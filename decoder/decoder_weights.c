/* decoder_weights.c -- the decoder's tensors, by their published names (model.md §12, §10). */
#include "base/memory.h"
#include "decoder/decoder_internal.h"
#include <stdio.h>
#include <string.h>

/* Finds the layers with the bf16 or 8-bit copies of their matrices. Norms are those of out->layers. */
static enum status decoder_weights_find_copies(struct block_weights **copies, const struct decoder_weights *out,
                                               const struct model_config *c, const struct weights *narrow) {
    TRY(memory_allocate_zero(copies, (size_t)model_config_layers(c)));
    for (int i = 0; i < model_config_layers(c); i++) {
        struct block_weights *l = &(*copies)[i];
        block_weights_decoder(l, c, narrow, i);
        l->input_norm = out->layers[i].input_norm;
        l->post_norm = out->layers[i].post_norm;
        l->gca_norm = out->layers[i].gca_norm;
    }
    return STATUS_OK;
}

bool decoder_reads(const char *tensor) {
    static const char *const others[] = {"model.encoder.", "model.enc_prenorm.", "model.chunk_", "model.lmk_",
                                         "memory."};
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (strncmp(tensor, others[i], strlen(others[i])) == 0) return false;
    return true;
}

bool decoder_rounds(const char *tensor) {
    return decoder_reads(tensor) && !strstr(tensor, ".recurrent.");
}

enum status decoder_weights_find(struct decoder_weights *out, const struct model_config *c,
                                 const struct weights *weights) {
    *out = (struct decoder_weights){0};
    TRY(memory_allocate_zero(&out->layers, (size_t)model_config_layers(c)));
    for (int i = 0; i < model_config_layers(c); i++)
        block_weights_decoder(&out->layers[i], c, weights, i);

    const char *model = c->base_lm ? "language_model.model" : "model";
    char name[96];
    snprintf(name, sizeof name, "%s.embed_tokens.weight", model);
    out->embed = weights_tensor(weights, name);
    if (weights->narrow || weights->i8) {
        const struct weights narrow = weights->narrow ? weights_narrowed(weights) : weights_rounded(weights);
        TRY(decoder_weights_find_copies(&out->narrow, out, c, &narrow));
        out->narrow_embed = weights_tensor(&narrow, name);
        out->narrow_rows = weights->i8 ? INT64_MAX : MATMUL_FEW_ROWS;
    }
    if (weights->narrow && weights->i8) {
        const struct weights rounded = weights_rounded(weights);
        TRY(decoder_weights_find_copies(&out->step, out, c, &rounded));
        out->step_head = weights_tensor(&rounded, name);
    }
    snprintf(name, sizeof name, "%s.norm.weight", model);
    out->final_norm = weights_tensor(weights, name);
    for (int g = 0; g < c->groups; g++) {
        snprintf(name, sizeof name, "model.lmk_norms.%d.weight", g);
        out->query_norm[g] = weights_tensor(weights, name);
        snprintf(name, sizeof name, "model.lmk_q_proj.%d.weight", g);
        if (c->retrieval_proj) out->query_proj[g] = weights_tensor(weights, name);
    }
    if (c->recurrent_layer > 0) recurrent_weights_find(&out->recurrent, c, weights);
    if (c->memory_size > 0) out->key_proj = weights_tensor(weights, "memory.key_proj.weight");
    return STATUS_OK;
}
