/* encoder_weights.c -- the encoder's weights, packed once at create, because an index build uses them in millions of
 * products. */
#include "base/memory.h"
#include "encoder/encoder_internal.h"
#include "kernels/ops.h"

/* Allocates packed matrices from `memory`. With memory NULL it only counts bytes. */
struct packer {
    struct device *dev;
    unsigned char *memory;
    size_t used;
};

static struct encoder_matrix encoder_weights_pack(struct packer *p, struct mat w) {
    struct encoder_matrix m = {.out = w.rows, .in = w.cols};
    if (p->memory) {
        m.packed = p->memory + p->used;
        p->dev->ops->matmul->pack(p->dev, m.packed, w);
    }
    /* Each matrix begins on its own cache line. */
    size_t bytes = (size_t)(p->dev->ops->matmul->packed_elements(w.rows, w.cols) * dtype_bytes(w.type));
    p->used += (bytes + 63) / 64 * 64;
    return m;
}

/* A GPU computes the keys and values of all chunks in one product with [Wk; Wv]. */
static void encoder_weights_pack_keys(struct encoder_weights *out, struct packer *p, const struct weights *weights) {
    struct mat k = weights_tensor(weights, "model.chunk_k_proj.weight");
    struct mat v = weights_tensor(weights, "model.chunk_v_proj.weight");
    if (p->dev->shares_memory) {
        out->chunk_k = encoder_weights_pack(p, k);
        out->chunk_v = encoder_weights_pack(p, v);
        return;
    }
    out->chunk_kv = encoder_weights_pack(p, block_concatenated(k, v));
}

static void encoder_weights_pack_all(struct encoder_weights *out, struct packer *p, const struct model_config *config,
                                     const struct weights *weights) {
    int last = config->encoder_layers - 1;
    for (int i = 0; i <= last; i++) {
        struct encoder_layer *layer = &out->layers[i];
        struct block_weights w;
        block_weights_encoder(&w, config, weights, i);
        *layer = (struct encoder_layer){.input_norm = w.input_norm, .post_norm = w.post_norm};
        layer->qkv = encoder_weights_pack(p, w.qkv);
        if (i == last) { /* only queries of the landmark's row are needed */
            layer->q = encoder_weights_pack(p, w.q);
            layer->kv = encoder_weights_pack(p, w.kv);
        }
        layer->o = encoder_weights_pack(p, w.o);
        layer->gate_up = encoder_weights_pack(p, w.gate_up);
        layer->down = encoder_weights_pack(p, w.down);
    }
    encoder_weights_pack_keys(out, p, weights);
    if (config->retrieval_proj)
        out->landmark = encoder_weights_pack(p, weights_tensor(weights, "model.lmk_k_proj.weight"));
}

enum status encoder_weights_create(struct encoder_weights *out, struct device *dev, const struct model_config *config,
                                   const struct weights *weights) {
    struct packer packer = {.dev = dev};
    *out = (struct encoder_weights){
        .embedding = weights_tensor(weights, "model.embed_tokens.weight"),
        .prenorm = weights_tensor(weights, "model.enc_prenorm.weight"),
        .norm = weights_tensor(weights, "model.encoder.norm.weight"),
    };
    TRY(memory_allocate_zero(&out->layers, (size_t)config->encoder_layers));
    encoder_weights_pack_all(out, &packer, config, weights);
    out->bytes = packer.used;
    enum status s = device_allocate(dev, &out->memory, out->bytes);
    if (s != STATUS_OK) {
        encoder_weights_free(out, dev);
        return s;
    }
    packer = (struct packer){.dev = dev, .memory = out->memory};
    encoder_weights_pack_all(out, &packer, config, weights);
    return STATUS_OK;
}

void encoder_weights_free(struct encoder_weights *w, struct device *dev) {
    device_release(dev, w->memory);
    memory_free(w->layers);
    *w = (struct encoder_weights){0};
}
