/* drt_model_info_json.c -- drt-model info --json. */
#include "base/formats/json.h"
#include "tools/model/drt_model_info.h"

static const char *variant_key(const struct model_config *c) {
    if (c->recurrent_layer) return "block-recurrent";
    if (c->landmark_block) return "landmark-attention";
    if (c->base_lm) return "base-lm";
    return c->encoder_input == ENCODER_INPUT_TOKENS ? "encoder-decoder" : "decoder";
}

static void model_info_json_put(struct json_writer *w, const char *key, int64_t value) {
    json_write_key(w, key);
    json_write_int(w, value);
}
static void put_text(struct json_writer *w, const char *key, const char *value) {
    json_write_key(w, key);
    json_write_string(w, value);
}

static void write_config(struct json_writer *w, const struct model_config *c) {
    json_write_key(w, "config");
    json_write_object(w);
    model_info_json_put(w, "vocab_size", c->vocab_size);
    model_info_json_put(w, "hidden_size", c->hidden);
    model_info_json_put(w, "intermediate_size", c->ffn);
    model_info_json_put(w, "num_attention_heads", c->heads);
    json_write_key(w, "decoder_layers");
    json_write_array(w);
    json_write_int(w, c->lower_layers);
    for (int g = 0; g < c->groups; g++)
        json_write_int(w, c->group_layers[g]);
    json_write_array_end(w);
    model_info_json_put(w, "encoder_layers", c->encoder_layers);
    model_info_json_put(w, "enc_chunk_size", c->chunk);
    model_info_json_put(w, "chunk_topk", c->topk);
    model_info_json_put(w, "slide_window", c->window);
    model_info_json_put(w, "chunk_id", c->landmark_id);
    model_info_json_put(w, "pad_id", c->pad_id);
    model_info_json_put(w, "mask_id", c->mask_id);
    model_info_json_put(w, "eos_id", c->eos_id);
    model_info_json_put(w, "memory_layer", c->memory_layer);
    model_info_json_put(w, "memory_size", c->memory_size);
    model_info_json_put(w, "landmark_sketch", c->landmark_sketch);
    put_text(w, "encoder_input", c->encoder_input == ENCODER_INPUT_TOKENS ? "tokens" : "hidden");
    json_write_key(w, "retrieval_proj");
    json_write_bool(w, c->retrieval_proj);
    json_write_key(w, "softmax_off_by_one");
    json_write_bool(w, c->softmax_off_by_one);
    put_text(w, "unread", c->unread);
    json_write_object_end(w);
}

static void write_tensors(struct json_writer *w, const struct facts *f) {
    json_write_key(w, "tensors");
    json_write_array(w);
    for (int i = 0; i < params_count(f->params); i++) {
        const struct param *p = params_at(f->params, i);
        const struct tensor_view *t = safetensors_find(f->file, p->name);
        json_write_object(w);
        put_text(w, "name", p->name);
        put_text(w, "dtype", t ? safetensors_dtype_name(t->dtype) : "?");
        json_write_key(w, "shape");
        json_write_array(w);
        if (p->rows != 1) json_write_int(w, p->rows);
        json_write_int(w, p->cols);
        json_write_array_end(w);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

void facts_print_json(const struct facts *f) {
    struct json_writer w;
    char line[33];
    json_write_open(&w, stdout, 0);
    json_write_object(&w);
    put_text(&w, "model", f->path);
    put_text(&w, "variant", variant_key(&f->config));
    write_config(&w, &f->config);
    model_info_json_put(&w, "bytes", (int64_t)f->bytes);
    json_write_key(&w, "parameters");
    json_write_object(&w);
    model_info_json_put(&w, "total", params_elements(f->params));
    for (int i = 0; i < PARTS; i++)
        model_info_json_put(&w, part_names[i], f->parts[i]);
    json_write_object_end(&w);
    json_write_key(&w, "fingerprint");
    if (f->config.base_lm)
        json_write_null(&w);
    else
        json_write_string(&w, facts_hex(line, f->landmark));
    json_write_key(&w, "tokenizer");
    if (f->tokenizer) {
        json_write_object(&w);
        model_info_json_put(&w, "ids", tokenizer_vocab_size(f->tokenizer));
        put_text(&w, "fingerprint", facts_hex(line, f->tokenizer_hash));
        json_write_object_end(&w);
    } else {
        json_write_null(&w);
    }
    write_tensors(&w, f);
    json_write_object_end(&w);
    printf("\n");
}
