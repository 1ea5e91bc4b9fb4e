/* block.c -- weights of a layer by name, and the halves of a pre-norm layer around its attention. */
#include "model/block.h"
#include "kernels/ops.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

static struct mat layer_tensor(const struct weights *w, const char *layer, const char *name) {
    char full[192];
    int length = snprintf(full, sizeof full, "%s.%s.weight", layer, name);
    assert(length > 0 && (size_t)length < sizeof full);
    return weights_tensor(w, full);
}

/* Returns one view over two matrices that are adjacent in the block of parameters. */
struct mat block_concatenated(struct mat first, struct mat second) {
    const bool i8 = first.type == DTYPE_I8;
    const size_t bytes = i8 ? (size_t)matmul_i8_bytes(first.rows, first.cols) : mat_bytes(first);
    assert((unsigned char *)first.data + bytes == second.data);
    assert(first.cols == second.cols && first.type == second.type && (!i8 || first.rows % MATMUL_I8_PANEL == 0));
    return mat_dense(first.data, first.type, first.rows + second.rows, first.cols);
}

static void layer_weights(struct block_weights *out, const struct weights *w, const char *layer) {
    *out = (struct block_weights){
        .input_norm = layer_tensor(w, layer, "input_layernorm"),
        .post_norm = layer_tensor(w, layer, "post_attention_layernorm"),
        .q = layer_tensor(w, layer, "self_attn.q_proj"),
        .k = layer_tensor(w, layer, "self_attn.k_proj"),
        .v = layer_tensor(w, layer, "self_attn.v_proj"),
        .o = layer_tensor(w, layer, "self_attn.o_proj"),
        .gate = layer_tensor(w, layer, "mlp.gate_proj"),
        .up = layer_tensor(w, layer, "mlp.up_proj"),
        .down = layer_tensor(w, layer, "mlp.down_proj"),
    };
    out->kv = block_concatenated(out->k, out->v);
    out->qkv = block_concatenated(out->q, out->kv);
    out->gate_up = block_concatenated(out->gate, out->up);
}

void block_weights_decoder(struct block_weights *out, const struct model_config *config, const struct weights *w,
                           int index) {
    char layer[96];
    assert(index >= 0 && index < model_config_layers(config));
    if (config->base_lm) {
        snprintf(layer, sizeof layer, "language_model.model.layers.%d", index);
        layer_weights(out, w, layer);
        return;
    }
    if (index < config->lower_layers) {
        snprintf(layer, sizeof layer, "model.lower_layers.%d", index);
        layer_weights(out, w, layer);
        return;
    }
    int group = 0;
    index -= config->lower_layers;
    while (index >= config->group_layers[group])
        index -= config->group_layers[group++];
    snprintf(layer, sizeof layer, "model.upper_layers.%d.%d", group, index);
    layer_weights(out, w, layer);
    out->gca_norm = layer_tensor(w, layer, "gca.pre_norm");
    out->gca_q = layer_tensor(w, layer, "gca.q_proj");
    out->gca_o = layer_tensor(w, layer, "gca.o_proj");
}

void block_weights_encoder(struct block_weights *out, const struct model_config *config, const struct weights *w,
                           int index) {
    char layer[96];
    assert(index >= 0 && index < config->encoder_layers);
    snprintf(layer, sizeof layer, "model.encoder.layers.%d", index);
    layer_weights(out, w, layer);
}

static struct mat no_rstd(int64_t rows) {
    return mat_f32(NULL, rows, 1);
}

void block_output(struct device *dev, struct mat x, struct mat o, const struct block_weights *w) {
    dev->ops->matmul->forward(dev, x, o, w->o, true);
}

static void block_product(struct device *dev, struct mat y, struct mat x, struct mat w, bool accumulate, bool each) {
    (each ? dev->ops->matmul->forward_each : dev->ops->matmul->forward)(dev, y, x, w, accumulate);
}

void block_mlp(struct device *dev, struct mat x, struct mat h, const struct block_weights *w, float eps,
               struct block_scratch s) {
    struct mat norm = mat_rows(s.norm, 0, x.rows), gate_up = mat_rows(s.gate_up, 0, x.rows);
    struct mat gate = mat_cols(gate_up, 0, w->gate.rows), up = mat_cols(gate_up, w->gate.rows, w->up.rows);
    dev->ops->norm->forward(dev, norm, no_rstd(h.rows), h, w->post_norm, eps);
    block_product(dev, gate_up, norm, w->gate_up, false, s.each);
    dev->ops->elementwise->swiglu(dev, gate, gate, up);
    block_product(dev, x, gate, w->down, true, s.each);
}
