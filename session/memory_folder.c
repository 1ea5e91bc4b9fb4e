/* memory_folder.c -- see memory_folder.h. */
#include "session/memory_folder.h"
#include "indexer/build/stored_keys.h"
#include <string.h>

enum status memory_folder_path(char path[FILE_PATH_MAX], const struct model_folder *model, bool small) {
    if (small) {
        TRY(file_join(path, model->path, "memory-cpu.json"));
        if (file_exists(path)) return STATUS_OK;
    }
    return file_join(path, model->path, "memory.json");
}

bool memory_folder_small(const struct engine *e) {
    const struct model_config *model = &e->model.config;
    struct store_keys *keys = NULL;
    uint8_t weights[16];
    if (!e->device->shares_memory || !e->view) return e->device->shares_memory;
    params_fingerprint(e->model.params, weights);
    const int layer = model_config_key_layer(model);
    const struct store_keys_spec spec = stored_keys_spec(model, weights, layer, 0);
    /* a failure is reported when the keys are read */
    const bool there = stored_keys_find(&keys, e->view, &spec, e->model.path, false) == STATUS_OK && keys;
    store_keys_close(keys);
    return !there;
}

bool memory_folder_has(const struct model_folder *model) {
    char path[FILE_PATH_MAX];
    return memory_folder_path(path, model, false) == STATUS_OK && file_exists(path);
}

void memory_folder_sign(struct memory_config *out, const struct model_folder *model) {
    tokenizer_fingerprint(model->tokenizer, out->tokenizer);
    params_fingerprint(model->params, out->weights);
}

static enum status folder_check(const struct memory_config *c, const struct model_folder *model, const char *path) {
    uint8_t tokenizer[sizeof c->tokenizer], weights[sizeof c->weights];
    const char *other = NULL;
    tokenizer_fingerprint(model->tokenizer, tokenizer);
    params_fingerprint(model->params, weights);
    if (memcmp(tokenizer, c->tokenizer, sizeof tokenizer) != 0) other = "another tokenizer";
    if (!other && memcmp(weights, c->weights, sizeof weights) != 0) other = "other weights";
    if (other)
        return fail(STATUS_MISMATCH,
                    "%s: was fitted for a model with %s than %s: fit it again with drt-eval "
                    "fit-memory",
                    path, other, model->path);
    if (c->key_layer > model_config_layers(&model->config))
        return fail(STATUS_MISMATCH, "%s: key_layer is %d, but the model has %d layers", path, c->key_layer,
                    model_config_layers(&model->config));
    return STATUS_OK;
}

enum status memory_folder_load(struct memory_config *out, const struct model_folder *model, const char *path,
                               bool small) {
    char own[FILE_PATH_MAX];
    if (!path) {
        TRY(memory_folder_path(own, model, small));
        path = own;
    }
    TRY(memory_config_load(out, path));
    return folder_check(out, model, path);
}
