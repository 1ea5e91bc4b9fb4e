/* drt_model_guess.c -- makes a config.json from the tensors' names and shapes.
 *
 * Shapes determine every size except the number of heads. Only the ALiBi buffers have it, and the caller may have
 * removed them, so hidden / 64 is assumed. Chunk length, top-k, window and special ids cannot be read from the weights,
 * so the released values are assumed. Each assumption is printed, because a model with a wrong value runs and gives
 * wrong results. */
#include "base/formats/json.h"
#include "base/formats/text.h"
#include "tools/model/drt_model.h"

#include <stdlib.h>
#include <string.h>

enum { RELEASED_VOCAB = 50265, RELEASED_HEAD_DIM = 64 };

struct shapes {
    const struct tensor_view *tensors;
    int count;
    const char *path;
};

static const struct tensor_view *model_guess_find(const struct shapes *s, const char *name) {
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->tensors[i].name, name) == 0) return &s->tensors[i];
    return NULL;
}

/* Counts the layers: "<stem>.<n>.input_layernorm.weight" for n = 0, 1, ... */
static int model_guess_layers(const struct shapes *s, const char *stem) {
    char name[128];
    for (int n = 0;; n++) {
        snprintf(name, sizeof name, "%s.%d.input_layernorm.weight", stem, n);
        if (!model_guess_find(s, name)) return n;
    }
}

static enum status model_guess_matrix(const struct shapes *s, const struct tensor_view **out, const char *name) {
    *out = model_guess_find(s, name);
    if (!*out) return fail(STATUS_NOT_FOUND, "%s: tensor %s is missing", s->path, name);
    if ((*out)->dims != 2)
        return fail(STATUS_INVALID, "%s: tensor %s has %d dimensions, not 2", s->path, name, (*out)->dims);
    return STATUS_OK;
}

static void model_guess_put(struct json_writer *w, const char *key, int64_t value) {
    json_write_key(w, key);
    json_write_int(w, value);
}

static void write_drt(struct json_writer *w, const struct shapes *s) {
    char stem[64];
    json_write_key(w, "decoder_layers");
    json_write_array(w);
    json_write_int(w, model_guess_layers(s, "model.lower_layers"));
    for (int g = 0;; g++) {
        snprintf(stem, sizeof stem, "model.upper_layers.%d", g);
        if (model_guess_layers(s, stem) == 0) break;
        json_write_int(w, model_guess_layers(s, stem));
    }
    json_write_array_end(w);
    model_guess_put(w, "encoder_layers", model_guess_layers(s, "model.encoder.layers"));
    model_guess_put(w, "enc_chunk_size", 63);
    model_guess_put(w, "chunk_topk", 8);
    model_guess_put(w, "slide_window", 512);
    model_guess_put(w, "chunk_id", 50264);
    model_guess_put(w, "mask_id", 50263);
    model_guess_put(w, "pad_id", 50257);
    model_guess_put(w, "eos_id", 50256);
    json_write_key(w, "encoder_input");
    json_write_string(w, "hidden");
    json_write_key(w, "retrieval_proj");
    json_write_bool(w, model_guess_find(s, "model.lmk_k_proj.weight") != NULL);
}

static void write_base_lm(struct json_writer *w, const struct shapes *s) {
    json_write_key(w, "decoder_layers");
    json_write_array(w);
    json_write_int(w, model_guess_layers(s, "language_model.model.layers"));
    json_write_array_end(w);
    model_guess_put(w, "encoder_layers", 0);
    model_guess_put(w, "slide_window", 512);
    model_guess_put(w, "pad_id", 50257);
    model_guess_put(w, "eos_id", 50256);
}

enum status model_guess_config(char **json, size_t *bytes, const struct tensor_view *tensors, int count,
                               const char *path, FILE *notes) {
    const struct shapes s = {tensors, count, path};
    const struct tensor_view *embedding = NULL, *gate = NULL;
    bool base_lm = model_guess_find(&s, "language_model.model.embed_tokens.weight") != NULL;
    TRY(model_guess_matrix(&s, &embedding,
                           base_lm ? "language_model.model.embed_tokens.weight" : "model.embed_tokens.weight"));
    TRY(model_guess_matrix(&s, &gate,
                           base_lm ? "language_model.model.layers.0.mlp.gate_proj.weight"
                                   : "model.lower_layers.0.mlp.gate_proj.weight"));
    int64_t vocabulary = embedding->shape[0], hidden = embedding->shape[1];
    if (vocabulary != RELEASED_VOCAB)
        return fail(STATUS_UNSUPPORTED,
                    "%s: has a vocabulary of %lld, so the released special ids (made for %d) cannot be "
                    "assumed: give its config.json with --config",
                    path, (long long)vocabulary, RELEASED_VOCAB);
    if (hidden % RELEASED_HEAD_DIM)
        return fail(STATUS_UNSUPPORTED,
                    "%s: has hidden size %lld, which heads of %d do not divide: give its config.json with "
                    "--config",
                    path, (long long)hidden, RELEASED_HEAD_DIM);
    if (!base_lm && !model_guess_find(&s, "model.lmk_norms.0.weight"))
        return fail(STATUS_UNSUPPORTED,
                    "%s: has no model.lmk_norms: a checkpoint from before June 2025, whose network was "
                    "another one",
                    path);
    FILE *file = text_stream_open(json, bytes);
    if (!file) return fail(STATUS_NO_MEMORY, "%s: no memory for a config", path);
    struct json_writer w;
    json_write_open(&w, file, 2);
    json_write_object(&w);
    model_guess_put(&w, "vocab_size", vocabulary);
    model_guess_put(&w, "hidden_size", hidden);
    model_guess_put(&w, "intermediate_size", gate->shape[0]);
    model_guess_put(&w, "num_attention_heads", hidden / RELEASED_HEAD_DIM);
    if (base_lm)
        write_base_lm(&w, &s);
    else
        write_drt(&w, &s);
    json_write_key(&w, "rms_norm_eps");
    json_write_double(&w, 1e-5);
    json_write_key(&w, "tie_word_embeddings");
    json_write_bool(&w, true);
    json_write_object_end(&w);
    fputc('\n', file);
    if (fclose(file) != 0) return fail(STATUS_NO_MEMORY, "%s: no memory for a config", path);
    fprintf(notes,
            "drt-model: note: no --config given; sizes come from the tensors, and these values are assumed:\n"
            "  num_attention_heads %lld (heads of 64), slide_window 512, rms_norm_eps 1e-5, pad_id 50257, eos_id 50256",
            (long long)(hidden / RELEASED_HEAD_DIM));
    if (!base_lm)
        fprintf(notes, ",\n  enc_chunk_size 63, chunk_topk 8, chunk_id 50264, mask_id 50263, encoder_input hidden");
    fprintf(notes, "\n  If the model was trained with others, convert again with its config.json (--config).\n");
    return STATUS_OK;
}
